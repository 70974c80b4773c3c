package plugins

import (
	"cmp"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Unjudged is a scope of a resource of which it is not known whether it is under
// pressure.
type Unjudged struct {
	Resource Resource `json:"resource"`
	// Scope is as in Verdict; empty: all of the resource.
	Scope string `json:"scope,omitempty"`
	// Plugin that lacks something; empty: none judges the resource.
	Plugin string `json:"plugin,omitempty"`
	Why    string `json:"why"`
}

// Unjudged lists what no level tells about: scopes whose plugin lacks a measurement
// or has just started, and resources of the node that no plugin judges. A level above
// none was judged.
func (l *Levels) Unjudged(s *snapshot.Snapshot) []Unjudged {
	var list []Unjudged
	judged := map[Resource]bool{}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		judged[v.Resource] = judged[v.Resource] || !v.PerWorkload
		if why := v.NotJudged(); why != "" {
			list = append(list, Unjudged{v.Resource, v.Scope, v.Plugin, why})
		}
	}
	for _, r := range resourcesOf(s) {
		if !judged[r] {
			list, judged[r] = append(list, Unjudged{Resource: r, Why: "no plugin judges it"}), true
		}
	}
	for _, p := range s.Probes { // a device that cannot be read has no verdict
		r, ok := map[string]Resource{"disks": Disk, "nics": NetworkIO}[p.Name]
		if ok && p.Error != "" && !judged[r] {
			list = append(list, Unjudged{Resource: r, Why: "cannot be read: " + p.Error})
		}
	}
	return list
}

// NotJudged is why the verdict does not tell whether there is pressure; empty if it
// does.
func (v *Verdict) NotJudged() string {
	if v.Level > None {
		return ""
	}
	just := ""
	if v.Partial {
		just = "the agent, the node or the rule has just started"
	}
	return cmp.Or(v.Absent, just)
}

// sinceInForce is the window of that length, and whether it is covered and the configuration
// was in force throughout. A window may be a little short.
func (v View) sinceInForce(d time.Duration) (w snapshot.Window, covered bool) {
	w, covered = v.Over(d)
	return w, covered && v.Monotonic-v.Since >= min(d, w.Elapsed())
}

// unseen is how much was seen of a window that is not covered yet.
func (v View) unseen(w snapshot.Window, d time.Duration) string {
	return fmt.Sprintf("%s of the last %s seen so far", min(w.Elapsed(), v.Monotonic-v.Since).Truncate(time.Second), d)
}

// resourcesOf are the resources that a node has to be judged by. What a filesystem
// has available may be for the kubelet alone to judge.
func resourcesOf(s *snapshot.Snapshot) []Resource {
	list := []Resource{Memory, CPU}
	for i := range s.Disks {
		if JudgesDisk(&s.Disks[i].Disk) {
			list = append(list, Disk)
			break
		}
	}
	for i := range s.NICs {
		if up, _ := s.NICs[i].Carrier.Get(); up && s.NICs[i].Layer == snapshot.LayerLeaf {
			return append(list, NetworkIO)
		}
	}
	return list
}
