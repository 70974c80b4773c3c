package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// headline is the levels above none, in words.
func (r *Report) headline() string {
	var parts []string
	for i := range r.Scopes {
		if s := &r.Scopes[i]; s.SoftSeconds+s.HardSeconds > 0 || s.RoseToSoft+s.RoseToHard > 0 {
			parts = append(parts, s.title()+": "+s.timeAtLevels())
		}
	}
	switch {
	case len(parts) > 2:
		return fmt.Sprintf("%s; and %d more", strings.Join(parts[:2], "; "), len(parts)-2)
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	}
	if slices.ContainsFunc(r.Scopes, func(s Scope) bool { return s.UnjudgedSeconds > s.NoneSeconds/2 }) || len(r.Scopes) == 0 {
		return "No level was reached; some measurements are missing"
	}
	return "No level was reached"
}

func (s *Scope) title() string {
	if s.Scope == "" || s.Scope == "node" {
		return s.Plugin
	}
	return s.Plugin + " " + s.Scope
}

// timeAtLevels is the time at the levels above none.
func (s *Scope) timeAtLevels() string {
	var parts []string
	if s.HardSeconds > 0 || s.RoseToHard > 0 {
		parts = append(parts, "hard "+view.Age(seconds(s.HardSeconds)))
	}
	if s.SoftSeconds > 0 || s.RoseToSoft > 0 {
		parts = append(parts, "soft "+view.Age(seconds(s.SoftSeconds)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// text is the summary of a scope in a sentence.
func (s *Scope) text() string {
	text := s.title() + ": " + s.timeAtLevels()
	if s.Soft != nil {
		text += "; soft: " + s.extreme(s.Soft)
	}
	if s.Hard != nil {
		text += "; hard: " + s.extreme(s.Hard)
	}
	return text
}

// recordingLines describes the recordings in a few lines.
func (r *Report) recordingLines() []string {
	end := view.Stamp(r.End)
	if view.Stamp(r.Start)[:len(time.DateOnly)] == end[:len(time.DateOnly)] {
		end = view.Clock(r.End)
	}
	var lines []string
	for _, f := range r.Recordings[:min(3, len(r.Recordings))] {
		lines = append(lines, f.File+" (Linux "+f.Kernel+")")
	}
	if more := len(r.Recordings) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more recordings", more))
	}
	if r.Failed != "" {
		lines = append(lines, "Replay stopped: "+r.Failed)
	}
	return append(lines, view.Stamp(r.Start)+" to "+end+" UTC", view.Age(seconds(r.Seconds))+", "+view.Count(r.Samples)+" samples")
}

// wrap breaks a text into lines for a narrow viewer, and makes it printable.
func wrap(text string) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(view.Printable(text)) {
		for utf8.RuneCountInString(word) > lineRunes {
			runes := []rune(word)
			if line != "" {
				lines = append(lines, line)
				line = ""
			}
			lines = append(lines, string(runes[:lineRunes]))
			word = string(runes[lineRunes:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineRunes:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
