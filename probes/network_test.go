package probes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Peers add a cumulative counter to their sum at each read.
func TestSqueezesAreTheSumOverCPUsAndNotOverReads(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/net/softnet_stat", "0000319f 00000000 00000000", "0000319f 00000000 0000000a")
	m.edit("proc/net/softnet_stat", "00008927 00000000 00000000", "00008927 00000000 ffffffff")
	h := m.host()
	for range 3 {
		assert.Equal(t, u64(10+1<<32-1), mustSample(t, h).Network.SoftnetSqueezed)
	}
}

func TestAMissingFileOfTheNetworkLeavesTheOther(t *testing.T) {
	m := recordedMachine(t)
	m.remove("proc/1/net/snmp")
	s := m.sample()
	assert.Zero(t, s.Network.TCPSegmentsSent)
	assert.Contains(t, s.Network.Absent["tcp"], "no such file")
	assert.Equal(t, u64(0), s.Network.ListenDrops)
	assert.Contains(t, probeError(t, s, "network"), "net/snmp")

	m = recordedMachine(t)
	m.remove("proc/1/net/netstat")
	s = m.sample()
	assert.Equal(t, u64(41744), s.Network.TCPSegmentsSent)
	assert.Contains(t, s.Network.Absent["listenDropsTotal"], "no such file")
}

func TestACounterThatIsNotInItsFileIsAbsentWithAReason(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/1/net/snmp", " RetransSegs", " Unheard")
	m.edit("proc/1/net/netstat", " ListenDrops", " Unheard")
	s := m.sample()
	assert.Equal(t, u64(41744), s.Network.TCPSegmentsSent)
	assert.Equal(t, Absent{
		"tcpRetransmitsTotal": "not in /proc/1/net/snmp", "listenDropsTotal": "not in /proc/1/net/netstat",
	}, s.Network.Absent)
}

func TestWhatIsNoCountIsAbsent(t *testing.T) {
	for _, odd := range []string{"-1", "NaN", "Inf", "1e300"} {
		m := recordedMachine(t)
		m.edit("proc/1/net/snmp", " 41744 28 ", " 41744 "+odd+" ")
		s := m.sample()
		assert.Zero(t, s.Network.TCPRetransmits, odd)
		assert.Equal(t, "no count in /proc/1/net/snmp", s.Network.Absent["tcpRetransmitsTotal"], odd)
	}
}

func TestTheShareOfRetransmitsNeedsSegmentsThatWereSent(t *testing.T) {
	m := recordedMachine(t)
	host, history := m.host(), testHistory()
	history.Add(mustSample(t, host))
	s := history.Add(mustSample(t, host))
	assert.Zero(t, s.Network.TCPRetransmitRatio, "nothing was sent")
	m.edit("proc/1/net/snmp", " 41744 28 ", " 41844 33 ")
	ratio, ok := history.Add(mustSample(t, host)).Network.TCPRetransmitRatio.Get()
	require.True(t, ok)
	assert.InDelta(t, 0.05, ratio, 1e-9)
}

func TestWithoutPid1NothingOfTheNetworkIsKnown(t *testing.T) {
	m := recordedMachine(t)
	m.remove("proc/1")
	s := m.sample()
	assert.Contains(t, s.Network.Absent["tcp"], "no such file")
	assert.Contains(t, s.Network.Absent["listenDropsTotal"], "no such file")
	assert.Contains(t, probeError(t, s, "nics"), "no such file")
}
