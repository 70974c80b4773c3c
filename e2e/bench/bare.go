package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpen is how many files bare loops keep open: our reader has its own, and a process may
// not have any number of them.
const maxOpen = 8192

// bare is the least that reading can cost: one pread of each file into one buffer, and nothing
// done with it. It is open already, but for those that are opened for it.
type bare struct {
	// files are the reads of a tick.
	files func(tick int) []access
	from  int           // the first tick in which they are read
	cost  time.Duration // of measuring
	open  *openFiles
}

// contender of that name.
func (b *bare) contender(name string) *contender {
	return &contender{name: name, measured: func(tick int) (took time.Duration, err error) {
		if tick < b.from {
			return 0, nil
		}
		files := b.files(tick)
		fds, err := b.open.all(files)
		if err == nil {
			took, err = cpuTime(func() error { return b.open.read(files, fds) })
		}
		return max(took-b.cost, 0), errors.Join(err, b.open.closeRest())
	}}
}

// openFiles are kept open between ticks, as our reader keeps them: what was opened or read
// just before is in the processor's caches, where it is not when an agent reads it. It cost
// half as much to read so.
type openFiles struct {
	room int // how many may be kept
	kept map[string]int
	rest []int // open until the end of the tick
	buf  []byte
}

func newOpenFiles(room int) *openFiles {
	return &openFiles{room: room, kept: map[string]int{}, buf: make([]byte, 64<<10)}
}

// all opens what is not open, and reads that once: the first read of a file takes memory. It
// leaves to read what is opened for the read.
func (o *openFiles) all(files []access) (fds []int, err error) {
	for _, f := range files {
		fd, open := o.kept[f.path]
		switch {
		case f.opened:
			fd = -1
		case !open:
			if fd, err = openToRead(f.path); err != nil {
				return nil, err
			}
			if len(o.kept) < o.room {
				o.kept[f.path] = fd
			} else {
				o.rest = append(o.rest, fd)
			}
			if err := o.pread(fd); err != nil {
				return nil, err
			}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func openToRead(file string) (int, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return fd, err
}

// read reads each file: fds are those that all returned.
func (o *openFiles) read(files []access, fds []int) (err error) {
	for i, fd := range fds {
		if fd >= 0 {
			err = o.pread(fd)
		} else if fd, err = openToRead(files[i].path); err == nil {
			err = errors.Join(o.pread(fd), unix.Close(fd))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *openFiles) pread(fd int) error {
	if _, err := unix.Pread(fd, o.buf, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

func (o *openFiles) closeRest() (err error) {
	for _, fd := range o.rest {
		err = errors.Join(err, unix.Close(fd))
	}
	o.rest = o.rest[:0]
	return err
}

// Close closes all files.
func (o *openFiles) Close() error {
	err := o.closeRest()
	for _, fd := range o.kept {
		err = errors.Join(err, unix.Close(fd))
	}
	clear(o.kept)
	return err
}

// everySecond is the CPU time of the bare loop when it reads once a second, as an agent does.
// It is the mean of so many reads.
func everySecond(ctx context.Context, files []access, seconds int) (mean time.Duration, err error) {
	open := newOpenFiles(len(files))
	defer func() { err = errors.Join(err, open.Close()) }()
	fds, err := open.all(files)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for range seconds {
		if err := wait(ctx, time.Second); err != nil {
			return 0, err
		}
		took, err := cpuTime(func() error { return open.read(files, fds) })
		if err != nil {
			return 0, err
		}
		total += took
	}
	return total / time.Duration(seconds), nil
}

// readable are reads of files that are kept open, without what is not there: on v1 not every
// hierarchy has each.
func readable(files []string) (all []access) {
	for _, f := range files {
		if unix.Access(f, unix.R_OK) == nil {
			all = append(all, access{path: f})
		}
	}
	return all
}
