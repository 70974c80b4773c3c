package parse

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseUintOverflow(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "7": 7, "007": 7, "9223372036854771712": 9223372036854771712, "18446744073709551615": 1<<64 - 1,
	} {
		got, err := Uint([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for in, want := range map[string]error{
		"18446744073709551616": ErrTooLarge, "18446744073709551620": ErrTooLarge, "99999999999999999999": ErrTooLarge,
		"": ErrNotNumber, "-1": ErrNotNumber, "+1": ErrNotNumber, "1.5": ErrNotNumber, "0x1f": ErrNotNumber, "max": ErrNotNumber, " 1": ErrNotNumber,
	} {
		_, err := Uint([]byte(in))
		require.ErrorIs(t, err, want, in)
	}
}

func TestParseKeyedOddLine(t *testing.T) {
	got := map[string]uint64{}
	err := Keyed([]byte("low 0\n\nhigh many\nmax\nmax 3\noom_kill 18446744073709551616\noom 1"), func(k []byte, v uint64) {
		got[string(k)] = v
	})
	require.ErrorIs(t, err, ErrNotNumber, "the first odd line is the one that is told")
	assert.Contains(t, err.Error(), `"high many"`)
	assert.Equal(t, map[string]uint64{"low": 0, "max": 3, "oom": 1}, got)

	require.NoError(t, Keyed([]byte("usage_usec 12\nuser_usec 8\n"), func([]byte, uint64) {}))
}

func TestParseKeyedNoAllocation(t *testing.T) {
	file := []byte(strings.Repeat("some_key_of_memory_stat 123456789\n", 60) + "inactive_file 4096\n")
	var got uint64
	found := func(k []byte, v uint64) {
		if string(k) == "inactive_file" {
			got = v
		}
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = Keyed(file, found) }))
	assert.EqualValues(t, 4096, got)
}

func TestParseErrorShortensLine(t *testing.T) {
	err := Keyed(bytes.Repeat([]byte("x"), 5000), func([]byte, uint64) {})
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 120)
}

// slowUint is Uint in the obvious way.
func slowUint(s string) (uint64, bool) {
	if strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || !n.IsUint64() {
		return 0, false
	}
	return n.Uint64(), true
}

func FuzzKeyed(f *testing.F) {
	f.Add([]byte("usage_usec 12\nthrottled_usec 18446744073709551615\n"))
	f.Add([]byte("high\nmax max\n x\noom_kill 18446744073709551616"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got [][2]any
		err := Keyed(b, func(k []byte, v uint64) { got = append(got, [2]any{string(k), v}) })
		var want [][2]any
		odd := false
		for line := range strings.SplitSeq(string(b), "\n") {
			key, digits, _ := strings.Cut(line, " ")
			v, ok := slowUint(digits)
			if ok && key != "" {
				want = append(want, [2]any{key, v})
			} else if line != "" {
				odd = true
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, odd, err != nil, "every odd line is told of, and nothing else is")
	})
}
