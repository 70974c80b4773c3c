package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// RootfsOveruse judges whether the filesystem of the container runtime becomes short of
// space or inodes, above the kubelet's own threshold, while a pod has much of it in its
// root filesystem: the writable layers of its containers. Where there is little
// available and no pod has much, as on a node that keeps many images, it is not met. It
// is off by default: it needs the socket of the container runtime.
type RootfsOveruse struct {
	Enabled bool       `yaml:"enabled" why:"Whether the rule is on. The container runtime is asked only while it is."`
	Soft    RootfsRule `yaml:"soft" why:"From here the node is marked; no pod is evicted."`
	Hard    RootfsRule `yaml:"hard" why:"From here pods that use too much are evicted; it must not be easier to reach than soft. Above the kubelet's thresholds (imagefs.available<15%): below them it evicts pods itself."`

	Used       float64       `yaml:"used" unit:"ratio" why:"A pod uses too much with more than this share of the filesystem, of its space or its inodes, and more than it requests of ephemeral-storage."`
	UsedLowQoS float64       `yaml:"usedLowQoS" unit:"ratio" why:"The same for pods of low QoS, which are also evicted first."`
	MinUsed    uint64        `yaml:"minUsed" unit:"bytes" why:"Less than this is never too much, whatever the share: on a small filesystem a share is little."`
	MinFiles   int           `yaml:"minFiles" unit:"files" why:"The same of inodes."`
	For        time.Duration `yaml:"for" why:"How long the rule must be met by every answer of the container runtime: temporary files are no overuse."`
	ClearFor   time.Duration `yaml:"clearFor" why:"How long the rule must not be met before a level ends (hysteresis); a shorter time lets the taint flap."`
	MaxAge     time.Duration `yaml:"maxAge" why:"Older values are not judged, and a level that is on stays on. Longer than containerRuntime.every."`
}

// RootfsRule is when the filesystem of the container runtime is short.
type RootfsRule struct {
	Available float64 `yaml:"available" unit:"ratio" why:"Less than this share of the space is available. 0: space is not judged."`
	FilesFree float64 `yaml:"filesFree" unit:"ratio" why:"Less than this share of the inodes is available. 0: inodes are not judged."`
}

// DefaultRootfsOveruse has the thresholds of a fresh install.
func DefaultRootfsOveruse() RootfsOveruse {
	return RootfsOveruse{
		Soft: RootfsRule{Available: 0.25, FilesFree: 0.15}, Hard: RootfsRule{Available: 0.20, FilesFree: 0.10},
		Used: 0.10, UsedLowQoS: 0.05, MinUsed: 1 << 30, MinFiles: 100_000,
		For: time.Minute, ClearFor: 30 * time.Second, MaxAge: 2 * time.Minute,
	}
}

// Validate says which values must not be used.
func (r RootfsOveruse) Validate(at problems.Section) {
	const whole = "1 would always be met: every file takes some space"
	for _, level := range []struct {
		key string
		RootfsRule
	}{{"soft", r.Soft}, {"hard", r.Hard}} {
		at.Must(level.Available < 1, whole, level.key+".available")
		at.Must(level.FilesFree < 1, whole, level.key+".filesFree")
	}
	at.Must(r.Soft.Available > 0 || r.Soft.FilesFree > 0, "0 for both would never be met: to turn the rule off, set enabled: false", "soft.available", "soft.filesFree")
	at.Must(r.Hard.Available <= r.Soft.Available, fmt.Sprintf("hard must not be easier to reach than soft: available %g is more than %g",
		r.Hard.Available, r.Soft.Available), "hard.available", "soft.available")
	at.Must(r.Hard.FilesFree <= r.Soft.FilesFree, fmt.Sprintf("hard must not be easier to reach than soft: filesFree %g is more than %g",
		r.Hard.FilesFree, r.Soft.FilesFree), "hard.filesFree", "soft.filesFree")
	at.Must(r.Used > 0 && r.UsedLowQoS > 0, "0 would name every pod", "used", "usedLowQoS")
	at.Must(r.MinUsed > 0, "0 would name every pod on an empty filesystem", "minUsed")
	at.Int("minFiles", r.MinFiles, 1, maxFiles)
	at.Duration("for", r.For, 0, problems.MaxDuration)
	at.Duration("clearFor", r.ClearFor, minTick, problems.MaxDuration)
	at.Duration("maxAge", r.MaxAge, time.Second, 2*problems.MaxDuration)
}

// Name of the plugin.
func (RootfsOveruse) Name() string { return "rootfs-overuse" }

// rootfsMeasure is one of the two things that a filesystem can be short of.
type rootfsMeasure struct {
	scope, what, unit string
	soft, hard        float64 // thresholds; 0: not judged
	min               float64
	left, all         snapshot.Opt[float64]
	key               string // of its absence
	use               func(*snapshot.PodRootfs) snapshot.Opt[uint64]
	// request of the pod that counts against it.
	request func(*snapshot.Pod) uint64
}

func (r RootfsOveruse) measures(fs *snapshot.Rootfs) []rootfsMeasure {
	return []rootfsMeasure{
		{
			scope: "rootfs space", what: "space", unit: "bytes", soft: r.Soft.Available, hard: r.Hard.Available, min: float64(r.MinUsed),
			left: float(fs.AvailableBytes), all: float(fs.SizeBytes), key: "sizeBytes",
			use:     func(p *snapshot.PodRootfs) snapshot.Opt[uint64] { return p.UsedBytes },
			request: func(p *snapshot.Pod) uint64 { return p.StorageRequestBytes },
		},
		{
			scope: "rootfs inodes", what: "inodes", unit: "files", soft: r.Soft.FilesFree, hard: r.Hard.FilesFree, min: float64(r.MinFiles),
			left: float(fs.FilesFree), all: float(fs.Files), key: "files",
			use:     func(p *snapshot.PodRootfs) snapshot.Opt[uint64] { return p.FilesUsed },
			request: func(*snapshot.Pod) uint64 { return 0 }, // Kubernetes has no request of inodes
		},
	}
}

// Threshold judges space and inodes separately. A filesystem that counts no inodes
// cannot be short of them.
func (r RootfsOveruse) Threshold(v View) []Verdict {
	fs := cmp.Or(v.Rootfs, &snapshot.Rootfs{Absent: snapshot.Absent{snapshot.AbsentRootfs: "the container runtime has not answered yet"}})
	var list []Verdict
	for _, m := range r.measures(fs) {
		uncounted := m.all.IsZero() && m.unit == "files" && fs.At > 0
		if m.soft > 0 && !uncounted {
			list = append(list, r.judge(v, fs, m))
		}
	}
	return list
}

func (r RootfsOveruse) judge(v View, fs *snapshot.Rootfs, m rootfsMeasure) Verdict {
	out := Verdict{
		Resource: Filesystem, Scope: m.scope, PerWorkload: true, Condition: conditionRootfsOveruse, Unit: "ratio", Operator: "<",
		Partial: v.WarmingUp || v.Monotonic-v.Since < r.For,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	why := r.unavailable(v, fs, m)
	var left snapshot.Opt[float64]
	var users []rootfsUser
	if why == "" {
		n, _ := m.left.Get()
		all, _ := m.all.Get()
		left, users = snapshot.Some(n/all), r.users(v, fs, m)
		out.Whole, out.Target = m.all, snapshot.Some(max(0, m.hard*all-n))
	}
	out.Observed, out.Threshold = left, snapshot.Some(m.soft)
	levels := []rootfsJudgement{{level: Hard, share: m.hard}, {level: Soft, share: m.soft}}
	for i := range levels {
		l := &levels[i]
		l.absent = why
		if l.compareRootfs(fs, m, left, users) {
			lasted := out.recordAnswers(was, l.level.String(), fs.At)
			l.met = l.compare(l.level, "met by all answers of the runtime for", snapshot.Some(lasted.Seconds()), ">=", r.For.Seconds(), "seconds", "") && !v.WarmingUp
		}
		unknown := out.Latched[l.level-Soft] && l.absent != ""
		out.applyHysteresis(v, l.level, l.met, unknown && !v.WarmingUp, r.ClearFor)
		out.Evidence = append(out.Evidence, l.evidence...)
	}
	shown := levels[1]
	out.Absent = shown.absent
	if out.Level == Hard {
		shown, out.Absent, out.Threshold = levels[0], levels[0].absent, snapshot.Some(m.hard)
	}
	out.Reason = shown.reason(out.Level, v.WarmingUp)
	return out
}

// rootfsJudgement is the result for one level.
type rootfsJudgement struct {
	judgement
	level Level
	share float64 // what must be available
}

// compareRootfs reports whether the filesystem is short and a pod uses too much of it.
// That the use of some pods is unknown matters only where it is short.
func (j *rootfsJudgement) compareRootfs(fs *snapshot.Rootfs, m rootfsMeasure, left snapshot.Opt[float64], users []rootfsUser) bool {
	if j.share == 0 { // this level is off
		return false
	}
	short := j.compare(j.level, m.what+" available on the filesystem of "+fs.Mountpoint, left, "<", j.share, "ratio", j.absent)
	if left.IsZero() {
		return false
	}
	if len(users) == 0 {
		if short {
			j.absent = fs.Absent[snapshot.AbsentLayers]
		}
		j.compare(j.level, "pods with a root filesystem there", snapshot.Some(0.0), ">", 0, "pods", "")
		return false
	}
	u := users[0]
	much := j.compare(j.level, "root filesystem of "+u.Title(), snapshot.Some(u.used), ">", u.line, m.unit, "")
	if short && !much {
		j.absent = fs.Absent[snapshot.AbsentLayers]
	}
	return short && much
}

// unavailable is why the filesystem cannot be judged now; empty if it can.
func (r RootfsOveruse) unavailable(v View, fs *snapshot.Rootfs, m rootfsMeasure) string {
	_, pods := v.Pods()
	all, known := m.all.Get()
	switch {
	case fs.At == 0 || v.Monotonic-fs.At > r.MaxAge:
		return "what the container runtime reports is too old: " + cmp.Or(fs.Absent[snapshot.AbsentRootfs], "no newer answer yet")
	case pods != "":
		return pods
	case !known || all == 0 || m.left.IsZero():
		return m.what + " of the filesystem of " + fs.Mountpoint + ": " + cmp.Or(fs.Absent[m.key], "not reported")
	}
	return ""
}

// rootfsUser is a pod with what its root filesystem uses, and what it may.
type rootfsUser struct {
	*snapshot.WorkloadState
	used, line float64
}

// users are the pods whose use is known, those furthest above what they may use first.
// A limit of ephemeral-storage is for the kubelet alone: its owner may choose any. What
// is requested was promised, by the scheduler.
func (r RootfsOveruse) users(v View, fs *snapshot.Rootfs, m rootfsMeasure) (list []rootfsUser) {
	workloads := make(map[string]*snapshot.WorkloadState, len(fs.Pods))
	for i := range v.Workloads {
		if w := &v.Workloads[i]; w.Pod != nil && !w.Pod.Terminating {
			workloads[w.PodUID] = w
		}
	}
	all, _ := m.all.Get()
	for i := range fs.Pods {
		used, known := float(m.use(&fs.Pods[i])).Get()
		w := workloads[fs.Pods[i].PodUID]
		if !known || w == nil {
			continue
		}
		share := r.Used
		if w.Pod.LowQoS {
			share = r.UsedLowQoS
		}
		list = append(list, rootfsUser{w, used, max(share*all, m.min, float64(m.request(w.Pod)))})
	}
	slices.SortStableFunc(list, func(a, b rootfsUser) int { return cmp.Compare(b.used-b.line, a.used-a.line) })
	return list
}

// Top names the pods that use too much, those that use the most first.
func (r RootfsOveruse) Top(v View, of Verdict, n int) []Candidate {
	if v.Rootfs == nil {
		return nil
	}
	measures := r.measures(v.Rootfs)
	m := measures[slices.IndexFunc(measures, func(m rootfsMeasure) bool { return m.scope == of.Scope })]
	users := slices.DeleteFunc(r.users(v, v.Rootfs, m), func(u rootfsUser) bool { return u.used <= u.line })
	slices.SortStableFunc(users, func(a, b rootfsUser) int { return cmp.Compare(b.used, a.used) })
	list := make([]Candidate, 0, len(users))
	for _, u := range users {
		list = append(list, Candidate{
			Cgroup: u.Cgroup, Name: u.Title(), PodUID: u.PodUID, Relief: u.used, Unit: m.unit, Why: u.why(v.Rootfs, m),
		})
	}
	return list[:min(n, len(list))]
}

func (u rootfsUser) why(fs *snapshot.Rootfs, m rootfsMeasure) string {
	all, _ := m.all.Get()
	return fmt.Sprintf("its root filesystem uses %s, %.0f %% of the filesystem of %s, limit %s",
		m.amount(u.used), 100*u.used/all, fs.Mountpoint, m.amount(u.line))
}

func (m rootfsMeasure) amount(n float64) string {
	if m.unit == "bytes" {
		return fmt.Sprintf("%.0f MiB", n/(1<<20))
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %s", n, m.what))
}
