// Package served makes an outer plugin of an inner one, so that a rule can run
// in a process of its own: to try it beside the agent's, or on another version
// of it.
//
// # Usage
//
//	host, err := probes.NewHost(paths, nil)
//	…
//	kit.Main("memory-stall-next", &served.Watching{
//		Inner: served.Inner{Set: plugins.SetOf(plugins.DefaultMemoryStall(), nil)}, Host: host,
//	})
//
// The name must be another one than the inner plugin's where the agent runs
// that too.
//
// The wire has room for less than a Verdict: one scope, of several the one that is
// worst; no evidence and no reason; of the workloads it names those that are pods.
//
// # Concurrency
//
// See and the answers may run beside each other.
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
	"github.com/plimsoll-dev/plimsoll/probes"
)

// stale is how old the newest snapshot may be: some ticks.
const stale = 10 * time.Second

var errUnseen = errors.New("no snapshot yet")

// Inner is an inner plugin as a kit.Plugin and kit.Topper that is handed its
// Snapshots.
type Inner struct {
	// Set of that one plugin (plugins.SetOf). It belongs to See.
	Set *plugins.Set

	mu       sync.Mutex // of those below
	verdicts []plugins.Verdict
	seen     time.Time
}

// See is handed each Snapshot, one a second, and judges it.
func (i *Inner) See(s *probes.Snapshot) {
	verdicts := i.Set.Judge(s).Verdicts
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verdicts, i.seen = verdicts, time.Now()
}

// Threshold is the worst verdict of the newest Snapshot.
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

// Top is the pods that the verdict of a scope names, as far as they were shown.
// Nobody goes for a level that is only kept.
func (i *Inner) Top(_ context.Context, ask kit.Ask) (kit.Named, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shown := make(map[string]*corev1.Pod, len(ask.Pods))
	for _, p := range ask.Pods {
		shown[string(p.UID)] = p
	}
	var named kit.Named
	for _, v := range i.verdicts {
		if v.Scope != ask.Scope || v.Pressing < v.Level {
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

// worst is the verdict of the highest level; of those the one that presses
// hardest, and then the first, unless another can be judged and it cannot.
func (i *Inner) worst() (plugins.Verdict, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.seen.IsZero():
		return plugins.Verdict{}, errUnseen
	case time.Since(i.seen) > stale:
		return plugins.Verdict{}, fmt.Errorf("newest snapshot is %s old", time.Since(i.seen).Round(time.Second))
	case len(i.verdicts) == 0:
		return plugins.Verdict{}, errors.New("nothing to judge")
	}
	worst := i.verdicts[0]
	for _, v := range i.verdicts[1:] {
		if outdoes(v, worst) {
			worst = v
		}
	}
	return worst, nil
}

func outdoes(a, b plugins.Verdict) bool {
	switch {
	case a.Level != b.Level:
		return a.Level > b.Level
	case a.Pressing != b.Pressing:
		return a.Pressing > b.Pressing
	}
	return a.Absent == "" && b.Absent != ""
}
