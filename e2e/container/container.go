// Package container gives a test a throw-away Debian whose PID 1 is a real
// systemd, in namespaces of this host's kernel: units, packages and the journal
// as on a machine of its own, up in about a second and as quick as the host. Its
// root is that of the machine of e2e/vm; what is written there is kept in memory
// and thrown away.
//
// # Usage
//
//	c := container.Start(t, container.Options{Share: dir})
//	out, err := c.Run(ctx, "systemctl status plimsoll-agent")
//
// It reaches no network but who listens there for it. Its cgroups are v2, with pressure and without the
// controllers that this host has elsewhere.
//
// # Concurrency
//
// Several containers may run at once, and one may be used from several
// goroutines.
package container

import (
	"bytes"
	"context"
	_ "embed" // container.sh travels inside the test binary
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

//go:embed container.sh
var script string

// Options of a container.
type Options struct {
	// Share is a directory of the host that the container has at /share; none.
	Share string
}

// Container is a running system, see Start.
type Container struct {
	init   *exec.Cmd
	said   bytes.Buffer // of what started it; read when it has ended
	cgroup string
	dir    string
	ended  chan struct{}
}

// upTime is many times what a start takes on an idle host (1 s).
const upTime = 2 * time.Minute

// endTime is many times what the kernel takes to end everything.
const endTime = 30 * time.Second

// Start starts a system and waits until all its units have started. It ends
// with the test, or with the test process, however that ends. Where the machine
// of e2e/vm cannot be built, the test is skipped with the reason.
func Start(t testing.TB, o Options) *Container {
	t.Helper()
	root := vm.Root(t)
	c := &Container{dir: t.TempDir(), ended: make(chan struct{})}
	t.Cleanup(func() { c.end(t) })
	start := time.Now()
	ctx, cancel := deadline.Context(t.Context(), upTime)
	defer cancel()
	require.NoError(t, c.launch(root, o))
	require.NoError(t, c.waitUp(ctx))
	t.Logf("container is up after %s", time.Since(start).Round(10*time.Millisecond))
	return c
}

// launch starts the script, which becomes init.
func (c *Container) launch(root string, o Options) error {
	test, number := filepath.Split(c.dir) // a number of that test's, whose name is unique
	c.cgroup = filepath.Join(unified(), "plimsoll-container-"+strconv.Itoa(os.Getpid())+"-"+filepath.Base(test)+"-"+number)
	if err := os.Mkdir(c.cgroup, 0o755); err != nil {
		return fmt.Errorf("container: %w", err)
	}
	c.init = exec.Command("bash", "-c", script, "container", root, c.dir, c.cgroup, o.Share) //nolint:noctx // its life is the test's: end kills it
	c.init.Stdout, c.init.Stderr = &c.said, &c.said
	// The kernel means the thread that started it, so that thread is held until
	// it has ended.
	c.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(c.ended)
		err := c.init.Start()
		started <- err
		if err == nil {
			_ = c.init.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("container: %w", err)
	}
	return nil
}

// unified is where this host has cgroup v2.
func unified() string {
	const hybrid = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(hybrid); err == nil {
		return hybrid
	}
	return "/sys/fs/cgroup"
}

// waitUp waits until systemd answers, and then until it has started everything.
func (c *Container) waitUp(ctx context.Context) error {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		if _, err := c.Run(ctx, "test -S /run/systemd/private"); err == nil {
			break
		}
		select {
		case <-every.C:
		case <-c.ended:
			return fmt.Errorf("container: it ended: %s", c.said.String())
		case <-ctx.Done():
			return fmt.Errorf("container: it is not up after %s: %w", upTime, ctx.Err())
		}
	}
	state, err := c.Run(ctx, "systemctl is-system-running --wait")
	if state = strings.TrimSpace(state); state != "running" {
		failed, _ := c.Run(ctx, "systemctl --failed --no-legend --plain")
		return fmt.Errorf("container: the system is %s: %w: %s", state, err, failed)
	}
	return nil
}

// Run runs a shell command in the container as root and gives its standard
// output, also when it fails. An error holds its standard error and wraps an
// *exec.ExitError with its status.
func (c *Container) Run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(c.init.Process.Pid), "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "bash", "-c", command)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("container: run %q: %w: %s", command, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Listen on a TCP address of the container's own network, which needs no name
// resolved: so this process serves those in it.
func (c *Container) Listen(ctx context.Context, address string) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with this, as it is in that network
		network, open := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.init.Process.Pid))
		if err = open; err != nil {
			return
		}
		defer network.Close()
		if err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		}
	}()
	<-done
	if err != nil {
		return nil, fmt.Errorf("container: listen on %s: %w", address, err)
	}
	return l, nil
}

// end kills init, and so the kernel everything in its namespaces, and removes
// the cgroups.
func (c *Container) end(t testing.TB) {
	if c.init != nil && c.init.Process != nil {
		_ = c.init.Process.Kill() // it may have ended
		<-c.ended
	}
	if t.Failed() {
		t.Logf("what started the container said:\n%s", c.said.String())
	}
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for deadline := time.Now().Add(endTime); ; <-every.C {
		err := removeTree(c.cgroup)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("end container: a cgroup stays: %v", err)
			return
		}
	}
}

// removeTree removes a cgroup with those in it.
func removeTree(dir string) error {
	inner, err := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, procs := range inner {
		if err := removeTree(filepath.Dir(procs)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
