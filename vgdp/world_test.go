package vgdp

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// someWorld has loads of all kinds and phases, each bound to a node, by one seed.
func someWorld(r *rand.Rand, n int) Input {
	in := Input{
		Time: noon, Pressure: map[string]Pressure{}, Holds: map[string]time.Time{},
		Veleros: map[string]Velero{"velero": {Epoch: 7, PrepareLimit: r.IntN(6)}, "other": {Epoch: 3, PrepareLimit: r.IntN(3)}},
	}
	var fleet []Node
	for i := range 1 + r.IntN(4) {
		node := Node{Features: Features{Name: fmt.Sprintf("n%d", i+1)}, Agents: map[string]Agent{}}
		for _, velero := range []string{"other", "velero"} {
			if r.IntN(8) > 0 {
				node.Agents[velero] = Agent{Ready: r.IntN(8) > 0, Concurrency: 1 + r.IntN(3), PrepareLimit: r.IntN(12) / 3 * r.IntN(2)}
			}
		}
		fleet = append(fleet, node)
		if r.IntN(3) == 0 {
			p := Pressure{Why: "disk"}
			if r.IntN(2) == 0 {
				p.Budget = new(r.IntN(4))
			}
			if r.IntN(2) == 0 {
				p.HoldUntil = at(time.Duration(r.IntN(20)-10) * time.Second)
			}
			in.Pressure[node.Name] = p
		}
	}
	in.Topology = NewTopology(fleet)
	for i := range n {
		in.Loads = append(in.Loads, someLoad(r, i))
	}
	return in
}

func someLoad(r *rand.Rand, i int) Load {
	l := Load{
		UID: fmt.Sprintf("uid-%d", r.IntN(1000)*1000+i), Name: fmt.Sprintf("l%d", i), Namespace: []string{"velero", "velero", "other"}[r.IntN(3)],
		Kind:  []Kind{DataUpload, DataDownload, PodVolumeBackup, PodVolumeRestore}[r.IntN(4)],
		Phase: []Phase{"", New, New, New, New, New, Accepted, Prepared, InProgress, Canceling, Completed, Failed, Canceled}[r.IntN(13)],
		Node:  fmt.Sprintf("n%d", 1+r.IntN(5)), Created: at(-time.Duration(r.IntN(40)) * 5 * time.Minute),
		Backup: fmt.Sprintf("b%d", r.IntN(3)), Scheduled: r.IntN(2) == 0, Hooks: r.IntN(6) == 0,
		PodNamespace: fmt.Sprintf("ns%d", r.IntN(3)),
		Cancel:       r.IntN(12) == 0, Deleted: r.IntN(12) == 0, Mover: []string{"", "velero", "velero-fs", "velero-block", "theirs"}[r.IntN(5)],
	}
	l.Direct = l.Kind.Facts().NodeFixed && r.IntN(6) == 0
	if r.IntN(4) == 0 {
		l.Priority = new(int32(r.IntN(40) - 20))
	}
	if r.IntN(6) == 0 {
		l.NotReady = "its volume is not there"
	}
	if r.IntN(4) == 0 {
		l.Timeout = time.Duration(r.IntN(4)) * time.Hour
	}
	if r.IntN(4) == 0 {
		l.Note.Unused, l.Note.UnusedAt = r.IntN(8), at(-time.Duration(r.IntN(400))*time.Second)
	}
	if r.IntN(3) == 0 {
		l.Note.PressureSince = at(-time.Duration(r.IntN(40)) * time.Minute)
	}
	if l.Phase == Prepared {
		l.PreparedAt, l.AcceptedAt = at(-time.Duration(r.IntN(10))*time.Minute), at(-time.Hour)
		if r.IntN(3) == 0 {
			l.Started = &Ticket{Node: l.Node, Epoch: int64([]int{7, 3, 6}[r.IntN(3)]), At: at(-time.Duration(r.IntN(90)) * time.Second)}
		}
	}
	if l.unaccepted() && r.IntN(4) == 0 {
		l.Ticket = &Ticket{Epoch: int64([]int{7, 3, 6}[r.IntN(3)]), At: at(-time.Duration(r.IntN(90)) * time.Second)}
	}
	return l
}
