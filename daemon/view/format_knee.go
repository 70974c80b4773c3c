package view

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Knee is what a disk carries in one direction, in words.
type Knee struct {
	// Direction is "reading" or "writing".
	Direction string
	// Text is how much it carries, How at what await, and since when that is known.
	Text, How string
}

// atLeast of a disk that was never asked for all that it carries.
func atLeast(full bool) string {
	if full {
		return ""
	}
	return "at least "
}

func carries(c plugins.Carry) string {
	return Number(c.IOPS) + " requests/s, " + ByteRate(c.BytesPerSecond)
}
