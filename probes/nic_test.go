package probes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachColumnOfNetDevIsItsOwnCounter(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/1/net/dev", "a\nb\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	assert.Equal(t, NICCounters{
		ReceiveBytes: 1, ReceivePackets: 2, ReceiveErrors: 3, ReceiveDrops: 4,
		TransmitBytes: 9, TransmitPackets: 10, TransmitErrors: 11, TransmitDrops: 12,
	}, m.sample().nic("eth0").NICCounters)
}

func TestTheSpeedOfALinkIsKnownOrAbsentAndNeverZero(t *testing.T) {
	for content, want := range map[string]struct {
		speed Opt[uint64]
		why   string
	}{
		"10000\n":               {speed: u64(1_250_000_000)},
		"1\n":                   {speed: u64(125_000)},
		"-1\n":                  {why: "speed: the driver does not know it (-1)"},
		"4294967295\n":          {why: "speed: the driver does not know it (4294967295)"},
		"0\n":                   {why: "speed: the driver does not know it (0)"},
		"":                      {why: `speed: strconv.ParseInt: parsing "": invalid syntax`},
		"fast\n":                {why: `speed: strconv.ParseInt: parsing "fast": invalid syntax`},
		"99999999999999999999 ": {why: `speed: strconv.ParseInt: parsing "99999999999999999999": value out of range`},
	} {
		m := recordedMachine(t)
		m.write("sys/class/net/eth0/speed", content)
		n := m.sample().nic("eth0")
		assert.Equal(t, want.speed, n.SpeedBytesPerSecond, content)
		assert.Equal(t, want.why, n.Absent["speedBytesPerSecond"], content)
	}
	m := recordedMachine(t)
	m.unreadable("sys/class/net/eth0/speed")
	assert.Equal(t, noSpeed(), m.sample().nic("eth0").Absent)
}

func TestWithoutASpeedThereIsNoUtilisation(t *testing.T) {
	m := recordedMachine(t)
	history := testHistory()
	host := m.host()
	history.Add(mustSample(t, host))
	m.edit("proc/1/net/dev", "eth0: 510291486", "eth0: 635291486")
	r, ok := history.Add(mustSample(t, host)).NICs[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, 125_000_000, r.ReceiveBytesPerSecond, 1e-6)
	assert.Zero(t, r.ReceiveUtilizationRatio)

	m = recordedMachine(t)
	m.write("sys/class/net/eth0/speed", "2500\n")
	history, host = testHistory(), m.host()
	history.Add(mustSample(t, host))
	m.edit("proc/1/net/dev", "eth0: 510291486", "eth0: 635291486")
	r, ok = history.Add(mustSample(t, host)).NICs[0].Rates.Get()
	require.True(t, ok)
	used, ok := r.ReceiveUtilizationRatio.Get()
	require.True(t, ok)
	assert.InDelta(t, 0.4, used, 1e-9)
	used, ok = r.TransmitUtilizationRatio.Get()
	require.True(t, ok, "an idle direction of known speed is 0, which is not absent")
	assert.Zero(t, used)
}

func TestTheFactsOfANICAreReadOnceInThirtyReads(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	m.write("sys/class/net/eth0/speed", "1000\n")
	require.Equal(t, u64(125_000_000), mustSample(t, h).nic("eth0").SpeedBytesPerSecond)
	m.write("sys/class/net/eth0/speed", "10000\n")
	for i := 1; i < 30; i++ {
		require.Equal(t, u64(125_000_000), mustSample(t, h).nic("eth0").SpeedBytesPerSecond, "read %d", i)
	}
	assert.Equal(t, u64(1_250_000_000), mustSample(t, h).nic("eth0").SpeedBytesPerSecond)
}

func TestANICMadeAnewGetsItsFactsAtOnce(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	m.write("sys/class/net/eth0/speed", "1000\n")
	mustSample(t, h)
	m.write("sys/class/net/eth0/ifindex", "17\n")
	m.write("sys/class/net/eth0/address", "02:00:00:00:00:11\n")
	m.write("sys/class/net/eth0/speed", "10000\n")
	m.remove("sys/class/net/eth0/device")
	n := mustSample(t, h).nic("eth0")
	assert.Equal(t, Some(17), n.Index)
	assert.Equal(t, Some("02:00:00:00:00:11"), n.Address)
	assert.Equal(t, u64(1_250_000_000), n.SpeedBytesPerSecond)
	assert.False(t, n.Physical)
}

func TestTheFactsOfANICThatWentAreForgotten(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	mustSample(t, h)
	require.Len(t, h.nics, 4)
	m.edit("proc/1/net/dev", "ifb1:", "tun0:")
	s := mustSample(t, h)
	assert.NotContains(t, h.nics, "ifb1")
	assert.Equal(t, "ifindex: no such file or directory", s.nic("tun0").Absent["index"])
	assert.Equal(t, "address: no such file or directory", s.nic("tun0").Absent["address"])
}

func TestAnEmptyAddressIsAbsent(t *testing.T) {
	m := recordedMachine(t)
	m.write("sys/class/net/eth0/address", "\n")
	n := m.sample().nic("eth0")
	assert.Zero(t, n.Address)
	assert.Equal(t, "address: empty", n.Absent["address"])
}

func TestOfPid1sNetworkNoneIsTakenForItsOwn(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/net/dev", "a\nb\nwrong: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n")
	assert.Nil(t, m.sample().nic("wrong"), "/proc/net may be a pod's own")
}

func TestWherePid1MayNotBeReadTheAgentsOwnNetworkServesAndItIsSaid(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/4242/net/dev", "a\nb\nown0: 7 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n")
	m.write("proc/4242/net/snmp", m.read("proc/1/net/snmp"))
	m.write("proc/4242/net/netstat", m.read("proc/1/net/netstat"))
	require.NoError(t, os.Symlink("4242", m.path("proc/self")))
	require.NoError(t, os.Chmod(m.path("proc/1/net"), 0))
	t.Cleanup(func() { require.NoError(t, os.Chmod(m.path("proc/1/net"), 0o755)) })
	// Of a test's directory the parent, too, is root's alone.
	require.NoError(t, os.Chmod(m.dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(m.dir), 0o755))
	h := m.host()
	var s *Sample
	asNobody(t, func() { s = mustSample(t, h) })
	assert.Contains(t, s.Network.Absent["hostNamespace"], "the agent's own network namespace")
	require.Len(t, s.NICs, 1)
	assert.Equal(t, "own0", s.NICs[0].Name)
	assert.EqualValues(t, 9, s.NICs[0].TransmitBytes)
	assert.Equal(t, u64(28), s.Network.TCPRetransmits)
	assert.Empty(t, probeError(t, s, "nics"))
}
