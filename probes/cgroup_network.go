package probes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const whyHostNetwork = "host network: its traffic is in the node's counters only"

var (
	errNoProcess   = errors.New("the pod has no process")
	errHostNetwork = errors.New(whyHostNetwork)
	errHostUnknown = errors.New("cannot read /proc/1/ns/net (needs CAP_SYS_PTRACE): the pod's network namespace cannot be told from the host's")
	errNoDevices   = errors.New("net/dev: no device, not even lo")
)

// readNetwork reads what the pod's network namespace counted, through one of
// its processes. Of that one the directory in /proc is kept open: it stays that
// of this process, whoever gets its number, and leads nowhere once it has
// ended. No file below is kept: that would keep the namespace, and its half of
// the pod's veth, after the pod.
func (t *tracked) readNetwork() {
	if !t.pod {
		return
	}
	t.w.Network = Opt[WorkloadNetwork]{}
	network, err := t.c.networkOf(t.process)
	if err != nil { // none yet, or it has ended or gone to another namespace
		t.leaveProcess()
		if t.c.now < t.networkDue {
			t.because(ofDetail, nameNetwork, t.whyNoNetwork)
			return
		}
		network, err = t.findNetwork()
	}
	if err != nil {
		t.networkPatience = min(restEvery, max(time.Second, 30*t.networkPatience))
		t.networkDue, t.whyNoNetwork = t.c.now+t.networkPatience, err.Error()
		t.because(ofDetail, nameNetwork, t.whyNoNetwork)
		return
	}
	t.networkDue, t.networkPatience = 0, 0
	network.At = t.c.now
	t.w.Network = Some(network)
}

// findNetwork takes the first process of the pod that is not in the host's
// network namespace. Those in it prove nothing: a container runtime may have
// its own there, in the pod's cgroup (CRI-O's conmon_cgroup = "pod").
func (t *tracked) findNetwork() (WorkloadNetwork, error) {
	why := errNoProcess
	for _, pid := range t.processes() {
		d, err := openDir(t.c.proc + "/" + strconv.Itoa(pid))
		if err != nil {
			continue // it has ended
		}
		network, err := t.c.networkOf(d)
		// Since it was listed its number may have become another's.
		if err == nil && slices.Contains(t.processes(), pid) {
			t.keepProcess(d)
			return network, nil
		}
		d.close()
		if err != nil && !isEnded(err) {
			why = err
		}
	}
	return WorkloadNetwork{}, why
}

func isEnded(err error) bool { return isGone(err) || errors.Is(err, unix.ESRCH) }

func (t *tracked) keepProcess(d cgroupDir) {
	if !t.c.fds.take() {
		d.close()
		return
	}
	t.process = d
}

func (t *tracked) leaveProcess() {
	if t.process != noDir {
		t.process.close()
		t.process = noDir
		t.c.fds.left++
	}
}

// maxAsked is how many processes of a pod are looked at for its namespace.
const maxAsked = 16

// processes returns the lowest pids of the pod, in order: most likely the first
// is the one that holds its namespaces, and did not make some of its own. The
// first hierarchy that has any tells.
func (t *tracked) processes() []int {
	c := t.c
	c.pids = c.pids[:0]
	for i := range t.in[:c.walked] {
		if t.in[i].inode == 0 {
			continue
		}
		c.appendProcesses(c.dirs[i] + t.cgroup)
		for _, dir := range c.subtree(t.node, i) {
			c.appendProcesses(dir)
		}
		if len(c.pids) > 0 {
			break
		}
	}
	slices.Sort(c.pids)
	c.pids = slices.Compact(c.pids)
	return c.pids[:min(len(c.pids), maxAsked)]
}

// appendProcesses appends the pids in a cgroup. One that cannot be asked has
// none: it is gone, or a threaded one.
func (c *Cgroups) appendProcesses(dir string) {
	fd, err := c.path.open(dir, "/cgroup.procs")
	if err != nil {
		return
	}
	defer closeFD(fd)
	c.buf, _ = readList(fd, "cgroup.procs", c.buf)
	for line := range bytes.Lines(c.buf) {
		if pid, err := parseUint(trimNewline(line)); err == nil && pid > 0 {
			c.pids = append(c.pids, int(pid))
		}
	}
}

// networkOf reads net/dev of a process, and which namespace it is of.
func (c *Cgroups) networkOf(process cgroupDir) (WorkloadNetwork, error) {
	if process == noDir {
		return WorkloadNetwork{}, errNoProcess
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(process), "ns/net", &st, 0); err != nil {
		return WorkloadNetwork{}, fmt.Errorf("ns/net: %w", err)
	}
	switch c.hostNS {
	case 0:
		return WorkloadNetwork{}, errHostUnknown
	case st.Ino:
		return WorkloadNetwork{}, errHostNetwork
	}
	var err error
	if c.buf, err = process.read("net/dev", c.buf); err != nil {
		return WorkloadNetwork{}, err
	}
	n, err := sumNetDev(c.buf)
	n.Namespace = st.Ino
	return n, err
}

// hostNamespace is the inode of the host's network namespace, which pid 1 is in;
// 0 when that one may not be looked at and neither may a thread of the kernel:
// kthreadd is pid 2 where pid 1 is the host's, and never leaves.
func (c *Cgroups) hostNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat(c.proc+"/1/ns/net", &st) == nil {
		return st.Ino
	}
	if comm, err := os.ReadFile(c.proc + "/2/comm"); err != nil || string(comm) != "kthreadd\n" || unix.Stat(c.proc+"/2/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// sumNetDev adds up a net/dev over all devices but lo. What the namespace has
// is not known without two lines of headings and, at least, lo.
func sumNetDev(b []byte) (WorkloadNetwork, error) {
	var n WorkloadNetwork
	var d adder
	devices := 0
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte{':'}) {
			continue
		}
		name, c, err := parseNetDevLine(trimNewline(line))
		if err != nil {
			return WorkloadNetwork{}, oddLine(trimNewline(line), err)
		}
		devices++
		if string(name) == "lo" {
			continue
		}
		d.add(&n.ReceiveBytes, c.ReceiveBytes)
		d.add(&n.ReceivePackets, c.ReceivePackets)
		d.add(&n.TransmitBytes, c.TransmitBytes)
		d.add(&n.TransmitPackets, c.TransmitPackets)
	}
	switch {
	case devices == 0:
		return WorkloadNetwork{}, errNoDevices
	case d.tooLarge:
		return WorkloadNetwork{}, fmt.Errorf("net/dev: %w", errTooLarge)
	}
	return n, nil
}

// adder adds up; a sum that does not fit makes it too large, and is none.
type adder struct{ tooLarge bool }

func (a *adder) add(to *uint64, n uint64) {
	*to += n
	a.tooLarge = a.tooLarge || *to < n
}
