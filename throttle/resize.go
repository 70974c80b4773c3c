package throttle

import "time"

// Resizing is why a resize is not in effect.
type Resizing struct {
	Why string
	// Refused: it will not be.
	Refused bool
}

// resized ends the resize of one that may not be resized any more, and one that is not in
// effect in time: its CPU limits are restored, and cpu.max has the time to show its effect
// that any limit has.
func (c Throttle) resized(t Target, in Input) Throttle {
	w, r := in.Workloads[t.Cgroup], in.Resizing[t]
	if !c.InForce() { // the next time it is decided anew
		c.Resized, c.ResizingSince = false, time.Time{}
	}
	switch {
	case !c.Resized || w.Unlisted:
		return c
	case !w.Resizable:
		return c.notResized(in.Time, "throttle.resize is false, or its QoS class is not Burstable")
	case r.Why == "":
		c.ResizingSince = time.Time{}
		return c
	case c.ResizingSince.IsZero(), c.ResizingSince.After(in.Time): // the clock was set
		c.ResizingSince = in.Time
	}
	if r.Refused || in.Time.Sub(c.ResizingSince) >= resizedWithin {
		return c.notResized(in.Time, r.Why)
	}
	return c
}

func (c Throttle) notResized(now time.Time, why string) Throttle {
	c.Resized, c.NotResized, c.ResizingSince = false, why, time.Time{}
	if !c.FloorSince.IsZero() {
		c.FloorSince = now
	}
	return c
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
