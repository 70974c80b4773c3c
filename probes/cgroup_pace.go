package probes

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxShare of a CPU that reading workloads may take, and maxWait the longest
// that it may make a read wait.
const (
	maxShare = 0.01
	maxWait  = 10 * time.Second
)

// pace makes reads rarer when they cost too much.
type pace struct {
	cost, before time.Duration // CPU time of the last two reads
	next         time.Duration // no read earlier
	waited       bool          // one was wanted earlier than the last one
	wanted       bool          // one was wanted since
}

func (p *pace) tooEarly(at time.Duration) bool {
	early := at < p.next
	p.wanted = p.wanted || early
	return early
}

// spent takes the cheaper of two reads: what one costs alone, such as the very
// first, is no reason.
func (p *pace) spent(at, cost time.Duration) {
	p.cost, p.before = cost, p.cost
	p.waited, p.wanted = p.wanted, false
	p.next = at + p.every()
}

// every is how long after a read the next one may come. maxWait bounds it, for
// what is decided about workloads is decided on these reads: on a machine where
// that costs more than maxShare it is so, and said.
func (p *pace) every() time.Duration {
	return min(maxWait, time.Duration(float64(min(p.cost, p.before))/maxShare))
}

// note is silent below a second: samples that a trigger woke come closer
// together, and may do without.
func (p *pace) note() string {
	if !p.waited && !p.wanted || p.every() <= time.Second {
		return ""
	}
	why := fmt.Sprintf("the limit is %g %% of a CPU", 100*maxShare)
	if p.every() == maxWait {
		why = fmt.Sprintf("%s is the longest interval allowed", maxWait)
	}
	return fmt.Sprintf("workloads are read every %.1f s: one read takes %.0f ms of CPU; %s",
		p.every().Seconds(), 1000*min(p.cost, p.before).Seconds(), why)
}

// threadTime is the CPU time of the calling thread, with what the kernel does
// for it. A goroutine that changes threads in between makes the difference
// meaningless: the caller is locked to one.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
