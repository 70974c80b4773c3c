package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// Files plays recordings of one machine in the order of their samples, whatever
// the order of names. A truncated file is played as far as it goes. The error
// has the file and the sample at which it stopped; the report covers what was
// played before.
func (p *Player) Files(ctx context.Context, names []string, stdin io.Reader) error {
	err := p.files(ctx, names, stdin)
	if err != nil {
		p.report.Failed = err.Error()
	}
	return err
}

func (p *Player) files(ctx context.Context, names []string, stdin io.Reader) error {
	if len(names) > 1 {
		var err error
		if names, err = ordered(names); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := p.file(ctx, name, stdin); err != nil {
			return err
		}
	}
	return nil
}

// file plays one recording.
func (p *Player) file(ctx context.Context, name string, stdin io.Reader) error {
	in := stdin
	if name != Stdin {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	p.report.Recordings = append(p.report.Recordings, Recording{File: name})
	r := &p.report.Recordings[len(p.report.Recordings)-1]
	var stopped error
	header, err := probes.Play(in, func(s *snapshot.Sample) error {
		if stopped = p.checkOrder(ctx, s, r); stopped != nil {
			return stopped
		}
		if r.Samples == 0 {
			r.Start = s.Time
		}
		r.Samples++
		r.End = s.Time
		p.Add(s)
		p.newest = s
		return nil
	})
	r.Header = header
	switch {
	case stopped != nil:
		return fmt.Errorf("%s: sample %d: %w", name, r.Samples+1, stopped)
	case errors.Is(err, probes.ErrTruncated) && r.Samples > 0:
		r.CutShort = true
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case r.Samples == 0:
		return fmt.Errorf("%s: %w", name, errNoSample)
	}
	return nil
}

var (
	errNoSample = errors.New("no samples in it")
	errStopped  = errors.New("stopped by a signal")
	errOverlap  = errors.New("it overlaps with the recording before it")
	errMachine  = errors.New("it is of another boot and not later than the recording before it: another machine, or the clock was set back")
)

// checkOrder checks that a recording begins after the samples played before. Within
// a recording every sample is played, and is a gap where time did not advance.
func (p *Player) checkOrder(ctx context.Context, s *snapshot.Sample, r *Recording) error {
	last := p.newest
	switch {
	case ctx.Err() != nil:
		return errStopped
	case last == nil || r.Samples > 0:
		return nil
	case s.BootID == last.BootID && s.Boottime <= last.Boottime:
		return errOverlap
	case s.BootID != last.BootID && s.Time.Before(last.Time):
		return errMachine
	}
	return nil
}

// start is when a recording begins.
type start struct {
	name     string
	boot     string
	boottime time.Duration
	booted   time.Time // by the wall clock of the first sample
}

var errEnough = errors.New("enough")

// ordered sorts recordings by boot, and within a boot by the boot clock, which
// cannot be set.
func ordered(names []string) ([]string, error) {
	starts := make([]start, 0, len(names))
	booted := map[string]time.Time{} // the latest: a clock that is not set yet is behind
	for _, name := range names {
		s, err := readStart(name)
		if err != nil {
			return nil, err
		}
		starts = append(starts, s)
		if latest, known := booted[s.boot]; !known || latest.Before(s.booted) {
			booted[s.boot] = s.booted
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int {
		return cmp.Or(booted[a.boot].Compare(booted[b.boot]), cmp.Compare(a.boot, b.boot), cmp.Compare(a.boottime, b.boottime))
	})
	sorted := make([]string, 0, len(starts))
	for _, s := range starts {
		sorted = append(sorted, s.name)
	}
	return sorted, nil
}

func readStart(name string) (start, error) {
	if name == Stdin {
		return start{}, errors.New("-: standard input cannot be combined with other recordings: its start time is not known in advance")
	}
	info, err := os.Stat(name)
	if err != nil {
		return start{}, err
	}
	if !info.Mode().IsRegular() {
		return start{}, fmt.Errorf("%s: not a regular file; each of several recordings is read twice", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return start{}, err
	}
	defer f.Close()
	s := start{name: name}
	_, err = probes.Play(f, func(first *snapshot.Sample) error {
		s.boot, s.boottime, s.booted = first.BootID, first.Boottime, first.Time.Add(-first.Boottime)
		return errEnough
	})
	switch {
	case errors.Is(err, errEnough):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, fmt.Errorf("%s: %w", name, errNoSample)
}
