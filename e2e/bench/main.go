// Command bench measures the product beside its peers in one run and prints
// one table: what was measured, the peer in the same run, their ratio, the
// goal, and whether it is met. Ratios and counts are the claims; times belong
// to the machine. It exits with 0 whatever is met, and with 1 when something
// could not be measured that can be here.
//
//	go run ./e2e/bench -only pods
//
// It is run at the top of the repository. Pods on this host's cgroups and all
// that runs as a process need root; every cgroup it makes begins with
// plimsoll-bench- and is gone when it ends.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	runtime.LockOSThread() // its processes end with the thread that started them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	b, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options say what is measured. Each measurement is given them and returns its rows: what
// becomes of those is the matter of the bench alone.
type options struct {
	plimsoll, load string // the built programs
	out            string // the document; empty: none
	only           []string
	sizes          []int
	ticks          int
	window         time.Duration

	start time.Time
}

func (o *options) say(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(o.start).Seconds(), fmt.Sprintf(format, a...))
}

// bench is one run.
type bench struct {
	options
	table []Row
	fails []error
}

func parse(args []string) (*bench, error) {
	b := &bench{options: options{start: time.Now()}}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := f.String("only", "", "comma-separated sections: "+strings.Join(sectionNames(), ", "))
	sizes := f.String("sizes", "1,250,1000", "numbers of pods, growing")
	f.IntVar(&b.ticks, "ticks", 2*chunk, "how many ticks of a reader are measured")
	f.DurationVar(&b.window, "window", 31*time.Second, "how long a process is measured")
	f.StringVar(&b.out, "o", "", "write the table into this document")
	f.StringVar(&b.plimsoll, "plimsoll", "bin/plimsoll", "the built program")
	f.StringVar(&b.load, "load", "bin/bench-load", "the built ./e2e/bench/load")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-sizes %s: %q is no number of pods", *sizes, s)
		}
		b.sizes = append(b.sizes, n)
	}
	if !slices.IsSorted(b.sizes) {
		return nil, fmt.Errorf("-sizes %s: they must grow", *sizes)
	}
	if *only != "" {
		b.only = strings.Split(*only, ",")
	}
	for _, name := range b.only {
		if !slices.Contains(sectionNames(), name) {
			return nil, fmt.Errorf("-only %s: there is no such section: %s", name, strings.Join(sectionNames(), ", "))
		}
	}
	return b, nil
}

// run measures, then shows the table.
func (b *bench) run(ctx context.Context) error {
	b.measure(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted: all is cleaned up")
	}
	if err := WriteText(os.Stdout, b.table); err != nil {
		return err
	}
	if b.out != "" {
		var text bytes.Buffer
		document(&text, b.table)
		if err := os.WriteFile(b.out, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	b.say("ended")
	return errors.Join(b.fails...)
}

// section keeps what a part measured, or that it could not.
func (b *bench) section(what string, rows []Row, err error) {
	b.table = append(b.table, rows...)
	if err != nil {
		b.table = append(b.table, Unmeasured(what, err))
		b.fails = append(b.fails, fmt.Errorf("%s: %w", what, err))
	}
}
