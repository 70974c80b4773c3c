package probes

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// RecordingFormat is the first field of a recording's header.
const RecordingFormat = "plimsoll-recording/1"

// Header opens a recording: which machine, and what made it.
type Header struct {
	Format string `json:"format"`
	// Kernel is uname -rm.
	Kernel  string `json:"kernel"`
	Version string `json:"version"`
	// Command is the command line that made the recording. What load was on is
	// for its file name.
	Command string `json:"command"`
}

// ErrCutShort says that a recording ends in the middle of a sample, as it
// does when its writer was killed. All samples before were given.
var ErrCutShort = errors.New("the recording ends in the middle of a sample")

// Recorder writes Samples to a file: gzip over one line of JSON each, the
// Header first. It belongs to one goroutine.
type Recorder struct {
	file *os.File
	gz   *gzip.Writer
	max  int64
}

// ErrFull says that a recording reached its bound; what is in it stays.
var ErrFull = errors.New("the recording is full")

// NewRecorder makes the file, readable by its owner only, and writes the
// header. A file that exists is an error: it may hold what cannot be had again.
func NewRecorder(path, version string, maxBytes uint64) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Recorder{file: f, gz: gzip.NewWriter(f), max: int64(min(maxBytes, 1<<62))}
	h := Header{Format: RecordingFormat, Kernel: kernel(), Version: version, Command: strings.Join(os.Args, " ")}
	if err := r.write(h); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

// Add appends a sample and hands it to the kernel, so that a killed agent
// loses nothing that was added. ErrFull when there is no room.
func (r *Recorder) Add(s *Sample) error {
	size, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("record to %s: %w", r.file.Name(), err)
	}
	if size >= r.max {
		return fmt.Errorf("record to %s: %w", r.file.Name(), ErrFull)
	}
	return r.write(s)
}

func (r *Recorder) write(v any) error {
	err := json.NewEncoder(r.gz).Encode(v)
	if err == nil {
		err = r.gz.Flush()
	}
	if err != nil {
		return fmt.Errorf("record to %s: %w", r.file.Name(), err)
	}
	return nil
}

// Close ends the archive.
func (r *Recorder) Close() error {
	return errors.Join(r.gz.Close(), r.file.Close())
}

// maxSampleBytes of one line: 10,000 workloads of about 1 KiB, and room.
const maxSampleBytes = 64 << 20

// Play reads a recording and hands each sample to f, in order. It ends with
// the error of f, ErrCutShort, or what is wrong with the recording and at
// which sample.
func Play(r io.Reader, f func(*Sample) error) (Header, error) {
	var h Header
	gz, err := gzip.NewReader(r)
	if err != nil {
		return h, fmt.Errorf("recording: %w", err)
	}
	lines := bufio.NewScanner(gz)
	lines.Buffer(make([]byte, 0, 64<<10), maxSampleBytes)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &h) != nil || h.Format != RecordingFormat {
		return h, fmt.Errorf("recording: its first line is not a header of format %s", RecordingFormat)
	}
	for n := 1; lines.Scan(); n++ {
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			if !lines.Scan() && lines.Err() != nil {
				return h, fmt.Errorf("recording: sample %d: %w", n, ErrCutShort)
			}
			return h, fmt.Errorf("recording: sample %d: %w", n, err)
		}
		s.sort()
		if err := f(&s); err != nil {
			return h, err
		}
	}
	if err := lines.Err(); errors.Is(err, io.ErrUnexpectedEOF) {
		return h, ErrCutShort
	} else if err != nil {
		return h, fmt.Errorf("recording: %w", err)
	}
	return h, nil
}
