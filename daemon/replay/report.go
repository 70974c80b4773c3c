package replay

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Format is the first field of a Report: its version changes when a field
// changes its meaning or goes.
const Format = "plimsoll-replay/1"

// Report is what a replay gave. Offsets are seconds from the first sample, on
// the clock that runs through suspend. Lists are bounded: what a bound left out
// is counted in Omitted.
type Report struct {
	Format string `json:"format"`
	// Config is the file that it was judged by; empty: the defaults.
	Config string `json:"configFile,omitempty"`
	// WarmUp: the beginning was judged as an agent does that has just started.
	WarmUp     bool        `json:"warmUp"`
	Recordings []Recording `json:"recordings"`
	// Failed is where and why it could not go on; empty: it reached the end.
	Failed string `json:"failed,omitempty"`

	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Seconds float64   `json:"seconds"`
	Samples uint64    `json:"samples"`
	// TickSeconds is the configuration's, or the recording's where that is
	// much slower: after three of it without a sample there is a gap.
	TickSeconds float64 `json:"tickSeconds"`
	// WindowSeconds is what the stall of the node is a share of.
	WindowSeconds float64 `json:"windowSeconds"`

	// Scopes are what each plugin said of each scope, in their order.
	Scopes []Scope `json:"scopes"`
	// Changes of a level, oldest first.
	Changes []Change `json:"changes"`
	// Decisions are those of a dry run, whenever they changed, oldest first.
	Decisions []Decision `json:"decisions"`
	Gaps      []Gap      `json:"gaps"`
	Omitted   Omitted    `json:"omitted"`
	// Stall of the node over time.
	Stall []Point[probes.Ratios] `json:"stall"`
	// NotKnown is what a replay cannot tell, and what it takes instead.
	NotKnown []string `json:"notKnown"`
}

// Omitted counts what the bounds of the lists left out.
type Omitted struct {
	Changes   uint64 `json:"changes"`
	Decisions uint64 `json:"decisions"`
	Gaps      uint64 `json:"gaps"`
	Scopes    uint64 `json:"scopes"`
}

// Bounds of the lists: they grow with what happened, which may flap for weeks.
const (
	maxChanges   = 10_000
	maxDecisions = 1000
	maxGaps      = 10_000
	maxScopes    = 1000
	maxPoints    = 1200 // of each line of a plot
)

// Recording is one that was played.
type Recording struct {
	File string `json:"file"`
	probes.Header
	Samples uint64    `json:"samples"`
	Start   time.Time `json:"start,omitzero"`
	End     time.Time `json:"end,omitzero"`
	// CutShort: its writer was killed, or still writes.
	CutShort bool `json:"cutShort"`
}

// Scope is what a plugin said of one scope.
type Scope struct {
	Plugin   string           `json:"plugin"`
	Scope    string           `json:"scope"`
	Resource plugins.Resource `json:"resource"`
	// Unit and Operator of its comparison.
	Unit     string `json:"unit,omitempty"`
	Operator string `json:"operator,omitempty"`
	// Level at the end.
	Level plugins.Level `json:"level"`
	// Time spent at each level while it was judged; Unjudged is that part of
	// None in which a measurement was absent.
	NoneSeconds     float64 `json:"noneSeconds"`
	SoftSeconds     float64 `json:"softSeconds"`
	HardSeconds     float64 `json:"hardSeconds"`
	UnjudgedSeconds float64 `json:"unjudgedSeconds"`
	// Absent is why it was not judged in full when that was so last.
	Absent string `json:"absent,omitempty"`
	// UnseenSeconds were gaps.
	UnseenSeconds float64 `json:"unseenSeconds"`
	// Rose counts how often the level rose to soft, and to hard.
	RoseToSoft uint64 `json:"roseToSoft"`
	RoseToHard uint64 `json:"roseToHard"`
	// Soft and Hard are the worst that was observed for each rule; absent where
	// the plugin has no such rule, or nothing was observed.
	Soft *Extreme `json:"soft,omitempty"`
	Hard *Extreme `json:"hard,omitempty"`
	// Points of a plot, at most 1200: of each step the worst.
	Points []Point[Rules] `json:"points"`
}

// Extreme is the worst that was observed for a rule.
type Extreme struct {
	What          string    `json:"what"`
	Observed      float64   `json:"observed"`
	Threshold     float64   `json:"threshold"`
	Time          time.Time `json:"time"`
	OffsetSeconds float64   `json:"offsetSeconds"`
}

// Rules is what a plugin compared at one moment.
type Rules struct {
	Level plugins.Level `json:"level"`
	Soft  Comparison    `json:"soft,omitzero"`
	Hard  Comparison    `json:"hard,omitzero"`
}

// Comparison of a rule.
type Comparison struct {
	Observed  probes.Opt[float64] `json:"observed,omitzero"`
	Threshold probes.Opt[float64] `json:"threshold,omitzero"`
}

// Change of a level.
type Change struct {
	Time          time.Time           `json:"time"`
	OffsetSeconds float64             `json:"offsetSeconds"`
	Plugin        string              `json:"plugin"`
	Scope         string              `json:"scope"`
	From          plugins.Level       `json:"from"`
	To            plugins.Level       `json:"to"`
	Observed      probes.Opt[float64] `json:"observed,omitzero"`
	Operator      string              `json:"operator,omitempty"`
	Threshold     probes.Opt[float64] `json:"threshold,omitzero"`
	Unit          string              `json:"unit,omitempty"`
	Reason        string              `json:"reason"`
}

// Decision that a dry run would have taken. Its pods are those of the
// recording, see Report.NotKnown.
type Decision struct {
	OffsetSeconds float64 `json:"offsetSeconds"`
	evict.Decision
}

// Gap is a time without samples, which ends at Time: nothing was judged on it.
type Gap struct {
	Time          time.Time `json:"time"`
	OffsetSeconds float64   `json:"offsetSeconds"`
	Seconds       float64   `json:"seconds"`
	Why           string    `json:"why"`
}

// bounded appends as long as there is room, and counts what found none.
func bounded[T any](list *[]T, limit int, omitted *uint64, more ...T) {
	room := min(len(more), limit-len(*list))
	*list = append(*list, more[:room]...)
	*omitted += uint64(len(more) - room)
}

func (r *Report) gap(g Gap) { bounded(&r.Gaps, maxGaps, &r.Omitted.Gaps, g) }

func (r *Report) change(c ...Change) {
	bounded(&r.Changes, maxChanges, &r.Omitted.Changes, c...)
}

func (r *Report) decide(d Decision) {
	bounded(&r.Decisions, maxDecisions, &r.Omitted.Decisions, d)
}

// sample counts one that was played.
func (r *Report) sample(s *probes.Sample, offset time.Duration) {
	if r.Samples == 0 {
		r.Start = s.Time
	}
	r.Samples++
	r.End, r.Seconds = s.Time, offset.Seconds()
}

// about says by what it was judged, and what is not known.
func (r *Report) about(p *Player) {
	r.Format, r.Config, r.WarmUp = Format, p.ConfigFile, p.WarmUp
	r.TickSeconds, r.WindowSeconds = p.tick.Seconds(), p.Config.Window.Seconds()
	r.Omitted.Scopes = p.scopes.omitted
	// A program finds a list in JSON also where there is nothing in it.
	r.Recordings, r.Changes = append([]Recording{}, r.Recordings...), append([]Change{}, r.Changes...)
	r.Decisions, r.Gaps = append([]Decision{}, r.Decisions...), append([]Gap{}, r.Gaps...)
	r.NotKnown = []string{
		"Pods: a recording has none from the API server. Each pod counts as unprotected and of equal priority, " +
			"only BestEffort is known, from the cgroup's name. A pod named here may in fact be protected, covered by a PodDisruptionBudget or recreated on this node.",
		"The effect of an eviction: the recording continues unchanged, so no other pod is chosen until the level has ended.",
		"State from before the first sample: every level begins at none, and baselines are learned again.",
		"The kubelet's conditions: assumed to report no pressure.",
	}
	if p.WarmUp {
		r.NotKnown = append(r.NotKnown, "The first "+p.Config.Plugins.WarmUp.String()+" are judged as after a start of the agent: only the hard level of memory.")
	} else {
		r.NotKnown = append(r.NotKnown, "The start of the agent: assumed to be long before (--warm-up judges as after a start). The warm-up after a boot applies.")
	}
}
