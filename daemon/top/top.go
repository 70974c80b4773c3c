// Package top shows a State in a terminal: one frame, a screen to walk through, or a
// line for each change.
//
// # Usage
//
// Render draws one frame. A Screen is what a user walks through: pure, from values and
// keys to lines; a Terminal draws it and hands it keys, sizes and states. Changes is
// given one State after the other and writes a line for each change.
//
// # Concurrency
//
// A Terminal and a Changes belong to one goroutine each. The rest is pure.
package top

import (
	"io"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// The smallest frame; a smaller terminal cuts it.
const minWidth, minHeight = 40, 10

// roomyHeight is the height in lines from which sections are separated by empty
// lines.
const roomyHeight = 32

// Render draws one frame of at most height lines and width columns. Control
// characters in names are escaped, so only the colours requested by color reach
// the terminal as commands. A nil State is shown as Waiting.
func Render(w io.Writer, s *view.State, width, height int, color bool) {
	f := &frame{width: max(1, width), color: color}
	if s == nil {
		f.add(line{{"Plimsoll  ", bold}, {view.WaitingText, plain}})
	} else {
		f.state(s, max(minHeight, height))
	}
	_, _ = io.WriteString(w, f.text(max(1, height))) // the owner of w notices errors
}

func (f *frame) state(s *view.State, height int) {
	f.roomy = height >= roomyHeight
	head := headerLines(s, f.width, isOld(s))
	if isOld(s) {
		head = slices.Insert(head, 1, oldLine(s.SampleAge, noNewSample))
	}
	f.add(head...)
	f.gap()
	if contention := contentionLines(s, f.width, f.roomy, 2*height/5); len(contention) > 0 {
		f.add(contention...)
		f.gap()
	}
	f.add(verdictLines(s)...)
	f.add(append(dataMoverLines(s), throttleLines(s)...)...)
	f.gap()
	f.add(pressureLines(s, f.width)...)
	footer := warnings(s, f.roomy)
	for _, t := range listTables(s, f.roomy, height-len(f.lines)-len(footer)) {
		f.gap()
		f.add(t.lines(f.width)...)
	}
	f.add(footer...)
}

// frame collects the lines of all parts: each part makes its own.
type frame struct {
	width int
	color bool
	roomy bool
	lines []line
}

func (f *frame) add(l ...line) { f.lines = append(f.lines, l...) }

func (f *frame) gap() {
	if f.roomy {
		f.add(line{})
	}
}

func (f *frame) text(height int) string {
	var b strings.Builder
	for _, l := range f.lines[:min(height, len(f.lines))] {
		l.write(&b, f.width, f.color)
		b.WriteByte('\n')
	}
	return b.String()
}
