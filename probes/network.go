package probes

import (
	"errors"

	"github.com/prometheus/procfs"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var (
	errNoTCP     = errors.New("no TCP segment counters in /proc/1/net/snmp")
	errNoListen  = errors.New("no ListenDrops in /proc/1/net/netstat")
	errNoSoftnet = errors.New("no CPU in /proc/net/softnet_stat")
	errWhichCPU  = errors.New("/proc/net/softnet_stat: the set of online CPUs changed, and this kernel does not number its lines by CPU")
)

// readNetwork reads /proc/1/net/snmp and /proc/1/net/netstat.
func (h *Host) readNetwork(s *snapshot.Sample) error {
	p, err := h.nics.hostNetwork(s)
	if err != nil {
		s.Network.Absent.Because("tcp", err.Error())
		s.Network.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	var errs []error
	for _, err := range []error{readTCP(&s.Network, p), readListen(&s.Network, p)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return oneLine(errs)
}

func readTCP(n *snapshot.Network, p procfs.Proc) error {
	snmp, err := p.Snmp()
	if err != nil {
		n.Absent.Because("tcp", err.Error())
		return err
	}
	n.TCPSegmentsSent = countOf(n, snmp.Tcp.OutSegs, "tcpSegmentsSentTotal", "net/snmp")
	n.TCPRetransmits = countOf(n, snmp.Tcp.RetransSegs, "tcpRetransmitsTotal", "net/snmp")
	if n.TCPSegmentsSent.IsZero() && n.TCPRetransmits.IsZero() {
		return errNoTCP
	}
	return nil
}

func readListen(n *snapshot.Network, p procfs.Proc) error {
	netstat, err := p.Netstat()
	if err != nil {
		n.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	n.ListenDrops = countOf(n, netstat.TcpExt.ListenDrops, "listenDropsTotal", "net/netstat")
	if n.ListenDrops.IsZero() {
		return errNoListen
	}
	return nil
}

// count converts a counter that the library parsed as any number.
func countOf(n *snapshot.Network, from *float64, name, file string) snapshot.Opt[uint64] {
	switch {
	case from == nil:
		n.Absent.Because(name, "not in /proc/1/"+file)
		return snapshot.Opt[uint64]{}
	case !(*from >= 0 && *from < 1<<64): // excludes NaN
		n.Absent.Because(name, "not a valid count in /proc/1/"+file)
		return snapshot.Opt[uint64]{}
	}
	return snapshot.Some(uint64(*from))
}

// readSoftnet reads /proc/net/softnet_stat, which is for the whole host in
// every network namespace.
func (h *Host) readSoftnet(s *snapshot.Sample) error {
	cpus, err := h.proc.NetSoftnetStat()
	if err == nil && len(cpus) == 0 {
		err = errNoSoftnet
	}
	if err == nil {
		s.Network.SoftnetSqueezed, err = h.squeezes.add(cpus)
	}
	if err != nil {
		s.Network.Absent.Because("softnetSqueezedTotal", err.Error())
	}
	return err
}

// squeezes adds up the counts of the CPUs, of which the kernel lists those that
// are online. A sum over the list would decrease when a CPU goes offline, and
// jump by all it ever counted when it is back, as if that had happened in the
// window. So each CPU's last count is kept.
type squeezes struct {
	last  map[uint32]uint32
	total uint64
}

// cpuColumns is the number of columns in kernels that number the lines by CPU.
const cpuColumns = 13

// add returns the total: what the CPUs at the first call had counted since
// boot, and what all CPUs counted since.
func (q *squeezes) add(cpus []procfs.SoftnetStat) (snapshot.Opt[uint64], error) {
	if q.last == nil {
		q.last = map[uint32]uint32{}
		for _, c := range cpus {
			q.last[c.Index] = c.TimeSqueezed
			q.total += uint64(c.TimeSqueezed)
		}
		return snapshot.Some(q.total), nil
	}
	if cpus[0].Width < cpuColumns && len(cpus) != len(q.last) {
		clear(q.last)
		for _, c := range cpus {
			q.last[c.Index] = c.TimeSqueezed
		}
		return snapshot.Opt[uint64]{}, errWhichCPU
	}
	for _, c := range cpus {
		// A wrap at 32 bits adds little; a large decrease means another CPU's
		// line.
		more := c.TimeSqueezed - q.last[c.Index]
		if _, known := q.last[c.Index]; known && int32(more) >= 0 {
			q.total += uint64(more)
		}
		q.last[c.Index] = c.TimeSqueezed
	}
	return snapshot.Some(q.total), nil
}
