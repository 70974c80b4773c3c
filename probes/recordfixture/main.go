// Command recordfixture records the files that probes.Host reads on this
// machine, several times in a row, as one text archive (txtar, packed by gzip)
// on stdout: the first sample in full below 0/, later ones below 1/, 2/, … with
// only what changed. Names of devices may hold characters that a Go module's
// files may not, hence an archive.
//
// # Usage
//
//	go run ./probes/recordfixture -load 'stress-ng --vm 1' -cgroups /kubepods,/cron.service >NAME.txtar.gz
//
// # Format
//
// Below N/ are the files as the kernel printed them, and:
//
//	N/monotonic   CLOCK_MONOTONIC at the start of the sample, in nanoseconds
//	N/removed     the files of sample N-1 that N lacks, one per line
//	N/unreadable  the files that became unreadable, one per line: PATH: reason
//	N/PATH@       the target of the symbolic link PATH
//
// Hardware addresses, the boot id and the names of media are anonymized;
// cgroups are recorded only on request.
package main

import (
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	r := recorder{}
	load := flag.String("load", "", "shell command that runs while recording")
	cgroups := flag.String("cgroups", "", "cgroups to record with all below them, as /a,/b/c")
	flag.StringVar(&r.note, "note", "", "what else runs, in words, for the header")
	flag.StringVar(&r.root, "root", "/", "where proc and sys are")
	flag.IntVar(&r.samples, "samples", 61, "how many samples")
	flag.DurationVar(&r.every, "every", time.Second, "time from one sample to the next")
	flag.Parse()
	r.load, r.cgroups = *load, strings.FieldsFunc(*cgroups, func(c rune) bool { return c == ',' })
	if err := run(r); err != nil {
		fmt.Fprintf(os.Stderr, "recordfixture: %v\n", err)
		os.Exit(1)
	}
}

func run(r recorder) error {
	stop, err := start(context.Background(), r.load)
	if err != nil {
		return err
	}
	packed, err := gzip.NewWriterLevel(os.Stdout, gzip.BestCompression)
	if err == nil {
		err = r.record(packed)
	}
	return errors.Join(err, stop(), packed.Close())
}

// start runs the load in a process group of its own, which stop ends.
func start(ctx context.Context, load string) (stop func() error, err error) {
	if load == "" {
		return func() error { return nil }, nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", load)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load: %w", err)
	}
	return func() error {
		err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // it was killed, as intended
		return err
	}, nil
}
