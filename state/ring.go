package state

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/plimsoll-dev/plimsoll/files"
)

// Ring stores the newest of many values in two files, a line each with a checksum:
// a program killed during an append loses that line only. It is not synced: a
// power failure loses what the kernel had not written.
type Ring[T any] struct {
	// Dir of the files; created when missing.
	Dir string
	// Max is how many values are kept at least, and MaxBytes the maximum size of both
	// files together. A value larger than half of it is refused.
	Max      int
	MaxBytes int64

	lines int
	size  int64
	file  *os.File
}

// The files: values are appended to newer; when that reaches half of the limit it
// replaces older.
const (
	newer = "newer.jsonl"
	older = "older.jsonl"
)

// Load reads the values, oldest first, and counts the lines that cannot be read,
// each a lost value. Append may follow.
func (r *Ring[T]) Load() (values []T, spoiled int, err error) {
	for _, name := range []string{older, newer} {
		b, err := files.Read(filepath.Join(r.Dir, name), max(r.MaxBytes, maxBytes))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return values, spoiled, fmt.Errorf("state: %w", err)
		}
		r.lines, r.size = 0, int64(len(b))
		lines := bufio.NewScanner(bytes.NewReader(b))
		lines.Buffer(nil, len(b)+1)
		for lines.Scan() {
			r.lines++
			v, ok := decodeLine[T](lines.Bytes())
			if !ok {
				spoiled++
				continue
			}
			values = append(values, v)
		}
	}
	return values, spoiled, nil
}

// Append adds a value.
func (r *Ring[T]) Append(v T) error {
	add, err := r.Prepare(v)
	if err != nil {
		return err
	}
	return add()
}

// Prepare encodes the value now; add appends it later.
func (r *Ring[T]) Prepare(v T) (add func() error, err error) {
	line, err := encodeLine(v)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return func() error { return r.add(line) }, nil
}

func (r *Ring[T]) add(line []byte) error {
	half := r.MaxBytes / 2
	if int64(len(line)) > half {
		return fmt.Errorf("state: %s: value of %d bytes exceeds half of the maximum of %d", r.Dir, len(line), r.MaxBytes)
	}
	if err := r.open(); err != nil { // which tells the size also of a file that could not be loaded
		return err
	}
	if r.lines >= r.Max || r.size+int64(len(line)) > half {
		if err := r.rotate(); err != nil {
			return err
		}
		if err := r.open(); err != nil {
			return err
		}
	}
	n, err := r.file.Write(line)
	r.size += int64(n)
	if err != nil { // a partial write is a line that cannot be read
		return fmt.Errorf("state: %w", cmp.Or(err, r.Close()))
	}
	r.lines++ // of what was not written nothing must go: on a full disk the rest is all there is
	return nil
}

// rotate replaces the older file by the newer one.
func (r *Ring[T]) rotate() error {
	err := r.Close()
	if err == nil {
		err = os.Rename(filepath.Join(r.Dir, newer), filepath.Join(r.Dir, older))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state: %w", err)
	}
	r.lines, r.size = 0, 0
	return nil
}

// open opens the newer file, and ends the unfinished line of a killed program.
func (r *Ring[T]) open() error {
	if r.file != nil {
		return nil
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, newer), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if r.size, err = endLine(f); err != nil {
		return fmt.Errorf("state: %w", errors.Join(err, f.Close()))
	}
	r.file = f
	return nil
}

// endLine ends the last line of a file, and returns the size that it had.
func endLine(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err = f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
		_, err = f.Write([]byte{'\n'})
	}
	return info.Size(), err
}

// Close closes the file; Append reopens it.
func (r *Ring[T]) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// encodeLine is a value's checksum and JSON.
func encodeLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(b), b), nil
}

func decodeLine[T any](line []byte) (v T, ok bool) {
	text, b, _ := bytes.Cut(line, []byte{' '})
	want, err := strconv.ParseUint(string(text), 16, 32)
	if err != nil || uint32(want) != crc32.ChecksumIEEE(b) {
		return v, false
	}
	return v, json.Unmarshal(b, &v) == nil
}
