package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// What the store may take, whatever is on the node: names of pods, cgroups, mounts and
// scopes of outer plugins are made by others.
const (
	// maxBytes is what series and their blocks may take together, by size. Above it
	// go first the workloads that are gone, the longest gone first; so one that
	// makes and ends workloads costs the history of others that have ended, and of none that
	// runs. Then the oldest blocks of workloads.
	maxBytes = 6 << 20

	seriesOverhead = 500 // bytes of a series without names and blocks, measured
	blockOverhead  = 48  // bytes of a block without its rows

	// maxName is the longest name or title in bytes.
	maxName = 256
)

// maxLive is how many series of a kind are kept at a time. Devices and rules that are
// gone count as well.
func (k kind) maxLive() int {
	return [kindEnd]int{kindNode: 1, kindDisk: 64, kindNIC: 64, kindRule: 256, kindWorkload: 1000}[k]
}

// bounded is a name of at most maxName bytes, which is no other's.
func bounded(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxName-24], "") + "…" + hex.EncodeToString(sum[:8])
}

// trim drops what is too old or too much.
func (s *Store) trim() {
	bytes := 0
	for _, one := range s.all {
		one.closeMinute(s.step)
		one.fine.dropBefore(s.step - (fineBlocks-1)*blockSteps)
		one.day.dropBefore(s.step/stepsPerMinute - (dayBlocks-1)*blockSteps)
		bytes += one.size()
	}
	bytes -= s.drop(func(one *series) bool {
		return !s.isLive(one) && len(one.fine.blocks) == 0 && len(one.day.blocks) == 0
	})
	for k := kindNode; k < kindEnd; k++ {
		if k != kindWorkload {
			bytes -= s.dropGone(k, func(int) bool { return len(s.byName[k]) > k.maxLive() })
		}
	}
	over := bytes - maxBytes
	if over > 0 {
		over -= s.dropGone(kindWorkload, func(dropped int) bool { return dropped < over })
	}
	for over > 0 {
		dropped := s.dropOldestBlocks()
		if dropped == 0 {
			return
		}
		over -= dropped
	}
}

// isLive reports whether a series had a row in the newest step.
func (s *Store) isLive(one *series) bool { return one.seen == s.step }

// drop drops series and returns their bytes.
func (s *Store) drop(is func(*series) bool) int {
	bytes := 0
	s.all = slices.DeleteFunc(s.all, func(one *series) bool {
		if !is(one) {
			return false
		}
		bytes += one.size()
		delete(s.byName[one.kind], one.name)
		return true
	})
	return bytes
}

// dropGone drops series of a kind that are not live, the longest gone first, as long as
// more says so of the bytes that were dropped.
func (s *Store) dropGone(k kind, more func(dropped int) bool) int {
	if !more(0) {
		return 0
	}
	var gone []*series
	for _, one := range s.all {
		if one.kind == k && !s.isLive(one) {
			gone = append(gone, one)
		}
	}
	slices.SortStableFunc(gone, func(a, b *series) int { return cmp.Compare(a.seen, b.seen) })
	dropped, bytes := map[*series]bool{}, 0
	for _, one := range gone {
		if !more(bytes) {
			break
		}
		dropped[one], bytes = true, bytes+one.size()
		delete(s.byName[k], one.name)
	}
	return s.drop(func(one *series) bool { return dropped[one] })
}

// dropOldestBlocks drops those blocks of workloads that ended first, and returns their
// bytes.
func (s *Store) dropOldestBlocks() int {
	workloads := s.of(kindWorkload)
	oldest := int64(-1) // in fine steps, when it ends
	for _, one := range workloads {
		for t, scale := range one.tracks() {
			if len(t.blocks) > 0 {
				if end := (t.blocks[0].first + blockSteps) * scale; oldest < 0 || end < oldest {
					oldest = end
				}
			}
		}
	}
	bytes := 0
	for _, one := range workloads {
		before := one.size()
		for t, scale := range one.tracks() {
			t.dropBefore(oldest / scale)
		}
		bytes += before - one.size()
	}
	return bytes
}
