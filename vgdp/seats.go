package vgdp

// seats are the nodes still available to loads of one place. Within a decision nodes
// only fill up, so a full one is dropped for good, and many loads are placed with one
// visit of each node.
type seats struct {
	calm, tight []int // nodes with capacity, as far as is known; tight: under pressure
	// The first node dropped for pressure, and the first one that was full. -1: none.
	pressed, full int
}

type seatKey struct {
	reach  *Reach
	velero *velero
	free   bool // exempt from pressure
}

// seat places a load on a node with capacity, one without pressure if possible, and
// takes it; else it says why there is none.
func (r *room) seat(v *velero, l *Load, reach *Reach, free bool) Code {
	switch {
	case len(reach.nodes) == 0:
		return CodeNoNode
	case reach.bound:
		code := r.full(v, reach.nodes[0], free)
		if code == "" {
			r.use(v, l, reach.nodes[0])
		}
		return code
	}
	s := r.seatsFor(v, reach, free)
	for _, list := range []*[]int{&s.calm, &s.tight} {
		if node, found := r.pick(s, list, v, free); found {
			r.use(v, l, node)
			return ""
		}
	}
	if s.pressed >= 0 {
		return CodePressure
	}
	return CodeFull
}

func (r *room) seatsFor(v *velero, reach *Reach, free bool) *seats {
	key := seatKey{reach, v, free}
	s := r.seats[key]
	if s != nil {
		return s
	}
	s = &seats{pressed: -1, full: -1}
	for _, i := range reach.nodes {
		if r.tight[i] {
			s.tight = append(s.tight, i)
		} else {
			s.calm = append(s.calm, i)
		}
	}
	r.seats[key] = s
	return s
}

// pick returns the first node with capacity and moves it to the end of the list (round
// robin), so that loads are spread.
func (r *room) pick(s *seats, list *[]int, v *velero, free bool) (node int, found bool) {
	for len(*list) > 0 {
		node = (*list)[0]
		*list = (*list)[1:]
		switch code := r.full(v, node, free); {
		case code == "":
			*list = append(*list, node)
			return node, true
		case code == CodePressure && s.pressed < 0:
			s.pressed = node
		case code == CodeFull && s.full < 0:
			s.full = node
		}
	}
	return 0, false
}

// full says why no more loads fit on a node. Without prepareQueueLength the concurrency
// of a node is left to Velero. A load that is exempt from pressure does not wait behind
// loads that pressure holds.
func (r *room) full(v *velero, node int, free bool) Code {
	mine := v.mine[node]
	if free {
		mine -= v.parked[node]
	}
	switch {
	case v.PrepareLimit > 0 && mine >= v.agents[node].Concurrency:
		return CodeFull
	case !free && r.tight[node] && r.used[node] >= r.allowed[node]:
		return CodePressure
	}
	return ""
}
