package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// intoCgroup makes itself a member of cgroups before it becomes the command,
// so that all it does is counted there: "sh -c … sh DIR… -- COMMAND…".
const intoCgroup = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"`

// process is a server under measurement, in a cgroup of its own.
type process struct {
	cmd   *exec.Cmd
	group group
	said  *said
}

// said keeps what a process writes, up to a bound.
type said struct {
	mu   sync.Mutex // guards text: the process writes while others look
	text bytes.Buffer
}

// Write keeps the beginning.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() < 1<<20 {
		s.text.Write(b)
	}
	return len(b), nil
}

// String is what was written so far.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startIn starts a program in a new cgroup of the world.
func (w *world) startIn(name string, argv ...string) (*process, error) {
	g := w.own.child(name)
	if err := g.Make(); err != nil {
		return nil, err
	}
	p := &process{group: g, said: &said{}}
	args := slices.Concat([]string{"-c", intoCgroup, "sh"}, g.Dirs(), []string{"--"}, argv)
	p.cmd = exec.Command("sh", args...) //nolint:noctx // end ends it
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// end kills the process and removes its cgroup.
func (p *process) end() error {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // it was killed
	return p.group.remove()
}

// window is what a process did in some time.
type window struct {
	cpu     time.Duration
	real    time.Duration
	scrapes int
	memory  uint64 // at the end, in bytes
	parts   string // of it
}

// perSecond is the CPU time used in a second.
func (w window) perSecond() time.Duration {
	return time.Duration(float64(w.cpu) / w.real.Seconds())
}

// watch measures a process for a time in which it is scraped now and then.
func (p *process) watch(ctx context.Context, url string, length, scrapeEvery time.Duration, see func(body []byte) error) (window, error) {
	before, err := p.group.cpu()
	if err != nil {
		return window{}, err
	}
	start := time.Now()
	var w window
	for at := scrapeEvery; ; at += scrapeEvery {
		if err := wait(ctx, time.Until(start.Add(min(at, length)))); err != nil {
			return w, err
		}
		if at > length {
			break
		}
		body, err := scrape(ctx, url)
		if err != nil {
			return w, fmt.Errorf("%w: it says: %s", err, p.said)
		}
		w.scrapes++
		if err := see(body); err != nil {
			return w, err
		}
	}
	after, err := p.group.cpu()
	if err != nil {
		return w, err
	}
	w.cpu, w.real = after-before, time.Since(start)
	w.parts = p.group.parts()
	w.memory, err = p.group.memory()
	return w, err
}

func unseen([]byte) error { return nil }

// scrape reads a page as Prometheus does, with gzip.
func scrape(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(url + ": " + resp.Status)
	}
	return body, err
}

// answers waits until a page can be scraped.
func (p *process) answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, url, func() error {
		if _, err := scrape(ctx, url); err != nil {
			return fmt.Errorf("%w: it says: %s", err, p.said)
		}
		return nil
	})
}

// freePort is a port of loopback that nobody listens on now.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
