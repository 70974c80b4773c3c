// Command load is one pod's process for measurements: it moves itself into the
// cgroups whose directories it is given, says so in a line, and does nothing
// until it is told to work (SIGUSR1) or to rest (SIGUSR2). At work it uses
// about 200 µs of CPU and touches a page every 200 ms.
//
// With -plugins DIR it is some outer plugins that never press instead.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	period = 200 * time.Millisecond
	spin   = 200 * time.Microsecond
	pages  = 64
)

// pluginCount is how many outer plugins -plugins serves.
const pluginCount = 10

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-plugins" {
		if err := servePlugins(os.Args[2], pluginCount); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
		return
	}
	if err := enter(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	memory, err := syscall.Mmap(-1, 0, pages*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Println("in")
	live(told, memory)
}

// enter moves this process into cgroups.
func enter(dirs []string) error {
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// live works and rests for ever.
func live(told <-chan os.Signal, memory []byte) {
	for {
		if <-told != syscall.SIGUSR1 {
			continue
		}
		// Not all at the same moment.
		time.Sleep(rand.N(period))
		work := time.NewTicker(period)
		for beat := 0; ; beat++ {
			do(beat, memory)
			select {
			case <-work.C:
				continue
			case s := <-told:
				if s == syscall.SIGUSR1 {
					continue
				}
			}
			break
		}
		work.Stop()
	}
}

// do is one piece of work.
func do(beat int, memory []byte) {
	at := beat % pages
	if at == 0 {
		_ = syscall.Madvise(memory, syscall.MADV_DONTNEED) // else all pages stay, and nothing changes
	}
	memory[at*os.Getpagesize()]++
	for start := time.Now(); time.Since(start) < spin; {
		memory[at*os.Getpagesize()]++
	}
}
