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
}

// ErrTruncated reports a recording without an end, as after its writer was
// killed. All complete samples were delivered before it.
var ErrTruncated = errors.New("truncated: the writer did not close it")

// Recorder writes Samples to a file: gzip over one line of JSON each, after the
// Header. The state of the cluster is only in the lines where it changed. It
// belongs to one goroutine.
type Recorder struct {
	file *os.File
	gz   *gzip.Writer
	max  int64
	// cluster was written last; it seldom changes.
	cluster *snapshot.Cluster
}

// ErrFull reports a recording that reached its size limit; its content stays.
var ErrFull = errors.New("size limit reached")

// NewRecorder creates the file, readable by its owner only, and writes the
// header. An existing file is an error: it may hold a recording that cannot be
// repeated.
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

// Add appends a sample and passes it to the kernel, so that a killed agent
// loses no sample that was added. It returns ErrFull at the size limit.
func (r *Recorder) Add(s *snapshot.Sample) error {
	size, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("record to %s: %w", r.file.Name(), err)
	}
	if size >= r.max {
		return fmt.Errorf("record to %s: %w", r.file.Name(), ErrFull)
	}
	return r.write(r.withoutSameCluster(s))
}

// withoutSameCluster returns the sample without the cluster's state if the previous line
// that had one has the same.
func (r *Recorder) withoutSameCluster(s *snapshot.Sample) *snapshot.Sample {
	if s.Cluster == nil || s.Cluster != r.cluster && !reflect.DeepEqual(s.Cluster, r.cluster) {
		r.cluster = s.Cluster
		return s
	}
	r.cluster = s.Cluster
	same := *s
	same.Cluster = nil
	return &same
}

func (r *Recorder) write(v any) error {
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
	if err != nil {
		return fmt.Errorf("record to %s: %w", r.file.Name(), err)
	}
	return nil
}

// Close writes the end of the gzip stream and closes the file.
func (r *Recorder) Close() error {
	return errors.Join(r.gz.Close(), r.file.Close())
}

// Limits of one line, against a recording made to exhaust memory: 10,000
// workloads have about 1 KiB and 50 values each. A value of three bytes in a
// line may need half a KiB in memory.
const (
	maxSampleBytes  = 16 << 20
	maxSampleValues = 1 << 19
)

var errSampleTooLarge = fmt.Errorf("sample exceeds %d bytes or %d values", maxSampleBytes, maxSampleValues)

func fits(line []byte) error {
	if len(line) >= maxSampleBytes || bytes.Count(line, []byte{','}) > maxSampleValues {
		return errSampleTooLarge
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
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("recording: %w", errSampleTooLarge)
	}
	return fmt.Errorf("recording: %w", err)
}
