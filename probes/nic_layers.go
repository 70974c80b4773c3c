package probes

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// nicParts has the entries of a NIC's directory in sysfs that show its kind.
type nicParts struct {
	device, bonding, bridge, tun, portName bool
	lower                                  []string
}

func nicEntries(l *deviceDir) nicParts {
	var p nicParts
	for _, name := range l.entries(".") {
		switch name {
		case "device":
			p.device = true
		case "bonding":
			p.bonding = true
		case "bridge":
			p.bridge = true
		case "tun_flags":
			p.tun = true
		case "phys_port_name":
			p.portName = true
		}
		if lower, ok := strings.CutPrefix(name, "lower_"); ok {
			p.lower = append(p.lower, lower)
		}
	}
	return p
}

// nicKind returns what drives a NIC.
func (l *deviceDir) nicKind(name string, there *nicParts, index snapshot.Opt[int]) string {
	switch {
	case name == "lo":
		return "loopback"
	case there.bonding:
		return "bond"
	case there.bridge:
		return "bridge"
	case there.tun:
		return "tun"
	case there.device && l.has("device/physfn"):
		return "vf"
	case there.device && there.portName && l.representsVF():
		return "representor"
	case there.device:
		return "physical"
	}
	if kind := l.deviceType(); kind != "" {
		return kind
	}
	// A veth has no DEVTYPE: it is Ethernet, linked to another index, with no
	// lower device. If its peer in another namespace has the same index, it is
	// taken for virtual.
	own, known := index.Get()
	peer := fact(l, "", "iflink", decimal)
	delete(l.absent, "")
	if p, ok := peer.Get(); ok && known && p != 0 && p != uint64(own) && len(there.lower) == 0 && l.ethernet() {
		return "veth"
	}
	return "virtual"
}

// deviceType returns DEVTYPE of uevent, such as vlan, vxlan or wireguard.
func (l *deviceDir) deviceType() string {
	text, err := l.text("uevent")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if kind, ok := strings.CutPrefix(line, "DEVTYPE="); ok {
			return strings.TrimSpace(kind)
		}
	}
	return ""
}

// ethernet reports whether the NIC has an Ethernet header; tunnels have other
// types.
func (l *deviceDir) ethernet() bool {
	v, err := l.text("type")
	return err == nil && v == "1"
}

// representsVF reports whether the NIC is the port of a built-in switch that a
// VF or SF is attached to (kernel Documentation/networking/switchdev.rst:
// pf0vf1). It counts the function's traffic again.
func (l *deviceDir) representsVF() bool {
	name, err := l.text("phys_port_name")
	return err == nil && strings.Contains(name, "pf") && (strings.Contains(name, "vf") || strings.Contains(name, "sf"))
}

// sameGraph reports whether the layers that were derived from was are still
// valid.
func (f *nicFacts) sameGraph(was *nicFacts) bool {
	return f.Kind == was.Kind && f.Master == was.Master && f.linkOfPorts == was.linkOfPorts && slices.Equal(f.Lower, was.Lower)
}

// layerNICs sets each NIC's layer, so that no two leaves count the same byte:
//   - A bond, a team or another device that makes one link of physical ports
//     is a leaf, and its ports are its paths.
//   - Any other physical NIC is a leaf, also as the port of a bridge, of Open vSwitch or
//     of a VRF, whose traffic includes what does not leave the node.
//   - A virtual function of SR-IOV is a leaf of its own: its physical function
//     does not count its bytes. Both share one link, so the utilization of
//     neither shows how full that is.
//   - All others are stacked: VLANs, bridges, veths, tunnels, and lo, whose
//     traffic uses no NIC.
//
// A port that leaves its bond while both exist is seen by their next looks.
func layerNICs(nics map[string]*device[nicFacts]) {
	assignMasters(nics)
	links := map[string]bool{}
	for _, d := range nics {
		if master := d.facts.Master; aggregates(nics, master) {
			links[master] = true
		}
	}
	for name, d := range nics {
		f := &d.facts
		switch {
		case links[f.Master]:
			f.Layer = snapshot.LayerPath
		case links[name], f.Kind == "bond" && len(f.Lower) == 0, isBareHardware(nics, name):
			f.Layer = snapshot.LayerLeaf
		default:
			f.Layer = snapshot.LayerStacked
		}
	}
}

// assignMasters sets the master of a bond's ports, which may have joined it since
// their last look, and clears a master that no longer exists.
func assignMasters(nics map[string]*device[nicFacts]) {
	for name, d := range nics {
		if nics[d.facts.Master] == nil {
			d.facts.Master = ""
		}
		if d.facts.Kind != "bond" {
			continue
		}
		for _, port := range d.facts.Lower {
			if p := nics[port]; p != nil {
				p.facts.Master = name
			}
		}
	}
}

// aggregates reports whether a device makes one link of its ports: all of them are
// physical, and it neither switches nor routes between them. A bridge states the speed of
// its fastest port.
func aggregates(nics map[string]*device[nicFacts], master string) bool {
	d := nics[master]
	if d == nil || d.facts.Kind == "bridge" || d.facts.Kind != "bond" && !d.facts.linkOfPorts {
		return false
	}
	return len(d.facts.Lower) > 0 && !slices.ContainsFunc(d.facts.Lower, func(port string) bool { return !isBareHardware(nics, port) })
}

// isBareHardware reports whether a NIC is hardware without a lower device.
func isBareHardware(nics map[string]*device[nicFacts], name string) bool {
	d := nics[name]
	return d != nil && (d.facts.Kind == "physical" || d.facts.Kind == "vf") && len(d.facts.Lower) == 0
}
