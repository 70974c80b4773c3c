package web

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestLabelValueEscapes(t *testing.T) {
	for value, want := range map[string]string{
		"":           ``,
		"sda":        `sda`,
		"a b":        `a b`,
		`a"b`:        `a\"b`,
		`a\b`:        `a\\b`,
		"a\nb":       `a\nb`,
		`\n`:         `\\n`,
		"größe-日本":   `größe-日本`,
		"a\xffb":     `a\\xffb`,
		"\xc3":       `\\xc3`,
		"\ufffd":     "\ufffd",
		"{x=\"1\"} ": `{x=\"1\"} `,
	} {
		assert.Equal(t, want, string(appendLabelValue(nil, value)), "%q", value)
	}
}

func TestLabelValueInvalidUTF8Distinct(t *testing.T) {
	s := &view.State{Snapshot: &snapshot.Snapshot{NICs: []snapshot.NICState{
		{NIC: snapshot.NIC{Name: "a\xfe"}}, {NIC: snapshot.NIC{Name: "a\xff"}},
	}}}
	series := parseMetrics(t, appendMetrics(nil, s))["plimsoll_network_receive_bytes_total"].GetMetric()
	require.Len(t, series, 2)
	assert.NotEqual(t, series[0].GetLabel()[0].GetValue(), series[1].GetLabel()[0].GetValue())
}

// A name of bytes comes back through Prometheus's own parser, and whatever it
// is, it stays the value of one label of one series.
func FuzzLabelValue(f *testing.F) {
	for _, seed := range []string{"", "sda", `a"b\c`, "a\nb", "\x00", "\r\n", "日本", "\xff\xfe", `\xff`, "} 1\nplimsoll_x 2", "a\xc3\"", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := &view.State{Snapshot: &snapshot.Snapshot{NICs: []snapshot.NICState{{NIC: snapshot.NIC{
			Name: name, NICCounters: snapshot.NICCounters{ReceiveBytes: 42},
		}}}}}
		series := parseMetrics(t, appendMetrics(nil, s))["plimsoll_network_receive_bytes_total"].GetMetric()
		require.Len(t, series, 1)
		require.Len(t, series[0].GetLabel(), 2, "device and layer")
		require.Equal(t, "device", series[0].GetLabel()[0].GetName())
		require.Equal(t, 42.0, series[0].GetCounter().GetValue())
		got := series[0].GetLabel()[0].GetValue()
		require.True(t, utf8.ValidString(got), "%q", got)
		if utf8.ValidString(name) {
			require.Equal(t, name, got)
		}
	})
}

func TestScaledTimesKeepDigits(t *testing.T) {
	for _, c := range []struct {
		v, scale uint64
		want     string
	}{
		{0, 1e3, "0"},
		{1, 1e3, "0.001"},
		{1000, 1e3, "1"},
		{1500, 1e3, "1.5"},
		{1050, 1e3, "1.05"},
		{4_294_967_297_001, 1e3, "4294967297.001"},
		{7, 1e6, "0.000007"},
		{math.MaxUint64, 1e6, "18446744073709.551615"},
	} {
		assert.Equal(t, c.want, string(appendScaled(nil, c.v, c.scale)))
	}
}

func TestCountAboveFloatPrecision(t *testing.T) {
	assert.Equal(t, "9007199254740993", string(appendCount(nil, 1<<53+1)))
}

func TestFamilyWithoutValueNoTrace(t *testing.T) {
	evenOnly := family[int]{"plimsoll_x", gauge, "Even.", func(b []byte, v *int) []byte {
		if *v%2 != 0 {
			return b
		}
		return appendCount(b, uint64(*v))
	}}
	label := func(b []byte, v *int) []byte { return appendLabel(b, "n", strings.Repeat("i", *v)) }
	got := appendFamilies([]byte("before\n"), []int{1, 2, 3, 4, 5}, label, []family[int]{evenOnly})
	assert.Equal(t, "before\n# HELP plimsoll_x Even.\n# TYPE plimsoll_x gauge\n"+
		"plimsoll_x{n=\"ii\"} 2\nplimsoll_x{n=\"iiii\"} 4\n", string(got))
	assert.Equal(t, "before\n", string(appendFamilies([]byte("before\n"), []int{1, 3}, label, []family[int]{evenOnly})))
	assert.Equal(t, "before\n", string(appendFamilies([]byte("before\n"), nil, label, []family[int]{evenOnly})))
}
