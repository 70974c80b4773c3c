package vm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/e2e/vm/rungs"
)

// rungRecords are what TestRungs measured so far: a cell that is there is not run again.
const rungRecords = "rungs/testdata/cells.jsonl"

// TestRungs runs the cells of e2e/vm/rungs that have no record: v2 in a machine, v1 on
// this host. The environment says which, so that they are run on an idle machine alone:
//
//	PLIMSOLL_RUNGS=v2 go test -count=1 -timeout=2h -v -run 'TestRungs/v2' ./e2e/vm
func TestRungs(t *testing.T) {
	if os.Getenv("PLIMSOLL_RUNGS") == "" {
		t.Skip("a measurement of an hour on an idle machine: PLIMSOLL_RUNGS=v2 or v1")
	}
	t.Run(os.Getenv("PLIMSOLL_RUNGS"), func(t *testing.T) {
		switch version := os.Getenv("PLIMSOLL_RUNGS"); version {
		case "v2":
			rungsInMachine(t)
		case "v1":
			rungsOnHost(t)
		default:
			t.Fatalf("PLIMSOLL_RUNGS=%s: no such version of cgroups", version)
		}
	})
}

// cellsToRun runs each cell without a record as a subtest.
func cellsToRun(t *testing.T, version string, run func(*testing.T, rungs.Cell) rungs.Record) {
	t.Helper()
	for _, c := range rungs.Cells(version) {
		t.Run(c.Load+" with "+c.Rung, func(t *testing.T) {
			all, err := rungs.Read(rungRecords)
			require.NoError(t, err)
			if rungs.Has(all, c) {
				t.Skip("there is a record of it")
			}
			r := run(t, c)
			require.Equal(t, c, r.Cell)
			require.NoError(t, rungs.Append(rungRecords, &r))
			t.Logf("%s\n%s", r.Row(), indented(t, r))
		})
	}
}

func indented(t *testing.T, r rungs.Record) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	require.NoError(t, err)
	return string(b)
}

func specOf(c rungs.Cell) rungs.Spec {
	return rungs.Spec{
		Cell: c, Root: "/sys/fs/cgroup", Threads: 16,
		Before: 5 * time.Second, Under: 6 * time.Second, With: 10 * time.Second, After: 5 * time.Second, Over: 3 * time.Second,
	}
}

// lostAfter is how long a machine is asked for the outcome of a cell of half a minute.
const lostAfter = 6 * time.Minute

// rungsInMachine runs cells in a machine, and in a new one after one was lost.
func rungsInMachine(t *testing.T) {
	var n *node
	cellsToRun(t, "v2", func(one *testing.T, c rungs.Cell) rungs.Record {
		if n == nil {
			n = startRungs(t)
		}
		r, err := n.with(one).cell(c)
		if err != nil {
			one.Log(err)
			_, _ = n.Monitor(context.WithoutCancel(t.Context()), "quit") // the next must have the host for itself
			r, n = rungs.Record{Cell: c, Lost: fmt.Sprintf("no outcome within %s: %v", lostAfter, err)}, nil
		}
		return r
	})
}

// startRungs boots a machine whose second disk has the files of a cell and does 500
// requests a second. A quota elsewhere keeps the kernel's accounting of quotas on, as on
// a node with limits of CPU: to switch it on, the kernel patches its own code, after
// which one emulated processor once ran in a circle for ever.
func startRungs(t *testing.T) *node {
	t.Helper()
	n := startNode(t, vm.Options{Name: "rungs", Disks: 1}, "./e2e/vm/hog", "./e2e/vm/witness")
	n.run("modprobe bfq; mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/vdb && mkdir /rungs && mount /dev/vdb /rungs" + rungFiles("/rungs"))
	n.run("echo +cpu >/sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/quota && echo 100000 >/sys/fs/cgroup/quota/cpu.max")
	n.throttle(500, "vd1")
	return n
}

// rungFiles is the shell that makes the files of a cell in a directory.
func rungFiles(dir string) string {
	return fmt.Sprintf(" && mkdir %[1]s/common && for f in pages:64 served:32 data:256; do dd if=/dev/zero of=%[1]s/${f%%:*} bs=1M count=${f#*:} status=none; done && sync -f %[1]s", dir)
}

func (n *node) cell(c rungs.Cell) (r rungs.Record, err error) {
	n.t.Helper()
	s := specOf(c)
	s.Name, s.Dir, s.Hog, s.Witness, s.HashKiB = "rungs", "/rungs", "/root/hog", "/root/witness", 16
	s.Device = strings.TrimSpace(n.run("cat /sys/block/vdb/dev"))
	spec, err := json.Marshal(s)
	require.NoError(n.t, err)
	ctx, cancel := context.WithTimeout(n.t.Context(), lostAfter)
	defer cancel()
	out, err := n.Run(ctx, "sync; echo 3 >/proc/sys/vm/drop_caches; cat >/run/spec <<'E'\n"+string(spec)+"\nE\n"+
		"rm -f /run/cell /run/cell.err; systemd-run -q --wait --collect --unit=cell -p OOMScoreAdjust=-999 -p StandardOutput=file:/run/cell -p StandardError=file:/run/cell.err /root/witness cell /run/spec; "+
		"tail -5 /run/cell.err >&2; cat /run/cell")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("%w: %q, %s", err, out, n.run("tail -20 /run/cell.err; dmesg | tail -20"))
	}
	return r, nil
}

// rungsOnHost runs cells in cgroups of their own on this host, whose disk is a file
// behind a loop device. They share one CPU and 2 GiB.
func rungsOnHost(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device"); err != nil {
		t.Skip("no cgroup v1 on this host")
	}
	dir := t.TempDir()
	hog, witness := filepath.Join(dir, "hog"), filepath.Join(dir, "witness")
	build(t, "./e2e/vm/hog", hog)
	build(t, "./e2e/vm/witness", witness)
	mounted, device := loopDisk(t, dir)
	cellsToRun(t, "v1", func(t *testing.T, c rungs.Cell) (r rungs.Record) {
		s := specOf(c)
		s.Name, s.Dir, s.Device, s.Hog, s.Witness, s.HashKiB = fmt.Sprintf("plimsoll-rungs-%d", os.Getpid()), mounted, device, hog, witness, 256
		s.LimitMiB, s.CPUs = 2048, "1"
		spec, err := json.Marshal(s)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "spec")
		require.NoError(t, os.WriteFile(file, spec, 0o600))
		ctx, cancel := deadline.Context(t.Context(), lostAfter)
		defer cancel()
		out, err := exec.CommandContext(ctx, witness, "cell", file).Output()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &r))
		return r
	})
}

// loopDisk mounts a disk that is a file on this host's, and gives its number.
func loopDisk(t *testing.T, dir string) (mounted, device string) {
	t.Helper()
	file := filepath.Join(dir, "disk")
	sh := func(script string) string {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-c", "set -e; "+script).CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
		return strings.TrimSpace(string(out))
	}
	mounted = filepath.Join(dir, "mounted")
	loop := sh("dd if=/dev/zero of=" + file + " bs=1M count=1024 status=none; losetup --find --show --direct-io=on " + file)
	t.Cleanup(func() { sh("losetup --detach " + loop) })
	sh("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 " + loop + "; mkdir " + mounted + "; mount " + loop + " " + mounted + rungFiles(mounted))
	t.Cleanup(func() { sh("umount " + mounted) })
	return mounted, sh("cat /sys/block/" + filepath.Base(loop) + "/dev")
}
