package replay

import (
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

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
