package probes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// madeUpDisks is a machine with a disk for each key, made up, with its files
// and links below /sys/block; all did something.
func madeUpDisks(t *testing.T, disks map[string]map[string]string) *machineTree {
	t.Helper()
	m := &machineTree{T: t, dir: t.TempDir()}
	m.write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n")
	var lines strings.Builder
	for i, name := range slices.Sorted(maps.Keys(disks)) {
		fmt.Fprintf(&lines, " %d %d %s 1 0 8 1 1 0 8 1 0 1 2\n", 200, i, strings.ReplaceAll(name, "!", "/"))
		m.write("sys/block/"+name+"/size", "2048\n")
		m.write("sys/block/"+name+"/diskseq", fmt.Sprintln(i+1))
		m.write("sys/block/"+name+"/queue/rotational", "0\n")
		for file, content := range disks[name] {
			m.put("sys/block/"+name+"/"+file, content)
		}
	}
	m.write("proc/diskstats", lines.String())
	return m
}

// put writes a file, or a link where the content starts with ->.
func (m *machineTree) put(path, content string) {
	m.Helper()
	to, ok := strings.CutPrefix(content, "->")
	if !ok {
		m.write(path, content)
		return
	}
	require.NoError(m, os.MkdirAll(filepath.Dir(m.path(path)), 0o755))
	require.NoError(m, os.Symlink(to, m.path(path)))
}

type graphNode struct {
	kind   string
	slaves []string
	layer  snapshot.Layer
}

func diskGraph(s *snapshot.Sample) map[string]graphNode {
	graph := map[string]graphNode{}
	for _, d := range s.Disks {
		graph[d.Name] = graphNode{d.Kind, d.Slaves, d.Layer}
	}
	return graph
}

func TestDiskLayers(t *testing.T) {
	t.Run("LVM on crypt", diskLayersLVMOnCrypt)
	t.Run("multipath", diskLayersMultipath)
	t.Run("NVMe multipath", diskLayersNVMeMultipath)
	t.Run("of each kind", diskLayersOfEachKind)
	t.Run("while set up", diskLayersWhileSetUp)
	t.Run("multipath head removed", diskLayersMultipathHeadRemoved)
	t.Run("multipath of loops", diskLayersMultipathOfLoops)
	t.Run("no leaf on leaf", diskLayersNoLeafOnLeaf)
}

func diskLayersLVMOnCrypt(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"nvme0n1": {"nvme0n1p3/partition": "3\n", "wwid": "eui.0025388b\n"},
		"dm-0":    {"dm/uuid": "CRYPT-LUKS2-0123-luks\n", "slaves/nvme0n1p3": "->../../../../pci0/nvme/nvme0/nvme0n1/nvme0n1p3"},
		"dm-1":    {"dm/uuid": "LVM-abcdef\n", "slaves/dm-0": "->../../dm-0"},
		"dm-2":    {"slaves/dm-1": "->../../dm-1"},
	})
	s := m.sample()
	assert.Equal(t, map[string]graphNode{
		"nvme0n1": {"nvme", nil, snapshot.LayerLeaf},
		"dm-0":    {"crypt", []string{"nvme0n1"}, snapshot.LayerStacked},
		"dm-1":    {"lvm", []string{"dm-0"}, snapshot.LayerStacked},
		"dm-2":    {"dm", []string{"dm-1"}, snapshot.LayerStacked},
	}, diskGraph(s))
	assert.Equal(t, snapshot.Some("eui.0025388b"), diskOf(s, "nvme0n1").WWID)
	assert.Zero(t, diskOf(s, "dm-1").WWID)
}

func diskLayersMultipath(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"sda":  {"device/wwid": "naa.5000c500a\n", "holders/dm-0": "->../../dm-0"},
		"sdb":  {"device/wwid": "naa.5000c500a\n"},
		"sdc":  {"device/wwid": "naa.5000c500b\n"},
		"dm-0": {"dm/uuid": "mpath-35000c500a\n", "slaves/sda": "->../../sda", "slaves/sdb": "->../../sdb"},
		"dm-1": {"dm/uuid": "part1-mpath-35000c500a\n", "slaves/dm-0": "->../../dm-0"},
	})
	s := m.sample()
	assert.Equal(t, map[string]graphNode{
		"sda":  {"disk", nil, snapshot.LayerPath},
		"sdb":  {"disk", nil, snapshot.LayerPath},
		"sdc":  {"disk", nil, snapshot.LayerLeaf},
		"dm-0": {"multipath", []string{"sda", "sdb"}, snapshot.LayerLeaf},
		"dm-1": {"dm", []string{"dm-0"}, snapshot.LayerStacked},
	}, diskGraph(s))
	assert.Equal(t, diskOf(s, "sda").WWID, diskOf(s, "sdb").WWID)
}

func diskLayersNVMeMultipath(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"nvme0n1": {"wwid": "uuid.1\n"}, "nvme0c0n1": {"hidden": "1\n"}, "nvme0c1n1": {"hidden": "1\n"},
	})
	m.write("proc/diskstats", " 259 0 nvme0n1 1 0 8 1 1 0 8 1 0 1 2\n")
	s := m.sample()
	assert.Equal(t, map[string]graphNode{"nvme0n1": {"nvme", nil, snapshot.LayerLeaf}}, diskGraph(s))
	assert.Empty(t, probeError(t, s, "disks"))
}

func diskLayersOfEachKind(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"sda": nil, "sdb": nil, "vda": nil, "ram0": nil, "zram0": nil, "sr0": {"removable": "1\n"}, "sram": nil, "nbd0": nil, "cciss!c0d0": nil,
		"drbd0": nil, "zd16": nil,
		"md127":   {"slaves/sda1": "->../../sda/sda1", "slaves/sda2": "->../../sda/sda2", "slaves/sdb": "->../../sdb", "md/level": "raid1\n"},
		"loop0":   {"loop/backing_file": "/var/lib/snapd/a.snap\n"},
		"loop1":   {"loop/backing_file": "/dev/sdb\n"},
		"bcache0": {"slaves/vda": "->../../vda"},
	})
	graph := diskGraph(m.sample())
	assert.Equal(t, map[string]graphNode{
		"sda": {"disk", nil, snapshot.LayerLeaf}, "sdb": {"disk", nil, snapshot.LayerLeaf}, "vda": {"disk", nil, snapshot.LayerLeaf}, "sram": {"disk", nil, snapshot.LayerLeaf},
		"nbd0": {"disk", nil, snapshot.LayerLeaf}, "cciss/c0d0": {"disk", nil, snapshot.LayerLeaf},
		"ram0": {"ram", nil, snapshot.LayerLeaf}, "zram0": {"zram", nil, snapshot.LayerLeaf}, "sr0": {"rom", nil, snapshot.LayerLeaf},
		"drbd0": {"drbd", nil, snapshot.LayerStacked}, "zd16": {"zvol", nil, snapshot.LayerStacked},
		"md127": {"md", []string{"sda", "sdb"}, snapshot.LayerStacked},
		"loop0": {"loop", nil, snapshot.LayerStacked}, "loop1": {"loop", []string{"sdb"}, snapshot.LayerStacked},
		"bcache0": {"disk", []string{"vda"}, snapshot.LayerStacked},
	}, graph)
}

// dmsetup makes the device, loads its table, and only then has it slaves.
func diskLayersWhileSetUp(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{"sda": nil, "sdb": nil})
	h := m.host()
	mustSample(t, h)
	m.write("sys/block/dm-0/dm/uuid", "mpath-1\n")
	m.write("proc/diskstats", m.read("proc/diskstats")+" 252 0 dm-0 1 0 8 1 1 0 8 1 0 1 2\n")
	graph := diskGraph(mustSample(t, h))
	require.Equal(t, graphNode{"multipath", nil, snapshot.LayerStacked}, graph["dm-0"])
	m.put("sys/block/dm-0/slaves/sda", "->../../sda")
	m.put("sys/block/dm-0/slaves/sdb", "->../../sdb")
	graph = diskGraph(mustSample(t, h))
	assert.Equal(t, graphNode{"multipath", []string{"sda", "sdb"}, snapshot.LayerLeaf}, graph["dm-0"])
	assert.Equal(t, snapshot.LayerPath, graph["sda"].layer, "at once, though nothing of its own changed")
	assert.Equal(t, snapshot.LayerPath, graph["sdb"].layer)
}

func diskLayersMultipathHeadRemoved(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"sda": nil, "dm-0": {"dm/uuid": "mpath-1\n", "slaves/sda": "->../../sda"},
	})
	h := m.host()
	require.Equal(t, snapshot.LayerPath, diskOf(mustSample(t, h), "sda").Layer)
	m.remove("sys/block/dm-0")
	s := mustSample(t, h)
	assert.Nil(t, diskOf(s, "dm-0"))
	assert.Equal(t, snapshot.LayerLeaf, diskOf(s, "sda").Layer)
}

func diskLayersMultipathOfLoops(t *testing.T) {
	m := madeUpDisks(t, map[string]map[string]string{
		"vda": nil, "loop0": {"loop/backing_file": "/a\n"}, "loop1": {"loop/backing_file": "/b\n"},
		"dm-0": {"dm/uuid": "mpath-1\n", "slaves/loop0": "->../../loop0", "slaves/loop1": "->../../loop1"},
	})
	graph := diskGraph(m.sample())
	assert.Equal(t, snapshot.LayerStacked, graph["dm-0"].layer)
	assert.Equal(t, snapshot.LayerStacked, graph["loop0"].layer)
	assert.Equal(t, snapshot.LayerLeaf, graph["vda"].layer)
}

// Whatever the graph, also one that no kernel makes: from no leaf does a chain
// of slaves lead to another leaf, so that adding leaves counts no IO twice.
func diskLayersNoLeafOnLeaf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		disks := anyDisks(rnd)
		layerDisks(disks)
		noLeafOverLeaf(t, slices.Sorted(maps.Keys(disks)),
			func(name string) snapshot.Layer { return disks[name].facts.Layer }, func(name string) []string { return disks[name].facts.Slaves })
	}
}

// anyDisks stand on any of those before them.
func anyDisks(rnd *rand.Rand) map[string]*device[diskFacts] {
	names := []string{"sda", "sdb", "nvme0n1", "loop0", "dm-0", "dm-1", "dm-2", "md0", "drbd0"}
	targets := []string{"lvm", "crypt", "multipath", "multipath", "dm"}
	disks := map[string]*device[diskFacts]{}
	for i, name := range names {
		d := &device[diskFacts]{name: name, hasFacts: true}
		if d.facts.Kind = kindByName(name); d.facts.Kind == "dm" {
			d.facts.Kind = targets[rnd.IntN(len(targets))]
		}
		for _, below := range names[:i] {
			if i > 2 && rnd.IntN(4) == 0 {
				d.facts.Slaves = append(d.facts.Slaves, below)
			}
		}
		disks[name] = d
	}
	return disks
}

func noLeafOverLeaf(t *testing.T, names []string, layer func(string) snapshot.Layer, below func(string) []string) {
	t.Helper()
	for _, name := range names {
		for under := range reach(name, below) {
			require.False(t, layer(name) == snapshot.LayerLeaf && layer(under) == snapshot.LayerLeaf, "%s over %s", name, under)
		}
	}
}

// reach is all below a device, by the slow way.
func reach(name string, below func(string) []string) map[string]bool {
	all := map[string]bool{}
	for _, next := range below(name) {
		all[next] = true
		maps.Copy(all, reach(next, below))
	}
	return all
}
