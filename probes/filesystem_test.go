package probes

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func answered(point string) func([]snapshot.Filesystem) bool {
	return func(list []snapshot.Filesystem) bool { return !at(list, point).AgeSeconds.IsZero() }
}

// The namespace of the test's own thread is not the one that is read, as a
// container's is not the host's.
func TestFilesystemValuesOfKernel(t *testing.T) {
	s := newMountSpace(t)
	point := s.Mount("tmpfs", "scratch", "scratch", "size=1m,nr_inodes=10")
	f := at(s.eventually(s.host(point), "the mount answers", answered(point)), point)
	assert.Equal(t, snapshot.Filesystem{
		Mountpoint: point, Type: "tmpfs", Device: "scratch", SizeBytes: snapshot.Some[uint64](1 << 20), AvailableBytes: snapshot.Some[uint64](1 << 20),
		Files: snapshot.Some[uint64](10), FilesFree: snapshot.Some[uint64](9), AgeSeconds: f.AgeSeconds, Use: f.Use,
	}, f)
	assert.Less(t, age(f), 5.0)

	_, err := os.Stat(point)
	require.NoError(t, err)
	entries, err := os.ReadDir(point)
	require.NoError(t, err)
	assert.Empty(t, entries, "what the test mounted is not mounted for others")
}

func TestFilesystemFull(t *testing.T) {
	s := newMountSpace(t)
	point := s.Mount("tmpfs", "scratch", "full", "size=64k,nr_inodes=5")
	h := s.host(point)
	err := os.WriteFile(s.Enter(point)+"/blocks", make([]byte, 1<<20), 0o600)
	require.ErrorIs(t, err, unix.ENOSPC)
	s.eventually(h, "no room", func(list []snapshot.Filesystem) bool {
		return at(list, point).AvailableBytes == snapshot.Some[uint64](0)
	})
	assert.NotEqual(t, snapshot.Some[uint64](0), at(s.eventually(h, "files", answered(point)), point).FilesFree)

	for i := 0; err == nil || i < 3; i++ {
		err = os.WriteFile(fmt.Sprintf("%s/%d", s.Enter(point), i), nil, 0o600)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	s.eventually(h, "no files", func(list []snapshot.Filesystem) bool { return at(list, point).FilesFree == snapshot.Some[uint64](0) })
	require.NoError(t, os.Remove(s.Enter(point)+"/blocks"))
	list := s.eventually(h, "room again", func(list []snapshot.Filesystem) bool {
		return at(list, point).AvailableBytes == snapshot.Some[uint64](64<<10)
	})
	assert.Equal(t, snapshot.Some[uint64](1), at(list, point).FilesFree)
}

func TestMountsComeAndGo(t *testing.T) {
	s := newMountSpace(t)
	point := filepath.Join(s.Dir, "comes")
	h := s.host(point)
	missing := func(list []snapshot.Filesystem) bool { return at(list, point).Absent["statfs"] == "not mounted" }
	s.eventually(h, "it is missing", missing)
	s.says(h, point+": not mounted")

	require.Equal(t, point, s.Mount("tmpfs", "one", "comes", "size=1m"))
	s.eventually(h, "it is there", answered(point))
	s.Unmount(point)
	gone := at(s.eventually(h, "it is gone", missing), point)
	assert.Equal(t, snapshot.Filesystem{Mountpoint: point, Absent: gone.Absent}, gone, "its values went with it")

	s.Mount("tmpfs", "two", "comes", "size=2m")
	list := s.eventually(h, "another one is there", answered(point))
	assert.Equal(t, "two", at(list, point).Device)
	assert.Equal(t, snapshot.Some[uint64](2<<20), at(list, point).SizeBytes)

	of := func(source string) func([]snapshot.Filesystem) bool {
		return func(list []snapshot.Filesystem) bool {
			return at(list, point).Device == source && answered(point)(list)
		}
	}
	s.Mount("tmpfs", "three", "comes", "size=3m")
	list = s.eventually(h, "what covers it is there", of("three"))
	assert.Equal(t, snapshot.Some[uint64](3<<20), at(list, point).SizeBytes)
	s.Unmount(point)
	list = s.eventually(h, "what was covered is there again", of("two"))
	assert.Equal(t, snapshot.Some[uint64](2<<20), at(list, point).SizeBytes)
}

// The directory below would report the filesystem that it is on.
func TestMountUnmountedIsNotItsDirectory(t *testing.T) {
	s := newMountSpace(t)
	point := s.Mount("tmpfs", "one", "gone", "size=1m")
	h := s.host(point)
	survey := func(point string) (root string, m mount) {
		c, err := h.filesystems.survey(FilesystemConfig{Mounts: []string{point}})
		require.NoError(t, err)
		require.Len(t, c.mounts, 1)
		return c.root, c.mounts[0]
	}
	root, gone := survey(point)
	_, err := statfs(root, gone)
	require.NoError(t, err)
	s.Unmount(point)
	_, err = statfs(root, gone)
	require.ErrorIs(t, err, errGone)
	for i, id := 0, gone.ID; id == gone.ID; i++ {
		// It takes the number that is free now, unless what else mounts on this machine has left
		// a lower one.
		s.Mount("tmpfs", "other", fmt.Sprintf("other%d", i), "size=1m")
		_, two := survey(s.Mount("tmpfs", "two", "gone", "size=2m"))
		if id = two.ID; id == gone.ID {
			s.Unmount(point)
		}
	}
	_, err = statfs(root, gone)
	require.ErrorIs(t, err, errGone)
}

func TestMountHungThenReplaced(t *testing.T) {
	s := newMountSpace(t)
	dead := s.Fuse("place")
	h := s.host(dead.Point)
	s.eventually(h, "it hangs", func(list []snapshot.Filesystem) bool { return at(list, dead.Point).Absent["statfs"] == whyHangs })
	s.Unmount(dead.Point) // as umount -l does; the call goes on hanging
	s.eventually(h, "it is gone", func(list []snapshot.Filesystem) bool { return at(list, dead.Point).Absent["statfs"] == whyNotMounted })
	s.Mount("tmpfs", "new", "place", "size=1m")
	list := s.eventually(h, "the new one answers", answered(dead.Point))
	assert.Equal(t, "tmpfs", at(list, dead.Point).Type)
}

func TestMountpointOddNames(t *testing.T) {
	s := newMountSpace(t)
	var all []string
	for _, name := range []string{"a b", "tab\tand\nline", `back\slash`, `#"quoted"`, "größe", "\xff", `\040`, " - "} {
		all = append(all, s.Mount("tmpfs", "x", name, "size=64k"))
	}
	list := s.eventually(s.host(all...), "all answer", func(list []snapshot.Filesystem) bool {
		for _, point := range all {
			if at(list, point).AgeSeconds.IsZero() {
				return false
			}
		}
		return true
	})
	assert.Len(t, list, len(all))
}

func TestMountsFollowConfig(t *testing.T) {
	s := newMountSpace(t)
	a, b := s.Mount("tmpfs", "a", "a", "size=64k"), s.Mount("tmpfs", "b", "b", "size=64k")
	h := s.host(a)
	s.eventually(h, "a answers", answered(a))
	c := FilesystemConfig{Mounts: []string{b}, Every: time.Hour, Timeout: time.Second}
	h.FollowFilesystems(c)
	list := s.eventually(h, "b answers, at once and not in an hour", answered(b))
	assert.Equal(t, snapshot.Filesystem{}, at(list, a))
	before := h.filesystems.surveyed
	h.FollowFilesystems(c)
	_, err := filesystemsOf(t, h)
	require.NoError(t, err)
	assert.Equal(t, before, h.filesystems.surveyed, "what did not change is not read anew")

	h.FollowFilesystems(FilesystemConfig{})
	list, err = filesystemsOf(t, h)
	require.NoError(t, err)
	assert.Empty(t, list, "without a period nothing is watched")
}

func TestSampleHasFilesystems(t *testing.T) {
	s := newMountSpace(t)
	dead := s.Fuse("dead")
	h := recordedMachine(t).host()
	h.filesystems = s.host(dead.Point).filesystems
	s.eventually(h, "it hangs", func(list []snapshot.Filesystem) bool { return at(list, dead.Point).Absent["statfs"] == whyHangs })
	sample := mustSample(t, h)
	require.Len(t, sample.Filesystems, 1)
	assert.Equal(t, dead.Point, sample.Filesystems[0].Mountpoint)
	// On a busy machine the table of mounts may be late too.
	assert.Contains(t, probeError(t, sample, "filesystems"), dead.Point+": statfs hangs")
	h.filesystems.close()
}

func TestMountTableErrorKeepsValues(t *testing.T) {
	asked := make(chan string, 100)
	var table error
	f := &filesystems{out: map[*watchedMount]bool{}, find: findKubelet}
	f.survey = func(FilesystemConfig) (selection, error) {
		return selection{mounts: []mount{{ID: 1, Point: "/a"}}}, table
	}
	f.ask = func(_ string, m mount) (usage, error) {
		asked <- m.Point
		return usage{size: snapshot.Some[uint64](7)}, nil
	}
	f.follow(FilesystemConfig{Every: time.Second, Timeout: time.Second})
	start := time.Now()
	_, err := f.read(start)
	require.NoError(t, err)
	f.running.Wait()
	require.Len(t, asked, 1)

	table = errors.New("no table")
	_, err = f.read(start.Add(time.Minute))
	require.NoError(t, err)
	f.running.Wait()
	list, err := f.read(start.Add(time.Minute))
	require.EqualError(t, err, "no table")
	require.Len(t, list, 1)
	assert.Equal(t, snapshot.Some[uint64](7), list[0].SizeBytes)
	assert.GreaterOrEqual(t, age(list[0]), 59.0)
	assert.Len(t, asked, 1, "it is not known what is mounted there by now")

	f.survey = func(FilesystemConfig) (selection, error) { panic("odd") }
	_, _ = f.read(start.Add(2 * time.Minute)) // that of before
	f.running.Wait()
	_, err = f.read(start.Add(2 * time.Minute))
	require.EqualError(t, err, "panic: odd")
	f.close()
}

func TestMountTableHangs(t *testing.T) {
	hang, reads := make(chan struct{}), make(chan int, 100)
	f := &filesystems{out: map[*watchedMount]bool{}, find: findKubelet}
	f.survey = func(FilesystemConfig) (selection, error) {
		reads <- 1
		<-hang
		return selection{missing: map[string]string{"/x": whyNotMounted}}, nil
	}
	f.follow(FilesystemConfig{Every: time.Second, Timeout: 10 * time.Second})
	start := time.Now()
	for i := range 60 {
		_, _ = f.read(start.Add(time.Duration(i) * time.Second)) // the last one is looked at
	}
	_, err := f.read(start.Add(time.Hour))
	require.EqualError(t, err, "reading /proc/1/mountinfo hangs")
	close(hang)
	f.running.Wait()
	assert.Len(t, reads, 1)
	list, err := f.read(start)
	assert.EqualError(t, err, "/x: not mounted")
	assert.Len(t, list, 1)
	f.close()
}

func TestStatfsImplausibleAbsent(t *testing.T) {
	full := unix.Statfs_t{Bsize: 4096, Frsize: 512, Blocks: 100, Bfree: 30, Bavail: 20, Files: 10, Ffree: 4}
	with := func(change func(*unix.Statfs_t)) usage {
		s := full
		change(&s)
		return newUsage(&s)
	}
	some := snapshot.Some[uint64]
	assert.Equal(t, usage{size: some(51200), available: some(10240), files: some(10), filesFree: some(4)}, with(func(*unix.Statfs_t) {}))
	assert.Equal(t, some(409600), with(func(s *unix.Statfs_t) { s.Frsize = 0 }).size, "an old filesystem names no fragments")
	assert.Equal(t, some(0), with(func(s *unix.Statfs_t) { s.Bavail = 0 }).available)
	for name, change := range map[string]func(*unix.Statfs_t){
		"more available than there is": func(s *unix.Statfs_t) { s.Bavail = math.MaxUint64 - 4 }, // a negative number
		"no blocks":                    func(s *unix.Statfs_t) { s.Blocks, s.Bavail = 0, 0 },
		"no unit":                      func(s *unix.Statfs_t) { s.Frsize, s.Bsize = 0, 0 },
		"negative unit":                func(s *unix.Statfs_t) { s.Frsize, s.Bsize = -1, -1 },
		"too large":                    func(s *unix.Statfs_t) { s.Blocks = math.MaxUint64 },
	} {
		u := with(change)
		assert.True(t, u.size.IsZero() && u.available.IsZero(), name)
		assert.NotEmpty(t, u.absent["sizeBytes"], name)
		assert.Equal(t, some(4), u.filesFree, name)
	}
	btrfs := with(func(s *unix.Statfs_t) { s.Files, s.Ffree = 0, 0 })
	assert.True(t, btrfs.filesFree.IsZero(), "not 0: it makes files as long as there is room")
	assert.NotEmpty(t, btrfs.absent["files"])
	assert.True(t, with(func(s *unix.Statfs_t) { s.Ffree = 11 }).filesFree.IsZero())
}
