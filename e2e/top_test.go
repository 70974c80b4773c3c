package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// pane is a terminal of tmux in which a command runs.
type pane struct {
	t      *testing.T
	server string // its socket
}

// afterwards runs a command and prints its status, and whether the terminal's
// settings are as before. Ctrl-C ends the command alone.
const afterwards = `trap : INT; before=$(stty -g); "$@"; echo "status $?"; [ "$(stty -g)" = "$before" ] && echo "terminal as before"; read -r _`

// openPane starts a command in a terminal of that size.
func openPane(t *testing.T, width, height int, command ...string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux: make deps")
	}
	dir, err := os.MkdirTemp("", "plimsoll-tmux-") //nolint:usetesting // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	p := &pane{t: t, server: filepath.Join(dir, "tmux")}
	script := []string{"new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "sh", "-c", afterwards, "sh"}
	p.tmux(append(script, command...)...)
	t.Cleanup(func() { p.tmux("kill-server") })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	ctx, cancel := deadline.Context(context.WithoutCancel(p.t.Context()), patience) // also while the test is cleaned up
	defer cancel()
	c := exec.CommandContext(ctx, "tmux", append([]string{"-S", p.server, "-f", "/dev/null"}, args...)...)
	c.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := c.CombinedOutput()
	require.NoError(p.t, err, "tmux %v: %s", args, out)
	return string(out)
}

func (p *pane) press(keys ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

func (p *pane) screen() string {
	p.t.Helper()
	return p.tmux("capture-pane", "-p")
}

// shows waits until the screen has all the texts.
func (p *pane) shows(texts ...string) string {
	p.t.Helper()
	return p.becomes(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

func (p *pane) becomes(what string, is func(screen string) bool) (screen string) {
	p.t.Helper()
	eventually(p.t, "the terminal shows "+what, func() error {
		if screen = p.screen(); !is(screen) {
			return errors.New(screen)
		}
		return nil
	})
	return screen
}

// restored waits for the end of the command.
func (p *pane) restored(status int) {
	p.t.Helper()
	p.shows(fmt.Sprintf("status %d\n", status), "terminal as before")
	assert.Equal(p.t, "alternate 0, cursor 1\n", p.tmux("display-message", "-p", "alternate #{alternate_on}, cursor #{cursor_flag}"))
}

// pid of the command.
func (p *pane) pid() int {
	p.t.Helper()
	shell := strings.TrimSpace(p.tmux("display-message", "-p", "#{pane_pid}"))
	children, err := os.ReadFile("/proc/" + shell + "/task/" + shell + "/children")
	require.NoError(p.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	require.NoError(p.t, err)
	return pid
}

func TestTopInTerminal(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "--node", "ship", "--config", configFile(t, "tick: 200ms\nwindow: 2s\n")).ticked(3)
	top := []string{binary, "top", "--api.socket", a.socket}

	t.Run("keys", func(t *testing.T) {
		p := openPane(t, 100, 30, top...)
		p.shows("Plimsoll  ship", "[workloads ", "? keys  q quits", "\n> ")
		p.press("?")
		p.shows("Keys", "filter by name", "Esc back")
		p.press("Escape")
		p.shows("[workloads ") // Esc and a key at once are Alt and that key
		p.press("Tab")
		p.shows("[disks ")
		p.press("s", "r")
		p.shows("sorted by disk, Z first")
		p.press("Left", "/", "no-such-workload")
		p.shows(`no name contains "no-such-workload": Esc clears the filter`)
		p.press("Escape")
		p.shows("[workloads ", "\n> ", "? keys")
		p.press("G", "Enter")
		p.shows("USES", "WAITS", "Esc back")
		p.press("Escape")
		p.shows("[workloads ")
	})
	t.Run("a resize is followed at once", func(t *testing.T) {
		p := openPane(t, 100, 30, top...)
		p.shows("[workloads ", " notes ")
		for _, size := range [][2]int{{40, 10}, {1, 1}, {2, 2}, {120, 40}, {40, 24}} {
			p.tmux("resize-window", "-x", strconv.Itoa(size[0]), "-y", strconv.Itoa(size[1]))
			p.becomes(fmt.Sprint(size), func(screen string) bool {
				lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
				if size[1] < 3 {
					return len(lines) == size[1] && strings.HasPrefix(lines[0], "Plimsoll"[:size[0]-1])
				}
				return len(lines) == size[1] && strings.HasPrefix(lines[size[1]-1], "? keys  q quits")
			})
		}
	})
	for name, c := range map[string]struct {
		end    func(*pane)
		status int
	}{
		"q":       {func(p *pane) { p.press("q") }, 0},
		"Ctrl-C":  {func(p *pane) { p.press("C-c") }, 0},
		"SIGTERM": {func(p *pane) { require.NoError(p.t, syscall.Kill(p.pid(), syscall.SIGTERM)) }, 128 + 15},
		"SIGINT":  {func(p *pane) { require.NoError(p.t, syscall.Kill(p.pid(), syscall.SIGINT)) }, 128 + 2},
	} {
		t.Run(name+" restores the terminal", func(t *testing.T) {
			p := openPane(t, 80, 24, top...)
			p.shows("[workloads ")
			assert.Equal(t, "alternate 1, cursor 0\n", p.tmux("display-message", "-p", "alternate #{alternate_on}, cursor #{cursor_flag}"))
			c.end(p)
			p.restored(c.status)
		})
	}
	t.Run("an agent that ends and starts again", func(t *testing.T) {
		first := startAgent(t, "--node", "first").ticked(1)
		p := openPane(t, 120, 30, binary, "top", "--api.socket", first.socket)
		p.shows("Plimsoll  first")
		first.end(syscall.SIGTERM)
		p.shows("Plimsoll  first", "No new values for ", "no agent is listening on", first.socket[:20])
		second := prepare(t, "--node", "second")
		second.cmd.Args = append(second.cmd.Args, "--api.socket", first.socket)
		second.start().ticked(1)
		p.becomes("the second agent", func(screen string) bool {
			return strings.Contains(screen, "Plimsoll  second") && !strings.Contains(screen, "No new values")
		})
	})
	t.Run("no colours with NO_COLOR", func(t *testing.T) {
		styled := func(p *pane) bool {
			p.shows("[workloads ")
			return strings.Contains(p.tmux("capture-pane", "-p", "-e"), "\x1b[")
		}
		assert.True(t, styled(openPane(t, 80, 24, append([]string{"env", "NO_COLOR="}, top...)...)))
		assert.False(t, styled(openPane(t, 80, 24, append([]string{"env", "NO_COLOR=1"}, top...)...)))
	})
	t.Run("a dumb terminal gets a line for each change", func(t *testing.T) {
		p := openPane(t, 120, 24, append([]string{"env", "TERM=dumb"}, top...)...)
		p.shows(" ship: ", "standalone mode")
		assert.Equal(t, "alternate 0, cursor 1\n", p.tmux("display-message", "-p", "alternate #{alternate_on}, cursor #{cursor_flag}"))
		p.press("C-c")
		p.restored(128 + 2)
	})
	t.Run("--once prints one frame", func(t *testing.T) {
		p := openPane(t, 100, 30, append(top, "--once")...)
		p.shows("PRESSURE ", "status 0", "terminal as before") // its first lines are scrolled
	})
	t.Run("a name with control characters is text", func(t *testing.T) {
		needsRoot(t)
		workloadNamed(t, fmt.Sprintf("plimsoll-e2e-%d-evil\x1b]2;owned\x07\x1b[2J", os.Getpid()))
		p := openPane(t, 120, 30, top...)
		p.shows("[workloads ")
		p.press("/", "evil", "Enter")
		p.shows(`evil\x1b]2;owned\x07\x1b[2J`)
		p.press("Enter")
		p.shows(`evil\x1b]2;owned\x07\x1b[2J`, "USES")
		assert.NotContains(t, p.tmux("display-message", "-p", "#{pane_title}"), "owned")
	})
}

// workloadNamed runs a process in a cgroup of that name, in each hierarchy that the
// agent reads.
func workloadNamed(t *testing.T, name string) {
	t.Helper()
	process := exec.Command("sleep", "infinity")
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		assert.NoError(t, process.Process.Kill())
		_ = process.Wait() // it was killed
	})
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpuacct"} {
		if !exists(filepath.Join(hierarchy, "cgroup.procs")) {
			continue
		}
		dir := filepath.Join(hierarchy, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { // before the process is killed: the last cleanup runs first
			_ = os.WriteFile(filepath.Join(hierarchy, "cgroup.procs"), []byte(strconv.Itoa(process.Process.Pid)), 0o644)
			within(t, patience, "the cgroup is removed", func() error { return os.Remove(dir) })
		})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(process.Process.Pid)), 0o644))
	}
}
