// Package files reads files with a bound, and tells who may use a file that this
// process may not. It knows nothing of ours: any layer may use it.
//
// # Usage
//
//	text, err := files.Read("/etc/plimsoll/agent.yaml", 256<<10)
//	for _, line := range files.Permitted(err) {
//		fmt.Fprintln(os.Stderr, line)
//	}
package files

import (
	"errors"
	"fmt"
	"io"
	"os"
)

var (
	// ErrTooLarge says that a file is larger than its bound.
	ErrTooLarge = errors.New("larger than any such file")
	// ErrNotRegular says that it is a directory, a device or a pipe.
	ErrNotRegular = errors.New("not a regular file")
)

// Read returns the content of a regular file of at most so many bytes. Opening a
// pipe would wait for its writer, and a device has no end.
func Read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w", path, ErrNotRegular)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(path, f, most)
}

// ReadFrom returns all of a stream of at most so many bytes; name is the file as
// messages call it.
func ReadFrom(name string, r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("read %s: %w: the bound is %d KiB", name, ErrTooLarge, most>>10)
	}
	return text, nil
}

// Check refuses a file that another reader, which has no bound, would read for ever.
// Pipes are allowed, as of a shell's <(…).
func Check(path string, most int64) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode()&(os.ModeDevice|os.ModeDir) != 0:
		return fmt.Errorf("read %s: %w", path, ErrNotRegular)
	case info.Size() > most:
		return fmt.Errorf("read %s: %w: the bound is %d KiB", path, ErrTooLarge, most>>10)
	}
	return nil
}
