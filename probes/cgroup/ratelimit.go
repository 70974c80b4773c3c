package cgroup

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxShare is the share of a CPU that reading workloads may take, and maxWait
// the longest interval between reads that it may lead to.
const (
	maxShare = 0.01
	maxWait  = 10 * time.Second
)

// pace is a rate limit by cost: it makes reads less frequent if they need too
// much CPU.
type pace struct {
	cost, before time.Duration // CPU time of the last two reads
	next         time.Duration // earliest time of the next read
	delayed      bool          // a read was requested before the last one was allowed
	requested    bool          // a read was requested since
}

func (p *pace) tooEarly(at time.Duration) bool {
	early := at < p.next
	p.requested = p.requested || early
	return early
}

// record records the cost of a read. The cheaper of the last two counts, so that
// a single expensive one, such as the first, changes nothing.
func (p *pace) record(at, cost time.Duration) {
	p.cost, p.before = cost, p.cost
	p.delayed, p.requested = p.requested, false
	p.next = at + p.every()
}

// every is the interval to the next read. maxWait bounds it, since decisions
// about workloads rest on these reads: a machine on which that costs more than
// maxShare pays it, and the note has it.
func (p *pace) every() time.Duration {
	return min(maxWait, time.Duration(float64(min(p.cost, p.before))/maxShare))
}

// note returns "" for intervals up to a second: only samples woken by a trigger
// come more often, and may do without.
func (p *pace) note() string {
	if !p.delayed && !p.requested || p.every() <= time.Second {
		return ""
	}
	why := fmt.Sprintf("the limit is %g %% of a CPU", 100*maxShare)
	if p.every() == maxWait {
		why = fmt.Sprintf("%s is the longest interval allowed", maxWait)
	}
	return fmt.Sprintf("workloads are read every %.1f s: one read takes %.0f ms of CPU; %s",
		p.every().Seconds(), 1000*min(p.cost, p.before).Seconds(), why)
}

// threadTime is the CPU time of the calling thread, including the kernel's work
// for it. The caller locks its goroutine to the thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
