package probes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// nicFacts is a NIC as it was last read.
type nicFacts struct {
	// NIC has the counters of the last read and the facts of the last look.
	snapshot.NIC
	// linkOfPorts: the driver states a speed, be it unknown, for the ports below, as team
	// does. Those that route or switch between their ports, as a VRF and Open vSwitch do,
	// state none (EINVAL).
	linkOfPorts bool
	// skippedRead is the number of the read that leaves the NIC out, counted that of
	// the last read that has it.
	skippedRead, lastRead int
}

// NetworkConfig overrides what network devices report about themselves.
type NetworkConfig struct {
	Devices []NetworkDevice `yaml:"devices" unit:"devices" why:"Devices whose driver reports no link speed or a wrong one, as most virtual ones do."`
}

// NetworkDevice overrides what one device reports.
type NetworkDevice struct {
	Name  string `yaml:"name" unit:"device" why:"The device, such as eth0."`
	Speed int    `yaml:"speed" unit:"Mbit/s" why:"Speed of its link in each direction, such as 10000. Without a speed its utilization is unknown."`
}

// maxSpeed in Mbit/s is ten times that of the fastest Ethernet.
const maxSpeed = 10_000_000

// Validate says which values must not be used.
func (c NetworkConfig) Validate(at problems.Section) {
	for i, d := range c.Devices {
		before := slices.ContainsFunc(c.Devices[:i], func(o NetworkDevice) bool { return o.Name == d.Name })
		at.Element("devices", i).Must(!before, problems.Quote(d.Name)+" is named twice", "name")
	}
}

// Validate says which values must not be used.
func (d NetworkDevice) Validate(at problems.Section) {
	at.Must(d.Name != "", "want the name of a device, such as eth0", "name")
	at.Int("speed", d.Speed, 1, maxSpeed)
}

// nicProbe reads the NICs.
type nicProbe struct {
	*registry[nicFacts]
	procfs string
	proc   procfs.FS
	speeds map[string]uint64 // configured speeds by name, in bytes per second
	lines  []byte            // reused for each read
}

// follow applies c from the next read on.
func (p *nicProbe) follow(c NetworkConfig) {
	p.speeds = map[string]uint64{}
	for _, d := range c.Devices {
		p.speeds[d.Name] = uint64(d.Speed) * bytesPerMbit
	}
}

// applyConfiguredSpeeds sets the configured speeds.
func (p *nicProbe) applyConfiguredSpeeds(nics []snapshot.NIC) {
	for i := range nics {
		n := &nics[i]
		if speed, known := p.speeds[n.Name]; known {
			n.SpeedBytesPerSecond = snapshot.Some(speed)
			n.Absent = maps.Clone(n.Absent) // later samples share it
			delete(n.Absent, "speedBytesPerSecond")
		}
	}
}

const bytesPerMbit = 1_000_000 / 8

// refreshEvery is how many reads its facts are cached. There is one veth per pod and
// no rule judges them: reading their carrier and master once in some minutes
// halves the cost of all NICs.
func (f *nicFacts) refreshEvery() int {
	if f.Kind == "veth" {
		return 10 * factsEvery
	}
	return factsEvery
}

func newNICProbe(paths Paths, proc procfs.FS) nicProbe {
	return nicProbe{registry: newRegistry[nicFacts](filepath.Join(paths.Sysfs, "class/net")), procfs: paths.Procfs, proc: proc}
}

// hostNetwork returns pid 1, whose network namespace is the host's. If an
// unprivileged user may not read it, the agent's own process serves instead,
// and an Absent has the reason.
func (p *nicProbe) hostNetwork(s *snapshot.Sample) (procfs.Proc, error) {
	first, err := p.proc.Proc(1)
	if err != nil {
		return first, err
	}
	f, err := os.Open(filepath.Join(p.procfs, "1/net/dev"))
	if err == nil {
		return first, f.Close()
	}
	if !errors.Is(err, fs.ErrPermission) {
		return first, nil // the reader of that file reports the error; other files may exist
	}
	s.Network.Absent.Because("hostNamespace", "cannot read /proc/1/net/dev (needs CAP_SYS_PTRACE): these are the devices of the agent's own network namespace")
	return p.proc.Self()
}

// read reads /proc/1/net/dev: in a pod with hostPID but without
// hostNetwork, /proc/net is the pod's own. It is opened each time, which costs
// a hundredth of what the kernel needs to print 250 lines; an open descriptor
// would pin a network namespace.
func (p *nicProbe) read(s *snapshot.Sample) error {
	of, err := p.hostNetwork(s)
	if err != nil {
		return err
	}
	path := filepath.Join(p.procfs, strconv.Itoa(of.PID), "net/dev")
	err, unlisted := p.readStable(func() (err error) {
		p.lines, err = readWhole(unix.AT_FDCWD, path, p.lines)
		return err
	})
	if err != nil {
		return err
	}
	s.NICs = make([]snapshot.NIC, 0, len(p.devices))
	const headers = 2
	n := 0
	for line := range bytes.Lines(p.lines) {
		if n++; n > headers {
			err = cmp.Or(err, p.add(s, bytes.TrimRight(line, "\n")))
		}
	}
	if n <= headers {
		err = errNoNIC
	}
	if p.changed {
		layerNICs(p.devices)
		p.changed = false
	}
	p.copyLayers(s.NICs)
	p.applyConfiguredSpeeds(s.NICs)
	if err == nil || unlisted == nil {
		return cmp.Or(err, unlisted)
	}
	return oneLine([]error{err, unlisted})
}

// add appends the NIC of one line, also one without facts: sysfs may belong
// to another network namespace.
func (p *nicProbe) add(s *snapshot.Sample, line []byte) error {
	name, c, err := parse.NetDev(line)
	if err != nil {
		return parse.LineError(line, err)
	}
	d := p.devices[string(name)]
	if d == nil {
		s.NICs = append(s.NICs, unlistedNIC(string(name), c))
		return nil
	}
	f := &d.facts
	// A list that changes while it is read may have a line twice.
	if !p.stable(d) || f.lastRead == p.reads {
		return nil
	}
	if _, onward := c.Minus(f.NICCounters); !onward || p.due(d, f.refreshEvery()) {
		p.readFacts(d)
	}
	f.NICCounters, f.lastRead = c, p.reads
	if f.skippedRead != p.reads {
		s.NICs = append(s.NICs, f.NIC)
	}
	return nil
}

func unlistedNIC(name string, c snapshot.NICCounters) snapshot.NIC {
	const why = "not in /sys/class/net, which may show another network namespace than the host's"
	return snapshot.NIC{Name: name, NICCounters: c, Absent: snapshot.Absent{"index": why, "address": why, "speedBytesPerSecond": why, "carrier": why}}
}

// copyLayers copies the layers, which are known once all NICs are read.
func (p *nicProbe) copyLayers(nics []snapshot.NIC) {
	for i := range nics {
		if d := p.devices[nics[i].Name]; d != nil {
			nics[i].Layer, nics[i].Master = d.facts.Layer, d.facts.Master
		}
	}
}

// readFacts reads the NIC's facts again.
func (p *nicProbe) readFacts(d *device[nicFacts]) {
	l := p.open(d)
	defer l.close()
	was := &d.facts
	f := nicFacts{NIC: snapshot.NIC{Name: d.name, Layer: was.Layer}}
	f.Index = fact(l, "index", "ifindex", strconv.Atoi)
	f.Address = fact(l, "address", "address", nonEmpty)
	there := nicEntries(l)
	f.Physical = there.device
	f.Lower = there.lower
	f.Kind = l.nicKind(d.name, &there, f.Index)
	f.Master = filepath.Base(l.link("master"))
	if f.Master == "." {
		f.Master = ""
	}
	f.Carrier = fact(l, "carrier", "carrier", strconv.ParseBool)
	f.SpeedBytesPerSecond = linkSpeed(l, f.Kind)
	f.linkOfPorts = len(f.Lower) > 0 && l.readable("speed")
	if l.absent["carrier"] == "carrier: "+unix.EINVAL.Error() {
		l.absent.Because("carrier", "the device is down")
	}
	f.Absent = l.absent
	made := was.Name != "" && !d.hasFacts
	if made && f.Index == was.Index && f.Address == was.Address {
		// It was re-created with the index and the address of the old one,
		// which is possible: leaving it out once starts a new series.
		f.skippedRead = p.reads
	}
	p.changed = p.changed || !d.hasFacts || !f.sameGraph(was)
	d.facts, d.hasFacts = f, true
}

// linkSpeed is in bytes per second. veth and tun report a constant of their
// driver, which is no limit.
func linkSpeed(l *deviceDir, kind string) snapshot.Opt[uint64] {
	const name = "speedBytesPerSecond"
	if kind == "veth" || kind == "tun" {
		l.absent.Because(name, "a device of this kind has no speed")
		return snapshot.Opt[uint64]{}
	}
	v := fact(l, name, "speed", parseSpeed)
	if l.absent[name] == "speed: "+unix.EINVAL.Error() {
		l.absent.Because(name, "the link is down, or a device of this kind has no speed")
	}
	return v
}

var (
	errNoNIC        = errors.New("no device in /proc/1/net/dev, not even lo")
	errEmpty        = errors.New("empty")
	errSpeedUnknown = errors.New("unknown to the driver")
)

func nonEmpty(v string) (string, error) {
	if v == "" {
		return "", errEmpty
	}
	return v, nil
}

// parseSpeed converts Mbit/s to bytes per second. -1, and 4294967295 which is
// -1 read as unsigned, mean unknown; 0 is a link that is down.
func parseSpeed(v string) (uint64, error) {
	mbit, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil:
		return 0, err
	case mbit <= 0 || mbit >= math.MaxInt32:
		return 0, fmt.Errorf("%w (%s)", errSpeedUnknown, v)
	}
	return uint64(mbit) * bytesPerMbit, nil
}
