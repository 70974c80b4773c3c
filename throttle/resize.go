package throttle

import "time"

// Resizing is a resize that is not in effect.
type Resizing struct {
	// Why it is not.
	Why string
	// Since is when the last one before it was in effect, or the first began.
	Since time.Time
	// Refused: it will not be.
	Refused bool
}

// resized ends the resize of one that may not be resized any more, and one that is not in
// effect in time: its CPU limits are restored, and cpu.max has the time to show its effect
// that any limit has.
func (c Throttle) resized(t Target, in Input) Throttle {
	w, r := in.Workloads[t.Cgroup], in.Resizing[t]
	switch {
	case !c.Resized || w.Unlisted:
		return c
	case !c.InForce(): // the next time it is decided anew
		c.Resized = false
		return c
	case !w.Resizable:
		r.Why = "throttle.resize is false, or its QoS class is not Burstable"
	case r.Why == "" || !r.Refused && in.Time.Sub(r.Since) < resizedWithin:
		return c
	}
	c.Resized, c.NotResized = false, r.Why
	return c.beginAgain(in.Time)
}

// DecideResize of a throttle that has just begun: why is why it is not resized; empty: it is.
func (c Throttle) DecideResize(why string) Throttle {
	c.Resized, c.NotResized = why == "", why
	return c
}

// UndecidedResize tells whether a throttle has just begun, and it is to be decided how its
// CPU is limited.
func (c *Throttle) UndecidedResize(t Target, w *Workload) bool {
	return c.InForce() && w.Resizable && t.Disk == "" && !t.Memory && !c.Resized && c.NotResized == ""
}
