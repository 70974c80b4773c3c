package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/state"
)

// The script of the packages, in a directory of its own and without the accounts of this
// machine.
func TestPurgeKeepsStateInUse(t *testing.T) {
	text, err := os.ReadFile("../postremove.sh")
	require.NoError(t, err)
	bin := t.TempDir()
	for _, tool := range []string{"getent", "systemctl"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, tool), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	}
	for how, kept := range map[string]map[string]bool{"purge": {"": false, "locked": true}, "0": {"": false, "locked": true}, "remove": {"": true}} {
		for lock, want := range kept {
			root := t.TempDir()
			dir := filepath.Join(root, "var/lib/plimsoll/state")
			agent, err := state.Acquire(dir, time.Now(), state.ByPod)
			require.NoError(t, err)
			if lock == "" {
				agent.Release()
			}
			here := strings.NewReplacer("/var/lib/plimsoll", filepath.Join(root, "var/lib/plimsoll"), "/run/", filepath.Join(root, "run")+"/").Replace(string(text))
			cmd := exec.CommandContext(t.Context(), "sh", "-c", here, "postremove", how)
			cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			_, gone := os.Stat(dir)
			assert.Equal(t, want, gone == nil, "%s %s", how, lock)
			assert.Equal(t, lock != "", strings.Contains(string(out), "stays: another agent uses it"), "%s %s", how, lock)
			agent.Release()
		}
	}
}

// State that stays is root's before the package's user is deleted, whose number another user
// may get.
func TestPurgeLeavesStateToRoot(t *testing.T) {
	text, err := os.ReadFile("../postremove.sh")
	require.NoError(t, err)
	bin, root := t.TempDir(), t.TempDir()
	calls, place := filepath.Join(bin, "calls"), filepath.Join(root, "var/lib/plimsoll")
	for _, tool := range []string{"getent", "systemctl", "chown", "userdel", "groupdel"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, tool), []byte("#!/bin/sh\necho "+tool+" \"$@\" >>"+calls+"\n"), 0o755))
	}
	agent, err := state.Acquire(filepath.Join(place, "state"), time.Now(), state.ByPod)
	require.NoError(t, err)
	defer agent.Release()
	here := strings.NewReplacer("/var/lib/plimsoll", place, "/run/", filepath.Join(root, "run")+"/").Replace(string(text))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", here, "postremove", "purge")
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	done, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Equal(t, "getent passwd plimsoll\nchown -R --from=plimsoll root:root "+place+
		"\ngetent passwd plimsoll\nuserdel plimsoll\ngetent group plimsoll\ngroupdel plimsoll\n", string(done))
}

// What another agent has put on this node is its own, so nobody is told to remove it.
func TestRemovalNamesAnotherAgent(t *testing.T) {
	text, err := os.ReadFile("../preremove.sh")
	require.NoError(t, err)
	bin := t.TempDir()
	for tool, does := range map[string]string{"systemctl": "true", "plimsoll": "false"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, tool), []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	root := t.TempDir()
	agent, err := state.Acquire(filepath.Join(root, "var/lib/plimsoll/state"), time.Now(), state.ByPod)
	require.NoError(t, err)
	said := func() string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(string(text), "/var/lib/plimsoll", filepath.Join(root, "var/lib/plimsoll")), "preremove", "remove")
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Regexp(t, `^plimsoll: taints, conditions and limits on \S+ stay: another agent runs here and looks after them\n$`, said())
	agent.Release()
	assert.Contains(t, said(), "plimsoll release --node ", "none runs any more")
}
