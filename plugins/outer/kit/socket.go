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

// maxPath is the longest path of a Unix socket in bytes (unix(7)), less one for
// its hidden name.
const maxPath = 107 - 1

// socket is a listening socket and its path.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// listen creates a socket whose name appears once it accepts connections: it is
// bound to a hidden name, which hosts ignore, and renamed. It replaces the
// socket that a killed process left; a socket with a listener is an error.
func listen(ctx context.Context, path string) (*socket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("%s: socket path too long: limit %d bytes, this one has %d", path, maxPath, len(path))
	}
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkFree(ctx, path); err != nil {
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
	l.SetUnlinkOnClose(false) // it would remove the hidden name
	s := &socket{UnixListener: l, path: path}
	if s.file, err = os.Lstat(hidden); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(hidden))
	}
	return s, nil
}

// remove deletes the name, unless another process has replaced it. The socket
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

// checkFree returns an error if a process listens on a path, or if it is not a
// socket.
func checkFree(ctx context.Context, path string) error {
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

// lock excludes other plugins of this kit while names in the directory change.
// It leaves no file behind.
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
