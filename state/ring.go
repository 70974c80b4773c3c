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
)

// Ring keeps the newest of many values in two files of a directory, a line
// each: a program that is killed while it appends spoils that one line and no
// other. It is not synced: a machine that loses its power loses what the kernel
// had not written.
type Ring[T any] struct {
	// Dir of the files; made when it is missing.
	Dir string
	// Max is how many values are kept at the least, and MaxBytes how large both
	// files together may grow. A value that is larger than half of it is refused.
	Max      int
	MaxBytes int64

	lines int
	size  int64
	file  *os.File
}

// The files: values are appended to one; when that is half of what there may be
// it takes the place of the other.
const (
	newer = "newer.jsonl"
	older = "older.jsonl"
)

// Load reads what is kept, oldest first, and counts the lines that cannot be
// read: each of them one value that is lost. Append may follow.
func (r *Ring[T]) Load() (values []T, spoiled int, err error) {
	for _, name := range []string{older, newer} {
		b, err := os.ReadFile(filepath.Join(r.Dir, name))
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

// Append keeps one more.
func (r *Ring[T]) Append(v T) error {
	add, err := r.Prepare(v)
	if err != nil {
		return err
	}
	return add()
}

// Prepare is Append in two steps: what it returns adds the value as it is now.
func (r *Ring[T]) Prepare(v T) (add func() error, err error) {
	line, err := encodeLine(v)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return func() error { return r.add(line) }, nil
}

func (r *Ring[T]) add(line []byte) error {
	if half := r.MaxBytes / 2; int64(len(line)) > half {
		return fmt.Errorf("state: %s: value of %d bytes exceeds half of the maximum of %d", r.Dir, len(line), r.MaxBytes)
	} else if r.lines >= r.Max || r.size+int64(len(line)) > half {
		if err := r.turn(); err != nil {
			return err
		}
	}
	if err := r.open(); err != nil {
		return err
	}
	n, err := r.file.Write(line)
	r.lines, r.size = r.lines+1, r.size+int64(n)
	if err != nil { // what was written of it is a line that cannot be read
		return fmt.Errorf("state: %w", cmp.Or(err, r.Close()))
	}
	return nil
}

// turn makes the newer file the older one.
func (r *Ring[T]) turn() error {
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

// open the newer file; what a killed program left unfinished ends there.
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
	r.file = f
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	last := []byte{'\n'}
	if r.size = info.Size(); r.size > 0 {
		_, err = f.ReadAt(last, r.size-1)
	}
	if err == nil && last[0] != '\n' {
		_, err = f.Write([]byte{'\n'})
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// Close lets go of the file; Append opens it again.
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

// encodeLine is a value's JSON after a sum over it.
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
