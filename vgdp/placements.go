package vgdp

// placements are the nodes still available to loads of one place. Within a decision nodes
// only fill up, so a full one is dropped for good, and many loads are placed with one
// visit of each node.
type placements struct {
	calm, underPressure []int // nodes with capacity, as far as is known; tight: under pressure
	// The first node dropped for pressure, and the first one that was full. -1: none.
	firstPressed, firstFull int
}

type placementKey struct {
	reach  *Reach
	velero *velero
	exempt bool // exempt from pressure
}

// place places a load on a node with capacity, one without pressure if possible, and
// takes it; else it says why there is none.
func (r *capacity) place(v *velero, l *Load, reach *Reach, free bool) Code {
	switch {
	case len(reach.nodes) == 0:
		return CodeUnschedulable
	case reach.bound:
		code := r.limitReached(v, reach.nodes[0], free)
		if code == "" {
			r.occupy(v, l, reach.nodes[0])
		}
		return code
	}
	s := r.placementsFor(v, reach, free)
	for _, list := range []*[]int{&s.calm, &s.underPressure} {
		if node, found := r.pickNode(s, list, v, free); found {
			r.occupy(v, l, node)
			return ""
		}
	}
	if s.firstPressed >= 0 {
		return CodePressure
	}
	return CodeFull
}

func (r *capacity) placementsFor(v *velero, reach *Reach, free bool) *placements {
	key := placementKey{reach, v, free}
	s := r.placements[key]
	if s != nil {
		return s
	}
	s = &placements{firstPressed: -1, firstFull: -1}
	for _, i := range reach.nodes {
		if r.underPressure[i] {
			s.underPressure = append(s.underPressure, i)
		} else {
			s.calm = append(s.calm, i)
		}
	}
	r.placements[key] = s
	return s
}

// pickNode returns the first node with capacity and moves it to the end of the list (round
// robin), so that loads are spread.
func (r *capacity) pickNode(s *placements, list *[]int, v *velero, free bool) (node int, found bool) {
	for len(*list) > 0 {
		node = (*list)[0]
		*list = (*list)[1:]
		switch code := r.limitReached(v, node, free); {
		case code == "":
			*list = append(*list, node)
			return node, true
		case code == CodePressure && s.firstPressed < 0:
			s.firstPressed = node
		case code == CodeFull && s.firstFull < 0:
			s.firstFull = node
		}
	}
	return 0, false
}

// limitReached says why no more loads fit on a node. Without prepareQueueLength the concurrency
// of a node is left to Velero. A load that is exempt from pressure does not wait behind
// loads that pressure holds.
func (r *capacity) limitReached(v *velero, node int, free bool) Code {
	mine := v.mine[node]
	if free {
		mine -= v.heldByPressure[node]
	}
	switch {
	case v.PrepareLimit > 0 && mine >= v.agents[node].Concurrency:
		return CodeFull
	case !free && r.underPressure[node] && r.used[node] >= r.allowed[node]:
		return CodePressure
	}
	return ""
}
