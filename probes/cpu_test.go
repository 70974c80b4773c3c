package probes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestCPUSeconds(t *testing.T) {
	s := recordedMachine(t).sample()
	assert.InDelta(t, 5955.49, s.CPU.Seconds["idle"], 1e-6)
	assert.InDelta(t, 3027.45+981.59+867.54+0+6.94+8.5, s.CPU.BusySeconds(), 1e-6, "idle and iowait may go back, so they do not count")
}

// The library's parser gives zeros for what is not there.
func TestCPUWithoutSumLine(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/stat", strings.Replace(m.read("proc/stat"), "cpu  ", "xpu  ", 1))
	s := m.sample()
	assert.Nil(t, s.CPU.Seconds)
	assert.Zero(t, s.CPU.Online)
	assert.Equal(t, errNoCPU.Error(), probeError(t, s, "cpu"))
}

func TestCPUTruncatedLine(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/stat", "cpu  302745 98159\n") // the rest would read as zero
	s := m.sample()
	assert.Nil(t, s.CPU.Seconds)
	assert.Equal(t, errNoCPU.Error(), probeError(t, s, "cpu"))
}

func TestCPUOffline(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/stat", "cpu1 ", "xpu1 ")
	assert.Equal(t, snapshot.Some(1), m.sample().CPU.Online)
}
