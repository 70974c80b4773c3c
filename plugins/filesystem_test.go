package plugins

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// filesystemNode is a made-up node with one filesystem, of which a test changes what it
// likes.
type filesystemNode struct {
	*life
	fs snapshot.Filesystem
}

func newFilesystemNode(t *testing.T, change ...func(*FilesystemSpace)) *filesystemNode {
	t.Helper()
	c := Config{Filesystem: DefaultFilesystemSpace()}
	for _, f := range change {
		f(&c.Filesystem)
	}
	return &filesystemNode{newLife(t, c), plentyOn("/data")}
}

// plentyOn is a filesystem of 100 GiB and 1 million files with half of both.
func plentyOn(point string) snapshot.Filesystem {
	return snapshot.Filesystem{
		Mountpoint: point, Type: "ext4", Device: "/dev/vdb", Use: snapshot.UseNode,
		SizeBytes: snapshot.Some[uint64](100 * gib), AvailableBytes: snapshot.Some[uint64](50 * gib),
		Files: snapshot.Some[uint64](1_000_000), FilesFree: snapshot.Some[uint64](500_000), AgeSeconds: snapshot.Some(4.0),
	}
}

func (r *filesystemNode) left(bytes, files uint64) *filesystemNode {
	r.fs.AvailableBytes, r.fs.FilesFree = snapshot.Some(bytes), snapshot.Some(files)
	return r
}

func (r *filesystemNode) trouble(why string) *filesystemNode {
	r.fs.Absent = nil
	if why != "" {
		r.fs.Absent = snapshot.Absent{"statfs": why}
	}
	return r
}

// seconds pass; the last verdict, which is the only one.
func (r *filesystemNode) seconds(n int) (v Verdict) {
	r.t.Helper()
	for range n {
		list := r.second(func(s *snapshot.Sample) { s.Filesystems = []snapshot.Filesystem{r.fs} })
		require.Len(r.t, list, 1)
		v = list[0]
	}
	return v
}

// until counts the seconds until the level is there.
func (r *filesystemNode) until(l Level) int {
	r.t.Helper()
	for i := 1; i <= 200; i++ {
		if r.seconds(1).Level == l {
			return i
		}
	}
	r.t.Fatalf("never %s: %s", l, r.levels.Verdicts[0].Reason)
	return 0
}

func TestFilesystem(t *testing.T) {
	t.Run("soft", filesystemSoft)
	t.Run("healthy node", filesystemHealthyNode)
	t.Run("not judged", filesystemNotJudged)
	t.Run("use unknown", filesystemUseUnknown)
	t.Run("clears with more space", filesystemClearsWithMoreSpace)
	t.Run("brief shortage", filesystemBriefShortage)
	t.Run("hung", filesystemHung)
	t.Run("replaced", filesystemReplaced)
	t.Run("deciding comparison", filesystemDecidingComparison)
	t.Run("size absent", filesystemSizeAbsent)
	t.Run("one verdict each", filesystemOneVerdictEach)
	t.Run("warm up", filesystemWarmUp)
	t.Run("after gap", filesystemAfterGap)
	t.Run("changed rule", filesystemChangedRule)
	t.Run("half rule off", filesystemHalfRuleOff)
}

func filesystemSoft(t *testing.T) {
	for what, row := range map[string]struct {
		bytes, files uint64
		says         string
		share, line  float64
	}{
		"bytes":                        {7 * gib, 500_000, "space available on /data 7.0 % (< 10 %); met without a break for ", 0.07, 0.10},
		"files":                        {50 * gib, 30_000, "inodes available on /data 3.0 % (< 5 %)", 0.03, 0.05},
		"both, the worse one is shown": {9 * gib, 10_000, "inodes available on /data 1.0 % (< 5 %)", 0.01, 0.05},
		"nothing at all":               {0, 0, "available on /data 0.0 % (< 10 %)", 0, 0.10},
	} {
		t.Run(what, func(t *testing.T) {
			r := newFilesystemNode(t)
			r.seconds(60)
			assert.Equal(t, 31, r.left(row.bytes, row.files).until(Soft), "at each second of 30")
			v := r.seconds(100)
			assert.Equal(t, Soft, v.Level)
			assert.Equal(t, Soft, v.MetLevel)
			assert.Contains(t, v.Reason, row.says)
			assert.Equal(t, "filesystem", v.Plugin)
			assert.Equal(t, "/data", v.Scope)
			assert.Equal(t, "FilesystemPressure", v.Condition)
			assert.Equal(t, snapshot.Some(row.share), v.Observed)
			assert.Equal(t, snapshot.Some(row.line), v.Threshold)
			assert.Empty(t, v.Candidates, "nobody is named")
			assert.Empty(t, v.Absent)
		})
	}
}

func filesystemHealthyNode(t *testing.T) {
	some := snapshot.Some[uint64]
	for what, change := range map[string]func(*snapshot.Filesystem){
		"half full":                         func(*snapshot.Filesystem) {},
		"exactly a tenth left":              func(f *snapshot.Filesystem) { f.AvailableBytes = some(10 * gib) },
		"a twentieth of the files left":     func(f *snapshot.Filesystem) { f.FilesFree = some(50_000) },
		"a large one with 1 % left":         func(f *snapshot.Filesystem) { f.SizeBytes, f.AvailableBytes = some(20<<40), some(200*gib) },
		"one with a million files left":     func(f *snapshot.Filesystem) { f.Files, f.FilesFree = some(1<<30), some(1_000_000) },
		"without a number of files (btrfs)": func(f *snapshot.Filesystem) { f.Files, f.FilesFree = snapshot.Opt[uint64]{}, snapshot.Opt[uint64]{} },
		"of files that cannot be":           func(f *snapshot.Filesystem) { f.Files, f.FilesFree = some(0), some(0) },
		"slow to answer":                    func(f *snapshot.Filesystem) { f.AgeSeconds = snapshot.Some(59.0) },
	} {
		t.Run(what, func(t *testing.T) {
			r := newFilesystemNode(t)
			change(&r.fs)
			for range 120 {
				v := r.seconds(1)
				require.Equal(t, None, v.Level, v.Reason)
				require.Empty(t, v.Absent)
			}
		})
	}
}

func filesystemNotJudged(t *testing.T) {
	some := snapshot.Some[uint64]
	r := newFilesystemNode(t)
	mount := func(point string, change func(*snapshot.Filesystem)) snapshot.Filesystem {
		f := plentyOn(point)
		f.AvailableBytes = some(0)
		change(&f)
		return f
	}
	list := []snapshot.Filesystem{
		mount("/", func(f *snapshot.Filesystem) { f.Use = snapshot.UseKubelet }),
		mount("/boot", func(f *snapshot.Filesystem) { f.SizeBytes = some(2*gib - 1) }),
		mount("/data", func(*snapshot.Filesystem) {}),
		mount("/var/lib/kubelet/pods/1/volumes/db", func(f *snapshot.Filesystem) { f.Use = snapshot.UseVolume }),
	}
	for range 60 {
		v := r.second(func(s *snapshot.Sample) { s.Filesystems = list })
		require.Len(t, v, 1)
		require.Equal(t, "/data", v[0].Scope)
	}
	assert.Equal(t, Soft, r.levels.Of(Filesystem))

	small := newFilesystemNode(t, func(f *FilesystemSpace) { f.MinSize = 0 })
	small.fs = mount("/scratch", func(f *snapshot.Filesystem) { f.SizeBytes = some(1 << 20) })
	assert.Equal(t, Soft, small.seconds(31).Level, "a small one that matters")
}

func filesystemUseUnknown(t *testing.T) {
	r := newFilesystemNode(t).left(0, 0)
	r.fs.Use = ""
	v := r.seconds(60)
	assert.Equal(t, None, v.Level)
	assert.Equal(t, "/data: unknown yet whether a kubelet monitors it", v.Absent)
	r.fs.Use = snapshot.UseNode
	assert.Equal(t, 31, r.until(Soft))
}

func filesystemClearsWithMoreSpace(t *testing.T) {
	for what, row := range map[string]struct {
		bytes, files uint64
		clears       bool
	}{
		"a little more room":   {12 * gib, 500_000, false},
		"a little more files":  {50 * gib, 62_000, false},
		"a quarter more room":  {13 * gib, 500_000, true},
		"a quarter more files": {50 * gib, 63_000, true},
	} {
		t.Run(what, func(t *testing.T) {
			r := newFilesystemNode(t).left(9*gib, 40_000)
			r.seconds(40)
			r.left(row.bytes, row.files)
			if row.clears {
				assert.Equal(t, 30, r.until(None))
				return
			}
			v := r.seconds(150)
			assert.Equal(t, Soft, v.Level)
			assert.Equal(t, None, v.MetLevel)
			assert.Contains(t, v.Reason, "level stays on until clear")
		})
	}
	large := newFilesystemNode(t)
	large.fs.SizeBytes = snapshot.Some[uint64](2 << 40)
	large.left(90*gib, 500_000)
	require.Equal(t, Soft, large.seconds(31).Level)
	assert.Equal(t, Soft, large.left(124*gib, 500_000).seconds(100).Level, "a little more than enough")
	assert.Equal(t, 30, large.left(126*gib, 500_000).until(None))
}

func filesystemBriefShortage(t *testing.T) {
	r := newFilesystemNode(t)
	for range 10 {
		v := r.left(gib, 500_000).seconds(30)
		require.Equal(t, None, v.Level)
		require.Contains(t, v.Reason, "met without a break for 29 s (needs ≥ 30 s)")
		require.Equal(t, None, r.left(50*gib, 500_000).seconds(1).Level)
	}
	r.left(gib, 500_000).seconds(31)
	for range 10 {
		require.Equal(t, Soft, r.left(50*gib, 500_000).seconds(29).Level)
		require.Equal(t, Soft, r.left(gib, 500_000).seconds(1).Level, "it does not flap either")
	}
}

func filesystemHung(t *testing.T) {
	for why, hang := range map[string]func(*filesystemNode){
		"/data: statfs hangs":              func(r *filesystemNode) { r.trouble("statfs hangs") },
		"/data: values are too old":        func(r *filesystemNode) { r.fs.AgeSeconds = snapshot.Some(60.1) },
		"/data: statfs: transport is dead": func(r *filesystemNode) { r.trouble("statfs: transport is dead") },
	} {
		t.Run(why, func(t *testing.T) {
			r := newFilesystemNode(t).left(gib, 500_000)
			r.seconds(20)
			hang(r)
			v := r.seconds(100)
			assert.Equal(t, None, v.Level, "what was seen for 20 s was not seen for 30")
			assert.Equal(t, why, v.Absent)
			assert.True(t, v.Observed.IsZero())

			r = newFilesystemNode(t).left(gib, 500_000)
			r.seconds(40)
			r.left(50*gib, 500_000) // as it said last, which is old
			hang(r)
			v = r.seconds(500)
			assert.Equal(t, Soft, v.Level, "nobody knows that it has room")
			assert.Equal(t, None, v.MetLevel)
			assert.Equal(t, why, v.Absent)
			r.trouble("").fs.AgeSeconds = snapshot.Some(1.0)
			assert.Equal(t, 30, r.until(None))
		})
	}
}

func filesystemReplaced(t *testing.T) {
	r := newFilesystemNode(t).left(gib, 500_000)
	require.Equal(t, Soft, r.seconds(31).Level)
	full := r.fs
	r.fs = snapshot.Filesystem{Mountpoint: "/data", Absent: snapshot.Absent{"statfs": "not mounted"}}
	v := r.seconds(1)
	assert.Equal(t, None, v.Level, "what was full is gone")
	assert.Equal(t, "/data: not mounted", v.Absent)
	r.fs = full
	assert.Equal(t, 31, r.until(Soft))
}

func filesystemDecidingComparison(t *testing.T) {
	r := newFilesystemNode(t)
	r.fs.SizeBytes = snapshot.Some[uint64](100 << 40)
	v := r.left(1<<40, 40_000).seconds(31) // 1 % of the room, which is enough all the same
	require.Equal(t, Soft, v.Level)
	assert.Equal(t, snapshot.Some(0.04), v.Observed)
	assert.NotContains(t, v.Reason, "space available on")
	line := v.Evidence[0].Threshold
	assert.InDelta(t, 100.0/(100<<10), line, 1e-12, "100 GiB of 100 TiB")
}

func filesystemSizeAbsent(t *testing.T) {
	r := newFilesystemNode(t).left(0, 0)
	r.fs.SizeBytes, r.fs.AvailableBytes = snapshot.Opt[uint64]{}, snapshot.Opt[uint64]{}
	r.fs.Absent = snapshot.Absent{"sizeBytes": "statfs reports no size"}
	v := r.seconds(60)
	assert.Equal(t, None, v.Level)
	assert.Equal(t, "/data: statfs reports no size", v.Absent)
	assert.Contains(t, v.Reason, "incomplete data: ")
}

func filesystemOneVerdictEach(t *testing.T) {
	r := newFilesystemNode(t)
	full := plentyOn("/full")
	full.AvailableBytes = snapshot.Some[uint64](0)
	for range 40 {
		r.second(func(s *snapshot.Sample) { s.Filesystems = []snapshot.Filesystem{r.fs, full} })
	}
	require.Len(t, r.levels.Verdicts, 2)
	assert.Equal(t, None, r.levels.Verdicts[0].Level)
	assert.Equal(t, Soft, r.levels.Verdicts[1].Level)
	assert.Equal(t, r.levels.Time.Add(-9*time.Second), r.levels.Verdicts[1].Since)
	r.second(func(s *snapshot.Sample) { s.Filesystems = []snapshot.Filesystem{full} })
	require.Len(t, r.levels.Verdicts, 1, "what is not watched any more is left out")
	assert.Equal(t, Soft, r.levels.Verdicts[0].Level)
	assert.Empty(t, r.second(func(*snapshot.Sample) {}))
}

func filesystemWarmUp(t *testing.T) {
	r := newFilesystemNode(t).left(gib, 500_000)
	r.set = NewSet(Config{WarmUp: 5 * time.Minute, Filesystem: DefaultFilesystemSpace()}, nil)
	for range 300 {
		v := r.seconds(1)
		require.Equal(t, None, v.Level)
		require.True(t, v.Partial)
		require.Contains(t, v.Reason, "warming up")
	}
	v := r.seconds(1)
	assert.Equal(t, Soft, v.Level)
	assert.False(t, v.Partial)
}

func filesystemAfterGap(t *testing.T) {
	r := newFilesystemNode(t).left(gib, 500_000)
	r.seconds(25)
	r.sleep(time.Minute)
	assert.Equal(t, 31, r.until(Soft), "what was in the gap was not seen")
	r.left(50*gib, 500_000).sleep(time.Hour)
	assert.Equal(t, 31, r.until(None))
}

func filesystemChangedRule(t *testing.T) {
	r := newFilesystemNode(t).left(gib, 500_000)
	require.Equal(t, Soft, r.seconds(40).Level)
	c := r.set.config
	c.Filesystem.Available = 0.2
	r.set.Configure(c)
	v := r.seconds(1)
	assert.Equal(t, None, v.Level)
	assert.True(t, v.Partial, "so that a mark is not lifted meanwhile")
	assert.Equal(t, 30, r.until(Soft))
	c.Filesystem.Enabled = false
	r.set.Configure(c)
	assert.Empty(t, r.second(func(s *snapshot.Sample) { s.Filesystems = []snapshot.Filesystem{r.fs} }))
}

func filesystemHalfRuleOff(t *testing.T) {
	r := newFilesystemNode(t, func(f *FilesystemSpace) { f.Available = 0 })
	v := r.left(0, 500_000).seconds(60)
	assert.Equal(t, None, v.Level)
	assert.Equal(t, snapshot.Some(0.5), v.Observed, "the line that is there")
	assert.NotContains(t, v.Reason, "space available")
	assert.Equal(t, Soft, r.left(0, 0).seconds(31).Level)

	r = newFilesystemNode(t, func(f *FilesystemSpace) { f.FilesFree = 0 })
	assert.Equal(t, None, r.left(50*gib, 0).seconds(60).Level)
}

// Whatever a filesystem says of itself, it is judged by what it says, without a
// number that cannot be written.
func FuzzFilesystemRule(f *testing.F) {
	f.Add(uint64(100*gib), uint64(5*gib), uint64(1000), uint64(10), 3.0)
	f.Add(uint64(0), uint64(0), uint64(0), uint64(0), 0.0)
	f.Add(uint64(100*gib), uint64(50*gib), uint64(0), uint64(0), 3.0)
	f.Add(^uint64(0), ^uint64(0), ^uint64(0), uint64(1), 1e300)
	f.Add(uint64(2*gib), uint64(1), uint64(1), uint64(5), -1.0)
	f.Fuzz(func(t *testing.T, size, available, files, free uint64, age float64) {
		r := newFilesystemNode(t)
		r.fs.SizeBytes, r.fs.Files, r.fs.AgeSeconds = snapshot.Some(size), snapshot.Some(files), snapshot.Some(age)
		r.left(available, free)
		var list []Verdict
		for range 31 {
			list = r.second(func(s *snapshot.Sample) { s.Filesystems = []snapshot.Filesystem{r.fs} })
		}
		if size < 2*gib {
			require.Empty(t, list)
			return
		}
		require.Len(t, list, 1)
		v := list[0]
		room := float64(available)/float64(size) < 0.1 && float64(available) < 100*gib
		number := files > 0 && float64(free)/float64(files) < 0.05 && free < 1_000_000
		want := None
		if age <= 60 && (room || number) {
			want = Soft
		}
		require.Equal(t, want, v.Level, v.Reason)
		_, err := json.Marshal(v)
		require.NoError(t, err)
		require.False(t, strings.Contains(v.Reason, "NaN"), v.Reason)
	})
}
