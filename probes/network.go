package probes

// readNetwork reads /proc/1/net/snmp and /proc/1/net/netstat.
func (h *Host) readNetwork(s *Sample) error {
	p, err := h.hostNetwork(s)
	if err != nil {
		s.Network.Absent.Because("tcp", err.Error())
		return err
	}
	set := func(to *Opt[uint64], from *float64, name string) {
		if from == nil || *from < 0 {
			s.Network.Absent.Because(name, "not in /proc/net/snmp or /proc/net/netstat")
			return
		}
		*to = Some(uint64(*from))
	}
	snmp, err := p.Snmp()
	if err != nil {
		s.Network.Absent.Because("tcp", err.Error())
		return err
	}
	set(&s.Network.TCPSegmentsSent, snmp.Tcp.OutSegs, "tcpSegmentsSentTotal")
	set(&s.Network.TCPRetransmits, snmp.Tcp.RetransSegs, "tcpRetransmitsTotal")
	netstat, err := p.Netstat()
	if err != nil {
		s.Network.Absent.Because("listenDropsTotal", err.Error())
		return err
	}
	set(&s.Network.ListenDrops, netstat.TcpExt.ListenDrops, "listenDropsTotal")
	return nil
}

// readSoftnet reads /proc/net/softnet_stat, which is of the whole host in any
// namespace.
func (h *Host) readSoftnet(s *Sample) error {
	cpus, err := h.proc.NetSoftnetStat()
	if err != nil {
		s.Network.Absent.Because("softnetSqueezedTotal", err.Error())
		return err
	}
	sum := uint64(0)
	for _, c := range cpus {
		sum += uint64(c.TimeSqueezed)
	}
	s.Network.SoftnetSqueezed = Some(sum)
	return nil
}
