package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
)

func hostCgroups(t *testing.T) *Reader {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	c, err := Find("/proc", "", nil)
	if err != nil {
		t.Skipf("needs a cgroup file system: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// makeCgroup makes one in the hierarchies named (all that are read if none is),
// removes it at the end and returns its path.
func makeCgroup(t *testing.T, c *Reader, below string, hierarchies ...string) string {
	t.Helper()
	return kerneltest.Cgroup(t, hostDirs(t, c, hierarchies), below)
}

func hostDirs(t *testing.T, c *Reader, hierarchies []string) []string {
	t.Helper()
	if len(hierarchies) == 0 {
		return c.dirs
	}
	var dirs []string
	for _, h := range hierarchies {
		i, ok := c.at[h]
		if !ok {
			t.Skipf("needs a mounted %s hierarchy", h)
		}
		dirs = append(dirs, c.dirs[i])
	}
	return dirs
}

// child is this test binary as another process. It takes one order per line and
// answers each with a line.
type child struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

const childEnv = "PLIMSOLL_CGROUP_CHILD"

// startChild runs the same test in a new process; see actAsChild.
func startChild(t *testing.T, change ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=1", "GOCOVERDIR="+t.TempDir())
	r, in, err := os.Pipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stdin = r
	for _, c := range change {
		c(cmd)
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, r.Close())
	c := &child{cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Equal(t, "done", c.do(t, "start"))
	return c
}

func (c *child) do(t *testing.T, order string) string {
	t.Helper()
	_, err := fmt.Fprintln(c.in, order)
	require.NoError(t, err)
	if !c.out.Scan() {
		return ""
	}
	return c.out.Text()
}

// enter moves the child into a cgroup of some hierarchies.
func (c *child) enter(t *testing.T, cgroups *Reader, cgroup string, hierarchies ...string) {
	t.Helper()
	for _, dir := range hostDirs(t, cgroups, hierarchies) {
		require.NoError(t, os.WriteFile(dir+cgroup+"/cgroup.procs", []byte(strconv.Itoa(c.cmd.Process.Pid)), 0o600))
	}
}

// actAsChild reports whether this process is a child that has finished its
// work.
func actAsChild() bool {
	if os.Getenv(childEnv) == "" {
		return false
	}
	var kept [][]byte
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "allocate":
			b := make([]byte, 32<<20)
			for i := 0; i < len(b); i += os.Getpagesize() {
				b[i] = 1
			}
			kept = append(kept, b)
		case "burn a little":
			burn(5 * time.Millisecond)
		case "burn":
			burn(300 * time.Millisecond)
		}
		fmt.Println("done")
	}
	runtime.KeepAlive(kept)
	os.Exit(0)
	return true
}

// burn uses that much CPU time, however long it takes.
func burn(cpu time.Duration) {
	for start := usedCPU(); usedCPU()-start < cpu; {
		runtime.Gosched()
	}
}

func usedCPU() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
