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

// atLeast of what is not known to be all.
func atLeast(full bool) string {
	if full {
		return ""
	}
	return "at least "
}

func carries(c plugins.Carry) string {
	return atLeast(c.FullIOPS) + Number(c.IOPS) + " requests/s, " + atLeast(c.FullBytes) + ByteRate(c.BytesPerSecond)
}
