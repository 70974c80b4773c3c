// Package state stores what must survive a restart of the agent, each value in a
// file of its own.
package state

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/files"
)

// File stores one value as JSON, atomically.
type File[T any] struct {
	// Path of the file; its directory is created when missing.
	Path string
	// Version of the value's format, 1 when 0: raise it when an older program would
	// misread the value. The version before is read as well.
	Version int
	// UntilBoot: what it holds ends with the boot. It outlives the process, and needs no
	// fsync of the disk, which may be the pressed one.
	UntilBoot bool
	// Adopt changes a value of the version before into one of this; nil: they are the same.
	Adopt func(*T)
}

// stored is the file: the value and its checksum.
type stored struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Value   json.RawMessage `json:"memory"`
}

// maxBytes bounds a file that is read: many times the largest value there is.
const maxBytes = 16 << 20

// ErrNoState says that nothing was saved yet.
var ErrNoState = errors.New("no saved state")

// Load reads the saved value. With any error the value is empty.
func (f File[T]) Load() (T, error) {
	var none, v T
	b, err := files.Read(f.Path, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return none, ErrNoState
	}
	if err != nil {
		return none, fmt.Errorf("state: %w", err)
	}
	if f.UntilBoot && len(bytes.Trim(b, "\x00")) == 0 { // the power failed before the disk had it
		return none, ErrNoState
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return none, fmt.Errorf("state: %s: %w", f.Path, err)
	}
	if now := f.version(); s.Version != now && (s.Version != now-1 || s.Version < 1) {
		return none, fmt.Errorf("state: %s: version %d, this program reads %d and the one before", f.Path, s.Version, now)
	}
	if checksum(s.Value) != s.SHA256 {
		return none, fmt.Errorf("state: %s: checksum mismatch", f.Path)
	}
	if err := json.Unmarshal(s.Value, &v); err != nil {
		return none, fmt.Errorf("state: %s: %w", f.Path, err)
	}
	if f.Adopt != nil && s.Version < f.version() {
		f.Adopt(&v)
	}
	return v, nil
}

func (f File[T]) version() int { return max(1, f.Version) }

// Save writes the value durably: when it returns nil, a crash of the machine does
// not lose it, unless it lasts UntilBoot.
func (f File[T]) Save(v T) error {
	save, err := f.Prepare(v)
	if err != nil {
		return err
	}
	return save()
}

// Prepare encodes the value now; save writes it later.
func (f File[T]) Prepare(v T) (save func() error, err error) {
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	b, err := json.Marshal(stored{Version: f.version(), SHA256: checksum(value), Value: value})
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if len(b) >= maxBytes { // it could not be loaded
		return nil, fmt.Errorf("state: %s: a value of %d bytes exceeds the bound of %d", f.Path, len(b), maxBytes)
	}
	return func() error {
		return replace(f.Path, !f.UntilBoot, func(w io.Writer) error {
			_, err := w.Write(append(b, '\n'))
			return err
		})
	}, nil
}

// Replace writes a file atomically and durably: a temporary file, fsync, rename.
func Replace(path string, write func(io.Writer) error) error { return replace(path, true, write) }

func replace(path string, sync bool, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	// A fixed name, so that a killed agent leaves at most one such file behind.
	half := path + ".half"
	f, err := os.OpenFile(half, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	crashPoint()
	err = write(f)
	crashPoint()
	if err == nil && sync {
		err = f.Sync()
	}
	err = cmp.Or(err, f.Close())
	crashPoint()
	if err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	crashPoint()
	if !sync {
		return nil
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func checksum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
