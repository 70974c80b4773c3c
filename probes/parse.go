package probes

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

var (
	errNoNumber = errors.New("not a decimal number")
	errTooLarge = errors.New("number above 2^64-1")
	errNoValue  = errors.New("key without a value")
)

// parseUint reads a number as the kernel prints it: decimal digits and nothing
// else. A number that does not fit is an error, never a wrapped one.
func parseUint(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, errNoNumber
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, errNoNumber
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, errTooLarge
		}
		n = n*10 + digit
	}
	return n, nil
}

// parseKeyed reads a flat-keyed file (kernel cgroup-v2.rst, "Format"), one
// "key value" a line, and hands each pair to found; key is only good until
// found returns. A line that cannot be read costs itself alone: the others are
// handed over, and the error is about the first such line.
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
			first = firstOf(first, oddLine(line, err))
			continue
		}
		found(key, value)
	}
	return first
}

// firstOfKey is the value of one key of a flat-keyed file, absent when it is
// not there. Lines of other keys are not looked at.
func firstOfKey(b []byte, file, wanted string) (Opt[uint64], error) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) <= len(wanted) || line[len(wanted)] != ' ' || string(line[:len(wanted)]) != wanted {
			continue
		}
		value, err := parseUint(line[len(wanted)+1:])
		if err != nil {
			return Opt[uint64]{}, fmt.Errorf("%s: %w", file, oddLine(line, err))
		}
		return Some(value), nil
	}
	return Opt[uint64]{}, nil
}

func splitKeyed(line []byte) (key []byte, value uint64, err error) {
	key, digits, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(key) == 0 {
		return nil, 0, errNoValue
	}
	value, err = parseUint(digits)
	return key, value, err
}

// oddLine says which line could not be read. Lines of the kernel are short;
// one that is not is cut, since the reason is shown to people.
func oddLine(line []byte, err error) error {
	const most = 60
	if len(line) > most {
		return fmt.Errorf("line %q…: %w", line[:most], err)
	}
	return fmt.Errorf("line %q: %w", line, err)
}

func firstOf(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// names keeps one string of each name that was met, so that reading the same
// ones again allocates nothing. Devices come and go: too many start anew.
type names map[string]string

func (n names) of(b []byte) string {
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

// join is of for a name in parts.
func (n names) join(parts ...string) string {
	var room [96]byte
	b := room[:0]
	for _, p := range parts {
		b = append(b, p...)
	}
	return n.of(b)
}
