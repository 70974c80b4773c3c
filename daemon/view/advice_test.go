package view

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// resources are all that a verdict can be about, and what is none of them.
func resources() []plugins.Resource {
	return []plugins.Resource{plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.Filesystem, plugins.CPU, "numa"}
}

// allAdvice is each advice that there is.
func allAdvice() []Advice {
	s := &State{Snapshot: &snapshot.Snapshot{NICs: []snapshot.NICState{{NIC: snapshot.NIC{Name: "eth0"}}}}, Levels: &plugins.Levels{}}
	list := []Advice{
		StaleAlarm("").Advice, ConfigAlarm("").Advice, ConnectionAlarm("", "").Advice, RoundsAlarm(1).Advice, UnsavedAlarm(1, "").Advice, MissedAlarm(1, "").Advice, ProbesAdvice(), RivalsAdvice(),
		UnjudgedAdvice(s, &plugins.Unjudged{Resource: plugins.Disk}), CulpritAdvice("memory", "pod", "shop/ReplicaSet/cart"), CulpritAdvice("disk", "service", "copy.service"),
	}
	for _, v := range []plugins.Verdict{{Level: plugins.Soft}, {Level: plugins.Hard}, {Level: plugins.Soft, PerWorkload: true}, {Partial: true}, {Absent: "x"}, {Absent: "x", Scope: "eth0"}} {
		for _, r := range resources() {
			v.Resource = r
			a, _ := AdviceOf(s, &v) // each of these has one
			list = append(list, a)
		}
	}
	for _, state := range []snapshot.ContentionState{snapshot.ContentionPresent, snapshot.ContentionUnknown} {
		for _, r := range []snapshot.SharedResource{snapshot.SharedDisk, snapshot.SharedMemory, snapshot.SharedNetwork, snapshot.SharedCPU} {
			a, _ := ContentionAdvice(s, &snapshot.Contention{Resource: r, State: state}) // each of these has one
			list = append(list, a)
		}
	}
	return list
}

func TestAdviceLinksExist(t *testing.T) {
	noWord := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, a := range allAdvice() {
		assert.NotEmpty(t, a.Do)
		file, anchor, found := strings.Cut(a.Doc, "#")
		require.True(t, found, "%q", a.Doc)
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		require.NoError(t, err)
		headings := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
			headings[strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
		assert.True(t, headings[anchor], "%s has no heading %s", file, anchor)
		assert.Equal(t, documents+a.Doc, a.URL())
	}
}

func TestAdvice(t *testing.T) {
	s := &State{
		Snapshot: &snapshot.Snapshot{NICs: []snapshot.NICState{{NIC: snapshot.NIC{Name: "eth0"}}, {NIC: snapshot.NIC{Name: "eth1", SpeedBytesPerSecond: snapshot.Some[uint64](1)}}}},
		Levels: &plugins.Levels{Verdicts: []plugins.Verdict{
			{Plugin: "network-contention", Resource: plugins.NetworkIO, Scope: "eth0", Absent: "its speed is unknown"},
			{Plugin: "network-contention", Resource: plugins.NetworkIO, Scope: "eth1", Absent: "too few segments"},
			{Plugin: "disk-contention", Resource: plugins.Disk, Scope: "sda", Partial: true},
			{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node"},
		}},
	}
	do := func(plugin, scope string, r plugins.Resource) string {
		return UnjudgedAdvice(s, &plugins.Unjudged{Plugin: plugin, Scope: scope, Resource: r}).Do
	}
	assert.Contains(t, do("network-contention", "eth0", plugins.NetworkIO), "network.devices")
	assert.Contains(t, do("network-contention", "eth1", plugins.NetworkIO), "plimsoll doctor")
	assert.Contains(t, do("disk-contention", "sda", plugins.Disk), "Wait")
	assert.Contains(t, do("", "", plugins.CPU), "Enable a rule")
	_, some := AdviceOf(s, &s.Levels.Verdicts[3])
	assert.False(t, some, "where nothing is found nothing is to be done")
	a, _ := AdviceOf(s, &plugins.Verdict{Resource: plugins.Filesystem, Scope: "/data\x1b", Level: plugins.Soft})
	assert.Contains(t, a.Do, `/data\x1b`)

	s.Cluster = &Cluster{PodOf: func(uid string) (pods.Pod, bool) { return pods.Pod{}, uid == "du" }}
	db, du := snapshot.Party{Cgroup: "/db", Name: "db"}, snapshot.Party{Cgroup: "/du", Name: "du\x1b", PodUID: "du"}
	c := snapshot.Contention{
		Resource: snapshot.SharedDisk, State: snapshot.ContentionPresent,
		Culprits: []snapshot.Culprit{{Party: db, Share: 0.6}, {Party: du, Share: 0.3}}, Coverage: snapshot.Some(0.9), Sufferers: []snapshot.Sufferer{{Party: db}},
	}
	a, _ = ContentionAdvice(s, &c)
	assert.Equal(t, `Limit the IO of du\x1b, or move it to another disk or node.`, a.Do, "not the sufferer itself")
	for what, change := range map[string]func(c *snapshot.Contention){
		"no culprit":   func(c *snapshot.Contention) { c.Culprits = nil },
		"a small one":  func(c *snapshot.Contention) { c.Culprits = []snapshot.Culprit{{Party: du, Share: 0.19}} },
		"low coverage": func(c *snapshot.Contention) { c.Coverage = snapshot.Some(0.1) },
	} {
		c := c
		change(&c)
		a, _ = ContentionAdvice(s, &c)
		assert.Contains(t, a.Do, "no workload but the one that waits accounts for enough of it", what)
	}
	c.Coverage = snapshot.Opt[float64]{}
	a, _ = ContentionAdvice(s, &c)
	assert.Contains(t, a.Do, "du", "of several links the coverage is not known")
	for resource, doctor := range map[snapshot.SharedResource]bool{snapshot.SharedNetwork: false, snapshot.SharedDisk: true} {
		a, _ = ContentionAdvice(s, &snapshot.Contention{Resource: resource, State: snapshot.ContentionUnknown})
		assert.Equal(t, doctor, strings.Contains(a.Do, "plimsoll doctor"), "no kernel tells who waits for a link: %s", a.Do)
	}
	_, some = ContentionAdvice(s, &snapshot.Contention{State: snapshot.ContentionBusy})
	assert.False(t, some)
}

func TestAdviceRestrains(t *testing.T) {
	known := map[string]pods.Pod{
		"du":     {Namespace: "batch", Name: "du"},
		"etcd":   {Namespace: "kube-system", Name: "etcd", Protections: []pods.Protection{{Code: pods.Static}, {Code: pods.Namespace}}},
		"logs":   {Namespace: "logging", Name: "logs", Protections: []pods.Protection{{Code: pods.DaemonSet}}},
		"backup": {Namespace: "velero", Name: "backup", Protections: []pods.Protection{{Code: pods.Mover}}},
	}
	inCluster := &Cluster{PodOf: func(uid string) (pods.Pod, bool) { p, is := known[uid]; return p, is }}
	party := func(name, uid string) snapshot.Party {
		return snapshot.Party{Cgroup: "/" + name, Name: name, PodUID: uid}
	}
	of := func(p snapshot.Party, r plugins.Resource) snapshot.Contention {
		return snapshot.Contention{Resource: snapshot.SharedResource(r), State: snapshot.ContentionPresent, Culprits: []snapshot.Culprit{{Party: p, Share: 0.9}}, Sufferers: []snapshot.Sufferer{{Party: party("db", "db")}}}
	}
	const look, find = "See what ", "Find out on the node"
	for _, r := range []plugins.Resource{plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.CPU} {
		for name, c := range map[string]struct {
			party   snapshot.Party
			cluster *Cluster
			may     bool
		}{
			"a pod":                        {party("du", "du"), inCluster, true},
			"no pod":                       {party("kubelet.service", ""), inCluster, false},
			"a static pod":                 {party("etcd", "etcd"), inCluster, false},
			"of a DaemonSet":               {party("logs", "logs"), inCluster, false},
			"a mover":                      {party("backup", "backup"), inCluster, false},
			"a pod that is not listed yet": {party("pod 7", "7"), inCluster, false},
			"a standalone agent":           {party("pod du", "du"), nil, false},
		} {
			t.Run(string(r)+", "+name, func(t *testing.T) {
				contention := of(c.party, r)
				s := &State{Snapshot: &snapshot.Snapshot{}, Cluster: c.cluster}
				v := plugins.Verdict{Resource: r, Level: plugins.Soft, Candidates: []plugins.Candidate{{Cgroup: c.party.Cgroup, Name: c.party.Name, PodUID: c.party.PodUID}}}
				byCandidate, _ := AdviceOf(s, &v)
				v.Candidates = nil
				none, _ := AdviceOf(s, &v)
				assert.True(t, strings.HasPrefix(none.Do, find), "neither a candidate nor a culprit: %s", none.Do)
				s.Snapshot.Contention = []snapshot.Contention{contention}
				byCulprit, _ := AdviceOf(s, &v)
				byContention, _ := ContentionAdvice(s, &contention)
				for _, a := range []Advice{byCandidate, byCulprit, byContention} {
					assert.Equal(t, !c.may, strings.HasPrefix(a.Do, look), a.Do)
					assert.Contains(t, a.Do, c.party.Name)
					assert.Equal(t, c.may, strings.Contains(a.Do, "move it to another"), a.Do)
					assert.Equal(t, c.may && r == plugins.Memory, strings.Contains(a.Do, "set its limit above what it uses"), a.Do)
				}
			})
		}
	}
	t.Run("the culprit of another disk is none", func(t *testing.T) {
		c := of(party("du", "du"), plugins.Disk)
		c.Device = "sdb"
		s := &State{Snapshot: &snapshot.Snapshot{Contention: []snapshot.Contention{c}}, Cluster: inCluster}
		a, _ := AdviceOf(s, &plugins.Verdict{Resource: plugins.Disk, Scope: "sda", Level: plugins.Soft})
		assert.True(t, strings.HasPrefix(a.Do, find), a.Do)
		a, _ = AdviceOf(s, &plugins.Verdict{Resource: plugins.Disk, Scope: "sdb", Level: plugins.Soft})
		assert.Contains(t, a.Do, "Limit the IO of batch/du")
	})
	t.Run("a filesystem: nothing is to be deleted unseen", func(t *testing.T) {
		a, _ := AdviceOf(&State{}, &plugins.Verdict{Resource: plugins.Filesystem, Scope: "/", Level: plugins.Hard})
		assert.True(t, strings.HasPrefix(a.Do, "Find what fills it (du -x /)"), a.Do)
	})
	t.Run("a culprit on several nodes, by its owner", func(t *testing.T) {
		for owner, may := range map[string]bool{
			"shop/ReplicaSet/cart": true, "shop/cart-0": false, "logging/DaemonSet/logs": false, "kube-system/ReplicaSet/dns": false, "shop/Node/n1": false, "backups/DataUpload/x": false,
		} {
			assert.Equal(t, may, strings.HasPrefix(CulpritAdvice("disk", "pod", owner).Do, "Limit"), owner)
			assert.True(t, strings.HasPrefix(CulpritAdvice("disk", "service", owner).Do, look), owner)
		}
	})
}

func TestTowardsThreshold(t *testing.T) {
	for name, c := range map[string]struct {
		operator, unit      string
		observed, threshold float64
		want                float64
	}{
		"half of the stall":                    {">=", "ratio", 0.05, 0.1, 0.5},
		"no stall":                             {">=", "ratio", 0, 0.1, 0},
		"past it is all of it":                 {">=", "ratio", 0.95, 0.1, 1},
		"await":                                {">=", "seconds", 0.005, 0.02, 0.25},
		"all memory available":                 {"<", "ratio", 1, 0.1, 0},
		"a tenth of it available":              {"<", "ratio", 0.1, 0.1, 1},
		"more than half used":                  {"<", "ratio", 0.55, 0.1, 0.5},
		"bytes that are left":                  {"<", "bytes", 400, 100, 0.25},
		"no bytes left":                        {"<=", "bytes", 0, 100, 1},
		"above nothing":                        {">", "pages", 5, 0, 1},
		"nothing above nothing":                {">", "pages", 0, 0, 0},
		"a threshold that all of it available": {"<", "ratio", 0.5, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := TowardsThreshold(&plugins.Verdict{Observed: snapshot.Some(c.observed), Threshold: snapshot.Some(c.threshold), Operator: c.operator, Unit: c.unit})
			assert.True(t, known)
			assert.InDelta(t, c.want, got, 1e-9)
		})
	}
	for name, v := range map[string]plugins.Verdict{
		"not observed":        {Threshold: snapshot.Some(1.0), Operator: ">="},
		"no threshold":        {Observed: snapshot.Some(1.0), Operator: ">="},
		"a negative value":    {Observed: snapshot.Some(-1.0), Threshold: snapshot.Some(1.0), Operator: ">="},
		"an unknown operator": {Observed: snapshot.Some(1.0), Threshold: snapshot.Some(1.0), Operator: "~"},
	} {
		_, known := TowardsThreshold(&v)
		assert.False(t, known, name)
	}
}

func TestBesideText(t *testing.T) {
	assert.Equal(t, "left to that process (plugins.beside: exclusive)", BesideText("exclusive"))
	assert.Equal(t, `odd\x1b`, BesideText("odd\x1b"))
}

func TestClip(t *testing.T) {
	assert.Equal(t, `a\x1bb`, Clip("a\x1bb"))
	assert.Equal(t, strings.Repeat("ü", 64), Clip(strings.Repeat("ü", 64)))
	assert.Equal(t, strings.Repeat("ü", 64)+"…", Clip(strings.Repeat("ü", 65)))
	assert.Len(t, []rune(Clip(strings.Repeat("\x00", 10_000))), 65)
}
