package vm_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

func TestVMCommandsAndEnd(t *testing.T) {
	if !long() {
		t.Skip("a machine for what the other tests' machines do all the time: make e2e")
	}
	var pid string
	t.Run("alive", func(t *testing.T) {
		share := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(share, "below"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(share, "below", "gift"), []byte("gift\n"), 0o755))
		const many = 20
		greeter := greetTogether(t, many)
		m := vm.Start(t, vm.Options{
			Name: "errand", MemMiB: 512, CPUs: 1, Disks: 2, Append: "plimsoll.test=1",
			Share: share, Forward: map[string]string{"10.0.2.100:6443": greeter},
		})
		pid = onlyQEMU(t, "errand")

		out, err := m.Run(t.Context(), "grep -c ^processor /proc/cpuinfo; grep -o plimsoll.test=1 /proc/cmdline; lsblk -dno NAME,SIZE /dev/vdc; stat -fc %T /sys/fs/cgroup")
		require.NoError(t, err)
		assert.Equal(t, "1\nplimsoll.test=1\nvdc    2G\ncgroup2fs\n", out)

		out, err = m.Run(t.Context(), "echo heard; echo why >&2; exit 7")
		var status *exec.ExitError
		require.ErrorAs(t, err, &status)
		assert.Equal(t, 7, status.ExitCode())
		assert.Equal(t, "heard\n", out, "what a failing command wrote is not lost")
		assert.ErrorContains(t, err, "why")

		there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
		require.NoError(t, os.WriteFile(there, []byte("cargo"), 0o755))
		require.NoError(t, m.Push(t.Context(), there, "/root/cargo"))
		require.NoError(t, m.Pull(t.Context(), "/root/cargo", back))
		cargo, err := os.ReadFile(back)
		require.NoError(t, err)
		assert.Equal(t, "cargo", string(cargo))

		out, err = m.Run(t.Context(), "cat /share/below/gift; touch /share/mine 2>/dev/null || echo read-only")
		require.NoError(t, err)
		assert.Equal(t, "gift\nread-only\n", out)

		out, err = m.Run(t.Context(), fmt.Sprintf("for i in $(seq %d); do timeout 60 busybox nc 10.0.2.100 6443 </dev/null & done; wait", many))
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat("all here\n", many), out, "connections that are open at once")

		_, err = m.Run(t.Context(), "cd /share/below && busybox httpd -p 127.0.0.1:80")
		require.NoError(t, err)
		gift, err := m.Get(t.Context(), "127.0.0.1:80", "/gift")
		require.NoError(t, err)
		assert.Equal(t, "gift\n", string(gift))
		_, err = m.Get(t.Context(), "127.0.0.1:80", "/none")
		require.ErrorContains(t, err, "404")
		_, err = m.Get(t.Context(), "127.0.0.1:81", "/")
		require.Error(t, err, "nobody listens there")

		answer, err := m.Monitor(t.Context(), "info block")
		require.NoError(t, err)
		assert.Contains(t, answer, "vd2")
		assert.NotContains(t, answer, "vd3")
		assert.Contains(t, string(m.Console()), "VM-READY")

		host, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer host.Close()
		_, port, err := net.SplitHostPort(host.Addr().String())
		require.NoError(t, err)
		_, err = m.Run(t.Context(), "timeout 10 bash -c '</dev/tcp/10.0.2.2/"+port+"'")
		require.Error(t, err, "the machine reached its host")
	})
	if pid == "" {
		return // skipped, and said why
	}
	assert.NoDirExists(t, "/proc/"+pid, "QEMU outlives its test")
}

// greetTogether is the address of a server that greets those who connect once
// so many are connected at the same time.
func greetTogether(t *testing.T, many int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		var guests []net.Conn
		for len(guests) < many {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			guests = append(guests, c)
		}
		for _, c := range guests {
			_, _ = c.Write([]byte("all here\n"))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// onlyQEMU is the process of the machine of that name that this process started.
func onlyQEMU(t *testing.T, name string) string {
	t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	require.NoError(t, err)
	var found []string
	for _, file := range children {
		pids, _ := os.ReadFile(file) // a thread may be gone
		for pid := range strings.FieldsSeq(string(pids)) {
			cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.Contains(string(cmdline), "\x00-name\x00"+name+"\x00") {
				found = append(found, pid)
			}
		}
	}
	require.Len(t, found, 1)
	return found[0]
}
