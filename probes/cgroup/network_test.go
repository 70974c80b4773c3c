package cgroup

import (
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ownNetwork starts a child in a network namespace of its own, as a pod's
// sandbox is.
func ownNetwork(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
}

// networkOfChild starts one in the namespace of another.
func networkOfChild(t *testing.T, of *child) func(*exec.Cmd) {
	t.Helper()
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skipf("needs nsenter: %v", err)
	}
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{nsenter, "--net=/proc/" + of.pid() + "/ns/net", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = nsenter
	}
}

func (c *child) pid() string { return strconv.Itoa(c.cmd.Process.Pid) }

// veth leads from the host into a child's network namespace.
type veth struct {
	t    *testing.T
	name string
}

func newVeth(t *testing.T, to *child) *veth {
	t.Helper()
	v := &veth{t, "plims" + to.pid()}
	run := func(args ...string) {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs a veth pair: %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	run("ip", "link", "add", v.name, "type", "veth", "peer", "name", "eth0", "netns", to.pid())
	t.Cleanup(func() { // by then the child was ended
		deadline.Eventually(t, func() bool { return !v.there() }, kerneltest.Patience, 10*time.Millisecond, "%s goes with its namespace", v.name)
	})
	run("nsenter", "--net=/proc/"+to.pid()+"/ns/net", "ip", "link", "set", "eth0", "up")
	run("nsenter", "--net=/proc/"+to.pid()+"/ns/net", "ip", "link", "set", "lo", "up")
	run("ip", "link", "set", v.name, "up")
	return v
}

func (v *veth) there() bool {
	_, err := os.Stat("/sys/class/net/" + v.name)
	return err == nil
}

// send sends frames of a protocol without receiver.
func (v *veth) send(frames, size int) {
	v.t.Helper()
	index := int(rawNumber(v.t, "/sys/class/net/"+v.name+"/ifindex"))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	require.NoError(v.t, err)
	defer closeFD(fd)
	frame := make([]byte, size)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5") // to all, local experimental
	for range frames {
		require.NoError(v.t, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}))
	}
}

// counted4 parses net/dev of a process independently.
func counted4(t *testing.T, p *child) (receivedBytes, receivedPackets, sentBytes, sentPackets uint64) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + p.pid() + "/net/dev")
	require.NoError(t, err)
	_, eth0, found := strings.Cut(string(b), "eth0:")
	require.True(t, found, "%s", b)
	words := strings.Fields(eth0)
	n := func(i int) uint64 {
		v, err := strconv.ParseUint(words[i], 10, 64)
		require.NoError(t, err)
		return v
	}
	return n(0), n(1), n(8), n(9)
}

func TestPodNetworkOfNamespace(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	mkdirs(t, c, pod+"/c0ffee")
	p := startChild(t, ownNetwork)
	p.enter(t, c, pod+"/c0ffee")
	v := newVeth(t, p)
	h := newHistory()
	var before snapshot.WorkloadNetwork
	for i, frames := range []int{50, 700} {
		v.send(frames, 1000)
		bytes1, packets1, sent1, sentPackets1 := counted4(t, p)
		s := &snapshot.Sample{Monotonic: k.at + detailEvery, Boottime: k.at + detailEvery, Workloads: k.after(detailEvery)}
		w := one(s.Workloads, pod)
		bytes2, packets2, sent2, sentPackets2 := counted4(t, p)
		n, ok := w.Network.Get()
		require.True(t, ok, "%v", w.Absent)
		within(t, bytes1, n.ReceiveBytes, bytes2)
		within(t, packets1, n.ReceivePackets, packets2)
		within(t, sent1, n.TransmitBytes, sent2)
		within(t, sentPackets1, n.TransmitPackets, sentPackets2)
		assert.Equal(t, k.at, n.At)
		assert.NotContains(t, w.Absent, nameNetwork)

		h.MaxGap = time.Minute
		r, rated := h.Add(s).Workloads[0].Rates.Get()
		if i == 0 {
			before = n
			continue
		}
		require.True(t, rated)
		rates, ok := r.Network.Get()
		require.True(t, ok)
		assert.GreaterOrEqual(t, n.ReceivePackets-before.ReceivePackets, uint64(700))
		assert.Equal(t, snapshot.WorkloadNetworkRates{
			WindowSeconds:            detailEvery.Seconds(),
			ReceiveBytesPerSecond:    float64(n.ReceiveBytes-before.ReceiveBytes) / detailEvery.Seconds(),
			ReceivePacketsPerSecond:  float64(n.ReceivePackets-before.ReceivePackets) / detailEvery.Seconds(),
			TransmitBytesPerSecond:   float64(n.TransmitBytes-before.TransmitBytes) / detailEvery.Seconds(),
			TransmitPacketsPerSecond: float64(n.TransmitPackets-before.TransmitPackets) / detailEvery.Seconds(),
		}, rates)
	}
}

func within(t *testing.T, least, v, most uint64) {
	t.Helper()
	assert.LessOrEqual(t, least, v)
	assert.LessOrEqual(t, v, most)
}

func TestPodNetworkHostNetworkAbsent(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	w := k.tick()
	require.Len(t, w, 1)
	assert.Equal(t, "the pod has no process", w[0].Absent[nameNetwork])
	p := startChild(t)
	onlyThese(t, k, p)
	p.enter(t, c, kubepods+"/pod0")
	w = k.after(time.Minute)
	assert.True(t, w[0].Network.IsZero())
	assert.Equal(t, whyHostNetwork, w[0].Absent[nameNetwork])
}

// A pod may be read in detail twice before its first process is there.
func TestPodNetworkProcessComesLate(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	p := startChild(t, ownNetwork)
	onlyThese(t, k, p)
	k.tick()
	k.c.tracked[0].phase = float64(k.at+2*time.Second) / float64(detailEvery)
	w := k.after(2 * time.Second)[0]
	require.Equal(t, k.at, w.DetailAt)
	require.Equal(t, "the pod has no process", w.Absent[nameNetwork])
	p.enter(t, c, kubepods+"/pod0")
	require.Equal(t, "done", p.do(t, "burn a little"))
	w = k.after(detailEvery)[0]
	assert.False(t, w.Network.IsZero(), "%v", w.Absent)
}

// The monitor of a container runtime may be in the pod's cgroup, older than any
// process of the pod, and in the host's network.
func TestPodNetworkMonitorInCgroup(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	mkdirs(t, c, pod+"/c0ffee")
	monitor, p := startChild(t), startChild(t, ownNetwork)
	onlyThese(t, k, monitor, p)
	monitor.enter(t, c, pod)
	assert.Equal(t, whyHostNetwork, k.tick()[0].Absent[nameNetwork], "as far as one can tell")
	p.enter(t, c, pod+"/c0ffee")
	w := k.after(time.Minute)
	assert.False(t, w[0].Network.IsZero(), "%v", w[0].Absent)
}

// onlyThese gives the reader a /proc of these children, in which the host's network is that of
// this process: a container that sees the host's processes has another one.
func onlyThese(t *testing.T, k *ticks, children ...*child) {
	t.Helper()
	k.c.proc = t.TempDir()
	require.NoError(t, os.Symlink("/proc/self", k.c.proc+"/1"))
	for _, c := range children {
		require.NoError(t, os.Symlink("/proc/"+c.pid(), k.c.proc+"/"+c.pid()))
	}
}

func TestPodNetworkNextProcessTakesOver(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	pod := kubepods + "/pod0"
	mkdirs(t, c, pod)
	p := startChild(t, ownNetwork)
	q := startChild(t, networkOfChild(t, p))
	other := startChild(t, ownNetwork)
	p.enter(t, c, pod)
	first, ok := k.tick()[0].Network.Get()
	require.True(t, ok)
	q.enter(t, c, pod)
	p.end(t)
	second, ok := k.after(time.Minute)[0].Network.Get()
	require.True(t, ok)
	assert.Equal(t, first.Namespace, second.Namespace)

	other.enter(t, c, pod) // the pod's sandbox was made anew
	q.end(t)
	third, ok := k.after(time.Minute)[0].Network.Get()
	require.True(t, ok)
	assert.NotEqual(t, second.Namespace, third.Namespace)
	other.end(t)
	w := k.after(time.Minute)[0]
	assert.True(t, w.Network.IsZero())
	assert.Equal(t, "the pod has no process", w.Absent[nameNetwork])
}

// A pod's network ends with its last process, even while it is being read.
func TestPodNetworkReadKeepsNoNamespace(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	p := startChild(t, ownNetwork)
	p.enter(t, c, kubepods+"/pod0")
	v := newVeth(t, p)
	require.False(t, k.tick()[0].Network.IsZero())
	require.NotEqual(t, noDir, k.c.tracked[0].process)
	require.True(t, v.there())
	p.end(t)
	kerneltest.Until(t, func() bool { return !v.there() })
}

// A pid is reused some day. Links replace the pids here, since the kernel
// chooses those.
func TestPodNetworkReusedPID(t *testing.T) {
	if actAsChild() {
		return
	}
	for _, budget := range []int{0, maxKept} {
		c, kubepods, k := hostPods(t)
		k.c.fds.left = budget
		mkdirs(t, c, kubepods+"/pod0")
		p, stranger := startChild(t, ownNetwork), startChild(t, ownNetwork)
		p.enter(t, c, kubepods+"/pod0")
		onlyThese(t, k, p)
		number := k.c.proc + "/" + p.pid()
		require.False(t, k.tick()[0].Network.IsZero())

		p.end(t)
		require.NoError(t, os.Remove(number))
		require.NoError(t, os.Symlink("/proc/"+stranger.pid(), number))
		w := k.after(time.Minute)[0]
		assert.True(t, w.Network.IsZero(), "budget %d", budget)
		assert.Equal(t, "the pod has no process", w.Absent[nameNetwork])
	}
}

func TestPodNetworkWithoutHostNamespace(t *testing.T) {
	if actAsChild() {
		return
	}
	c, kubepods, k := hostPods(t)
	mkdirs(t, c, kubepods+"/pod0")
	p := startChild(t)
	p.enter(t, c, kubepods+"/pod0")
	proc := t.TempDir() // without a pid 1
	require.NoError(t, os.Symlink("/proc/"+p.pid(), proc+"/"+p.pid()))
	k.c.proc = proc
	w := k.tick()[0]
	assert.True(t, w.Network.IsZero())
	assert.Equal(t, errHostUnknown.Error(), w.Absent[nameNetwork])
}

const netDevHead = "Inter-|   Receive                                                |  Transmit\n" +
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"

func TestSumNetDev(t *testing.T) {
	const lo = "    lo:    1    2    0    0    0     0          0         0     3    4    0    0    0     0       0          0\n"
	const eth0 = "  eth0: 1000   20    9    9    0     0          0         0   300    4    9    9    0     0       0          0\n"
	const net1 = "net1:7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n"
	n, err := sumNetDev([]byte(netDevHead + lo + eth0 + net1))
	require.NoError(t, err)
	assert.Equal(t, snapshot.WorkloadNetwork{ReceiveBytes: 1007, ReceivePackets: 27, TransmitBytes: 307, TransmitPackets: 11}, n)
	n, err = sumNetDev([]byte(netDevHead + lo))
	require.NoError(t, err)
	assert.Zero(t, n, "a pod that has nothing else")
	for _, bad := range []string{"", netDevHead, netDevHead + "eth0: 1 2\n", netDevHead + lo + "eth0: -1 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n"} {
		_, err = sumNetDev([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
}

// FuzzSumNetDev compares the sums with ones that cannot overflow.
func FuzzSumNetDev(f *testing.F) {
	f.Add([]byte(netDevHead + "lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"))
	f.Add([]byte(netDevHead + "eth0: 18446744073709551615 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\neth1: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n"))
	f.Add([]byte("a:1"))
	f.Add([]byte("0:0 0 0 0 0 0 0 \xc0\t100 0 0 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := sumNetDev(b)
		if err != nil {
			if n != (snapshot.WorkloadNetwork{}) {
				t.Fatal("half a sum beside an error")
			}
			return
		}
		want, devices := slowSum(t, b)
		got := fmt.Sprint(n.ReceiveBytes, n.ReceivePackets, n.TransmitBytes, n.TransmitPackets)
		if want != got || devices == 0 {
			t.Fatalf("%s instead of %s of %d devices", got, want, devices)
		}
	})
}

func slowSum(t *testing.T, b []byte) (sums string, devices int) {
	t.Helper()
	var sum [4]big.Int
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			continue
		}
		devices++
		if strings.TrimLeft(name, " ") == "lo" {
			continue
		}
		words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' })
		for i, at := range []int{0, 1, 8, 9} {
			v, ok := new(big.Int).SetString(words[at], 10)
			if !ok {
				t.Fatalf("%q was taken for a number", words[at])
			}
			sum[i].Add(&sum[i], v)
		}
	}
	return fmt.Sprint(&sum[0], &sum[1], &sum[2], &sum[3]), devices
}
