package agents

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// Report describes all agents and the cluster eviction limit.
type Report struct {
	Time time.Time `json:"time"`
	// Agents counts them by state.
	Agents map[State]int `json:"agents"`
	// FullDisruption: full disruption. Late of Of agents miss their heartbeats.
	FullDisruption bool `json:"fullDisruption"`
	Late           int  `json:"late"`
	Total          int  `json:"total"`
	// Missing are the late and the silent agents, by name.
	Missing []MissingAgent `json:"missing"`
	// Pressed are the nodes with pressure, by name.
	Pressed []Pressed `json:"pressed"`
	// Reported are the nodes with a level that is only reported, by name; it counts
	// for nothing.
	Reported []ReportedNode `json:"reported,omitempty"`
	// NotJudged counts, by resource, the nodes on which all or a part of it was not
	// judged: that they are not among Pressed is no all-clear. Those of silent
	// agents are not among them.
	NotJudged map[string]int `json:"notJudged,omitempty"`
	// Unreadable are the nodes whose Lease annotations cannot be read, by name.
	Unreadable []UnreadableNode `json:"unreadable,omitempty"`
	// Culprits over all nodes.
	Culprits *Culprits `json:"culprits,omitempty"`
	// EvictionLimit is the cluster eviction limit and its use.
	EvictionLimit EvictionLimit `json:"evictionLimit"`
	// Answers that this leader gave, the newest first.
	Answers []Answered `json:"answers"`
}

// MissingAgent is one agent that is late or silent.
type MissingAgent struct {
	Node           string  `json:"node"`
	State          State   `json:"state"`
	SilenceSeconds float64 `json:"silenceSeconds"`
	Tainted        bool    `json:"tainted"`
	Reason         string  `json:"reason,omitempty"`
}

// Pressed is one node with pressure.
type Pressed struct {
	Node string `json:"node"`
	// Pressure is the level by resource, Plugins that of outer plugins.
	Pressure map[string]string `json:"pressure,omitempty"`
	Plugins  map[string]string `json:"plugins,omitempty"`
	Zone     string            `json:"zone,omitempty"`
	Tainted  bool              `json:"tainted"`
}

// ReportedNode is one node with levels that are only reported, by resource.
type ReportedNode struct {
	Node   string            `json:"node"`
	Levels map[string]string `json:"levels"`
}

// UnreadableNode is one node whose Lease annotations cannot be read, or are too large: its
// eviction requests are refused.
type UnreadableNode struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// EvictionLimit is the cluster eviction limit, its use, and the brakes.
type EvictionLimit struct {
	// Pods of the cluster; absent until the first eviction request.
	Pods int `json:"pods,omitempty"`
	// Limit of evicted pods in each PeriodSeconds, and how many were.
	Limit         int     `json:"limit"`
	Spent         int     `json:"spent"`
	PeriodSeconds float64 `json:"periodSeconds"`
	// Common are the pressures with a common cause, as "disk", or "disk at soft":
	// evictions for them are braked. Eviction requests of CommonPlugins, outer
	// plugins, are refused.
	Common        []string `json:"common"`
	CommonPlugins []string `json:"commonPlugins"`
	// PressedNodes by resource and by outer plugin, and Zones by name.
	PressedNodes map[string]int  `json:"pressedNodes"`
	PluginNodes  map[string]int  `json:"pluginNodes"`
	Zones        map[string]Zone `json:"zones"`
	// Full are the zones where evictions are braked, each in a sentence.
	Full []string `json:"brakedZones,omitempty"`
}

// Answered is one eviction request and its answer.
type Answered struct {
	Time          time.Time    `json:"time"`
	Node          string       `json:"node"`
	Pod           string       `json:"pod"`
	Plugin        string       `json:"plugin,omitempty"`
	RequestReason string       `json:"requestReason,omitempty"`
	Result        lease.Result `json:"result"`
	// Code of a refusal by the controller; absent where the API server answered.
	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
}

func newReport(j *Judgement, g *Evaluation, answered []Answered) *Report {
	p := &Report{
		Time: g.Time.UTC(), Agents: map[State]int{Alive: 0, Late: 0, Silent: 0}, FullDisruption: j.FullDisruption, Late: j.Late, Total: j.Total,
		Missing: []MissingAgent{}, Pressed: []Pressed{}, Answers: slices.Clone(answered), Culprits: culpritsOf(j.Agents),
		EvictionLimit: EvictionLimit{
			Pods: g.Pods, Limit: g.Limit(), Spent: g.Spent(), PeriodSeconds: g.Settings.Evictions.Per.Seconds(),
			Common: g.Common(), CommonPlugins: g.CommonPlugins(),
			PressedNodes: g.Pressed.Resources, PluginNodes: g.Pressed.Plugins, Zones: g.Zones, Full: g.Full(),
		},
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		p.Agents[a.State]++
		if a.State != Alive {
			p.Missing = append(p.Missing, MissingAgent{Node: a.Name, State: a.State, SilenceSeconds: a.Silence.Seconds(), Tainted: a.tainted(), Reason: a.Why})
		}
		if a.ParseErr != nil {
			p.Unreadable = append(p.Unreadable, UnreadableNode{Node: a.Name, Reason: a.ParseErr.Error()})
		}
		if a.State != Silent {
			p.addNode(a)
		}
	}
	slices.SortFunc(p.Reported, func(a, b ReportedNode) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(p.Missing, func(a, b MissingAgent) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(p.Unreadable, func(a, b UnreadableNode) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(p.Pressed, func(a, b Pressed) int { return cmp.Compare(a.Node, b.Node) })
	return p
}

// addNode adds what the heartbeat of a node carries.
func (p *Report) addNode(a *Judged) {
	says := a.Carried.Report
	if len(says.Pressure)+len(says.Plugins) > 0 {
		p.Pressed = append(p.Pressed, Pressed{Node: a.Name, Pressure: says.Pressure, Plugins: says.Plugins, Zone: a.zone(), Tainted: a.tainted()})
	}
	if len(says.Reported) > 0 {
		p.Reported = append(p.Reported, ReportedNode{Node: a.Name, Levels: says.Reported})
	}
	for _, resource := range says.NotJudged {
		if p.NotJudged == nil {
			p.NotJudged = map[string]int{}
		}
		p.NotJudged[resource]++
	}
}
