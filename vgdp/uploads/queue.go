package uploads

import (
	"container/heap"
	"time"
)

// eventKind is what happens in a play.
type eventKind uint8

const (
	eventPlace  eventKind = iota // a place on a node becomes free
	eventNode                    // the start hold of a node is over
	eventSlot                    // a load is prepared
	eventEnter                   // a load may go on, as far as is known
	eventCancel                  // Velero cancels a load, unless it has begun
)

// event in a play, of a load or node.
type event struct {
	at   time.Time
	kind eventKind
	of   int
}

// events is a heap (container/heap): the next first.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// queue of loads that may run on the same nodes.
type queue struct {
	loads inOrder
	at    int // in ready; -1: it is not
}

// inOrder is a heap (container/heap) of loads.
type inOrder []int

func (h inOrder) Len() int           { return len(h) }
func (h inOrder) Less(i, j int) bool { return h[i] < h[j] }
func (h inOrder) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *inOrder) Push(x any)        { *h = append(*h, x.(int)) }
func (h *inOrder) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// ready is a heap (container/heap) of the queues whose first load may have a place, by that
// load.
type ready struct {
	queues []queue
	list   []int
}

func (r *ready) Len() int { return len(r.list) }
func (r *ready) Less(i, j int) bool {
	a, b := r.queues[r.list[i]].loads, r.queues[r.list[j]].loads
	if len(a) == 0 || len(b) == 0 {
		return len(a) < len(b)
	}
	return a[0] < b[0]
}

func (r *ready) Swap(i, j int) {
	r.list[i], r.list[j] = r.list[j], r.list[i]
	r.queues[r.list[i]].at, r.queues[r.list[j]].at = i, j
}

// Push implements heap.Interface.
func (r *ready) Push(x any) {
	r.queues[x.(int)].at = len(r.list)
	r.list = append(r.list, x.(int))
}

// Pop implements heap.Interface.
func (r *ready) Pop() any {
	last := r.list[len(r.list)-1]
	r.list = r.list[:len(r.list)-1]
	r.queues[last].at = -1
	return last
}

// wake a queue: there is another load in it, or there may be a place.
func (r *ready) wake(k int) {
	switch at := r.queues[k].at; {
	case at >= 0:
		heap.Fix(r, at)
	case len(r.queues[k].loads) > 0:
		heap.Push(r, k)
	}
}
