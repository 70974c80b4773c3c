package top

import (
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// style is a parameter of the terminal's SGR sequence. A style is never the
// only sign of anything.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	green  style = "32"
	yellow style = "1;33"
	red    style = "1;31"
)

func levelStyle(l plugins.Level) style {
	switch l {
	case plugins.Soft:
		return yellow
	case plugins.Hard:
		return red
	case plugins.None:
	}
	return green
}

// span is text in one style.
type span struct {
	text  string
	style style
}

// line is spans next to each other.
type line []span

// write makes the text printable and cuts it at width. All text for the
// terminal goes through it.
func (l line) write(b *strings.Builder, width int, color bool) {
	total := 0
	for _, s := range l {
		total += columns(s.text)
	}
	left := width
	if total > width {
		left = max(0, width-1) // reserve the ellipsis
	}
	for _, s := range l {
		text := clip(view.Printable(s.text), left)
		left -= utf8.RuneCountInString(text)
		if color && s.style != plain && text != "" {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	if total > width {
		b.WriteString("…")
	}
}

// columns that a text takes once printable.
func columns(s string) int { return utf8.RuneCountInString(view.Printable(s)) }

func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n)])
}

// fit cuts with an ellipsis and pads, on the right or on the left.
func fit(s string, width int, right bool) string {
	s = view.Printable(s)
	n := utf8.RuneCountInString(s)
	if n > width {
		return clip(s, width-1) + "…"
	}
	pad := strings.Repeat(" ", width-n)
	if right {
		return pad + s
	}
	return s + pad
}
