package probes

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var (
	errNotNumber = errors.New("not a decimal number")
	errTooLarge  = errors.New("number above 2^64-1")
	errNoValue   = errors.New("key without a value")
)

// parseUint parses a number as the kernel prints it: decimal digits and nothing
// else. A number that does not fit is an error and never wraps.
func parseUint(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, errNotNumber
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, errNotNumber
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, errTooLarge
		}
		n = n*10 + digit
	}
	return n, nil
}

// parseKeyed parses a flat-keyed file (kernel cgroup-v2.rst, "Format"), one
// "key value" per line, and calls found for each pair; key is valid until found
// returns. A malformed line is skipped; the error is about the first one.
func parseKeyed(b []byte, found func(key []byte, value uint64)) error {
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) == 0 {
			continue
		}
		key, value, err := splitKeyed(line)
		if err != nil {
			first = firstError(first, lineError(line, err))
			continue
		}
		found(key, value)
	}
	return first
}

// valueOfKey returns the value of one key of a flat-keyed file, absent if the
// key is missing. It does not parse the other lines.
func valueOfKey(b []byte, file, wanted string) (snapshot.Opt[uint64], error) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) <= len(wanted) || line[len(wanted)] != ' ' || string(line[:len(wanted)]) != wanted {
			continue
		}
		value, err := parseUint(line[len(wanted)+1:])
		if err != nil {
			return snapshot.Opt[uint64]{}, fmt.Errorf("%s: %w", file, lineError(line, err))
		}
		return snapshot.Some(value), nil
	}
	return snapshot.Opt[uint64]{}, nil
}

func splitKeyed(line []byte) (key []byte, value uint64, err error) {
	key, digits, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(key) == 0 {
		return nil, 0, errNoValue
	}
	value, err = parseUint(digits)
	return key, value, err
}

// lineError adds the malformed line to an error, cut to 60 bytes because the
// error is shown to people.
func lineError(line []byte, err error) error {
	const most = 60
	if len(line) > most {
		return fmt.Errorf("line %q…: %w", line[:most], err)
	}
	return fmt.Errorf("line %q: %w", line, err)
}

func firstError(first, next error) error {
	if first != nil {
		return first
	}
	return next
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
