package systemd

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/journal"
)

// Journal is a slog.Handler that writes to the journal. The entry's message is a
// line as of slog's text handler; the constant message alone is the field
// PLIMSOLL_MESSAGE, and each attribute has a field of its own: dryRun is
// PLIMSOLL_DRY_RUN, and id of the group pod is PLIMSOLL_POD_ID.
type Journal struct {
	// Level is the lowest that is written.
	Level slog.Leveler
	// Send sends one entry to the journal.
	Send func(message string, priority journal.Priority, fields map[string]string) error

	prefix string // of groups: "pod."
	attrs  []attr
}

// attr is an attribute with its full name.
type attr struct{ name, value string }

// StderrIsJournal tells whether this process's standard error is connected to the journal.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// NewJournal writes to the journal of this machine.
func NewJournal(level slog.Leveler) *Journal { return &Journal{Level: level, Send: journal.Send} }

// Enabled implements [slog.Handler].
func (j *Journal) Enabled(_ context.Context, l slog.Level) bool { return l >= j.Level.Level() }

// Handle implements [slog.Handler].
func (j *Journal) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clip(j.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, j.prefix, a)
		return true
	})
	var text strings.Builder
	text.WriteString(r.Message)
	fields := map[string]string{"PLIMSOLL_MESSAGE": r.Message, "SYSLOG_IDENTIFIER": "plimsoll"}
	for _, a := range attrs {
		text.WriteString(" " + a.name + "=" + quote(a.value))
		fields[field(a.name)] = a.value
	}
	return j.Send(text.String(), priority(r.Level), fields)
}

// WithAttrs implements [slog.Handler].
func (j *Journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *j
	next.attrs = slices.Clip(j.attrs)
	for _, a := range attrs {
		next.attrs = flatten(next.attrs, j.prefix, a)
	}
	return &next
}

// WithGroup implements [slog.Handler].
func (j *Journal) WithGroup(name string) slog.Handler {
	next := *j
	if name != "" {
		next.prefix += name + "."
	}
	return &next
}

// flatten appends an attribute, a group as its members.
func flatten(list []attr, prefix string, a slog.Attr) []attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			list = flatten(list, prefix, inner)
		}
		return list
	case slog.KindTime:
		return append(list, attr{prefix + a.Key, v.Time().Format(time.RFC3339Nano)})
	}
	if a.Equal(slog.Attr{}) {
		return list
	}
	return append(list, attr{prefix + a.Key, v.String()})
}

// maxField is the journal's maximum length of a field name.
const maxField = 64

// field converts to a journal field name: capitals, digits and underscores.
func field(name string) string {
	var b strings.Builder
	b.WriteString("PLIMSOLL_")
	small := false // the letter before
	for _, c := range name {
		switch {
		case c >= 'A' && c <= 'Z':
			if small {
				b.WriteByte('_')
			}
			b.WriteRune(c)
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteRune(unicode.ToUpper(c))
		default:
			b.WriteByte('_')
		}
		small = c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
	}
	return b.String()[:min(b.Len(), maxField)]
}

// quote quotes a value as slog's text handler does.
func quote(value string) string {
	plain := func(c rune) bool {
		return c != ' ' && c != '"' && c != '=' && c != utf8.RuneError && unicode.IsPrint(c)
	}
	if value != "" && strings.IndexFunc(value, func(c rune) bool { return !plain(c) }) < 0 {
		return value
	}
	return strconv.Quote(value)
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l < slog.LevelInfo:
		return journal.PriDebug
	case l < slog.LevelWarn:
		return journal.PriInfo
	case l < slog.LevelError:
		return journal.PriWarning
	}
	return journal.PriErr
}
