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

// Knees of a disk, for the directions of which it is known.
func (s *State) Knees(device string) (list []Knee) {
	c := s.Levels.Capacity(device)
	if c == nil {
		return nil
	}
	for _, d := range []struct {
		name        string
		now, before plugins.Carry
	}{{"reading", c.Read, c.Before.Read}, {"writing", c.Write, c.Before.Write}} {
		if d.now.IOPS <= 0 {
			continue
		}
		k := Knee{Direction: d.name, Text: atLeast(c.Full) + carries(d.now), How: "seen since " + Stamp(c.Since) + " UTC"}
		if d.now.AwaitSeconds > 0 {
			k.How = "at " + Seconds(d.now.AwaitSeconds) + ", " + k.How
		}
		if d.before.IOPS > 0 {
			k.How += "; until then " + carries(d.before)
		}
		list = append(list, k)
	}
	return list
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
