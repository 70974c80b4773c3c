// Package judgement compares what judges say of labelled recordings with what
// their labels expect: which levels are right, false and missed, how late they
// come, and whether the workload that causes the pressure is named. A judge is
// our own rules or a rule of another program (judgement/peers).
//
// # Usage
//
// A Label is the truth about one recording; Decode reads one. Play asks the
// judge of a Rule at each sample, Compare holds its answers against the Label,
// and Sum makes Figures with intervals of many Outcomes. All of it is pure;
// daemon/judge reads the files.
package judgement

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Label is the truth about one recording, written before it was judged.
type Label struct {
	// Name is that of the files, without their endings.
	Name string `yaml:"-" json:"name"`
	// HeldOut: no rule was tuned by it. It is in the directory held-out.
	HeldOut bool `yaml:"-" json:"heldOut,omitempty"`
	// Class is what kind of work it shows, such as "own limit".
	Class string `yaml:"class" json:"class"`
	// Machine that it is of, and what was Did to it.
	Machine string `yaml:"machine" json:"machine"`
	Did     string `yaml:"did" json:"did"`
	// Load is when that was done; of several at once from the begin of the first to the
	// end of the last.
	Load Span `yaml:"load" json:"load"`
	// Want is what a good judge says; nothing of what is not named.
	Want []Want `yaml:"want,omitempty" json:"want,omitempty"`
	// NotJudged is what a good judge says it cannot judge; its page is then no
	// all-clear.
	NotJudged []NotJudged `yaml:"notJudged,omitempty" json:"notJudged,omitempty"`
	// Why a good judge says so.
	Why string `yaml:"why" json:"why"`
	// Usual is how long requests of a disk took before, by its name: what an
	// agent that had watched it for a day would know.
	Usual map[string]time.Duration `yaml:"usual,omitempty" json:"-"`
	// Kubelet is what a real one said that ran meanwhile; nil: none did.
	Kubelet *Kubelet `yaml:"kubelet,omitempty" json:"kubelet,omitempty"`
}

// Kubelet is what a real kubelet logged of the node's memory while a recording was made. It
// is no part of the truth: it is judged by it as every judge is.
type Kubelet struct {
	Version string `yaml:"version" json:"version"`
	// Looks of its eviction manager, oldest first.
	Looks []Look `yaml:"looks" json:"looks"`
}

// Look is one of a kubelet at the memory of its node.
type Look struct {
	// At is when, in seconds from the first sample.
	At float64 `yaml:"at" json:"atSeconds"`
	// Available is its memory.available, in bytes.
	Available uint64 `yaml:"available" json:"availableBytes"`
	// Reclaims: it then set out to reclaim memory, in the end by evicting a pod.
	Reclaims bool `yaml:"reclaims,omitempty" json:"reclaims,omitempty"`
}

// Span of a recording, in seconds from its first sample.
type Span struct {
	From float64 `yaml:"from" json:"fromSeconds"`
	To   float64 `yaml:"to" json:"toSeconds"`
}

// Want is a level that a good judge reaches within the Span.
type Want struct {
	Span     `yaml:",inline"`
	Resource plugins.Resource `yaml:"resource" json:"resource"`
	// Scope is the device, or where a filesystem is mounted; empty: the node.
	Scope string `yaml:"scope,omitempty" json:"scope,omitempty"`
	// Level is soft or hard.
	Level plugins.Level `yaml:"level" json:"level"`
	// AtMost: it may be reached and need not be.
	AtMost bool `yaml:"atMost,omitempty" json:"atMost,omitempty"`
	// Culprit and Sufferer are in the names of the workloads that press and
	// that wait; NoCulprit: no workload may be named as one that should be
	// evicted. Presser is the culprit of the contention that is shown, where no
	// workload is named as one that should be evicted.
	Culprit   string `yaml:"culprit,omitempty" json:"culprit,omitempty"`
	Presser   string `yaml:"presser,omitempty" json:"presser,omitempty"`
	Sufferer  string `yaml:"sufferer,omitempty" json:"sufferer,omitempty"`
	NoCulprit bool   `yaml:"noCulprit,omitempty" json:"noCulprit,omitempty"`
}

// NotJudged is a scope that lacks a measurement within the Span, so that no
// judge can tell whose doing it is.
type NotJudged struct {
	Span     `yaml:",inline"`
	Resource plugins.Resource `yaml:"resource" json:"resource"`
	Scope    string           `yaml:"scope" json:"scope"`
	// Sufferer is in the name of a workload that is seen to wait all the same.
	Sufferer string `yaml:"sufferer" json:"sufferer"`
}

// Healthy says whether a good judge says nothing at all.
func (l Label) Healthy() bool { return len(l.Want)+len(l.NotJudged) == 0 }

// HeldOutDir is the directory, below that of the others, of the recordings by
// which no rule was tuned.
const HeldOutDir = "held-out"
