package vgdp

// seats are the nodes that loads of one place can still be given to. Within a
// decision nodes only fill up, so one that is full is dropped for good, and many
// loads are seated in the time of one look at each node.
type seats struct {
	calm, tight []int // nodes with room, as far as is known
	// The first that was dropped: for pressure alone, and for being full. -1: none.
	pressed, full int
}

type seatKey struct {
	reach  *Reach
	velero *velero
	free   bool // of pressure
}

// seat a load on a node with room, a calm one if there is any, and count it
// there; else say why there is none.
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

// pick the first with room, which goes to the end of the list: loads are spread.
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

// full says why no more loads fit on a node. Without a limit of what is
// prepared Velero's own concurrency is left to Velero. Who is free of pressure
// does not stand behind whom pressure holds.
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
