package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// world is this host with pods: real cgroups as a kubelet with the cgroupfs
// driver makes them, with a container and a process in each.
type world struct {
	load  string // the built program
	own   group  // of everything this program makes
	loads []*exec.Cmd
	pods  []group
}

// newWorld has no pods yet. It needs root's rights.
func newWorld(load string) (*world, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: pods get real cgroups")
	}
	top, err := topGroup("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	if err := removeAbandoned(top); err != nil {
		return nil, err
	}
	w := &world{load: load, own: top.child(ownPrefix + strconv.Itoa(os.Getpid()))}
	return w, w.own.child("pods/kubepods/burstable").Make()
}

// removeAbandoned removes the cgroups that a killed run has left.
func removeAbandoned(top group) error {
	var errs []error
	for _, dir := range top.Dirs() {
		left, _ := filepath.Glob(filepath.Join(dir, ownPrefix+"*")) // the pattern is good
		for _, dir := range left {
			pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), ownPrefix))
			if err == nil && syscall.Kill(pid, 0) != nil {
				errs = append(errs, top.child(filepath.Base(dir)).remove())
			}
		}
	}
	return errors.Join(errs...)
}

// kubepods is the path of the cgroup that holds the pods.
func (w *world) kubepods() string { return w.own.child("pods/kubepods").Path }

// grow adds pods until there are n, all at rest.
func (w *world) grow(ctx context.Context, n int) error {
	for i := len(w.pods); i < n; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		pod := w.own.child("pods/kubepods/burstable/pod" + podUID(i))
		w.pods = append(w.pods, pod)
		container := pod.child("app")
		if err := container.Make(); err != nil {
			return err
		}
		if err := w.start(container); err != nil {
			return err
		}
	}
	return nil
}

// start a load in a cgroup and wait until it is there.
func (w *world) start(in group) error {
	c := exec.Command(w.load, in.Dirs()...) //nolint:noctx // its life is the world's
	// One thread is enough for what it does, and a thousand must fit.
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	w.loads = append(w.loads, c)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) || line != "in\n" {
		return fmt.Errorf("load in %s says %q: %w", in.Path, line, err)
	}
	return out.Close() // it says no more
}

// work lets every n-th pod work and the others rest, and waits until it is so.
func (w *world) work(ctx context.Context, every int) error {
	for i, c := range w.loads {
		s := syscall.SIGUSR2
		if i%every == 0 {
			s = syscall.SIGUSR1
		}
		if err := c.Process.Signal(s); err != nil {
			return fmt.Errorf("load %d: %w", i, err)
		}
	}
	return wait(ctx, time.Second)
}

// Close ends the pods and removes every cgroup.
func (w *world) Close() error {
	for _, c := range w.loads {
		_ = c.Process.Kill() // it may have ended
	}
	for _, c := range w.loads {
		_ = c.Wait() // it was killed
	}
	return w.own.remove()
}

// wait for a time.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
