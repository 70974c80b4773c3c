package probes

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxCalls is how many statfs calls run at once. A call that hangs holds a
// thread until the kernel returns, so it bounds those threads as well.
const maxCalls = 8

// filesystems calls statfs on the watched mounts outside the tick, which takes
// the latest values. Workers live while mounts are due. A worker whose call
// hangs lives until the kernel returns, and no other worker reads its mount.
type filesystems struct {
	// survey reads the mount table and selects; ask is statfs of one mount.
	survey func(FilesystemConfig) (selection, error)
	ask    func(root string, m mount) (usage, error)
	// find searches the kubelet's directories on the mounts of survey.
	find func(selection, FilesystemConfig) kubeletPlaces

	running sync.WaitGroup // every goroutine

	mu        sync.Mutex // guards all below; never held during a call
	config    FilesystemConfig
	due       bool           // a survey out of schedule: the configuration changed
	surveying bool           // one runs: there is never a second
	surveyed  time.Time      // start of the last one
	err       error          // error of reading the mount table
	root      string         // directory below which the mounts are reached
	finding   bool           // one search for the directories runs: there is never a second
	places    *kubeletPlaces // as found last; nil: not yet
	watched   []*watchedMount
	missing   map[string]string      // reason why a configured mount is not watched
	queue     []*watchedMount        // due, the longest waiting first
	out       map[*watchedMount]bool // calls that have not returned, also of mounts no longer watched
	workers   int
	closed    bool
}

// watchedMount is a mount and its last answer.
type watchedMount struct {
	mount
	queued   bool
	asked    time.Time // start of the running call; zero: none
	usage    usage
	answered time.Time // when usage was read; zero: never
	failed   error     // error of the last call
}

func (w *watchedMount) hangs(now time.Time, timeout time.Duration) bool {
	return !w.asked.IsZero() && now.Sub(w.asked) >= timeout
}

func newFilesystems(t mountTable) *filesystems {
	return &filesystems{survey: t.survey, ask: statfs, find: findKubelet, out: map[*watchedMount]bool{}}
}

// same treats an empty list and nil alike.
func (c FilesystemConfig) same(o FilesystemConfig) bool {
	return c.Every == o.Every && c.Timeout == o.Timeout && slices.Equal(c.Mounts, o.Mounts) &&
		c.Kubelet == o.Kubelet && slices.Equal(c.Runtimes, o.Runtimes)
}

func (f *filesystems) follow(c FilesystemConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.config.same(c) {
		f.config, f.due, f.places = c, true, nil
	}
}

// hung counts the calls that run longer than the timeout.
func (f *filesystems) hung(now time.Time) int {
	n := 0
	for w := range f.out {
		if w.hangs(now, f.config.Timeout) {
			n++
		}
	}
	return n
}

// startSurvey is called at every tick.
func (f *filesystems) startSurvey(now time.Time) {
	switch {
	case f.surveying && now.Sub(f.surveyed) >= f.config.Timeout:
		f.err = errTableHangs
	case !f.surveying && !f.closed && (f.due || now.Sub(f.surveyed) >= f.config.Every):
		f.surveying, f.due, f.surveyed = true, false, now
		c := f.config
		f.running.Go(func() { f.runSurvey(c) })
	}
}

// runSurvey reads the mount table and queues every watched mount. If the table
// cannot be read, no mount is queued: another filesystem may be at a mountpoint
// by now.
func (f *filesystems) runSurvey(config FilesystemConfig) {
	var c selection
	err := recovering(func() (err error) {
		c, err = f.survey(config)
		return err
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.surveying = false
	if f.err = err; err != nil {
		return
	}
	f.root, f.missing = c.root, c.missing
	was := map[mount]*watchedMount{}
	for _, w := range f.watched {
		was[w.mount] = w
	}
	f.watched = f.watched[:0:0]
	for _, m := range c.mounts {
		w := was[m]
		if w == nil { // also for another filesystem at the same place: it starts without values
			w = &watchedMount{mount: m}
		}
		f.watched = append(f.watched, w)
	}
	f.enqueue()
	if !f.finding && !f.closed {
		f.finding = true
		f.running.Go(func() { f.findPlaces(c, config) })
	}
}

// findPlaces is separate from the survey, because it may hang. Then the
// previous result stays.
func (f *filesystems) findPlaces(c selection, config FilesystemConfig) {
	var p kubeletPlaces
	err := recovering(func() error {
		p = f.find(c, config)
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finding = false
	if err == nil && f.config.same(config) {
		f.places = &p
	}
}

// enqueue queues each watched mount without a running call, and drops those no
// longer watched.
func (f *filesystems) enqueue() {
	f.queue = slices.DeleteFunc(f.queue, func(w *watchedMount) bool { return !slices.Contains(f.watched, w) })
	for _, w := range f.watched {
		if !w.queued && w.asked.IsZero() {
			w.queued = true
			f.queue = append(f.queue, w)
		}
	}
	for range min(len(f.queue), maxCalls-f.workers) {
		f.workers++
		f.running.Go(f.work)
	}
}

// work reads queued mounts one after the other.
func (f *filesystems) work() {
	for {
		w, root := f.next()
		if w == nil {
			return
		}
		var u usage
		err := recovering(func() (err error) {
			u, err = f.ask(root, w.mount)
			return err
		})
		f.answer(w, u, err)
	}
}

func (f *filesystems) next() (w *watchedMount, root string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 || f.closed {
		f.workers--
		return nil, ""
	}
	w, f.queue = f.queue[0], f.queue[1:]
	w.queued, w.asked = false, time.Now()
	f.out[w] = true
	return w, f.root
}

func (f *filesystems) answer(w *watchedMount, u usage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.out, w)
	w.asked = time.Time{}
	if err != nil {
		w.failed = fmt.Errorf("statfs: %w", err)
		return
	}
	w.usage, w.answered, w.failed = u, time.Now(), nil
}

// maxClose is how long close waits for running calls.
const maxClose = time.Second

// close starts no further call and waits for running ones, except those that
// hang, which only the kernel can end.
func (f *filesystems) close() {
	f.mu.Lock()
	f.closed = true
	wait := maxClose
	if hung := f.hung(time.Now()); hung > 0 && hung == len(f.out) {
		wait = 0
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() { // lives as long as the calls that hang
		f.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(wait):
	}
}
