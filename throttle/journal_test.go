package throttle

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// kernel is the files of some cgroups, as a value: what is not in it is gone.
type kernel struct {
	now   map[Knob]uint64
	fails map[Knob]error // reads and writes of it
	blind map[Knob]error // reads alone
	wrote []Knob
	// dies at the write of that number, to the kernel or of what is kept; 0: never. Nothing
	// is done or kept after that.
	dies int
}

var errDead = errors.New("killed")

func (k *kernel) Get(of Knob) (uint64, error) {
	if err := cmp.Or(k.fails[of], k.blind[of]); err != nil {
		return 0, err
	}
	n, there := k.now[of]
	if !there {
		return 0, ErrGone
	}
	return n, nil
}

func (k *kernel) Set(of Knob, n uint64) error {
	if err := k.fails[of]; err != nil {
		return err
	}
	if _, there := k.now[of]; !there {
		return ErrGone
	}
	k.mayDie()
	k.now[of], k.wrote = n, append(k.wrote, of)
	return nil
}

func (k *kernel) mayDie() {
	if k.dies > 0 {
		if k.dies--; k.dies == 0 {
			panic(errDead)
		}
	}
}

func (k *kernel) Effective(_ Knob, per float64) (uint64, error) { return uint64(per), nil }

var (
	reads  = Knob{Cgroup: "/kubepods/pod1", Name: Read, Device: "8:0"}
	writes = Knob{Cgroup: "/kubepods/pod1", Name: Write, Device: "8:0"}
	cores  = Knob{Cgroup: "/kubepods/pod2", Name: CPU}
)

// journalFixture is a book over a kernel, and what is kept of it.
type journalFixture struct {
	*kernel
	Journal
	kept  []Limit
	keeps int
	full  error // nothing can be kept
}

func newJournalFixture() *journalFixture {
	d := &journalFixture{kernel: &kernel{now: map[Knob]uint64{reads: 0, writes: 500, cores: 0}, fails: map[Knob]error{}}}
	d.open(nil)
	return d
}

// open a book that begins with what was kept.
func (d *journalFixture) open(kept []Limit) {
	d.Journal = Journal{Files: d.kernel, Limits: slices.Clone(kept), Save: func(list []Limit) error {
		if d.full != nil {
			return d.full
		}
		d.mayDie()
		d.kept, d.keeps = slices.Clone(list), d.keeps+1
		return nil
	}}
}

func TestLimitSetAndRestored(t *testing.T) {
	d := newJournalFixture()
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100, writes: 100, cores: 7}))
	assert.Equal(t, map[Knob]uint64{reads: 100, writes: 100, cores: 7}, d.now)
	keeps, wrote := d.keeps, len(d.wrote)
	for _, l := range d.kept {
		assert.True(t, l.Written, "undone by hand while no agent runs, it stays undone: %s", l.Knob)
	}
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100, writes: 100, cores: 7}))
	assert.Equal(t, []int{keeps, wrote}, []int{d.keeps, len(d.wrote)}, "nothing changed: nothing is written")
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 50}))
	assert.Equal(t, map[Knob]uint64{reads: 50, writes: 500, cores: 0}, d.now)
	assert.ElementsMatch(t, []Knob{writes, cores}, d.Restored)
	require.NoError(t, d.Journal.Set(nil))
	assert.Equal(t, []Knob{reads}, d.Restored)
	assert.Equal(t, map[Knob]uint64{reads: 0, writes: 500, cores: 0}, d.now)
	assert.Empty(t, d.kept)
}

// A limit of memory is never lowered: the cgroup would wait with what it holds.
func TestLimitOfMemoryNeverLowered(t *testing.T) {
	d := newJournalFixture()
	memory := Knob{Cgroup: "/kubepods/pod2", Name: Memory}
	d.now[memory] = 0
	for _, step := range [][2]float64{{100, 100}, {50, 100}, {200, 200}, {150, 200}} {
		require.NoError(t, d.Journal.Set(map[Knob]float64{memory: step[0]}))
		assert.EqualValues(t, step[1], d.now[memory])
	}
	assert.Equal(t, []Knob{memory, memory}, d.wrote)
	require.NoError(t, d.Journal.Set(nil))
	assert.EqualValues(t, 0, d.now[memory])
	d.now[memory] = 70
	require.NoError(t, d.Journal.Set(map[Knob]float64{memory: 100}))
	assert.EqualValues(t, 70, d.now[memory], "the pod's own is tighter")
}

func TestLimitNeverLoosensOwn(t *testing.T) {
	d := newJournalFixture()
	require.NoError(t, d.Journal.Set(map[Knob]float64{writes: 500}))
	require.NoError(t, d.Journal.Set(map[Knob]float64{writes: 900}))
	assert.Empty(t, d.wrote)
	require.NoError(t, d.Journal.Set(map[Knob]float64{writes: 400}))
	require.NoError(t, d.Journal.Set(map[Knob]float64{writes: 900}))
	assert.EqualValues(t, 500, d.now[writes], "released step by step, no further than it was")
}

func TestLimitForeignValueKept(t *testing.T) {
	for what, theirs := range map[string]uint64{"another limit": 33, "none, by hand": 0} {
		t.Run(what, func(t *testing.T) {
			d := newJournalFixture()
			require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
			d.now[reads] = theirs
			require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
			require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 80}))
			assert.True(t, d.kept[0].Foreign)
			d.open(d.kept)
			require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 60}))
			require.NoError(t, d.Journal.Set(nil))
			assert.Equal(t, theirs, d.now[reads])
			assert.Equal(t, []bool{false, theirs != 0}, []bool{slices.Contains(d.Restored, reads), slices.Contains(d.Left, reads)})
			assert.Len(t, d.wrote, 1)
			require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 20}), "a new curb is a new beginning")
			assert.Equal(t, theirs != 0 && theirs <= 20, d.now[reads] != 20)
		})
	}
}

func TestLimitForeignStaysForeign(t *testing.T) {
	d := newJournalFixture()
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
	d.now[reads] = 33
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
	d.now[reads] = 100 // by chance
	require.NoError(t, d.Journal.Set(nil))
	assert.EqualValues(t, 100, d.now[reads])
}

func TestLimitsEndWithPod(t *testing.T) {
	d := newJournalFixture()
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100, cores: 7}))
	delete(d.now, reads)
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 50, cores: 7}))
	require.Len(t, d.Limits, 1)
	delete(d.now, cores)
	require.NoError(t, d.Journal.Set(nil))
	assert.Empty(t, d.Limits)
	assert.Empty(t, d.kept)
}

func TestLimitRefusedByKernel(t *testing.T) {
	d := newJournalFixture()
	d.fails[reads] = unix.EIO
	err := d.Journal.Set(map[Knob]float64{reads: 100, cores: 7})
	require.ErrorIs(t, err, unix.EIO)
	require.ErrorContains(t, err, "limit /kubepods/pod1 read 8:0")
	assert.EqualValues(t, 7, d.now[cores], "the others go on")
	delete(d.fails, reads)
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100, cores: 7}))
	assert.EqualValues(t, 100, d.now[reads])
	d.fails[reads] = unix.EIO
	require.ErrorIs(t, d.Journal.Set(nil), unix.EIO)
	assert.Equal(t, []Limit{{Knob: reads, Value: 100, Written: true}}, d.kept, "what could not be lifted is not forgotten")
	delete(d.fails, reads)
	require.NoError(t, d.Journal.Set(nil))
	assert.Zero(t, d.now[reads])
}

func TestLimitNotSavedNotWritten(t *testing.T) {
	d := newJournalFixture()
	d.full = unix.ENOSPC
	err := d.Journal.Set(map[Knob]float64{reads: 100})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "no pod is throttled further")
	assert.Empty(t, d.wrote)
	d.full = nil
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
	assert.EqualValues(t, 100, d.now[reads])
	d.full = unix.ENOSPC
	require.ErrorIs(t, d.Journal.Set(nil), unix.ENOSPC)
	assert.Zero(t, d.now[reads], "but it is lifted")
}

// All is restored, and that cannot be saved: the next Set saves it, also where an agent before
// has written the limits.
func TestLimitLastSaveRepeated(t *testing.T) {
	for _, restart := range []bool{false, true} {
		d := newJournalFixture()
		require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
		if restart {
			d.open(d.kept)
		}
		save := d.Save
		d.Save = func(list []Limit) error {
			if len(list) == 0 {
				return unix.EIO
			}
			return save(list)
		}
		require.ErrorIs(t, d.Journal.Set(nil), unix.EIO)
		assert.Zero(t, d.now[reads])
		require.ErrorIs(t, d.Journal.Set(nil), unix.EIO, "again")
		d.Save = save
		require.NoError(t, d.Journal.Set(nil))
		assert.Empty(t, d.kept, "an agent before had written them: %t", restart)
	}
}

// What is in force cannot be read, so nothing is planned: the next Set tries again.
func TestLimitUnreadNotPlanned(t *testing.T) {
	d := newJournalFixture()
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100, cores: 7}))
	d.blind = map[Knob]error{reads: unix.EMFILE}
	require.ErrorIs(t, d.Journal.Set(map[Knob]float64{reads: 50, cores: 6}), unix.EMFILE)
	assert.Equal(t, []Knob{reads}, d.Unread)
	assert.Equal(t, []uint64{100, 6}, []uint64{d.now[reads], d.now[cores]})
	d.blind = nil
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 50, cores: 6}))
	assert.Empty(t, d.Unread)
	assert.EqualValues(t, 50, d.now[reads])
}

// A limit was saved and not written, and is not wanted any more: while its value cannot be
// read, nothing is written.
func TestLimitUnreadNotWritten(t *testing.T) {
	d := newJournalFixture()
	d.fails[reads] = unix.EIO
	require.Error(t, d.Journal.Set(map[Knob]float64{reads: 100, cores: 7}))
	delete(d.fails, reads)
	d.Limits = []Limit{{Knob: reads, Value: 100}, {Knob: cores, Value: 7, Written: true}}
	d.blind = map[Knob]error{reads: unix.EMFILE}
	require.ErrorIs(t, d.Journal.Set(nil), unix.EMFILE)
	assert.Equal(t, map[Knob]uint64{reads: 0, writes: 500, cores: 0}, d.now)
	d.now[reads] = 100 // by the agent that was killed
	require.ErrorIs(t, d.Journal.Set(nil), unix.EMFILE)
	assert.NotEmpty(t, d.Limits)
	d.blind = nil
	require.NoError(t, d.Journal.Set(nil))
	assert.Equal(t, map[Knob]uint64{reads: 0, writes: 500, cores: 0}, d.now)
	assert.Empty(t, d.kept)
}

// What is in force while a limit cannot be made tighter, or not be removed, is still ours.
func TestLimitInForce(t *testing.T) {
	d := newJournalFixture()
	at := func() Limit { return d.Limits[d.at(reads)] }
	require.NoError(t, d.Journal.Set(map[Knob]float64{reads: 100}))
	assert.True(t, at().InForce())
	d.full = unix.ENOSPC
	require.Error(t, d.Journal.Set(map[Knob]float64{reads: 50}))
	assert.True(t, at().InForce())
	assert.EqualValues(t, 100, d.now[reads])
	d.full, d.fails[reads] = nil, unix.EIO
	keeps := d.keeps
	for range 3 {
		require.Error(t, d.Journal.Set(nil))
		assert.True(t, at().InForce())
	}
	assert.LessOrEqual(t, d.keeps, keeps+1, "what has not changed is not saved again")
	other := newJournalFixture()
	other.full = unix.ENOSPC
	require.Error(t, other.Journal.Set(map[Knob]float64{reads: 50}))
	assert.False(t, other.Limits[0].InForce())
}

// killedAt runs some changes and is killed at a write; it says whether it was.
func (d *journalFixture) killedAt(write int, changes []map[Knob]float64) (killed bool) {
	defer func() {
		if r := recover(); r != nil {
			killed = true
			d.dies = 0
		}
	}()
	d.dies = write
	for _, want := range changes {
		_ = d.Journal.Set(want)
	}
	d.dies = 0
	return false
}

// Whenever it is killed, the next one can put everything back as it was.
func TestLimitCrashRestores(t *testing.T) {
	changes := []map[Knob]float64{{reads: 100, writes: 300, cores: 9}, {reads: 80, writes: 200}, {reads: 20, cores: 5}, {reads: 60, writes: 450}}
	for write := 1; ; write++ {
		d := newJournalFixture()
		if !d.killedAt(write, changes) {
			require.Greater(t, write, 16)
			return
		}
		d.open(d.kept)
		require.NoError(t, d.Journal.Set(nil))
		require.Equal(t, newJournalFixture().now, d.now, "killed at write %d", write)
		d = newJournalFixture()
		d.killedAt(write, changes)
		d.open(d.kept)
		require.NoError(t, d.Journal.Set(changes[3]))
		require.Equal(t, map[Knob]uint64{reads: 60, writes: 450, cores: 0}, d.now, "goes on as well, killed at write %d", write)
	}
}

// stranger is what somebody else sets, below all that is ever wanted.
const stranger = 7

// step is one moment of a history: wishes, refusals, a crash, a stranger.
func (d *journalFixture) step(r *rand.Rand, theirs map[Knob]bool) {
	want := map[Knob]float64{}
	for _, k := range []Knob{reads, writes, cores} {
		if r.IntN(2) == 0 {
			want[k] = float64(100 + r.IntN(300))
		}
		delete(d.fails, k)
		if r.IntN(8) == 0 {
			d.fails[k] = unix.EIO
		}
	}
	if d.killedAt(r.IntN(9), []map[Knob]float64{want}) {
		d.open(d.kept)
	}
	if r.IntN(6) == 0 {
		k := []Knob{reads, writes, cores}[r.IntN(3)]
		d.now[k], theirs[k] = stranger, true
	}
}

// Any history of wishes, strangers, refusals and crashes: no stranger's value is
// ever written over, and without one all is as it was before.
func TestLimitRandomHistory(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, want, theirs := newJournalFixture(), newJournalFixture().now, map[Knob]bool{}
		for range 1 + r.IntN(12) {
			d.step(r, theirs)
			for k := range theirs {
				require.EqualValues(t, stranger, d.now[k], "seed %d", seed)
			}
		}
		clear(d.fails)
		require.NoError(t, d.Journal.Set(nil))
		for k := range theirs {
			want[k] = stranger
		}
		require.Equal(t, want, d.now, "seed %d", seed)
		require.Empty(t, d.kept)
	}
}
