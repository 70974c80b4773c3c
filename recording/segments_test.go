package recording

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSegmentName(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("CET", 3600))
	assert.Equal(t, "0000000042-20260301T120000Z.rec", segmentName(42, at))
	n, ours := parseName(segmentName(42, at))
	assert.True(t, ours)
	assert.Equal(t, uint64(42), n)
	for _, other := range []string{
		"", "node.rec", "agent.lock", "0000000042.rec", "42-20260301T120000Z.rec", "0000000042-20260301T120000Z.rec.gz", "0000000042-yesterday.rec",
		"+000000042-20260301T120000Z.rec", "0000000042-20260301T120000Z", "0000000042-20261301T120000Z.rec",
	} {
		_, ours := parseName(other)
		assert.False(t, ours, other)
	}
}

func TestSegments(t *testing.T) {
	dir := t.TempDir()
	_, err := Segments(dir)
	require.ErrorIs(t, err, ErrNoSegments)
	assert.Contains(t, err.Error(), dir)
	at := time.Unix(1_800_000_000, 0)
	for _, n := range []uint64{3, 1, 2} {
		at = at.Add(-time.Hour) // the clock was set back
		require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(n, at)), make([]byte, n), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, segmentName(4, at)), 0o700))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, segmentName(5, at))))
	list, err := Segments(dir)
	require.NoError(t, err)
	var numbers []uint64
	for _, s := range list {
		numbers = append(numbers, s.Number)
		assert.Equal(t, int64(s.Number), s.Size)
	}
	assert.Equal(t, []uint64{1, 2, 3}, numbers)
	_, err = Segments(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Run("a directory of other files is refused", func(t *testing.T) {
		many := t.TempDir()
		for i := range maxEntries + 1 {
			require.NoError(t, os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o600))
		}
		_, err := Segments(many)
		assert.ErrorIs(t, err, errTooManyEntries)
	})
}

func TestSurplus(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := Config{MaxSize: 100, MaxAge: time.Hour}
	of := func(sizes ...int64) (list []Segment) {
		for _, size := range sizes {
			list = append(list, Segment{Size: size, Written: now})
		}
		return list
	}
	aged := of(1, 1, 1)
	aged[0].Written, aged[1].Written = now.Add(-time.Hour-1), now.Add(-time.Hour)
	for _, row := range []struct {
		name    string
		list    []Segment
		writing int64
		want    int
	}{
		{"none", nil, 10, 0},
		{"all fit", of(40, 50), 10, 0},
		{"the oldest goes for what is written", of(40, 50), 11, 1},
		{"as many as it takes", of(1, 1, 99), 50, 3},
		{"old ones", aged, 0, 1},
		{"too many", of(make([]int64, maxSegments+4)...), 0, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, _ := surplus(row.list, row.writing, now, c, len(row.list))
			assert.Equal(t, row.want, n)
		})
	}
	later := now.Add(2 * time.Hour) // all are old
	for _, row := range []struct {
		list           []Segment
		mayGo, n, aged int
	}{
		{of(1, 1, 1), 0, 0, 0},
		{of(1, 1, 1), 2, 2, 2},
		{of(99, 1, 1), 1, 2, 1},
		{of(1, 1, 101), 1, 3, 0},
	} {
		n, aged := surplus(row.list, 0, later, c, row.mayGo)
		assert.Equal(t, [2]int{row.n, row.aged}, [2]int{n, aged}, "what is too much counts for no age")
	}
}

func TestSurplusIsTheLeast(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := Config{MaxSize: 100, MaxAge: time.Hour}
	keeps := func(list []Segment, writing int64) bool {
		for _, s := range list {
			writing += s.Size
			if now.Sub(s.Written) > c.MaxAge {
				return false
			}
		}
		return writing <= int64(c.MaxSize)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		list := make([]Segment, random.IntN(12))
		at := now.Add(-90 * time.Minute)
		for i := range list {
			at = at.Add(time.Duration(random.IntN(20)) * time.Minute)
			list[i] = Segment{Size: random.Int64N(40), Written: at}
		}
		writing := random.Int64N(60)
		n, _ := surplus(list, writing, now, c, len(list))
		require.True(t, keeps(list[n:], writing))
		for fewer := range n {
			require.False(t, keeps(list[fewer:], writing))
		}
	}
}
