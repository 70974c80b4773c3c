package state

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the file in the state directory that the agent locks.
const lockName = "agent.lock"

// ErrLocked says that another agent uses the state directory.
var ErrLocked = errors.New("in use by another agent")

// Holder is the agent that locks a state directory.
type Holder struct {
	// ID of the state directory, created with the first lock and kept: agents with one
	// ID share a state, and the lock lets one of them run at a time.
	ID string `json:"id"`
	// PID of the agent, in its own PID namespace, and How it was started: one of the
	// constants below.
	PID   int       `json:"pid"`
	How   string    `json:"how"`
	Since time.Time `json:"since"`
}

// How an agent is started.
const (
	BySystemd = "by systemd"
	ByPod     = "in a pod"
	ByCommand = "by command"
)

func (h Holder) String() string {
	return fmt.Sprintf("pid %d, started %s at %s", h.PID, h.How, h.Since.UTC().Format(time.DateTime+" MST"))
}

// Lock is the exclusive use of a state directory. The kernel releases it when the
// process ends in any way; children do not inherit it.
type Lock struct {
	Holder
	// Unwritten is why the file does not name this holder, as on a full disk. The lock holds.
	Unwritten error

	file *os.File
}

// Acquire locks a state directory, which is created when missing. If another agent
// has it, the error is [ErrLocked] and names that agent. The lock is on an open
// file description (fcntl_locking(2), F_OFD_SETLK): it applies to all mounts of
// the directory, so that a pod with a hostPath and a service of the host exclude
// one another, and [Peek] can query it without taking it.
func Acquire(dir string, now time.Time, how string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600) // Go sets O_CLOEXEC
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	was := readHolder(f)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return nil, errors.Join(fmt.Errorf("state: %s: %w (%s)", dir, ErrLocked, was), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("state: lock %s: %w", f.Name(), err), f.Close())
	}
	l := &Lock{Holder: Holder{cmp.Or(was.ID, newID()), os.Getpid(), how, now.UTC()}, file: f}
	if err := l.write(); err != nil {
		l.Unwritten = fmt.Errorf("state: %w", err)
	}
	return l, nil
}

// Release unlocks the directory; nil-safe. The file stays, with its ID.
func (l *Lock) Release() {
	if l != nil {
		_ = l.file.Close() // closing unlocks
	}
}

// write stores the holder in place: a file renamed over it would be a different
// one to lock. An agent killed meanwhile leaves an unreadable file, and the next
// one creates a new ID. A full disk leaves what was there.
func (l *Lock) write() error {
	b, err := json.Marshal(l.Holder)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if _, err := l.file.WriteAt(b, 0); err != nil {
		return err
	}
	return l.file.Truncate(int64(len(b)))
}

// Peek returns the last holder of a state directory, and whether it still has the
// lock. It takes no lock. Without a file all is empty.
func Peek(dir string) (h Holder, locked bool, err error) {
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, fmt.Errorf("state: %w", err)
	}
	defer f.Close()
	is := unix.Flock_t{Type: unix.F_RDLCK} // F_WRLCK would need a file open for writing
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &is); err != nil {
		return Holder{}, false, fmt.Errorf("state: %s: %w", f.Name(), err)
	}
	return readHolder(f), is.Type != unix.F_UNLCK, nil
}

// maxHolder bounds how much of the file is read.
const maxHolder = 4096

// readHolder returns an empty Holder for an unreadable file.
func readHolder(f *os.File) Holder {
	var h Holder
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxHolder))
	if err != nil || json.Unmarshal(b, &h) != nil || len(h.ID) != 2*idBytes {
		return Holder{}
	}
	return h
}

const idBytes = 8

func newID() string {
	b := make([]byte, idBytes)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
