package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"
)

// recorder reads the files below root.
type recorder struct {
	root, load, note string
	cgroups          []string
	samples          int
	every            time.Duration
}

// record writes the archive once all samples are taken.
func (r recorder) record(w io.Writer) error {
	var a txtar.Archive
	last, lastFailed := map[string]string{}, map[string]string{}
	started := time.Now()
	for n := range r.samples {
		// By the clock, so that the time of the reads does not add up.
		time.Sleep(time.Until(started.Add(time.Duration(n) * r.every)))
		at, err := monotonic()
		if err != nil {
			return err
		}
		now, failed, err := r.sample()
		if err != nil {
			return err
		}
		a.Files = append(a.Files, changes(n, at, last, now)...)
		if list := unreadable(lastFailed, failed); list != "" {
			a.Files = append(a.Files, txtar.File{Name: fmt.Sprintf("%d/unreadable", n), Data: []byte(list)})
		}
		last, lastFailed = now, failed
	}
	if len(last) == 0 {
		return fmt.Errorf("%s: %w", r.root, errNothing)
	}
	a.Comment = []byte(r.header())
	_, err := w.Write(txtar.Format(&a))
	return err
}

var errNothing = errors.New("nothing to record: are proc and sys there?")

func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// changes returns the archive's files of sample n, without unchanged ones.
func changes(n int, at time.Duration, last, now map[string]string) []txtar.File {
	files := []txtar.File{{Name: fmt.Sprintf("%d/monotonic", n), Data: fmt.Appendf(nil, "%d\n", at)}}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if was, ok := last[path]; !ok || was != now[path] {
			files = append(files, txtar.File{Name: fmt.Sprintf("%d/%s", n, path), Data: []byte(now[path])})
		}
	}
	var removed strings.Builder
	for _, path := range slices.Sorted(maps.Keys(last)) {
		if _, ok := now[path]; !ok {
			removed.WriteString(path + "\n")
		}
	}
	if removed.Len() > 0 {
		files = append(files, txtar.File{Name: fmt.Sprintf("%d/removed", n), Data: []byte(removed.String())})
	}
	return files
}

// unreadable lists the files that became unreadable, each with the reason.
func unreadable(last, now map[string]string) string {
	var list strings.Builder
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if last[path] != now[path] {
			fmt.Fprintf(&list, "%s: %s\n", path, now[path])
		}
	}
	return list.String()
}

func (r recorder) header() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	var command strings.Builder
	fmt.Fprintf(&command, "go run ./probes/recordfixture -samples %d -every %s", r.samples, r.every)
	for _, f := range []struct{ flag, value string }{
		{"load", r.load}, {"cgroups", strings.Join(r.cgroups, ",")}, {"note", r.note},
	} {
		if f.value != "" {
			fmt.Fprintf(&command, " -%s %q", f.flag, f.value)
		}
	}
	return fmt.Sprintf(`Recorded on Linux %s, %d CPUs: %d samples, %s apart, by
  %s
Below 1/ and later stands only what changed since the sample before. Hardware
addresses, the boot id and the names of media were made neutral.
`, kernel, runtime.NumCPU(), r.samples, r.every, command.String())
}
