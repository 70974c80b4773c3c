package psi

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const pressureFile = "some avg10=0.44 avg60=0.12 avg300=0.09 total=4222263\nfull avg10=0.00 avg60=0.00 avg300=0.03 total=3358925\n"

func TestParsePSITotals(t *testing.T) {
	st, err := Parse([]byte(pressureFile))
	require.NoError(t, err)
	assert.Equal(t, snapshot.Stall{Some: snapshot.Some[uint64](4222263), Full: snapshot.Some[uint64](3358925)}, st)

	st, err = Parse([]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"))
	require.NoError(t, err, "before kernel 5.13 cpu has no full")
	assert.Equal(t, snapshot.Stall{Some: snapshot.Some[uint64](0)}, st, "a total of 0 is a measurement, a missing line is none")
}

func TestParsePSIErrors(t *testing.T) {
	for in, want := range map[string]error{
		"": errNoSome,
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n":        errNoSome,
		"some avg10=0.00 avg60=0.00 avg300=0.00\n":                errNoTotal,
		"some total=18446744073709551616\n":                       parse.ErrTooLarge,
		"some total=-1\n":                                         parse.ErrNotNumber,
		"some total=1\nfull total=x\n":                            parse.ErrNotNumber,
		"some total=1\nsome total=2\n":                            parse.ErrDuplicate,
		"someavg10=0.00 avg60=0.00 avg300=0.00 total=49250015\n":  errNoSome,
		"some avg10=0.00 avg60=0.00 avg300=0.00 subtotal=4925\n":  errNoTotal,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=\nfull a\n": parse.ErrNotNumber,
	} {
		st, err := Parse([]byte(in))
		require.ErrorIs(t, err, want, in)
		assert.Zero(t, st, in)
	}
}

func TestPSIMissingReasons(t *testing.T) {
	open := func(errno unix.Errno) error { return &fs.PathError{Op: "read", Path: "/proc/pressure/io", Err: errno} }
	off, none, forbidden := Reason(open(unix.EOPNOTSUPP)), Reason(open(unix.ENOENT)), Reason(open(unix.EACCES))
	assert.Equal(t, "PSI is disabled (boot with psi=1)", off)
	assert.Contains(t, none, "no PSI (kernel built without CONFIG_PSI")
	assert.Equal(t, "no permission to read PSI: read /proc/pressure/io: permission denied", forbidden)
	assert.Contains(t, Reason(fmt.Errorf("cpu.pressure: %w", unix.EIO)), "input/output error")
	assert.Contains(t, Reason(errors.New("odd")), "odd")
}

func FuzzPSI(f *testing.F) {
	f.Add([]byte(pressureFile))
	f.Add([]byte("some total=18446744073709551616\nfull total=1"))
	f.Add([]byte("irq total=1\n\nsome total=5 total=6\n"))
	some := regexp.MustCompile(`(?m)^some [^\n]*?total=(\d+)`)
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := Parse(b)
		if err != nil {
			require.Zero(t, st, "an error has no value beside it")
			return
		}
		got, ok := st.Some.Get()
		require.True(t, ok)
		if strings.Count(string(b), "total=") == 1 {
			m := some.FindSubmatch(b)
			require.NotNil(t, m)
			want, err := strconv.ParseUint(string(m[1]), 10, 64)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}
