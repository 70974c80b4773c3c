package kit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

var errTaken = errors.New("another process listens on this socket")

// maxPath of a Unix socket in bytes (unix(7)), of which its hidden name takes
// one more.
const maxPath = 107 - 1

// socket is a listening one and its name in a directory.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// listen makes a socket that appears under its name when it can be connected
// to, and not before: it is bound to a name that hosts ignore, then renamed. What
// a process that was killed has left under the name is replaced by that; a socket
// on which somebody listens is not.
func listen(ctx context.Context, path string) (*socket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("%s: socket path too long: limit %d bytes, this one has %d", path, maxPath, len(path))
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := free(ctx, path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.Remove(hidden); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: hidden})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would go for the hidden name
	s := &socket{UnixListener: l, path: path}
	if s.file, err = os.Lstat(hidden); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(hidden))
	}
	return s, nil
}

// remove takes the name away, unless it is somebody else's by now. The socket
// goes on listening.
func (s *socket) remove() error {
	unlock, err := lock(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer unlock()
	now, err := os.Lstat(s.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(now, s.file) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(s.path)
}

// free says whether nobody listens on a path.
func free(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case file.Mode().Type() != os.ModeSocket:
		return errors.New("the file exists and is not a socket")
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (assumed): %w", errTaken, err)
	}
	return errors.Join(errTaken, c.Close())
}

// lock keeps other plugins of this kit out of a directory for the moment in
// which names change. It leaves nothing behind.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), d.Close())
	}
	return func() { _ = d.Close() }, nil
}
