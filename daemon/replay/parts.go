package replay

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/recording"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// part is a file to play: one that was named, or a segment of a directory that was.
type part struct {
	path string
	dir  string // empty: the file was named
	run  string // of its header
	// number of a segment, which grows whatever the clock says.
	number uint64

	boot     string
	boottime time.Duration
	booted   time.Time // by the wall clock of the first sample
}

// parts lists the files to play, in their order.
func (p *Player) parts(names []string) ([]part, error) {
	var all []part
	for _, name := range names {
		info, err := os.Stat(name)
		if name == Stdin || err != nil || !info.IsDir() {
			all = append(all, part{path: name})
			continue
		}
		segments, err := recording.Segments(name)
		if err != nil {
			return nil, err
		}
		for _, s := range segments {
			all = append(all, part{path: s.Path, dir: name, number: s.Number})
		}
	}
	if len(all) == 1 && all[0].dir == "" {
		return all, nil // it may be a pipe
	}
	return p.ordered(all)
}

var errEnough = errors.New("enough")

// ordered reads where each file begins, and sorts them by boot, and within a boot by
// the boot clock, which cannot be set. Segments of one directory have numbers.
func (p *Player) ordered(all []part) ([]part, error) {
	known := make([]part, 0, len(all))
	booted := map[string]time.Time{} // the latest: a clock that is not set yet is behind
	for _, one := range all {
		err := one.readStart()
		if err != nil && one.dir == "" {
			return nil, err
		}
		if err != nil {
			if !errors.Is(err, errNoSample) { // its agent was killed before the first one
				p.unreadable(one, err)
			}
			continue
		}
		known = append(known, one)
		if latest, is := booted[one.boot]; !is || latest.Before(one.booted) {
			booted[one.boot] = one.booted
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%s: no segment can be read: %w", all[0].dir, p.firstUnreadable())
	}
	p.oneDir = known[0].dir != "" && !slices.ContainsFunc(known, func(o part) bool { return o.dir != known[0].dir })
	slices.SortStableFunc(known, p.order(booted))
	return known, nil
}

func (p *Player) firstUnreadable() error {
	if len(p.report.Unreadable) > 0 {
		return errors.New(p.report.Unreadable[0])
	}
	return errNoSample
}

func (p *Player) order(booted map[string]time.Time) func(a, b part) int {
	if p.oneDir {
		return func(a, b part) int { return cmp.Compare(a.number, b.number) }
	}
	return func(a, b part) int {
		return cmp.Or(booted[a.boot].Compare(booted[b.boot]), cmp.Compare(a.boot, b.boot), cmp.Compare(a.boottime, b.boottime))
	}
}

// readStart reads the header and the first sample. An error of a named file has its
// name.
func (p *part) readStart() error {
	if p.path == Stdin {
		return errors.New("-: standard input cannot be combined with other recordings: its start time is not known in advance")
	}
	named := func(err error) error {
		if p.dir != "" {
			return err
		}
		return fmt.Errorf("%s: %w", p.path, err)
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return named(errors.New("not a regular file; each of several recordings is read twice"))
	}
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	header, err := probes.Play(f, func(first *snapshot.Sample) error {
		p.boot, p.boottime, p.booted = first.BootID, first.Boottime, first.Time.Add(-first.Boottime)
		return errEnough
	})
	p.run = header.Run
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil || p.dir != "" && errors.Is(err, probes.ErrTruncated):
		return named(errNoSample)
	}
	return named(err)
}
