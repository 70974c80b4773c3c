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
	// marked is the row of the cursor, which has a sign in front of it, too.
	marked style = "7"
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

// columns that the line takes once printable.
func (l line) columns() int {
	all := 0
	for _, s := range l {
		all += columns(s.text)
	}
	return all
}

// cut makes the text printable and cuts it at width. All text for the terminal
// goes through it.
func (l line) cut(width int) line {
	total := l.columns()
	left := width
	if total > width {
		left = max(0, width-1) // reserve the ellipsis
	}
	out := make(line, 0, len(l)+1)
	for _, s := range l {
		text := clip(view.Printable(s.text), left)
		left -= utf8.RuneCountInString(text)
		if text != "" {
			out = append(out, span{text, s.style})
		}
	}
	if total > width {
		out = append(out, span{"…", plain})
	}
	return out
}

// write it with the commands of a terminal for its styles.
func (l line) write(b *strings.Builder, width int, color bool) {
	for _, s := range l.cut(width) {
		if color && s.style != plain {
			s.text = "\x1b[" + string(s.style) + "m" + s.text + "\x1b[0m"
		}
		b.WriteString(s.text)
	}
}

// wrap breaks a line at spaces, so that no part is wider than width; the parts after
// the first are indented.
func (l line) wrap(width, indent int) []line {
	indent = min(indent, max(0, width-8))
	var out []line
	var now line
	used, begin := 0, 0
	put := func(text string, s style) {
		now, used = append(now, span{text, s}), used+utf8.RuneCountInString(text)
	}
	next := func() {
		out, now, used, begin = append(out, now), nil, 0, indent
		put(strings.Repeat(" ", indent), plain)
	}
	for _, s := range l {
		for _, word := range strings.SplitAfter(view.Printable(s.text), " ") {
			if used > begin && used+utf8.RuneCountInString(strings.TrimRight(word, " ")) > width {
				next()
			}
			for utf8.RuneCountInString(strings.TrimRight(word, " ")) > max(1, width-used) {
				head := clip(word, max(1, width-used))
				put(head, s.style)
				word = word[len(head):]
				next()
			}
			put(clip(word, max(0, width-used)), s.style) // without the space at the end of a full line
		}
	}
	return append(out, now)
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
