package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// resizes throttles the CPU of pods by in-place resize. Agent.throttling guards it; a round
// changes a clone.
type resizes struct {
	api     *resize.API // nil: there is no cluster
	journal throttle.Journal
	// adopted: what an earlier agent recorded on the Node is known.
	adopted bool
	node    types.UID // of the Node that has the record
	// resizing are the resizes that are not in effect, and effective is when each target's
	// last was, or the first began.
	resizing  map[throttle.Target]throttle.Resizing
	effective map[throttle.Target]time.Time
	failed    error // of the last round
	passes    int   // in which there was something to write
}

// resizeInput is what a round of them decides by, beside the throttles.
type resizeInput struct {
	time, booted time.Time // booted is when the machine did, by the clock of time
	workloads    map[string]throttle.Workload
	podOf        podOf
}

func (r *resizes) clone() resizes {
	c := *r
	c.journal.Limits, c.effective, c.resizing = slices.Clone(r.journal.Limits), maps.Clone(r.effective), maps.Clone(r.resizing)
	return c
}

const (
	// callTimeout bounds a call, and resizeTimeout all of a round: a read, a record and a write,
	// so that each round makes progress with any API server that answers in time.
	callTimeout   = 1200 * time.Millisecond
	resizeTimeout = 3 * callTimeout
	// maxResized is how many pods are resized at once: the record on the Node is bounded,
	// and each of them is read in each round.
	maxResized = 10
)

// adopt takes over what an earlier agent recorded on the Node. A Node that was made anew has no
// record: it is written again.
func (r *resizes) adopt(node *corev1.Node, log *slog.Logger) {
	if r.api == nil || node == nil {
		return
	}
	before := r.node
	if r.node = node.UID; r.adopted {
		if r.node != before {
			r.journal.Forget()
		}
		return
	}
	limits, err := resize.Recorded(node)
	if err != nil {
		log.Warn("cannot read which pods an earlier agent resized; their CPU limits stay until their owners set them or the pods end", "error", err)
	}
	r.adopted, r.journal.Limits = true, limits
}

// moveTimes moves its times with a wall clock that was set.
func (r *resizes) moveTimes(by time.Duration) {
	for t, at := range r.effective {
		r.effective[t] = at.Add(by)
	}
	for t, waits := range r.resizing {
		waits.Since = waits.Since.Add(by)
		r.resizing[t] = waits
	}
}

// holds tells whether CPU limits of a pod are ours. Its kubelet writes cpu.max of its cgroup
// when it resizes it, so the agent does not.
func (r *resizes) holds(cgroup string) bool {
	return slices.ContainsFunc(r.of(cgroup), func(l throttle.Limit) bool { return !r.journal.Planned(l) })
}

// round decides which throttles that have just begun are resized, in list, and makes the
// limits of all of these the only ones. It tells whether there was anything to do. What is
// resized already comes first: limits are restored also while pods keep beginning.
func (r *resizes) round(ctx context.Context, list map[throttle.Target]throttle.Throttle, in resizeInput) bool {
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	resized, undecided := r.split(list, in.workloads)
	if len(resized)+len(undecided)+len(r.journal.Limits) == 0 && r.failed == nil {
		return false
	}
	var pass *resize.Pass
	if r.adopted {
		pass = r.pass(ctx)
		r.judge(pass, in.time, resized)
		r.apply(pass, list, in, resized)
	}
	begun := len(resized)
	for _, t := range undecided {
		why := exempt(pass, t, len(resized), in.podOf)
		if why == "" {
			resized, r.effective[t] = append(resized, t), in.time
		}
		c := list[t]
		list[t] = c.DecideResize(why)
	}
	if len(resized) > begun && pass != nil {
		r.apply(pass, list, in, resized)
	}
	return true
}

// pass begins one.
func (r *resizes) pass(ctx context.Context) *resize.Pass {
	api := *r.api
	api.Timeout = callTimeout
	pass := api.Pass(ctx)
	pass.Read(r.journal.Limits)
	return pass
}

// apply makes the limits of these targets the only ones, and tells which are not written. One
// whose containers have limits of their own that are as tight is decided anew: cpu.max limits it.
func (r *resizes) apply(pass *resize.Pass, list map[throttle.Target]throttle.Throttle, in resizeInput, resized []throttle.Target) {
	want, read, err := map[throttle.Knob]float64{}, map[throttle.Target]bool{}, error(nil)
	for _, t := range resized {
		if !in.workloads[t.Cgroup].DryRun {
			known, failed := r.add(want, pass, t, list[t], in.podOf)
			read[t], err = known, errors.Join(err, failed)
		}
	}
	r.failed = errors.Join(err, r.set(pass, want))
	for t, known := range read {
		limits, c := r.of(t.Cgroup), list[t]
		switch {
		case slices.ContainsFunc(limits, throttle.Limit.InForce):
		case !known || slices.ContainsFunc(limits, isUnwritten):
			r.resizing[t] = throttle.Resizing{Why: "its CPU limits could not be written", Since: r.effective[t]}
		case len(limits) == 0 && c.Tightens:
			list[t] = c.DecideResize("its containers' own limits are as tight")
		}
	}
	for t, failed := range pass.Refused() {
		failed.Since = r.effective[t]
		r.resizing[t] = failed
	}
}

func isUnwritten(l throttle.Limit) bool { return !l.Written && !l.Foreign }

// of are the limits of a pod.
func (r *resizes) of(cgroup string) (list []throttle.Limit) {
	for _, l := range r.journal.Limits {
		if l.Cgroup == cgroup {
			list = append(list, l)
		}
	}
	return list
}

// podOf is the listed pod of a cgroup.
type podOf func(cgroup string) (throttle.Container, bool)

// exempt is why a pod is not resized, beside so many others; empty: it is.
func exempt(pass *resize.Pass, t throttle.Target, others int, podOf podOf) string {
	pod, known := podOf(t.Cgroup)
	switch {
	case pass == nil:
		return "the Node is not read yet"
	case others >= maxResized:
		return fmt.Sprintf("%d pods of this node are resized already, the most at once", maxResized)
	case !known:
		return "its pod is not known"
	}
	return pass.Exempt(pod)
}

// split returns the throttles that are resized, and those for which it is to be decided. What
// is not listed yet keeps its limits, and gets none.
func (r *resizes) split(list map[throttle.Target]throttle.Throttle, workloads map[string]throttle.Workload) (resized, undecided []throttle.Target) {
	for _, t := range targets(list) {
		c, w := list[t], workloads[t.Cgroup]
		switch {
		case w.Unlisted && !r.holds(t.Cgroup):
		case c.InForce() && c.Resized:
			resized = append(resized, t)
		case c.UndecidedResize(t, &w):
			undecided = append(undecided, t)
		}
	}
	return resized, undecided
}

// add the limits of a target: those of its pod, and after a restart, or while the API server
// is away, those that are recorded. known: its pod could be read.
func (r *resizes) add(want map[throttle.Knob]float64, pass *resize.Pass, t throttle.Target, c throttle.Throttle, podOf podOf) (known bool, err error) {
	cores := c.Limits().CPU
	for _, l := range r.of(t.Cgroup) {
		want[l.Knob] = cores
	}
	pod, known := podOf(t.Cgroup)
	if !known {
		return false, nil
	}
	knobs, err := pass.Knobs(t.Cgroup, pod)
	for _, k := range knobs {
		want[k] = cores
	}
	if errors.Is(err, throttle.ErrGone) {
		return false, nil
	}
	return err == nil, err
}

func (r *resizes) set(pass *resize.Pass, want map[throttle.Knob]float64) error {
	r.journal.Files, r.journal.Save, r.journal.Order = pass, pass.Record, r.order
	return r.journal.Set(want)
}

// order puts what is restored first, and begins with another limit in each pass: where some writes
// hang until the pass ends, the others are made in the next.
func (r *resizes) order(list []throttle.Limit) {
	if len(list) == 0 {
		return
	}
	r.passes++
	first := r.passes % len(list)
	copy(list, slices.Concat(list[first:], list[:first]))
	slices.SortStableFunc(list, func(a, b throttle.Limit) int {
		switch {
		case a.Restores() == b.Restores():
			return 0
		case a.Restores():
			return -1
		}
		return 1
	})
}

// judge tells which of the limits that were written before are not in effect. Since when is
// counted on while that is not known, and while none is in force of a pod that waits for one.
func (r *resizes) judge(pass *resize.Pass, now time.Time, resized []throttle.Target) {
	before, waited := r.effective, r.resizing
	r.resizing, r.effective = pass.Resizing(r.journal.Limits), map[throttle.Target]time.Time{}
	for _, t := range resized {
		limits := r.of(t.Cgroup)
		waits, waiting := r.resizing[t]
		_, still := waited[t]
		still = still && !slices.ContainsFunc(limits, throttle.Limit.InForce)
		unread := slices.ContainsFunc(limits, func(l throttle.Limit) bool { return pass.Unread(l.Container) })
		r.effective[t] = now
		if since, there := before[t]; there && (waiting || still || unread) {
			r.effective[t] = since
		}
		if waiting {
			waits.Since = r.effective[t]
			r.resizing[t] = waits
		}
	}
}

// lift restores all CPU limits.
func (r *resizes) lift(ctx context.Context) error {
	if len(r.journal.Limits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	return r.set(r.pass(ctx), nil)
}
