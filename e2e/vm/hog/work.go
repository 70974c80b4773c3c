package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// work is a load of another kind than memory, and what every load does beside it so
// that a reader outside can measure it.
type work struct {
	kind    string
	dir     string // on the file system that is worked on; it has data of dataSize
	threads int
	count   string // file in which a reader finds what is done, see counter
	listen  string
	lock    string
	done    *atomic.Uint64
}

const (
	dataSize  = 256 << 20
	blockSize = 256 << 10
	// syncEvery is how many MiB are written between two calls of fsync.
	syncEvery = 4
	// fileMiB is the size at which a file is cut to nothing and begun anew.
	fileMiB = 32
	// liveMost is how many programs of forks run at most, each for a second.
	liveMost = 1500
)

// counter is a file of eight bytes that others may map or read: bytes taken or written
// or read, ns of CPU time, or programs started.
func counter(path string) (*atomic.Uint64, error) {
	if path == "" {
		return new(atomic.Uint64), nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return (*atomic.Uint64)(unsafe.Pointer(&b[0])), nil
}

// begin makes the counter, answers probes of life, and maps and unmaps memory all the
// time, as allocators do: each wants the lock of the address space for itself.
func (w *work) begin() (err error) {
	if w.done, err = counter(w.count); err != nil {
		return err
	}
	if w.listen == "" {
		return nil
	}
	go func() {
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
		s := http.Server{Addr: w.listen, Handler: answer, ReadHeaderTimeout: time.Minute}
		fmt.Fprintf(os.Stderr, "hog: %v\n", s.ListenAndServe())
	}()
	go func() {
		for {
			if b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
				_ = unix.Munmap(b)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return nil
}

// locked does one thing while it holds the lock that it shares with others, if any.
func (w *work) locked(thread int, do func() error) error {
	if w.lock == "" || thread != 0 {
		return do()
	}
	f, err := os.OpenFile(w.lock, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", w.lock, err), f.Close())
	}
	return errors.Join(do(), f.Close()) // and with it the lock
}

// run works until something fails.
func (w *work) run() error {
	one := map[string]func(int) (func() error, error){
		"direct": w.direct, "synced": w.synced, "cpu": w.compute, "forks": w.forks,
	}[w.kind]
	if one == nil {
		return fmt.Errorf("no such work: %q", w.kind)
	}
	runtime.GOMAXPROCS(w.threads + 2)
	failed := make(chan error, w.threads)
	for i := range w.threads {
		do, err := one(i)
		if err != nil {
			return err
		}
		go func() {
			runtime.LockOSThread()
			var err error
			for err == nil {
				err = w.locked(i, do)
			}
			failed <- err
		}()
	}
	return <-failed
}

// direct reads, in every second thread writes, blocks at random past the page cache.
func (w *work) direct(thread int) (func() error, error) {
	fd, err := unix.Open(filepath.Join(w.dir, "data"), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open data: %w", err)
	}
	b, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map a buffer: %w", err)
	}
	move := unix.Pread
	if thread%2 == 1 {
		move = unix.Pwrite
	}
	return func() error {
		n, err := move(fd, b, rand.Int64N(dataSize/blockSize)*blockSize)
		w.done.Add(uint64(max(0, n)))
		return err
	}, nil
}

// synced writes a file through the page cache, has the kernel write it out, and leaves
// a new name in the directory that all share, as databases and downloads do.
func (w *work) synced(thread int) (func() error, error) {
	name := filepath.Join(w.dir, "synced"+strconv.Itoa(thread))
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 1<<20)
	written := 0
	return func() error {
		if written >= fileMiB {
			if err := f.Truncate(0); err != nil {
				return err
			}
			written = 0
		}
		for range syncEvery {
			if _, err := f.WriteAt(b, int64(written)<<20); err != nil {
				return err
			}
			written++
			w.done.Add(1 << 20)
		}
		temporary := filepath.Join(w.dir, "common", "new"+strconv.Itoa(thread))
		if err := errors.Join(os.WriteFile(temporary, b[:4096], 0o600), os.Rename(temporary, temporary+".is")); err != nil {
			return err
		}
		return f.Sync()
	}, nil
}

// compute uses a CPU.
func (w *work) compute(int) (func() error, error) {
	b := make([]byte, 64<<10)
	return func() error {
		var from, to unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from)
		sum := sha256.Sum256(b)
		copy(b, sum[:])
		err = errors.Join(err, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &to))
		w.done.Add(uint64(to.Nano() - from.Nano()))
		return err
	}, nil
}

// forks starts programs that end after a second, as fast as it goes. One that cannot
// be started, as there are too many, is tried again.
func (w *work) forks(int) (func() error, error) {
	live := make(chan struct{}, liveMost/w.threads)
	return func() error {
		live <- struct{}{}
		c := exec.Command("/bin/sleep", "1") //nolint:noctx // it ends by itself
		if err := c.Start(); err != nil {
			<-live
			time.Sleep(10 * time.Millisecond)
			return nil //nolint:nilerr // that is the purpose of a limit on processes
		}
		w.done.Add(1)
		go func() {
			_ = c.Wait()
			<-live
		}()
		return nil
	}, nil
}
