package probes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestNICColumns(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/1/net/dev", "a\nb\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	assert.Equal(t, snapshot.NICCounters{
		ReceiveBytes: 1, ReceivePackets: 2, ReceiveErrors: 3, ReceiveDrops: 4,
		TransmitBytes: 9, TransmitPackets: 10, TransmitErrors: 11, TransmitDrops: 12,
	}, nicOf(m.sample(), "eth0").NICCounters)
}

func TestNICSpeed(t *testing.T) {
	for content, want := range map[string]struct {
		speed snapshot.Opt[uint64]
		why   string
	}{
		"10000\n":               {speed: u64(1_250_000_000)},
		"1\n":                   {speed: u64(125_000)},
		"-1\n":                  {why: "speed: unknown to the driver (-1)"},
		"4294967295\n":          {why: "speed: unknown to the driver (4294967295)"},
		"0\n":                   {why: "speed: unknown to the driver (0)"},
		"":                      {why: `speed: strconv.ParseInt: parsing "": invalid syntax`},
		"fast\n":                {why: `speed: strconv.ParseInt: parsing "fast": invalid syntax`},
		"99999999999999999999 ": {why: `speed: strconv.ParseInt: parsing "99999999999999999999": value out of range`},
	} {
		m := recordedMachine(t)
		m.write("sys/class/net/eth0/speed", content)
		n := nicOf(m.sample(), "eth0")
		assert.Equal(t, want.speed, n.SpeedBytesPerSecond, content)
		assert.Equal(t, want.why, n.Absent["speedBytesPerSecond"], content)
	}
	m := recordedMachine(t)
	m.unreadable("sys/class/net/eth0/speed")
	assert.Equal(t, noSpeed()["speedBytesPerSecond"], nicOf(m.sample(), "eth0").Absent["speedBytesPerSecond"])
}

func TestNICUtilizationNeedsSpeed(t *testing.T) {
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

func TestNICSpeedConfigured(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	before := mustSample(t, h)
	require.Zero(t, nicOf(before, "eth0").SpeedBytesPerSecond)
	require.NotEmpty(t, nicOf(before, "eth0").Absent["speedBytesPerSecond"])
	others := len(nicOf(before, "eth0").Absent)
	h.FollowNetwork(NetworkConfig{Devices: []NetworkDevice{{"eth0", 2500}, {"none", 1}}})
	n := nicOf(mustSample(t, h), "eth0")
	assert.Equal(t, u64(312_500_000), n.SpeedBytesPerSecond)
	assert.NotContains(t, n.Absent, "speedBytesPerSecond")
	assert.Len(t, n.Absent, others-1)
	assert.NotEmpty(t, nicOf(before, "eth0").Absent["speedBytesPerSecond"], "a sample does not change")

	m.write("sys/class/net/eth0/speed", "1000\n")
	for range 40 {
		assert.Equal(t, u64(312_500_000), nicOf(mustSample(t, h), "eth0").SpeedBytesPerSecond)
	}
	h.FollowNetwork(NetworkConfig{})
	assert.Equal(t, u64(125_000_000), nicOf(mustSample(t, h), "eth0").SpeedBytesPerSecond, "it says so itself by now")
}

func TestNICFactsEveryThirtyReads(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	looks := 0
	for i := range 91 {
		speed := uint64(1000 + i)
		m.write("sys/class/net/eth0/speed", fmt.Sprintln(speed))
		if nicOf(mustSample(t, h), "eth0").SpeedBytesPerSecond == u64(speed*125_000) {
			looks++
		}
	}
	assert.Equal(t, 1+3, looks, "once at first, then once in thirty")
}

func TestNICRecreatedFactsAtOnce(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	m.write("sys/class/net/eth0/speed", "1000\n")
	mustSample(t, h)
	m.renew("sys/class/net/eth0")
	m.write("sys/class/net/eth0/ifindex", "17\n")
	m.write("sys/class/net/eth0/address", "02:00:00:00:00:11\n")
	m.write("sys/class/net/eth0/speed", "10000\n")
	m.remove("sys/class/net/eth0/device")
	n := nicOf(mustSample(t, h), "eth0")
	assert.Equal(t, snapshot.Some(17), n.Index)
	assert.Equal(t, snapshot.Some("02:00:00:00:00:11"), n.Address)
	assert.Equal(t, u64(1_250_000_000), n.SpeedBytesPerSecond)
	assert.False(t, n.Physical)
}

// The driver was loaded anew, or the device was reset.
func TestNICCountersBackFactsAtOnce(t *testing.T) {
	m := recordedMachine(t)
	h, history := m.host(), testHistory()
	history.Add(mustSample(t, h))
	m.write("sys/class/net/eth0/speed", "10000\n")
	m.edit("proc/1/net/dev", "eth0: 510291486", "eth0: 9")
	s := history.Add(mustSample(t, h)).NICs[0]
	require.Equal(t, "eth0", s.Name)
	assert.Equal(t, u64(1_250_000_000), s.SpeedBytesPerSecond)
	assert.Zero(t, s.Rates, "and no rate, least of all a huge one")
}

func TestNICRemovedForgotten(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	mustSample(t, h)
	require.Len(t, h.nics.devices, 4)
	m.remove("sys/class/net/ifb1")
	m.edit("proc/1/net/dev", "ifb1:", "tun0:")
	s := mustSample(t, h)
	assert.NotContains(t, h.nics.devices, "ifb1")
	assert.Nil(t, nicOf(s, "ifb1"))
	assert.Contains(t, nicOf(s, "tun0").Absent["index"], "not in /sys/class/net")
	assert.Contains(t, nicOf(s, "tun0").Absent["address"], "not in /sys/class/net")
}

func TestNICWithoutSysfs(t *testing.T) {
	m := recordedMachine(t)
	m.remove("sys/class/net")
	s := m.sample()
	require.NotNil(t, nicOf(s, "eth0"))
	assert.EqualValues(t, 510291486, nicOf(s, "eth0").ReceiveBytes)
	assert.Empty(t, nicOf(s, "eth0").Layer, "its lower devices are unknown")
	assert.Contains(t, probeError(t, s, "nics"), "no such file")

	m.write("proc/1/net/dev", m.read("proc/1/net/dev")+" odd: 1\n")
	s = m.sample()
	assert.Contains(t, probeError(t, s, "nics"), parse.ErrShortLine.Error())
	assert.NotContains(t, probeError(t, s, "nics"), "\n")
}

func TestNICUnreadableLine(t *testing.T) {
	for _, odd := range []string{" eth7: 1 2 3", " eth7: 1 2 3 4 5 6 7 8 9 10 11 -12 13 14 15 16", " eth7", " : 1 2", " eth7: 99999999999999999999 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"} {
		m := recordedMachine(t)
		m.write("proc/1/net/dev", m.read("proc/1/net/dev")+odd+"\n")
		s := m.sample()
		assert.Len(t, s.NICs, 4, odd)
		assert.Nil(t, nicOf(s, "eth7"), odd)
		assert.Contains(t, probeError(t, s, "nics"), "line ", odd)
	}
}

func TestNICListedTwice(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/1/net/dev", m.read("proc/1/net/dev")+"    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n")
	s := m.sample()
	assert.Len(t, s.NICs, 4)
	assert.EqualValues(t, 83579252, nicOf(s, "lo").ReceiveBytes)
}

func TestNICCarrier(t *testing.T) {
	m := recordedMachine(t)
	m.write("sys/class/net/eth0/carrier", "1\n")
	m.write("sys/class/net/ifb0/carrier", "0\n")
	m.unreadable("sys/class/net/ifb1/carrier")
	s := m.sample()
	assert.Equal(t, snapshot.Some(true), nicOf(s, "eth0").Carrier)
	assert.Equal(t, snapshot.Some(false), nicOf(s, "ifb0").Carrier)
	assert.Zero(t, nicOf(s, "ifb1").Carrier)
	assert.Equal(t, "the device is down", nicOf(s, "ifb1").Absent["carrier"])
}

func TestNICEmptyAddress(t *testing.T) {
	m := recordedMachine(t)
	m.write("sys/class/net/eth0/address", "\n")
	n := nicOf(m.sample(), "eth0")
	assert.Zero(t, n.Address)
	assert.Equal(t, "address: empty", n.Absent["address"])
}

func TestNICOfPID1Only(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/net/dev", "a\nb\nwrong: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n")
	assert.Nil(t, nicOf(m.sample(), "wrong"), "/proc/net may be a pod's own")
}

func TestNICOfSelfWithoutPID1(t *testing.T) {
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
	var s *snapshot.Sample
	kerneltest.Unprivileged(t, func() { s = mustSample(t, h) })
	assert.Contains(t, s.Network.Absent["hostNamespace"], "the agent's own network namespace")
	require.Len(t, s.NICs, 1)
	assert.Equal(t, "own0", s.NICs[0].Name)
	assert.EqualValues(t, 9, s.NICs[0].TransmitBytes)
	assert.Equal(t, u64(28), s.Network.TCPRetransmits)
	assert.Empty(t, probeError(t, s, "nics"))
}
