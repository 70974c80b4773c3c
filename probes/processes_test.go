package probes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// cgroupOfPIDs is a made-up cgroup v2 tree whose /pod has these processes.
func cgroupOfPIDs(t *testing.T, pids ...int) string {
	t.Helper()
	root := t.TempDir()
	var text strings.Builder
	for _, pid := range pids {
		fmt.Fprintln(&text, pid)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pod"), 0o755))
	for name, content := range map[string]string{"cgroup.controllers": "", "cgroup.procs": "", "pod/cgroup.procs": text.String()} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o644))
	}
	return root
}

// writer is a process with a hostile name that keeps writing, without a child.
func writer(t *testing.T, name string) int {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, name)
	shell, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, shell, 0o755))
	cmd := exec.CommandContext(t.Context(), program, "-c", "echo; while :; do echo x > "+filepath.Join(dir, "file")+"; done")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 1)) // it runs
	require.NoError(t, err)
	return cmd.Process.Pid
}

func TestReadProcesses(t *testing.T) {
	read := func(root string) ProcessList {
		t.Helper()
		list, err := ReadProcesses(t.Context(), Paths{Procfs: "/proc", Cgroupfs: root}, "/pod", 50*time.Millisecond)
		require.NoError(t, err)
		return list
	}
	t.Run("command, memory and rates of a real process", func(t *testing.T) {
		const name = "a) b (c" // what would confuse a parser of stat
		pid := writer(t, name)
		list := read(cgroupOfPIDs(t, pid, os.Getpid()))
		require.Len(t, list.Processes, 2)
		assert.Equal(t, 2, list.Found)
		assert.Empty(t, list.Unread)
		assert.Greater(t, list.Seconds, 0.04)
		for _, p := range list.Processes {
			rss, known := p.RSSBytes.Get()
			assert.True(t, known && rss > 0)
			assert.False(t, p.CPUCores.IsZero())
			_, known = p.WrittenBytesPerSecond.Get()
			assert.True(t, known, "%v", p.Absent)
			if p.PID == pid {
				assert.Equal(t, name, p.Command)
			}
		}
	})
	t.Run("one that ended is counted", func(t *testing.T) {
		ended := exec.CommandContext(t.Context(), "true")
		require.NoError(t, ended.Run())
		list := read(cgroupOfPIDs(t, ended.Process.Pid, os.Getpid()))
		assert.Len(t, list.Processes, 1)
		assert.Equal(t, []UnreadProcesses{{1, "ended, or hidden from the agent (hidepid)"}}, list.Unread)
	})
	t.Run("one of another PID namespace is counted", func(t *testing.T) {
		list := read(cgroupOfPIDs(t, 0, os.Getpid()))
		assert.Equal(t, 2, list.Found)
		require.Len(t, list.Unread, 1)
		assert.Contains(t, list.Unread[0].Why, "hostPID")
	})
	t.Run("all are of another PID namespace where procfs is the host's", func(t *testing.T) {
		for name, self := range map[string]struct {
			pid  int
			nsid string
		}{"another ID": {4_000_000, "4000000\t1"}, "the same ID by chance": {os.Getpid(), fmt.Sprintf("%d\t%[1]d", os.Getpid())}} {
			proc, pids := madeUpProcesses(t, 3)
			madeUpSelf(t, proc, self.pid, self.nsid)
			list, err := ReadProcesses(t.Context(), Paths{Procfs: proc, Cgroupfs: cgroupOfPIDs(t, pids...)}, "/pod", time.Millisecond)
			require.NoError(t, err, name)
			assert.Empty(t, list.Processes, "%s: these are other processes of the host", name)
			assert.Equal(t, 3, list.Found, name)
			assert.Equal(t, []UnreadProcesses{{3, "of another PID namespace than the agent's: it needs hostPID"}}, list.Unread, name)
		}
	})
	t.Run("without time nothing is read, and it is told", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		_, err := ReadProcesses(ctx, Paths{Procfs: "/proc", Cgroupfs: cgroupOfPIDs(t, os.Getpid())}, "/pod", time.Hour)
		require.ErrorContains(t, err, "too slow")
	})
	t.Run("a cgroup of thousands is bounded, by other ones each time", func(t *testing.T) {
		proc, pids := madeUpProcesses(t, 4*MaxProcesses)
		paths := Paths{Procfs: proc, Cgroupfs: cgroupOfPIDs(t, pids...)}
		first, err := ReadProcesses(t.Context(), paths, "/pod", time.Millisecond)
		require.NoError(t, err)
		require.Len(t, first.Processes, MaxProcesses)
		assert.Equal(t, 4*MaxProcesses, first.Found)
		require.Len(t, first.Unread, 1)
		assert.Equal(t, 3*MaxProcesses, first.Unread[0].Count)
		second, err := ReadProcesses(t.Context(), paths, "/pod", time.Millisecond)
		require.NoError(t, err)
		assert.NotEqual(t, pidsOf(first), pidsOf(second))
	})
	t.Run("IO that may not be read says what it needs", func(t *testing.T) {
		pid := 1 // of another user
		if os.Geteuid() == 0 {
			sleep := exec.CommandContext(t.Context(), "sleep", "60") // it has capabilities, who reads has none
			require.NoError(t, sleep.Start())
			t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
			pid = sleep.Process.Pid
		}
		paths := Paths{Procfs: "/proc", Cgroupfs: cgroupOfPIDs(t, pid)}
		var list ProcessList
		require.NoError(t, withoutCapabilities(func() (err error) {
			list, err = ReadProcesses(t.Context(), paths, "/pod", 50*time.Millisecond)
			return err
		}))
		require.Len(t, list.Processes, 1)
		assert.Equal(t, snapshot.Absent{"io": "permission denied: it needs CAP_SYS_PTRACE"}, list.Processes[0].Absent)
	})
}

// withoutCapabilities runs do on a thread that has none, and ends the thread.
func withoutCapabilities(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: nothing else may run on it
		none := [2]unix.CapUserData{}
		err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

func pidsOf(l ProcessList) (pids []int) {
	for _, p := range l.Processes {
		pids = append(pids, p.PID)
	}
	return pids
}

// madeUpProcesses is a /proc of so many processes.
func madeUpProcesses(t *testing.T, n int) (root string, pids []int) {
	t.Helper()
	root = t.TempDir()
	for pid := 1; pid <= n; pid++ {
		dir := filepath.Join(root, strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		stat := fmt.Sprintf("%d (p) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 77 0 0%s\n", pid, strings.Repeat(" 0", 28))
		for name, text := range map[string]string{
			"stat": stat, "status": "Name:\tp\nVmRSS:\t  40 kB\nVmSwap:\t 0 kB\n",
			"io": "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 0\ncancelled_write_bytes: 0\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		pids = append(pids, pid)
	}
	madeUpSelf(t, root, os.Getpid(), strconv.Itoa(os.Getpid()))
	return root, pids
}

// madeUpSelf puts this process into a /proc, with its IDs in each PID namespace.
func madeUpSelf(t *testing.T, root string, pid int, ids string) {
	t.Helper()
	dir, link := filepath.Join(root, strconv.Itoa(pid)), filepath.Join(root, "self")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte("Name:\tp\nVmRSS:\t  40 kB\nVmSwap:\t 0 kB\nNSpid:\t"+ids+"\n"), 0o644))
	require.NoError(t, os.RemoveAll(link))
	require.NoError(t, os.Symlink(strconv.Itoa(pid), link))
}

func TestProcessReplaced(t *testing.T) {
	proc, pids := madeUpProcesses(t, 3)
	fs, err := procfs.NewFS(proc)
	require.NoError(t, err)
	var list ProcessList
	first := list.readAll(t.Context(), fs, pids)
	require.Len(t, first, 3)
	first[0].identity++ // its ID belonged to another process then
	got := list.rates(t.Context(), fs, first, []int{1, 2})
	assert.Equal(t, []int{2}, pidsOf(ProcessList{Processes: got}), "and the third has left the workload")
	assert.Equal(t, []UnreadProcesses{{2, "ended, or left the workload, while they were read"}}, list.Unread)
}

func TestProcessRates(t *testing.T) {
	const never = -1
	at := time.Unix(100, 0)
	reading := func(after time.Duration, cpu float64, read, written int) Process {
		p := Process{PID: 1, at: at.Add(after), cpu: cpu}
		if read != never {
			p.io = snapshot.Some(procfs.ProcIO{ReadBytes: uint64(read), WriteBytes: uint64(written)})
		}
		return p
	}
	rated := func(cores, read, written float64) Process {
		return Process{
			CPUCores: snapshot.Some(cores), ReadBytesPerSecond: snapshot.Some(read), WrittenBytesPerSecond: snapshot.Some(written),
		}
	}
	before := reading(0, 5, 1000, 50)
	for name, row := range map[string]struct {
		was, is, want Process
	}{
		"two seconds":               {before, reading(2*time.Second, 6, 5000, 150), rated(0.5, 2000, 50)},
		"nothing was done":          {before, reading(time.Second, 5, 1000, 50), rated(0, 0, 0)},
		"no time passed":            {before, reading(0, 6, 2000, 60), Process{Absent: snapshot.Absent{"rates": "no time passed between the readings"}}},
		"the CPU time went back":    {before, reading(time.Second, 4, 1000, 50), rated(0, 0, 0)},
		"the bytes went back":       {before, reading(time.Second, 6, 10, 50), Process{CPUCores: snapshot.Some(1.0), Absent: snapshot.Absent{"io": "it was not read twice"}}},
		"IO was not read at first":  {reading(0, 5, never, never), reading(time.Second, 6, 10, 50), Process{CPUCores: snapshot.Some(1.0), Absent: snapshot.Absent{"io": "it was not read twice"}}},
		"IO is not read any longer": {before, reading(time.Second, 6, never, never), Process{CPUCores: snapshot.Some(1.0)}},
	} {
		t.Run(name, func(t *testing.T) {
			row.is.rate(&row.was)
			got := Process{
				CPUCores: row.is.CPUCores, ReadBytesPerSecond: row.is.ReadBytesPerSecond,
				WrittenBytesPerSecond: row.is.WrittenBytesPerSecond, Absent: row.is.Absent,
			}
			assert.Equal(t, row.want, got)
		})
	}
}
