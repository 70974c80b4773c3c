package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a configuration file.
type Error struct {
	// File is the name the file was decoded under.
	File string
	// Line counts from 1; 0 when the mistake has no line, such as a value that
	// only a flag set.
	Line int
	// Key is the dotted path, such as plugins.memoryStall.soft.stallFull or
	// web.listenAddresses[0]; empty for the file as a whole.
	Key string
	// Reason is one line.
	Reason string
}

// Error is one line: file:line: key: why. What is not known is left out.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Errors is everything that is wrong with a file, in the order of its lines.
// It is never empty where it is returned as an error.
type Errors []*Error

// Error is one line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// orNil sorts the errors by line, those without a line last, and is nil when
// there are none.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Compare(sortLine(a), sortLine(b))
	})
	return e
}

func sortLine(e *Error) int {
	if e.Line == 0 {
		return math.MaxInt
	}
	return e.Line
}
