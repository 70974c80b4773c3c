package vgdp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

const mib = 1 << 20

var (
	disk = Target{"du-1", "nvme0n1"}
	cpu  = Target{"du-1", ""}
)

// usage of one mover on one disk, at so many seconds, with that level.
func usage(seconds int, level plugins.Level, rates Rates) Usage {
	return Usage{
		Time: at(time.Duration(seconds) * time.Second), Alive: map[string]bool{"du-1": true},
		Rates: map[Target]Rates{disk: rates}, Disks: map[string]plugins.Level{"nvme0n1": level},
	}
}

func TestThrottleStepsDownToFifth(t *testing.T) {
	curbs := Throttle(nil, usage(0, plugins.None, Rates{Read: 100 * mib}))
	assert.Empty(t, curbs)
	curbs = Throttle(curbs, usage(1, plugins.Soft, Rates{Read: 100 * mib, Write: 10 * mib}))
	c := curbs[disk]
	assert.Equal(t, Rates{Read: 80 * mib, Write: 8 * mib}, c.Limits())
	var steps []int
	for s := 2; s < 60; s++ {
		curbs = Throttle(curbs, usage(s, plugins.Soft, Rates{Read: 5 * mib})) // slower, by our own doing
		steps = append(steps, curbs[disk].Percent)
	}
	assert.Equal(t, []int{80, 60, 40, 20, 20}, []int{steps[8], steps[9], steps[19], steps[29], steps[57]})
	c = curbs[disk]
	assert.Equal(t, Rates{Read: 20 * mib, Write: 2 * mib}, c.Limits(), "what it uses while it is curbed says nothing")
	curbs = Throttle(nil, usage(0, plugins.Hard, Rates{Read: 100 * mib}))
	assert.Equal(t, FloorPercent, curbs[disk].Percent, "hard pressure: at once")
}

func TestThrottleReleasedInSteps(t *testing.T) {
	curbs := Throttle(nil, usage(0, plugins.Hard, Rates{Read: 100 * mib}))
	var at30, gone int
	for s := 1; len(curbs) > 0; s++ {
		require.Less(t, s, 1000)
		curbs = Throttle(curbs, usage(s, plugins.None, Rates{Read: 20 * mib}))
		if curbs[disk].Percent == 30 && at30 == 0 {
			at30 = s
		}
		gone = s
	}
	assert.Equal(t, 31, at30, "30 s after the first moment without pressure")
	assert.Equal(t, 1+8*30, gone)
}

func TestThrottleExpires(t *testing.T) {
	curbs := Throttle(nil, usage(0, plugins.Hard, Rates{Read: 100 * mib}))
	assert.Equal(t, at(LimitLifetime), curbs[disk].Expires)
	none := Rates{}
	assert.NotEmpty(t, Throttle(curbs, usage(299, plugins.Hard, none)))
	assert.Empty(t, Throttle(curbs, usage(300, plugins.Hard, none)), "an agent that starts finds it and takes it away")
	gone := usage(1, plugins.Hard, none)
	gone.Alive = nil
	assert.Empty(t, Throttle(curbs, gone))
}

func TestThrottleOnlyMeasuredAndPressed(t *testing.T) {
	u := usage(0, plugins.Hard, Rates{})
	assert.Empty(t, Throttle(nil, u))
	u.Rates = map[Target]Rates{{"du-1", "other"}: {Read: 1}, cpu: {CPU: 2}, {"dead", "nvme0n1"}: {Read: 1}}
	assert.Empty(t, Throttle(nil, u))
	u.CPU = plugins.Soft
	curbs := Throttle(nil, u)
	c := curbs[cpu]
	assert.Len(t, curbs, 1)
	assert.InDelta(t, 1.6, c.Limits().CPU, 1e-9)
	c.Base.CPU = 0.01
	assert.InDelta(t, minCPU, c.Limits().CPU, 1e-9)
	c = MoverLimit{Base: Rates{Write: 1}, Percent: 20}
	assert.Equal(t, Rates{Read: minBytes, Write: minBytes}, c.Limits())
	c.Base = Rates{Write: 50 * mib}
	assert.Equal(t, Rates{Read: 10 * mib, Write: 10 * mib}, c.Limits(), "it may turn round")
}

func TestThrottleRandom(t *testing.T) {
	for seed := range uint64(300) {
		require.NoError(t, soundCurbs(seed), "seed %d", seed)
	}
}

func FuzzThrottle(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { require.NoError(t, soundCurbs(seed)) })
}

func soundCurbs(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 5))
	var curbs map[Target]MoverLimit
	base, level, now, calm := 0.0, plugins.None, 0, 0
	for range 300 {
		if r.IntN(12) == 0 {
			level = plugins.Level(r.IntN(3))
		}
		now += 1 + r.IntN(5)
		if level > plugins.None {
			calm = now
		}
		rate := float64(r.IntN(100)) * mib
		before, was := curbs[disk]
		curbs = Throttle(curbs, usage(now, level, Rates{Read: rate}))
		c, is := curbs[disk]
		if is && !was {
			base = rate
		}
		if !is {
			continue
		}
		if was && level == plugins.None && c.Percent > before.Percent+release {
			return errorf("from %d to %d percent at once", before.Percent, c.Percent)
		}
		if err := c.sound(base, now-calm); err != nil {
			return err
		}
	}
	return nil
}

// sound curb of what used base, so many seconds after the pressure was gone.
func (c *MoverLimit) sound(base float64, calm int) error {
	switch {
	case c.Percent < FloorPercent || c.Percent >= 100:
		return errorf("%d percent", c.Percent)
	case c.Base.Read != base:
		return errorf("based on %v, it used %v", c.Base.Read, base)
	case c.Limits().Read < max(minBytes, base/5):
		return errorf("%v of %v", c.Limits().Read, base)
	case calm > 8*36+36:
		return errorf("curbed %d s after the pressure was gone", calm)
	}
	return nil
}
