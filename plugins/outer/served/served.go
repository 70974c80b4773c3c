// Package served runs an inner plugin as an outer one, so that a rule can run
// in a process of its own: to try it beside the agent's rule, or another
// version of it.
//
// # Usage
//
//	host, err := probes.NewHost(paths, nil)
//	…
//	kit.Main("memory-stall-next", &served.SelfReading{
//		Inner: served.Inner{Set: plugins.SetOf(plugins.DefaultMemoryStall(), nil)}, Host: host,
//	})
//
// The name must differ from the inner plugin's if the agent runs that too.
//
// The wire holds less than a Verdict: of several scopes the worst one only; no
// evidence and no reason; of the named workloads only pods.
//
// # Concurrency
//
// See and the answers may run concurrently.
package served

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// stale is how old the newest snapshot may be: some ticks.
const stale = 10 * time.Second

var errUnseen = errors.New("no snapshot yet")

// Inner is an inner plugin as a kit.Plugin and kit.Topper. Its caller supplies
// the Snapshots.
type Inner struct {
	// Set has that one plugin (plugins.SetOf). It belongs to See.
	Set *plugins.Set

	mu       sync.Mutex // guards all below
	verdicts []plugins.Verdict
	judgedAt time.Time
}

// Judge judges a Snapshot; it is called once a second.
func (i *Inner) Judge(s *snapshot.Snapshot) {
	verdicts := i.Set.Judge(s).Verdicts
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verdicts, i.judgedAt = verdicts, time.Now()
}

// Threshold returns the worst verdict of the newest Snapshot.
func (i *Inner) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	v, err := i.worst()
	if err != nil {
		return kit.Threshold{}, err
	}
	observed, seen := v.Observed.Get()
	if v.Level == plugins.None && (v.Absent != "" || !seen) {
		return kit.Threshold{}, fmt.Errorf("not measured: %s", v.Reason)
	}
	limit, _ := v.Threshold.Get()
	t := kit.Threshold{
		Level: kit.Level(v.Level), Observed: observed, Limit: limit, Below: v.Operator == "<" || v.Operator == "<=", Scope: v.Scope,
	}
	if v.Condition != "" {
		t.Condition = &kit.Condition{Name: v.Condition}
	}
	return t, nil
}

// Top returns the pods that the verdict of a scope names, as far as they are in
// the request; none for a level that is only latched.
func (i *Inner) Top(_ context.Context, ask kit.Ask) (kit.Named, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shown := make(map[string]*corev1.Pod, len(ask.Pods))
	for _, p := range ask.Pods {
		shown[string(p.UID)] = p
	}
	var named kit.Named
	for _, v := range i.verdicts {
		if v.Scope != ask.Scope || v.MetLevel < v.Level {
			continue
		}
		for _, c := range v.Candidates {
			if p := shown[c.PodUID]; p != nil && len(named.Pods) < ask.N {
				named.Pods = append(named.Pods, p)
			}
		}
	}
	return named, nil
}

// worst returns the verdict with the highest level; among equals the one whose
// current pressure is highest, then the first, preferring one that could be
// judged.
func (i *Inner) worst() (plugins.Verdict, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.judgedAt.IsZero():
		return plugins.Verdict{}, errUnseen
	case time.Since(i.judgedAt) > stale:
		return plugins.Verdict{}, fmt.Errorf("newest snapshot is %s old", time.Since(i.judgedAt).Round(time.Second))
	case len(i.verdicts) == 0:
		return plugins.Verdict{}, errors.New("nothing to judge")
	}
	worst := i.verdicts[0]
	for _, v := range i.verdicts[1:] {
		if worse(v, worst) {
			worst = v
		}
	}
	return worst, nil
}

func worse(a, b plugins.Verdict) bool {
	switch {
	case a.Level != b.Level:
		return a.Level > b.Level
	case a.MetLevel != b.MetLevel:
		return a.MetLevel > b.MetLevel
	}
	return a.Absent == "" && b.Absent != ""
}
