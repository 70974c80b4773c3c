package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpen is how many files a bare loop keeps open at once: our reader has its
// own, and a process may not have any number of them.
const maxOpen = 4096

// bare is the least that reading can cost: one pread of each file, which is
// open already, into one buffer, and nothing done with it.
type bare struct {
	// files that are read in a tick.
	files func(tick int) []string
	cost  time.Duration // of measuring
	buf   []byte
}

// contender of that name. What is not open at once is measured in parts.
func (b *bare) contender(name string) *contender {
	b.buf = make([]byte, 64<<10)
	return &contender{name: name, measured: func(tick int) (total time.Duration, err error) {
		for part := range slices.Chunk(b.files(tick), maxOpen) {
			took, err := b.part(part)
			if err != nil {
				return 0, err
			}
			total += took
		}
		return total, nil
	}}
}

// part opens files, which does not count, and reads them.
func (b *bare) part(files []string) (took time.Duration, err error) {
	fds, err := openAll(files)
	defer func() { err = errors.Join(err, closeAll(fds)) }()
	if err != nil {
		return 0, err
	}
	if err := b.read(fds); err != nil { // the first read of a file takes memory
		return 0, err
	}
	took, err = cpuTime(func() error { return b.read(fds) })
	return max(took-b.cost, 0), err
}

func (b *bare) read(fds []int) error {
	for _, fd := range fds {
		if _, err := unix.Pread(fd, b.buf, 0); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// everySecond is the CPU time of the bare loop when it reads as an agent does:
// once a second, when the caches hold something else. It is the mean of so many
// reads.
func everySecond(ctx context.Context, files []string, seconds int) (mean time.Duration, err error) {
	b := &bare{buf: make([]byte, 64<<10)}
	fds, err := openAll(files)
	defer func() { err = errors.Join(err, closeAll(fds)) }()
	if err != nil {
		return 0, err
	}
	if err := b.read(fds); err != nil { // the first read of a file takes memory
		return 0, err
	}
	var total time.Duration
	for range seconds {
		if err := wait(ctx, time.Second); err != nil {
			return 0, err
		}
		took, err := cpuTime(func() error { return b.read(fds) })
		if err != nil {
			return 0, err
		}
		total += took
	}
	return total / time.Duration(seconds), nil
}

func openAll(files []string) (fds []int, err error) {
	for _, f := range files {
		fd, err := unix.Open(f, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fds, fmt.Errorf("%s: %w", f, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// readable leaves out what is not there: on v1 not every hierarchy has each.
func readable(files []string) []string {
	return slices.DeleteFunc(files, func(f string) bool { return unix.Access(f, unix.R_OK) != nil })
}
