// Command hog makes a real shortage of memory, the way a node without swap gets
// into one: anonymous memory, which the kernel cannot drop, takes nearly all
// there is, and programs keep reading a set of file pages that no longer fits
// into the rest, so that each page read drives out another that is needed soon.
//
//	hog [-file PATH] [-fill MIB] [-available MIB] [-numa NODE] [-ahead MIB] [-pace MIB] [-window MIB] [-readers N]
//
// It fills until so little memory is available or so much is filled, then reads
// until it is killed, or without a file does nothing more. Inside a cgroup with a
// limit it presses on the limit alone; bound to a NUMA node, with -numa, on that.
//
//	hog -work direct|synced|cpu|forks -dir DIR [-threads N]
//
// uses another resource than memory in the same way, until it is killed, see work.go.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// load is what hog is asked for, sizes in MiB.
type load struct {
	file      string
	fill      int // anonymous memory at most
	available int // filling stops when no more than this is available
	numa      int // on this NUMA node; -1: on the host
	ahead     int // MiB that are filled before -pace counts
	pace      int // MiB that are filled a second at most; 0: as fast as it goes
	window    int // how much of the file is read over and over
	readers   int
	work      work
}

func main() {
	var l load
	flag.StringVar(&l.file, "file", "", "file of at least -window MiB to read")
	flag.IntVar(&l.fill, "fill", 1<<20, "fill at most so many MiB")
	flag.IntVar(&l.available, "available", 80, "stop filling when no more MiB are available")
	flag.IntVar(&l.numa, "numa", -1, "what is available on this `NODE` counts; -1: on the host")
	flag.IntVar(&l.ahead, "ahead", 0, "fill so many MiB as fast as it goes before -pace counts")
	flag.IntVar(&l.pace, "pace", 0, "fill so many MiB a second, like a leak; 0: as fast as it goes")
	flag.IntVar(&l.window, "window", 150, "read so many MiB of the file, at random")
	flag.IntVar(&l.readers, "readers", 32, "how many threads read")
	flag.StringVar(&l.work.kind, "work", "", "use another resource than memory: direct, synced, cpu or forks")
	flag.StringVar(&l.work.dir, "dir", "", "directory that -work direct and synced use")
	flag.IntVar(&l.work.threads, "threads", 8, "how many threads -work uses")
	flag.StringVar(&l.work.count, "count", "", "`file` in which others find how much is done")
	flag.StringVar(&l.work.listen, "listen", "", "answer HTTP at this `address`, and map memory all the time")
	flag.StringVar(&l.work.lock, "lock", "", "hold the lock of this `file` for each piece of work")
	flag.Parse()
	fmt.Fprintf(os.Stderr, "hog: %v\n", l.start(os.Stdout))
	os.Exit(1)
}

// start begins what is asked for.
func (l load) start(say io.Writer) error {
	if err := l.work.begin(); err != nil {
		return err
	}
	if l.work.kind != "" {
		return l.work.run()
	}
	return l.press(say)
}

// press fills and reads; it does not come back unless something fails. What it
// filled is kept by the kernel until the process ends.
func (l load) press(say io.Writer) error {
	var pages []byte
	var err error
	if l.file != "" {
		if pages, err = l.mapFile(); err != nil {
			return err
		}
	}
	filled, err := l.occupy()
	if err != nil {
		return err
	}
	fmt.Fprintf(say, "%s filled %d MiB\n", time.Now().Format(time.RFC3339Nano), filled)
	// A reader in a page fault holds its processor as far as Go knows.
	runtime.GOMAXPROCS(l.readers + 1)
	sums := make([]atomic.Int64, l.readers)
	for i := range sums {
		if pages != nil {
			go wander(pages, &sums[i])
		}
	}
	for {
		time.Sleep(time.Hour) // without readers Go would take select {} for a deadlock
	}
}

// mapFile reads the window twice in large pieces, so that the kernel knows its
// pages as used again, and maps it the way a program's text is mapped: pages
// that are executed are the last ones the kernel drops, and waiting for one
// that it had to drop is what PSI counts.
func (l load) mapFile() ([]byte, error) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for range 2 {
		n, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, int64(l.window)<<20))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", l.file, err)
		}
		if n != int64(l.window)<<20 {
			return nil, fmt.Errorf("%s is smaller than %d MiB", l.file, l.window)
		}
	}
	pages, err := unix.Mmap(int(f.Fd()), 0, l.window<<20, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", l.file, err)
	}
	// No read-ahead: each fault is one page.
	if err := unix.Madvise(pages, unix.MADV_RANDOM); err != nil {
		return nil, fmt.Errorf("advise on %s: %w", l.file, err)
	}
	return pages, nil
}

// occupy takes anonymous memory, in smaller pieces the less there is left, and
// says how many MiB it took. The kernel is told to fill the pieces: an emulated
// processor takes long for each page that a program touches first.
func (l load) occupy() (taken int, err error) {
	for next := time.Now(); taken < l.fill; {
		time.Sleep(time.Until(next))
		left, err := availableMiB(l.numa)
		if err != nil {
			return taken, err
		}
		if left <= l.available {
			return taken, nil
		}
		piece := l.piece(taken, left)
		if err := l.work.locked(0, func() error { return take(piece) }); err != nil {
			return taken, fmt.Errorf("take memory: %w", err)
		}
		taken += piece
		if l.work.done != nil {
			l.work.done.Add(uint64(piece) << 20)
		}
		if l.pace > 0 && taken > l.ahead { // one that was held back does not catch up
			next = latest(next, time.Now().Add(-time.Second)).Add(time.Duration(piece) * time.Second / time.Duration(l.pace))
		}
	}
	return taken, nil
}

// piece is how many MiB are taken at once: fifty times a second at most where a pace
// is asked for.
func (l load) piece(taken, left int) int {
	switch {
	case taken < l.ahead:
		return min(64, l.ahead-taken)
	case l.pace > 0:
		return max(1, l.pace/50)
	}
	return min(max(1, (left-l.available)/8), l.fill-taken)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func take(mib int) error {
	b, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	return unix.Madvise(b, unix.MADV_POPULATE_WRITE)
}

// availableMiB is what is available on the host, or free and file pages on a NUMA node.
func availableMiB(numa int) (int, error) {
	if numa >= 0 {
		return numaMiB(numa)
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	m, err := fs.Meminfo()
	if err != nil {
		return 0, err
	}
	if m.MemAvailableBytes == nil {
		return 0, errors.New("/proc/meminfo: no MemAvailable")
	}
	return int(*m.MemAvailableBytes >> 20), nil
}

func numaMiB(id int) (int, error) {
	file := fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", id)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	kib := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line) // Node 0 MemFree: 12 kB
		if len(words) != 5 || !slices.Contains([]string{"MemFree:", "Active(file):", "Inactive(file):"}, words[2]) {
			continue
		}
		n, err := strconv.Atoi(words[3])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		kib += n
	}
	return kib >> 10, nil
}

// wander reads pages at random for ever. The sum keeps the compiler from
// leaving the reads out.
func wander(pages []byte, sum *atomic.Int64) {
	for {
		sum.Add(int64(pages[rand.IntN(len(pages))]))
	}
}
