package probes

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// factsEvery is how many reads a NIC's facts are kept: reading speed takes
// the kernel's rtnl lock and asks the driver, which is too much for each tick.
const factsEvery = 30

// nicFacts is what sysfs says of a NIC beside its counters.
type nicFacts struct {
	index    Opt[int]
	address  Opt[string]
	physical bool
	speed    Opt[uint64]
	absent   Absent
	readAt   int
}

// hostNetwork returns the process whose network namespace is the host's: pid
// 1. Where an ordinary user may not look at it our own serves, and it is said.
func (h *Host) hostNetwork(s *Sample) (procfs.Proc, error) {
	p, err := h.proc.Proc(1)
	if err != nil {
		return p, err
	}
	f, err := os.Open(filepath.Join(h.paths.Procfs, "1/net/dev"))
	if err == nil {
		return p, f.Close()
	}
	if !errors.Is(err, fs.ErrPermission) {
		return p, nil // whoever reads it will see; the other files may be there
	}
	s.Network.Absent.Because("hostNamespace", "pid 1 may not be read: these are the devices of the agent's own network namespace")
	return h.proc.Self()
}

// readNICs reads /proc/1/net/dev: in a pod with hostPID but without
// hostNetwork /proc/net would be the pod's own.
func (h *Host) readNICs(s *Sample) error {
	p, err := h.hostNetwork(s)
	if err != nil {
		return err
	}
	devices, err := p.NetDev()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return errNoNIC
	}
	for name, l := range devices {
		n := NIC{Name: name, NICCounters: NICCounters{
			ReceiveBytes: l.RxBytes, ReceivePackets: l.RxPackets, ReceiveErrors: l.RxErrors, ReceiveDrops: l.RxDropped,
			TransmitBytes: l.TxBytes, TransmitPackets: l.TxPackets, TransmitErrors: l.TxErrors, TransmitDrops: l.TxDropped,
		}}
		f := h.factsOf(name)
		n.Index, n.Address, n.Physical, n.SpeedBytesPerSecond, n.Absent = f.index, f.address, f.physical, f.speed, f.absent
		s.NICs = append(s.NICs, n)
	}
	h.forgetNICs(devices)
	return nil
}

// factsOf keeps the slow facts for a while. The index is read each time: it is
// how a NIC that was made anew under its old name is told.
func (h *Host) factsOf(name string) nicFacts {
	dir := filepath.Join(h.paths.Sysfs, "class/net", name)
	var absent Absent
	index := readFact(&absent, "index", filepath.Join(dir, "ifindex"), strconv.Atoi)
	kept, ok := h.nics[name]
	if ok && kept.index == index && h.reads-kept.readAt < factsEvery {
		return kept
	}
	f := nicFacts{index: index, absent: absent, readAt: h.reads}
	f.address = readFact(&f.absent, "address", filepath.Join(dir, "address"), parseAddress)
	f.speed = readFact(&f.absent, "speedBytesPerSecond", filepath.Join(dir, "speed"), parseSpeed)
	if f.absent["speedBytesPerSecond"] == "speed: "+unix.EINVAL.Error() {
		f.absent.Because("speedBytesPerSecond", "the link is down, or a device of this kind has no speed")
	}
	_, err := os.Stat(filepath.Join(dir, "device"))
	f.physical = err == nil
	h.nics[name] = f
	return f
}

func (h *Host) forgetNICs(there procfs.NetDev) {
	for name := range h.nics {
		if _, ok := there[name]; !ok {
			delete(h.nics, name)
		}
	}
}

var (
	errNoNIC        = errors.New("no device in /proc/1/net/dev, where lo always is")
	errNoAddress    = errors.New("empty")
	errSpeedUnknown = errors.New("the driver does not know it")
)

func parseAddress(v string) (string, error) {
	if v == "" {
		return "", errNoAddress
	}
	return v, nil
}

// parseSpeed turns Mbit/s into bytes per second. -1, and 4294967295 which is
// the same read as unsigned, mean unknown; 0 is a link that is down.
func parseSpeed(v string) (uint64, error) {
	mbit, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil:
		return 0, err
	case mbit <= 0 || mbit >= math.MaxInt32:
		return 0, fmt.Errorf("%w (%s)", errSpeedUnknown, v)
	}
	return uint64(mbit) * 1_000_000 / 8, nil
}
