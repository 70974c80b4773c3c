package plugins

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// simulated is a disk that serves so many requests per second, and none faster than its
// latency. Its users have so many requests in flight, each of so many bytes, or ask for so
// many per second.
type simulated struct {
	iops, latency, bytes float64
	write                bool

	inFlight, perSecond float64
}

// second is what its counters say of a second.
func (d simulated) second() snapshot.DiskRates {
	waiting, done := d.inFlight, min(d.iops, d.inFlight/d.latency)
	if d.perSecond > 0 {
		if done = min(d.perSecond, d.iops); d.perSecond > d.iops {
			waiting = 256 // the queue of the device is full
		} else {
			waiting = done * d.latency
		}
	}
	r := snapshot.DiskRates{WindowSeconds: 1, QueueLength: waiting, BusyRatio: min(1, waiting)}
	await := snapshot.Some(waiting / done)
	if d.write {
		r.WritesPerSecond, r.WrittenBytesPerSecond, r.WriteAwaitSeconds = done, done*d.bytes, await
	} else {
		r.ReadsPerSecond, r.ReadBytesPerSecond, r.ReadAwaitSeconds = done, done*d.bytes, await
	}
	return r
}

// kneeTest is a disk that is watched by an agent that knows its baseline.
type kneeTest struct {
	diskWatch
	base Baseline
	now  time.Time
}

func watched(usual time.Duration) *kneeTest {
	k := &kneeTest{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for class := range k.base.Read {
		of := RequestStats{Requests: 1e6, Seconds: 1e5, TotalSeconds: 1e6 * usual.Seconds()}
		k.base.Read[class], k.base.Write[class] = of, of
	}
	return k
}

// run lets it serve for so many seconds.
func (k *kneeTest) run(seconds int, d simulated) *kneeTest {
	for range seconds {
		k.now = k.now.Add(time.Second)
		k.add(d.second(), &k.base, k.now)
	}
	return k
}

const ms = float64(time.Millisecond) / float64(time.Second)

func TestKnee(t *testing.T) {
	t.Run("a disk that is asked for more than it carries", func(t *testing.T) {
		for _, iops := range []float64{100, 300, 1000, 3000} {
			for _, bytes := range []float64{4 << 10, 64 << 10, 256 << 10} {
				d := simulated{iops: iops, latency: ms, bytes: bytes, inFlight: 24}
				k := watched(time.Millisecond).run(60, d)
				assert.InEpsilon(t, iops, k.Read.IOPS, 0.01)
				assert.InEpsilon(t, iops*bytes, k.Read.BytesPerSecond, 0.01)
				assert.InEpsilon(t, 24/iops, k.Read.AwaitSeconds, 0.01)
				assert.Zero(t, k.Write)
				c := k.capacity("vda")
				assert.Equal(t, 24/iops >= 5*ms, c.AtKnee, "%v", iops)
				assert.Empty(t, c.Slow)
				assert.Equal(t, c.AtKnee, c.Read.FullIOPS)
				assert.Equal(t, c.AtKnee, c.Read.FullBytes)
				assert.Equal(t, c.AtKnee, c.ReadBytesPerSecond > 0)
			}
		}
	})
	t.Run("at what await it carries that is the least that was seen", func(t *testing.T) {
		d := simulated{iops: 1000, latency: ms, bytes: 4096, inFlight: 24}
		k := watched(time.Millisecond).run(60, d)
		d.inFlight = 2
		assert.InDelta(t, 2*ms, k.run(60, d).Read.AwaitSeconds, ms/10)
		d.inFlight = 200
		assert.InDelta(t, 2*ms, k.run(60, d).Read.AwaitSeconds, ms/10)
	})
	t.Run("of what is asked for less it carries at least that", func(t *testing.T) {
		k := watched(time.Millisecond).run(60, simulated{iops: 3000, latency: ms, bytes: 4096, perSecond: 40})
		assert.InDelta(t, 40, k.Read.IOPS, 1)
		assert.False(t, k.atKnee())
		assert.False(t, k.Read.FullIOPS || k.Read.FullBytes)
		k.run(60, simulated{iops: 300, latency: ms, bytes: 4096, inFlight: 24})
		assert.True(t, k.Read.FullIOPS && k.Read.FullBytes, "now it was asked for all")
		k.run(60, simulated{iops: 3000, latency: ms, bytes: 4096, perSecond: 600})
		assert.False(t, k.Read.FullIOPS || k.Read.FullBytes, "and it carries more")
	})
	t.Run("a burst of less than half a minute does not count", func(t *testing.T) {
		quiet := simulated{iops: 3000, latency: ms, bytes: 4096, perSecond: 40}
		k := watched(time.Millisecond).run(60, quiet).run(20, simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24}).run(60, quiet)
		assert.InDelta(t, 40, k.Read.IOPS, 1)
		assert.False(t, k.Read.FullIOPS || k.Read.FullBytes)
	})
	t.Run("reads and writes are apart", func(t *testing.T) {
		k := watched(time.Millisecond).run(60, simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24})
		k.run(60, simulated{iops: 500, latency: ms, bytes: 4096, inFlight: 24, write: true})
		assert.InDelta(t, 3000, k.Read.IOPS, 1)
		assert.InDelta(t, 500, k.Write.IOPS, 1)
	})
}

// mix lets a disk with a queue serve so many reads and writes per second, of so many bytes each.
func (k *kneeTest) mix(seconds int, reads, readSize, writes, writeSize float64) *kneeTest {
	for range seconds {
		k.now = k.now.Add(time.Second)
		k.add(snapshot.DiskRates{
			WindowSeconds: 1, BusyRatio: 1, QueueLength: 24,
			ReadsPerSecond: reads, ReadBytesPerSecond: reads * readSize, ReadAwaitSeconds: snapshot.Some(20 * ms),
			WritesPerSecond: writes, WrittenBytesPerSecond: writes * writeSize, WriteAwaitSeconds: snapshot.Some(20 * ms),
		}, &k.base, k.now)
	}
	return k
}

// What a disk was merely asked for is not what it carries.
func TestKneeFull(t *testing.T) {
	const small, large = 4 << 10, 256 << 10
	// full fails unless these are known to be all.
	full := func(t *testing.T, k *kneeTest, read, write [2]bool) {
		t.Helper()
		assert.Equal(t, read, [2]bool{k.Read.FullIOPS, k.Read.FullBytes}, "requests and bytes read")
		assert.Equal(t, write, [2]bool{k.Write.FullIOPS, k.Write.FullBytes}, "requests and bytes written")
		c := k.capacity("vda")
		assert.Equal(t, read[1], c.ReadBytesPerSecond > 0)
		assert.Equal(t, write[1], c.WrittenBytesPerSecond > 0)
	}
	none, requests, bytes, both := [2]bool{}, [2]bool{true, false}, [2]bool{false, true}, [2]bool{true, true}
	t.Run("by reads, beside a journal", func(t *testing.T) {
		full(t, watched(time.Millisecond).mix(60, 1000, large, 100, small), both, none)
	})
	t.Run("by writes after reads", func(t *testing.T) {
		k := watched(time.Millisecond).mix(60, 1000, large, 0, 0)
		full(t, k, both, none)
		full(t, k.mix(60, 0, 0, 500, large), both, both)
	})
	t.Run("by a mix", func(t *testing.T) {
		k := watched(time.Millisecond).mix(60, 500, large, 500, large)
		require.True(t, k.atKnee())
		full(t, k, none, none)
		full(t, k.mix(60, 1000, large, 0, 0), both, none)
	})
	t.Run("by the requests of one direction and the bytes of the other", func(t *testing.T) {
		k := watched(time.Millisecond).mix(60, 300, large, 1500, small)
		require.True(t, k.atKnee())
		full(t, k, none, none)
	})
	t.Run("by small requests, after large ones that it was merely asked for", func(t *testing.T) {
		k := watched(time.Millisecond).run(60, simulated{iops: 3000, latency: ms, bytes: large, perSecond: 200})
		full(t, k, none, none)
		k.run(60, simulated{iops: 3000, latency: ms, bytes: small, inFlight: 24})
		full(t, k, requests, none)
		full(t, k.run(60, simulated{iops: 500, latency: ms, bytes: large, inFlight: 24}), both, none)
		assert.InEpsilon(t, 500*large, k.capacity("vda").ReadBytesPerSecond, 0.01)
	})
	t.Run("by large requests, after small ones that it was merely asked for", func(t *testing.T) {
		k := watched(time.Millisecond).run(60, simulated{iops: 3000, latency: ms, bytes: small, perSecond: 2000})
		full(t, k.run(60, simulated{iops: 500, latency: ms, bytes: large, inFlight: 24}), bytes, none)
	})
	t.Run("by small requests, until large ones show more", func(t *testing.T) {
		k := watched(time.Millisecond).run(60, simulated{iops: 3000, latency: ms, bytes: small, inFlight: 24})
		full(t, k, both, none)
		full(t, k.run(60, simulated{iops: 3000, latency: ms, bytes: large, perSecond: 200}), none, none)
	})
	t.Run("after a fall, only what is seen again", func(t *testing.T) {
		k := watched(time.Millisecond).mix(60, 1000, large, 0, 0).mix(60, 0, 0, 1000, large)
		full(t, k, both, both)
		full(t, k.mix(120, 100, large, 0, 0), both, none)
		assert.Equal(t, 1, k.Falls)
		full(t, k.mix(60, 0, 0, 100, large), both, both)
	})
	t.Run("until the disk becomes faster", func(t *testing.T) {
		k := watched(time.Millisecond).mix(60, 1000, large, 0, 0).mix(60, 0, 0, 1000, large)
		full(t, k.mix(60, 2000, large, 0, 0), both, none)
	})
}

// The credit of a volume ends, and comes back.
func TestKneeBurst(t *testing.T) {
	for name, use := range map[string]simulated{
		"one request at a time": {inFlight: 1},
		"24 in flight":          {inFlight: 24},
		"more than it carries":  {perSecond: 800},
	} {
		t.Run(name, func(t *testing.T) {
			use.latency, use.bytes, use.iops = ms, 16<<10, 3000
			k := watched(time.Millisecond).run(600, use)
			before := k.Read
			ended := k.now
			use.iops = 100
			k.run(120, use)
			assert.InEpsilon(t, 100, k.Read.IOPS, 0.2, "right after two minutes")
			assert.InEpsilon(t, 100*use.bytes, k.Read.BytesPerSecond, 0.2)
			assert.Equal(t, before, k.Before.Read)
			assert.True(t, k.Read.FullIOPS && k.Read.FullBytes)
			assert.Equal(t, 1, k.capacity("vda").Falls)
			assert.Less(t, k.Before.Until.Sub(ended), 2*time.Minute)
			k.run(3600, use)
			assert.InEpsilon(t, 100, k.Read.IOPS, 0.2)
			use.iops = 3000
			k.run(40, use)
			assert.InEpsilon(t, before.IOPS, k.Read.IOPS, 0.2, "and as soon when it is back")
			assert.Zero(t, k.Before)
			assert.Equal(t, 1, k.Falls, "how often it fell is not forgotten")
		})
	}
	t.Run("a minute of it is no end", func(t *testing.T) {
		use := simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24}
		k := watched(time.Millisecond).run(600, use)
		before := k.Knee
		use.iops = 100
		k.run(50, use)
		use.iops = 3000
		assert.Equal(t, before, k.run(600, use).Knee)
	})
	t.Run("forgotten after a day", func(t *testing.T) {
		use := simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24}
		k := watched(time.Millisecond).run(600, use)
		use.iops = 100
		require.NotZero(t, k.run(120, use).Before)
		k.now = k.now.Add(beforeMaxAge)
		assert.Zero(t, k.run(10, use).Before)
	})
	t.Run("a clock that was set back", func(t *testing.T) {
		use := simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24}
		k := watched(time.Millisecond).run(600, use)
		use.iops = 100
		require.NotZero(t, k.run(120, use).Before)
		k.now = k.now.Add(-time.Hour)
		assert.Zero(t, k.run(10, use).Before)
	})
	t.Run("without a baseline it is never taken for slow", func(t *testing.T) {
		use := simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24}
		k := watched(0).run(600, use)
		use.iops = 100
		k.run(600, use)
		assert.InDelta(t, 3000, k.Read.IOPS, 1)
		assert.Empty(t, k.slowByItself())
	})
}

func TestSlowByItself(t *testing.T) {
	learned := func() *kneeTest {
		return watched(time.Millisecond).run(600, simulated{iops: 1000, latency: ms, bytes: 4096, inFlight: 4})
	}
	sick := simulated{iops: 1000, latency: 50 * ms, bytes: 4096}
	t.Run("few requests that take long", func(t *testing.T) {
		k := learned()
		sick := sick
		sick.perSecond = 10
		assert.Empty(t, k.run(20, sick).slowByItself())
		assert.Equal(t, "the disk is slow by itself: its requests take 50 times as long as usual, 50.0 ms, at 10 requests/s; it carried 1000 requests/s", k.run(10, sick).slowByItself())
		assert.InDelta(t, 1000, k.run(3600, sick).Read.IOPS, 1, "nothing tells that it carries less")
		assert.NotEmpty(t, k.slowByItself())
		healthy := sick
		healthy.latency = ms
		assert.Empty(t, k.run(10, healthy).slowByItself(), "at once when it is over")
	})
	t.Run("one that waits for nothing but the disk", func(t *testing.T) {
		k := learned()
		sick := sick
		sick.inFlight = 1
		k.run(300, sick)
		assert.InDelta(t, 20, k.Read.IOPS, 1)
		assert.Contains(t, k.slowByItself(), "it carried 1000 requests/s until 12:1")
	})
	t.Run("after a fall, those in a queue wait for each other", func(t *testing.T) {
		k := learned()
		k.run(120, simulated{iops: 100, latency: ms, bytes: 4096, inFlight: 24})
		assert.NotZero(t, k.Before)
		assert.Empty(t, k.slowByItself())
		assert.True(t, k.atKnee())
	})
	t.Run("a culprit at the knee", func(t *testing.T) {
		assert.Empty(t, learned().run(300, simulated{iops: 1000, latency: ms, bytes: 4096, inFlight: 64}).slowByItself())
	})
	t.Run("requests of half a millisecond hold up no workload", func(t *testing.T) {
		k := watched(100*time.Microsecond).run(600, simulated{iops: 1e5, latency: ms / 10, bytes: 4096, inFlight: 8})
		assert.Empty(t, k.run(300, simulated{iops: 1e5, latency: ms / 2, bytes: 4096, inFlight: 1}).slowByItself())
	})
}

// What is learned outlasts the agent, and what it watches the disk's absence.
func TestKneeSaved(t *testing.T) {
	k := watched(time.Millisecond).run(600, simulated{iops: 3000, latency: ms, bytes: 4096, inFlight: 24})
	k.run(120, simulated{iops: 100, latency: ms, bytes: 4096, inFlight: 24})
	k.base.Knee = k.Knee
	text, err := json.Marshal(k.base)
	require.NoError(t, err)
	var again Baseline
	require.NoError(t, json.Unmarshal(text, &again))
	assert.Equal(t, k.base, again)
}

// slowRise is the largest of the least of each three windows in a row.
func slowRise(windows []kneeWindow) (most Carry) {
	for i := range windows[:max(0, len(windows)-2)] {
		least := windows[i].read
		for _, w := range windows[i+1 : i+3] {
			least.IOPS, least.BytesPerSecond = min(least.IOPS, w.read.IOPS), min(least.BytesPerSecond, w.read.BytesPerSecond)
		}
		most.IOPS, most.BytesPerSecond = max(most.IOPS, least.IOPS), max(most.BytesPerSecond, least.BytesPerSecond)
	}
	return most
}

func FuzzKnee(f *testing.F) {
	f.Add([]byte{10, 10, 10, 10, 200, 200, 200, 200, 3, 3, 3, 3, 3, 3, 3, 3, 3}, uint8(24), true)
	f.Add([]byte{255, 0, 255, 0}, uint8(1), false)
	f.Fuzz(func(t *testing.T, load []byte, inFlight uint8, learned bool) {
		usual := time.Duration(0)
		if learned {
			usual = time.Millisecond
		}
		k := watched(usual)
		var all []kneeWindow
		for _, b := range load {
			before := k.Knee
			k.window(simulated{iops: float64(b) * float64(b), latency: ms, bytes: 512 * float64(1+b), inFlight: float64(inFlight)})
			w, _ := k.last()
			all = append(all, w)
			k.sound(t, before)
			if most := slowRise(all); learned {
				require.LessOrEqual(t, k.Read.IOPS, most.IOPS+1e-6)
			} else {
				require.InDelta(t, most.IOPS, k.Read.IOPS, 1e-6)
				require.InDelta(t, most.BytesPerSecond, k.Read.BytesPerSecond, 1e-3)
			}
		}
	})
}

// window lets ten seconds pass, of a disk that may serve nothing.
func (k *kneeTest) window(d simulated) {
	for range 10 {
		k.now = k.now.Add(time.Second)
		r := snapshot.DiskRates{WindowSeconds: 1}
		if d.iops > 0 && d.inFlight > 0 {
			r = d.second()
		}
		k.add(r, &k.base, k.now)
	}
}

// sound fails if it fell for less than six slow windows, or has numbers that are none.
func (k *kneeTest) sound(t *testing.T, before Knee) {
	t.Helper()
	require.LessOrEqual(t, len(k.windows), kneeWindows)
	if slow := 0; before.Read.IOPS > k.Read.IOPS {
		for i := range k.windows {
			if before.isFallen(&k.windows[i]) {
				slow++
			}
		}
		require.GreaterOrEqual(t, slow, fallWindows)
		require.False(t, k.Before.Until.IsZero())
	}
	for _, v := range []float64{k.Read.IOPS, k.Read.BytesPerSecond, k.Read.AwaitSeconds, k.Write.IOPS} {
		require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0)
	}
	c := k.capacity("vda")
	require.False(t, strings.Contains(c.Slow, "NaN") || strings.Contains(c.Slow, "Inf"), c.Slow)
}
