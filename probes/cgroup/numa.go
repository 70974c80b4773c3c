package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// maxNUMANodes is the kernel's own bound (CONFIG_NODES_SHIFT up to 10).
const maxNUMANodes = 1024

// readNUMA reads memory.numa_stat, which costs about as much as memory.stat.
func (t *trackedWorkload) readNUMA(i int, v1 bool) {
	t.w.NUMA = nil
	if !t.reader.NUMA {
		return
	}
	b, err := t.readOnce(i, "memory.numa_stat")
	if err == nil {
		t.w.NUMA, err = parseNUMAStat(b, v1)
	}
	if err != nil {
		t.recordAbsent(ofDetail, nameNUMA, err.Error())
	}
}

// numaUnit is the unit of a line of memory.numa_stat, in bytes; 0 if the line is not
// used. Lines of v1 without hierarchical are of the cgroup without those below it.
func numaUnit(key []byte, v1 bool) uint64 {
	switch string(key) {
	case "anon", "shmem", "active_file":
		if !v1 {
			return 1
		}
	case "hierarchical_anon", "hierarchical_unevictable":
		if v1 {
			return uint64(os.Getpagesize())
		}
	}
	return 0
}

// numaSums are sums by NUMA node, in the order of the file.
type numaSums []snapshot.WorkloadNUMA

// parseNUMAStat sums the lines that are used for each NUMA node, such as
// "anon N0=4096 N1=0", or on v1 "hierarchical_anon=2 N0=1 N1=1".
func parseNUMAStat(b []byte, v1 bool) (sums numaSums, err error) {
	used := false
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		key, rest := parse.Field(line)
		key, _, _ = bytes.Cut(key, []byte{'='})
		unit := numaUnit(key, v1)
		if unit == 0 {
			continue
		}
		used = true
		if sums, err = sums.add(rest, unit); err != nil {
			return nil, fmt.Errorf("memory.numa_stat: %w", parse.LineError(line, err))
		}
	}
	if !used {
		return nil, errNoNUMALines
	}
	return sums, nil
}

// add adds the values of one line. The kernel prints the NUMA nodes of each line in one
// order.
func (s numaSums) add(values []byte, unit uint64) (numaSums, error) {
	for at := 0; ; at++ {
		field, rest := parse.Field(values)
		if len(field) == 0 {
			return s, nil
		}
		values = rest
		node, n, err := numaField(field)
		switch {
		case err != nil:
			return nil, err
		case at == len(s) && s.has(node):
			return nil, parse.ErrDuplicate
		case at == len(s):
			s = append(s, snapshot.WorkloadNUMA{Node: node})
		case s[at].Node != node:
			return nil, errNUMAOrder
		}
		if n > maxNUMABytes/unit || s[at].Bytes > maxNUMABytes {
			return nil, parse.ErrTooLarge
		}
		s[at].Bytes += n * unit
	}
}

func (s numaSums) has(node int) bool {
	return slices.ContainsFunc(s, func(n snapshot.WorkloadNUMA) bool { return n.Node == node })
}

var (
	errNUMAField   = errors.New("not a NUMA node with a number")
	errNUMAOrder   = errors.New("NUMA nodes in another order than in the line before")
	errNoNUMALines = errors.New("memory.numa_stat has none of the lines that are used")
)

// maxNUMABytes keeps sums of some values below 2^64.
const maxNUMABytes = 1 << 60

// numaField parses N0=4096.
func numaField(field []byte) (node int, value uint64, err error) {
	name, digits, ok := bytes.Cut(field, []byte{'='})
	if !ok || len(name) < 2 || name[0] != 'N' {
		return 0, 0, errNUMAField
	}
	id, err := parse.Uint(name[1:])
	if err != nil || id >= maxNUMANodes {
		return 0, 0, errNUMAField
	}
	value, err = parse.Uint(digits)
	return int(id), value, err
}
