package plugins

import (
	"cmp"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// FilesystemSpace judges whether a watched filesystem runs out of space or inodes.
// It marks the node and names no pod: which workload wrote the data is not known,
// and an eviction releases only the pod's own.
//
// It leaves out (probes.FilesystemUse) the filesystems of a kubelet and its
// container runtime, which the kubelet monitors, and volumes of pods, which are no
// pressure on the node.
type FilesystemSpace struct {
	Enabled     bool          `yaml:"enabled" why:"Whether the rule is on."`
	Available   float64       `yaml:"available" unit:"ratio" why:"Soft if less than this share is available to users other than root, as in the kubelet's nodefs.available. 0: available space is not judged."`
	Enough      uint64        `yaml:"enough" unit:"bytes" why:"With this much available the share does not matter: a tenth of a large filesystem is plenty."`
	FilesFree   float64       `yaml:"filesFree" unit:"ratio" why:"Soft if less than this share of the inodes is available, as in the kubelet's nodefs.inodesFree. 0: inodes are not judged."`
	EnoughFiles int           `yaml:"enoughFiles" unit:"files" why:"With this many inodes available the share does not matter."`
	MinSize     uint64        `yaml:"minSize" unit:"bytes" why:"Smaller filesystems are not judged: boot filesystems are nearly full on purpose. 0 judges all."`
	For         time.Duration `yaml:"for" why:"How long the rule must be met without a break: the temporary files of a build are no shortage."`
	ClearFor    time.Duration `yaml:"clearFor" why:"How long the threshold plus margin must be clear before the level ends (hysteresis); a shorter time lets the taint flap."`
	Margin      float64       `yaml:"margin" unit:"ratio" why:"How far above the threshold the level ends: 0.25 is a quarter more."`
	MaxAge      time.Duration `yaml:"maxAge" why:"Older values are not judged, and a level that is on stays on. Longer than filesystems.every."`
}

// DefaultFilesystemSpace has the thresholds of a fresh install.
func DefaultFilesystemSpace() FilesystemSpace {
	return FilesystemSpace{
		Enabled: true, Available: 0.10, Enough: 100 << 30, FilesFree: 0.05, EnoughFiles: 1_000_000, MinSize: 2 << 30,
		For: 30 * time.Second, ClearFor: 30 * time.Second, Margin: 0.25, MaxAge: time.Minute,
	}
}

// maxFiles is more inodes than any filesystem has.
const maxFiles = 1 << 40

// Validate says which values must not be used.
func (f FilesystemSpace) Validate(at problems.Section) {
	at.Must(f.Available > 0 || f.FilesFree > 0, "0 for both would never be met: to turn the rule off, set enabled: false", "available", "filesFree")
	at.Must(f.Available < 1, "1 would always be met: every file takes some space", "available")
	at.Must(f.FilesFree < 1, "1 would always be met: the root directory is one", "filesFree")
	at.Must(f.Available == 0 || f.Enough > 0, "0 would never be met: available: 0 turns this half of the rule off", "enough")
	least := 0
	if f.FilesFree > 0 {
		least = 1
	}
	at.Int("enoughFiles", f.EnoughFiles, least, maxFiles)
	at.Duration("for", f.For, 0, problems.MaxDuration)
	at.Duration("clearFor", f.ClearFor, minTick, problems.MaxDuration)
	at.Duration("maxAge", f.MaxAge, time.Second, 2*problems.MaxDuration)
}

// Name of the plugin.
func (FilesystemSpace) Name() string { return "filesystem" }

// Threshold judges each watched mount that the kubelet does not monitor.
func (f FilesystemSpace) Threshold(v View) []Verdict {
	var list []Verdict
	for i := range v.Filesystems {
		if fs := &v.Filesystems[i]; f.judges(fs) {
			list = append(list, f.judge(v, fs))
		}
	}
	return list
}

func (f FilesystemSpace) judges(fs *snapshot.Filesystem) bool {
	size, known := fs.SizeBytes.Get()
	return fs.Use != snapshot.UseKubelet && fs.Use != snapshot.UseVolume && (!known || size >= f.MinSize)
}

func (f FilesystemSpace) judge(v View, fs *snapshot.Filesystem) Verdict {
	out := Verdict{
		Resource: Filesystem, Scope: fs.Mountpoint, Condition: conditionFilesystemPressure, Unit: "ratio", Operator: "<",
		Partial: v.WarmingUp || v.Monotonic-v.Since < f.For,
	}
	if !fs.AgeSeconds.IsZero() { // else another filesystem is mounted there, or none
		was := v.Was(out.Scope)
		out.Latched, out.LowerMet, out.RuleMetSince = was.Latched, was.LowerMet, was.RuleMetSince
	}
	j := judgement{absent: f.unavailable(fs)}
	room := j.compareMinimum(minimum{
		what: "space available on " + fs.Mountpoint, left: fs.AvailableBytes, all: fs.SizeBytes, why: fs.Absent["sizeBytes"],
		share: f.Available, enough: float64(f.Enough), margin: f.Margin,
	})
	files := j.compareMinimum(minimum{
		what: "inodes available on " + fs.Mountpoint, left: fs.FilesFree, all: fs.Files, why: fs.Absent["files"],
		share: f.FilesFree, enough: float64(f.EnoughFiles), margin: f.Margin,
	})
	shown := room
	if files.worse(room) {
		shown = files
	}
	out.Observed, out.Threshold = shown.left, snapshot.Some(shown.below)
	j.met = out.metFor(v, &j, room.met || files.met, f.For) && !v.WarmingUp
	j.held = !v.WarmingUp && (room.held || files.held || out.Latched[0] && j.absent != "")
	out.applyHysteresis(v, Soft, j.met, j.held, f.ClearFor)
	out.Evidence, out.Absent = j.evidence, j.absent
	out.Reason = j.reason(out.Level, v.WarmingUp) + foreseen(v.Exhaustion.Filesystem(fs.Mountpoint))
	return out
}

// unavailable is why a filesystem cannot be judged now; empty if it can.
func (f FilesystemSpace) unavailable(fs *snapshot.Filesystem) string {
	age, read := fs.AgeSeconds.Get()
	why := ""
	switch {
	case fs.Problem() != "":
		why = fs.Problem()
	case !read || age > f.MaxAge.Seconds():
		why = "values are too old"
	case fs.Use == "":
		why = "unknown yet whether a kubelet monitors it"
	case fs.SizeBytes.IsZero() || fs.AvailableBytes.IsZero():
		why = cmp.Or(fs.Absent["sizeBytes"], "it reports no size")
	default:
		return ""
	}
	return fs.Mountpoint + ": " + why
}

// minimum is the threshold of what must be available: a share of all, or the amount
// enough if that is less.
type minimum struct {
	what, why     string
	left, all     snapshot.Opt[uint64]
	share, enough float64
	margin        float64
}

// shortage is the result of a threshold, as shares of all.
type shortage struct {
	met, held bool
	left      snapshot.Opt[float64]
	below     float64
}

// compareMinimum compares what is left with its threshold; a share of 0 turns it off.
func (j *judgement) compareMinimum(l minimum) shortage {
	s := shortage{below: l.share}
	if l.share == 0 {
		return s
	}
	n, ok1 := float(l.left).Get()
	all, ok2 := float(l.all).Get()
	if j.absent == "" && ok1 && ok2 && all > 0 {
		s.left, s.below = snapshot.Some(n/all), min(l.share, l.enough/all)
		s.held = n/all < s.below*(1+l.margin)
	}
	s.met = j.compare(Soft, l.what, s.left, "<", s.below, "ratio", cmp.Or(j.absent, l.why, "not measured"))
	return s
}

// worse reports whether s is nearer to its threshold, or further beyond it, than o.
func (s shortage) worse(o shortage) bool {
	a, known := s.left.Get()
	b, other := o.left.Get()
	if !known || !other {
		return known
	}
	return a/s.below < b/o.below
}

// Top names no workload.
func (FilesystemSpace) Top(View, Verdict, int) []Candidate { return nil }
