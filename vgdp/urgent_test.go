package vgdp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func podOf(namespace string) func(*Load) { return func(l *Load) { l.PodNamespace = namespace } }

// frozen are loads whose pods say by a hook that they stand still.
func frozen(n int, node, namespace string) (list []Load) {
	for i := range n {
		list = append(list, load(fmt.Sprintf("%s-%s-%d", namespace, node, i), PodVolumeBackup, on(node), podOf(namespace), hooks))
	}
	return list
}

func TestHooksPassNoEarlierRestore(t *testing.T) {
	loads := append(frozen(1, "n1", "tenant"), load("z-restore", PodVolumeRestore, on("n1")))
	for wait := time.Duration(0); wait < 3*Aging; wait += 7 * time.Minute {
		loads[1].Created = at(-wait)
		for later := time.Duration(0); later <= wait; later += 7 * time.Minute {
			loads[0].Created = at(-wait + later)
			require.Equal(t, []string{"z-restore"}, admitted(Decide(world(1, nodes(1, 1), loads...))), "%s and %s later", wait, later)
		}
	}
}

func TestUrgentFewPerNodeAndNamespace(t *testing.T) {
	tenant := slices.Concat(frozen(50, "n1", "a"), frozen(50, "n2", "a"), frozen(50, "n3", "a"), frozen(50, "n4", "a"), frozen(50, "n5", "a"))
	in := world(0, nodes(5, 100), tenant...)
	for i := range 5 {
		in = pressed(in, fmt.Sprintf("n%d", i+1), held(10*time.Second))
	}
	assert.Equal(t, []string{"a-n1-0", "a-n2-0", "a-n3-0", "a-n4-0"}, admitted(Decide(in)), "one on a node, four of a namespace; pressure holds the others")

	loads := slices.Concat(frozen(50, "n1", "a"), frozen(50, "n1", "b"), frozen(50, "n1", "c"))
	d := Decide(pressed(world(0, nodes(1, 100), loads...), "n1", held(10*time.Second)))
	assert.Equal(t, []string{"a-n1-0", "b-n1-0"}, admitted(d), "two on a node")
}

func TestUrgentCountsRunning(t *testing.T) {
	for _, phase := range []Phase{Accepted, Prepared, InProgress} {
		loads := frozen(2, "n1", "a")
		loads[1].Phase, loads[1].PreparedAt = phase, noon
		d := Decide(pressed(world(0, nodes(1, 9), loads...), "n1", held(10*time.Second)))
		assert.Equal(t, map[string]Code{"a-n1-0": CodePressure}, why(d), phase)
	}
}

// One that no ticket helps keeps none of its own from being urgent.
func TestUrgentNotTakenByBlockedLoad(t *testing.T) {
	for name, cannot := range map[string]func(*Load){
		"its last ticket was not used":    func(l *Load) { l.Note.Unused, l.Note.UnusedAt = 1, at(-time.Second) },
		"its node has no node-agent":      on("n9"),
		"it is cancelled":                 func(l *Load) { l.Cancel = true },
		"it ended":                        in(Failed),
		"it is another data mover's":      func(l *Load) { l.Mover = "theirs" },
		"its target is not looked up yet": func(l *Load) { l.NotReady = "its target is not looked up yet" },
	} {
		loads := frozen(2, "n1", "a")
		cannot(&loads[0])
		d := Decide(pressed(world(0, nodes(1, 9), loads...), "n1", held(10*time.Second)))
		assert.Equal(t, []string{"a-n1-1"}, admitted(d), name)
	}
}

// A tenant makes a load with a hook each minute, in as many namespaces as it
// likes; each minute one load of the node is done.
func TestOrderScheduledBesideHooks(t *testing.T) {
	in := world(1, nodes(1, 1), load("backup", PodVolumeBackup, on("n1"), made(noon)))
	for i := range 1000 {
		in.Loads = append(in.Loads, load(fmt.Sprint("hook", i), PodVolumeBackup, on("n1"), podOf(fmt.Sprint("tenant", i)), hooks, made(in.Time)))
		d := Decide(in)
		require.Len(t, d.Admit, 1)
		if d.Admit[0].Name == "backup" {
			assert.Equal(t, RankUrgent*Aging, in.Time.Sub(noon))
			return
		}
		in.Loads = slices.DeleteFunc(in.Loads, func(l Load) bool { return l.Name == d.Admit[0].Name })
		in.Time = in.Time.Add(time.Minute)
	}
	t.Error("it never went")
}
