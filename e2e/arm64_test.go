package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// onARM64 is a command of a program for arm64: on another host it is emulated by
// QEMU, which hands its system calls to this host's kernel.
func onARM64(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOARCH == "arm64" {
		return exec.Command(program, args...)
	}
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("not installed (make deps-e2e): qemu-user")
	}
	return exec.Command(qemu, append([]string{program}, args...)...)
}

func TestPackageOnARM64(t *testing.T) {
	t.Parallel()
	live.Long(t, "an emulated processor, and a program that is compiled for it")
	onARM64(t, "")
	dir, root := t.TempDir(), t.TempDir()
	require.NoError(t, makePackages(dir, "1.0.0", "GOARCH=arm64"))
	deb, rpm := filepath.Join(dir, "plimsoll_1.0.0_arm64.deb"), filepath.Join(dir, "plimsoll-1.0.0-1.aarch64.rpm")
	require.NoError(t, exec.Command("dpkg-deb", "-x", deb, root).Run())
	program := filepath.Join(root, "usr/bin/plimsoll")
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	files, err := exec.Command("rpm", "-qp", "--qf", `[%{FILENAMES} %{FILEDIGESTS}\n]`, rpm).Output()
	require.NoError(t, err)
	assert.Contains(t, string(files), fmt.Sprintf("/usr/bin/plimsoll %x\n", sha256.Sum256(text)), "both hold the same program")

	said := func(args ...string) string {
		out, err := onARM64(t, program, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Equal(t, "plimsoll v1.0.0\n", said("version"))
	file := write(t, filepath.Join(root, "agent.yaml"), said("config", "print"))
	assert.Equal(t, file+": ok\n", said("config", "check", file))
	found := said("doctor", "--api.socket", filepath.Join(root, "none"), "--web.listen-address", "127.0.0.1:0")
	assert.Regexp(t, `PASS +kernel .* aarch64`, found)

	a := prepare(t)
	a.cmd = onARM64(t, program, a.cmd.Args[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	emulated, native := a.start().ticked(2).snapshot(), startAgent(t).ticked(2).snapshot()
	assert.Equal(t, native.Memory.TotalBytes, emulated.Memory.TotalBytes)
	assert.Equal(t, native.Absent, emulated.Absent, "it sees what any agent sees here")
	assert.Zero(t, a.end(syscall.SIGTERM))
}
