package judge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/files"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/recording"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The endings of a labelled recording's files.
const (
	labelEnding     = ".yaml"
	recordingEnding = ".rec"
)

// maxLabelBytes bounds a label: it is a page of text.
const maxLabelBytes = 64 << 10

// maxSamples bounds one recording, which is held in memory while it is judged: a day
// of them.
const maxSamples = 24 * 3600

// entry is one labelled recording.
type entry struct {
	label judgement.Label
	path  string // of the recording: a file, or a directory of segments
}

// entries are the labelled recordings of a directory, and those that are held out,
// sorted by name. The error has a line for each mistake.
func entries(dir string) ([]entry, error) {
	list, err := entriesOf(dir)
	heldOut, noneHeld := entriesOf(filepath.Join(dir, judgement.HeldOutDir))
	if errors.Is(noneHeld, fs.ErrNotExist) {
		noneHeld = nil
	}
	for i := range heldOut {
		heldOut[i].label.HeldOut = true
	}
	if err := errors.Join(err, noneHeld); err != nil {
		return nil, err
	}
	list = append(list, heldOut...)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no labelled recording in it: want NAME%s, and NAME%s beside it", dir, labelEnding, recordingEnding)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.label.Name, b.label.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].label.Name == list[i-1].label.Name {
			return nil, fmt.Errorf("%s: there is another recording of that name: %s", list[i].path, list[i-1].path)
		}
	}
	return list, nil
}

// entriesOf one directory, without those below it.
func entriesOf(dir string) ([]entry, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, e := range all {
		has[e.Name()] = true
	}
	var list []entry
	var wrong []error
	for _, e := range all {
		name, isLabel := strings.CutSuffix(e.Name(), labelEnding)
		recorded, isRecording := strings.CutSuffix(e.Name(), recordingEnding)
		if isRecording && !has[recorded+labelEnding] {
			wrong = append(wrong, fmt.Errorf("%s: no label beside it: want %s", filepath.Join(dir, e.Name()), recorded+labelEnding))
		}
		if e.IsDir() && !isRecording && e.Name() != judgement.HeldOutDir {
			wrong = append(wrong, notRead(filepath.Join(dir, e.Name())))
		}
		if !isLabel {
			continue
		}
		l, err := readLabel(filepath.Join(dir, e.Name()), name)
		if err == nil && !has[name+recordingEnding] {
			err = fmt.Errorf("%s: no recording beside it: want %s", filepath.Join(dir, e.Name()), name+recordingEnding)
		}
		wrong = append(wrong, err)
		list = append(list, entry{label: l, path: filepath.Join(dir, name+recordingEnding)})
	}
	return list, errors.Join(wrong...)
}

// notRead is an error for a directory with labelled recordings that are not read.
func notRead(dir string) error {
	if there, _ := filepath.Glob(filepath.Join(dir, "*"+recordingEnding)); len(there) > 0 {
		return fmt.Errorf("%s: it has recordings, and of the directories here %s alone is read: judge it by itself", dir, judgement.HeldOutDir)
	}
	return nil
}

func readLabel(file, name string) (judgement.Label, error) {
	text, err := files.Read(file, maxLabelBytes)
	if err != nil {
		return judgement.Label{}, err
	}
	return judgement.Decode(file, name, text)
}

// recorded is what one recording has.
type recorded struct {
	header  probes.Header
	samples []*snapshot.Sample
	seconds float64
}

// read the recording of an entry. An error names the file and the sample.
func (e entry) read(ctx context.Context) (recorded, error) {
	parts := []string{e.path}
	if info, err := os.Stat(e.path); err == nil && info.IsDir() {
		segments, err := recording.Segments(e.path)
		if err != nil {
			return recorded{}, err
		}
		parts = parts[:0]
		for _, s := range segments {
			parts = append(parts, s.Path)
		}
	}
	var r recorded
	for _, part := range parts {
		if err := r.play(ctx, part); err != nil {
			return r, fmt.Errorf("%s: %w", part, err)
		}
	}
	if len(r.samples) < 2 {
		return r, fmt.Errorf("%s: %d samples in it: too few to judge", e.path, len(r.samples))
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	r.seconds = last.Time.Sub(first.Time).Seconds()
	label := strings.TrimSuffix(e.path, recordingEnding) + labelEnding
	if e.label.Load.To >= r.seconds {
		return r, fmt.Errorf("%s: load.to is %g s, but the recording ends after %.3f s: it has to go on after the load", label, e.label.Load.To, r.seconds)
	}
	return r, r.names(e.label, label)
}

var (
	errTooLong   = fmt.Errorf("more than %d samples: cut it", maxSamples)
	errBackwards = errors.New("it is not later than the one before: samples must be of one boot and in order")
)

func (r *recorded) play(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n := 0
	header, err := probes.Play(f, func(s *snapshot.Sample) error {
		n++
		if len(r.samples) > 0 {
			if last := r.samples[len(r.samples)-1]; s.BootID != last.BootID || s.Monotonic <= last.Monotonic || s.Time.Before(last.Time) {
				return fmt.Errorf("recording: sample %d: %w", n, errBackwards)
			}
		}
		if len(r.samples) == maxSamples {
			return errTooLong
		}
		r.samples = append(r.samples, s)
		return ctx.Err()
	})
	if r.header.Format == "" {
		r.header = header
	}
	if errors.Is(err, probes.ErrTruncated) && n > 0 { // as of an agent that was killed
		err = nil
	}
	return err
}
