package vgdp

import (
	"cmp"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// The bounds of a Curb.
const (
	// FloorPercent of what a mover used before: it still finishes in time.
	FloorPercent = 20
	// tighten and release are the steps, in percent, and settle and clear how long
	// each is given.
	tighten = 20
	release = 10
	settle  = 10 * time.Second
	clear30 = 30 * time.Second
	// CurbLife is how long a curb lasts that nobody renews: whoever finds an older
	// one takes it away.
	CurbLife = 5 * time.Minute
	// A curb is never below these, in bytes per second and cores: what a mover used
	// in a pause says nothing about what it needs.
	leastBytes = 1 << 20
	leastCPU   = 0.1
)

// Target of a curb: a mover's cgroup, and the disk, or with an empty one the
// CPU.
type Target struct{ Mover, Disk string }

// Rates of what a mover uses: bytes per second of a disk, or cores.
type Rates struct{ Read, Write, CPU float64 }

// Curb is how much a mover may use of something.
type Curb struct {
	// Base is what it used before it was curbed. It is never measured again while
	// it is: that would be our own doing.
	Base Rates `json:"base"`
	// Percent of Base that it may use.
	Percent int `json:"percent"`
	// Changed is when Percent did, or when pressure was last seen.
	Changed time.Time `json:"changed"`
	// Pressed: there was pressure then.
	Pressed bool      `json:"pressed"`
	Expires time.Time `json:"expires"`
}

// Limits in force, as io.max and cpu.max take them; 0: none. A direction that
// the mover did not use has what it used in the other: it may turn round.
func (c *Curb) Limits() Rates {
	of := func(base, least float64) float64 { return max(least, base*float64(c.Percent)/100) }
	if c.Base.CPU > 0 {
		return Rates{CPU: of(c.Base.CPU, leastCPU)}
	}
	return Rates{
		Read:  of(cmp.Or(c.Base.Read, c.Base.Write), leastBytes),
		Write: of(cmp.Or(c.Base.Write, c.Base.Read), leastBytes),
	}
}

// Usage of a node by its movers.
type Usage struct {
	Time time.Time
	// Rates of every mover that runs, over the last window. What was not measured
	// is not there, and is not curbed anew.
	Rates map[Target]Rates
	// Alive are the movers that run.
	Alive map[string]bool
	// Disks that are pressed, by name. CPU is the level of memory and network: a
	// mover that computes less reads, keeps and sends less.
	Disks map[string]plugins.Level
	CPU   plugins.Level
	// Unseen are the disks whose pressure is not known, and "" for the CPU's: a
	// curb there stays as it is, and expires.
	Unseen map[string]bool
}

func (u *Usage) level(t Target) plugins.Level {
	if t.Disk == "" {
		return u.CPU
	}
	return u.Disks[t.Disk]
}

// Throttle says what each mover may use from now on, given what it may until
// now. Soft pressure tightens step by step, hard at once; none loosens slowly.
// A target that is not in the answer is free.
func Throttle(before map[Target]Curb, u Usage) map[Target]Curb {
	after := map[Target]Curb{}
	for t, c := range before {
		if !u.Alive[t.Mover] || !u.Time.Before(c.Expires) || c.Changed.After(u.Time) { // the clock was set
			continue
		}
		if !u.Unseen[t.Disk] {
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
		c := Curb{Base: rates, Percent: 100}
		after[t] = c.next(u.Time, level)
	}
	return after
}

func (c Curb) next(now time.Time, level plugins.Level) Curb {
	since := now.Sub(c.Changed)
	c.Expires = now.Add(CurbLife)
	switch {
	case level == plugins.Hard:
		c.Percent, c.Changed = FloorPercent, now
	case level == plugins.Soft && since >= settle:
		c.Percent, c.Changed = max(FloorPercent, c.Percent-tighten), now
	case level == plugins.None && c.Pressed:
		c.Changed = now // the clear time begins
	case level == plugins.None && since >= clear30:
		c.Percent, c.Changed = c.Percent+release, now
	}
	c.Pressed = level > plugins.None
	return c
}
