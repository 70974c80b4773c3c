package probes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// FilesystemConfig configures which mounts are watched, and how often they are
// read.
type FilesystemConfig struct {
	Mounts  []string      `yaml:"mounts" unit:"mountpoints" why:"Mountpoints to watch, as in /proc/1/mountinfo; empty: the root and every filesystem on a block device. A network filesystem, which may hang, is watched only if it is listed."`
	Every   time.Duration `yaml:"every" why:"How often statfs reads each mount; a filesystem fills more slowly than memory."`
	Timeout time.Duration `yaml:"timeout" why:"How long statfs may take before the mount counts as hung: it keeps its last values, and is not read again until that call returns."`

	Kubelet  string   `yaml:"kubelet" unit:"path" why:"The kubelet's directory (its --root-dir). If it exists, the kubelet judges the filesystems that hold it or one of runtimes, and mounts below it are volumes of pods. Empty: no kubelet."`
	Runtimes []string `yaml:"runtimes" unit:"paths" why:"Where container runtimes keep images and containers."`
}

// DefaultFilesystemConfig returns the defaults.
func DefaultFilesystemConfig() FilesystemConfig {
	return FilesystemConfig{
		Every: 10 * time.Second, Timeout: 2 * time.Second,
		Kubelet: "/var/lib/kubelet",
		Runtimes: []string{
			"/var/lib/containerd", "/var/lib/containers/storage", "/var/lib/docker",
			"/var/lib/rancher/k3s/agent/containerd", "/var/lib/rancher/rke2/agent/containerd",
		},
	}
}

// Validate says which values must not be used.
func (c FilesystemConfig) Validate(at problems.Section) {
	at.Duration("every", c.Every, time.Second, problems.MaxDuration)
	at.Duration("timeout", c.Timeout, 100*time.Millisecond, time.Minute)
	at.PathOrNone("kubelet", c.Kubelet)
	at.Paths("runtimes", c.Runtimes)
	at.Paths("mounts", c.Mounts)
}

// Reasons why a mount's values are absent or old.
const (
	whyNotMounted   = "not mounted"
	whyHangs        = "statfs hangs"
	maxMountsInText = 3
)

// state returns a watched mount as of now; hung is the number of calls that
// hang.
func (w *watchedMount) state(now time.Time, timeout time.Duration, hung int) snapshot.Filesystem {
	f := snapshot.Filesystem{
		Mountpoint: w.Point, Type: w.Type, Device: w.Source,
		SizeBytes: w.usage.size, AvailableBytes: w.usage.available, Files: w.usage.files, FilesFree: w.usage.filesFree,
		Absent: maps.Clone(w.usage.absent),
	}
	if !w.answered.IsZero() {
		f.AgeSeconds = snapshot.Some(now.Sub(w.answered).Seconds())
	}
	if why := w.problem(now, timeout, hung); why != "" {
		f.Absent.Because(snapshot.AbsentFilesystem, why)
	}
	return f
}

// problem returns Filesystem.Trouble.
func (w *watchedMount) problem(now time.Time, timeout time.Duration, hung int) string {
	switch {
	case w.hangs(now, timeout):
		return whyHangs
	case w.queued && hung >= maxCalls:
		return fmt.Sprintf("not read: statfs of %d other mounts hangs", hung)
	case w.failed != nil:
		return w.failed.Error()
	case w.answered.IsZero():
		return snapshot.AnswerPending
	}
	return ""
}

// joinProblems joins the mounts' reasons into one line, the mounts with the same
// reason together.
func joinProblems(list []snapshot.Filesystem) error {
	points := map[string][]string{}
	for i := range list {
		if why := list[i].Absent[snapshot.AbsentFilesystem]; why != "" && why != snapshot.AnswerPending {
			points[why] = append(points[why], list[i].Mountpoint)
		}
	}
	var errs []error
	for _, why := range slices.Sorted(maps.Keys(points)) {
		of := points[why]
		names := strings.Join(of[:min(maxMountsInText, len(of))], ", ")
		if more := len(of) - maxMountsInText; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		errs = append(errs, fmt.Errorf("%s: %s", names, why))
	}
	return oneLine(errs)
}

// read returns the latest values of each mount, by mountpoint, and starts a
// survey if one is due.
func (f *filesystems) read(now time.Time) ([]snapshot.Filesystem, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config.Every <= 0 {
		return nil, nil
	}
	f.startSurvey(now)
	list := make([]snapshot.Filesystem, 0, len(f.watched)+len(f.missing))
	hung := f.hung(now)
	for _, w := range f.watched {
		state := w.state(now, f.config.Timeout, hung)
		state.Use = f.places.use(w.mount)
		list = append(list, state)
	}
	for point, why := range f.missing {
		list = append(list, snapshot.Filesystem{Mountpoint: point, Absent: snapshot.Absent{snapshot.AbsentFilesystem: why}})
	}
	slices.SortFunc(list, func(a, b snapshot.Filesystem) int { return cmp.Compare(a.Mountpoint, b.Mountpoint) })
	return list, oneLine(slices.DeleteFunc([]error{f.err, joinProblems(list)}, func(err error) bool { return err == nil }))
}

var errTableHangs = errors.New("reading /proc/1/mountinfo hangs")
