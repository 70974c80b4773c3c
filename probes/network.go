package probes

import (
	"errors"

	"github.com/prometheus/procfs"
)

var (
	errNoTCP     = errors.New("no count of TCP's segments in /proc/1/net/snmp")
	errNoListen  = errors.New("no count of listen drops in /proc/1/net/netstat")
	errNoSoftnet = errors.New("no CPU in /proc/net/softnet_stat")
)

// readNetwork reads /proc/1/net/snmp and /proc/1/net/netstat.
func (h *Host) readNetwork(s *Sample) error {
	p, err := h.hostNetwork(s)
	if err != nil {
		s.Network.Absent.Because("tcp", err.Error())
		s.Network.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	var errs []error
	for _, err := range []error{s.Network.readTCP(p), s.Network.readListen(p)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return oneLine(errs)
}

func (n *Network) readTCP(p procfs.Proc) error {
	snmp, err := p.Snmp()
	if err != nil {
		n.Absent.Because("tcp", err.Error())
		return err
	}
	n.TCPSegmentsSent = n.count(snmp.Tcp.OutSegs, "tcpSegmentsSentTotal", "net/snmp")
	n.TCPRetransmits = n.count(snmp.Tcp.RetransSegs, "tcpRetransmitsTotal", "net/snmp")
	if n.TCPSegmentsSent.IsZero() && n.TCPRetransmits.IsZero() {
		return errNoTCP
	}
	return nil
}

func (n *Network) readListen(p procfs.Proc) error {
	netstat, err := p.Netstat()
	if err != nil {
		n.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	n.ListenDrops = n.count(netstat.TcpExt.ListenDrops, "listenDropsTotal", "net/netstat")
	if n.ListenDrops.IsZero() {
		return errNoListen
	}
	return nil
}

// count is a counter that the library has parsed as any number.
func (n *Network) count(from *float64, name, file string) Opt[uint64] {
	switch {
	case from == nil:
		n.Absent.Because(name, "not in /proc/1/"+file)
		return Opt[uint64]{}
	case !(*from >= 0 && *from < 1<<64): // nor not a number
		n.Absent.Because(name, "no count in /proc/1/"+file)
		return Opt[uint64]{}
	}
	return Some(uint64(*from))
}

// readSoftnet reads /proc/net/softnet_stat, which is of the whole host in any
// namespace.
func (h *Host) readSoftnet(s *Sample) error {
	cpus, err := h.proc.NetSoftnetStat()
	if err != nil {
		s.Network.Absent.Because("softnetSqueezedTotal", err.Error())
		return err
	}
	if len(cpus) == 0 {
		s.Network.Absent.Because("softnetSqueezedTotal", errNoSoftnet.Error())
		return errNoSoftnet
	}
	sum := uint64(0)
	for _, c := range cpus {
		sum += uint64(c.TimeSqueezed)
	}
	s.Network.SoftnetSqueezed = Some(sum)
	return nil
}
