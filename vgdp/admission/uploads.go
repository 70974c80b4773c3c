package admission

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// forecast has the loads for a forecast of Backups, while one is made.
type forecast struct {
	asked  atomic.Pointer[time.Time]
	states atomic.Pointer[map[string]*uploads.State]
}

const (
	// keptFor is how long the loads are kept for a forecast that does not ask for them.
	keptFor = 3 * time.Minute
	// refreshEvery is how old they become: to copy 50,000 takes some milliseconds.
	refreshEvery = 10 * time.Second
)

func (f *forecast) forget() { f.states.Store(nil) }

func (f *forecast) of(velero string) *uploads.State {
	f.asked.Store(new(time.Now()))
	if all := f.states.Load(); all != nil {
		return (*all)[velero]
	}
	return nil
}

// refresh what a forecast reads, if one asks.
func (f *forecast) refresh(o *observation, d *vgdp.Decision, veleros map[string]*velero) {
	if asked := f.asked.Load(); asked == nil || time.Since(*asked) > keptFor {
		f.forget()
		return
	}
	if all := f.states.Load(); all != nil && len(*all) == len(o.Veleros) {
		for _, s := range *all {
			if o.Time.Sub(s.Time) < refreshEvery {
				return
			}
		}
	}
	states := map[string]*uploads.State{}
	for namespace, v := range o.Veleros {
		s := &uploads.State{Time: o.Time, Slots: v.PrepareLimit, Nodes: map[string]uploads.Node{}, Sizes: map[string]uploads.Size{}}
		for _, loads := range veleros[namespace].loads {
			addSizes(s, loads.List())
		}
		states[namespace] = s
	}
	o.addUploads(states, d)
	f.states.Store(&states)
}

// addSizes adds what loads tell of their Backup, and those that have ended of the next ones.
func addSizes(s *uploads.State, objects []*Object) {
	for _, o := range objects {
		if o.Backup == "" {
			continue
		}
		size := s.Sizes[o.Backup]
		size.Add(ended(&o.Load), o.Total, o.Fresh)
		s.Sizes[o.Backup] = size
		if o.Load.Phase == vgdp.Completed {
			s.Ended = append(s.Ended, uploads.Ended{Volume: volumeMoved(o), Accepted: o.Load.AcceptedAt, Started: o.Started, Completed: o.Completed})
		}
	}
}

func volumeMoved(o *Object) uploads.Volume {
	return uploads.Volume{Kind: o.Load.Kind, Namespace: o.Target.Namespace, Name: o.Target.Name, Volume: o.Volume}
}

// playable is a load that has not ended, with its place in the order.
type playable struct {
	uploads.Load

	of    *vgdp.Load
	place int
}

// addUploads adds the loads that have not ended, in the order in which they go on.
func (o *observation) addUploads(states map[string]*uploads.State, d *vgdp.Decision) {
	waits, admitted := map[*vgdp.Load]int{}, map[*vgdp.Load]bool{}
	for i := range d.Waiting {
		waits[d.Waiting[i].Load] = i
	}
	for i := range d.Admit {
		admitted[d.Admit[i].Load] = true
	}
	all := map[string][]playable{}
	for i := range o.Loads {
		l := &o.Loads[i]
		u := o.playable(l, admitted[l])
		u.place = len(d.Waiting)
		if at, is := waits[l]; is {
			u.place = at
			u.wait(&d.Waiting[at].Wait)
		}
		if u.Stage != uploads.Waits {
			u.place = -1
		}
		all[l.Namespace] = append(all[l.Namespace], u)
	}
	for namespace, list := range all {
		slices.SortFunc(list, func(a, b playable) int {
			return cmp.Or(cmp.Compare(a.place, b.place), a.of.Created.Compare(b.of.Created), cmp.Compare(a.of.UID, b.of.UID))
		})
		o.addPlayable(states[namespace], namespace, list)
	}
}

func (o *observation) addPlayable(s *uploads.State, namespace string, list []playable) {
	seen := map[*string]bool{} // loads share their lists of nodes
	for i := range list {
		u := &list[i]
		s.Loads = append(s.Loads, u.Load)
		if len(u.Nodes) == 0 || seen[&u.Nodes[0]] {
			continue
		}
		seen[&u.Nodes[0]] = true
		for _, name := range u.Nodes {
			s.Nodes[name] = o.nodeOf(namespace, name)
		}
	}
}

// playable is a load; admitted: it gets a ticket now.
func (o *observation) playable(l *vgdp.Load, admitted bool) playable {
	object := o.objects[l.UID]
	u := playable{of: l, Load: uploads.Load{
		Volume: volumeMoved(object), Backup: object.Backup, Nodes: o.Topology.ReachOf(l).Nodes, Done: object.Done, Total: object.Total, HeldUntil: l.HeldUntil(o.Time),
	}}
	u.Cancelled, _ = l.CancelledAt()
	switch {
	case l.Phase == vgdp.InProgress, l.Phase == vgdp.Canceling:
		u.Stage, u.Since = uploads.Runs, object.Started
	case !l.ByVelero(): // what it waits for is not known
		u.Stage, u.Nodes = uploads.Runs, nil
	case l.Slot(o.Veleros[l.Namespace]), l.Direct, admitted:
		u.Stage, u.Since = uploads.Prepares, l.AcceptedAt
	}
	if u.Stage == uploads.Runs && l.Node == "" {
		u.Nodes = nil
	}
	return u
}

// wait says why it waits, and until when in any case.
func (u *playable) wait(w *vgdp.Wait) {
	u.Code = w.Code
	switch {
	case w.Code == vgdp.CodePostponed, w.Code == vgdp.CodeBackoff:
		u.From = w.Until
	case w.Code == vgdp.CodePressure && u.Stage == uploads.Prepares: // it has its place
		u.From = w.Until
	}
}

// nodeOf is what bounds the loads of a Velero on a node. What those of other Veleros take of
// what pressure allows is not counted.
func (o *observation) nodeOf(namespace, name string) uploads.Node {
	agent, _ := o.Topology.Agent(name, namespace)
	n := uploads.Node{Places: agent.Concurrency, Allowed: agent.Concurrency}
	p, there := o.Pressure[name]
	if there && p.Budget != nil {
		n.Allowed = max(vgdp.MinBudget, *p.Budget)
	}
	if there && o.Time.Before(p.HoldUntil) {
		n.HoldUntil = p.HoldUntil
	}
	n.Pressed = n.Allowed < n.Places || !n.HoldUntil.IsZero()
	return n
}
