package cgroup

import (
	"bytes"
	"fmt"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Names of the measurements in Absent.
const (
	nameMemory       = "memory"
	nameMemoryBytes  = "memoryBytes"
	nameInactiveFile = "inactiveFileBytes"
	nameSwap         = "swapBytes"
	nameRSS          = "rssBytes"
	nameNUMA         = "numaMemory"
	nameReclaimed    = "reclaimedTotal"
	nameCharged      = "chargedTotal"
	nameMemoryLimit  = "memoryLimitBytes"
	nameLimitHits    = "limitHitsTotal"
	nameOOMKills     = "oomKillsTotal"
	nameCPU          = "cpuMicrosecondsTotal"
	nameThrottled    = "throttledMicrosecondsTotal"
	nameIO           = "io"
	nameNetwork      = "network"
	namePressure     = "pressure"
)

// valueOfKey returns the value of one key of a flat-keyed file, absent if the
// key is missing. It does not parse the other lines.
func valueOfKey(b []byte, file, wanted string) (snapshot.Opt[uint64], error) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) <= len(wanted) || line[len(wanted)] != ' ' || string(line[:len(wanted)]) != wanted {
			continue
		}
		value, err := parse.Uint(line[len(wanted)+1:])
		if err != nil {
			return snapshot.Opt[uint64]{}, fmt.Errorf("%s: %w", file, parse.LineError(line, err))
		}
		return snapshot.Some(value), nil
	}
	return snapshot.Opt[uint64]{}, nil
}

// interner interns strings, so that reading the same names again allocates
// nothing. It is emptied when it grows too large, since devices come and go.
type interner map[string]string

func (n interner) intern(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	const most = 4096
	if len(n) >= most {
		clear(n)
	}
	s := string(b)
	n[s] = s
	return s
}

// internJoined is of for a name in several parts.
func (n interner) internJoined(parts ...string) string {
	var array [96]byte
	b := array[:0]
	for _, p := range parts {
		b = append(b, p...)
	}
	return n.intern(b)
}

// number parses a file that is one number.
func number(b []byte, file string) (snapshot.Opt[uint64], error) {
	n, err := parse.Uint(trimNewline(b))
	if err != nil {
		return snapshot.Opt[uint64]{}, fmt.Errorf("%s: %w", file, parse.LineError(b, err))
	}
	return snapshot.Some(n), nil
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}

// keyed is Keyed with the file's name in the error.
func keyed(b []byte, file string, found func(key []byte, value uint64)) error {
	if err := parse.Keyed(b, found); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// subtreeSum is the sum of a counter over a cgroup and those below it. It never
// decreases: it keeps what was last read of a cgroup that was removed, or that counts
// from 0 again.
type subtreeSum struct {
	parts []part // as last read, sorted
	gone  uint64
}

// part is the counter of one cgroup; dir is empty for the one above the others.
type part struct {
	dir   string
	value uint64
}

func (s *subtreeSum) update(parts []part) (snapshot.Opt[uint64], error) {
	var d adder
	rest := parts
	for _, was := range s.parts {
		for len(rest) > 0 && rest[0].dir < was.dir {
			rest = rest[1:]
		}
		if len(rest) == 0 || rest[0].dir != was.dir || rest[0].value < was.value {
			d.add(&s.gone, was.value)
		}
	}
	s.parts = append(s.parts[:0], parts...)
	total := s.gone
	for _, p := range parts {
		d.add(&total, p.value)
	}
	if d.tooLarge {
		return snapshot.Opt[uint64]{}, parse.ErrTooLarge
	}
	return snapshot.Some(total), nil
}

// sum adds counters. It is absent if one is, and an error if it overflows.
func sum(values ...snapshot.Opt[uint64]) (snapshot.Opt[uint64], error) {
	var total uint64
	for _, o := range values {
		v, ok := o.Get()
		if !ok {
			return o, nil
		}
		if total+v < total {
			return snapshot.Opt[uint64]{}, parse.ErrTooLarge
		}
		total += v
	}
	return snapshot.Some(total), nil
}
