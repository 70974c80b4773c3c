package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
)

// place is where pods are sampled: a recorded tree or this host's cgroups.
type place struct {
	what string // in the table
	root string // of the hierarchies; empty: as mounted
	// below which cgroups workloads are looked for, and how many there are.
	roots []string
	pods  int
	dirs  []string // all directories that may be read
	// between prepares a tick in which every n-th pod worked.
	between func(ctx context.Context, every int) error
	// five are the files of the i-th pod that the goal names.
	five  func(i int) []string
	peers []peer
}

// peer is another reader of the same pods, set up for one pod.
type peer struct {
	name string
	// goal: the table's, that we are so many times cheaper; 0 is none.
	goal  float64
	setUp func(i int) (read func() error, err error)
}

// warmTicks pass before anything counts: everything is new then.
const warmTicks = 3

// tickStep is how far apart our reader takes the ticks to be.
const tickStep = time.Second

// busy and idle are which pods worked between two ticks: all, or every tenth.
const (
	busy = 1
	idle = 10
)

func pace(every int) string {
	if every == busy {
		return "busy"
	}
	return "90 % idle"
}

// paces are those that make a difference with so many pods.
func paces(pods int) []int {
	if pods < idle {
		return []int{busy}
	}
	return []int{busy, idle}
}

func podCount(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// samplePods measures one place, and counts our allocations of one tick.
func samplePods(ctx context.Context, p place, every, ticks int) (rows []Row, allocs uint64, err error) {
	reads, err := p.observe(ctx, every, ticks)
	if err != nil {
		return nil, 0, fmt.Errorf("%s, observed: %w", p.what, err)
	}
	read, err := p.reader()
	if err != nil {
		return nil, 0, err
	}
	defer read.cgroups.Close()
	ours := &contender{name: "ours", run: read.tick}
	cost, err := clockCost()
	if err != nil {
		return nil, 0, err
	}
	five := readable(p.fiveOfAll())
	open := newOpenFiles(maxOpen)
	defer func() { err = errors.Join(err, open.Close()) }()
	// The first ticks read in detail what later ones read seldom.
	loop := func(name string, files func(tick int) []access) *contender {
		return (&bare{open: open, from: warmTicks - 1, cost: cost, files: files}).contender(name)
	}
	all := []*contender{
		ours,
		loop("bare loop", func(tick int) []access { return keptOpen(reads[tick]) }),
		loop("loop that opens what we open", func(tick int) []access { return reads[tick] }),
		loop("bare loop of the five files", func(int) []access { return five }),
	}
	for _, peer := range p.peers {
		c, err := p.contender(peer)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, c)
	}
	between := func() error { return p.between(ctx, every) }
	if err := sideBySide(ctx, ticks, warmTicks, between, all); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", p.what, err)
	}
	allocs, err = countAllocations(warmTicks+ticks, min(ticks, chunk), between, read.tick)
	return p.rows(every, reads.perTick(), all), allocs, err
}

// reads are those of each tick.
type reads [][]access

// keptOpen are the same reads, of files that are open already.
func keptOpen(tick []access) []access {
	kept := slices.Clone(tick)
	for i := range kept {
		kept[i].opened = false
	}
	return kept
}

// perTick is how many there are in a tick.
func (r reads) perTick() float64 {
	total := 0
	for _, tick := range r {
		total += len(tick)
	}
	return float64(total) / float64(max(len(r), 1))
}

// observe runs our reader and keeps what it reads in each tick.
func (p place) observe(ctx context.Context, every, ticks int) (reads, error) {
	ours, err := p.reader()
	if err != nil {
		return nil, err
	}
	defer ours.cgroups.Close()
	seen, err := watchReads(p.dirs)
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	var all reads
	for i := range warmTicks + ticks {
		if err := errors.Join(ctx.Err(), p.between(ctx, every)); err != nil {
			return nil, err
		}
		tick, err := seen.during(func() error { return ours.tick(i) })
		if err != nil {
			return nil, err
		}
		all = append(all, tick)
	}
	return all, nil
}

// reader is our reader of the place. It fails when it does not see every pod.
func (p place) reader() (r *reader, err error) {
	r = &reader{pods: p.pods}
	r.cgroups, err = cgroup.Find("/proc", p.root, p.roots)
	return r, err
}

// reader is ours.
type reader struct {
	cgroups *cgroup.Reader
	pods    int
}

// tick reads all pods once, however much of a CPU that takes.
func (r *reader) tick(tick int) error {
	r.cgroups.Hurry()
	workloads, err := r.cgroups.Read(time.Duration(1+tick) * tickStep)
	if err == nil && len(workloads) != r.pods {
		err = fmt.Errorf("ours sees %d of %d pods", len(workloads), r.pods)
	}
	return err
}

// countAllocations is the mean of those of some further ticks, of which some
// read what others do not.
func countAllocations(from, n int, between func() error, read func(tick int) error) (uint64, error) {
	var total uint64
	for tick := from; tick < from+n; tick++ {
		if err := between(); err != nil {
			return 0, err
		}
		count, err := allocations(func() error { return read(tick) })
		if err != nil {
			return 0, err
		}
		total += count
	}
	return total / uint64(max(n, 1)), nil
}

// fiveOfAll are the files of every pod that the goal names.
func (p place) fiveOfAll() []string {
	var all []string
	for i := range p.pods {
		all = append(all, p.five(i)...)
	}
	return all
}

// contender reads every pod with a peer's reader.
func (p place) contender(of peer) (*contender, error) {
	var all []func() error
	for i := range p.pods {
		read, err := of.setUp(i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.name, err)
		}
		all = append(all, read)
	}
	return &contender{name: of.name, run: func(int) error {
		for _, read := range all {
			if err := read(); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// loopLimit is how much of the bare loop of the same reads we may cost. What is done once,
// however many pods there are, has one pod alone to bear it.
func loopLimit(pods int) float64 {
	if pods == 1 {
		return 2
	}
	return 1.3
}

// rows of the contenders: ours, the bare loops of the same reads, with and without what is
// opened for them, and of the five files, and the peers.
func (p place) rows(every int, reads float64, all []*contender) []Row {
	what := fmt.Sprintf("%s, %s, %s", p.what, podCount(p.pods), pace(every))
	took := all[0].perTick()
	each := took / time.Duration(p.pods)
	ours := fmt.Sprintf("%s a tick, %s a pod (%s reads)", short(took), short(each), digits(reads))
	ratio := over(took, all[1].perTick())
	first := Row{
		What: what, Ours: ours, Peer: "bare loop of the same reads: " + short(all[1].perTick()),
		Ratio: digits(ratio) + " ×",
	}
	if every == busy {
		limit := loopLimit(p.pods)
		first.Goal = AtMost(limit, ratio, fmt.Sprintf("%g ×", limit))
	}
	rows := []Row{first}
	for i, peer := range []string{"the same reads, opening what we open: ", "bare loop of the five files: "} {
		alone := all[2+i].perTick()
		rows = append(rows, Row{What: what, Ours: short(took), Peer: peer + short(alone), Ratio: digits(over(took, alone)) + " ×"})
	}
	for i, c := range all[4:] {
		ratio := over(c.perTick(), took)
		row := Row{What: what, Ours: short(took), Peer: c.name + ": " + short(c.perTick()), Ratio: cheaper(ratio)}
		if goal := p.peers[i].goal; goal > 0 && every == busy {
			row.Goal = AtLeast(goal, ratio, fmt.Sprintf("%g × cheaper", goal))
		}
		rows = append(rows, row)
	}
	return rows
}

// allocationRow compares the allocations of a tick at two numbers of pods.
func allocationRow(what string, few, many int, allocs map[int]uint64) Row {
	what += ", allocations a tick"
	for _, n := range []int{few, many} {
		if _, measured := allocs[n]; !measured {
			return Unmeasured(what, fmt.Errorf("%s were not measured", podCount(n)))
		}
	}
	perPod := (float64(allocs[many]) - float64(allocs[few])) / float64(many-few)
	return Row{
		What:  what,
		Ours:  fmt.Sprintf("%d at %d pods, %d at %d", allocs[few], few, allocs[many], many),
		Ratio: digits(max(perPod, 0)) + " a pod",
		Goal:  AtMost(0.01, perPod, "0.01 a pod"),
	}
}
