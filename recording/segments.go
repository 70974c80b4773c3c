// Package recording keeps a recording of samples in a directory of segments: files
// of bounded size and age, of which the oldest are deleted.
//
// # Usage
//
// A Recorder is given each sample and never delays the one who gives it. Segments
// lists a directory in the order in which it was written; probes.Play reads each.
//
// # Concurrency
//
// Add and Status of a Recorder may be called from any goroutine, Run from one.
package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// Config is where samples are recorded, and within which bounds.
type Config struct {
	Dir          string        `yaml:"dir" unit:"path" why:"The directory to record to, created when missing; empty: no recording. Each start of the agent continues it."`
	MaxSize      uint64        `yaml:"maxSize" unit:"bytes" why:"How large the recording may be. The oldest segments are deleted first. A day has about 100Mi on a node of 10 pods, and 500Mi with 250 pods."`
	MaxAge       time.Duration `yaml:"maxAge" why:"How old a segment may be before it is deleted: two at most each time that one is begun, so that a wall clock that is set wrongly deletes few. A day more than the week that plimsoll advise is asked about."`
	SegmentSize  uint64        `yaml:"segmentSize" unit:"bytes" why:"The size from which the next segment is begun. So much is deleted at once."`
	SegmentAge   time.Duration `yaml:"segmentAge" why:"How long a segment is written before the next one is begun, however small it is."`
	MinAvailable float64       `yaml:"minAvailable" unit:"ratio" why:"The share of the filesystem that must be available; with less, nothing is recorded until there is more again. 0.1 is where the kubelet reports DiskPressure."`
}

// DefaultConfig records nothing; with a directory, a week.
func DefaultConfig() Config {
	return Config{MaxSize: 1 << 30, MaxAge: 8 * 24 * time.Hour, SegmentSize: 16 << 20, SegmentAge: time.Hour, MinAvailable: 0.1}
}

const (
	minSegment      = 64 << 10
	minSegmentAge   = time.Second
	maxRecordingAge = 10 * 365 * 24 * time.Hour
	maxAvailable    = 0.9
)

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	at.Must(c.SegmentSize >= minSegment, problems.Bytes(c.SegmentSize)+" is less than 64Ki: too small for more than a few samples", "segmentSize")
	at.Must(c.MaxSize/2 >= c.SegmentSize, fmt.Sprintf("%s (%s) must be at least 2 × %s (%s): a segment is deleted as a whole",
		at.Key("maxSize"), problems.Bytes(c.MaxSize), at.Key("segmentSize"), problems.Bytes(c.SegmentSize)), "maxSize", "segmentSize")
	at.Duration("segmentAge", c.SegmentAge, minSegmentAge, problems.MaxDuration)
	at.Duration("maxAge", c.MaxAge, minSegmentAge, maxRecordingAge)
	at.AtLeast(problems.Period{Key: "maxAge", Value: c.MaxAge}, problems.Period{Key: "segmentAge", Value: c.SegmentAge}, 1)
	at.Must(c.MinAvailable >= 0 && c.MinAvailable <= maxAvailable, fmt.Sprintf("%g is not between 0 and %g", c.MinAvailable, maxAvailable), "minAvailable")
	at.PathOrNone("dir", c.Dir)
}

// Segment is a file of a recording.
type Segment struct {
	Path string
	// Number grows with each segment, whatever the clock says.
	Number uint64
	Size   int64
	// Written is when it was written last.
	Written time.Time
}

// A segment is named by its number and when it was begun, as in
// 0000000042-20260301T120000Z.rec.
const (
	extension    = ".rec"
	numberDigits = 10
	nameTime     = "20060102T150405Z"
)

// maxSegments bounds the files of a recording. An agent that is restarted every
// five minutes makes fewer in eight days.
const maxSegments = 4096

// maxEntries bounds how many names of a directory are read.
const maxEntries = 2 * maxSegments

// ErrNoSegments says that a directory has no segment.
var ErrNoSegments = errors.New("no segments of a recording in it (files such as 0000000001-20260301T120000Z.rec)")

var errTooManyEntries = fmt.Errorf("more than %d entries: not a directory for a recording alone", maxEntries)

func segmentName(number uint64, begun time.Time) string {
	return fmt.Sprintf("%0*d-%s%s", numberDigits, number, begun.UTC().Format(nameTime), extension)
}

// parseName is the number of a segment; false for any other file.
func parseName(name string) (uint64, bool) {
	stem, of := strings.CutSuffix(name, extension)
	digits, begun, two := strings.Cut(stem, "-")
	if !of || !two || len(digits) != numberDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	if _, err := time.Parse(nameTime, begun); err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// Segments lists the segments of a directory, oldest first. Other files, and what
// is no regular file, are none. Without any it is ErrNoSegments.
func Segments(dir string) ([]Segment, error) {
	list, err := list(dir)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", dir, ErrNoSegments)
	}
	return list, err
}

func list(dir string) ([]Segment, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(entries) > maxEntries:
		return nil, fmt.Errorf("%s: %w", dir, errTooManyEntries)
	}
	var segments []Segment
	for _, e := range entries {
		n, named := parseName(e.Name())
		if !named || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // its agent has just deleted it
			continue
		}
		if err != nil {
			return nil, err
		}
		segments = append(segments, Segment{filepath.Join(dir, e.Name()), n, info.Size(), info.ModTime()})
	}
	slices.SortFunc(segments, func(a, b Segment) int { return strings.Compare(a.Path, b.Path) })
	return segments, nil
}

// surplus is how many of the oldest segments are to be deleted so that the rest, with what is
// being written, keeps the bounds; and how many of these are only for their age, of which
// there are no more than may go for it.
func surplus(segments []Segment, writing int64, now time.Time, c Config, mayGo int) (n, aged int) {
	total := writing
	for _, s := range segments {
		total += s.Size
	}
	for i, s := range segments {
		if uint64(max(0, total)) <= c.MaxSize && len(segments)-i < maxSegments {
			if now.Sub(s.Written) <= c.MaxAge || aged == mayGo {
				return i, aged
			}
			aged++
		}
		total -= s.Size
	}
	return len(segments), aged
}
