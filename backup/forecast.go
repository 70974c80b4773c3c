package backup

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// Outlook is what a forecast says of one Backup that waits, runs, or is to come.
type Outlook struct {
	Backup
	// Begins and Ends are the median; from Earliest to Latest it ends with a probability of
	// 90 %. Zero: beyond the forecast, or not known.
	Begins, Ends, Earliest, Latest time.Time
	// Late is by how much it will miss its deadline; 0: it will not, has none, or that is not
	// known.
	Late time.Duration
	// Because is why it will be late, and Helps what would make it be in time.
	Because string
	Helps   []string
	// Why there is no forecast; empty: there is one.
	Why string
}

// String is the outlook for people.
func (o *Outlook) String() string {
	switch {
	case o.Why != "":
		return "not known: " + o.Why
	case o.Ends.IsZero():
		return "ends after the forecast"
	case o.Late > 0:
		return fmt.Sprintf("will miss its deadline by %s, because %s", problems.Minutes(o.Late), o.Because)
	}
	return fmt.Sprintf("ends at %s, between %s and %s", o.Ends.Format(time.RFC3339), o.Earliest.Format(time.RFC3339), o.Latest.Format(time.RFC3339))
}

// plays is how often the night is played for the intervals, and deviations how many standard
// deviations of so few ends an interval of 90 % is wide at each side (Student's t for one
// degree less, for one more play).
const (
	plays      = 8
	deviations = 1.895 * 1.061
)

// Dues is when a Backup that has not begun is due by now, where the newest good one of its
// Schedule was started at newest (objective.Objective.Due), and until when that holds; zero:
// it stays so.
type Dues func(b *Backup, now, newest time.Time) (due objective.Due, until time.Time)

// Forecast plays the queue forward until a time, with the Backups that are to come until
// then, by the queue's own decision and with durations as they were learned: once with each
// duration at its median, which says what will be late, and several times with durations
// drawn from their intervals, which says how sure the ends are. The same input gives the same
// forecast. A Backup that runs ends no earlier than its data mover loads, which are played
// too (nil: they are not known). Those of one that has not begun do not exist yet: what they
// will wait for is in its duration, as far as it was so before.
func Forecast(in Input, coming []Backup, loads *uploads.State, dues Dues, until time.Time) []Outlook {
	p := premises{in: in, coming: coming, dues: dues, until: until}
	return p.forecast(loads)
}

// forecast is Forecast. It moves until to the time up to which the night was played.
func (p *premises) forecast(loads *uploads.State) []Outlook {
	p.postponing()
	player := uploads.NewPlayer(cmp.Or(loads, &uploads.State{}))
	p.loads = player.Play(middle)
	first := p.play(middle)
	p.until = first.until
	list := make([]Outlook, 0, len(first.runs))
	for _, f := range first.runs {
		list = append(list, f.outlook(p.in.Config, p.until))
	}
	random, ofLoads := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 2))
	ends, drawn := make([][]time.Time, len(list)), *p
	for range plays {
		drawn.loads = player.Play(together(ofLoads))
		for i, f := range drawn.play(together(random)).runs {
			ends[i] = append(ends[i], f.ends)
		}
	}
	for i := range list {
		list[i].between(ends[i], p.until)
	}
	p.helpsAll(list)
	return list
}

// together draws every other one alike: what makes a load or a Backup take longer, such as
// pressure or a slow object store, makes others take longer too.
func together(r *rand.Rand) func() float64 {
	common := r.Float64()
	return func() float64 {
		if r.IntN(2) == 0 {
			return common
		}
		return r.Float64()
	}
}

// mostWork bounds a play: so many Backups are decided about, in all its decisions together. Each
// takes one to four microseconds.
const mostWork = 1_000_000

// patience is how long a play may take.
type patience struct {
	work int         // Backups decided about; 0: mostWork
	over func() bool // the term that asked for the play has ended; nil: it does not end
}

// ended tells whether a play that has done so much ends.
func (p *patience) ended(work int) bool {
	return work >= cmp.Or(p.work, mostWork) || p.over != nil && p.over()
}

// premises of a play.
type premises struct {
	patience

	in     Input
	coming []Backup
	dues   Dues
	until  time.Time
	// loads are what becomes of those of each Backup that runs, by name.
	loads map[string]uploads.Future
	// postponed is when a Backup that still waits then is postponed, by UID.
	postponed map[string]time.Time
}

// postponing finds out which Backups may be postponed.
func (p *premises) postponing() {
	p.postponed = map[string]time.Time{}
	if p.dues == nil {
		return
	}
	for _, list := range [][]Backup{p.in.Backups, p.coming} {
		for i := range list {
			if b := &list[i]; b.waits() {
				if _, until := p.dues(b, p.in.Time, time.Time{}); !until.IsZero() {
					p.postponed[b.UID] = until
				}
			}
		}
	}
}

// between sets the interval by the ends of several plays; zero: it did not begin.
func (o *Outlook) between(ends []time.Time, until time.Time) {
	if o.Why != "" || o.Ends.IsZero() {
		return
	}
	mean, squares := 0.0, 0.0
	for i, end := range ends {
		if end.IsZero() {
			end = until
		}
		delta := end.Sub(o.Ends).Seconds() - mean
		mean += delta / float64(i+1)
		squares += delta * (end.Sub(o.Ends).Seconds() - mean)
	}
	wide := deviations * math.Sqrt(squares/float64(len(ends)-1))
	o.Earliest = earlier(o.Ends, o.Ends.Add(seconds(mean-wide)))
	o.Latest = later(o.Ends, o.Ends.Add(seconds(mean+wide)))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// helpsAll says for each late Backup what would make it be in time, by playing the night with
// it.
func (p *premises) helpsAll(list []Outlook) {
	if !slices.ContainsFunc(list, func(o Outlook) bool { return o.Late > 0 }) {
		return
	}
	more := *p
	more.in.Config.Limit = max(1, p.in.Config.Limit) + 1
	more.helpsBy(fmt.Sprintf("a limit of %d instead of %d", more.in.Config.Limit, more.in.Config.Limit-1), list)
	sooner := *p
	sooner.in.Backups, sooner.coming = hourEarlier(p.in.Backups), hourEarlier(p.coming)
	sooner.helpsBy("all backup windows opening an hour earlier", list)
}

func (p *premises) helpsBy(what string, list []Outlook) {
	for i, f := range p.play(middle).runs {
		if list[i].Late > 0 && f.late(p.until) == 0 {
			list[i].Helps = append(list[i].Helps, what)
		}
	}
}

// hourEarlier are Backups whose windows open earlier.
func hourEarlier(list []Backup) []Backup {
	list = slices.Clone(list)
	for i := range list {
		if opens := &list[i].Due.Opens; !opens.IsZero() && !list[i].Due.First {
			*opens = opens.Add(-time.Hour)
		}
	}
	return list
}

// night is a queue that is played forward.
type night struct {
	premises

	// newest version of an object, as the API server counts.
	newest uint64
	done   int       // Backups decided about, in all decisions
	runs   []*future // those of the input, then those to come
	of     map[string]*future
	// good is the start of the newest one of each Schedule that ends in the play.
	good map[string]time.Time
}

// future of a Backup.
type future struct {
	*Backup      // as it was when the forecast began
	takes, holds time.Duration
	due          objective.Due
	begins, ends time.Time // zero: not until the end of the play
	frees        time.Time // its slot
	stuck        bool      // Velero does not take it up, and it never begins
	// postponed is when it is, if it still waits then; zero: it is not.
	postponed time.Time
	// loads of it that end later than it would without, and whether it keeps its slot for
	// them.
	loads *uploads.Future
	keeps bool
	// waited is for how long it waits for what.
	waited map[reason]time.Duration
	of     map[string]*future
}

// reason to wait.
type reason struct {
	code Code
	by   string // UID
}

// middle is the median of each duration.
func middle() float64 { return 0.5 }

// play until a time, or until its patience ends; share is the probability with which the next
// Backup takes no longer (durations.Estimate.At). A Backup of unknown duration takes as long as
// the median of the known ones.
func (p *premises) play(share func() float64) *night {
	n := &night{premises: *p, of: map[string]*future{}, good: map[string]time.Time{}}
	usual := usually(p.in.Backups, p.coming)
	for i := range p.in.Backups {
		if b := &p.in.Backups[i]; b.begun() || b.waits() {
			n.add(b, usual, share)
		}
	}
	for i := range p.coming {
		n.add(&p.coming[i], usual, share)
	}
	n.in.Backups = slices.DeleteFunc(slices.Clone(p.in.Backups), func(b Backup) bool { return n.of[b.UID] == nil })
	for i := range n.in.Backups {
		if b := &n.in.Backups[i]; !n.in.stuck(b) {
			b.ReadySince = time.Time{} // it is taken to run, and becomes stuck no more
		}
	}
	n.run(slices.SortedStableFunc(slices.Values(p.coming), func(a, b Backup) int { return a.Created.Compare(b.Created) }))
	return n
}

// add a Backup to the play; usual is how long one takes of which nothing is known.
func (n *night) add(b *Backup, usual time.Duration, share func() float64) {
	f := &future{Backup: b, due: b.Due, takes: usual, waited: map[reason]time.Duration{}, of: n.of, postponed: n.postponed[b.UID], stuck: n.in.stuck(b)}
	elapsed, begun := time.Duration(0), b.begun() && !f.stuck
	if begun {
		f.begins = n.in.Time
		if !b.Began.IsZero() {
			f.begins = b.Began
		}
		elapsed = n.in.Time.Sub(f.begins)
	}
	switch {
	case n.in.Namespaces.setOf(b).Rejected != nil:
		f.takes = time.Second // Velero fails it at once
	case b.Takes.Known():
		f.takes = b.Takes.At(share(), elapsed)
	}
	f.holds = f.takes
	if h := b.holds(); h.Mid < b.Takes.Mid {
		f.holds = min(f.takes, h.At(middle(), elapsed))
	}
	if begun {
		f.frees, f.ends = n.in.Time.Add(f.holds), n.in.Time.Add(f.takes)
		f.await(n.loads[b.Name])
	}
	n.runs, n.of[b.UID] = append(n.runs, f), f
}

// await its data mover loads: it ends no earlier, nor does it leave its slot before those
// that keep it InProgress.
func (f *future) await(loads uploads.Future) {
	if loads.Ends.After(f.ends) {
		f.loads, f.ends = &loads, loads.Ends
	}
	if f.Backup.running() && loads.Frees.After(f.frees) {
		f.loads, f.keeps, f.frees = &loads, true, loads.Frees
	}
}

// usually is the median of the known durations; an hour where none is known.
func usually(lists ...[]Backup) time.Duration {
	var known []time.Duration
	for _, list := range lists {
		for i := range list {
			if list[i].Takes.Known() {
				known = append(known, list[i].Takes.Mid)
			}
		}
	}
	if len(known) == 0 {
		return time.Hour
	}
	slices.Sort(known)
	return known[len(known)/2]
}

// run event by event: one comes, ends, or its window opens.
func (n *night) run(coming []Backup) {
	for i := range n.in.Backups {
		n.newest = max(n.newest, n.in.Backups[i].Version)
	}
	for !n.ended(n.done) {
		waiting := n.decide()
		at := n.next(coming)
		if at.IsZero() || at.After(n.until) {
			return
		}
		for i := range waiting {
			w := &waiting[i]
			n.of[w.UID].waited[reason{w.Wait.Code, w.Wait.By}] += at.Sub(n.in.Time)
		}
		n.in.Time = at
		n.end()
		for ; len(coming) > 0 && !coming[0].Created.After(at); coming = coming[1:] {
			n.newest++
			b := coming[0]
			b.Phase, b.Version = Queued, n.newest
			n.in.Backups = append(n.in.Backups, b)
			n.renew(&n.in.Backups[len(n.in.Backups)-1])
		}
	}
	n.until = n.in.Time
}

// end what has run; it is taken for good where it is not failing already.
func (n *night) end() {
	for i := range n.in.Backups {
		if b, f := &n.in.Backups[i], n.of[n.in.Backups[i].UID]; b.running() && !f.stuck && !f.frees.After(n.in.Time) {
			b.Phase = WaitingForOperations
		}
	}
	n.in.Backups = slices.DeleteFunc(n.in.Backups, func(b Backup) bool {
		f := n.of[b.UID]
		if !b.begun() || f.stuck || f.ends.After(n.in.Time) {
			return false
		}
		if b.Schedule != "" && !b.Phase.failing() {
			n.good[b.Schedule] = later(n.good[b.Schedule], f.begins)
		}
		return true
	})
	for i := range n.in.Backups {
		if b := &n.in.Backups[i]; !b.begun() {
			n.renew(b)
		}
	}
}

// renew sets when a Backup is due, by the newest good one of its Schedule, and by the next
// window where it is postponed. The queue is ordered by it only where it is by deadlines.
func (n *night) renew(b *Backup) {
	newest, there := n.good[b.Schedule]
	f := n.of[b.UID]
	late := !f.postponed.IsZero() && !n.in.Time.Before(f.postponed)
	if n.dues == nil || !there && !late {
		return
	}
	f.due, f.postponed = n.dues(b, n.in.Time, newest)
	if f.Backup.timed() {
		b.Due = f.due
	}
}

// mostDecisions bounds decisions at one time: a start by deadline waits for one write of
// turns, and another may follow from it.
const mostDecisions = 10

// decide starts what may start; it returns what keeps waiting.
func (n *night) decide() (waiting []Entry) {
	for range mostDecisions {
		d := Decide(n.in)
		n.done += len(n.in.Backups)
		waiting = waiting[:0]
		wrote := false
		for i := range d.Queue {
			e := &d.Queue[i]
			if e.Start {
				f := n.of[e.UID]
				f.begins, f.frees, f.ends = n.in.Time, n.in.Time.Add(f.holds), n.in.Time.Add(f.takes)
				e.Phase, e.Began, e.Position = Ready, n.in.Time, 0
				continue
			}
			if e.Phase != Queued || e.Turn != e.WriteTurn {
				n.newest++
				e.Phase, e.Turn, e.Version, wrote = Queued, e.WriteTurn, n.newest, true
			}
			waiting = append(waiting, *e)
		}
		if !wrote {
			break
		}
	}
	return waiting
}

// next event; zero: none.
func (n *night) next(coming []Backup) (at time.Time) {
	if len(coming) > 0 {
		at = coming[0].Created
	}
	for i := range n.in.Backups {
		b := &n.in.Backups[i]
		then := b.Due.Opens
		if f := n.of[b.UID]; b.running() {
			then = f.frees
		} else if b.begun() {
			then = f.ends
		}
		if then.After(n.in.Time) && (at.IsZero() || then.Before(at)) {
			at = then
		}
	}
	return at
}

// late is by how much its deadline is missed: at least, where the play ends before.
func (f *future) late(until time.Time) time.Duration {
	deadline, ends := f.due.Deadline, f.ends
	if ends.IsZero() {
		ends = until
	}
	if deadline.IsZero() || !ends.After(deadline) {
		return 0
	}
	return ends.Sub(deadline)
}

// outlook of a play with medians.
func (f *future) outlook(c Config, until time.Time) Outlook {
	o := Outlook{Backup: *f.Backup, Why: f.Takes.Why}
	if !f.Takes.Known() {
		if o.Why == "" {
			o.Why = "nothing is known of how long it takes"
		}
		return o
	}
	o.Due, o.Begins, o.Ends, o.Late = f.due, f.begins, f.ends, f.late(until)
	if o.Late > 0 {
		o.Because = f.because(c)
	}
	return o
}

// because is why it will be late: for what it waits longest, or that it takes too long by
// itself.
func (f *future) because(c Config) string {
	switch {
	case f.stuck:
		return "Velero does not take it up"
	case f.loads != nil:
		return f.loads.Because()
	}
	longest, most := reason{}, time.Duration(0)
	for r, d := range f.waited {
		if r.code != CodeWindow && (d > most || d == most && cmp.Or(cmp.Compare(r.code, longest.code), cmp.Compare(r.by, longest.by)) < 0) {
			longest, most = r, d
		}
	}
	takes := f.takes
	if !f.ends.IsZero() {
		takes = f.ends.Sub(f.begins)
	}
	switch wait := problems.Minutes(most); {
	case most == 0 || later(f.Created, f.due.Opens).Add(takes).After(f.due.Deadline):
		return "it takes " + problems.Minutes(takes) + " by itself"
	case longest.by != "":
		by, text := f.of[longest.by], ""
		switch {
		case by.stuck:
			text = ", because Velero does not take that up"
		case by.keeps:
			text = ", because " + by.loads.Because()
		}
		return "it shares namespaces with Backup " + by.Name + ", for which it waits " + wait + text
	case longest.code == CodeRefused:
		return "the API server refuses to change it"
	default:
		return fmt.Sprintf("it waits %s while as many other Backups run as the limit allows, %d", wait, max(1, c.Limit))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
