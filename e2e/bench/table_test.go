package main

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoalVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		goal Goal
		want Verdict
	}{
		"at most, below":            {AtMost(1.3, 1.2, "1.3 ×"), Met},
		"at most, at the bound":     {AtMost(1.3, 1.3, "1.3 ×"), Met},
		"at most, above":            {AtMost(1.3, 1.31, "1.3 ×"), NotMet},
		"at least, above":           {AtLeast(10, 11, "10 ×"), Met},
		"at least, at the bound":    {AtLeast(10, 10, "10 ×"), Met},
		"at least, below":           {AtLeast(10, 9.99, "10 ×"), NotMet},
		"a number that is none":     {AtMost(1, math.NaN(), "1"), NotMet},
		"none of a number too":      {AtLeast(1, math.NaN(), "1"), NotMet},
		"no goal":                   {Goal{}, NoGoal},
		"not measured is not met":   {Unmeasured("x", errors.New("no kernel")).Goal, NotMeasured},
		"nothing measured is not 0": {AtMost(0.01, 0, "0.01"), Met},
	} {
		assert.Equal(t, c.want, c.goal.Verdict(), name)
	}
}

func rowsOfEachKind() []Row {
	return []Row{
		{What: "a", Ours: "2.00 ms", Peer: "loop: 1.00 ms", Ratio: "2.00 ×", Goal: AtMost(1.3, 2, "1.3 ×"), Note: "3 ticks do not count"},
		{What: "b|c", Ours: "1.00 ms", Goal: AtLeast(10, 12, "10 ×")},
		{What: "d", Ours: "7.00 ms"},
		Unmeasured("e", errors.New("needs root\nhere")),
	}
}

func TestBenchTable(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, WriteText(&text, rowsOfEachKind()))
	assert.Equal(t, `what   measured  peer           ratio   goal     met
a [1]  2.00 ms   loop: 1.00 ms  2.00 ×  ≤ 1.3 ×  not met
b|c    1.00 ms                          ≥ 10 ×   met
d      7.00 ms                                   –
e [2]                                            not measured
[1] 3 ticks do not count
[2] needs root; here
`, text.String())
}

func TestBenchTableMarkdown(t *testing.T) {
	var text bytes.Buffer
	WriteMarkdown(&text, rowsOfEachKind())
	assert.Equal(t, `| what | measured | peer | ratio | goal | met |
| --- | --- | --- | --- | --- | --- |
| a [1] | 2.00 ms | loop: 1.00 ms | 2.00 × | ≤ 1.3 × | **not met** |
| b\|c | 1.00 ms |  |  | ≥ 10 × | met |
| d | 7.00 ms |  |  |  | – |
| e [2] |  |  |  |  | not measured |

- [1] 3 ticks do not count
- [2] needs root; here
`, text.String())
}

func TestAllocationsPerPodRow(t *testing.T) {
	constant := allocationRow("pods", 250, 1000, map[int]uint64{250: 12, 1000: 12})
	assert.Equal(t, Met, constant.Goal.Verdict())
	assert.Equal(t, "12 at 250 pods, 12 at 1000", constant.Ours)
	growing := allocationRow("pods", 250, 1000, map[int]uint64{250: 250, 1000: 1000})
	assert.Equal(t, NotMet, growing.Goal.Verdict())
	assert.Equal(t, "1.00 a pod", growing.Ratio)
	broken := allocationRow("pods", 250, 1000, map[int]uint64{250: 657})
	assert.Equal(t, NotMeasured, broken.Goal.Verdict(), "what was not counted is not zero")
}
