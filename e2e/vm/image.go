package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // image.sh travels inside the test binary
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

//go:embed image.sh
var imageScript []byte

// imageTime is many times what an idle machine needs (1 to 2 minutes).
const imageTime = 20 * time.Minute

// unfit says why this host cannot run the machine; empty: it can.
func unfit() string {
	if why := unfitToBuild(); why != "" {
		return why
	}
	return missing("make deps-e2e", "qemu-system-x86_64", "ssh", "scp")
}

// missing says which programs are not installed and what installs them; empty: all
// are there.
func missing(cure string, tools ...string) string {
	tools = slices.DeleteFunc(tools, func(tool string) bool {
		_, err := exec.LookPath(tool)
		return err == nil
	})
	if len(tools) == 0 {
		return ""
	}
	return "not installed (" + cure + "): " + strings.Join(tools, " ")
}

// unfitToBuild says why this host cannot build the image; empty: it can.
func unfitToBuild() string {
	if runtime.GOARCH != "amd64" {
		return "the machine is an amd64 one, this host is " + runtime.GOARCH
	}
	if os.Geteuid() != 0 {
		return "the machine's root file system is built as root"
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || !regexp.MustCompile(`(?m)^ID="?debian"?$`).Match(release) {
		return "the machine is built from the package sources of a Debian host"
	}
	return missing("make deps", "mmdebstrap", "mkfs.ext4", "cpio", "busybox", "depmod", "ssh-keygen", "apt-get", "dpkg-deb")
}

// image is the directory with what image.sh makes.
type image string

// Root is the root file system that machines boot from, an ext4 that must only
// be read, built when it is not there. Where it cannot be, the test is skipped
// with the reason.
func Root(t testing.TB) (path string) {
	t.Helper()
	if why := unfitToBuild(); why != "" {
		t.Skip(why)
	}
	i, err := cachedImage(t.Context(), imageScript)
	require.NoError(t, err)
	return i.file("root.ext4")
}

func (i image) file(name string) string { return filepath.Join(string(i), name) }

// scriptOf makes the image of a machine.
func scriptOf(o Options) []byte {
	var settings string
	if o.Backports {
		settings += "kernel=backports\n"
	}
	if o.Programs {
		settings += "programs=yes\n"
	}
	return append([]byte(settings), imageScript...)
}

// cachedImage is the image that script makes, in the user's cache, built when it
// is not there. Whoever comes second waits for the first; an image is there
// whole or not at all.
func cachedImage(ctx context.Context, script []byte) (image, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("machine image: %w", err)
	}
	dir := filepath.Join(cache, "plimsoll", fmt.Sprintf("vm-%.6x", sha256.Sum256(script)))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("machine image: %w", err)
	}
	held, err := lock(dir + ".lock")
	if err != nil {
		return "", fmt.Errorf("machine image: %w", err)
	}
	defer held.Close()
	if _, err := os.Stat(dir); err == nil {
		return image(dir), nil
	}
	fmt.Fprintf(os.Stderr, "machine image: building %s, once, for some minutes\n", dir)
	return image(dir), buildImage(ctx, script, dir, held)
}

// buildImage runs script beside dir and moves the result there.
func buildImage(ctx context.Context, script []byte, dir string, held *os.File) error {
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("machine image: left over from a build that was cut: %w", err)
	}
	ctx, cancel := deadline.Context(ctx, imageTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s", half)
	cmd.Stdin = bytes.NewReader(script)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{held}                     // a build that outlives this process keeps others away
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children end with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("machine image: build: %w", err)
	}
	return os.Rename(half, dir)
}

// lock holds path against every other process until the file is closed, here and
// by those who inherited it.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
