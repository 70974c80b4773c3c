package vm_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

func TestKernelWithoutPSI(t *testing.T) {
	t.Parallel()
	n := startNode(t, vm.Options{Name: "no-psi", MemMiB: 512, Disks: 1, Append: "psi=0"}, ".", "./e2e/vm/steady", "./probes/recordfixture")
	require.Equal(t, "absent\n", n.run("test -e /proc/pressure || echo absent"))

	out, err := n.Run(t.Context(), "/root/plimsoll doctor")
	assert.Contains(t, out, "psi=1")
	assert.Len(t, linesWith(out, "psi=1"), 1, "said once:\n%s", out)
	status := 0
	if failed := new(exec.ExitError); assert.ErrorAs(t, err, &failed, "doctor fails:\n%s", out) {
		status = failed.ExitCode()
	}
	assert.Equal(t, 1, status, out)
	assert.Regexp(t, `(?m)^WARN  PSI triggers +none can be armed: .*; none for host io, host memory: see probe pressure$`, out)

	n.startAgent()
	said := n.run("journalctl -q --no-pager -o cat -u plimsoll")
	assert.Len(t, linesWith(said, "probe pressure failed: cpu, memory, io: no PSI (kernel built without CONFIG_PSI, or booted without psi=1)"), 1, "said once:\n%s", said)
	assert.Len(t, linesWith(said, "not judged: memory, CPU: no PSI"), 1, "said once:\n%s", said)
	n.until(30*time.Second, "memory-stall says why it cannot judge", func() bool {
		v := n.memoryStall()
		return v.Level == "none" && strings.Contains(v.Absent, "psi=1")
	})
	n.run("systemctl stop plimsoll")
	t.Run("recorded", func(t *testing.T) {
		n := n.with(t)
		n.work("cri-c0ffee", inPod("-p MemoryMax=64M"), "-file /dev/vdb -write 2 -read 1 -cpu 50 -memory 16")
		a := n.record(machine{
			name:    "vm-v2-psi-off",
			load:    "cgroup v2, systemd, psi=0; one slice as of a burstable pod in which steady -write 2 -read 1 -cpu 50 -memory 16 works on vdb",
			cgroups: "/kubepods.slice,/system.slice/ssh.service", want: podSlice + "/io.stat", hide: []string{n.mac(), n.bootID()},
		}, nil)
		for _, f := range a.Files {
			assert.NotContains(t, f.Name, "pressure")
		}
	})
}

func TestWorkloadOnCgroupV1(t *testing.T) {
	t.Parallel()
	n := startNode(t, vm.Options{Name: "v1", MemMiB: 512, Append: "systemd.unified_cgroup_hierarchy=0"}, ".")
	require.Equal(t, "tmpfs\n", n.run("stat -fc %T /sys/fs/cgroup"))
	n.run("systemd-run -q --unit=holder -p MemoryMax=100M sh -c 'head -c 40M /dev/zero >/dev/shm/held; exec sleep 600'")
	n.startAgent()
	n.until(30*time.Second, "the workload is seen", func() bool {
		w, ok := n.workload("holder.service")
		return ok && w.MemoryBytes >= 40<<20 && w.MemoryLimitBytes == 100<<20
	})
	out := n.run("/root/plimsoll doctor")
	assert.Regexp(t, `(?m)^PASS  cgroups +hybrid, \d+ workloads$`, out)
}

func linesWith(text, part string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
