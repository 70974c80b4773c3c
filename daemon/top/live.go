package top

import (
	"fmt"
	"io"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Live shows one State after the other.
type Live struct {
	Out   io.Writer
	Color bool
	// Size of the terminal in columns and lines; nil where Out is not a
	// terminal: then changes are written as lines.
	Size func() (width, height int, err error)
	// Page is the address of the status page; may be empty.
	Page string

	previous *view.State
	drawing  bool
}

// Size of a terminal whose size is unknown.
const defaultWidth, defaultHeight = 80, 24

const (
	hideCursor, showCursor = "\x1b[?25l", "\x1b[?25h"
	// Without wrapping, a character wider than counted cannot move the frame.
	wrapOff, wrapOn = "\x1b[?7l", "\x1b[?7h"
	home            = "\x1b[H"
	clearLine       = "\x1b[K"
	clearBelow      = "\x1b[J"
)

// Show draws the state, or writes the changes since the previous one.
func (l *Live) Show(s *view.State) {
	if s == nil {
		return
	}
	if l.Size == nil {
		l.writeLines(s)
	} else {
		l.draw(s)
	}
	l.previous = s
}

// Close restores the terminal, below the last frame.
func (l *Live) Close() {
	if !l.drawing {
		return
	}
	l.drawing = false
	_, height := l.size()
	l.write(fmt.Sprintf("\x1b[%d;1H", height) + wrapOn + showCursor + "\n")
}

func (l *Live) writeLines(s *view.State) {
	list := Lines(l.previous, s)
	if l.previous == nil && l.Page != "" && len(list) > 0 {
		list[0] += "; status page " + l.Page
	}
	if len(list) > 0 {
		l.write(strings.Join(list, "\n") + "\n")
	}
}

// draw writes a frame over the previous one, in one write against flicker.
// Earlier content of the screen is scrolled up.
func (l *Live) draw(s *view.State) {
	width, height := l.size()
	var b strings.Builder
	if !l.drawing {
		b.WriteString(hideCursor + wrapOff + strings.Repeat("\n", height))
		l.drawing = true
	}
	var f strings.Builder
	Render(&f, s, width, height-1, l.Color)
	// A line is cleared before it is written: after its last column the cursor
	// is still on that column, which would be cleared.
	b.WriteString(home + clearLine)
	b.WriteString(strings.ReplaceAll(f.String(), "\n", "\r\n"+clearLine))
	b.WriteString(clearBelow)
	last := line{{"Ctrl-C quits", dim}}
	if l.Page != "" {
		last = line{{"status page: ", dim}, {l.Page, bold}, {"  ·  Ctrl-C quits", dim}}
	}
	fmt.Fprintf(&b, "\x1b[%d;1H", height)
	last.write(&b, width, l.Color)
	l.write(b.String())
}

func (l *Live) size() (width, height int) {
	width, height, err := l.Size()
	if err != nil || width < 1 || height < 2 {
		return defaultWidth, defaultHeight
	}
	return width, height
}

// write ignores an error: the terminal is gone, and the agent continues.
func (l *Live) write(s string) { _, _ = io.WriteString(l.Out, s) }
