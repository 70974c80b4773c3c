// Package deadline gives tests deadlines that a starved machine lengthens: a
// test says how long something may take on an idle machine of two cores, and a
// slow or busy machine makes it slow, not red.
//
// # How slow the machine is
//
// Two things are measured. Once per process a fixed piece of work, by the
// processor time that it takes: that is how slow the processor is beside the
// one the deadlines were written on. And while a test waits, the share of time
// in which tasks waited for a processor (/proc/pressure/cpu, "some") and how
// many wanted one (/proc/loadavg): in that share each of them got only its part.
//
// # Usage
//
//	clock := deadline.Start()
//	…
//	assert.Less(t, clock.Elapsed(), 4*time.Second, "promised: 2 s")
//
//	ctx, cancel := deadline.Context(t.Context(), time.Minute)
//
// # Concurrency
//
// A Clock belongs to one goroutine.
package deadline

import (
	"context"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// most is how much longer than asked a deadline may become, so that a test that
	// waits in vain ends.
	most = 20
	// mostScaled is how much longer a setting may become: what waits for it to be
	// over has deadlines of its own.
	mostScaled = 2
)

// Clock counts the time that an idle machine would have needed: less than has
// passed while the machine is slow or busy.
type Clock struct {
	read    func() load
	slow    float64 // how much slower the processor is than the reference; ≥ 1
	start   time.Time
	last    load
	elapsed time.Duration
}

// Start a clock now.
func Start() *Clock { return start(now, slowness()) }

func start(read func() load, slow float64) *Clock {
	c := &Clock{read: read, slow: slow, last: read()}
	c.start = c.last.at
	return c
}

// Elapsed is the time since the start as an idle machine would count it. It is
// the more exact the more often it is asked.
func (c *Clock) Elapsed() time.Duration {
	l := c.read()
	c.elapsed += time.Duration(float64(l.at.Sub(c.last.at)) / slowdown(c.last, l, c.slow))
	c.last = l
	return c.elapsed
}

// Passed is the time since the start as a watch counts it: what is told to people,
// and held against a bound from below.
func (c *Clock) Passed() time.Duration { return c.read().at.Sub(c.start) }

// Stretch is what d becomes by the watch on a machine as busy as this one was
// since the start: the bound of a time that two timestamps tell.
func (c *Clock) Stretch(d time.Duration) time.Duration {
	if c.Elapsed() <= 0 {
		return d
	}
	return time.Duration(float64(d) * float64(c.Passed()) / float64(c.elapsed))
}

// Scale is what d becomes on a machine as busy as this one was in the last ten
// seconds, in whole seconds: a setting of the program under test, such as a lease,
// that is over too early when the program gets no processor. At most twice d.
func Scale(d time.Duration) time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu") // where it is not there some wait all the time
	return scale(d, string(text), now(), slowness())
}

func scale(d time.Duration, pressure string, l load, slow float64) time.Duration {
	const seen = 10 * time.Second
	from := load{at: l.at.Add(-seen), wanting: l.wanting}
	if l.stalled = -1; strings.HasPrefix(pressure, "some ") {
		l.stalled = time.Duration(avg10(pressure) / 100 * float64(seen))
	}
	longer := min(slowdown(from, l, slow), mostScaled) * float64(d)
	return time.Duration(math.Ceil(longer/float64(time.Second))) * time.Second
}

// avg10 of the line "some" of a pressure file, in percent.
func avg10(text string) float64 {
	_, value, _ := strings.Cut(text, "avg10=")
	value, _, _ = strings.Cut(value, " ")
	percent, _ := strconv.ParseFloat(value, 64)
	return percent
}

// load is what the machine said of itself at one moment.
type load struct {
	at      time.Time
	stalled time.Duration // some task waited for a processor, since boot; -1 = not known
	wanting float64       // tasks that want a processor, per processor
}

// slowdown is by how much anything took longer between two readings than it
// would have taken on an idle machine.
func slowdown(from, to load, slow float64) float64 {
	passed := to.at.Sub(from.at)
	if passed <= 0 {
		return slow
	}
	contended := min(max(float64(to.stalled-from.stalled)/float64(passed), 0), 1)
	if to.stalled < 0 { // then by the number of tasks alone
		contended = 1
	}
	depth := max(from.wanting, to.wanting, 1)
	return min(slow/(1-contended+contended/depth), most)
}

// now reads the machine.
func now() load {
	l := load{at: time.Now(), stalled: -1}
	if text, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		l.stalled = someTotal(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		l.wanting = wanting(string(text)) / float64(runtime.NumCPU())
	}
	return l
}

// someTotal is the total of the line "some" of a pressure file, -1 where there is
// none.
func someTotal(text string) time.Duration {
	line, _, _ := strings.Cut(text, "\n")
	_, total, found := strings.Cut(line, " total=")
	us, err := strconv.ParseInt(total, 10, 64)
	if !found || err != nil || !strings.HasPrefix(line, "some ") {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}

// wanting is how many tasks want a processor by a loadavg file: now, or in the
// last minute where those were more, for a clock that is asked rarely.
func wanting(text string) float64 {
	f := strings.Fields(text)
	if len(f) < 4 {
		return 0
	}
	running, _, _ := strings.Cut(f[3], "/")
	n, _ := strconv.ParseFloat(running, 64)
	minute, _ := strconv.ParseFloat(f[0], 64)
	return max(n, minute)
}

// Context is done when d is over as [Clock] counts it, at the latest after
// twenty times d.
func Context(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	when(d, func() bool { return ctx.Err() != nil }, func() { cancel(context.DeadlineExceeded) })
	return cause{ctx}, func() { cancel(context.Canceled) }
}

// After is closed when d is over as [Clock] counts it.
func After(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	when(d, func() bool { return false }, func() { close(over) })
	return over
}

// when calls over when d is over, unless it is done with before. It keeps a timer
// and no goroutine, which tests count.
func when(d time.Duration, done func() bool, over func()) {
	c, every := Start(), min(max(d/20, time.Millisecond), 250*time.Millisecond)
	var look func()
	look = func() {
		switch {
		case done():
		case c.Elapsed() >= d:
			over()
		default:
			time.AfterFunc(every, look)
		}
	}
	time.AfterFunc(every, look)
}

// cause is a context whose error is its cause, as that of a context with an
// ordinary deadline is.
type cause struct{ context.Context }

// Err implements [context.Context].
func (c cause) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.Cause(c.Context)
}

// The fixed piece of work, and the processor time that it takes on the machine
// the deadlines were written on.
const (
	steps     = 20_000_000
	reference = 20 * time.Millisecond
)

// slowness is how much slower this processor is than the reference, at least 1:
// the best of three, measured once.
//
//nolint:gochecknoglobals // a property of the machine, the same for every caller
var slowness = sync.OnceValue(func() float64 {
	best := time.Hour
	for range 3 {
		best = min(best, work())
	}
	return min(max(float64(best)/float64(reference), 1), most)
})

// work takes the processor time of a chain of multiplications, which no memory
// and no other task can slow down.
func work() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	x := uint64(1)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	took := threadTime() - before
	if x == 0 { // the result is needed, or the loop is left out
		return 0
	}
	return took
}

// threadTime is the processor time of this thread, to the microsecond.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD, which package syscall has no name for
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
