package vgdp

import (
	"cmp"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// The bounds of a Curb.
const (
	// FloorPercent of what a mover used before: enough to finish in time.
	FloorPercent = 20
	// tighten and release are the steps in percent, settle and clear30 the cooldown after
	// each.
	tighten         = 20
	release         = 10
	tightenCooldown = 10 * time.Second
	releaseCooldown = 30 * time.Second
	// LimitLifetime is how long a throttle lasts without renewal: after a restart an older
	// one is removed.
	LimitLifetime = 5 * time.Minute
	// Lower bounds of a limit, in bytes per second and cores: what a mover used during a
	// pause does not tell what it needs.
	minBytes = 1 << 20
	minCPU   = 0.1
)

// Target of a throttle: a mover's cgroup and a disk; without a disk, the CPU.
type Target struct{ Mover, Disk string }

// Rates of what a mover uses: bytes per second of a disk, or cores.
type Rates struct{ Read, Write, CPU float64 }

// MoverLimit throttles a mover's use of one disk, or of the CPU.
type MoverLimit struct {
	// Base is what it used before it was throttled. It is not measured again
	// meanwhile: that would be the effect of the limit.
	Base Rates `json:"base"`
	// Percent of Base that it may use.
	Percent int `json:"percent"`
	// Changed is when Percent changed, or pressure was last seen.
	Changed time.Time `json:"changed"`
	// UnderPressure: there was pressure at the last update.
	UnderPressure bool      `json:"pressed"`
	Expires       time.Time `json:"expires"`
}

// Limits in force, as io.max and cpu.max take them; 0: none. A direction that the mover
// did not use gets the limit of the other: it may change direction.
func (c *MoverLimit) Limits() Rates {
	of := func(base, least float64) float64 { return max(least, base*float64(c.Percent)/100) }
	if c.Base.CPU > 0 {
		return Rates{CPU: of(c.Base.CPU, minCPU)}
	}
	return Rates{
		Read:  of(cmp.Or(c.Base.Read, c.Base.Write), minBytes),
		Write: of(cmp.Or(c.Base.Write, c.Base.Read), minBytes),
	}
}

// Usage is what the movers of a node use, and the pressure there.
type Usage struct {
	Time time.Time
	// Rates of every running mover over the last window. A mover without a measurement has
	// none, and is not newly throttled.
	Rates map[Target]Rates
	// Alive are the movers that run.
	Alive map[string]bool
	// Disks under pressure, by name. CPU is the level of memory and network: a mover with
	// less CPU reads, buffers and sends less.
	Disks map[string]plugins.Level
	CPU   plugins.Level
	// Unknown are the disks whose pressure is unknown, and "" for the CPU: throttles
	// there stay unchanged until they expire.
	Unknown map[string]bool
}

func (u *Usage) level(t Target) plugins.Level {
	if t.Disk == "" {
		return u.CPU
	}
	return u.Disks[t.Disk]
}

// Throttle computes the next throttles from the current ones. Soft pressure
// tightens step by step, hard pressure at once to the floor; without pressure they
// are released slowly. A target that is not in the result is not throttled.
func Throttle(before map[Target]MoverLimit, u Usage) map[Target]MoverLimit {
	after := map[Target]MoverLimit{}
	for t, c := range before {
		if !u.Alive[t.Mover] || !u.Time.Before(c.Expires) || c.Changed.After(u.Time) { // the clock was set
			continue
		}
		if !u.Unknown[t.Disk] {
			c = c.next(u.Time, u.level(t))
		}
		if c.Percent < 100 {
			after[t] = c
		}
	}
	for t, rates := range u.Rates {
		_, curbed := after[t]
		level := u.level(t)
		if curbed || level == plugins.None || rates == (Rates{}) || !u.Alive[t.Mover] {
			continue
		}
		c := MoverLimit{Base: rates, Percent: 100}
		after[t] = c.next(u.Time, level)
	}
	return after
}

func (c MoverLimit) next(now time.Time, level plugins.Level) MoverLimit {
	since := now.Sub(c.Changed)
	c.Expires = now.Add(LimitLifetime)
	switch {
	case level == plugins.Hard:
		c.Percent, c.Changed = FloorPercent, now
	case level == plugins.Soft && since >= tightenCooldown:
		c.Percent, c.Changed = max(FloorPercent, c.Percent-tighten), now
	case level == plugins.None && c.UnderPressure:
		c.Changed = now // the clear time begins
	case level == plugins.None && since >= releaseCooldown:
		c.Percent, c.Changed = c.Percent+release, now
	}
	c.UnderPressure = level > plugins.None
	return c
}
