package vgdp

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/names"
)

// held is a node on which nothing starts, tight one that may run n loads.
func held(d time.Duration) Pressure { return Pressure{HoldUntil: at(d), Why: "disk hard on nvme0n1"} }
func tight(n int) Pressure          { return Pressure{Budget: new(n), Why: "disk soft on nvme0n1"} }

func pressed(in Input, node string, p Pressure) Input {
	in.Pressure[node] = p
	return in
}

func TestPressureNoneTouchesNothing(t *testing.T) {
	loads := []Load{
		load("new", DataUpload), load("ticket", DataUpload, ticket(7, at(-time.Hour))), load("prepared", PodVolumeBackup, in(Prepared), on("n1")),
	}
	d := Decide(pressed(world(0, nodes(2, 4), loads...), "n1", tight(9)))
	assert.Equal(t, Decision{Limited: map[string]bool{"velero": false}, Holds: map[string]time.Time{}, Admit: []Grant{}, Waiting: []Waiting{}}, d, "a budget above what is configured is none")

	d = Decide(pressed(world(0, nodes(2, 4), loads...), "n1", tight(1)))
	assert.Equal(t, map[string]bool{"velero": true}, d.Limited)
	assert.Equal(t, []string{"new"}, admitted(d), "another node is calm")
}

func TestReleaseWhenNothingHeld(t *testing.T) {
	quiet := func(l *Load) { l.Hidden = true }
	cancel := func(l *Load) { l.Cancel = true }
	d := Decide(world(0, nodes(1, 1), load("held", DataUpload, quiet), load("not", DataUpload)))
	assert.Len(t, d.Release, 1)
	assert.Equal(t, "held", d.Release[0].Name)
	d = Decide(world(1, nodes(1, 1), load("held", DataUpload, quiet), load("canceled", DataUpload, quiet, cancel), load("over", DataUpload, quiet, in(Canceled))))
	assert.Equal(t, []string{"held"}, admitted(d))
	assert.Len(t, d.Release, 1, "Velero cancels it when its mover is its own again")
	assert.Equal(t, "canceled", d.Release[0].Name)
}

func TestPressureHoldsBackupsNotUrgent(t *testing.T) {
	loads := []Load{
		load("backup", PodVolumeBackup, on("n1")), load("urgent", PodVolumeBackup, on("n1"), hooks),
		load("restore", PodVolumeRestore, on("n1")), load("elsewhere", PodVolumeBackup, on("n2")),
		load("anywhere", DataUpload), load("back", DataDownload),
	}
	d := Decide(pressed(world(9, nodes(2, 9), loads...), "n1", held(10*time.Second)))
	assert.Equal(t, map[string]Code{"backup": CodePressure}, why(d))
	wait := d.Waiting[0].Wait
	assert.Equal(t, "pressure on node n1: disk hard on nvme0n1; held until 2026-03-01T12:30:00Z at the latest", wait.Sentence())
	assert.Equal(t, noon, wait.Since)

	d = Decide(pressed(world(9, nodes(1, 9), loads...), "n1", held(-time.Second)))
	assert.Len(t, d.Admit, 5, "the hold is over")
}

func TestPressureHeldBackupBlocksNoRestore(t *testing.T) {
	loads := []Load{load("held", PodVolumeBackup, in(Prepared), on("n1")), load("backup", PodVolumeBackup, on("n1")), load("restore", PodVolumeRestore, on("n1"))}
	d := Decide(pressed(world(9, nodes(1, 1), loads...), "n1", held(10*time.Second)))
	assert.Equal(t, []string{"restore"}, admitted(d))
	assert.Equal(t, map[string]Code{"held": CodePressure, "backup": CodeFull}, why(d))

	loads[0].Phase = InProgress
	d = Decide(pressed(world(9, nodes(1, 1), loads...), "n1", held(10*time.Second)))
	assert.Equal(t, map[string]Code{"backup": CodeFull, "restore": CodeFull}, why(d), "the node is full all the same")
}

func TestPressureHoldBounded(t *testing.T) {
	since := func(d, timeout time.Duration) Load {
		return load("x", PodVolumeBackup, on("n1"), func(l *Load) { l.Note.PressureSince, l.Timeout = at(-d), timeout })
	}
	heldSince := func(d time.Duration) Load {
		return load("x", PodVolumeBackup, on("n1"), func(l *Load) { l.HeldSince = at(-d) })
	}
	for name, c := range map[string]struct {
		load Load
		goes bool
	}{
		"half an hour":                       {since(30*time.Minute, 0), true},
		"a little less":                      {since(30*time.Minute-1, 0), false},
		"a quarter of a short timeout":       {since(15*time.Minute, time.Hour), true},
		"a little less than that":            {since(15*time.Minute-1, time.Hour), false},
		"half an hour of a long timeout":     {since(30*time.Minute-1, 24*time.Hour), false},
		"half an hour, not written yet":      {heldSince(30 * time.Minute), true},
		"a little less, not written yet":     {heldSince(30*time.Minute - 1), false},
		"it is old, and never waited for it": {load("x", PodVolumeBackup, on("n1"), made(at(-3*time.Hour))), false},
	} {
		d := Decide(pressed(world(0, nodes(1, 4), c.load), "n1", held(time.Minute)))
		assert.Equal(t, c.goes, len(d.Admit) == 1, name)
		assert.False(t, c.goes && !d.Admit[0].Overdue, "that its time is up is said: %s", name)
	}
	full := since(time.Hour, 0)
	d := Decide(pressed(world(1, nodes(1, 4), load("slot", DataUpload, in(Accepted)), full), "n1", held(time.Minute)))
	assert.Equal(t, map[string]Code{"x": CodeLimit}, why(d), "never above prepareQueueLength")
}

func TestPressureStartsWithinBudget(t *testing.T) {
	loads := []Load{
		load("runs", PodVolumeBackup, in(InProgress), on("n1")),
		load("waits", PodVolumeBackup, in(Prepared), on("n1"), func(l *Load) { l.PreparedAt = at(-5*time.Minute + 1) }),
		load("long", PodVolumeBackup, in(Prepared), on("n1"), func(l *Load) { l.PreparedAt = at(-5 * time.Minute) }),
		load("restore", PodVolumeRestore, in(Prepared), on("n1"), func(l *Load) { l.PreparedAt = noon }),
		load("calm", PodVolumeBackup, in(Prepared), on("n2"), func(l *Load) { l.PreparedAt = noon }),
	}
	d := Decide(pressed(world(9, nodes(2, 4), loads...), "n1", tight(1)))
	assert.Equal(t, map[string]Code{"waits": CodePressure}, why(d))
	assert.Equal(t, map[string]time.Time{"n1": at(HoldLifetime)}, d.Holds)
	var starts []string
	for _, g := range d.Start {
		starts = append(starts, g.Name)
		assert.Equal(t, Ticket{Node: "n1", Epoch: 7, At: noon}, g.Ticket)
	}
	assert.Equal(t, []string{"restore", "long"}, starts, "on calm nodes Velero starts by itself")
	assert.Equal(t, []bool{false, true}, []bool{d.Start[0].Overdue, d.Start[1].Overdue})

	d = Decide(pressed(world(9, nodes(2, 4), loads[1]), "n1", tight(1)))
	assert.Len(t, d.Start, 1, "one may run")
	started := loads[1]
	started.Started = &Ticket{Node: "n1", Epoch: 7, At: noon}
	d = Decide(pressed(world(9, nodes(2, 4), started, loads[1]), "n1", tight(1)))
	assert.Empty(t, d.Start, "who was let start counts")
	started.Started = &Ticket{Node: "n1", Epoch: 6, At: noon}
	d = Decide(pressed(world(9, nodes(2, 4), started), "n1", tight(1)))
	assert.Len(t, d.Start, 1, "an old leader's ticket is void")
	started.Started = &Ticket{Node: "n2", Epoch: 7, At: noon}
	d = Decide(pressed(world(9, nodes(2, 4), started), "n1", tight(1)))
	assert.Len(t, d.Start, 1, "and so is one for another node")
	second := loads[1]
	second.UID, second.Name = "second", "second"
	d = Decide(pressed(world(9, nodes(2, 4), loads[1], second), "n1", tight(1)))
	assert.Len(t, d.Start, 1, "one of two")
	assert.Equal(t, map[string]Code{"waits": CodePressure}, why(d))
	assert.True(t, d.Notes(noon.Add(time.Hour))[0].Note.PressureSince.IsZero(), "that is the time of those who wait to be accepted")
}

func TestStartTicketUnusedRevoked(t *testing.T) {
	x := load("x", PodVolumeBackup, in(Prepared), on("n1"), func(l *Load) { l.Started = &Ticket{Node: "n1", Epoch: 7, At: at(-TicketLife)} })
	d := Decide(pressed(world(9, nodes(1, 4), x), "n1", tight(1)))
	if assert.Len(t, d.Revoke, 1) {
		assert.True(t, d.Revoke[0].Start)
	}
}

func TestHoldRenewedOnPressedNode(t *testing.T) {
	for left, want := range map[time.Duration]time.Time{HoldLifetime / 2: at(HoldLifetime / 2), HoldLifetime/2 - 1: at(HoldLifetime), -time.Hour: at(HoldLifetime)} {
		w := pressed(world(9, nodes(1, 4)), "n1", tight(1))
		w.Holds = map[string]time.Time{"n1": at(left), "n2": at(left)}
		assert.Equal(t, map[string]time.Time{"n1": want}, Decide(w).Holds, left)
	}
}

func TestVelerosShareBudgetNotSlots(t *testing.T) {
	fleet := nodes(1, 2)
	fleet[0].Agents["other"] = Agent{Ready: true, Concurrency: 2}
	other := func(l *Load) { l.Namespace = "other" }
	loads := []Load{load("a", PodVolumeBackup, on("n1")), load("b", PodVolumeBackup, on("n1"), other), load("c", PodVolumeBackup, on("n1"), other)}
	w := world(1, fleet, loads...)
	w.Veleros["other"] = Velero{Epoch: 2, PrepareLimit: 1}
	d := Decide(w)
	assert.Equal(t, []string{"a", "b"}, admitted(d))
	assert.Equal(t, int64(2), d.Admit[1].Ticket.Epoch)
	assert.Equal(t, map[string]Code{"c": CodeLimit}, why(d))
	d = Decide(pressed(w, "n1", tight(1)))
	assert.Equal(t, []string{"a"}, admitted(d))
	assert.Equal(t, map[string]Code{"b": CodePressure, "c": CodePressure}, why(d))
}

func TestOtherDataMoversIgnored(t *testing.T) {
	theirs := func(l *Load) { l.Mover = "theirs" }
	d := Decide(world(1, nodes(1, 1), load("t1", DataUpload, theirs), load("t3", DataUpload, theirs, in(InProgress), on("n1")), load("t2", DataUpload, theirs, in(Accepted)), load("ours", DataUpload, func(l *Load) { l.Mover = "velero" })))
	assert.Equal(t, []string{"ours"}, admitted(d))
	assert.Empty(t, d.Waiting)
}

func TestDataMovers(t *testing.T) {
	for _, m := range names.DataMovers() {
		t.Run("a load of "+strconv.Quote(m.Name)+" waits for its ticket and takes its place", func(t *testing.T) {
			its := func(l *Load) { l.Mover = m.Name }
			d := Decide(world(1, nodes(1, 1), load("a", DataUpload, its), load("b", DataUpload, its)))
			assert.Equal(t, []string{"a"}, admitted(d))
			assert.Equal(t, map[string]Code{"b": CodeLimit}, why(d))
			d = Decide(world(9, nodes(1, 1), load("runs", DataUpload, its, in(InProgress), on("n1")), load("b", DataUpload, its)))
			assert.Equal(t, map[string]Code{"b": CodeFull}, why(d))
		})
	}
}

func TestDirect(t *testing.T) {
	direct := func(l *Load) { l.Direct = true }
	t.Run("a load that is started at once gets no ticket and does not wait", func(t *testing.T) {
		d := Decide(world(1, nodes(1, 1), load("pvb", PodVolumeBackup, on("n1"), direct), load("du", DataUpload)))
		assert.Equal(t, []string{"du"}, admitted(d))
		assert.Empty(t, d.Waiting)
	})
	t.Run("a ticket that it got before takes no slot", func(t *testing.T) {
		d := Decide(world(1, nodes(1, 1), load("pvb", PodVolumeBackup, on("n1"), direct, ticket(7, noon)), load("du", DataUpload)))
		assert.Equal(t, []string{"du"}, admitted(d))
		assert.Empty(t, d.Revoke)
	})
	t.Run("while it runs it takes a place on its node", func(t *testing.T) {
		d := Decide(world(1, nodes(1, 1), load("pvb", PodVolumeBackup, on("n1"), direct, in(InProgress)), load("du", DataUpload)))
		assert.Equal(t, map[string]Code{"du": CodeFull}, why(d))
	})
	t.Run("on a node under pressure it counts for the data mover budget", func(t *testing.T) {
		d := Decide(pressed(world(0, nodes(1, 4), load("pvb", PodVolumeBackup, on("n1"), direct, in(InProgress)), load("du", DataUpload)), "n1", tight(1)))
		assert.Equal(t, map[string]Code{"du": CodePressure}, why(d))
	})
	t.Run("an application that stands still for it does not make it urgent while it waits", func(t *testing.T) {
		d := Decide(world(1, nodes(1, 2), load("pvb", PodVolumeBackup, on("n1"), direct, func(l *Load) { l.Hooks = true }),
			load("urgent", PodVolumeBackup, on("n1"), func(l *Load) { l.Hooks = true }), load("manual", DataUpload, func(l *Load) { l.Scheduled = false })))
		assert.Equal(t, []string{"urgent"}, admitted(d))
	})
}

func TestCanceledLoadKeepsTicket(t *testing.T) {
	cancel, deleted := func(l *Load) { l.Cancel = true }, func(l *Load) { l.Deleted = true }
	d := Decide(world(1, nodes(1, 9), load("c", DataUpload, cancel), load("d", DataUpload, deleted), load("x", DataUpload)))
	assert.Equal(t, []string{"x"}, admitted(d))
	d = Decide(world(1, nodes(1, 9), load("c", DataUpload, cancel, ticket(7, noon)), load("x", DataUpload)))
	assert.Empty(t, d.Admit, "until it is canceled its slot is its own")
	assert.Empty(t, d.Revoke)
}

func TestRevokeNewestTicketsFirst(t *testing.T) {
	d := Decide(world(3, nodes(1, 9),
		load("accepted", DataUpload, in(Accepted)), load("old", DataUpload, ticket(7, at(-30*time.Second))),
		load("new", DataUpload, ticket(7, noon)), load("unused", DataUpload, ticket(7, at(-TicketLife))), load("void", DataUpload, ticket(6, at(-time.Hour))),
	))
	got := map[string]Code{}
	for _, r := range d.Revoke {
		got[r.Name] = r.Why
	}
	assert.Equal(t, map[string]Code{"unused": CodeBackoff, "new": CodeLimit, "void": CodeLeader}, got)

	d = Decide(pressed(world(9, nodes(1, 9), load("x", PodVolumeBackup, on("n1"), ticket(7, noon)), load("r", PodVolumeRestore, on("n1"), ticket(7, noon))), "n1", held(time.Minute)))
	if assert.Len(t, d.Revoke, 1) {
		assert.Equal(t, "x", d.Revoke[0].Name)
		assert.Equal(t, CodePressure, d.Revoke[0].Why)
	}
}

func TestNodeAgentLowerLimitNamed(t *testing.T) {
	fleet := nodes(2, 9)
	fleet[0].Agents["velero"] = Agent{Ready: true, Concurrency: 9, PrepareLimit: 1}
	loads := []Load{load("first", DataUpload, in(Accepted), on("n2")), load("bound", PodVolumeBackup, on("n1")), load("any", DataUpload)}
	d := Decide(world(4, fleet, loads...))
	assert.Equal(t, []string{"any"}, admitted(d), "the other node's agent accepts it")
	assert.Equal(t, map[string]Code{"bound": CodeAgent}, why(d))
	assert.Equal(t, "the node-agent still has prepareQueueLength 1 from its start; restart it", d.Waiting[0].Wait.Sentence())
	fleet[1].Agents["velero"] = Agent{Ready: true, Concurrency: 9, PrepareLimit: 1}
	assert.Empty(t, Decide(world(4, fleet, loads...)).Admit)
}

func TestNotesWrittenWhenWorth(t *testing.T) {
	note := func(n Note) func(*Load) { return func(l *Load) { l.Note = n } }
	slot := load("slot", DataUpload, in(Accepted))
	for name, c := range map[string]struct {
		load Load
		want *Note
	}{
		"a new one has none yet": {load("x", DataUpload, made(at(-NoteMinAge+1))), nil},
		"the first":              {load("x", DataUpload, made(at(-NoteMinAge))), &Note{Reason: CodeLimit, Since: noon, BlockedBy: "DataUpload velero/slot"}},
		"the same":               {load("x", DataUpload, note(Note{Reason: CodeLimit})), nil},
		"after a revoked ticket": {load("x", DataUpload, note(Note{Reason: CodeLeader, Since: noon})), &Note{Reason: CodeLimit, Since: noon, BlockedBy: "DataUpload velero/slot"}},
		"another, soon":          {load("x", DataUpload, note(Note{Reason: CodeFull, Since: at(-NoteInterval + 1)})), nil},
		"another, after long": {
			load("x", DataUpload, note(Note{Reason: CodeFull, Since: at(-NoteInterval), PressureSince: at(-time.Hour)})),
			&Note{Reason: CodeLimit, Since: noon, BlockedBy: "DataUpload velero/slot", PressureSince: at(-time.Hour)},
		},
	} {
		d := Decide(world(1, nodes(1, 9), slot, c.load))
		list := d.Notes(noon)
		if c.want == nil {
			assert.Empty(t, list, name)
			continue
		}
		if assert.Len(t, list, 1, name) {
			assert.Equal(t, *c.want, list[0].Note, name)
		}
	}
	d := Decide(pressed(world(0, nodes(1, 9), load("x", PodVolumeBackup, on("n1"), made(noon))), "n1", held(time.Minute)))
	assert.Equal(t, Note{Reason: CodePressure, Since: noon, BlockedBy: "Node n1", PressureSince: noon}, d.Notes(noon)[0].Note, "its time counts from now on")
	d = Decide(pressed(world(0, nodes(1, 9), load("x", PodVolumeBackup, on("n1"), made(noon), func(l *Load) { l.HeldSince = at(-time.Minute) })), "n1", held(time.Minute)))
	assert.Equal(t, at(-time.Minute), d.Notes(noon)[0].Note.PressureSince, "from the first time on")
	d = Decide(world(9, nodes(1, 9), load("x", DataUpload, ticket(7, at(-TicketLife)))))
	assert.Equal(t, Note{Reason: CodeBackoff, Since: noon, Unused: 1, UnusedAt: noon}, d.Notes(noon)[0].Note)
}
