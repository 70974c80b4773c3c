// Command load is one pod's process for measurements: it moves itself into the
// cgroups whose directories it is given, says so in a line, and does nothing
// until it is told to work (SIGUSR1) or to rest (SIGUSR2). At work it uses
// about 200 µs of CPU and touches a page every 200 ms.
//
// With -plugins DIR it is some outer plugins that never press instead, with -drain SOCKET
// a listener that reads what is written to it and keeps nothing, and with -grpc SOCKET a
// gRPC server that does the same.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/bench/rpc"
)

const (
	period = 200 * time.Millisecond
	spin   = 200 * time.Microsecond
	pages  = 64
)

// pluginCount is how many outer plugins -plugins serves.
const pluginCount = 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "-plugins" {
		return servePlugins(args[1], pluginCount)
	}
	if len(args) == 2 && args[0] == "-drain" {
		return drain(args[1])
	}
	if len(args) == 2 && args[0] == "-grpc" {
		return rpc.Serve(args[1])
	}
	if err := enter(args); err != nil {
		return err
	}
	memory, err := syscall.Mmap(-1, 0, pages*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Println("in")
	live(told, memory)
	return nil
}

// drain reads all that is written to a socket, until it is ended.
func drain(path string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for buf := make([]byte, 64<<10); ; {
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		}()
	}
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
