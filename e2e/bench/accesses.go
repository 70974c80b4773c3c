package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// access is one read of a file.
type access struct {
	path   string
	opened bool // for this read
}

// accesses tells which files of some directories are read, and how often
// (inotify's IN_ACCESS), and which of them are opened for it: what a reader really does is
// seen, not believed.
type accesses struct {
	fd     int
	dirs   map[int32]string
	opened map[string]bool // and not read yet
	buf    []byte
}

func watchReads(dirs []string) (*accesses, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch what is read: %w", err)
	}
	a := &accesses{fd: fd, dirs: map[int32]string{}, opened: map[string]bool{}, buf: make([]byte, 1<<20)}
	for _, dir := range dirs {
		wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_ACCESS|unix.IN_OPEN|unix.IN_ONLYDIR)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch what is read in %s: %w", dir, err), a.Close())
		}
		a.dirs[int32(wd)] = dir
	}
	return a, nil
}

// Close ends the watching.
func (a *accesses) Close() error { return unix.Close(a.fd) }

// during returns each read of a file that run does, in order.
func (a *accesses) during(run func() error) ([]access, error) {
	if _, err := a.drain(nil); err != nil && !errors.Is(err, errOverflow) { // what was before
		return nil, err
	}
	clear(a.opened)
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	var all []access
	for {
		// The kernel's queue is shorter than what a tick of a large node reads.
		select {
		case ran := <-ended:
			all, err := a.drain(all)
			if ran != nil {
				return nil, ran
			}
			return all, err
		case <-time.After(100 * time.Microsecond):
		}
		var err error
		if all, err = a.drain(all); err != nil {
			<-ended //nolint:errcheck // what was not seen is of no use
			return nil, err
		}
	}
}

// drain takes what the kernel has told so far.
func (a *accesses) drain(to []access) ([]access, error) {
	for {
		n, err := unix.Read(a.fd, a.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return to, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		default:
			if to, err = a.parse(a.buf[:n], to); err != nil {
				return nil, err
			}
		}
	}
}

var errOverflow = errors.New("more is read at once than the kernel tells (fs.inotify.max_queued_events)")

func (a *accesses) parse(b []byte, to []access) ([]access, error) {
	for len(b) >= unix.SizeofInotifyEvent {
		var e struct {
			Wd                int32
			Mask, Cookie, Len uint32
		}
		if _, err := binary.Decode(b, binary.NativeEndian, &e); err != nil {
			return nil, err
		}
		end := unix.SizeofInotifyEvent + int(e.Len)
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
		b = b[end:]
		path := filepath.Join(a.dirs[e.Wd], name)
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			return nil, errOverflow
		case e.Mask&unix.IN_ISDIR != 0 || name == "":
		case e.Mask&unix.IN_OPEN != 0:
			a.opened[path] = true
		default:
			to = append(to, access{path, a.opened[path]})
			delete(a.opened, path)
		}
	}
	return to, nil
}
