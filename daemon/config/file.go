package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pollInterval is how often the file is read to see whether it changed. It is
// polled, not watched: a ConfigMap's file is a symlink below a symlink that is
// swapped, and a network filesystem sends no events.
const pollInterval = time.Second

// File is the agent's configuration file.
type File = FileOf[Agent]

// Followed is a document that may change while the program runs.
type Followed interface {
	Document
	// AtStart lists the keys and sections whose values are bound at startup.
	AtStart() []string
}

// FileOf is a configuration file that may change while the program runs. A file
// with mistakes leaves the last good configuration in use.
type FileOf[T Followed] struct {
	// Logger logs each change; nil: no log. Set it before Run or Reload.
	Logger *slog.Logger

	path     string
	defaults func() T
	override func(*T)
	current  atomic.Pointer[T]
	last     atomic.Pointer[outcome]

	// mu serializes loads, from reading the file to replacing the configuration,
	// so that an older content never replaces a newer one. It guards the two
	// fields below.
	mu      sync.Mutex
	seen    fingerprint // of the content loaded last, good or bad
	pending fingerprint // of the content the last poll found, if it differed
}

// outcome is how the last load ended.
type outcome struct {
	err error
	at  time.Time
}

// fingerprint tells contents apart; a failed read has one too.
type fingerprint [sha256.Size]byte

// Open reads and checks the agent's file at path: [OpenOf].
func Open(path string, override func(*Agent)) (*File, error) { return OpenOf(path, Default, override) }

// OpenOf reads and checks the file at path over the defaults; an empty path
// stands for a file that sets nothing. override, unless nil, then changes the
// result, as flags do; it runs again at each reload. The error is [Errors] for
// mistakes in the content, else the error of opening or reading it.
func OpenOf[T Followed](path string, defaults func() T, override func(*T)) (*FileOf[T], error) {
	if override == nil {
		override = func(*T) {}
	}
	f := &FileOf[T]{path: path, defaults: defaults, override: override}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Given tells whether there is a file.
func (f *FileOf[T]) Given() bool { return f.path != "" }

// Current is the configuration in use; it must not be changed. The pointer
// changes exactly when a value does, so callers can compare pointers.
func (f *FileOf[T]) Current() *T { return f.current.Load() }

// Status tells how the last load ended, and when: if ok is false, err is why
// the last good configuration is still in use.
func (f *FileOf[T]) Status() (ok bool, err error, at time.Time) { //nolint:revive,staticcheck // the error is a fact here, not the failure of this call
	last := f.last.Load()
	return last.err == nil, last.err, last.at
}

// Reload reads the file now and uses it if it has no mistakes. The error is
// that of [Open].
func (f *FileOf[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.read()
	return f.load(data, err)
}

// Run applies each change of the file about two seconds later, until ctx is
// done; it returns nil.
func (f *FileOf[T]) Run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			f.poll()
		}
	}
}

// poll loads a content that is new and did not change since the last poll
// (debounce): a file that is being written may be valid YAML at every line,
// with half of its keys.
func (f *FileOf[T]) poll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.read()
	switch now := fingerprintOf(data, err); now {
	case f.seen:
		f.pending = f.seen
	case f.pending:
		_ = f.load(data, err) // kept for Status and logged
	default:
		f.pending = now
	}
}

// load applies the content or keeps the reason why not. f.mu is held.
func (f *FileOf[T]) load(data []byte, err error) error {
	f.seen = fingerprintOf(data, err)
	f.pending = f.seen
	agent, err := f.decode(data, err)
	f.last.Store(&outcome{err, time.Now()})
	old := f.current.Load()
	switch {
	case err == nil && old == nil:
		f.current.Store(agent)
	case err == nil:
		f.replace(old, agent)
	case old != nil:
		f.log().Error("failed to reload the configuration; the last good one stays in use", "file", f.path, "error", err)
	}
	return err
}

func (f *FileOf[T]) replace(old, agent *T) {
	changed := Differences(*old, *agent)
	f.log().Info("configuration reloaded", "file", f.path, "changed", changed)
	if len(changed) == 0 {
		return
	}
	f.current.Store(agent)
	if keys := RestartNeeded(*old, *agent); len(keys) > 0 {
		f.log().Warn("some changed keys take effect only after a restart", "file", f.path, "keys", keys)
	}
}

// decode is the configuration of content and override together.
func (f *FileOf[T]) decode(data []byte, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	agent := f.defaults()
	if f.path != "" {
		if err := Decode(f.path, data, &agent); err != nil {
			return nil, err
		}
	}
	f.override(&agent)
	var errs Errors
	for _, p := range agent.Validate() {
		errs = append(errs, &Error{File: "flags", Key: p.Keys[0], Reason: p.Reason})
	}
	return &agent, errs.orNil()
}

// read returns the content, up to one byte more than can be decoded.
func (f *FileOf[T]) read() ([]byte, error) {
	if f.path == "" {
		return nil, nil
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, fmt.Errorf("read %s: not a regular file", f.path)
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFileBytes+1))
}

func (f *FileOf[T]) log() *slog.Logger {
	if f.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return f.Logger
}

func fingerprintOf(data []byte, err error) fingerprint {
	if err != nil {
		return sha256.Sum256([]byte("cannot be read: " + err.Error()))
	}
	return sha256.Sum256(append([]byte("content: "), data...))
}
