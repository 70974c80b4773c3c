package replay

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Format is the first field of a Report. The version changes when a field is
// removed or changes its meaning.
const Format = "plimsoll-replay/1"

// Report is the result of a replay. Offsets are seconds from the first sample
// on the boot clock. Lists are bounded; Omitted counts the rest.
type Report struct {
	Format string `json:"format"`
	// Config is the configuration file; empty: the defaults.
	Config string `json:"configFile,omitempty"`
	// WarmUp: the beginning was judged as after a start of the agent.
	WarmUp     bool        `json:"warmUp"`
	Recordings []Recording `json:"recordings"`
	// Unreadable are segments of which samples are missing, and why.
	Unreadable []string `json:"unreadable,omitempty"`
	// Failed is where and why the replay stopped; empty: it reached the end.
	Failed string `json:"failed,omitempty"`

	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Seconds float64   `json:"seconds"`
	Samples uint64    `json:"samples"`
	// TickSeconds is the configuration's, or the recording's if that is much
	// slower. Three ticks without a sample are a gap.
	TickSeconds float64 `json:"tickSeconds"`
	// WindowSeconds is the window of the node's PSI.
	WindowSeconds float64 `json:"windowSeconds"`

	// Scopes are the results of each plugin and scope, in their order of
	// appearance.
	Scopes []Scope `json:"scopes"`
	// Changes of a level, oldest first.
	Changes []Change `json:"changes"`
	// Decisions of a dry run, each time they changed, oldest first.
	Decisions []Decision `json:"decisions"`
	// Throttled pods of a dry run, oldest first.
	Throttled []Throttling `json:"throttled"`
	Gaps      []Gap        `json:"gaps"`
	Omitted   Omitted      `json:"omitted"`
	// Stall is the node's PSI over time.
	Stall []Point[snapshot.Ratios] `json:"stall"`
	// Limits is what a replay cannot know, and what it assumes.
	Limits []string `json:"notKnown"`
}

// Omitted counts what the bounds of the lists left out.
type Omitted struct {
	Changes   uint64 `json:"changes"`
	Decisions uint64 `json:"decisions"`
	Throttled uint64 `json:"throttled"`
	Gaps      uint64 `json:"gaps"`
	Scopes    uint64 `json:"scopes"`
	// Unreadable segments.
	Unreadable uint64 `json:"unreadable"`
}

// Bounds of the lists, which would grow with a level that flaps for weeks.
const (
	maxChanges   = 10_000
	maxDecisions = 1000
	maxGaps      = 10_000
	maxScopes    = 1000
	maxPoints    = 1200 // of each line of a plot
	// maxUnreadable bounds what an agent that was restarted for days
	// leaves to be told.
	maxUnreadable = 100
)

// Recording is a file that was played, or the segments of a directory that one run of
// an agent wrote.
type Recording struct {
	File string `json:"file"`
	// Segments of the directory; 0 for a file.
	Segments int `json:"segments,omitempty"`
	probes.Header
	Samples uint64    `json:"samples"`
	Start   time.Time `json:"start,omitzero"`
	End     time.Time `json:"end,omitzero"`
	// CutShort: a file is truncated, because its writer was killed, could not write on,
	// or is still writing.
	CutShort bool `json:"cutShort"`
}

// Scope is the result of one plugin and scope.
type Scope struct {
	Plugin   string           `json:"plugin"`
	Scope    string           `json:"scope"`
	Resource plugins.Resource `json:"resource"`
	// Unit and Operator of its comparison.
	Unit     string `json:"unit,omitempty"`
	Operator string `json:"operator,omitempty"`
	// Level at the end.
	Level plugins.Level `json:"level"`
	// Time at each level while it was judged; Unjudged is the part of None with
	// a missing measurement.
	NoneSeconds     float64 `json:"noneSeconds"`
	SoftSeconds     float64 `json:"softSeconds"`
	HardSeconds     float64 `json:"hardSeconds"`
	UnjudgedSeconds float64 `json:"unjudgedSeconds"`
	// Absent is the last reason of a missing measurement.
	Absent string `json:"absent,omitempty"`
	// UnobservedSeconds is the time in gaps.
	UnobservedSeconds float64 `json:"unseenSeconds"`
	// Rose counts the rises of the level to soft, and to hard.
	RoseToSoft uint64 `json:"roseToSoft"`
	RoseToHard uint64 `json:"roseToHard"`
	// Soft and Hard are the worst observed value for each rule; absent if the
	// plugin has no such rule, or nothing was observed.
	Soft *Extreme `json:"soft,omitempty"`
	Hard *Extreme `json:"hard,omitempty"`
	// Points of the plot, at most 1200, each the worst of its interval.
	Points []Point[Rules] `json:"points"`
}

// Extreme is the worst value observed for a rule.
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
	Observed  snapshot.Opt[float64] `json:"observed,omitzero"`
	Threshold snapshot.Opt[float64] `json:"threshold,omitzero"`
}

// Change of a level.
type Change struct {
	Time          time.Time             `json:"time"`
	OffsetSeconds float64               `json:"offsetSeconds"`
	Plugin        string                `json:"plugin"`
	Scope         string                `json:"scope"`
	From          plugins.Level         `json:"from"`
	To            plugins.Level         `json:"to"`
	Observed      snapshot.Opt[float64] `json:"observed,omitzero"`
	Operator      string                `json:"operator,omitempty"`
	Threshold     snapshot.Opt[float64] `json:"threshold,omitzero"`
	Unit          string                `json:"unit,omitempty"`
	Reason        string                `json:"reason"`
}

// Decision that a dry run would have made. Its pods are those of the recording;
// see Report.Limits.
type Decision struct {
	OffsetSeconds float64 `json:"offsetSeconds"`
	evict.Decision
}

// Throttling is the beginning of a throttle that a dry run would have had. What it would
// have changed is not known: the recording continues as it was.
type Throttling struct {
	Time          time.Time `json:"time"`
	OffsetSeconds float64   `json:"offsetSeconds"`
	Name          string    `json:"name"`
	// Disk whose use is limited, or memory; neither: the CPU's.
	Disk   string `json:"disk,omitempty"`
	Memory bool   `json:"memory,omitempty"`
	// Percent of its previous use at first, and Limit: bytes per second, cores, or bytes.
	Percent int            `json:"percent"`
	Limit   throttle.Rates `json:"may"`
	Reason  string         `json:"why"`
}

// Gap is a time without samples that ends at Time; nothing was judged in it.
type Gap struct {
	Time          time.Time `json:"time"`
	OffsetSeconds float64   `json:"offsetSeconds"`
	Seconds       float64   `json:"seconds"`
	Reason        string    `json:"why"`
}

// appendBounded appends up to a limit and counts the rest.
func appendBounded[T any](list *[]T, limit int, omitted *uint64, more ...T) {
	room := min(len(more), limit-len(*list))
	*list = append(*list, more[:room]...)
	*omitted += uint64(len(more) - room)
}

func (r *Report) gap(g Gap) { appendBounded(&r.Gaps, maxGaps, &r.Omitted.Gaps, g) }

func (r *Report) change(c ...Change) {
	appendBounded(&r.Changes, maxChanges, &r.Omitted.Changes, c...)
}

func (r *Report) decide(d Decision) {
	appendBounded(&r.Decisions, maxDecisions, &r.Omitted.Decisions, d)
}

func (r *Report) throttle(t Throttling) {
	appendBounded(&r.Throttled, maxDecisions, &r.Omitted.Throttled, t)
}

// sample counts a played sample.
func (r *Report) sample(s *snapshot.Sample, offset time.Duration) {
	if r.Samples == 0 {
		r.Start = s.Time
	}
	r.Samples++
	r.End, r.Seconds = s.Time, offset.Seconds()
}

// podsLimit is what a replay does not know of pods.
func podsLimit(known bool) string {
	const protected = " A pod named here may in fact be protected, covered by a PodDisruptionBudget or recreated on this node."
	if known {
		return "Pods: the recording has their names, requests, QoS and priority, and nothing else that protects one." + protected
	}
	return "Pods: the recording has none from the API server. Each pod counts as unprotected and of equal priority, " +
		"only BestEffort is known, from the cgroup's name." + protected
}

// describe fills in the configuration and the limits of the replay.
func (r *Report) describe(p *Player) {
	r.Format, r.Config, r.WarmUp = Format, p.ConfigFile, p.WarmUp
	r.TickSeconds, r.WindowSeconds = p.tick.Seconds(), p.Config.Window.Seconds()
	r.Omitted.Scopes = p.scopes.omitted
	// Lists are never null in JSON.
	r.Recordings, r.Changes = append([]Recording{}, r.Recordings...), append([]Change{}, r.Changes...)
	r.Decisions, r.Gaps = append([]Decision{}, r.Decisions...), append([]Gap{}, r.Gaps...)
	r.Throttled = append([]Throttling{}, r.Throttled...)
	r.Limits = []string{
		podsLimit(p.podsKnown),
		"The effect of an eviction: the recording continues unchanged, so no other pod is chosen until the level has ended.",
		"The effect of throttling: an eviction is shown beside it that might not have been needed.",
		"State from before the first sample: every level begins at none, and baselines are learned again.",
		"The kubelet's conditions: assumed to report no pressure.",
	}
	if p.WarmUp {
		r.Limits = append(r.Limits, "The first "+p.Config.Plugins.WarmUp.String()+" are judged as after a start of the agent: only the hard level of memory.")
	} else {
		r.Limits = append(r.Limits, "The start of the agent: assumed to be long before (--warm-up judges as after a start). The warm-up after a boot applies.")
	}
}
