package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Store keeps an hour and a day. The zero value is empty and ready.
type Store struct {
	mu     sync.Mutex // guards all below
	all    []*series
	byName [kindEnd]map[string]*series
	live   [kindEnd]int // series with a row in the newest step
	made   [kindEnd]int // series that were made in it
	before [kindEnd]int // live in the step before
	step   int64        // the newest fine step with rows; 0: none yet
	tick   int64        // fine step of the newest state
	// omitted counts workloads and devices of the newest step that are not kept, because
	// there are too many.
	omitted int
}

// series is one workload, device or rule.
type series struct {
	kind kind
	name string // cgroup, device, or ruleName
	// title and pod are of a workload: its namespace and name, and the UID of its pod.
	title, pod string
	// Of a rule.
	resource, unit string
	perWorkload    bool
	peak           plugins.Level // highest level since the last step

	seen      int64 // the newest fine step with a row
	fine, day track

	// The minute that is not in day yet.
	minute       int64
	sum, highest [maxColumns]float32
	counts       [maxColumns]uint8
}

const stepsPerMinute = int64(dayStep / fineStep)

// backInTime is how many steps the wall clock may go back before history is dropped
// for it: while it is less, the steps that are there already are kept.
const backInTime = 6

// Add takes a published state. It keeps the highest level of every state, and the
// other values at the end of each step.
func (s *Store) Add(snap *snapshot.Snapshot, levels *plugins.Levels) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raise(levels)
	tick := floorDiv(snap.Time.Unix(), int64(fineStep.Seconds()))
	if tick == s.tick {
		return
	}
	s.tick = tick
	step := tick - 1 // the window of the values is the step that has just ended
	switch {
	case step < s.step-backInTime:
		s.forgetAfter(step)
	case step <= s.step:
		return
	}
	s.step, s.omitted = step, 0
	s.addAll(snap, levels)
	s.trim()
}

// floorDiv is a/b rounded down, also below zero.
func floorDiv(a, b int64) int64 { return (a - (a%b+b)%b) / b }

// raise remembers levels that may have ended before the step does.
func (s *Store) raise(levels *plugins.Levels) {
	for i := range levels.Verdicts {
		v := &levels.Verdicts[i]
		if v.Level == plugins.None {
			continue
		}
		if rule := s.find(kindRule, ruleName(v.Plugin, v.Scope)); rule != nil {
			rule.peak = max(rule.peak, v.Level)
		}
	}
}

// forgetAfter drops what a clock that was set back makes future.
func (s *Store) forgetAfter(step int64) {
	for _, one := range s.all {
		one.fine.dropAfter(step)
		one.day.dropAfter(floorDiv(step, stepsPerMinute))
		one.seen = min(one.seen, step-1)
		one.counts, one.minute = [maxColumns]uint8{}, 0
	}
}

func (s *Store) addAll(snap *snapshot.Snapshot, levels *plugins.Levels) {
	s.before, s.live, s.made = s.live, [kindEnd]int{}, [kindEnd]int{}
	s.put(kindNode, nodeName, nodeValues(snap))
	leaves := s.addDisks(snap)
	for i := range snap.NICs {
		if n := &snap.NICs[i]; keepsNIC(n) {
			s.put(kindNIC, bounded(n.Name), nicValues(n))
		}
	}
	for i := range levels.Verdicts {
		s.addRule(&levels.Verdicts[i])
	}
	for i := range snap.Workloads {
		w := &snap.Workloads[i]
		if one := s.put(kindWorkload, bounded(w.Cgroup), workloadValues(w, leaves)); one != nil {
			one.entitle(w.Title(), w.PodUID)
		}
	}
}

// addDisks returns the numbers of the disks of the leaf layer.
func (s *Store) addDisks(snap *snapshot.Snapshot) (leaves []string) {
	for i := range snap.Disks {
		d := &snap.Disks[i]
		s.put(kindDisk, bounded(d.Name), diskValues(d))
		if d.Layer == snapshot.LayerLeaf {
			leaves = append(leaves, d.Number)
		}
	}
	return leaves
}

func (s *Store) addRule(v *plugins.Verdict) {
	name, peak := ruleName(v.Plugin, v.Scope), plugins.None
	if rule := s.find(kindRule, name); rule != nil {
		peak, rule.peak = rule.peak, plugins.None
	}
	if rule := s.put(kindRule, name, ruleValues(v, peak)); rule != nil {
		rule.describe(v)
	}
}

// put adds the values of the newest step to a series, once; nil: it has no place.
func (s *Store) put(k kind, name string, v values) *series {
	one := s.series(k, name)
	if one == nil {
		s.omitted++
		return nil
	}
	if one.seen != s.step {
		one.seen = s.step
		s.live[k]++
		one.add(s.step, v)
	}
	return one
}

// find is the series of a bounded name, or nil.
func (s *Store) find(k kind, name string) *series { return s.byName[k][name] }

// series is the series of a bounded name. A new one is made unless the kind has its
// most; it is nil then.
func (s *Store) series(k kind, name string) *series {
	if one := s.find(k, name); one != nil {
		return one
	}
	if s.before[k]+s.made[k] >= k.maxLive() {
		return nil
	}
	s.made[k]++
	one := newSeries(k, strings.Clone(name))
	s.insert(one)
	return one
}

func newSeries(k kind, name string) *series {
	return &series{kind: k, name: name, fine: track{columns: k.columns()}, day: track{columns: 2 * k.columns()}}
}

func (s *Store) insert(one *series) {
	if s.byName[one.kind] == nil {
		s.byName[one.kind] = map[string]*series{}
	}
	s.byName[one.kind][one.name] = one
	s.all = append(s.all, one)
}

// of are the series of a kind, by name.
func (s *Store) of(k kind) []*series {
	list := make([]*series, 0, len(s.byName[k]))
	for _, one := range s.byName[k] {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *series) int { return strings.Compare(a.name, b.name) })
	return list
}

// workloads are those that a name means, the latest last.
func (s *Store) workloads(name string) []*series {
	name = bounded(name)
	var list []*series
	for _, one := range s.of(kindWorkload) {
		if one.name == name || one.title == name || one.pod != "" && one.pod == name {
			list = append(list, one)
		}
	}
	slices.SortStableFunc(list, func(a, b *series) int { return cmp.Compare(a.seen, b.seen) })
	return list
}

func (one *series) describe(v *plugins.Verdict) {
	if one.resource != string(v.Resource) || one.unit != v.Unit {
		one.resource, one.unit = strings.Clone(bounded(string(v.Resource))), strings.Clone(bounded(v.Unit))
	}
	one.perWorkload = v.PerWorkload
}

// entitle keeps the names that a workload has now: the API server may name a pod
// later than its cgroup is seen.
func (one *series) entitle(title, pod string) {
	if title = bounded(title); one.title != title {
		one.title = strings.Clone(title)
	}
	if pod = bounded(pod); one.pod != pod {
		one.pod = strings.Clone(pod)
	}
}

// add takes the values of the newest step.
func (one *series) add(step int64, v values) {
	one.closeMinute(step)
	n := one.kind.columns()
	var row [maxColumns]uint16
	for i, value := range v[:n] {
		row[i] = encode(value)
		if row[i] == unknown {
			continue
		}
		if one.counts[i] == 0 {
			one.sum[i], one.highest[i] = 0, 0
		}
		one.sum[i] += float32(value)
		one.highest[i] = max(one.highest[i], float32(value))
		one.counts[i]++
	}
	one.fine.add(step, row[:n])
}

// closeMinute puts the minute that has ended before a step into the day.
func (one *series) closeMinute(step int64) {
	minute := floorDiv(step, stepsPerMinute)
	if one.minute == minute {
		return
	}
	n := one.kind.columns()
	var row [2 * maxColumns]uint16
	for i := range n {
		if c := one.counts[i]; c > 0 {
			row[i], row[n+i] = encode(float64(one.sum[i]/float32(c))), encode(float64(one.highest[i]))
		}
	}
	one.day.add(one.minute, row[:2*n])
	one.minute, one.counts = minute, [maxColumns]uint8{}
}

// size is what the series takes, roughly.
func (one *series) size() int {
	return seriesOverhead + len(one.name) + len(one.title) + len(one.pod) + one.fine.size() + one.day.size()
}

// tracks are both, with how many fine steps a step of it is.
func (one *series) tracks() iter.Seq2[*track, int64] {
	return func(yield func(*track, int64) bool) {
		_ = yield(&one.fine, 1) && yield(&one.day, stepsPerMinute)
	}
}

// Omitted is how many workloads and devices had no place in the newest step.
func (s *Store) Omitted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.omitted
}

// Devices are the disks and the NICs that carried anything in a range, those that
// carried the most first.
func (s *Store) Devices(r Range) (disks, nics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busiest(kindDisk, r, diskRead, diskWritten), s.busiest(kindNIC, r, nicReceived, nicSent)
}

func (s *Store) busiest(k kind, r Range, columns ...int) []string {
	var names []string
	carried := map[string]float64{}
	for _, one := range s.of(k) {
		for _, c := range columns {
			for _, p := range one.points(r, r.Step(), c) {
				carried[one.name] += p.mean
			}
		}
		if carried[one.name] > 0 {
			names = append(names, one.name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(carried[b], carried[a]) })
	return names
}

// What the store may take, whatever is on the node: names of pods, cgroups, mounts and
// scopes of outer plugins are made by others.
const (
	// maxBytes is what series and their blocks may take together, by size. Above it
	// go first the workloads that are gone, the longest gone first; so one that
	// makes and ends workloads costs the history of others that have ended, and of none that
	// runs. Then the oldest blocks of workloads.
	maxBytes = 6 << 20

	seriesOverhead = 500 // bytes of a series without names and blocks, measured
	blockOverhead  = 48  // bytes of a block without its rows

	// maxName is the longest name or title in bytes.
	maxName = 256
)

// maxLive is how many series of a kind are kept at a time. Devices and rules that are
// gone count as well.
func (k kind) maxLive() int {
	return [kindEnd]int{kindNode: 1, kindDisk: 64, kindNIC: 64, kindRule: 256, kindWorkload: 1000}[k]
}

// bounded is a name of at most maxName bytes, which is no other's.
func bounded(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxName-24], "") + "…" + hex.EncodeToString(sum[:8])
}

// trim drops what is too old or too much.
func (s *Store) trim() {
	bytes := 0
	for _, one := range s.all {
		one.closeMinute(s.step)
		one.fine.dropBefore(s.step - (fineBlocks-1)*blockSteps)
		one.day.dropBefore(s.step/stepsPerMinute - (dayBlocks-1)*blockSteps)
		bytes += one.size()
	}
	bytes -= s.drop(func(one *series) bool {
		return !s.isLive(one) && len(one.fine.blocks) == 0 && len(one.day.blocks) == 0
	})
	for k := kindNode; k < kindEnd; k++ {
		if k != kindWorkload {
			bytes -= s.dropGone(k, func(int) bool { return len(s.byName[k]) > k.maxLive() })
		}
	}
	over := bytes - maxBytes
	if over > 0 {
		over -= s.dropGone(kindWorkload, func(dropped int) bool { return dropped < over })
	}
	for over > 0 {
		dropped := s.dropOldestBlocks()
		if dropped == 0 {
			return
		}
		over -= dropped
	}
}

// isLive reports whether a series had a row in the newest step.
func (s *Store) isLive(one *series) bool { return one.seen == s.step }

// drop drops series and returns their bytes.
func (s *Store) drop(is func(*series) bool) int {
	bytes := 0
	s.all = slices.DeleteFunc(s.all, func(one *series) bool {
		if !is(one) {
			return false
		}
		bytes += one.size()
		delete(s.byName[one.kind], one.name)
		return true
	})
	return bytes
}

// dropGone drops series of a kind that are not live, the longest gone first, as long as
// more says so of the bytes that were dropped.
func (s *Store) dropGone(k kind, more func(dropped int) bool) int {
	if !more(0) {
		return 0
	}
	var gone []*series
	for _, one := range s.all {
		if one.kind == k && !s.isLive(one) {
			gone = append(gone, one)
		}
	}
	slices.SortStableFunc(gone, func(a, b *series) int { return cmp.Compare(a.seen, b.seen) })
	dropped, bytes := map[*series]bool{}, 0
	for _, one := range gone {
		if !more(bytes) {
			break
		}
		dropped[one], bytes = true, bytes+one.size()
		delete(s.byName[k], one.name)
	}
	return s.drop(func(one *series) bool { return dropped[one] })
}

// dropOldestBlocks drops those blocks of workloads that ended first, and returns their
// bytes.
func (s *Store) dropOldestBlocks() int {
	workloads := s.of(kindWorkload)
	oldest := int64(-1) // in fine steps, when it ends
	for _, one := range workloads {
		for t, scale := range one.tracks() {
			if len(t.blocks) > 0 {
				if end := (t.blocks[0].first + blockSteps) * scale; oldest < 0 || end < oldest {
					oldest = end
				}
			}
		}
	}
	bytes := 0
	for _, one := range workloads {
		before := one.size()
		for t, scale := range one.tracks() {
			t.dropBefore(oldest / scale)
		}
		bytes += before - one.size()
	}
	return bytes
}

// Past are the workloads that a name means, as for Workload, the latest first.
func (s *Store) Past(name string) []PastWorkload {
	if s == nil || name == "" { // no title is the name of none
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return pastOf(s.workloads(name))
}

// Search are the workloads of whose names one contains a text, in upper or lower case,
// the latest first.
func (s *Store) Search(text string) []PastWorkload {
	if s == nil {
		return nil
	}
	text = strings.ToLower(text)
	has := func(name string) bool { return strings.Contains(strings.ToLower(name), text) }
	s.mu.Lock()
	defer s.mu.Unlock()
	return pastOf(slices.DeleteFunc(s.of(kindWorkload), func(one *series) bool {
		return !has(one.name) && !has(one.title) && !has(one.pod)
	}))
}
