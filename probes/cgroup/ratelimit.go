package cgroup

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxShare is the share of a CPU that reading workloads may take, and maxWait the longest
// interval between two readings of a workload that it may lead to: decisions about workloads
// rest on these, and a machine on which that costs more than maxShare pays it.
const (
	maxShare = 0.01
	maxWait  = 10 * time.Second
)

// maxCredit is how much CPU time may be saved for later, so that a single expensive read
// changes nothing, and how much may be owed.
const maxCredit = maxWait / 100

// pace is a rate limit by cost (a token bucket of CPU time). Where reading all workloads
// needs too much CPU, each read has some of them, in turn.
type pace struct {
	at     time.Duration // of the last read; 0: there was none, and the next has all
	since  time.Duration // from the read before
	credit time.Duration // CPU time that may be used; negative: that is owed
	due    float64       // the part of all workloads that is due, whatever it costs
	all    bool          // the running read has all

	begun time.Duration // CPU time of the thread when the running read began
	used  time.Duration // by it, at the last look
	read  int           // known workloads that it has read
	spent bool          // it has no more

	turn turn // the running one
	last turn // the last whole one; zero where a read has all
}

// turn is the reads in which each workload is read once.
type turn struct {
	took, cost time.Duration
	workloads  int
}

// paceStep is how many workloads are read between two looks at the CPU time, which cost a
// system call each.
const paceStep = 4

// begin begins a read, at the thread's CPU time.
func (p *pace) begin(at, cpu time.Duration, all bool) {
	p.since, p.all = at-p.at, all || p.at == 0
	p.at, p.begun, p.used, p.read, p.spent = at, cpu, 0, 0, false
	p.credit = min(maxCredit, p.credit+time.Duration(maxShare*float64(p.since)))
	p.due += float64(p.since) / float64(maxWait)
}

// next reports whether the running read has one more of so many known workloads. Once it has
// not, it has none.
func (p *pace) next(of int, cpu func() time.Duration) bool {
	if p.all || p.spent {
		return p.all
	}
	if p.read%paceStep == 0 {
		p.used = cpu() - p.begun
	}
	if p.used >= p.credit && float64(p.read+1) > p.due*float64(of)+roundingError {
		p.spent = true
		return false
	}
	p.read++
	return true
}

// roundingError is that of a sum of parts.
const roundingError = 1e-6

// end ends a read of so many known workloads, at the thread's CPU time.
func (p *pace) end(of int, cpu time.Duration) {
	cost := cpu - p.begun
	p.credit = max(-maxCredit, p.credit-cost)
	if p.all { // nothing is owed for it
		p.credit = max(0, p.credit)
	}
	if !p.spent {
		p.due, p.turn, p.last = 0, turn{}, turn{}
		return
	}
	p.due = max(0, p.due-float64(p.read)/float64(of))
	t := turn{p.turn.took + p.since, p.turn.cost + cost, p.turn.workloads + p.read}
	p.turn = t
	if t.workloads >= of { // its last read has some of the next
		share := float64(of) / float64(t.workloads)
		t.took, t.cost = time.Duration(share*float64(t.took)), time.Duration(share*float64(t.cost))
		p.last, p.turn = t, turn{}
	}
}

// note returns "" where each read has all workloads, and for intervals up to a second: only
// samples woken by a trigger come more often, and may do without.
func (p *pace) note() string {
	if p.last.took <= time.Second {
		return ""
	}
	why := fmt.Sprintf("the limit is %g %% of a CPU", 100*maxShare)
	if p.last.took > maxWait*9/10 {
		why = fmt.Sprintf("%s is the longest interval allowed", maxWait)
	}
	return fmt.Sprintf("workloads are read in turn, each every %.1f s: reading all takes %.0f ms of CPU; %s",
		p.last.took.Seconds(), 1000*p.last.cost.Seconds(), why)
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
