package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is an instance of the plugin that was started here, in a process group
// of its own.
type process struct {
	cmd   *exec.Cmd
	out   *tail
	begun time.Time
	done  chan struct{} // closed when it has ended and was waited for
}

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex // guards b, which the process and a reader use
	end []byte
}

const tailBytes = 2 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	t.end = slices.Clone(t.end[max(0, len(t.end)-tailBytes):])
	return len(b), nil
}

// String is the text that was written last, quoted.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.end) == 0 {
		return "it wrote nothing"
	}
	return fmt.Sprintf("it wrote %q", strings.TrimSpace(string(t.end)))
}

// start starts the command with {dir} replaced in its arguments and environment.
func start(ctx context.Context, command, env []string, dir string) (*process, error) {
	args := inDir(command, dir)
	p := &process{cmd: exec.CommandContext(ctx, args[0], args[1:]...), out: &tail{}, done: make(chan struct{})} //nolint:gosec // the command that the user gave
	p.cmd.Env = append(os.Environ(), inDir(env, dir)...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return p.signalAll(syscall.SIGKILL) }
	p.cmd.WaitDelay = time.Second // for children that keep the output open
	p.begun = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its status is in ProcessState
	}()
	return p, nil
}

// Placeholder is what is replaced by the directory of the socket.
const Placeholder = "{dir}"

func inDir(list []string, dir string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ReplaceAll(s, Placeholder, dir)
	}
	return out
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// status is how it ended.
func (p *process) status() string { return p.cmd.ProcessState.String() }

func (p *process) signalAll(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// pause stops the process and its children, and waits until each thread of the
// listener has stopped.
func (p *process) pause(listener int32) {
	_ = p.signalAll(syscall.SIGSTOP) // it may have ended, which the next call finds
	for begun := time.Now(); time.Since(begun) < stopTime && !allStopped(listener); {
		time.Sleep(mostOften)
	}
}

func (p *process) resume() { _ = p.signalAll(syscall.SIGCONT) }

// allStopped reports whether each thread of a process is stopped, proc_pid_stat(5).
func allStopped(process int32) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process))
	for _, path := range threads {
		stat, readErr := os.ReadFile(path)
		at := strings.LastIndex(string(stat), ") ") // the name before it may have any text
		if readErr == nil && (at < 0 || !strings.HasPrefix(string(stat[at+2:]), "T")) {
			return false
		}
	}
	return err == nil
}

// terminate asks the process to end, as a container runtime does, and waits.
func (p *process) terminate(wait time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
		return true
	case <-time.After(wait):
		return false
	}
}

// kill ends the process and its children at once.
func (p *process) kill() {
	_ = p.signalAll(syscall.SIGKILL) // it may have ended
	<-p.done
}

// errNoSocket: the process made no socket.
var errNoSocket = errors.New("no socket")

// sockets returns the sockets in a directory as the agent finds them, and hidden
// ones apart.
func sockets(dir string) (found, hidden []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read has none
		switch {
		case err != nil:
			return nil //nolint:nilerr // it was removed meanwhile
		case d.Type()&fs.ModeSocket == 0:
		case strings.HasPrefix(d.Name(), "."):
			hidden = append(hidden, path)
		default:
			found = append(found, path)
		}
		return nil
	})
	return found, hidden
}

// mostOften is how often a condition is looked at.
const mostOften = 5 * time.Millisecond

// waitForSocket waits until a socket in the directory accepts a connection, and
// returns it with its connection.
func (p *process) waitForSocket(ctx context.Context, dir string, wait time.Duration) (string, *connection, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for last := error(nil); ; {
		found, hidden := sockets(dir)
		for _, path := range found {
			c, err := connect(ctx, path)
			if err == nil {
				return path, c, nil
			}
			last = err
		}
		select {
		case <-p.done:
			return "", nil, fmt.Errorf("%w: the process ended (%s); %s", errNoSocket, p.status(), p.out)
		case <-ctx.Done():
			switch {
			case last != nil:
				return "", nil, fmt.Errorf("%w that accepts a connection within %s: %w; %s", errNoSocket, wait, last, p.out)
			case len(hidden) > 0:
				return "", nil, fmt.Errorf("%w within %s but %s, whose name begins with a dot, so that no host finds it", errNoSocket, wait, hidden[0])
			}
			return "", nil, fmt.Errorf("%w in %s within %s; %s", errNoSocket, dir, wait, p.out)
		case <-time.After(mostOften):
		}
	}
}
