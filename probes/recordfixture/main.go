// Command recordfixture records the files that probes.Host reads on this
// machine, several times in a row, as one text archive (txtar) on stdout: the
// first sample in full below 0/, later ones below 1/, 2/, … with only what
// changed. Names of devices may hold characters that a Go module's files may
// not, hence an archive.
//
// # Usage
//
//	go run ./probes/recordfixture -load 'stress-ng --vm 1' >probes/testdata/machines/NAME.txtar
//
// Hardware addresses and the boot id are made neutral.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"
)

func main() {
	r := recorder{}
	load := flag.String("load", "", "shell command that runs while recording")
	flag.StringVar(&r.root, "root", "/", "where proc and sys are")
	flag.IntVar(&r.samples, "samples", 11, "how many samples")
	flag.DurationVar(&r.every, "every", time.Second, "time between two samples")
	flag.Parse()
	stop, err := start(context.Background(), *load)
	if err == nil {
		err = errors.Join(r.record(os.Stdout, *load), stop())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "recordfixture: %v\n", err)
		os.Exit(1)
	}
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
		_ = cmd.Wait() // it was killed, which is no news
		return err
	}, nil
}

// recorder reads the files below root.
type recorder struct {
	root    string
	samples int
	every   time.Duration
}

// globs are the files that probes.Host reads, below the root.
func globs() []string {
	return []string{
		"proc/stat", "proc/meminfo", "proc/vmstat", "proc/diskstats", "proc/pressure/*",
		"proc/1/net/dev", "proc/1/net/snmp", "proc/1/net/netstat", "proc/net/softnet_stat",
		"proc/sys/kernel/random/boot_id",
		"sys/block/*/diskseq", "sys/block/*/size", "sys/block/*/queue/rotational",
		"sys/class/net/*/ifindex", "sys/class/net/*/address", "sys/class/net/*/speed", "sys/class/net/*/device",
	}
}

func (r recorder) record(w io.Writer, load string) error {
	var a txtar.Archive
	var unreadable []string
	last := map[string]string{}
	for n := range r.samples {
		if n > 0 {
			time.Sleep(r.every)
		}
		paths, err := r.paths()
		if err != nil {
			return err
		}
		for _, path := range paths {
			data, err := r.read(path)
			switch {
			case err != nil && n == 0:
				unreadable = append(unreadable, fmt.Sprintf("unreadable %s: %s", path, err))
			case err == nil && (n == 0 || last[path] != data):
				a.Files = append(a.Files, txtar.File{Name: fmt.Sprintf("%d/%s", n, path), Data: []byte(data)})
				last[path] = data
			}
		}
	}
	if len(a.Files) == 0 {
		return fmt.Errorf("%s: nothing to record: are proc and sys there?", r.root)
	}
	a.Comment = []byte(r.header(load) + strings.Join(append(unreadable, ""), "\n"))
	_, err := w.Write(txtar.Format(&a))
	return err
}

func (r recorder) header(load string) string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	return fmt.Sprintf(`Recorded on Linux %s, %d CPUs: %d samples, %s apart, by
  go run ./probes/recordfixture -load %q
Below 1/ and later stands only what changed since the sample before. Hardware
addresses and the boot id were made neutral.
`, kernel, runtime.NumCPU(), r.samples, r.every, load)
}

// paths are the files that are there, below the root, sorted.
func (r recorder) paths() ([]string, error) {
	var paths []string
	for _, g := range globs() {
		found, err := filepath.Glob(filepath.Join(r.root, g))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			rel, err := filepath.Rel(r.root, f)
			if err != nil {
				return nil, err
			}
			paths = append(paths, rel)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// read gives a file's content made neutral, and for a link where it leads: of
// a NIC's device it only counts that there is one.
func (r recorder) read(path string) (string, error) {
	full := filepath.Join(r.root, path)
	if filepath.Base(path) == "device" {
		return link(full)
	}
	b, err := os.ReadFile(full)
	pe, isPath := errors.AsType[*fs.PathError](err)
	switch {
	case isPath:
		return "", pe.Err // without the path, which the caller has
	case err != nil:
		return "", err
	case filepath.Base(path) == "boot_id":
		return "b0071d00-0000-4000-8000-000000000000\n", nil
	case filepath.Base(path) == "address" && strings.Trim(string(b), "0:\n") != "":
		return r.neutral(filepath.Dir(full))
	}
	return string(b), nil
}

func link(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, unix.EINVAL) { // an extracted tree has a file there
		b, err := os.ReadFile(path)
		return string(b), err
	}
	return target + "\n", err
}

// neutral is a locally administered address made of the device's index.
func (r recorder) neutral(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "ifindex"))
	index := 0
	if err == nil {
		_, err = fmt.Sscan(string(b), &index)
	}
	return fmt.Sprintf("02:00:00:00:%02x:%02x\n", index>>8&0xff, index&0xff), err
}
