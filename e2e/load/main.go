// Command load is what the tests press a machine with: one load as a process of
// its own, small, so that what is measured of it is what it was asked for.
//
//	load hold MIB [deaf]                           takes so much memory and keeps touching it; deaf to SIGTERM
//	load burn THREADS                              keeps so many CPUs busy
//	load thrash FILE BYTES [CGROUP...]             writes a file and touches its pages at random
//	load read FILE SIZE DEPTH PAUSE [CGROUP...]    requests of SIZE bytes past the page cache, DEPTH at once, PAUSE µs after each
//	load write FILE BYTES [CGROUP...]              writes a file through the page cache, over and over
//
// It joins the cgroups whose directories it is given, says "ready" and goes on
// until it is ended.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	fmt.Fprintln(os.Stderr, "load:", run(os.Args[1:]))
	os.Exit(1)
}

// run comes back only with an error.
func run(args []string) error {
	loads := map[string]struct {
		numbers int  // of its arguments, at least
		file    bool // the first argument is one
		press   func(file string, numbers []int, rest []string) error
	}{
		"hold":   {1, false, hold},
		"burn":   {1, false, burn},
		"thrash": {1, true, thrash},
		"read":   {3, true, read},
		"write":  {1, true, write},
	}
	if len(args) == 0 {
		return errors.New("no load is named")
	}
	name, args := args[0], args[1:]
	l, ok := loads[name]
	if !ok {
		return fmt.Errorf("no load %q", name)
	}
	var file string
	if l.file && len(args) > 0 {
		file, args = args[0], args[1:]
	}
	if len(args) < l.numbers {
		return fmt.Errorf("%s: %d numbers are needed", name, l.numbers)
	}
	numbers := make([]int, l.numbers)
	for i := range numbers {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		numbers[i] = n
	}
	return l.press(file, numbers, args[l.numbers:])
}

// join makes this process one of the cgroups and says that it goes on.
func join(cgroups []string) error {
	for _, dir := range cgroups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return nil
}

// memory of its own, aligned as direct IO wants it.
func memory(bytes int) ([]byte, error) {
	if bytes == 0 {
		return nil, nil
	}
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func hold(_ string, numbers []int, rest []string) error {
	if len(rest) > 0 && rest[0] == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	held, err := memory(numbers[0] << 20)
	if err != nil {
		return err
	}
	for {
		for i := 0; i < len(held); i += os.Getpagesize() {
			held[i]++
		}
		time.Sleep(time.Second) // touched again and again, or it would be nobody's working set
	}
}

func burn(_ string, numbers []int, rest []string) error {
	runtime.GOMAXPROCS(max(1, numbers[0]))
	for range numbers[0] {
		go func() {
			var spun atomic.Int64
			for i := 0; ; i++ {
				spun.Store(int64(i))
			}
		}()
	}
	if err := join(rest); err != nil {
		return err
	}
	end := make(chan os.Signal, 1) // one that waits for nothing would be a deadlock
	signal.Notify(end, syscall.SIGTERM)
	<-end
	return errors.New("told to end")
}

// thrash joins first, so that the page cache of the file counts for its cgroups.
func thrash(file string, numbers []int, cgroups []string) error {
	if err := join(cgroups); err != nil {
		return err
	}
	n := numbers[0]
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for range n >> 20 {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	pages, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for {
		if pages[rand.IntN(n)] != 0 { // a page fault, and most often a refault
			return errors.New("the file changed")
		}
	}
}

func read(file string, numbers []int, cgroups []string) error {
	size, depth, pause := numbers[0], numbers[1], time.Duration(numbers[2])*time.Microsecond
	if err := join(cgroups); err != nil {
		return err
	}
	ended := make(chan error)
	for range depth {
		go func() { ended <- readOn(file, size, pause) }()
	}
	return <-ended
}

func readOn(file string, size int, pause time.Duration) error {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	block, err := memory(size)
	if err != nil {
		return err
	}
	for {
		at := rand.Int64N(info.Size()/int64(size)) * int64(size)
		if _, err := f.ReadAt(block, at); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// write fills the page cache in its cgroups and has the kernel's flusher, not
// itself, write it back.
func write(file string, numbers []int, cgroups []string) error {
	if err := join(cgroups); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for {
		for at := range numbers[0] >> 20 {
			if _, err := f.WriteAt(block, int64(at)<<20); err != nil {
				return err
			}
		}
		if err := unix.Syncfs(int(f.Fd())); err != nil {
			return err
		}
	}
}
