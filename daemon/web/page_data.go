package web

import (
	"html/template"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// pageData is what the template shows: text and geometry, with nothing left to
// compute.
type pageData struct {
	Hold, Open bool
	Script     template.JS

	Waiting  string // set before the first tick; all else is empty then
	Node     string
	Headline string
	Level    string // CSS class: none, soft, hard, unknown; the text has it as well
	Mode     string
	// NotJudged is what no level tells about, with the reasons; NotJudgedMore how
	// many more there are.
	NotJudged     []view.Alarm
	NotJudgedMore int
	DryRun        bool // of evictions; Throttling: pods are throttled in spite of it
	Throttling    bool
	Eviction      string // the newest one, empty for none
	Facts         []string
	Alarms        []view.Alarm
	Notes         []string

	Contention                   pageContention
	Verdicts, Calm               []pageVerdict // Calm: devices below their thresholds, where there are many
	Window                       string
	Pressure                     []pagePressure
	Memory                       []fact
	Network                      []fact
	Disks                        []diskRow
	IdleDisks                    []diskRow
	NICs                         []nicRow
	RestNICs                     []nicRow
	MoreNICs                     int // beyond RestNICs
	Rivals                       *pageRivals
	Filesystems, RestFilesystems []filesystemRow
	Workloads                    []workloadRow
	Hidden                       int          // workloads beyond those shown
	Cluster                      *pageCluster // nil for an agent that runs standalone
	Decisions                    []pageDecision
	Decides                      bool // without a decision no level has changed
	Unfolded                     int  // how many decisions are not folded
	Earlier                      int  // how many are
	Failed                       []snapshot.Probe
	FailedAdvice                 view.Advice
	Probes                       int
	Absences                     []view.Absence
	Noted                        []snapshot.Probe
}

// cell is a value, or Unknown with the reason.
type cell struct {
	Text, Why string
	Hot       bool // highlighted; never the only sign
}

// fact is a named cell with an explanation.
type fact struct {
	Name string
	cell
	Of string
}

// cellOf is a measurement as a cell, with the reason where it is absent.
func cellOf[T any](o snapshot.Opt[T], format func(T) string, absent snapshot.Absent, keys ...string) cell {
	if o.IsZero() {
		return cell{Text: view.Unknown, Why: view.AbsentReason(absent, keys...)}
	}
	return cell{Text: view.Optional(o, format)}
}

// wholeNumber adapts a formatter of floats to counts.
func wholeNumber(format func(float64) string) func(uint64) string {
	return func(n uint64) string { return format(float64(n)) }
}

func highlightIf(c cell, is bool) cell {
	c.Hot = is
	return c
}

// staleTicks is how many periods old a sample may be before the page warns.
const staleTicks = 3

// disconnectTolerance is how long the connection to the API server may be lost before the
// page warns: the restart of a watch is normal.
const disconnectTolerance = 5 * time.Second

// missedShown is how long a missed sample is a reason not to trust the page: one at the start
// is none for months.
const missedShown = 10 * time.Minute

func (p *page) data(open bool) pageData {
	s := p.state()
	if s == nil {
		return pageData{Open: open, Waiting: view.WaitingText, Headline: view.WaitingText, Level: unknownClass}
	}
	text, level := s.Headline()
	class, window := levelClass(level), ""
	if level == plugins.None && !s.AllClear() {
		class = unknownClass
	}
	class = staleClass(class, s, p.now())
	if w := s.Snapshot.WindowSeconds; w > 0 {
		window = view.Seconds(w)
	}
	shownNICs, restNICs := view.NICs(s.Snapshot.NICs)
	moreNICs := max(0, len(restNICs)-restNICsShown)
	mounts, restMounts := view.Filesystems(s.Snapshot.Filesystems, filesystemsShown)
	disks, idle := view.Disks(s.Snapshot.Disks)
	notJudged := s.NotJudged()
	workloads, hidden := workloadRows(s)
	decisions := pageDecisions(p.decisions(), s.Snapshot.Time, open)
	unfolded := unfolded(decisions)
	verdicts, calm := separateCalm(pageVerdicts(s, open))
	return pageData{
		Open: open, DryRun: s.Cluster != nil && s.Cluster.DryRun, Throttling: s.Cluster != nil && s.Cluster.Throttling(), Cluster: newPageCluster(s), Eviction: lastEviction(s),
		Node: view.Printable(s.Agent.Node), Headline: text, Level: class, Mode: s.ModeText(),
		NotJudged: adviseOnce(notJudged[:min(notJudgedShown, len(notJudged))]), NotJudgedMore: max(0, len(notJudged)-notJudgedShown),
		Facts: agentFacts(s), Alarms: alarms(s, p.now()), Notes: printables(s.Agent.Restrictions),
		Contention: newPageContention(s, open), Verdicts: verdicts, Calm: calm, Window: window, Pressure: pagePressures(s),
		Memory: memoryFacts(s.Snapshot), Network: networkFacts(s.Snapshot),
		Disks: diskRows(s, disks), IdleDisks: diskRows(s, idle), NICs: nicRows(s, shownNICs), RestNICs: nicRows(s, restNICs[:len(restNICs)-moreNICs]), MoreNICs: moreNICs, Rivals: newPageRivals(s.Outer),
		Filesystems: filesystemRows(s.Snapshot, mounts), RestFilesystems: filesystemRows(s.Snapshot, restMounts),
		Workloads: workloads, Hidden: hidden, Decisions: decisions, Decides: decides(s, p.now()), Unfolded: unfolded, Earlier: max(0, len(decisions)-unfolded),
		Failed: printableProbes(view.FailedProbes(s.Snapshot.Probes)), FailedAdvice: view.ProbesAdvice(), Probes: len(s.Snapshot.Probes), Absences: view.Absences(s),
		Noted: printableProbes(view.NotedProbes(s.Snapshot.Probes)),
	}
}

// notJudgedShown are named with their reasons; the verdicts below have the others.
const notJudgedShown = 6

// restNICsShown of the less busy virtual ones: a node has one for each pod.
const restNICsShown = 40

// adviseOnce leaves the same advice to the last of those in a row that have it.
func adviseOnce(list []view.Alarm) []view.Alarm {
	for i := range list[:max(0, len(list)-1)] {
		if list[i].Advice == list[i+1].Advice {
			list[i].Advice = view.Advice{}
		}
	}
	return list
}

// pageRivals are other hosts of outer plugins.
type pageRivals struct {
	List   []outer.Rival
	Beside string // what becomes of the plugins
	Advice view.Advice
}

func newPageRivals(o *view.OuterPlugins) *pageRivals {
	if o == nil || len(o.Rivals) == 0 {
		return nil
	}
	p := &pageRivals{Beside: view.BesideText(o.Beside), Advice: view.RivalsAdvice()}
	for _, r := range o.Rivals {
		r.Dir, r.Command, r.Cgroup = view.Printable(r.Dir), view.Clip(r.Command), view.Printable(r.Cgroup)
		p.List = append(p.List, r)
	}
	return p
}

// levelClass keeps an unknown level out of the markup.
func levelClass(l plugins.Level) string {
	switch l {
	case plugins.Soft, plugins.Hard:
		return l.String()
	case plugins.None:
	}
	return plugins.None.String()
}

// unknownClass is for missing measurements: the node is not known to be
// healthy.
const unknownClass = "unknown"

func verdictClass(v plugins.Verdict) string {
	if v.NotJudged() != "" {
		return unknownClass
	}
	return levelClass(v.Level)
}

func lastEviction(s *view.State) string {
	e := s.LastEviction
	if e == nil {
		return ""
	}
	return "Last eviction, " + view.Age(s.Age(e.Time)) + " ago: " + e.Text()
}

func agentFacts(s *view.State) []string {
	a := s.Agent
	facts := []string{"up " + view.Age(s.Age(a.Started)), "Plimsoll " + view.Printable(a.Version)}
	if a.CgroupFlavour != "" {
		facts = append(facts, "cgroup "+view.Printable(a.CgroupFlavour))
	}
	config := "default configuration"
	if a.ConfigFile != "" {
		config = view.Printable(a.ConfigFile)
	}
	return append(facts, config, "samples every "+view.Seconds(a.TickSeconds)+", the last one took "+view.Seconds(a.TickDurationSeconds))
}

// stale reports whether the newest sample is too old to be trusted, and its age.
func stale(s *view.State, now time.Time) (age time.Duration, is bool) {
	period := time.Duration(s.Agent.TickSeconds * float64(time.Second))
	age = s.Old(now)
	return age, age > staleTicks*max(period, time.Second)
}

// decides reports whether an agent decides at present: it takes samples, and rounds end.
func decides(s *view.State, now time.Time) bool {
	_, old := stale(s, now)
	return !old && (s.Cluster == nil || s.Cluster.RoundsStuckSeconds == 0)
}

// staleClass is the colour of a page's head: stale values are no all-clear. A pressure
// stays one until a newer sample shows its end.
func staleClass(class string, s *view.State, now time.Time) string {
	if _, is := stale(s, now); is && class == plugins.None.String() {
		return unknownClass
	}
	return class
}

// alarms are what an on-call engineer must know before trusting the page.
func alarms(s *view.State, now time.Time) []view.Alarm {
	var list []view.Alarm
	if age, is := stale(s, now); is {
		list = append(list, view.StaleAlarm(view.Age(age)))
	}
	if e := s.Agent.ConfigError; e != "" {
		list = append(list, view.ConfigAlarm(e))
	}
	if c := s.Cluster; c != nil && !c.StaleSince.IsZero() && s.Age(c.StaleSince) > disconnectTolerance {
		list = append(list, view.ConnectionAlarm(view.Age(s.Age(c.StaleSince)), inParentheses(c.StaleReason)))
	}
	if c := s.Cluster; c != nil && c.RoundsStuckSeconds > 0 {
		list = append(list, view.RoundsAlarm(c.RoundsStuckSeconds))
	}
	if c := s.Cluster; c != nil && c.UnsavedSeconds > 0 {
		list = append(list, view.UnsavedAlarm(c.UnsavedSeconds, c.UnsavedReason))
	}
	if age := s.Age(s.Agent.MissedAt); s.Agent.TicksMissed > 0 && age < missedShown {
		list = append(list, view.MissedAlarm(s.Agent.TicksMissed, view.Age(age)))
	}
	return list
}

func printables(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = view.Printable(s)
	}
	return out
}

func printableProbes(list []snapshot.Probe) []snapshot.Probe {
	for i := range list {
		p := &list[i]
		p.Name, p.Error, p.Note = view.Printable(p.Name), view.Printable(p.Error), view.Printable(p.Note)
	}
	return list
}
