package vgdp

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"
)

// The ranks, the higher comes first. A user's priority is a rank, within the bounds. An
// urgent load ranks below restores: its owner alone claims that an application is
// frozen, and that must not delay a restore.
const (
	RankScheduled = 0
	RankManual    = 1
	RankUrgent    = 3
	RankRestore   = 4
	// HighestPriority and LowestPriority bound a user's priority.
	HighestPriority = 7
	LowestPriority  = -8
)

// Aging is the waiting time that raises a load by one rank, so that none starves: it is
// overtaken only by loads created less than (their rank - its own + 1) times Aging
// later, at most (HighestPriority - LowestPriority + 1) times. So a load of a Backup that
// has no deadline is overtaken, for the deadlines of others, by loads of its own rank that
// were created less than one Aging later. A load that was postponed counts as created when
// that ended, and one that did not use its ticket as created when that was revoked.
const Aging = time.Hour

// rank of a waiting load, its aging included.
func (l *Load) rank(now time.Time, urgent bool) int {
	base := RankManual
	switch {
	case l.Priority != nil:
		base = min(max(int(*l.Priority), LowestPriority), HighestPriority)
	case l.restore():
		base = RankRestore
	case l.Scheduled:
		base = RankScheduled
	}
	if urgent {
		base = max(base, RankUrgent)
	}
	return base + int(max(0, now.Sub(l.waitsSince()))/Aging)
}

// sortKey is the sort key of a load, without fair sharing.
type sortKey struct {
	tier    int64 // the lower comes first: rank, then unused tickets and failed writes
	latest  int64 // the latest start
	created int64
	uid8    uint64 // the first bytes of the UID, which mostly decide without a string comparison
	*candidate
}

func newSortKey(r *capacity, a *candidate) sortKey {
	l := a.load
	tier := int64(-l.rank(r.in.Time, a.urgent))<<32 + int64(l.Note.Unused+l.Failed)
	if l.postponed(r.in.Time) { // behind all others, for which it does not wait
		tier = math.MaxInt64
	}
	var uid [8]byte
	copy(uid[:], l.UID)
	return sortKey{tier, latestStart(r, a), l.Created.UnixNano(), binary.BigEndian.Uint64(uid[:]), a}
}

func (s sortKey) compare(o sortKey) int {
	switch {
	case s.tier != o.tier:
		return cmp.Compare(s.tier, o.tier)
	case s.latest != o.latest:
		return cmp.Compare(s.latest, o.latest)
	case s.created != o.created:
		return cmp.Compare(s.created, o.created)
	case s.uid8 != o.uid8:
		return cmp.Compare(s.uid8, o.uid8)
	}
	return strings.Compare(s.load.UID, o.load.UID)
}

// candidate is a candidate: a load that waits to be accepted, with what the decision
// needs.
type candidate struct {
	load      *Load
	velero    *velero
	backup    *share
	reach     *Reach
	restore   bool
	urgent    bool       // an application is frozen until it is done
	exempt    bool       // exempt from pressure now
	neverHeld bool       // exempt from the beginning
	notReady  bool       // it could not use a ticket now
	place     int        // in its group, before fair sharing
	next      *candidate // of its group and its Backup
}

// share of a Backup: how many of its loads are on their way, for fair sharing.
type share struct {
	taken       int
	first, last *candidate // those of one group that wait, in order
	place       int        // of the first
}

// queue of candidates: by rank; loads with unused tickets or failed writes behind the others;
// then by the latest start of the Backup, restores and urgent loads first; then fairly by
// Backup, the one with fewest loads on their way first; then by creation and UID.
type queue struct {
	rest     []sortKey // of all that are not in byBackup, sorted
	byBackup shares    // the current group, by Backup
	front    *share    // of the load returned last
}

// share is that of a load's Backup.
func (v *velero) share(l *Load) *share {
	s := v.shares[l.Backup]
	if s == nil {
		s = &share{}
		v.shares[l.Backup] = s
	}
	return s
}

func newQueue(r *capacity) *queue {
	n := len(r.in.Loads)
	ln := &queue{rest: make([]sortKey, 0, n)}
	all := make([]candidate, 0, n) // never reallocated: pointers to it are kept
	for i := range r.in.Loads {
		l := &r.in.Loads[i]
		v := r.veleros[l.Namespace]
		switch {
		case v == nil || !l.ByVelero():
		case l.running() || l.Slot(v.Velero):
			v.share(l).taken++
		case l.unaccepted() && !l.Direct && v.limited && !l.canceling():
			all = append(all, candidate{
				load: l, velero: v, backup: v.share(l), reach: r.in.Topology.ReachOf(l), restore: l.restore(),
				urgent: r.urgent[l], exempt: r.exempt(l), neverHeld: r.neverHeld(l), notReady: r.in.notReady(l).Code != "",
			})
			ln.rest = append(ln.rest, newSortKey(r, &all[len(all)-1]))
		}
	}
	slices.SortFunc(ln.rest, sortKey.compare)
	return ln
}

// next is the next candidate; nil: none is left. took says whether the previous one got
// a slot, which counts for its Backup.
func (ln *queue) next(took bool) *candidate {
	if f := ln.front; f != nil {
		if took {
			f.taken++
		}
		if f.first = f.first.next; f.first == nil {
			heap.Pop(&ln.byBackup)
		} else {
			f.place = f.first.place
			heap.Fix(&ln.byBackup, 0)
		}
		ln.front = nil
	}
	if len(ln.byBackup) == 0 && !ln.nextGroup() {
		return nil
	}
	ln.front = ln.byBackup[0]
	return ln.front.first
}

// nextGroup takes the next group: loads that only fair sharing orders.
func (ln *queue) nextGroup() bool {
	n := 0
	for n < len(ln.rest) && ln.rest[n].tier == ln.rest[0].tier && ln.rest[n].latest == ln.rest[0].latest {
		a := ln.rest[n].candidate
		b := a.backup
		if b.first == nil {
			b.first, b.place, ln.byBackup = a, n, append(ln.byBackup, b)
		} else {
			b.last.next = a
		}
		b.last, a.place = a, n
		n++
	}
	ln.rest = ln.rest[n:]
	heap.Init(&ln.byBackup)
	return n > 0
}

// shares is a heap: the Backup with fewest loads on their way first.
type shares []*share

func (s shares) Len() int      { return len(s) }
func (s shares) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s shares) Less(i, j int) bool {
	if s[i].taken != s[j].taken {
		return s[i].taken < s[j].taken
	}
	return s[i].place < s[j].place
}

// Push implements heap.Interface.
func (s *shares) Push(x any) { *s = append(*s, x.(*share)) }

// Pop implements heap.Interface.
func (s *shares) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
