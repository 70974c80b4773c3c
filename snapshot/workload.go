package snapshot

import (
	"cmp"
	"path"
	"strings"
	"time"
)

// NewWorkload derives kind, name and pod from a cgroup's path.
func NewWorkload(cgroup string) Workload {
	w := Workload{Cgroup: cgroup, Kind: KindOther, Name: cgroup}
	if uid := PodUID(cgroup); uid != "" {
		w.Kind, w.PodUID, w.Name = KindPod, uid, "pod "+uid
		return w
	}
	base := path.Base(cgroup)
	switch path.Ext(base) {
	case ".service", ".scope":
		w.Kind, w.Name = KindService, unescapeUnit(base)
	case ".slice":
		w.Kind = KindSlice
	}
	return w
}

// PodUID returns the UID of a pod's cgroup as the API server writes it (for a
// static pod the kubelet uses a hash of its manifest), and "" for any other
// cgroup. The kubelet's two cgroup drivers name it:
//
//	systemd   …kubepods[-burstable|-besteffort]-pod<UID, - as _>.slice
//	cgroupfs  …/kubepods[/burstable|/besteffort]/pod<UID>
func PodUID(cgroup string) string {
	parent, base := path.Split(cgroup)
	var uid string
	if unit, ok := strings.CutSuffix(base, ".slice"); ok {
		uid = systemdPodUID(unit)
	} else if rest, ok := strings.CutPrefix(base, "pod"); ok && isKubepods(parent) {
		uid = rest
	}
	if strings.Trim(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-.") != "" {
		return ""
	}
	return uid
}

// systemdPodUID parses a slice whose name repeats its parents', as systemd
// requires: the kubelet may be below slices of any name.
func systemdPodUID(unit string) string {
	i := strings.LastIndex(unit, "-pod")
	if i < 0 {
		return ""
	}
	above := strings.TrimSuffix(strings.TrimSuffix(unit[:i], "-burstable"), "-besteffort")
	if above != "kubepods" && !strings.HasSuffix(above, "-kubepods") {
		return ""
	}
	return strings.ReplaceAll(unit[i+len("-pod"):], "_", "-")
}

func isKubepods(parent string) bool {
	parent = strings.TrimSuffix(parent, "/")
	if base := path.Base(parent); base == "burstable" || base == "besteffort" {
		parent = path.Dir(parent)
	}
	return path.Base(parent) == "kubepods"
}

// unescapeUnit decodes \x2d and the like (systemd.unit(5), "String Escaping")
// for display. Unprintable characters stay escaped, so that a unit's name
// cannot send control sequences to a terminal.
func unescapeUnit(name string) string {
	if !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c, ok := escaped(name[i:]); ok {
			b.WriteByte(c)
			i += len(`\x2d`) - 1
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func escaped(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' || s[1] != 'x' {
		return 0, false
	}
	high, ok1 := hexDigit(s[2])
	low, ok2 := hexDigit(s[3])
	c := high<<4 | low
	return c, ok1 && ok2 && c >= ' ' && c <= '~'
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// BestEffort reports whether the kubelet put a pod into the BestEffort class,
// by its cgroup.
func (w *Workload) BestEffort() bool {
	return w.Kind == KindPod && strings.Contains(w.Cgroup, "besteffort")
}

func (w *Workload) statAt() time.Duration { return cmp.Or(w.StatAt, w.DetailAt) }

func (w *Workload) workingSet() Opt[uint64] {
	current, ok1 := w.MemoryBytes.Get()
	inactive, ok2 := w.InactiveFileBytes.Get()
	if !ok1 || !ok2 {
		return Opt[uint64]{}
	}
	return Some(current - min(current, inactive))
}
