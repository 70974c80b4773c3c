package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// slowPeriod is how often a slowed process runs and is stopped again.
const slowPeriod = 100 * time.Millisecond

// tailLines is how many of a log's last lines are shown where something failed.
const tailLines = 25

// Process is one program of the control plane, which can be broken and mended.
// It keeps its data, its ports and its log when it ends and is started again.
type Process struct {
	name  string
	path  string
	args  []string
	env   []string // beside this process's own
	log   string
	ready func(context.Context) error
	apart []string // addresses that lead out of its network namespace; nil: it has none of its own
	root  string   // its own root directory; empty: it has none

	mu    sync.Mutex // guards child and brake
	child *child
	brake func() // ends Slow
}

// Name of the program, with a number where there are several.
func (p *Process) Name() string { return p.name }

// PID of the process that was started last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.cmd.Process.Pid
}

// Start the process, which must not be running. It is not ready yet: [Process.WaitReady].
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && p.child.alive() {
		return fmt.Errorf("start %s: it runs", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // its life is the cluster's
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.root != "" {
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: p.root}
	}
	if p.child, err = startApart(cmd, syscall.SIGKILL, p.apart); err != nil {
		p.child = nil
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process as a crash does (SIGKILL), and returns when it is gone.
func (p *Process) Kill() error {
	return p.end(context.Background(), syscall.SIGKILL)
}

// Stop asks the process to end (SIGTERM), and returns when it is gone.
func (p *Process) Stop(ctx context.Context) error {
	return p.end(ctx, syscall.SIGTERM)
}

func (p *Process) end(ctx context.Context, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unbrake()
	if p.child == nil || !p.child.alive() {
		return nil
	}
	// A paused process ends too, on SIGKILL at once, else when it may go on.
	for _, s := range []syscall.Signal{s, syscall.SIGCONT} {
		if err := p.child.signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s: %w", p.name, err)
		}
	}
	select {
	case <-p.child.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end %s: %w", p.name, ctx.Err())
	}
}

// Pause stops the process where it is (SIGSTOP), and returns when it stands
// still: its connections stay open and say nothing. [Process.Resume] lets it go on.
func (p *Process) Pause() error {
	if err := p.signal("pause", syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := deadline.Context(context.Background(), 10*time.Second)
	defer cancel()
	return until(ctx, "pause "+p.name, func(context.Context) error { return still(p.PID()) })
}

// still says which thread of a process is not stopped: each stops by itself.
func still(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return os.ErrProcessDone
	}
	for _, stat := range threads {
		text, err := os.ReadFile(stat)
		if err != nil {
			return err // it may have ended: the next look tells
		}
		_, after, _ := strings.Cut(string(text), ") ") // the command may hold anything but this
		if !strings.HasPrefix(after, "T") {
			return fmt.Errorf("%s: state %.1s", stat, after)
		}
	}
	return nil
}

// Resume ends Pause and Slow.
func (p *Process) Resume() error {
	return p.signal("resume", syscall.SIGCONT)
}

func (p *Process) signal(what string, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unbrake()
	if p.child == nil {
		return fmt.Errorf("%s %s: not started", what, p.name)
	}
	if err := p.child.signal(s); err != nil {
		return fmt.Errorf("%s %s: %w", what, p.name, err)
	}
	return nil
}

// Slow lets the process run for this share of the time only, 0 < share < 1: it
// is stopped and let go on ten times a second, until Resume.
func (p *Process) Slow(share float64) error {
	if share <= 0 || share >= 1 {
		return fmt.Errorf("slow %s: a share of %g is not between 0 and 1", p.name, share)
	}
	if err := p.Resume(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := time.Duration(share * float64(slowPeriod))
	end, ended := make(chan struct{}), make(chan struct{})
	slowed := p.child
	go func() {
		defer close(ended)
		for wait, s := slowPeriod-runs, syscall.SIGSTOP; ; wait, s = slowPeriod-wait, other(s) {
			if slowed.signal(s) != nil { // it has ended
				return
			}
			select {
			case <-end:
				_ = slowed.signal(syscall.SIGCONT) // it may have ended
				return
			case <-time.After(wait):
			}
		}
	}()
	p.brake = func() {
		close(end)
		<-ended
	}
	return nil
}

func other(s syscall.Signal) syscall.Signal {
	if s == syscall.SIGSTOP {
		return syscall.SIGCONT
	}
	return syscall.SIGSTOP
}

func (p *Process) unbrake() {
	if p.brake != nil {
		p.brake()
		p.brake = nil
	}
}

// WaitReady returns when the process says it is ready, with its last words when
// it ends or ctx does before that.
func (p *Process) WaitReady(ctx context.Context) error {
	p.mu.Lock()
	running := p.child
	p.mu.Unlock()
	if running == nil {
		return fmt.Errorf("%s is not ready: not started", p.name)
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := p.ready(asked)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-running.ended:
			return fmt.Errorf("%s ended (%s):\n%s", p.name, running.cmd.ProcessState, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.name, ctx.Err(), err, p.Tail())
		}
	}
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "")
}

// Log is all that it has written.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// ReadyWhen says otherwise when the process is ready.
func (p *Process) ReadyWhen(ready func(context.Context) error) { p.ready = ready }
