package vgdp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startBy is a load of a Backup that must begin so long after noon.
func startBy(d time.Duration) func(*Load) {
	return func(l *Load) { l.Wanted.LatestStart = at(d) }
}

// postponed is a load of a Backup whose window opens so long after noon.
func postponed(d time.Duration) func(*Load) {
	return func(l *Load) { l.Wanted.PostponedUntil = at(d) }
}

func timeout(d time.Duration) func(*Load) { return func(l *Load) { l.Timeout = d } }

// wantedOf the Backups of a world, by one seed.
func wantedOf(r *rand.Rand, in Input) Input {
	some := func(hours int) time.Time {
		if r.IntN(2) == 0 {
			return time.Time{}
		}
		return at(time.Duration(r.IntN(2*hours)-hours) * time.Hour)
	}
	wanted := map[string]Wanted{}
	for i := range in.Loads {
		l := &in.Loads[i]
		if r.IntN(3) == 0 {
			l.Note.PostponedUntil = some(9)
		}
		if l.restore() {
			continue
		}
		backup := l.Namespace + l.Backup
		if _, there := wanted[backup]; !there || r.IntN(20) == 0 { // not all agree, as when it changes
			wanted[backup] = Wanted{LatestStart: some(3), PostponedUntil: some(9), Unknown: r.IntN(4) == 0}
		}
		l.Wanted = wanted[backup]
		if r.IntN(4) == 0 {
			l.Timeout = time.Duration(r.IntN(40)) * time.Hour
		}
	}
	for namespace, v := range in.Veleros {
		v.Postponing = r.IntN(6) == 0
		in.Veleros[namespace] = v
	}
	return in
}

func TestWantedModel(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		require.NoError(t, agree(wantedOf(r, someWorld(r, r.IntN(24)))), "seed %d", seed)
	}
}

func FuzzWanted(f *testing.F) {
	f.Add(uint64(1), uint8(10))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		r := rand.New(rand.NewPCG(seed, 6))
		if err := agree(wantedOf(r, someWorld(r, int(n%60)))); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderLatestStartWithinRank(t *testing.T) {
	d := Decide(world(99, nodes(9, 9),
		load("restore", DataDownload, of("r")), load("urgent", PodVolumeBackup, on("n9"), of("u"), hooks),
		load("manual", DataUpload, of("m"), manual), load("manual late", DataUpload, of("l"), manual, startBy(2*time.Hour)),
		load("old", DataUpload, of("o"), made(at(-61*time.Minute))),
		load("none 1", DataUpload, of("a")), load("none 2", DataUpload, of("a")), load("none 3", DataUpload, of("b")),
		load("soon 1", DataUpload, of("s"), startBy(time.Hour)), load("soon 2", DataUpload, of("s"), startBy(time.Hour)), load("soon 3", DataUpload, of("t"), startBy(time.Hour)),
		load("missed", DataUpload, of("z"), startBy(-time.Hour), made(at(-time.Second))),
		load("tried", DataUpload, of("y"), startBy(-2*time.Hour), func(l *Load) { l.Note.Unused, l.Note.UnusedAt = 1, at(-time.Hour) }),
	))
	assert.Equal(t, []string{
		"restore", "urgent", "manual late", "old", "manual", "missed", "soon 1", "soon 3", "soon 2", "none 1", "none 3", "none 2", "tried",
	}, admitted(d))
}

// Loads of a late Backup that have aged to the rank of a restore, or of an urgent load, do
// not pass it: within the rank they did not before either.
func TestOrderAgedLateBehindRestore(t *testing.T) {
	aged := func(hours int) func(*Load) { return made(at(-time.Duration(hours)*time.Hour - time.Minute)) }
	loads := []Load{
		load("late 4", DataUpload, of("l"), aged(4)), load("late 3", DataUpload, of("l"), aged(3)), load("runs", DataUpload, of("l"), in(InProgress), on("n9")),
		load("restore", DataDownload, of("r")), load("urgent", PodVolumeBackup, on("n8"), of("u"), hooks),
	}
	want := []string{"restore", "late 4", "urgent", "late 3"}
	assert.Equal(t, want, admitted(Decide(world(99, nodes(9, 9), loads...))))
	for i := range loads[:3] {
		loads[i].Wanted.LatestStart = at(-time.Hour)
	}
	assert.Equal(t, want, admitted(Decide(world(99, nodes(9, 9), loads...))))
}

// Of prepared loads on a node under pressure the late Backup's starts first.
func TestStartLatestStartFirst(t *testing.T) {
	ready := func(l *Load) { l.Phase, l.PreparedAt = Prepared, noon }
	d := Decide(pressed(world(9, nodes(1, 4),
		load("a", PodVolumeBackup, on("n1"), ready), load("b", PodVolumeBackup, on("n1"), ready, startBy(time.Hour)), load("c", PodVolumeBackup, on("n1"), ready, startBy(0)),
	), "n1", tight(1)))
	require.Len(t, d.Start, 1)
	assert.Equal(t, "c", d.Start[0].Name)
}

// A load is not overtaken by one of its rank that was created one Aging later, whatever is
// wanted of the other's Backup; of another rank, by one created (theirs - its own + 1) times
// Aging later.
func TestOrderLatestStartAgingBound(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 20000 {
		first, later := someLoad(r, 1), someLoad(r, 2)
		first.Phase, later.Phase, first.Note, later.Note = New, New, Note{}, Note{}
		first.Created, later.Wanted.LatestStart = noon, at(-time.Duration(r.IntN(1000))*time.Hour)
		base := func(l Load) time.Duration { return time.Duration(l.rank(l.Created, l.Hooks)) }
		later.Created = at(max(0, (base(later)-base(first)+1)*Aging))
		now := later.Created.Add(time.Duration(r.IntN(10000)) * time.Minute)
		c := &capacity{in: &Input{Time: now}, deadlines: true}
		key := func(l *Load) sortKey { return newSortKey(c, &candidate{load: l, urgent: l.Hooks}) }
		require.Negative(t, key(&first).compare(key(&later)), "%+v\n%+v", first, later)
	}
}

// Every two minutes an upload of a late Backup arrives, and one load is done.
func TestOrderScheduledBesideLateBackup(t *testing.T) {
	in := world(1, nodes(1, 1), load("backup", PodVolumeBackup, on("n1"), made(noon)))
	for i := range 1000 {
		in.Loads = append(in.Loads, load(fmt.Sprint("late", i), PodVolumeBackup, on("n1"), of("late"), startBy(-time.Hour), made(in.Time)))
		d := Decide(in)
		if admitted(d)[0] == "backup" {
			assert.Equal(t, Aging, in.Time.Sub(noon))
			return
		}
		in.Loads = slices.DeleteFunc(in.Loads, func(l Load) bool { return l.Name == d.Admit[0].Name })
		in.Time = in.Time.Add(2 * time.Minute)
	}
	t.Error("it never went")
}

func TestPostponed(t *testing.T) {
	const opens = 10 * time.Hour
	minute := time.Minute // it was made a minute before noon
	note := func(d time.Duration) func(*Load) { return func(l *Load) { l.Note.PostponedUntil = at(d) } }
	unknown := func(l *Load) { l.Wanted = Wanted{Unknown: true} }
	later := postponed(opens)
	for name, row := range map[string]struct {
		load Load
		code Code
	}{
		"an upload":                           {load("x", DataUpload, later, timeout(20*time.Hour)), CodePostponed},
		"a backup of a pod's volume":          {load("x", PodVolumeBackup, on("n1"), later, timeout(20*time.Hour)), CodePostponed},
		"that a user created":                 {load("x", DataUpload, later, manual, timeout(20*time.Hour)), CodePostponed},
		"with a priority":                     {load("x", DataUpload, later, priority(7), timeout(20*time.Hour)), CodePostponed},
		"its application may be frozen":       {load("x", PodVolumeBackup, on("n1"), later, hooks, timeout(20*time.Hour)), ""},
		"a hook of a snapshot, which is over": {load("x", DataUpload, later, hooks, timeout(20*time.Hour)), CodePostponed},
		"a restore":                           {load("x", DataDownload, later, timeout(20*time.Hour)), ""},
		"a restore of a pod's volume":         {load("x", PodVolumeRestore, on("n1"), later, timeout(20*time.Hour)), ""},
		"the window is open":                  {load("x", DataUpload, postponed(0), timeout(20*time.Hour)), ""},
		"it opens in a moment":                {load("x", DataUpload, postponed(1), timeout(20*time.Hour)), CodePostponed},
		"a quarter of its timeout is left":    {load("x", DataUpload, later, timeout((opens+minute)*4/3)), CodePostponed},
		"less is left":                        {load("x", DataUpload, later, timeout((opens+minute)*4/3-4)), ""},
		"Velero's own timeout":                {load("x", DataUpload, later), ""},
		"Velero's own, and it opens soon":     {load("x", DataUpload, postponed(3*time.Hour-minute)), CodePostponed},
		"and it opens a little later":         {load("x", DataUpload, postponed(3*time.Hour-minute+1)), ""},
		"the day with 25 hours":               {load("x", DataUpload, postponed(25*time.Hour-minute), timeout(99*time.Hour)), CodePostponed},
		"no day is longer":                    {load("x", DataUpload, postponed(25*time.Hour-minute+1), timeout(99*time.Hour)), ""},
		"not known yet, and it was postponed": {load("x", DataUpload, later, timeout(20*time.Hour), unknown, note(opens)), CodePostponed},
		"not known yet, and it was not":       {load("x", DataUpload, later, timeout(20*time.Hour), unknown), ""},
		"it was postponed, and is not now":    {load("x", DataUpload, timeout(20*time.Hour), note(opens)), ""},
		"its pod is not there":                {load("x", PodVolumeBackup, later, timeout(20*time.Hour)), CodeNotReady},
	} {
		for _, limit := range []int{0, 9} {
			in := world(limit, nodes(1, 9), row.load)
			if limit == 0 && row.code == "" {
				in.Veleros["velero"] = Velero{Epoch: 7, Postponing: true}
			}
			d := Decide(in)
			if row.code == "" {
				assert.Equal(t, []string{"x"}, admitted(d), "%s, limit %d", name, limit)
				continue
			}
			assert.Equal(t, map[string]Code{"x": row.code}, why(d), "%s, limit %d", name, limit)
			assert.True(t, d.Limited["velero"], name)
		}
	}
}

func TestPostponedSentence(t *testing.T) {
	d := Decide(world(9, nodes(1, 9), load("x", DataUpload, postponed(10*time.Hour), timeout(20*time.Hour), func(l *Load) { l.Clock = "itemOperationTimeout 20h0m0s of its Backup, counted from noon" })))
	assert.Equal(t, "postponed until 2026-03-01T22:00:00Z, when the backup window of its Backup opens; Velero cancels it at 2026-03-02T07:59:00Z (itemOperationTimeout 20h0m0s of its Backup, counted from noon)", d.Waiting[0].Wait.Sentence())
	assert.Empty(t, d.Waiting[0].Wait.BlockedBy())

	d = Decide(world(9, nodes(1, 9), load("a", DataUpload, postponed(10*time.Hour)), load("b", DataUpload)))
	require.Equal(t, []string{"a", "b"}, admitted(d))
	assert.Equal(t, at(10*time.Hour), d.Admit[0].NotPostponed)
	assert.Zero(t, d.Admit[1].NotPostponed)
	until, clock := d.Admit[0].CancelledAt()
	assert.Equal(t, at(4*time.Hour-time.Minute), until)
	assert.Equal(t, "Velero's 4h0m0s, counted from 2026-03-01T11:59:00Z", clock)
}

// What is on its way goes on, and a postponed load takes nothing from others.
func TestPostponedLeavesOthersAlone(t *testing.T) {
	long := timeout(20 * time.Hour)
	later := postponed(10 * time.Hour)
	d := Decide(world(3, nodes(1, 3),
		load("runs", DataUpload, in(InProgress), on("n1"), later, long), load("let", DataUpload, ticket(7, noon), later, long),
		load("waits", DataUpload, later, long, startBy(-time.Hour), made(at(-2*time.Hour))), load("full", DataUpload, of("c")), load("other", DataUpload, of("c"), manual),
	))
	assert.Empty(t, d.Revoke)
	assert.Equal(t, []string{"other"}, admitted(d))
	require.Len(t, d.Waiting, 2)
	assert.Equal(t, "full", d.Waiting[0].Name, "it does not wait for those that are postponed")
	assert.Equal(t, map[string]Code{"full": CodeLimit, "waits": CodePostponed}, why(d))

	d = Decide(world(0, nodes(1, 3), load("cancelled", DataUpload, later, long, func(l *Load) { l.Cancel = true }), load("theirs", DataUpload, later, long, func(l *Load) { l.Mover = "theirs" }),
		load("direct", PodVolumeBackup, on("n1"), later, long, func(l *Load) { l.Direct = true })))
	assert.False(t, d.Limited["velero"], "none of them can be held")
}

// When the window opens, a load counts as one that was just created: it would have aged
// past every restore.
func TestPostponedDoesNotAge(t *testing.T) {
	was := load("was", DataUpload, made(at(-12*time.Hour)), timeout(40*time.Hour), func(l *Load) { l.Note.PostponedUntil = noon })
	d := Decide(world(9, nodes(9, 1), was, load("new", DataUpload, made(at(-59*time.Minute))), load("old", DataUpload, made(at(-61*time.Minute))), load("restore", DataDownload)))
	assert.Equal(t, []string{"restore", "old", "was", "new"}, admitted(d))
}

func TestPostponedNotes(t *testing.T) {
	long, opens := timeout(20*time.Hour), at(10*time.Hour)
	note := func(until time.Time) func(*Load) {
		return func(l *Load) { l.Note = Note{Reason: CodePostponed, Since: noon, PostponedUntil: until} }
	}
	for name, row := range map[string]struct {
		load Load
		want time.Time
		news bool
	}{
		"it begins":                       {load("x", DataUpload, long, postponed(10*time.Hour+time.Millisecond), made(noon)), opens, true},
		"it lasts":                        {load("x", DataUpload, long, postponed(10*time.Hour), note(opens)), opens, false},
		"the window was moved":            {load("x", DataUpload, long, postponed(10*time.Hour), note(at(9*time.Hour))), opens, true},
		"it ended by itself":              {load("x", DataUpload, long, note(at(-time.Hour))), at(-time.Hour), false},
		"it was withdrawn":                {load("x", DataUpload, long, note(opens)), noon, true},
		"it is not known yet":             {load("x", DataUpload, long, note(opens), func(l *Load) { l.Wanted.Unknown = true }), opens, false},
		"its target is not looked up yet": {load("x", DataUpload, long, postponed(10*time.Hour), note(opens), func(l *Load) { l.NotReady = "so" }), opens, false},
		"its application may be frozen":   {load("x", PodVolumeBackup, long, on("n1"), postponed(10*time.Hour), note(opens), hooks), noon, true},
	} {
		d := Decide(world(1, nodes(1, 9), load("slot", DataUpload, in(Accepted)), row.load))
		require.Len(t, d.Waiting, 1, name)
		got, news := d.Waiting[0].NextNote(noon)
		assert.Equal(t, row.news, news, name)
		assert.Equal(t, row.want, got.PostponedUntil, name)
	}
}
