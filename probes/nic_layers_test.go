package probes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// madeUpNICs is a machine with a NIC for each key, made up, with its files and
// links below /sys/class/net.
func madeUpNICs(t *testing.T, nics map[string]map[string]string) *machineTree {
	t.Helper()
	m := &machineTree{T: t, dir: t.TempDir()}
	m.write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n")
	lines := "Inter-| Receive\n face |bytes\n"
	for i, name := range slices.Sorted(maps.Keys(nics)) {
		lines += netDevLine(name, 1000)
		for file, content := range map[string]string{
			"ifindex": fmt.Sprintln(i + 1), "address": fmt.Sprintf("02:00:00:00:00:%02x\n", i+1), "iflink": fmt.Sprintln(i + 1),
			"speed": "10000\n", "carrier": "1\n", "type": "1\n", "uevent": "INTERFACE=" + name + "\n",
		} {
			m.write("sys/class/net/"+name+"/"+file, content)
		}
		for file, content := range nics[name] {
			m.put("sys/class/net/"+name+"/"+file, content)
		}
	}
	m.write("proc/1/net/dev", lines)
	return m
}

func netDevLine(name string, n uint64) string {
	return fmt.Sprintf("%6s: %d 2 0 0 0 0 0 0 %d 2 0 0 0 0 0 0\n", name, n, n)
}

type nicNode struct {
	kind, master string
	lower        []string
	layer        snapshot.Layer
}

func nicGraph(s *snapshot.Sample) map[string]nicNode {
	graph := map[string]nicNode{}
	for _, n := range s.NICs {
		graph[n.Name] = nicNode{n.Kind, n.Master, n.Lower, n.Layer}
	}
	return graph
}

func physical(more ...string) map[string]string {
	files := map[string]string{"device/vendor": "0x8086\n"}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

func TestNICLayers(t *testing.T) {
	t.Run("bond", nicLayersBond)
	t.Run("bridge port", nicLayersBridgePort)
	t.Run("team and synthetic", nicLayersTeamAndSynthetic)
	t.Run("virtual function", nicLayersVirtualFunction)
	t.Run("bond of VLANs", nicLayersBondOfVLANs)
	t.Run("port enslaved later", nicLayersPortEnslavedLater)
	t.Run("no leaf on leaf", nicLayersNoLeafOnLeaf)
}

func nicLayersBond(t *testing.T) {
	s := madeUpNICs(t, map[string]map[string]string{
		"lo":       {"type": "772\n"},
		"eth0":     physical("master", "->../bond0", "upper_bond0", "->../bond0"),
		"eth1":     physical("master", "->../bond0"),
		"eth2":     physical(),
		"bond0":    {"bonding/mode": "802.3ad 4\n", "lower_eth0": "->../eth0", "lower_eth1": "->../eth1", "uevent": "DEVTYPE=bond\n", "master": "->../br0"},
		"bond0.7":  {"uevent": "DEVTYPE=vlan\nINTERFACE=bond0.7\n", "lower_bond0": "->../bond0"},
		"br0":      {"bridge/stp_state": "0\n", "lower_bond0": "->../bond0", "lower_veth1": "->../veth1", "speed": "-1\n"},
		"veth1":    {"iflink": "2\n", "master": "->../br0"},
		"tap0":     {"tun_flags": "0x1002\n", "speed": "10\n"},
		"wg0":      {"uevent": "DEVTYPE=wireguard\n", "type": "65534\n"},
		"tunl0":    {"iflink": "0\n", "type": "768\n"},
		"ip6tnl1":  {"iflink": "4\n", "type": "769\n"},
		"macvlan0": {"iflink": "4\n", "lower_eth2": "->../eth2"},
	}).sample()
	assert.Equal(t, map[string]nicNode{
		"lo":       {"loopback", "", nil, snapshot.LayerStacked},
		"eth0":     {"physical", "bond0", nil, snapshot.LayerPath},
		"eth1":     {"physical", "bond0", nil, snapshot.LayerPath},
		"eth2":     {"physical", "", nil, snapshot.LayerLeaf},
		"bond0":    {"bond", "br0", []string{"eth0", "eth1"}, snapshot.LayerLeaf},
		"bond0.7":  {"vlan", "", []string{"bond0"}, snapshot.LayerStacked},
		"br0":      {"bridge", "", []string{"bond0", "veth1"}, snapshot.LayerStacked},
		"veth1":    {"veth", "br0", nil, snapshot.LayerStacked},
		"tap0":     {"tun", "", nil, snapshot.LayerStacked},
		"wg0":      {"wireguard", "", nil, snapshot.LayerStacked},
		"tunl0":    {"virtual", "", nil, snapshot.LayerStacked},
		"ip6tnl1":  {"virtual", "", nil, snapshot.LayerStacked},
		"macvlan0": {"virtual", "", []string{"eth2"}, snapshot.LayerStacked},
	}, nicGraph(s))
	for _, name := range []string{"veth1", "tap0"} {
		assert.Zero(t, nicOf(s, name).SpeedBytesPerSecond, "the driver's constant is no limit: %s", name)
		assert.Equal(t, "a device of this kind has no speed", nicOf(s, name).Absent["speedBytesPerSecond"])
	}
	assert.Equal(t, snapshot.Some(true), nicOf(s, "eth0").Carrier)
}

func nicLayersBridgePort(t *testing.T) {
	m := madeUpNICs(t, map[string]map[string]string{
		"eth0":       physical("master", "->../br0"),
		"eth1":       physical("master", "->../ovs-system"),
		"eth2":       physical("master", "->../red"),
		"br0":        {"bridge/stp_state": "0\n", "lower_eth0": "->../eth0"},
		"ovs-system": {"lower_eth1": "->../eth1"},
		"red":        {"lower_eth2": "->../eth2"},
	})
	for _, master := range []string{"ovs-system", "red"} {
		m.unreadable("sys/class/net/" + master + "/speed")
	}
	graph := nicGraph(m.sample())
	for _, leaf := range []string{"eth0", "eth1", "eth2"} {
		assert.Equal(t, snapshot.LayerLeaf, graph[leaf].layer, leaf)
	}
	for _, stacked := range []string{"br0", "ovs-system", "red"} {
		assert.Equal(t, snapshot.LayerStacked, graph[stacked].layer, stacked)
	}
}

// A team has no directory of its own; the synthetic NIC of a cloud's machine
// has a virtual function as its port, and counts what that carries.
func nicLayersTeamAndSynthetic(t *testing.T) {
	graph := nicGraph(madeUpNICs(t, map[string]map[string]string{
		"eth0":  physical("master", "->../team0"),
		"eth1":  physical("master", "->../team0"),
		"team0": {"lower_eth0": "->../eth0", "lower_eth1": "->../eth1", "speed": "-1\n"},
		"eth5":  physical("lower_enP1", "->../enP1"),
		"enP1":  physical("master", "->../eth5", "device/physfn/vendor", "0x15b3\n"),
	}).sample())
	assert.Equal(t, snapshot.LayerLeaf, graph["team0"].layer)
	assert.Equal(t, snapshot.LayerPath, graph["eth0"].layer)
	assert.Equal(t, snapshot.LayerPath, graph["eth1"].layer)
	assert.Equal(t, nicNode{"physical", "", []string{"enP1"}, snapshot.LayerLeaf}, graph["eth5"])
	assert.Equal(t, nicNode{"vf", "eth5", nil, snapshot.LayerPath}, graph["enP1"])
}

func nicLayersVirtualFunction(t *testing.T) {
	graph := nicGraph(madeUpNICs(t, map[string]map[string]string{
		"ens1":    physical("device/sriov_numvfs", "2\n", "phys_port_name", "p0\n"),
		"ens1v0":  physical("device/physfn/vendor", "0x8086\n"),
		"ens1_0":  physical("phys_port_name", "pf0vf0\n"),
		"ens1sf1": physical("phys_port_name", "pf0sf88\n"),
	}).sample())
	assert.Equal(t, nicNode{"physical", "", nil, snapshot.LayerLeaf}, graph["ens1"])
	assert.Equal(t, nicNode{"vf", "", nil, snapshot.LayerLeaf}, graph["ens1v0"])
	assert.Equal(t, nicNode{"representor", "", nil, snapshot.LayerStacked}, graph["ens1_0"], "it counts what the function counts")
	assert.Equal(t, nicNode{"representor", "", nil, snapshot.LayerStacked}, graph["ens1sf1"])
}

// Its ports' physical devices carry other VLANs too: they are what is judged.
func nicLayersBondOfVLANs(t *testing.T) {
	graph := nicGraph(madeUpNICs(t, map[string]map[string]string{
		"eth0":   physical(),
		"eth0.5": {"uevent": "DEVTYPE=vlan\n", "lower_eth0": "->../eth0", "master": "->../bond0"},
		"bond0":  {"bonding/mode": "active-backup 1\n", "lower_eth0.5": "->../eth0.5"},
		"bond1":  {"bonding/mode": "active-backup 1\n"},
	}).sample())
	assert.Equal(t, snapshot.LayerLeaf, graph["eth0"].layer)
	assert.Equal(t, snapshot.LayerStacked, graph["eth0.5"].layer)
	assert.Equal(t, snapshot.LayerStacked, graph["bond0"].layer)
	assert.Equal(t, snapshot.LayerLeaf, graph["bond1"].layer, "without a port there is nothing that it repeats")
}

func nicLayersPortEnslavedLater(t *testing.T) {
	m := madeUpNICs(t, map[string]map[string]string{"eth0": physical(), "eth1": physical()})
	h := m.host()
	require.Equal(t, snapshot.LayerLeaf, nicGraph(mustSample(t, h))["eth0"].layer)
	m.write("sys/class/net/bond0/bonding/mode", "802.3ad 4\n")
	m.write("sys/class/net/bond0/ifindex", "9\n")
	m.write("proc/1/net/dev", m.read("proc/1/net/dev")+netDevLine("bond0", 0))
	require.Equal(t, snapshot.LayerLeaf, nicGraph(mustSample(t, h))["bond0"].layer)
	m.put("sys/class/net/bond0/lower_eth0", "->../eth0")
	m.put("sys/class/net/eth0/master", "->../bond0")
	graph := nicGraph(mustSample(t, h))
	assert.Equal(t, nicNode{"physical", "bond0", nil, snapshot.LayerPath}, graph["eth0"], "though eth0 itself is not due")
	assert.Equal(t, snapshot.LayerLeaf, graph["eth1"].layer)
	m.remove("sys/class/net/bond0")
	m.write("proc/1/net/dev", strings.ReplaceAll(m.read("proc/1/net/dev"), netDevLine("bond0", 0), ""))
	m.remove("sys/class/net/eth0/master")
	assert.Equal(t, nicNode{"physical", "", nil, snapshot.LayerLeaf}, nicGraph(mustSample(t, h))["eth0"])
}

// Whatever the graph, also one that no kernel makes: from no leaf does a chain
// of lower devices or ports lead to another leaf.
func nicLayersNoLeafOnLeaf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		nics := anyNICs(rnd)
		layerNICs(nics)
		noLeafOverLeaf(t, slices.Sorted(maps.Keys(nics)),
			func(name string) snapshot.Layer { return nics[name].facts.Layer }, func(name string) []string { return nics[name].facts.Lower })
	}
}

// anyNICs stand on any of those before them, as VLANs do or as masters do.
func anyNICs(rnd *rand.Rand) map[string]*device[nicFacts] {
	names := []string{"eth0", "eth1", "eth2", "vlan0", "bond0", "team0", "bond1", "br0"}
	kinds := []string{"physical", "physical", "vf", "vlan", "bond", "virtual", "bond", "bridge"}
	nics := map[string]*device[nicFacts]{}
	for i, name := range names {
		d := &device[nicFacts]{name: name, hasFacts: true}
		d.facts.Kind, d.facts.linkOfPorts = kinds[i], rnd.IntN(4) > 0
		for _, below := range names[:i] {
			port := &nics[below].facts
			if rnd.IntN(3) > 0 || (d.facts.Kind != "vlan" && port.Master != "") {
				continue // a port has one master
			}
			d.facts.Lower = append(d.facts.Lower, below)
			if d.facts.Kind != "vlan" {
				port.Master = name
			}
		}
		nics[name] = d
	}
	return nics
}
