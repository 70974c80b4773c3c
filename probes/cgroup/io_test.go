package cgroup

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestParseIOStatOddLine(t *testing.T) {
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
		"a path of a multipath device":          {in: "(unknown)" + counters + "8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}},
		"two paths, and their head":             {in: "(unknown)" + counters + "(unknown)" + counters + "259:3" + counters, want: []snapshot.WorkloadIO{whole("259:3")}},
		"a number that is none":                 {in: "8:0 rbytes=x wbytes=1 rios=1 wios=1\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: parse.ErrNotNumber},
		"a number that does not fit":            {in: "8:0 rbytes=18446744073709551616 wbytes=1 rios=1 wios=1\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: parse.ErrTooLarge},
		"a part of the counters is not zero":    {in: "8:0 rbytes=4096\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errIncomplete},
		"counters without a device":             {in: strings.TrimSpace(counters) + "\n8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: errNoDevice},
		"a counter twice":                       {in: "8:0 rios=1" + counters + "8:16" + counters, want: []snapshot.WorkloadIO{whole("8:16")}, wantErr: parse.ErrDuplicate},
		"a device twice counts once":            {in: "8:0" + counters + "8:0" + counters, want: []snapshot.WorkloadIO{whole("8:0")}, wantErr: parse.ErrDuplicate},
		"a second device behind the first ones": {in: "8:0" + strings.TrimSuffix(counters, "\n") + " 8:16\n8:32" + counters, want: []snapshot.WorkloadIO{whole("8:32")}, wantErr: parse.ErrDuplicate},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseIOStat([]byte(c.in), nil, interner{})
			require.ErrorIs(t, err, c.wantErr)
			assert.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

func TestParseBlkioOddLine(t *testing.T) {
	got, err := parseBlkio([]byte("8:0 Read 10\n(unknown) Read 5\n(unknown) Read 5\n8:0 Write 20\nsda Read 5\n8:0 Sync 30\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 30\n"+
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

func TestParseBlkioIncompleteDevice(t *testing.T) {
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
