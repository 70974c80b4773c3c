package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// The hierarchies in which the IO of cgroups is counted and waited for.
const (
	blkioV1 = "/sys/fs/cgroup/blkio"
	unified = "/sys/fs/cgroup/unified"
)

// needsBlkio skips where the kernel counts no IO as cgroup v1 does. It comes before all else:
// a skip hides what the test has asserted.
func needsBlkio(t *testing.T) {
	t.Helper()
	needsRoot(t)
	if !exists(blkioV1) || !exists(filepath.Join(unified, "cgroup.procs")) {
		t.Skip("needs blkio of cgroup v1 and a unified hierarchy: cgroup v2 alone is shown in a machine of its own")
	}
}

// ioCgroups makes cgroups of pods in which IO is counted and waited for.
func ioCgroups(t *testing.T, pods ...string) (top string, dirs [][]string) {
	t.Helper()
	needsBlkio(t)
	top = fmt.Sprintf("/plimsoll-e2e-io-%d", os.Getpid())
	hierarchies := []string{blkioV1, unified}
	for _, pod := range pods {
		var of []string
		for _, h := range hierarchies {
			require.NoError(t, os.MkdirAll(h+top+pod, 0o755))
			of = append(of, h+top+pod)
		}
		dirs = append(dirs, of)
	}
	for _, h := range hierarchies {
		t.Cleanup(func() { removeTree(t, h+top) })
	}
	return top, dirs
}

func removeTree(t *testing.T, top string) {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	slices.Reverse(all)
	for _, dir := range all {
		within(t, patience, "the cgroup is removed", func() error { return os.Remove(dir) })
	}
}

// bigFile is on a disk, not in memory.
func bigFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	return path
}

// diskOf is the name of the disk that a file is on, below what encrypts or divides it.
func diskOf(t *testing.T, file string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(file, &st))
	to, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Skipf("%s is on no disk: %v", file, err)
	}
	for {
		below, err := filepath.Glob(filepath.Join(to, "slaves/*"))
		require.NoError(t, err)
		if len(below) != 1 {
			break
		}
		to, err = filepath.EvalSymlinks(below[0])
		require.NoError(t, err)
	}
	if exists(filepath.Join(to, "partition")) {
		to = filepath.Dir(to)
	}
	return filepath.Base(to)
}

// countIO has the kernel count the IO of cgroups on a disk, which blk-throttle
// does from the first rule on: a huge limit of a cgroup of the test's own.
func countIO(t *testing.T, cgroup, disk string) {
	t.Helper()
	number, err := os.ReadFile("/sys/block/" + disk + "/dev")
	require.NoError(t, err)
	rule := strings.TrimSpace(string(number)) + " " + strconv.Itoa(1<<60)
	require.NoError(t, os.WriteFile(filepath.Join(cgroup, "blkio.throttle.read_bps_device"), []byte(rule), 0o644))
}

const (
	victimPod  = "/kubepods/burstable/pod11111111-1111-4111-8111-111111111111"
	presserPod = "/kubepods/besteffort/pod22222222-2222-4222-8222-222222222222"
)

// contention is what the agent says of a disk.
func (a *agent) contention(disk string) (snapshot.Contention, error) {
	s := a.snapshot()
	i := slices.IndexFunc(s.Contention, func(c snapshot.Contention) bool { return c.Device == disk })
	if i < 0 {
		return snapshot.Contention{}, fmt.Errorf("nothing of %s: %+v", disk, s.Contention)
	}
	return s.Contention[i], nil
}

// A service and a presser on this machine's own disk: who waits for whom is
// named, the disk is judged, and a presser alone is busy and nothing more.
func TestDiskContentionOnThisMachine(t *testing.T) {
	top, dirs := ioCgroups(t, victimPod, presserPod)
	file := bigFile(t, 256<<20)
	disk := diskOf(t, file)
	countIO(t, dirs[1][0], disk)
	a := startAgent(t, "--config", configFile(t, "window: 5s\nworkloads: {roots: ["+top+"]}\n"+
		"plugins: {warmUp: 0s, diskContention: {await: 200us, awaitRotational: 200us, for: 3s, clearFor: 3s, coverage: 0.2}}\n")).ticked(1)
	t.Run("a lone presser is busy", func(t *testing.T) {
		a := a.with(t)
		startLoad(t, "read", append([]string{file, "1048576", "4", "0"}, dirs[1]...)...)
		within(t, 2*patience, "the presser is seen", func() error {
			c, err := a.contention(disk)
			if err == nil && (len(c.Culprits) == 0 || c.Culprits[0].Share < 0.5) {
				err = fmt.Errorf("%+v", c)
			}
			return err
		})
		for until := a.snapshot().Sequence + 8; a.snapshot().Sequence < until; a.ticked(a.snapshot().Sequence + 1) {
			c, err := a.contention(disk)
			require.NoError(t, err)
			require.Equal(t, snapshot.ContentionBusy, c.State, "%+v", c)
			v := a.pressure().verdict(t, "disk-contention", disk)
			require.Equal(t, plugins.None, v.Level, v.Reason)
		}
	})
	t.Run("beside a service it hurts it", func(t *testing.T) {
		a := a.with(t)
		startLoad(t, "read", append([]string{file, "1048576", "4", "0"}, dirs[1]...)...)
		startLoad(t, "read", append([]string{file, "8192", "1", "1000"}, dirs[0]...)...)
		var c snapshot.Contention
		var v plugins.Verdict
		took := within(t, 2*patience, "who waits for whom is named, and judged", func() error {
			var err error
			if c, err = a.contention(disk); err != nil {
				return err
			}
			v = a.pressure().verdict(t, "disk-contention", disk)
			if v.Level != plugins.Soft || c.State != snapshot.ContentionPresent {
				return fmt.Errorf("%+v %s", c, v.Reason)
			}
			return nil
		})
		require.NotEmpty(t, c.Culprits)
		assert.Equal(t, top+presserPod, c.Culprits[0].Cgroup)
		// The presser waits for the disk too, for as long as the service or longer.
		service := slices.IndexFunc(c.Sufferers, func(s snapshot.Sufferer) bool { return s.Cgroup == top+victimPod })
		require.GreaterOrEqual(t, service, 0, "%+v", c)
		coverage, _ := c.Coverage.Get()
		assert.Contains(t, v.Reason, c.Culprits[0].Name+" accounts for ")
		assert.Empty(t, v.Candidates, "what is usual for this disk is not known yet")
		assert.Contains(t, v.Absent, "not learned yet")
		t.Logf("judged after %s: the service waits %.0f %% of the time, %.0f %% of the traffic is the presser's, coverage %.0f %%",
			took.Round(time.Second), 100*c.Sufferers[service].Waited, 100*c.Culprits[0].Share, 100*coverage)
	})
}

// What is written to the page cache of v1 is written back for nobody: that shows as low
// coverage, and it is unknown for whom the service waits, however long it does. So nobody is
// named, although it is known what is usual for the disk.
func TestDiskContentionBufferedWritesV1(t *testing.T) {
	top, dirs := ioCgroups(t, victimPod, presserPod)
	file := bigFile(t, 64<<20)
	disk := diskOf(t, file)
	countIO(t, dirs[1][0], disk)
	dir := filepath.Join(t.TempDir(), "state")
	learned(t, dir, disk)
	a := startAgent(t, "--state.dir", dir, "--config", configFile(t, "window: 5s\nworkloads: {roots: ["+top+"]}\n"+
		"plugins: {warmUp: 0s, diskContention: {await: 10us, awaitRotational: 10us, for: 3s, clearFor: 3s}}\n")).ticked(1)
	startLoad(t, "write", append([]string{filepath.Join(t.TempDir(), "written"), strconv.Itoa(256 << 20)}, dirs[1]...)...)
	startLoad(t, "read", append([]string{file, "8192", "1", "1000"}, dirs[0]...)...)
	var c snapshot.Contention
	within(t, 2*patience, "most of the traffic is nobody's", func() error {
		var err error
		if c, err = a.contention(disk); err != nil {
			return err
		}
		if coverage, known := c.Coverage.Get(); !known || coverage > 0.5 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	verdict := func() plugins.Verdict { return a.pressure().verdict(t, "disk-contention", disk) }
	within(t, 2*patience, "the service waits, and why nobody is named is said", func() error {
		if v := verdict(); !strings.Contains(v.Absent, "cgroup v1 counts no writes of the page cache") {
			return fmt.Errorf("%s: %s: %s", v.Level, v.Reason, v.Absent)
		}
		return nil
	})
	for until := a.snapshot().Sequence + 8; a.snapshot().Sequence < until; a.ticked(a.snapshot().Sequence + 1) {
		v := verdict()
		require.Empty(t, v.Candidates, "%s: %s", v.Reason, v.Absent)
		if v.Level == plugins.Soft {
			require.Contains(t, v.Absent, "workloads account for ")
		}
	}
	coverage, _ := c.Coverage.Get()
	for _, p := range c.Culprits { // it reads a little too, such as its own program
		if p.Cgroup == top+presserPod {
			assert.Less(t, p.Share, 0.2, "what it wrote is not counted for it: %+v", c)
		}
	}
	t.Logf("coverage %.0f %%: %+v", 100*coverage, c.Culprits)
}

// baselines that an agent left behind; none when it learned nothing.
func baselines(t *testing.T, dir string) plugins.Baselines {
	t.Helper()
	b, err := state.File[plugins.Baselines]{Path: filepath.Join(dir, "baselines.json")}.Load()
	if !errors.Is(err, state.ErrNoState) {
		require.NoError(t, err)
	}
	return b
}

// What an agent has learned of the disks is the start of the next one; a file
// that is spoiled is said and learned anew.
func TestDiskBaselineSurvivesRestart(t *testing.T) {
	file := bigFile(t, 16<<20)
	disk := diskOf(t, file)
	dir := filepath.Join(t.TempDir(), "state")
	requests := func() (n float64) {
		for _, b := range baselines(t, dir) {
			if b.Device == disk {
				n += b.Read[0].Requests
			}
		}
		return n
	}
	// learn has an agent watch some reads.
	learn := func() {
		a := startAgent(t, "--state.dir", dir).ticked(2)
		ended := make(chan error, 1)
		stop := make(chan struct{})
		go func() { ended <- readSlowly(file, stop) }()
		a.ticked(a.snapshot().Sequence + 5)
		close(stop)
		require.NoError(t, <-ended)
		require.Zero(t, a.end(syscall.SIGTERM), a.stderr.String())
	}
	// From a disk that others press meanwhile nothing is learned.
	within(t, 2*patience, "it has learned", func() error {
		if learn(); requests() == 0 {
			return errors.New("no requests are known")
		}
		return nil
	})
	known := requests()
	// Who forgets has not learned as much again after one tick.
	a := startAgent(t, "--state.dir", dir).ticked(1)
	require.Zero(t, a.end(syscall.SIGTERM), a.stderr.String())
	require.GreaterOrEqual(t, requests(), known)

	path := filepath.Join(dir, "baselines.json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b[:len(b)/2], 0o600))
	a = startAgent(t, "--state.dir", dir)
	require.Zero(t, a.end(syscall.SIGTERM))
	assert.Contains(t, a.stderr.String(), "cannot read saved disk baselines; learning them again")
	assert.Contains(t, a.stderr.String(), path)
}

// readSlowly reads past the page cache, some ten times a second.
func readSlowly(file string, stop <-chan struct{}) error {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as direct IO wants it
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(block) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for at := int64(0); ; at += 4096 {
		if _, err := f.ReadAt(block, at); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stop:
			return nil
		}
	}
}
