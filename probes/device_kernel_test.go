package probes

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// inNamespaces runs the calling test again in a process with network, mount and
// process namespaces of its own, and reports whether this is that process:
// there pid 1 is the test, and proc and sys are mounted in the returned
// directory. Everything it creates ends with it.
func inNamespaces(t *testing.T) (dir string, inside bool) {
	t.Helper()
	const mark = "PLIMSOLL_TEST_NAMESPACES"
	if os.Getenv(mark) == t.Name() {
		return mountKernel(t), true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "it must not pass by not running")
	return "", false
}

func mountKernel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for name, kind := range map[string]string{"proc": "proc", "sys": "sysfs"} {
		at := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, unix.Mount(kind, at, kind, 0, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	return dir
}

// ip runs commands of iproute2, one a line.
func ip(t testing.TB, commands ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", commands, out)
}

func kernelHost(t testing.TB, dir string) *Host {
	t.Helper()
	h, err := NewHost(Paths{Procfs: filepath.Join(dir, "proc"), Sysfs: filepath.Join(dir, "sys"), Cgroupfs: t.TempDir()}, nil)
	require.NoError(t, err)
	return h
}

func TestNICKindsOnKernel(t *testing.T) {
	dir, inside := inNamespaces(t)
	if !inside {
		return
	}
	ip(t, "link set lo up", "link add name br0 type bridge", "link add name va type veth peer name vb",
		"link set vb master br0", "link add link va name mv0 type macvlan", "tuntap add dev tap0 mode tap", "link set va up", "link set vb up", "link set br0 up")
	h := kernelHost(t, dir)
	s := mustSample(t, h)
	assert.Equal(t, map[string]nicNode{
		"lo":   {"loopback", "", nil, snapshot.LayerStacked},
		"br0":  {"bridge", "", []string{"vb"}, snapshot.LayerStacked},
		"va":   {"veth", "", nil, snapshot.LayerStacked},
		"vb":   {"veth", "br0", nil, snapshot.LayerStacked},
		"mv0":  {"virtual", "", []string{"va"}, snapshot.LayerStacked},
		"tap0": {"tun", "", nil, snapshot.LayerStacked},
	}, nicGraph(s))
	for name, index := range map[string]int{"lo": 1, "br0": mustIndex(t, "br0"), "va": mustIndex(t, "va")} {
		assert.Equal(t, snapshot.Some(index), nicOf(s, name).Index, name)
	}
	assert.Equal(t, snapshot.Some(true), nicOf(s, "va").Carrier)
	assert.Zero(t, nicOf(s, "tap0").Carrier)
	assert.Equal(t, "the device is down", nicOf(s, "tap0").Absent["carrier"])
	assert.Empty(t, probeError(t, s, "nics"))
}

func mustIndex(t *testing.T, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	require.NoError(t, err)
	return i.Index
}

// With the real kernel, between two reads: a pod's veth is re-created with the
// same name, index and address, and carries more than the old one.
func TestVethRecreatedOnKernel(t *testing.T) {
	dir, inside := inNamespaces(t)
	if !inside {
		return
	}
	const veth = "link add name va index 50 address 02:00:00:00:00:50 type veth peer name vb index 51 address 02:00:00:00:00:51"
	ip(t, veth, "address add 10.9.9.1/24 dev va", "link set va up", "link set vb up")
	h, history := kernelHost(t, dir), testHistory()
	var old snapshot.NIC
	for range 2 {
		broadcast(t, dir, old.TransmitPackets+2)
		s := mustSample(t, h)
		history.Add(s)
		old = *nicOf(s, "va")
	}
	require.Positive(t, old.TransmitPackets)

	ip(t, "link del va", veth, "address add 10.9.9.1/24 dev va", "link set va up", "link set vb up")
	broadcast(t, dir, old.TransmitPackets+100)
	s := history.Add(mustSample(t, h))
	for _, n := range s.NICs {
		assert.True(t, n.Name == "lo" || n.Rates.IsZero(), "a rate across two devices: %+v", n)
	}
	history.Add(mustSample(t, h))
	raw := mustSample(t, h)
	s = history.Add(raw)
	now := nicOf(raw, "va")
	require.NotNil(t, now)
	assert.Greater(t, now.TransmitPackets, old.TransmitPackets, "else this test shows nothing")
	assert.Equal(t, old.Index, now.Index)
	assert.Equal(t, old.Address, now.Address)
	for _, n := range s.NICs {
		assert.False(t, n.Rates.IsZero(), "it goes on as itself: %s", n.Name)
	}
}

// broadcast sends datagrams until the kernel has counted so many: it drops them
// before it has seen the carrier.
func broadcast(t *testing.T, dir string, packets uint64) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 9, 9, 1)})
	require.NoError(t, err)
	defer c.Close()
	kerneltest.Until(t, func() bool {
		for range 20 {
			_, err := c.WriteTo(make([]byte, 500), &net.UDPAddr{IP: net.IPv4(10, 9, 9, 255), Port: 9})
			require.NoError(t, err)
		}
		sent, err := os.ReadFile(filepath.Join(dir, "sys/class/net/va/statistics/tx_packets"))
		require.NoError(t, err)
		n, err := decimal(strings.TrimSpace(string(sent)))
		require.NoError(t, err)
		return n >= packets
	})
}

// Pods are added and removed while the list is read: no NIC is listed twice,
// none that stays is missed, and no rate is wrong.
func TestNICsComeAndGoDuringRead(t *testing.T) {
	dir, inside := inNamespaces(t)
	if !inside {
		return
	}
	var stay []string
	for i := range 40 {
		stay = append(stay, fmt.Sprintf("link add name stay%d type veth peer name peer%d", i, i))
	}
	ip(t, stay...)
	h, history := kernelHost(t, dir), testHistory()
	mustSample(t, h)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- churnVeths(ctx) }()
	come := map[snapshot.Opt[int]]bool{}
	for i := 0; i < 100 || len(come) < 10; i++ {
		raw := mustSample(t, h)
		require.Empty(t, probeError(t, raw, "nics"))
		soundNICs(t, history.Add(raw))
		if pod := nicOf(raw, "pod0"); pod != nil {
			come[pod.Index] = true
		}
		for i := range 40 {
			require.NotNil(t, nicOf(raw, fmt.Sprintf("stay%d", i)), "stay%d is missed", i)
		}
	}
	stop()
	require.NoError(t, <-done)
	assert.LessOrEqual(t, len(h.nics.devices), 2*40+1+4, "what went is forgotten")
}

// soundNICs checks that no NIC is listed twice and no rate is wrong.
func soundNICs(t *testing.T, s *snapshot.Snapshot) {
	t.Helper()
	seen := map[string]bool{}
	for _, n := range s.NICs {
		require.False(t, seen[n.Name], "%s twice", n.Name)
		seen[n.Name] = true
		r, _ := n.Rates.Get() // absent: all are 0
		require.Less(t, r.ReceivePacketsPerSecond+r.TransmitPacketsPerSecond, 1e9, "%+v", n)
	}
}

// churnVeths makes and removes two veths under the same names until it is stopped.
func churnVeths(ctx context.Context) error {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), "ip", "-batch", "-")
		cmd.Stdin = strings.NewReader("link add name pod0 type veth peer name podp0\nlink add name pod1 type veth peer name podp1\nlink del pod0\nlink del pod1\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}
