package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const whyHostNetwork = "host network: its traffic is in the node's counters only"

var (
	errNoProcess   = errors.New("the pod has no process")
	errHostNetwork = errors.New(whyHostNetwork)
	errHostUnknown = errors.New("cannot read /proc/1/ns/net (needs CAP_SYS_PTRACE): the pod's network namespace cannot be told from the host's")
	errNoDevices   = errors.New("net/dev: no device, not even lo")
)

// readNetwork reads the counters of the pod's network namespace through one of
// its processes. It keeps that process's /proc directory open, which stays that
// of this process even if the pid is reused, and becomes invalid when the
// process ends. It keeps no file below open: that would keep the namespace, and
// its half of the pod's veth, alive after the pod.
func (t *trackedWorkload) readNetwork() {
	if !t.pod {
		return
	}
	t.w.Network = snapshot.Opt[snapshot.WorkloadNetwork]{}
	network, err := t.reader.networkOf(t.process)
	if err != nil { // no process yet, or it has ended or changed its namespace
		t.leaveProcess()
		if t.reader.now < t.networkDue {
			t.recordAbsent(ofDetail, nameNetwork, t.whyNoNetwork)
			return
		}
		network, err = t.findNetwork()
	}
	if err != nil {
		t.networkBackoff = min(idleDetailEvery, max(time.Second, 4*t.networkBackoff))
		t.networkDue, t.whyNoNetwork = t.reader.now+t.networkBackoff, err.Error()
		t.recordAbsent(ofDetail, nameNetwork, t.whyNoNetwork)
		return
	}
	t.networkDue, t.networkBackoff = 0, 0
	network.At = t.reader.now
	t.w.Network = snapshot.Some(network)
}

// findNetwork uses the first process of the pod outside the host's network
// namespace. Processes in the host's prove nothing: a container runtime may run
// its own in the pod's cgroup (CRI-O's conmon_cgroup = "pod").
func (t *trackedWorkload) findNetwork() (snapshot.WorkloadNetwork, error) {
	why := errNoProcess
	for _, pid := range t.processes() {
		var digits [20]byte // a string of it takes no memory
		d, err := t.reader.path.openDir(t.reader.proc, "/", string(strconv.AppendInt(digits[:0], int64(pid), 10)))
		if err != nil {
			continue // it has ended
		}
		network, err := t.reader.networkOf(d)
		// The pid may have been reused since it was listed.
		if err == nil && slices.Contains(t.processes(), pid) {
			t.keepProcess(d)
			return network, nil
		}
		d.close()
		if err != nil && !isEnded(err) {
			why = err
		}
	}
	return snapshot.WorkloadNetwork{}, why
}

func isEnded(err error) bool { return isRemoved(err) || errors.Is(err, unix.ESRCH) }

func (t *trackedWorkload) keepProcess(d cgroupDir) {
	if !t.reader.fds.take() {
		d.close()
		return
	}
	t.process = d
}

func (t *trackedWorkload) leaveProcess() {
	if t.process != noDir {
		t.process.close()
		t.process = noDir
		t.reader.fds.left++
	}
}

// maxAsked is how many processes of a pod are tried.
const maxAsked = 16

// processes returns the lowest pids of the pod, in order: the first most likely
// holds its namespaces and has not created others. The first hierarchy that has
// any counts.
func (t *trackedWorkload) processes() []int {
	r := t.reader
	r.pids = r.pids[:0]
	for i := range t.in[:r.walked] {
		if t.in[i].inode == 0 {
			continue
		}
		r.appendProcesses(r.dirs[i], t.cgroup)
		for _, dir := range r.subtree(t.node, i) {
			r.appendProcesses(dir, "")
		}
		if len(r.pids) > 0 {
			break
		}
	}
	slices.Sort(r.pids)
	r.pids = slices.Compact(r.pids)
	return r.pids[:min(len(r.pids), maxAsked)]
}

// appendProcesses appends the pids in a cgroup. A removed or threaded one has
// none.
func (r *Reader) appendProcesses(dir, cgroup string) {
	fd, err := r.path.open(anywhere, dir, cgroup, "/cgroup.procs")
	if err != nil {
		return
	}
	defer closeFD(fd)
	r.buf, _ = readList(fd, "cgroup.procs", r.buf)
	for line := range bytes.Lines(r.buf) {
		if pid, err := parse.Uint(trimNewline(line)); err == nil && pid > 0 {
			r.pids = append(r.pids, int(pid))
		}
	}
}

// networkOf reads net/dev of a process, and the inode of its network namespace.
func (r *Reader) networkOf(process cgroupDir) (snapshot.WorkloadNetwork, error) {
	if process == noDir {
		return snapshot.WorkloadNetwork{}, errNoProcess
	}
	namespace, _, err := r.path.stat(process, "ns/net")
	if err != nil {
		return snapshot.WorkloadNetwork{}, fmt.Errorf("ns/net: %w", err)
	}
	switch r.hostNS {
	case 0:
		return snapshot.WorkloadNetwork{}, errHostUnknown
	case namespace:
		return snapshot.WorkloadNetwork{}, errHostNetwork
	}
	if r.buf, err = process.read(&r.path, "net/dev", r.buf); err != nil {
		return snapshot.WorkloadNetwork{}, err
	}
	n, err := sumNetDev(r.buf)
	n.Namespace = namespace
	return n, err
}

// hostNamespace is the inode of the host's network namespace, that of pid 1. If
// pid 1 may not be read, kthreadd serves, which is pid 2 if pid 1 is the host's
// and never changes its namespace; 0 if neither can be read.
func (r *Reader) hostNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat(r.proc+"/1/ns/net", &st) == nil {
		return st.Ino
	}
	if comm, err := os.ReadFile(r.proc + "/2/comm"); err != nil || string(comm) != "kthreadd\n" || unix.Stat(r.proc+"/2/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// sumNetDev sums a net/dev over all devices but lo. A file without any device
// is an error.
func sumNetDev(b []byte) (snapshot.WorkloadNetwork, error) {
	var n snapshot.WorkloadNetwork
	var d adder
	devices := 0
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte{':'}) {
			continue
		}
		name, c, err := parse.NetDev(trimNewline(line))
		if err != nil {
			return snapshot.WorkloadNetwork{}, parse.LineError(trimNewline(line), err)
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
		return snapshot.WorkloadNetwork{}, errNoDevices
	case d.tooLarge:
		return snapshot.WorkloadNetwork{}, fmt.Errorf("net/dev: %w", parse.ErrTooLarge)
	}
	return n, nil
}

// adder sums with an overflow check.
type adder struct{ tooLarge bool }

func (a *adder) add(to *uint64, n uint64) {
	*to += n
	a.tooLarge = a.tooLarge || *to < n
}
