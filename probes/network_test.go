package probes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Peers add a cumulative counter to their sum at each read.
func TestSoftnetSumOverCPUs(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/net/softnet_stat", "0000319f 00000000 00000000", "0000319f 00000000 0000000a")
	m.edit("proc/net/softnet_stat", "00008927 00000000 00000000", "00008927 00000000 ffffffff")
	h := m.host()
	for range 3 {
		assert.Equal(t, u64(10+1<<32-1), mustSample(t, h).Network.SoftnetSqueezed)
	}
}

// softnet is /proc/net/softnet_stat of CPUs that squeezed so often, by number;
// kernels before do not number the rows.
func softnet(numbered bool, cpus ...[2]uint32) string {
	var b strings.Builder
	for _, c := range cpus {
		fmt.Fprintf(&b, "00000001 00000000 %08x 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000", c[1])
		if numbered {
			fmt.Fprintf(&b, " 00000000 %08x 00000000 00000000", c[0])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The kernel lists the online CPUs: their sum decreases by all that one ever
// counted, and jumps when it is back.
func TestSoftnetCPUOffline(t *testing.T) {
	m := recordedMachine(t)
	h, history := m.host(), testHistory()
	var s *snapshot.Snapshot
	read := func(cpus ...[2]uint32) snapshot.Opt[uint64] {
		t.Helper()
		m.write("proc/net/softnet_stat", softnet(true, cpus...))
		raw := mustSample(t, h)
		require.Empty(t, probeError(t, raw, "softnet"))
		s = history.Add(raw)
		return raw.Network.SoftnetSqueezed
	}
	assert.Equal(t, u64(1040), read([2]uint32{0, 40}, [2]uint32{1, 1000}))
	assert.Equal(t, u64(1042), read([2]uint32{0, 41}, [2]uint32{1, 1001}))
	assert.Equal(t, u64(1044), read([2]uint32{0, 43}), "CPU 1 is offline")
	assert.Equal(t, snapshot.Some(2.0), s.Network.SoftnetSqueezedPerSecond)
	assert.Equal(t, u64(1045), read([2]uint32{0, 43}, [2]uint32{1, 1002}), "and back")
	assert.Equal(t, u64(1045), read([2]uint32{0, 43}, [2]uint32{1, 1002}, [2]uint32{7, 500_000}), "one that was offline since we look brings nothing of before")
	assert.Equal(t, u64(1046), read([2]uint32{0, 43}, [2]uint32{1, 1002}, [2]uint32{7, 500_001}))
	assert.Equal(t, u64(1046), read([2]uint32{0, 43}, [2]uint32{1, 7}, [2]uint32{7, 500_001}), "what goes back adds nothing")
	assert.Equal(t, u64(1047), read([2]uint32{0, 43}, [2]uint32{1, 8}, [2]uint32{7, 500_001}))
	assert.Equal(t, snapshot.Some(1.0), s.Network.SoftnetSqueezedPerSecond)
}

func TestSoftnetWrap(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	m.write("proc/net/softnet_stat", softnet(true, [2]uint32{0, 1<<32 - 3}))
	mustSample(t, h)
	m.write("proc/net/softnet_stat", softnet(true, [2]uint32{0, 4}))
	assert.Equal(t, u64(1<<32+4), mustSample(t, h).Network.SoftnetSqueezed)
}

func TestSoftnetUnnumberedRows(t *testing.T) {
	m := recordedMachine(t)
	h, history := m.host(), testHistory()
	m.write("proc/net/softnet_stat", softnet(false, [2]uint32{0, 1000}, [2]uint32{1, 40}))
	history.Add(mustSample(t, h))
	m.write("proc/net/softnet_stat", softnet(false, [2]uint32{1, 41}))
	s := mustSample(t, h)
	assert.Zero(t, s.Network.SoftnetSqueezed)
	assert.Equal(t, errWhichCPU.Error(), s.Network.Absent["softnetSqueezedTotal"])
	snapshot := history.Add(s)
	assert.Zero(t, snapshot.Network.SoftnetSqueezedPerSecond)
	assert.NotZero(t, snapshot.WindowSeconds, "nothing else is lost by it")
	m.write("proc/net/softnet_stat", softnet(false, [2]uint32{1, 43}))
	assert.Equal(t, u64(1042), mustSample(t, h).Network.SoftnetSqueezed)
}

func TestNetworkFileMissing(t *testing.T) {
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

func TestNetworkCounterAbsent(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/1/net/snmp", " RetransSegs", " Unheard")
	m.edit("proc/1/net/netstat", " ListenDrops", " Unheard")
	s := m.sample()
	assert.Equal(t, u64(41744), s.Network.TCPSegmentsSent)
	assert.Equal(t, snapshot.Absent{
		"tcpRetransmitsTotal": "not in /proc/1/net/snmp", "listenDropsTotal": "not in /proc/1/net/netstat",
	}, s.Network.Absent)
}

func TestNetworkInvalidCountAbsent(t *testing.T) {
	for _, odd := range []string{"-1", "NaN", "Inf", "1e300"} {
		m := recordedMachine(t)
		m.edit("proc/1/net/snmp", " 41744 28 ", " 41744 "+odd+" ")
		s := m.sample()
		assert.Zero(t, s.Network.TCPRetransmits, odd)
		assert.Equal(t, "not a valid count in /proc/1/net/snmp", s.Network.Absent["tcpRetransmitsTotal"], odd)
	}
}

func TestNetworkRetransmitRatio(t *testing.T) {
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

func TestNetworkWithoutPID1(t *testing.T) {
	m := recordedMachine(t)
	m.remove("proc/1")
	s := m.sample()
	assert.Contains(t, s.Network.Absent["tcp"], "no such file")
	assert.Contains(t, s.Network.Absent["listenDropsTotal"], "no such file")
	assert.Contains(t, probeError(t, s, "nics"), "no such file")
}
