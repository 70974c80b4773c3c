// Package parse parses what several kernel files have in common: numbers, lines
// of a key and a value, columns, and the counters of a network device.
//
// Nothing here allocates but an error: it runs for each cgroup, disk and NIC at
// every tick.
package parse

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Why a line is malformed. ErrShortLine and ErrDuplicate are those of callers
// too.
var (
	ErrNotNumber = errors.New("not a decimal number")
	ErrTooLarge  = errors.New("number above 2^64-1")
	ErrShortLine = errors.New("too few columns")
	ErrDuplicate = errors.New("duplicate entry")
	errNoValue   = errors.New("key without a value")
)

// Uint parses a number as the kernel prints it: decimal digits and nothing
// else. A number that does not fit is an error and never wraps.
func Uint(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, ErrNotNumber
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, ErrNotNumber
		}
		digit := uint64(c - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, ErrTooLarge
		}
		n = n*10 + digit
	}
	return n, nil
}

// Keyed parses a flat-keyed file (kernel cgroup-v2.rst, "Format"), one
// "key value" per line, and calls found for each pair; key is valid until found
// returns. A malformed line is skipped; the error is about the first one.
func Keyed(b []byte, found func(key []byte, value uint64)) error {
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if len(line) == 0 {
			continue
		}
		key, value, err := splitKeyed(line)
		if err != nil {
			first = cmp.Or(first, LineError(line, err))
			continue
		}
		found(key, value)
	}
	return first
}

func splitKeyed(line []byte) (key []byte, value uint64, err error) {
	key, digits, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(key) == 0 {
		return nil, 0, errNoValue
	}
	value, err = Uint(digits)
	return key, value, err
}

// LineError adds the malformed line to its error, cut to 60 bytes because the
// error is shown to people.
func LineError(line []byte, err error) error {
	const most = 60
	if len(line) > most {
		return fmt.Errorf("line %q…: %w", line[:most], err)
	}
	return fmt.Errorf("line %q: %w", line, err)
}

// Field cuts off the first field, which is empty at the end of the line; spaces
// separate fields. The functions of package bytes would double the cost of 250
// lines of 16 columns.
func Field(b []byte) (field, rest []byte) {
	start := 0
	for start < len(b) && b[start] == ' ' {
		start++
	}
	end := start
	for end < len(b) && b[end] != ' ' {
		end++
	}
	return b[start:end], b[end:]
}
