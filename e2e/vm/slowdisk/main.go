// Command slowdisk is an outer plugin of a test: while the requests of a disk take long, it
// names the pod that transfers most on it, and would have it evicted.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func main() {
	s := &slowDisk{used: map[string]uint64{}}
	flag.StringVar(&s.disk, "disk", "", "the disk, such as vdb")
	flag.Float64Var(&s.await, "await", 60, "ms that a request takes, in the mean between two answers")
	flag.IntVar(&s.answers, "answers", 2, "of so many answers one after the other")
	kit.Main("slow-disk", s)
}

// slowDisk is its configuration and last state.
type slowDisk struct {
	disk    string
	await   float64
	answers int

	requests, ms float64 // of the disk since the boot
	slow         int     // answers in a row
	used         map[string]uint64
}

// Threshold is met while requests take long.
func (s *slowDisk) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	b, err := os.ReadFile("/sys/block/" + s.disk + "/stat")
	if err != nil {
		return kit.Threshold{}, err
	}
	var n []float64
	for field := range strings.FieldsSeq(string(b)) {
		f, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return kit.Threshold{}, fmt.Errorf("stat of %s: %w", s.disk, err)
		}
		n = append(n, f)
	}
	requests, ms := n[0]+n[4], n[3]+n[7] // Documentation/block/stat.rst
	await := (ms - s.ms) / max(1, requests-s.requests)
	first := s.requests == 0
	s.requests, s.ms = requests, ms
	if first || await < s.await {
		s.slow = 0
		return kit.Threshold{Observed: await, Limit: s.await, Scope: s.disk}, nil
	}
	s.slow++
	t := kit.Threshold{Observed: await, Limit: s.await, Scope: s.disk, Condition: &kit.Condition{Name: "SlowDisk"}}
	if s.slow >= s.answers {
		t.Level = kit.Hard
	}
	return t, nil
}

// Top is the pod that transferred most since it was last asked.
func (s *slowDisk) Top(_ context.Context, ask kit.Ask) (named kit.Named, err error) {
	number, err := os.ReadFile("/sys/block/" + s.disk + "/dev")
	if err != nil {
		return named, err
	}
	moved := map[*corev1.Pod]uint64{}
	for _, p := range ask.Pods {
		files, err := filepath.Glob("/sys/fs/cgroup/kubepods.slice/*/*pod" + strings.ReplaceAll(string(p.UID), "-", "_") + ".slice/io.stat")
		if err != nil || len(files) == 0 {
			continue // it has ended
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			continue // it has ended
		}
		now := bytesOf(string(text), strings.TrimSpace(string(number)))
		moved[p], s.used[string(p.UID)] = now-s.used[string(p.UID)], now
	}
	maps.DeleteFunc(moved, func(_ *corev1.Pod, n uint64) bool { return n == 0 })
	named.Pods = slices.SortedFunc(maps.Keys(moved), func(a, b *corev1.Pod) int { return cmp.Compare(moved[b], moved[a]) })
	named.Pods = named.Pods[:min(ask.N, len(named.Pods))]
	return named, nil
}

// bytesOf are the bytes that a cgroup transferred on a device, by its io.stat.
func bytesOf(text, device string) (sum uint64) {
	for line := range strings.Lines(text) {
		of, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of != device {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			key, value, _ := strings.Cut(field, "=")
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && (key == "rbytes" || key == "wbytes") {
				sum += n
			}
		}
	}
	return sum
}
