package vgdp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// As many of each kind as asked for, prepared on nodes of their own.
func preparedOn(kind Kind, n, from int) (list []Load) {
	for i := range n {
		list = append(list, load(fmt.Sprint(kind, i), kind, in(Prepared), on(fmt.Sprint("n", from+i))))
	}
	return list
}

func TestRestoreSlot(t *testing.T) {
	for name, c := range map[string]struct {
		limit, backups, restores int
		backup, restore          bool // gets a ticket, were it alone
	}{
		"free":                                  {8, 0, 0, true, true},
		"one is left for backups":               {8, 6, 0, true, true},
		"the last one is not for backups":       {8, 7, 0, false, true},
		"a restore has it":                      {8, 7, 1, false, false},
		"restores have all but one":             {8, 0, 7, true, true},
		"restores have all":                     {8, 0, 8, false, false},
		"of those that Velero had let, eight":   {8, 8, 0, false, false},
		"two slots":                             {2, 1, 0, false, true},
		"two slots, of which a restore has one": {2, 0, 1, true, true},
		"a single slot":                         {1, 0, 0, true, true},
		"a single slot, a backup has it":        {1, 1, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var slots taken
			for _, l := range append(preparedOn(PodVolumeBackup, c.backups, 1), preparedOn(PodVolumeRestore, c.restores, 1)...) {
				slots.add(l.restore())
			}
			for _, kind := range []Kind{DataUpload, PodVolumeBackup} {
				assert.Equal(t, c.backup, slots.free((&Load{Kind: kind}).restore(), c.limit), kind)
			}
			for _, kind := range []Kind{DataDownload, PodVolumeRestore} {
				assert.Equal(t, c.restore, slots.free((&Load{Kind: kind}).restore(), c.limit), kind)
			}
		})
	}
}

func TestRestoreBehindPreparedBackups(t *testing.T) {
	loads := append(preparedOn(PodVolumeBackup, 7, 1), load("backup", PodVolumeBackup, on("n9")), load("restore", PodVolumeRestore, on("n10")), load("second", PodVolumeRestore, on("n11")))
	d := Decide(world(8, nodes(11, 1), loads...))
	assert.Equal(t, []string{"restore"}, admitted(d))
	assert.Equal(t, map[string]Code{"backup": CodeLimit, "second": CodeLimit}, why(d))
	told := map[string]string{}
	for _, w := range d.Waiting {
		told[w.Name] = w.Wait.Sentence()
	}
	full := "all 8 slots of prepareQueueLength are taken; PodVolumeBackup velero/PodVolumeBackup0 has had one for longest"
	assert.Equal(t, map[string]string{"backup": full, "second": full}, told)

	d = Decide(world(8, nodes(11, 1), loads[:8]...))
	require.Len(t, d.Waiting, 1)
	assert.Equal(t, "7 of 8 slots of prepareQueueLength are taken and the last one is kept for restores; PodVolumeBackup velero/PodVolumeBackup0 has had one for longest", d.Waiting[0].Wait.Sentence())
	assert.Equal(t, "PodVolumeBackup velero/PodVolumeBackup0", d.Waiting[0].Wait.BlockedBy())
}

// The slot is for restores that can run, and not for a higher priority.
func TestRestoreSlotTakenByNoOther(t *testing.T) {
	seven := preparedOn(PodVolumeBackup, 7, 1)
	for name, l := range map[string]Load{
		"a priority":               load("x", DataUpload, priority(7)),
		"a hook":                   load("x", PodVolumeBackup, on("n9"), hooks),
		"a backup without a node":  load("x", DataUpload, nowhere),
		"a restore without a node": load("x", DataDownload, nowhere),
	} {
		assert.Empty(t, Decide(world(8, nodes(9, 1), append(seven, l)...)).Admit, name)
	}
	d := Decide(world(8, nodes(9, 1), append(seven[:6:6], load("x", DataDownload, nowhere))...))
	assert.Equal(t, []string{"x"}, admitted(d), "another slot is left over")
}

// A node-agent that still has a lower limit from its start counts by itself.
func TestRestoreSlotOfOlderNodeAgent(t *testing.T) {
	fleet := nodes(9, 1)
	for i := range fleet {
		fleet[i].Agents["velero"] = Agent{Ready: true, Concurrency: 1, PrepareLimit: 3}
	}
	two := preparedOn(PodVolumeBackup, 2, 1)
	waiting := []Load{load("bound", PodVolumeBackup, on("n3")), load("any", DataUpload), load("restore", PodVolumeRestore, on("n4"))}
	assert.Empty(t, Decide(world(8, fleet, append(two[:2:2], waiting[:2]...)...)).Admit)
	d := Decide(world(8, fleet, append(two, waiting...)...))
	assert.Equal(t, []string{"restore"}, admitted(d))
	assert.Equal(t, map[string]Code{"bound": CodeAgent, "any": CodeAgent}, why(d))
}

// A lower limit, or a version before this one, has given backups too many tickets.
func TestRestoreSlotFreedOfTickets(t *testing.T) {
	loads := []Load{
		load("a", DataUpload, ticket(7, noon)), load("b", DataUpload, ticket(7, noon.Add(1))),
		load("c", DataDownload, ticket(7, noon.Add(2))),
	}
	d := Decide(world(2, nodes(3, 1), loads...))
	require.Len(t, d.Revoke, 1)
	assert.Equal(t, "b", d.Revoke[0].Name, "the backup's, although the restore's is newer")
	assert.Equal(t, CodeLimit, d.Revoke[0].Why)
}
