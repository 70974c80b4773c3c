package probes

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/prometheus/procfs"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
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
	for _, err := range []error{h.readTCP(&s.Network, p), h.readListen(&s.Network, p)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return oneLine(errs)
}

func (h *Host) readTCP(n *snapshot.Network, of procfs.Proc) error {
	const file = "net/snmp"
	b, err := h.files.read(strconv.Itoa(of.PID) + "/" + file)
	if err != nil {
		n.Absent.Because("tcp", err.Error())
		return err
	}
	tcp := protocol(b, "Tcp:")
	n.TCPSegmentsSent = tcp.count(n, "OutSegs", "tcpSegmentsSentTotal", file)
	n.TCPRetransmits = tcp.count(n, "RetransSegs", "tcpRetransmitsTotal", file)
	if n.TCPSegmentsSent.IsZero() && n.TCPRetransmits.IsZero() {
		return errNoTCP
	}
	return nil
}

func (h *Host) readListen(n *snapshot.Network, of procfs.Proc) error {
	const file = "net/netstat"
	b, err := h.files.read(strconv.Itoa(of.PID) + "/" + file)
	if err != nil {
		n.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	n.ListenDrops = protocol(b, "TcpExt:").count(n, "ListenDrops", "listenDropsTotal", file)
	if n.ListenDrops.IsZero() {
		return errNoListen
	}
	return nil
}

// protocolLines are the two lines of a protocol in net/snmp or net/netstat: names, and
// their values in the same order.
type protocolLines struct{ names, values []byte }

// protocol finds the lines that begin with a key.
func protocol(b []byte, key string) (l protocolLines) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		first, rest := parse.Field(line)
		switch {
		case string(first) != key:
		case l.names == nil:
			l.names = rest
		default:
			l.values = rest
			return l
		}
	}
	return l
}

// count is one value as a measurement; absent with the reason.
func (l protocolLines) count(n *snapshot.Network, name, measurement, file string) snapshot.Opt[uint64] {
	for names, values := l.names, l.values; len(names) > 0; {
		var key, value []byte
		key, names = parse.Field(names)
		value, values = parse.Field(values)
		if string(key) != name || len(value) == 0 {
			continue
		}
		v, err := parse.Uint(value)
		if err != nil {
			n.Absent.Because(measurement, "not a valid count in /proc/1/"+file)
			return snapshot.Opt[uint64]{}
		}
		return snapshot.Some(v)
	}
	n.Absent.Because(measurement, "not in /proc/1/"+file)
	return snapshot.Opt[uint64]{}
}

// readSoftnet reads /proc/net/softnet_stat, which is for the whole host in
// every network namespace.
func (h *Host) readSoftnet(s *snapshot.Sample) error {
	b, err := h.files.read("net/softnet_stat")
	if err == nil {
		h.softnet, err = parseSoftnet(b, h.softnet[:0])
	}
	if err == nil {
		s.Network.SoftnetSqueezed, err = h.squeezes.add(h.softnet)
	}
	if err != nil {
		s.Network.Absent.Because("softnetSqueezedTotal", err.Error())
	}
	return err
}

// softnetCPU is a line of softnet_stat.
type softnetCPU struct {
	cpu, squeezed uint32
	columns       int
}

// parseSoftnet parses softnet_stat (kernel net/core/net-procfs.c): columns of hexadecimal
// numbers, of which the third is time_squeeze and the thirteenth, in kernels that have
// it, the CPU. It appends to a list.
func parseSoftnet(b []byte, cpus []softnetCPU) ([]softnetCPU, error) {
	const squeezed, cpu, least = 2, cpuColumns - 1, 9
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		c := softnetCPU{cpu: uint32(len(cpus))}
		for rest := line; ; c.columns++ {
			var field []byte
			if field, rest = parse.Field(rest); len(field) == 0 {
				break
			}
			n, err := strconv.ParseUint(string(field), 16, 32)
			switch {
			case err != nil:
				return cpus, parse.LineError(line, parse.ErrNotNumber)
			case c.columns == squeezed:
				c.squeezed = uint32(n)
			case c.columns == cpu:
				c.cpu = uint32(n)
			}
		}
		if c.columns < least {
			return cpus, parse.LineError(line, parse.ErrShortLine)
		}
		cpus = append(cpus, c)
	}
	if len(cpus) == 0 {
		return cpus, errNoSoftnet
	}
	return cpus, nil
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
func (q *squeezes) add(cpus []softnetCPU) (snapshot.Opt[uint64], error) {
	if q.last == nil {
		q.last = map[uint32]uint32{}
		for _, c := range cpus {
			q.last[c.cpu] = c.squeezed
			q.total += uint64(c.squeezed)
		}
		return snapshot.Some(q.total), nil
	}
	if cpus[0].columns < cpuColumns && len(cpus) != len(q.last) {
		clear(q.last)
		for _, c := range cpus {
			q.last[c.cpu] = c.squeezed
		}
		return snapshot.Opt[uint64]{}, errWhichCPU
	}
	for _, c := range cpus {
		// A wrap at 32 bits adds little; a large decrease means another CPU's
		// line.
		more := c.squeezed - q.last[c.cpu]
		if _, known := q.last[c.cpu]; known && int32(more) >= 0 {
			q.total += uint64(more)
		}
		q.last[c.cpu] = c.squeezed
	}
	return snapshot.Some(q.total), nil
}
