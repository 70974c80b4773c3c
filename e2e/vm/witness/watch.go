package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sample is one thing that was done, and how it went.
type sample struct {
	begun time.Time
	took  time.Duration
	parts map[string]float64
	ok    bool
}

// series is what was seen of one thing, those that have not ended yet included.
type series struct {
	mu      sync.Mutex // guards what follows
	samples []sample
	running map[int]time.Time
	next    int
	thread  int // of the newest one, for its stack
}

func newSeries() *series { return &series{running: map[int]time.Time{}} }

// most is how many of one thing run at the same time; more are counted as failed.
const most = 400

// observe does one thing.
func (s *series) observe(do func() (map[string]float64, bool)) {
	s.mu.Lock()
	id, begun := s.next, time.Now()
	s.next++
	if len(s.running) >= most {
		s.samples = append(s.samples, sample{begun: begun, took: time.Minute})
		s.mu.Unlock()
		return
	}
	s.running[id], s.thread = begun, unix.Gettid()
	s.mu.Unlock()
	parts, ok := do()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
	s.samples = append(s.samples, sample{begun, time.Since(begun), parts, ok})
}

// between are those that began then; one that still runs counts as long as it has.
func (s *series) between(from, to time.Time) (found []sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := func(t time.Time) bool { return !t.Before(from) && t.Before(to) }
	for _, one := range s.samples {
		if in(one.begun) {
			found = append(found, one)
		}
	}
	for _, begun := range s.running {
		if in(begun) {
			found = append(found, sample{begun: begun, took: time.Since(begun)})
		}
	}
	return found
}

// longest is the longest of the parts that lie between, of those that began
// before as well.
func (s *series) longest(from, to time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := func(begun, ended time.Time) {
		if begun.Before(from) {
			begun = from
		}
		if ended.After(to) {
			ended = to
		}
		longest = max(longest, ended.Sub(begun))
	}
	for _, one := range s.samples {
		part(one.begun, one.begun.Add(one.took))
	}
	for _, begun := range s.running {
		part(begun, time.Now())
	}
	return longest
}

// late is how long the oldest one that runs has run, and its thread.
func (s *series) late() (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	for _, begun := range s.running {
		longest = max(longest, time.Since(begun))
	}
	return longest, s.thread
}

// repeat does one thing after the other, on a thread of its own, a pause between them.
func (s *series) repeat(ctx context.Context, pause time.Duration, do func() (map[string]float64, bool)) {
	runtime.LockOSThread()
	for ctx.Err() == nil {
		s.observe(do)
		ts := unix.NsecToTimespec(pause.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil)
	}
}

// arrive does a thing every period, whether or not those before have ended.
func (s *series) arrive(ctx context.Context, period time.Duration, do func() (map[string]float64, bool)) {
	every := time.NewTicker(period)
	defer every.Stop()
	for ctx.Err() == nil {
		go s.observe(do)
		<-every.C
	}
}

// beat is how late a beat of 100 ms was: the gap to the one before.
func (s *series) beat(ctx context.Context) {
	runtime.LockOSThread()
	for before := time.Now(); ctx.Err() == nil; {
		ts := unix.NsecToTimespec(int64(100 * time.Millisecond))
		_ = unix.Nanosleep(&ts, nil)
		now := time.Now()
		s.mu.Lock()
		s.samples = append(s.samples, sample{begun: before, took: now.Sub(before), ok: true})
		s.mu.Unlock()
		before = now
	}
}

// requests asks for a request's work and gives its parts.
func requests(client *http.Client, url string) func() (map[string]float64, bool) {
	return func() (map[string]float64, bool) {
		body, err := get(client, url)
		parts := map[string]float64{}
		return parts, err == nil && json.Unmarshal(body, &parts) == nil
	}
}

// probe is a liveness probe.
func probe(url string) func() (map[string]float64, bool) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() (map[string]float64, bool) {
		_, err := get(client, url)
		return nil, err == nil
	}
}

func get(client *http.Client, url string) ([]byte, error) {
	r, err := client.Get(url) //nolint:noctx // the client has the deadline, or none is meant
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, r.Status)
	}
	return io.ReadAll(r.Body)
}

// stack is where a task is in the kernel, the innermost function first, of at most six
// that say something; empty where it is in its program or waits for work.
func stack(pid, thread int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(thread) + "/stack")
	if err != nil {
		return ""
	}
	var frames []string
	for line := range strings.Lines(string(b)) {
		_, name, _ := strings.Cut(line, "] ")
		name, _, _ = strings.Cut(strings.TrimSpace(name), "+")
		if idle(name) {
			return ""
		}
		if name != "" && !dull(name) && len(frames) < 6 {
			frames = append(frames, name)
		}
	}
	return strings.Join(frames, " < ")
}

// idle is where threads wait for work.
func idle(name string) bool {
	for _, part := range []string{"futex", "epoll", "nanosleep", "pipe_read", "do_wait", "sigtimedwait", "sk_wait", "tcp_"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// dull is in nearly every stack.
func dull(name string) bool {
	for _, part := range []string{"schedule", "entry_SYSCALL", "do_syscall", "x64_sys", "asm_exc", "exc_page", "exit_to_user", "syscall_exit", "ret_from", "vfs_", "ksys_", "x64_sys_call"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// stacksOf counts where the threads of a process are.
func stacksOf(pid int, counts map[string]int) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return // it has ended
	}
	for _, e := range entries {
		thread, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s := stack(pid, thread); s != "" {
			counts[s]++
		}
	}
}
