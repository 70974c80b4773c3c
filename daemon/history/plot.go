package history

import (
	"bytes"
	"cmp"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Plot is one pair of axes with what is drawn between them.
type Plot struct {
	// ID is valid in HTML and unique among the plots of one name: "disk-await".
	ID    string
	Title string
	Range Range
	// Lines share the scale.
	Lines []Line
	// Bands are the times at which a rule about this resource was soft or hard, in
	// order. Without Lines the plot is the course of one rule.
	Bands []Band
	// Marks are moments with a link, such as decisions; those outside of the range
	// are not drawn.
	Marks []Mark

	unit unit
	step time.Duration // of a point of a line
	// spent is the time at each level, in the steps that are kept: a point of a day is
	// six of them.
	spent [plugins.Hard + 1]time.Duration
}

// Line is one value over time.
type Line struct {
	Name string
	// points are evenly spaced over the range.
	points []point
	// threshold: of a rule, drawn thin; it does not set the scale.
	threshold bool
}

// Band is a time at a level above none.
type Band struct {
	Level    plugins.Level
	From, To time.Time
}

// Mark is a moment in a plot.
type Mark struct {
	Time time.Time
	// Text for people, such as "12:31:05 evicted web/a".
	Text string
	// Link is where a click leads.
	Link string
}

// HTML is the plot as a figure: a heading, the drawing, and a legend that has in words
// what the drawing shows.
func (p Plot) HTML() template.HTML { return template.HTML(p.figure()) } //nolint:gosec // it escapes all names

// point is what is known of a value in one step of a plot.
type point struct {
	known     bool
	mean, max float64
}

// Node is the plots of the node: CPU, memory and I/O.
func (s *Store) Node(r Range) []Plot {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.find(kindNode, nodeName)
	d := s.drawing(r)
	plots := []Plot{
		d.plot("node-cpu", "CPU", unitShare, d.line("busy", n, nodeCPUBusy), d.line("some task waits", n, nodeCPUSome), d.threshold("cpu-contention", nodeName, unitShare)),
		d.plot("node-memory-stall", "Memory stall", unitStall, d.line("some", n, nodeMemorySome), d.line("full", n, nodeMemoryFull), d.threshold("memory-stall", nodeName, unitStall)),
		d.plot("node-memory", "Memory available", unitShare, d.line("of all memory", n, nodeAvailable)),
		d.plot("node-io", "I/O stall", unitStall, d.line("some", n, nodeIOSome), d.line("full", n, nodeIOFull)),
	}
	d.mark(plots[:1], plugins.CPU, "")
	d.mark(plots[1:3], plugins.Memory, "")
	d.mark(plots[3:], plugins.Disk, "")
	return plots
}

// Device is the plots of a disk or a NIC; nil where none of that name is kept.
func (s *Store) Device(name string, r Range) []Plot {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drawing(r)
	var plots []Plot
	if disk := s.find(kindDisk, bounded(name)); disk != nil {
		plots = append(plots,
			d.plot("disk-await", name+" await", unitSeconds, d.line("reads", disk, diskReadAwait), d.line("writes", disk, diskWriteAwait), d.threshold("disk-contention", name, unitSeconds)),
			d.plot("disk-throughput", name+" throughput", unitDiskBytes, d.line("read", disk, diskRead), d.line("written", disk, diskWritten)),
			d.plot("disk-busy", name+" busy", unitShare, d.line("a request in flight", disk, diskBusy)),
		)
		d.mark(plots, plugins.Disk, name)
	}
	if nic := s.find(kindNIC, bounded(name)); nic != nil {
		links := []Plot{
			d.plot("nic-throughput", name+" throughput", unitLinkBytes, d.line("received", nic, nicReceived), d.line("sent", nic, nicSent)),
			d.plot("nic-drops", name+" drops", unitPerSecond, d.line("packets dropped per second", nic, nicDrops)),
		}
		d.mark(links, plugins.NetworkIO, name)
		plots = append(plots, links...)
	}
	return plots
}

// Workload is the plots of a workload by its cgroup, its pod's UID, or the namespace
// and name of its pod: of all pods of that name, one after the other. Nil where none
// is kept.
func (s *Store) Workload(name string, r Range) []Plot {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.workloads(name)
	if len(of) == 0 {
		return nil
	}
	d := s.drawing(r)
	plots := []Plot{
		d.plot("workload-cpu", "CPU cores", unitCores, d.joined("used", of, workloadCores)),
		d.plot("workload-memory", "Working set", unitBytes, d.joined("memory", of, workloadMemory)),
		d.plot("workload-memory-stall", "Memory stall", unitStall, d.joined("some", of, workloadMemoryStall)),
		d.plot("workload-disk", "Disk throughput", unitDiskBytes, d.joined("read and written", of, workloadDisk)),
		d.plot("workload-io-stall", "I/O stall", unitStall, d.joined("some", of, workloadIOStall)),
	}
	d.mark(plots[:1], plugins.CPU, "")
	d.mark(plots[1:3], plugins.Memory, "")
	d.mark(plots[3:], plugins.Disk, "")
	return plots
}

// Rules is the course of each rule that was above none in the range, the highest
// level first. calm is how many others were judged; gaps is how many, of all, have a level
// that is not known for all or a part of the range.
func (s *Store) Rules(r Range) (plots []Plot, calm, gaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drawing(r)
	for _, rule := range s.of(kindRule) {
		levels := rule.points(r, d.step, ruleLevel)
		if slices.ContainsFunc(levels[:len(levels)-1], func(p point) bool { return !p.known }) { // the last is not full yet
			gaps++
		}
		bands := r.merge(levels, d.step)
		switch {
		case len(bands) > 0:
			plugin, scope := ruleParts(rule.name)
			title := view.Title(plugins.Verdict{Plugin: plugin, Resource: plugins.Resource(rule.resource), Scope: scope}) + " – " + view.Printable(plugin)
			exact := r.merge(rule.points(r, r.shortest(), ruleLevel), r.shortest())
			plots = append(plots, Plot{ID: "rule", Title: title, Range: r, Bands: bands, spent: spentOf(exact), unit: unitLevel, step: d.step})
		case slices.ContainsFunc(levels, func(p point) bool { return p.known }):
			calm++
		}
	}
	slices.SortStableFunc(plots, func(a, b Plot) int { return cmp.Compare(highest(b.Bands), highest(a.Bands)) })
	return plots, calm, gaps
}

func highest(bands []Band) plugins.Level {
	level := plugins.None
	for _, b := range bands {
		level = max(level, b.Level)
	}
	return level
}

// drawing makes plots of one range at one step.
type drawing struct {
	s    *Store
	r    Range
	step time.Duration
}

func (s *Store) drawing(r Range) drawing { return drawing{s, r, r.Step()} }

func (d drawing) plot(id, title string, u unit, lines ...Line) Plot {
	p := Plot{ID: id, Title: title, Range: d.r, unit: u, step: d.step}
	for _, l := range lines {
		if len(l.points) > 0 {
			p.Lines = append(p.Lines, l)
		}
	}
	return p
}

func (d drawing) line(name string, of *series, column int) Line {
	return Line{Name: name, points: d.points(of, column)}
}

// joined is the line of several series of which one follows the other; where two
// have a value the later one counts.
func (d drawing) joined(name string, of []*series, column int) Line {
	l := Line{Name: name, points: make([]point, d.r.count(d.step))}
	for _, one := range of {
		for i, p := range d.points(one, column) {
			if p.known {
				l.points[i] = p
			}
		}
	}
	return l
}

// threshold is the threshold that a rule had over time; no line where the rule is not
// kept, or compares something else than the plot shows.
func (d drawing) threshold(plugin, scope string, u unit) Line {
	rule := d.s.find(kindRule, ruleName(plugin, scope))
	if rule == nil || rule.unit != u.ofRule() {
		return Line{}
	}
	l := d.line("threshold of "+plugin, rule, ruleThreshold)
	l.threshold = true
	return l
}

func (d drawing) points(of *series, column int) []point {
	if of == nil {
		return make([]point, d.r.count(d.step))
	}
	return of.points(d.r, d.step, column)
}

// mark puts the levels of all rules about a resource into plots; scope "" is all
// scopes. A rule about single workloads is no pressure of the resource.
func (d drawing) mark(plots []Plot, resource plugins.Resource, scope string) {
	var rules []*series
	for _, rule := range d.s.of(kindRule) {
		if _, at := ruleParts(rule.name); rule.resource == string(resource) && !rule.perWorkload && (scope == "" || at == bounded(scope)) {
			rules = append(rules, rule)
		}
	}
	bands, spent := d.bands(rules, d.step), spentOf(d.bands(rules, d.r.shortest()))
	for i := range plots {
		plots[i].Bands, plots[i].spent = bands, spent
	}
}

// bands are the times at which any of the rules was above none.
func (d drawing) bands(rules []*series, step time.Duration) []Band {
	highest := make([]point, d.r.count(step))
	for _, rule := range rules {
		for i, p := range rule.points(d.r, step, ruleLevel) {
			highest[i].max = math.Max(highest[i].max, p.max)
		}
	}
	return d.r.merge(highest, step)
}

// merge makes bands of levels over time.
func (r Range) merge(levels []point, step time.Duration) []Band {
	var bands []Band
	for i, p := range levels {
		level := levelOf(p)
		if level <= plugins.None {
			continue
		}
		from := r.From.Add(time.Duration(i) * step)
		if last := len(bands) - 1; last >= 0 && bands[last].Level == level && bands[last].To.Equal(from) {
			bands[last].To = from.Add(step)
			continue
		}
		bands = append(bands, Band{level, from, from.Add(step)})
	}
	return bands
}

// spentOf is the time at each level.
func spentOf(bands []Band) (spent [plugins.Hard + 1]time.Duration) {
	for _, b := range bands {
		spent[b.Level] += b.To.Sub(b.From)
	}
	return spent
}

// points is one column of the series over a range: of the fine track, and before it
// begins of the day's; where the step is a minute or more of the day's, and what it does
// not have yet of the fine one.
func (s *series) points(r Range, step time.Duration, column int) []point {
	fine, day := s.fine.points(r, step, fineStep, column, column), s.day.points(r, step, dayStep, column, s.kind.columns()+column)
	if step >= dayStep {
		for i, p := range fine {
			if !day[i].known {
				day[i] = p
			}
		}
		return day
	}
	if len(s.fine.blocks) > 0 {
		begins := time.Unix(s.fine.blocks[0].first*int64(fineStep/time.Second), 0).Sub(r.From)
		first := max(0, min(len(fine), floor(begins, step)))
		copy(day[first:], fine[first:])
	}
	return day
}

// points puts a column of a track into steps of a range. A row that reaches over several
// steps counts in each, and a step with several rows has their mean and the highest.
func (t *track) points(r Range, step, row time.Duration, mean, highest int) []point {
	out := make([]point, r.count(step))
	counts := make([]int, len(out))
	t.rows(func(at int64, values []uint16) {
		m, known := decode(values[mean])
		if !known {
			return
		}
		top, _ := decode(values[highest])
		from := time.Unix(at*int64(row/time.Second), 0).Sub(r.From)
		for i := floor(from, step); i <= floor(from+row-1, step); i++ {
			if i < 0 || i >= len(out) {
				continue
			}
			p := &out[i]
			p.known, p.mean, p.max = true, p.mean+m, math.Max(p.max, math.Max(m, top))
			counts[i]++
		}
	})
	for i, n := range counts {
		if n > 1 {
			out[i].mean /= float64(n)
		}
	}
	return out
}

// floor divides and rounds down, below zero too.
func floor(d, step time.Duration) int { return int(math.Floor(float64(d) / float64(step))) }

// levelOf is a level that was kept as a value; a file may have any.
func levelOf(p point) plugins.Level {
	return plugins.Level(math.Round(min(p.max, float64(plugins.Hard))))
}

// Answer is /api/v1/history. All lists of numbers have a number for each step from
// From on, and null where there is none.
type Answer struct {
	Range       string    `json:"range"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds int       `json:"stepSeconds"`
	// Rules that were judged in the range.
	Rules []RuleAnswer      `json:"rules"`
	Node  map[string]Values `json:"node"`
	// Disks and NICs that have a value in the range.
	Disks []SeriesAnswer `json:"disks"`
	NICs  []SeriesAnswer `json:"nics"`
	// Workloads that the client asked for by name.
	Workloads []SeriesAnswer `json:"workloads,omitempty"`
	// Omitted is how many workloads and devices have no place in the newest step.
	Omitted int `json:"omitted,omitzero"`
}

// RuleAnswer is the course of the level of a plugin about a scope.
type RuleAnswer struct {
	Plugin   string `json:"plugin"`
	Scope    string `json:"scope"`
	Resource string `json:"resource,omitempty"`
	// Levels has the times at which the level is known.
	Levels []LevelAnswer `json:"levels"`
}

// LevelAnswer is a time at one level.
type LevelAnswer struct {
	Level plugins.Level `json:"level"`
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"`
}

// SeriesAnswer is a device or a workload.
type SeriesAnswer struct {
	Device string `json:"device,omitempty"`
	// Cgroup, Name and PodUID of a workload.
	Cgroup string `json:"cgroup,omitempty"`
	Name   string `json:"name,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	// Values by their key in /api/v1/snapshot.
	Values map[string]Values `json:"values"`
}

// Values of each step.
type Values struct {
	Mean Numbers `json:"mean"`
	Max  Numbers `json:"max"`
}

// Numbers are null where they are NaN.
type Numbers []float64

// MarshalJSON writes each number with the digits that are kept of it.
func (n Numbers) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, v := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if math.IsNaN(v) {
			b.WriteString("null")
			continue
		}
		b.Write(strconv.AppendFloat(b.AvailableBuffer(), v, 'g', 4, 64))
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

// Answer is what is kept of a range, at the steps that are kept. workload is the name of
// one as in Workload, or empty.
func (s *Store) Answer(r Range, workload string) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := r.shortest()
	a := Answer{
		Range: r.Name, From: r.From, To: r.To, StepSeconds: int(step.Seconds()), Rules: []RuleAnswer{}, Node: map[string]Values{},
		Disks: s.seriesAnswers(kindDisk, r, step), NICs: s.seriesAnswers(kindNIC, r, step), Omitted: s.omitted,
	}
	if n := s.find(kindNode, nodeName); n != nil {
		a.Node, _ = n.answer(r, step)
	}
	for _, rule := range s.of(kindRule) {
		if levels := rule.levels(r, step); len(levels) > 0 {
			plugin, scope := ruleParts(rule.name)
			a.Rules = append(a.Rules, RuleAnswer{plugin, scope, rule.resource, levels})
		}
	}
	if workload != "" {
		for _, w := range s.workloads(workload) {
			v, _ := w.answer(r, step)
			a.Workloads = append(a.Workloads, SeriesAnswer{Cgroup: w.name, Name: w.title, PodUID: w.pod, Values: v})
		}
	}
	return a
}

func (s *Store) seriesAnswers(k kind, r Range, step time.Duration) []SeriesAnswer {
	list := []SeriesAnswer{}
	for _, one := range s.of(k) {
		if v, known := one.answer(r, step); known {
			list = append(list, SeriesAnswer{Device: one.name, Values: v})
		}
	}
	return list
}

// answer is all columns, and whether any has a value.
func (s *series) answer(r Range, step time.Duration) (_ map[string]Values, known bool) {
	all := map[string]Values{}
	for column, name := range s.kind.columnNames() {
		v := Values{}
		for _, p := range s.points(r, step, column) {
			known = known || p.known
			if !p.known {
				p.mean, p.max = absent(), absent()
			}
			v.Mean, v.Max = append(v.Mean, p.mean), append(v.Max, p.max)
		}
		all[name] = v
	}
	return all, known
}

// levels are the times at one level; none is one as well.
func (s *series) levels(r Range, step time.Duration) []LevelAnswer {
	var list []LevelAnswer
	for i, p := range s.points(r, step, ruleLevel) {
		if !p.known {
			continue
		}
		level, from := levelOf(p), r.From.Add(time.Duration(i)*step)
		if last := len(list) - 1; last >= 0 && list[last].Level == level && list[last].To.Equal(from) {
			list[last].To = from.Add(step)
			continue
		}
		list = append(list, LevelAnswer{level, from, from.Add(step)})
	}
	return list
}
