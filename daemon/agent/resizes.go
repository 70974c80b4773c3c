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
	// resizing are the resizes that are not in effect, and effective is when each target's
	// last was, or the first began.
	resizing  map[throttle.Target]throttle.Resizing
	effective map[throttle.Target]time.Time
	failed    error // of the last round
}

// resizeInput is what a round of them decides by, beside the throttles.
type resizeInput struct {
	time, booted time.Time // booted is when the machine did, by the clock of time
	workloads    map[string]throttle.Workload
	podOf        podOf
}

func (r *resizes) clone() resizes {
	c := *r
	c.journal.Limits, c.effective = slices.Clone(r.journal.Limits), maps.Clone(r.effective)
	return c
}

const (
	// resizeTimeout bounds all its calls of a round.
	resizeTimeout = 3 * time.Second
	// maxResized is how many pods are resized at once: the record on the Node is bounded,
	// and each of them is read in each round.
	maxResized = 10
)

// adopt takes over what an earlier agent recorded on the Node.
func (r *resizes) adopt(node *corev1.Node, log *slog.Logger) {
	if r.adopted || r.api == nil || node == nil {
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
	return slices.ContainsFunc(r.journal.Limits, func(l throttle.Limit) bool { return l.Cgroup == cgroup })
}

// round decides which throttles that have just begun are resized, in list, and makes the
// limits of all of these the only ones. It tells whether there was anything to do.
func (r *resizes) round(list map[throttle.Target]throttle.Throttle, in resizeInput) bool {
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	resized, undecided := r.split(list, in.workloads)
	if len(resized)+len(undecided)+len(r.journal.Limits) == 0 && r.failed == nil {
		return false
	}
	var pass *resize.Pass
	if r.adopted {
		pass = r.api.Pass(ctx)
	}
	for _, t := range undecided {
		why := exempt(pass, t, len(resized), in.podOf)
		if why == "" {
			resized = append(resized, t)
		}
		c := list[t]
		list[t] = c.DecideResize(why)
	}
	if pass == nil {
		return true
	}
	r.judge(pass, in.time, resized)
	want, err := map[throttle.Knob]float64{}, error(nil)
	for _, t := range resized {
		if !in.workloads[t.Cgroup].DryRun {
			err = errors.Join(err, r.add(want, pass, t, list[t], in.podOf))
		}
	}
	r.failed = errors.Join(err, r.set(pass, want))
	for t, failed := range pass.Refused() {
		failed.Since = r.effective[t]
		r.resizing[t] = failed
	}
	return true
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
// is away, those that are recorded.
func (r *resizes) add(want map[throttle.Knob]float64, pass *resize.Pass, t throttle.Target, c throttle.Throttle, podOf podOf) error {
	cores := c.Limits().CPU
	for _, l := range r.journal.Limits {
		if l.Cgroup == t.Cgroup {
			want[l.Knob] = cores
		}
	}
	pod, known := podOf(t.Cgroup)
	if !known {
		return nil
	}
	knobs, err := pass.Knobs(t.Cgroup, pod)
	for _, k := range knobs {
		want[k] = cores
	}
	if errors.Is(err, throttle.ErrGone) {
		return nil
	}
	return err
}

func (r *resizes) set(pass *resize.Pass, want map[throttle.Knob]float64) error {
	r.journal.Files, r.journal.Save = pass, pass.Record
	return r.journal.Set(want)
}

// judge tells which of the limits that were written before are not in effect.
func (r *resizes) judge(pass *resize.Pass, now time.Time, resized []throttle.Target) {
	before := r.effective
	r.resizing, r.effective = pass.Resizing(r.journal.Limits), map[throttle.Target]time.Time{}
	for _, t := range resized {
		waits, waiting := r.resizing[t]
		r.effective[t] = now
		if since, there := before[t]; waiting && there {
			r.effective[t] = since
		}
		if waiting {
			waits.Since = r.effective[t]
			r.resizing[t] = waits
		}
	}
}

// lift restores all CPU limits.
func (r *resizes) lift() error {
	if len(r.journal.Limits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	return r.set(r.api.Pass(ctx), nil)
}
