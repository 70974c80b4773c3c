package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The worst case of a re-created device: within one tick, with counters above
// the old one's, so that no difference looks odd.
func TestDiskRecreatedWithinTick(t *testing.T) {
	for name, told := range map[string]bool{"by its sequence": true, "by nothing but its inode in sysfs": false} {
		t.Run(name, func(t *testing.T) {
			m := recordedMachine(t)
			if !told {
				m.remove("sys/block/vda/diskseq") // as before kernel 5.15
			}
			h, history := m.host(), testHistory()
			history.Add(mustSample(t, h))
			require.True(t, m.next())
			before := history.Add(mustSample(t, h)).Disks[0]
			require.False(t, before.Rates.IsZero())

			m.renew("sys/block/vda")
			if told {
				m.write("sys/block/vda/diskseq", "77\n")
			}
			require.True(t, m.next(), "the counters went up")
			s := history.Add(mustSample(t, h))
			for _, d := range s.Disks {
				assert.True(t, d.Rates.IsZero(), "a rate across two devices: %+v", d.Rates)
			}
			assert.Len(t, s.Disks, map[bool]int{true: 1, false: 0}[told], "one that nothing tells is left out of one sample")
			require.True(t, m.next())
			history.Add(mustSample(t, h))
			require.True(t, m.next())
			s = history.Add(mustSample(t, h))
			r, ok := s.Disks[0].Rates.Get()
			require.True(t, ok, "and goes on as itself")
			assert.LessOrEqual(t, r.WindowSeconds, 2.0)
		})
	}
}

func TestNICRecreatedWithinTick(t *testing.T) {
	for name, told := range map[string]bool{"by its index": true, "by nothing but its inode in sysfs": false} {
		t.Run(name, func(t *testing.T) {
			m := recordedMachine(t)
			h, history := m.host(), testHistory()
			history.Add(mustSample(t, h))
			m.renew("sys/class/net/ifb0")
			if told {
				m.write("sys/class/net/ifb0/ifindex", "99\n")
			}
			m.edit("proc/1/net/dev", "ifb0:       0 ", "ifb0: 5000000 ")
			s := history.Add(mustSample(t, h))
			for _, n := range s.NICs {
				assert.Equal(t, n.Name == "ifb0", n.Rates.IsZero(), n.Name)
			}
			assert.Len(t, s.NICs, map[bool]int{true: 4, false: 3}[told])
			m.edit("proc/1/net/dev", "ifb0: 5000000 ", "ifb0: 5001000 ")
			history.Add(mustSample(t, h))
			m.edit("proc/1/net/dev", "ifb0: 5001000 ", "ifb0: 5002000 ")
			for _, n := range history.Add(mustSample(t, h)).NICs {
				if n.Name == "ifb0" {
					r, ok := n.Rates.Get()
					require.True(t, ok, "it goes on as itself")
					assert.InDelta(t, 1000, r.ReceiveBytesPerSecond, 1e-9)
				}
			}
		})
	}
}

// steadily reads as a Host does, with what happens during each read.
func steadily(t *testing.T, m *machineTree, r *registry[nicFacts], during ...func()) (reads int) {
	t.Helper()
	err, unlisted := r.readStable(func() error {
		if reads < len(during) {
			during[reads]()
		}
		reads++
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, unlisted)
	return reads
}

func TestDeviceAddedRereadsCounters(t *testing.T) {
	m := recordedMachine(t)
	r := newRegistry[nicFacts](filepath.Join(m.path("sys"), "class/net"))
	assert.Equal(t, 2, steadily(t, m, r), "at first all have come")
	assert.Equal(t, 1, steadily(t, m, r), "what did not change costs one read")
	anew := func() { m.renew("sys/class/net/eth0") }
	assert.Equal(t, 2, steadily(t, m, r, anew), "the counters may be those of the one before")
	assert.True(t, r.stable(r.devices["eth0"]))
	assert.Equal(t, 3, steadily(t, m, r, anew, anew, anew), "not for ever")
	assert.False(t, r.stable(r.devices["eth0"]), "it is left out of the sample")
	assert.True(t, r.stable(r.devices["lo"]))
	assert.Equal(t, 1, steadily(t, m, r, func() { m.remove("sys/class/net/eth0") }), "a removed device takes no other device's counters")
	assert.NotContains(t, r.devices, "eth0")
}

func TestDiskReplacedDuringRead(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	mustSample(t, h)
	require.NoError(t, os.Remove(m.path("proc/diskstats")))
	// A FIFO: the disk is made anew between the open and the end of each read.
	fifo := m.path("proc/diskstats")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	sequence := 100
	anew := func() error {
		sequence++
		return errors.Join(madeAnew(m.path("sys/block/vda")), os.WriteFile(m.path("sys/block/vda/diskseq"), fmt.Append(nil, sequence), 0o600))
	}
	go func() { done <- feedFIFO(ctx, fifo, anew) }()
	s := mustSample(t, h)
	stop()
	require.NoError(t, <-done)
	assert.Empty(t, s.Disks)
	assert.Empty(t, probeError(t, s, "disks"))
}

// feedFIFO gives each reader one line of diskstats and calls meanwhile before
// the reader sees its end. Each reader has a FIFO of its own: one that has not
// seen the end yet would get a second line.
func feedFIFO(ctx context.Context, path string, meanwhile func() error) error {
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.ENXIO) {
			continue // no read in this step
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, " 254 0 vda 1 0 8 1 1 0 8 1 0 1 2")
		next := path + ".next"
		err = errors.Join(err, meanwhile(), unix.Mkfifo(next, 0o600), os.Rename(next, path), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDeviceListMissingOrEmpty(t *testing.T) {
	r := newDiskProbe(Paths{Sysfs: t.TempDir()})
	_, err := r.list()
	require.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/block", 0o755))
	come, err := newDiskProbe(Paths{Sysfs: dir}).list()
	require.NoError(t, err)
	assert.False(t, come)
}

func TestDeviceListLong(t *testing.T) {
	dir := t.TempDir()
	const n = 1500
	for i := range n {
		require.NoError(t, os.MkdirAll(fmt.Sprintf("%s/class/net/%s%04d", dir, strings.Repeat("x", 40), i), 0o755))
	}
	r := newRegistry[nicFacts](filepath.Join(dir, "class/net"))
	come, err := r.list()
	require.NoError(t, err)
	assert.True(t, come)
	assert.Len(t, r.devices, n)
	come, err = r.list()
	require.NoError(t, err)
	assert.False(t, come)
	for _, d := range r.devices {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(r.dir+"/"+d.name, &st))
		require.Equal(t, st.Ino, d.inode)
	}
}

// No read takes the facts of all devices, so the ticks cost alike.
func TestDeviceFactsSpread(t *testing.T) {
	r := newDiskProbe(Paths{Sysfs: t.TempDir()})
	const n = 100
	for i := range n {
		r.devices[fmt.Sprint(i)] = &device[diskFacts]{hasFacts: true, ordinal: i, addedRead: 1}
	}
	r.reads = 1
	looks := map[string]int{}
	for range factsEvery {
		r.reads++
		due := 0
		for name, d := range r.devices {
			if r.due(d, factsEvery) {
				looks[name]++
				due++
			}
		}
		assert.LessOrEqual(t, due, n/factsEvery+1)
	}
	assert.Len(t, looks, n)
	for name, times := range looks {
		assert.Equal(t, 1, times, name)
	}
}

func TestDeviceFactsOfNewDeviceSoon(t *testing.T) {
	r := newDiskProbe(Paths{Sysfs: t.TempDir()})
	d := &device[diskFacts]{ordinal: factsEvery - 1, addedRead: 2*factsEvery + 1}
	var ages []int
	for age := range factsEvery {
		r.reads = d.addedRead + age
		if r.due(d, factsEvery) {
			ages = append(ages, age)
			d.hasFacts = true
		}
	}
	assert.Equal(t, []int{0, 1, 2, 4, 8, 16}, ages)
}

func TestDeviceFactsOfRemovedAbsent(t *testing.T) {
	l := openDeviceDir(t.TempDir()+"/gone", make([]byte, 64))
	defer l.close()
	assert.Zero(t, fact(l, "sizeBytes", "size", decimal))
	assert.Equal(t, snapshot.Absent{"sizeBytes": "size: no such file or directory"}, l.absent)
	assert.False(t, l.has("size"))
	assert.Empty(t, l.link("slaves/sda"))
	assert.Empty(t, l.entries("."))
}

func TestReadWholeLongFile(t *testing.T) {
	path := t.TempDir() + "/f"
	want := strings.Repeat("0123456789", 1000)
	require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
	for _, buf := range [][]byte{nil, make([]byte, 3), make([]byte, 20_000)} {
		got, err := readWhole(unix.AT_FDCWD, path, buf)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	_, err := readWhole(unix.AT_FDCWD, t.TempDir(), nil)
	require.ErrorIs(t, err, unix.EISDIR)
}
