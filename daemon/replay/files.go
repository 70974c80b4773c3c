package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// Files plays recordings of one machine in the order of their samples, whatever
// the order of names: single files, and directories of segments. A truncated file
// is played as far as it goes. A segment of a directory that cannot be read costs
// its own samples alone, and the report tells it. The error has the file and the
// sample at which it stopped; the report covers what was played before.
func (p *Player) Files(ctx context.Context, names []string, stdin io.Reader) error {
	err := p.files(ctx, names, stdin)
	if err != nil {
		p.report.Failed = err.Error()
	}
	return err
}

func (p *Player) files(ctx context.Context, names []string, stdin io.Reader) error {
	parts, err := p.parts(names)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := p.part(ctx, part, stdin); err != nil {
			return err
		}
	}
	return nil
}

// part plays one file.
func (p *Player) part(ctx context.Context, part part, stdin io.Reader) error {
	in := stdin
	if part.path != Stdin {
		f, err := os.Open(part.path)
		if part.dir != "" && errors.Is(err, fs.ErrNotExist) { // its agent deleted it: it was the oldest
			p.unreadable(part, err)
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	return p.playPart(ctx, part, in)
}

func (p *Player) playPart(ctx context.Context, part part, in io.Reader) error {
	r := p.recordingOf(part)
	p.breakAt(part)
	var stopped error
	n := uint64(0)
	header, err := probes.Play(in, func(s *snapshot.Sample) error {
		if stopped = p.checkOrder(ctx, s, n); stopped != nil {
			return stopped
		}
		if r.Samples == 0 {
			r.Start = s.Time
		}
		n++
		r.Samples++
		r.End = s.Time
		p.Add(s)
		p.newest = s
		return nil
	})
	if r.Format == "" {
		r.Header = header
	}
	if stopped != nil {
		return fmt.Errorf("%s: sample %d: %w", part.path, n+1, stopped)
	}
	return p.ended(part, r, n, err)
}

// ended takes how a file of n samples ended.
func (p *Player) ended(part part, r *Recording, n uint64, err error) error {
	switch {
	case errors.Is(err, probes.ErrTruncated) && (n > 0 || part.dir != ""):
		r.CutShort = true
	case err != nil && part.dir != "":
		p.unreadable(part, err)
	case err != nil:
		return fmt.Errorf("%s: %w", part.path, err)
	case n == 0 && part.dir == "":
		return fmt.Errorf("%s: %w", part.path, errNoSample)
	}
	return nil
}

var (
	errNoSample = errors.New("no samples in it")
	errStopped  = errors.New("stopped by a signal")
	errOverlap  = errors.New("it overlaps with the recording before it")
	errMachine  = errors.New("it is of another boot and not later than the recording before it: another machine, or the clock was set back")
)

// checkOrder checks that a file begins after the samples played before. Within a
// file every sample is played, and is a gap where time did not advance.
func (p *Player) checkOrder(ctx context.Context, s *snapshot.Sample, n uint64) error {
	last := p.newest
	switch {
	case ctx.Err() != nil:
		return errStopped
	case last == nil || n > 0:
		return nil
	case s.BootID == last.BootID && s.Boottime <= last.Boottime:
		return errOverlap
	case s.BootID != last.BootID && s.Time.Before(last.Time) && !p.oneDir: // of one directory the numbers tell the order
		return errMachine
	}
	return nil
}

// recordingOf is the entry of the report that a file belongs to: segments of one
// directory and run have one.
func (p *Player) recordingOf(part part) *Recording {
	list := p.report.Recordings
	if part.dir != "" && len(list) > 0 {
		if last := &list[len(list)-1]; last.File == part.dir && last.Run == part.run && part.run != "" {
			last.Segments++
			return last
		}
	}
	r := Recording{File: part.path}
	if part.dir != "" {
		r.File, r.Segments = part.dir, 1
	}
	p.report.Recordings = append(list, r)
	return &p.report.Recordings[len(list)]
}

// breakAt begins a new window where another agent goes on.
func (p *Player) breakAt(part part) {
	p.other = p.newest != nil && part.run != p.run
	p.run = part.run
}

// unreadable tells of a segment whose samples, or the rest of them, are missing.
func (p *Player) unreadable(part part, err error) {
	appendBounded(&p.report.Unreadable, maxUnreadable, &p.report.Omitted.Unreadable, fmt.Sprintf("%s: %v", part.path, err))
}
