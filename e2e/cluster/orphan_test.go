package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// orphanEnv makes this test program start a control plane, say its processes,
// and wait to be killed.
const orphanEnv = "PLIMSOLL_TEST_CLUSTER_ORPHAN"

func itoa(n int) string { return strconv.Itoa(n) }

func startAndSay() int {
	c, err := cluster.Start(context.Background(), bare())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := c.Etcd.Pause(); err != nil { // neither does one that cannot run outlive us
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, p := range c.Processes() {
		fmt.Print(p.PID(), " ")
	}
	fmt.Println()
	select {}
}

func TestProcessesEndWithParent(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pids := strings.Fields(line)
	require.Len(t, pids, 2)
	for _, pid := range pids {
		require.DirExists(t, "/proc/"+pid)
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	for _, pid := range pids {
		eventually(t, "process "+pid+" ends", func() bool { return dead(pid) })
	}
}

// dead says that a process has ended, whether or not its parent has noticed.
func dead(pid string) bool {
	state, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(state), ") Z ")
}

// pinned is the version in the module of the programs.
func pinned(t *testing.T) string {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join("..", "tools", "kube", "go.mod"))
	require.NoError(t, err)
	v := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindSubmatch(mod)
	require.NotNil(t, v)
	assert.NotEmpty(t, v[1])
	return string(v[1])
}
