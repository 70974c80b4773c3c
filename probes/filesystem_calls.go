package probes

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxCalls is how many mounts are asked at once. A call that hangs holds a
// thread that only the kernel can give back, so it bounds the threads as well.
const maxCalls = 8

// filesystems asks the watched mounts how full they are, outside the tick,
// which takes what is known by then. A goroutine lives while mounts are due
// and then ends; one whose call hangs lives until the kernel answers, and its
// mount is asked by no other.
type filesystems struct {
	// survey reads the mount table and chooses; ask is statfs of one mount.
	survey func(FilesystemConfig) (choice, error)
	ask    func(root string, m mount) (usage, error)
	// find looks for the kubelet's directories, where survey found mounts.
	find func(choice, FilesystemConfig) kubeletPlaces

	running sync.WaitGroup // every goroutine

	mu        sync.Mutex // guards all below; never held over a call
	config    FilesystemConfig
	due       bool           // a survey before its time: the configuration changed
	surveying bool           // one is out: there is never a second
	surveyed  time.Time      // when the last one began
	err       error          // why the mount table is not known
	root      string         // below which the mounts are asked
	finding   bool           // one looks for the directories: there is never a second
	places    *kubeletPlaces // as found last; nil: not yet
	watched   []*watched
	missing   map[string]string // why a mount that is named is not watched
	queue     []*watched        // due, the longest waiting first
	out       map[*watched]bool // asked and not answered, watched still or not
	workers   int
	closed    bool
}

// watched is a mount, and what it answered last.
type watched struct {
	mount
	queued   bool
	asked    time.Time // of the call that is out; zero: there is none
	usage    usage
	answered time.Time // when usage was; zero: never
	failed   error     // of the last call
}

func (w *watched) hangs(now time.Time, timeout time.Duration) bool {
	return !w.asked.IsZero() && now.Sub(w.asked) >= timeout
}

func newFilesystems(t mountTable) *filesystems {
	return &filesystems{survey: t.survey, ask: statfs, find: findKubelet, out: map[*watched]bool{}}
}

// same takes an empty list and none for the same.
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

// hung is how many calls do not come back.
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
		f.running.Go(func() { f.look(c) })
	}
}

// look reads the mount table and has every mount of it asked. When it cannot
// be read nobody is: what is at a mountpoint by now is not known.
func (f *filesystems) look(config FilesystemConfig) {
	var c choice
	err := safely(func() (err error) {
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
	was := map[mount]*watched{}
	for _, w := range f.watched {
		was[w.mount] = w
	}
	f.watched = f.watched[:0:0]
	for _, m := range c.mounts {
		w := was[m]
		if w == nil { // also another filesystem at the same place: it starts without values
			w = &watched{mount: m}
		}
		f.watched = append(f.watched, w)
	}
	f.enqueue()
	if !f.finding && !f.closed {
		f.finding = true
		f.running.Go(func() { f.findPlaces(c, config) })
	}
}

// findPlaces is apart from the survey, because it may hang. Then what was found
// before stays.
func (f *filesystems) findPlaces(c choice, config FilesystemConfig) {
	var p kubeletPlaces
	err := safely(func() error {
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

// enqueue has each watched mount asked that is not being asked, and forgets
// those that are watched no more.
func (f *filesystems) enqueue() {
	f.queue = slices.DeleteFunc(f.queue, func(w *watched) bool { return !slices.Contains(f.watched, w) })
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

// work asks one mount after the other while there are some.
func (f *filesystems) work() {
	for {
		w, root := f.next()
		if w == nil {
			return
		}
		var u usage
		err := safely(func() (err error) {
			u, err = f.ask(root, w.mount)
			return err
		})
		f.answer(w, u, err)
	}
}

func (f *filesystems) next() (w *watched, root string) {
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

func (f *filesystems) answer(w *watched, u usage, err error) {
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

// maxClose is how long the end waits for answers that may still come.
const maxClose = time.Second

// Close asks no mount any more and waits for those that will answer. A call
// that hangs is left behind: nothing but the kernel can end it.
func (h *Host) Close() { h.filesystems.close() }

func (f *filesystems) close() {
	f.mu.Lock()
	f.closed = true
	wait := maxClose
	if hung := f.hung(time.Now()); hung > 0 && hung == len(f.out) {
		wait = 0
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() { // left behind with those it waits for
		f.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(wait):
	}
}
