package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// secondLimit is how much of the loop of the five files an agent may cost.
const secondLimit = 1.5

// stage is a part of an agent's tick.
type stage struct {
	name string
	run  func(at time.Duration) error

	took          []time.Duration
	allocs, bytes uint64 // of all counted ticks
}

// second is what an agent computes at a tick. What it publishes and keeps for a day takes
// some µs, and is not known here.
type second struct {
	host   *probes.Host
	pods   *cgroup.Reader
	seen   snapshot.History
	set    *plugins.Set
	stages []*stage

	raw   *snapshot.Sample
	snap  *snapshot.Snapshot
	start time.Time
}

// newSecond reads a host and the pods of a tree.
func newSecond(host probes.Paths, root string) (*second, error) {
	s := &second{ // as an agent without a configuration
		seen: snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * tickStep},
		set:  plugins.NewSet(plugins.Default(), nil), start: time.Now(),
	}
	var err error
	if s.host, err = probes.NewHost(host, []string{"/" + ownPrefix + "nowhere"}); err != nil {
		return nil, err
	}
	if s.pods, err = cgroup.Find("/proc", root, []string{"/kubepods"}); err != nil {
		return nil, err
	}
	s.stages = []*stage{
		{name: "read the host", run: s.readHost},
		{name: "read the pods", run: s.readPods},
		{name: "snapshot", run: func(time.Duration) error { s.snap = s.seen.Add(s.raw); return nil }},
		{name: "judge", run: func(time.Duration) error { s.set.Judge(s.snap); return nil }},
	}
	return s, nil
}

func (s *second) readHost(at time.Duration) (err error) {
	s.raw, err = s.host.Read()
	if err == nil {
		s.raw.Time, s.raw.Monotonic, s.raw.Boottime = s.start.Add(at), at, at
	}
	return err
}

func (s *second) readPods(at time.Duration) (err error) {
	s.pods.Hurry() // all of them at each tick, however much of a CPU that takes
	s.raw.Workloads, err = s.pods.Read(at)
	return err
}

// close ends what was opened.
func (s *second) close() {
	s.pods.Close()
	s.host.Close()
}

// tick runs all stages once.
func (s *second) tick(tick int, measure func(*stage, func() error) error) error {
	at := time.Duration(1+tick) * tickStep
	for _, one := range s.stages {
		if err := measure(one, func() error { return one.run(at) }); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return nil
}

func unmeasured(_ *stage, run func() error) error { return run() }

// agentSecond measures an agent's second by stage, beside the loop of the five files.
func agentSecond(ctx context.Context, o *options) (rows []Row, err error) {
	for _, n := range o.sizes {
		if n == 1 && len(o.sizes) > 1 {
			continue
		}
		o.say("an agent's second by stage: %s", podCount(n))
		more, err := secondOf(ctx, o, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func secondOf(ctx context.Context, o *options, n int) (rows []Row, err error) {
	t, err := newTree(n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m, err := measureSecond(ctx, o.ticks, thisHost(), t, func() error { return nil }, 2*time.Minute)
	if err != nil {
		return nil, err
	}
	return m.rows("a second of the agent, RECORDED tree, " + podCount(n) + ", busy"), nil
}

func thisHost() probes.Paths { return probes.Paths{Procfs: "/proc", Sysfs: "/sys"} }

// measureSecond measures the stages with a tree of pods, in which all work, after a time
// that fills the windows.
func measureSecond(ctx context.Context, ticks int, host probes.Paths, t *tree, between func() error, warm time.Duration) (*secondMeter, error) {
	cost, err := clockCost()
	if err != nil {
		return nil, err
	}
	m := &secondMeter{cost: cost}
	if m.second, err = newSecond(host, t.root); err != nil {
		return nil, err
	}
	defer m.close()
	tick := 0
	run := func(ticks int, do func(tick int) error) error {
		for end := tick + ticks; tick < end; tick++ {
			if err := errors.Join(ctx.Err(), t.tick(busy), between()); err != nil {
				return err
			}
			if err := do(tick); err != nil {
				return err
			}
		}
		return nil
	}
	open := newOpenFiles(maxOpen)
	defer func() { err = errors.Join(err, open.Close()) }()
	five := readable(t.fiveOfAll())
	loop := (&bare{open: open, files: func(int) []access { return five }}).contender("five")
	err = run(int(warm/tickStep)+warmTicks, func(tick int) error { return m.tick(tick, unmeasured) })
	if err == nil {
		err = run(ticks, func(tick int) error { return m.time(tick, loop) })
	}
	if err == nil {
		err = run(min(ticks, chunk), m.count)
	}
	if err == nil {
		m.collect, m.live, err = collection()
	}
	return m, err
}

// secondMeter measures stages.
type secondMeter struct {
	*second
	cost    time.Duration
	loop    []time.Duration
	counted uint64        // ticks whose allocations were counted
	collect time.Duration // CPU time of a garbage collection
	live    uint64        // bytes after it
}

// time measures the stages of one tick and the loop, with no garbage collection among
// them: that has a row of its own.
func (m *secondMeter) time(tick int, loop *contender) error {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	took := map[*stage]time.Duration{}
	err := m.tick(tick, func(one *stage, run func() error) (err error) {
		var failed error
		took[one], err = cpuTime(func() error { failed = run(); return nil })
		return errors.Join(failed, err)
	})
	alone, loopErr := loop.measure(tick, m.cost)
	if err = errors.Join(err, loopErr); err != nil {
		return err
	}
	for one, d := range took {
		one.took = append(one.took, max(d-m.cost, 0))
	}
	m.loop = append(m.loop, alone)
	return nil
}

// count counts the allocations of the stages of one tick.
func (m *secondMeter) count(tick int) error {
	var before, after runtime.MemStats
	counts := map[*stage][2]uint64{}
	err := m.tick(tick, func(one *stage, run func() error) error {
		runtime.ReadMemStats(&before)
		err := run()
		runtime.ReadMemStats(&after)
		counts[one] = [2]uint64{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
		return err
	})
	if err != nil {
		return err
	}
	m.counted++
	for one, n := range counts {
		one.allocs, one.bytes = one.allocs+n[0], one.bytes+n[1]
	}
	return nil
}

// collection is the CPU time of one garbage collection, and what is alive after it.
func collection() (took time.Duration, live uint64, err error) {
	runtime.GC()
	var all []time.Duration
	for range 9 {
		took, err := cpuTime(func() error { runtime.GC(); return nil })
		if err != nil {
			return 0, 0, err
		}
		all = append(all, took)
	}
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return median(all), now.HeapAlloc, nil
}

// minHeap is the least heap at which Go collects garbage.
const minHeap = 4 << 20

// of is what a stage takes at a tick.
func (m *secondMeter) of(one *stage) (took time.Duration, allocs, bytes uint64) {
	n := max(m.counted, 1)
	return medianOfMeans(one.took, chunk), one.allocs / n, one.bytes / n
}

// all is what the stages take together, and the garbage collection, of which there is one
// each so many ticks (GOGC=100).
func (m *secondMeter) all() (took, collecting time.Duration, allocs, bytes uint64, every float64) {
	for _, one := range m.stages {
		d, a, b := m.of(one)
		took, allocs, bytes = took+d, allocs+a, bytes+b
	}
	every = float64(max(m.live, minHeap)) / float64(max(bytes, 1))
	collecting = time.Duration(float64(m.collect) / every)
	return took + collecting, collecting, allocs, bytes, every
}

// rows of all together, and of each stage.
func (m *secondMeter) rows(what string) []Row {
	took, collecting, allocs, bytes, every := m.all()
	loop := median(m.loop)
	ratio := over(took, loop)
	rows := []Row{{
		What: what + ": all", Ours: fmt.Sprintf("%s, %d allocations, %s kB", short(took), allocs, digits(float64(bytes)/1e3)),
		Peer: "bare loop of the five files: " + short(loop), Ratio: digits(ratio) + " ×",
		Goal: AtMost(secondLimit, ratio, fmt.Sprintf("%g ×", secondLimit)),
	}}
	for _, one := range m.stages {
		took, allocs, bytes := m.of(one)
		rows = append(rows, Row{What: what + ": " + one.name, Ours: fmt.Sprintf("%s, %d allocations, %s kB", short(took), allocs, digits(float64(bytes)/1e3))})
	}
	return append(rows, Row{
		What: what + ": garbage collection",
		Ours: fmt.Sprintf("%s: %s every %s ticks, with %s alive", short(collecting), short(m.collect), digits(every), mebibytes(m.live)),
	})
}
