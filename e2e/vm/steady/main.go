// Command steady does the same work every second, so that what a reader of the
// kernel's counters says can be held against what was done.
//
//	steady [-file PATH -write MIB -read MIB] [-cpu MS] [-memory MIB]
//
// Each second it writes and reads so many MiB of the file in requests of 256
// KiB past the page cache, computes for so many milliseconds of CPU time, and
// it holds so much memory. Ten times a second it says on stdout what it has
// done so far, one line of JSON, and it works until it is killed.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// work is what is asked for: sizes in MiB, CPU in ms, each per second but memory.
type work struct {
	file                     string
	write, read, cpu, memory int
}

// done is what was done so far.
type done struct {
	Written, Read uint64
	Waited        time.Duration // for the requests that read and wrote that
	CPU           time.Duration // of this whole process
}

// The work of a second is done in tenths, so that it looks the same over any
// window of some tenths.
const (
	tenths  = 10
	request = 256 << 10
)

func main() {
	var w work
	flag.StringVar(&w.file, "file", "", "the file to write and read; it is made")
	flag.IntVar(&w.write, "write", 0, "write so many MiB a second")
	flag.IntVar(&w.read, "read", 0, "read so many MiB a second")
	flag.IntVar(&w.cpu, "cpu", 0, "compute for so many ms of CPU time a second")
	flag.IntVar(&w.memory, "memory", 0, "hold so many MiB of memory")
	flag.Parse()
	fmt.Fprintf(os.Stderr, "steady: %v\n", w.run(os.Stdout, make(chan struct{})))
	os.Exit(1)
}

// run works until stop is closed.
func (w work) run(say io.Writer, stop <-chan struct{}) error {
	d, err := w.disk()
	if err != nil {
		return err
	}
	held := make([]byte, w.memory<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	tick := time.NewTicker(time.Second / tenths)
	defer tick.Stop()
	out := json.NewEncoder(say)
	for {
		if err := d.tenth(w); err != nil {
			return err
		}
		used, err := w.compute()
		if err != nil {
			return err
		}
		if err := out.Encode(done{Written: d.written, Read: d.read, Waited: d.waited, CPU: used}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stop:
			runtime.KeepAlive(held)
			return nil
		}
	}
}

// compute spins for a tenth of what is asked per second.
func (w work) compute() (used time.Duration, err error) {
	start, err := usedCPU()
	if err != nil {
		return 0, err
	}
	for used = start; used-start < time.Duration(w.cpu)*time.Millisecond/tenths; {
		if used, err = usedCPU(); err != nil {
			return 0, err
		}
	}
	return used, nil
}

func usedCPU() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}

// disk is the file that is written and read.
type disk struct {
	fd                int
	buf               []byte
	written, read     uint64
	dueWrite, dueRead uint64 // what should be written and read by now
	at, from          int64
	waited            time.Duration
}

// fileSize is written before the work begins, so that reads find blocks.
const fileSize = 32 << 20

func (w work) disk() (*disk, error) {
	if w.file == "" {
		return &disk{}, nil
	}
	fd, err := unix.Open(w.file, unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", w.file, err)
	}
	// Direct IO wants memory that begins at a page.
	buf, err := unix.Mmap(-1, 0, request, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map a buffer: %w", err)
	}
	d := &disk{fd: fd, buf: buf}
	for d.written < fileSize {
		if err := d.writeOne(); err != nil {
			return nil, err
		}
	}
	d.written, d.waited = 0, 0
	return d, nil
}

// tenth is a tenth of a second's work: what does not divide into whole
// requests is made up for later, so that a whole second's is exact.
func (d *disk) tenth(w work) error {
	perTenth := func(mib int) uint64 { return uint64(mib) << 20 / tenths }
	d.dueWrite += perTenth(w.write)
	d.dueRead += perTenth(w.read)
	for d.written+request <= d.dueWrite {
		if err := d.writeOne(); err != nil {
			return err
		}
	}
	for d.read+request <= d.dueRead {
		if err := d.readOne(); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) writeOne() error {
	began := time.Now()
	n, err := unix.Pwrite(d.fd, d.buf, d.at)
	d.waited += time.Since(began)
	if err != nil || n != request {
		return fmt.Errorf("write at %d: %w", d.at, cmp.Or(err, io.ErrShortWrite))
	}
	d.at = (d.at + request) % fileSize
	d.written += request
	return nil
}

func (d *disk) readOne() error {
	began := time.Now()
	n, err := unix.Pread(d.fd, d.buf, d.from)
	d.waited += time.Since(began)
	if err != nil || n != request {
		return fmt.Errorf("read at %d: %w", d.from, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	d.from = (d.from + request) % fileSize
	d.read += request
	return nil
}
