package vm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// since leaves out the looks before t.
func since(looks []look, t time.Time) []look {
	for i, l := range looks {
		if !l.Time.Before(t) {
			return looks[i:]
		}
	}
	return nil
}

// answered are the looks at which the agent answered within its two seconds,
// most of them: an emulated machine without memory, on a busy one, misses some.
func answered(t *testing.T, looks []look) (list []look) {
	t.Helper()
	for _, l := range looks {
		if l.Error == "" {
			list = append(list, l)
		}
	}
	require.Greater(t, 2*len(list), len(looks), "of %d looks", len(looks))
	return list
}

// stall is the share of the time from a to b in which every task waited for memory.
func stall(a, b look) float64 {
	return (b.FullSeconds - a.FullSeconds) / b.Time.Sub(a.Time).Seconds()
}

// window is the youngest look that is at least stallWindow older than the last
// of looks; none when they do not reach back so far.
func window(looks []look) (first look, ok bool) {
	last := looks[len(looks)-1]
	for _, l := range looks {
		if last.Time.Sub(l.Time) < stallWindow {
			break
		}
		first, ok = l, true
	}
	return first, ok
}

// stalledAt is the first look at which the node had stalled enough throughout
// the window before it, whatever the reason.
func stalledAt(looks []look) (int, bool) {
	for i := range looks {
		if first, ok := window(looks[:i+1]); ok && stall(first, looks[i]) >= stallFull {
			return i, true
		}
	}
	return 0, false
}

// shortAt is the first look at which everything holds that makes a shortage.
func shortAt(looks []look) (int, bool) {
	for i, l := range looks {
		first, ok := window(looks[:i+1])
		if ok && stall(first, l) >= stallFull && l.AvailableRatio < availableRatio && l.Scans > first.Scans {
			return i, true
		}
	}
	return 0, false
}

// hardFloor is what must stay available, in bytes: twice the kubelet's own
// threshold.
const hardFloor = 200 << 20

// hardAt is the first look at which the node is short of memory, or was below
// the floor throughout the window while pages were scanned, see memory-stall;
// floor is a ratio.
func hardAt(looks []look, floor float64) (int, bool) {
	above := -1 // the last look at which it was
	for i, l := range looks {
		if l.AvailableRatio >= floor {
			above = i
		}
		first, ok := window(looks[:i+1])
		if ok && (above < 0 || looks[above].Time.Before(first.Time)) && l.Scans > first.Scans {
			return i, true
		}
		if at, short := shortAt(looks[:i+1]); short {
			return at, true
		}
	}
	return 0, false
}

// course is a table of what was seen, a line a second.
func course(looks []look) string {
	var b strings.Builder
	b.WriteString("   time  available  stall full  pages scanned  level\n")
	for i, j := 0, 1; j < len(looks); j++ {
		a, l := looks[i], looks[j]
		if l.Time.Sub(a.Time) < 900*time.Millisecond {
			continue
		}
		fmt.Fprintf(&b, "%6.1f s  %7.1f %%  %8.0f %%  %13d  %s%s\n", l.Time.Sub(looks[0].Time).Seconds(),
			100*l.AvailableRatio, 100*stall(a, l), l.Scans-a.Scans, l.Level, l.Error)
		i = j
	}
	return b.String()
}

// looksOf are looks a second apart that stall for the given shares of it.
func looksOf(available float64, scans uint64, stalls ...float64) []look {
	l := look{Time: time.Unix(1000, 0), AvailableRatio: available}
	all := []look{l}
	for _, s := range stalls {
		l.Time, l.FullSeconds, l.Scans = l.Time.Add(time.Second), l.FullSeconds+s, l.Scans+scans
		all = append(all, l)
	}
	return all
}

func TestShortageYardstickIsTheRule(t *testing.T) {
	for _, c := range []struct {
		name           string
		looks          []look
		stalled, short int // -1: never
	}{
		{"five seconds of a quarter", looksOf(0.03, 1, 0, 0.25, 0.25, 0.25, 0.25, 0.25), 6, 6},
		{"half the time of half", looksOf(0.03, 1, 0, 0, 0.5, 0.5, 0.5), 5, 5},
		{"not yet five seconds", looksOf(0.03, 1, 1, 1, 1, 1), -1, -1},
		{"just below", looksOf(0.03, 1, 0.24, 0.24, 0.24, 0.24, 0.24, 0.24), -1, -1},
		{"plenty available", looksOf(0.04, 1, 1, 1, 1, 1, 1), 5, -1},
		{"nothing scanned", looksOf(0.03, 0, 1, 1, 1, 1, 1), 5, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			stalled, ok := stalledAt(c.looks)
			assert.Equal(t, c.stalled >= 0, ok)
			assert.Equal(t, max(c.stalled, 0), stalled)
			short, ok := shortAt(c.looks)
			assert.Equal(t, c.short >= 0, ok)
			assert.Equal(t, max(c.short, 0), short)
		})
	}
}

func TestShortageYardstickFloor(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []look
		at    int // -1: never
	}{
		{"below the floor while pages are scanned", looksOf(0.09, 1, 0, 0, 0, 0, 0, 0), 5},
		{"below the floor, and nothing is scanned", looksOf(0.09, 0, 0, 0, 0, 0, 0, 0), -1},
		{"above the floor", looksOf(0.1, 1, 1, 1, 1, 1, 1, 1), -1},
		{"above it until a second ago", append(looksOf(0.1, 1, 0, 0, 0, 0, 0, 0), later(looksOf(0.09, 8, 0, 0), 7)...), -1},
		{"above it until long ago", append(looksOf(0.1, 1, 0), later(looksOf(0.09, 8, 0, 0, 0, 0, 0, 0), 2)...), 7},
	} {
		at, ok := hardAt(c.looks, 0.1)
		assert.Equal(t, c.at >= 0, ok, c.name)
		if ok {
			assert.Equal(t, c.at, at, c.name)
		}
	}
}

// later are the same looks so many seconds later.
func later(looks []look, seconds int) []look {
	for i := range looks {
		looks[i].Time = looks[i].Time.Add(time.Duration(seconds) * time.Second)
	}
	return looks
}
