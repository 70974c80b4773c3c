package view

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Throttles are the pods of the node that are throttled for a pressure that they cause.
type Throttles struct {
	// DryRun: pods other than data movers are not throttled.
	DryRun bool `json:"dryRun"`
	// Throttled pods, by cgroup and disk; nil: none.
	Throttled []Throttled `json:"throttled,omitempty"`
	// Exempt are the culprits that are not throttled, and why.
	Exempt []NotThrottled `json:"notThrottled,omitempty"`
	// Problem is why the last change of limits failed, also in part.
	Problem string `json:"problem,omitempty"`
}

// Throttled is a pod with a limit, which a dry run does not apply.
type Throttled struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	// Disk whose use is limited, or memory; neither: the CPU's.
	Disk   string `json:"disk,omitempty"`
	Memory bool   `json:"memory,omitempty"`
	// Percent of its previous use, and May is the limit: bytes per second of a
	// disk, cores, or bytes of memory.
	Percent int            `json:"percent"`
	Limit   throttle.Rates `json:"may"`
	// Reason it began: who waits, and what its share is.
	Reason string `json:"why,omitempty"`
	// Resized: the CPU limits of its containers are resized in place. NotResized is why
	// cpu.max of its cgroup is written although that is configured.
	Resized    bool   `json:"resized,omitempty"`
	NotResized string `json:"notResized,omitempty"`
	// Mover: it is a data mover of Velero. DryRun: the limit is not applied.
	Mover  bool `json:"mover,omitempty"`
	DryRun bool `json:"dryRun,omitempty"`
	// Expires: an agent that finds the limit later removes it.
	Expires time.Time `json:"expires"`
	// Until a limit of memory lasts at most; zero: until the pressure is over.
	Until time.Time `json:"until,omitzero"`
	// Foreign: another program changed one of the limits since; that one is left
	// unchanged.
	Foreign bool `json:"foreign,omitempty"`
}

// NotThrottled is a culprit that is not throttled.
type NotThrottled struct {
	Cgroup string `json:"cgroup"`
	Name   string `json:"name"`
	Disk   string `json:"disk,omitempty"`
	Memory bool   `json:"memory,omitempty"`
	Reason string `json:"why"`
}

// Text is a throttled pod in one line.
func (t *Throttled) Text() string {
	text := Printable(t.Name) + ": " + t.Sentence()
	if t.DryRun {
		text += " (dry run: not applied)"
	}
	if t.NotResized != "" {
		text += "; not resized in place: " + Printable(t.NotResized)
	}
	if t.Foreign {
		text += "; another program changed this limit since, it is left unchanged"
	}
	return text
}

// Sentence is the limit, until when it lasts, and why it began.
func (t *Throttled) Sentence() string {
	text := t.Limited() + ", released in steps when the pressure is over"
	if t.Memory {
		text = t.Limited() + ", until the pressure is over"
	}
	if !t.Until.IsZero() {
		text += ", at the latest " + t.Until.UTC().Format("15:04:05") + " UTC"
	}
	if t.Reason != "" {
		text += ", since " + Printable(t.Reason)
	}
	return text
}

// Limited is the limit in a few words.
func (t *Throttled) Limited() string {
	if t.Memory {
		return "memory limited to " + Bytes(t.Limit.Memory)
	}
	may := "CPU limited to " + Number(t.Limit.CPU) + " cores"
	if t.Resized {
		may += " by in-place resize"
	}
	if t.Disk != "" {
		may = Printable(t.Disk) + " limited to " + ByteRate(t.Limit.Read) + " read, " + ByteRate(t.Limit.Write) + " write"
	}
	return may + ", " + Count(uint64(t.Percent)) + " % of its previous use"
}

// Text is a culprit that is not throttled in one line.
func (n *NotThrottled) Text() string {
	of := "CPU"
	switch {
	case n.Memory:
		of = "memory"
	case n.Disk != "":
		of = Printable(n.Disk)
	}
	return Printable(n.Name) + ", " + of + ": " + Printable(n.Reason)
}

// Of are the throttles of one cgroup.
func (l *Throttles) Of(cgroup string) (list []string) {
	return l.texts(func(t *Throttled) bool { return t.Cgroup == cgroup })
}

// On are the throttles of one disk.
func (l *Throttles) On(disk string) (list []string) {
	return l.texts(func(t *Throttled) bool { return t.Disk == disk })
}

// All throttles, a line each.
func (l *Throttles) All() []string { return l.texts(func(*Throttled) bool { return true }) }

// Percent of its previous use that a cgroup may use of a disk, of memory, or else of the
// CPU; 0: it is not throttled there. Of memory it is 100: it may not take more.
func (l *Throttles) Percent(cgroup, disk string, memory bool) (percent int) {
	if l == nil {
		return 0
	}
	for i := range l.Throttled {
		if t := &l.Throttled[i]; t.Cgroup == cgroup && t.Disk == disk && (t.Memory == memory || percent == 0 && memory) && !t.DryRun {
			percent = t.Percent
		}
	}
	return percent
}

// Resized counts the pods that are resized in place.
func (l *Throttles) Resized() (n uint64) {
	for i := range l.Throttled {
		if t := &l.Throttled[i]; t.Resized && !t.DryRun {
			n++
		}
	}
	return n
}

func (l *Throttles) texts(match func(*Throttled) bool) (list []string) {
	if l == nil {
		return nil
	}
	for i := range l.Throttled {
		if t := &l.Throttled[i]; match(t) {
			list = append(list, t.Text())
		}
	}
	return list
}
