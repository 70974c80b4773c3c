package probes

import (
	"slices"
	"strings"
)

// nicParts is what the directory of a NIC in sysfs has, as far as it tells
// what the NIC is.
type nicParts struct {
	device, bonding, bridge, tun, portName bool
	lower                                  []string
}

func nicEntries(l *look) nicParts {
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

// nicKind is what drives a NIC.
func (l *look) nicKind(name string, there *nicParts, index Opt[int]) string {
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
	// A veth has no type of its own: it is Ethernet linked to another index
	// without standing on a device of ours. Where its peer, in another
	// namespace, has the same index it passes for virtual.
	own, known := index.Get()
	peer := fact(l, "", "iflink", decimal)
	delete(l.absent, "")
	if p, ok := peer.Get(); ok && known && p != 0 && p != uint64(own) && len(there.lower) == 0 && l.ethernet() {
		return "veth"
	}
	return "virtual"
}

// deviceType is DEVTYPE of uevent, such as vlan, vxlan or wireguard.
func (l *look) deviceType() string {
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

// ethernet: tunnels have other types.
func (l *look) ethernet() bool {
	v, err := l.text("type")
	return err == nil && v == "1"
}

// representsVF: the port of a NIC's built-in switch that a VF or SF is plugged
// into (kernel Documentation/networking/switchdev.rst: pf0vf1), which counts
// again what the function counts.
func (l *look) representsVF() bool {
	name, err := l.text("phys_port_name")
	return err == nil && strings.Contains(name, "pf") && (strings.Contains(name, "vf") || strings.Contains(name, "sf"))
}

// sameGraph says whether layers that were told by was still hold.
func (f *nicFacts) sameGraph(was *nicFacts) bool {
	return f.Kind == was.Kind && f.Master == was.Master && slices.Equal(f.Lower, was.Lower)
}

// layerNICs tells each NIC's layer, so that no byte is counted by two leaves:
//   - a bond, a team or another device that makes one link of physical ports
//     is a leaf, and its ports are its paths.
//   - any other physical NIC is a leaf, also as the port of a bridge, which
//     carries what does not leave the node too.
//   - a virtual function of SR-IOV is a leaf of its own: its physical function
//     does not count its bytes. Both share one link, so that neither's
//     utilization says how full that is.
//   - all else is stacked: VLANs, bridges, veths, tunnels, and lo, since
//     nothing on lo loads a NIC.
//
// A port that leaves its bond while both stay is told by their next looks.
func layerNICs(nics map[string]*device[nicFacts]) {
	claimPorts(nics)
	links := map[string]bool{}
	for _, d := range nics {
		if master := d.facts.Master; joins(nics, master) {
			links[master] = true
		}
	}
	for name, d := range nics {
		f := &d.facts
		switch {
		case links[f.Master]:
			f.Layer = LayerPath
		case links[name], f.Kind == "bond" && len(f.Lower) == 0, bare(nics, name):
			f.Layer = LayerLeaf
		default:
			f.Layer = LayerStacked
		}
	}
}

// claimPorts tells ports of a bond their master, which they may have got since
// they were looked at, and those of a master that went that they have none.
func claimPorts(nics map[string]*device[nicFacts]) {
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

// joins says whether a device makes one link of its ports: all of them are
// physical, and it neither switches nor routes between them.
func joins(nics map[string]*device[nicFacts], master string) bool {
	d := nics[master]
	if d == nil || slices.Contains([]string{"bridge", "openvswitch", "vrf"}, d.facts.Kind) {
		return false
	}
	return len(d.facts.Lower) > 0 && !slices.ContainsFunc(d.facts.Lower, func(port string) bool { return !bare(nics, port) })
}

// bare: hardware that stands on no other device.
func bare(nics map[string]*device[nicFacts], name string) bool {
	d := nics[name]
	return d != nil && (d.facts.Kind == "physical" || d.facts.Kind == "vf") && len(d.facts.Lower) == 0
}
