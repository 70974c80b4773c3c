package probes

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// RecordingFormat is the first field of a recording's header.
const RecordingFormat = recordingFormats + "1"

const recordingFormats = "plimsoll-recording/"

// Header is the first line of a recording: the machine, and what made it.
type Header struct {
	Format string `json:"format"`
	// Kernel is uname -rm.
	Kernel  string `json:"kernel"`
	Version string `json:"version"`
	// Command is the command line that made the recording. The file name should
	// say which workload ran.
	Command string `json:"command"`
	// Run is random, and the same in all files of one start of an agent: a recording
	// goes on from one such file to the next without a gap. Empty in older files.
	Run string `json:"run,omitempty"`
}

// ErrTruncated reports a recording without an end, as after its writer was
// killed. All complete samples were delivered before it.
var ErrTruncated = errors.New("truncated: the writer did not close it")

// RecordingFile writes Samples to a file: gzip over one line of JSON each, after the
// Header. The state of the cluster and the verdicts of outer plugins are only in
// the lines where they changed, and in the first: a file is read by itself. It
// belongs to one goroutine.
type RecordingFile struct {
	file *os.File
	gz   *gzip.Writer
	// packed is what gz made and the file does not have yet.
	packed bytes.Buffer
	size   int64
	// cluster and verdicts were written last; they seldom change.
	cluster  *snapshot.Cluster
	verdicts json.RawMessage
}

// ErrSampleTooLarge reports a sample that no reader would accept. It was not
// written; the file goes on.
var ErrSampleTooLarge = fmt.Errorf("sample exceeds %d bytes or %d values", maxSampleBytes, maxSampleValues)

// CreateRecording creates the file, readable by its owner only, and writes the
// header. Files of one run are parts of one recording. An existing file is an
// error: it may hold a recording that cannot be repeated.
func CreateRecording(path, version, run string) (*RecordingFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &RecordingFile{file: f}
	r.gz = gzip.NewWriter(&r.packed)
	h := Header{Format: RecordingFormat, Kernel: kernel(), Version: version, Command: strings.Join(os.Args, " "), Run: run}
	if err := r.write(h); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
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

// Add appends a sample and passes it to the kernel, so that a killed agent
// loses no sample that was added. After an error other than ErrSampleTooLarge
// nothing more can be added: what the file has can be read.
func (r *RecordingFile) Add(s *snapshot.Sample) error {
	cluster, verdicts := r.cluster, r.verdicts
	err := r.write(r.withoutSame(s))
	if err != nil { // the next line must not rely on what is not in the file
		r.cluster, r.verdicts = cluster, verdicts
	}
	return err
}

// Size of the file in bytes.
func (r *RecordingFile) Size() int64 { return r.size }

// withoutSame returns the sample without what the previous line that had it has
// as well.
func (r *RecordingFile) withoutSame(s *snapshot.Sample) *snapshot.Sample {
	less := *s
	if s.Cluster != nil && (s.Cluster == r.cluster || reflect.DeepEqual(s.Cluster, r.cluster)) {
		less.Cluster = nil
	}
	r.cluster = s.Cluster
	switch {
	case bytes.Equal(s.OuterVerdicts, r.verdicts):
		less.OuterVerdicts = nil
	case s.OuterVerdicts != nil:
		r.verdicts = s.OuterVerdicts
	}
	return &less
}

func (r *RecordingFile) write(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		err = fits(line)
	}
	if err == nil {
		_, err = r.gz.Write(append(line, '\n'))
	}
	if err == nil {
		err = r.gz.Flush()
	}
	if err == nil {
		err = r.flush()
	}
	if err != nil {
		return fmt.Errorf("record to %s: %w", r.file.Name(), err)
	}
	return nil
}

// flush writes what was packed, whole or not at all: of a write that came to an
// end in the middle, as on a full disk, the beginning is cut off again.
func (r *RecordingFile) flush() error {
	defer r.packed.Reset()
	n, err := r.file.Write(r.packed.Bytes())
	if err == nil {
		r.size += int64(n)
		return nil
	}
	if n > 0 {
		err = errors.Join(err, r.file.Truncate(r.size))
	}
	return err
}

// Deleted reports whether the file has no name any more.
func (r *RecordingFile) Deleted() bool {
	var info unix.Stat_t
	return unix.Fstat(int(r.file.Fd()), &info) == nil && info.Nlink == 0
}

// Close writes the end of the gzip stream and closes the file.
func (r *RecordingFile) Close() error {
	err := r.gz.Close()
	if err == nil {
		err = r.flush()
	}
	return errors.Join(err, r.file.Close())
}

// Abandon closes the file without an end, after an error.
func (r *RecordingFile) Abandon() error { return r.file.Close() }

// Limits of one line, against a recording made to exhaust memory: 10,000
// workloads have about 1 KiB and 50 values each. A value of three bytes in a
// line may need half a KiB in memory.
const (
	maxSampleBytes  = 16 << 20
	maxSampleValues = 1 << 19
)

func fits(line []byte) error {
	if len(line) >= maxSampleBytes || bytes.Count(line, []byte{','}) > maxSampleValues {
		return ErrSampleTooLarge
	}
	return nil
}

// Play reads a recording and calls f for each sample, in order. It returns the
// error of f, ErrTruncated, or what is wrong with the recording and at which
// sample.
func Play(r io.Reader, f func(*snapshot.Sample) error) (Header, error) {
	gz, err := gzip.NewReader(r)
	if err != nil {
		return Header{}, inRecording(err)
	}
	return playLines(gz, f)
}

// playLines is Play of uncompressed lines.
func playLines(r io.Reader, f func(*snapshot.Sample) error) (Header, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxSampleBytes)
	h, err := readHeader(lines)
	if err != nil {
		return h, err
	}
	var cluster *snapshot.Cluster // the last one in the recording
	for n := 1; lines.Scan(); n++ {
		s, err := decodeSample(lines.Bytes())
		if err != nil {
			return h, fmt.Errorf("recording: sample %d: %w", n, orTruncated(lines, err))
		}
		cluster = cmp.Or(s.Cluster, cluster)
		s.Cluster = cluster
		if err := f(s); err != nil {
			return h, err
		}
	}
	return h, inRecording(lines.Err())
}

func readHeader(lines *bufio.Scanner) (Header, error) {
	var h Header
	if !lines.Scan() && lines.Err() != nil {
		return h, inRecording(lines.Err())
	}
	err := json.Unmarshal(lines.Bytes(), &h)
	switch {
	case err == nil && h.Format == RecordingFormat:
		return h, nil
	case err == nil && strings.HasPrefix(h.Format, recordingFormats):
		return Header{}, fmt.Errorf("recording: header: unsupported format %.40q: a newer version wrote it, this one reads %s", h.Format, RecordingFormat)
	}
	return Header{}, fmt.Errorf("recording: header: %w", orTruncated(lines, errNoRecordingHeader))
}

var (
	errNoRecordingHeader = fmt.Errorf("the first line is not a header of format %s", RecordingFormat)
	errNoClock           = errors.New("no monotonicNanoseconds")
)

func decodeSample(line []byte) (*snapshot.Sample, error) {
	if err := fits(line); err != nil {
		return nil, err
	}
	var s snapshot.Sample
	if err := json.Unmarshal(line, &s); err != nil {
		return nil, err
	}
	if s.Monotonic <= 0 { // valid JSON, but no sample
		return nil, errNoClock
	}
	s.Sort()
	if s.Cluster != nil {
		s.Cluster.Index()
	}
	return &s, nil
}

// orTruncated returns ErrTruncated if the line that gave err was the last one of
// a truncated file, else err.
func orTruncated(lines *bufio.Scanner, err error) error {
	if !lines.Scan() && errors.Is(lines.Err(), io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

func inRecording(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF): // EOF: not even a gzip header
		return fmt.Errorf("recording: %w", ErrTruncated)
	case errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("recording: damaged, or no recording: %w", err)
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("recording: %w", ErrSampleTooLarge)
	}
	return fmt.Errorf("recording: %w", err)
}
