package probes

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestANumberThatDoesNotFitIsAnErrorAndNotAWrappedNumber(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "7": 7, "007": 7, "9223372036854771712": 9223372036854771712, "18446744073709551615": 1<<64 - 1,
	} {
		got, err := parseUint([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for in, want := range map[string]error{
		"18446744073709551616": errTooLarge, "18446744073709551620": errTooLarge, "99999999999999999999": errTooLarge,
		"": errNotNumber, "-1": errNotNumber, "+1": errNotNumber, "1.5": errNotNumber, "0x1f": errNotNumber, "max": errNotNumber, " 1": errNotNumber,
	} {
		_, err := parseUint([]byte(in))
		require.ErrorIs(t, err, want, in)
	}
}

func TestAnOddLineOfAKeyedFileCostsItselfAlone(t *testing.T) {
	got := map[string]uint64{}
	err := parseKeyed([]byte("low 0\n\nhigh many\nmax\nmax 3\noom_kill 18446744073709551616\noom 1"), func(k []byte, v uint64) {
		got[string(k)] = v
	})
	require.ErrorIs(t, err, errNotNumber, "the first odd line is the one that is told")
	assert.Contains(t, err.Error(), `"high many"`)
	assert.Equal(t, map[string]uint64{"low": 0, "max": 3, "oom": 1}, got)

	require.NoError(t, parseKeyed([]byte("usage_usec 12\nuser_usec 8\n"), func([]byte, uint64) {}))
}

func TestKeyedFilesAreReadWithoutAllocation(t *testing.T) {
	file := []byte(strings.Repeat("some_key_of_memory_stat 123456789\n", 60) + "inactive_file 4096\n")
	var got uint64
	found := func(k []byte, v uint64) {
		if string(k) == "inactive_file" {
			got = v
		}
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = parseKeyed(file, found) }))
	assert.EqualValues(t, 4096, got)
}

func TestTheReasonShowsOnlyTheStartOfALongLine(t *testing.T) {
	err := parseKeyed(bytes.Repeat([]byte("x"), 5000), func([]byte, uint64) {})
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 120)
}

func TestAnOddLineOfIOStatDoesNotStopTheOthers(t *testing.T) {
	whole := func(number string) snapshot.WorkloadIO {
		return snapshot.WorkloadIO{Number: number, ReadBytes: 4096, WrittenBytes: 8192, Reads: 1, Writes: 2}
	}
	const counters = " rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"
	for name, c := range map[string]struct {
		in      string
		want    []snapshot.WorkloadIO
		wantErr error
	}{
		"nothing was done":                      {in: ""},
		"two devices":                           {in: "8:0" + counters + "8:16" + counters, want: []snapshot.WorkloadIO{whole("8:0"), whole("8:16")}},
		"without a last newline":                {in: "8:0" + strings.TrimSuffix(counters, "\n"), want: []snapshot.WorkloadIO{whole("8:0")}},
		"a device without counters":             {in: "253:0\n253:1 \n8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}},
		"devices without counters on its line":  {in: "7:7 7:6 7:5 8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}},
		"keys of the cost model":                {in: "8:0 cost.vrate=100.00 cost.usage=5" + counters, want: []snapshot.WorkloadIO{whole("8:0")}},
		"the cost model's keys alone":           {in: "8:0 cost.usage=5\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}},
		"a path of a multipath device":          {in: "(unknown)" + counters + "8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}, wantErr: errNoDevice},
		"a number that is none":                 {in: "8:0 rbytes=x wbytes=1 rios=1 wios=1\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errNotNumber},
		"a number that does not fit":            {in: "8:0 rbytes=18446744073709551616 wbytes=1 rios=1 wios=1\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errTooLarge},
		"a part of the counters is not zero":    {in: "8:0 rbytes=4096\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errIncomplete},
		"counters without a device":             {in: strings.TrimSpace(counters) + "\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errNoDevice},
		"a counter twice":                       {in: "8:0 rios=1" + counters + "8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errDuplicate},
		"a device twice counts once":            {in: "8:0" + counters + "8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}, wantErr: errDuplicate},
		"a second device behind the first ones": {in: "8:0" + strings.TrimSuffix(counters, "\n") + " 8:16\n8:32" + counters, want: []snapshot.WorkloadIO{whole("8:32")}, wantErr: errDuplicate},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseIOStat([]byte(c.in), nil, interner{})
			require.ErrorIs(t, err, c.wantErr)
			assert.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

func TestAnOddLineOfBlkioDoesNotStopTheOthers(t *testing.T) {
	got, err := parseBlkio([]byte("8:0 Read 10\n(unknown) Read 5\n8:0 Write 20\n8:0 Sync 30\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 30\n"+
		"8:16 Read x\n8:16 Write 4\nodd\n\n8:32 Read 1\n8:32 Read 2\nTotal 30\n"), nil, interner{})
	require.ErrorIs(t, err, errNoDevice)
	want := []blkioDevice{
		{number: "8:0", read: snapshot.Some[uint64](10), write: snapshot.Some[uint64](20)},
		{number: "8:16", write: snapshot.Some[uint64](4)},
		{number: "8:32", read: snapshot.Some[uint64](1)},
	}
	assert.Equal(t, want, got)

	got, err = parseBlkio([]byte("Total 0\n"), nil, interner{})
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestABlkioDeviceWithoutAllFourNumbersIsLeftOut(t *testing.T) {
	both := func(number string) blkioDevice {
		return blkioDevice{number, snapshot.Some[uint64](1), snapshot.Some[uint64](2)}
	}
	noWrite := blkioDevice{number: "8:32", read: snapshot.Some[uint64](1)}

	got, err := joinBlkio([]blkioDevice{both("8:0")}, []blkioDevice{{"8:0", snapshot.Some[uint64](4096), snapshot.Some[uint64](8192)}}, nil)
	require.NoError(t, err)
	assert.Equal(t, []snapshot.WorkloadIO{{Number: "8:0", Reads: 1, Writes: 2, ReadBytes: 4096, WrittenBytes: 8192}}, got)

	for name, c := range map[string][2][]blkioDevice{
		"bytes missing":      {{both("8:0"), both("8:16")}, {both("8:0")}},
		"operations missing": {{both("8:0")}, {both("8:0"), both("8:16")}},
		"writes missing":     {{both("8:0"), both("8:32")}, {both("8:0"), noWrite}},
	} {
		got, err := joinBlkio(c[0], c[1], nil)
		require.ErrorIs(t, err, errIncomplete, name)
		require.Len(t, got, 1, name)
		assert.Equal(t, "8:0", got[0].Number, name)
	}
}

// slowUint is parseUint in the obvious way.
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
		err := parseKeyed(b, func(k []byte, v uint64) { got = append(got, [2]any{string(k), v}) })
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

func FuzzIOStat(f *testing.F) {
	f.Add([]byte("8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 \n"))
	f.Add([]byte("7:7 7:6 rbytes=1 wbytes=1 rios=1 wios=18446744073709551616 cost.usage=1\n(unknown) rios=1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		devices, err := parseIOStat(b, nil, interner{})
		again, _ := parseIOStat(append(bytes.Clone(b), "\n999:999 rbytes=1 wbytes=2 rios=3 wios=4\n"...), nil, interner{})
		seen := map[string]bool{}
		for i, d := range devices {
			require.False(t, seen[d.Number], "one entry a device")
			seen[d.Number] = true
			require.True(t, isDeviceNumber([]byte(d.Number)))
			require.Contains(t, string(b), d.Number)
			require.Equal(t, d, again[i])
		}
		if !seen["999:999"] && (len(b) == 0 || b[len(b)-1] == '\n') {
			require.Len(t, again, len(devices)+1, "whatever stands before, the last device is read: %v", err)
		}
	})
}

func FuzzBlkio(f *testing.F) {
	f.Add([]byte("254:0 Read 33554432\n254:0 Write 8388608\nTotal 41943040\n"), []byte("254:0 Read 32\n254:0 Write 8\n"))
	f.Add([]byte("(unknown) Read 1\n8:0 Read 18446744073709551616\n"), []byte("8:0 Write\n\n8:0 Read -1"))
	f.Fuzz(func(t *testing.T, operations, size []byte) {
		o, errO := parseBlkio(operations, nil, interner{})
		s, errS := parseBlkio(size, nil, interner{})
		devices, err := joinBlkio(o, s, nil)
		require.LessOrEqual(t, len(devices), min(len(o), len(s)))
		if errO == nil && errS == nil && err == nil {
			require.Len(t, devices, len(o), "no device is lost in silence")
			require.Len(t, devices, len(s), "no device is lost in silence")
		}
		for _, d := range devices {
			require.True(t, isDeviceNumber([]byte(d.Number)))
		}
	})
}
