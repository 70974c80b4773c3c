package history

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// reloaded is what an agent has that starts after the one of this store.
func reloaded(t *testing.T, s *Store) *Store {
	t.Helper()
	again := &Store{}
	require.NoError(t, again.Load(bytes.NewReader(saved(t, s))))
	return again
}

// aFew is a store with something of each kind.
func aFew() *Store {
	store, s := &Store{}, scene{at: noon(0), busy: snapshot.Some(0.4), disks: map[string]float64{"sda": 1e6}}
	s.nics = []snapshot.NICState{{NIC: snapshot.NIC{Name: "eth0"}, Rates: snapshot.Some(snapshot.NICRates{DropsPerSecond: 2})}}
	for i := range 15 {
		s.at = s.at.Add(fineStep)
		s.workloads = []snapshot.WorkloadState{workload(podCgroup(1), 1, 1e6, 1e6, float64(i)/20)}
		s.verdicts = []plugins.Verdict{{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Unit: "ratio", PerWorkload: i == 14, Level: plugins.Level(i % 3)}}
		s.add(store)
	}
	return store
}

func TestFile(t *testing.T) {
	t.Run("all is there after a restart", allIsLoaded)
	t.Run("the time between is a gap", func(t *testing.T) {
		store, s := reloaded(t, aFew()), scene{at: noon(10 * time.Minute), busy: snapshot.Some(0.8)}
		s.add(store)
		mean := store.Answer(rangeOf(t, "hour", s.at), "").Node["cpuBusyRatio"].Mean
		known := 0
		for _, v := range mean {
			if v == v {
				known++
			}
		}
		assert.Equal(t, 16, known)
	})
	t.Run("what is cut off anywhere is refused", func(t *testing.T) {
		whole := saved(t, aFew())
		for n := range whole {
			store := &Store{}
			require.Error(t, store.Load(bytes.NewReader(whole[:n])), n)
			require.Empty(t, store.all)
		}
	})
	t.Run("a bit that flips anywhere is refused", func(t *testing.T) {
		whole := saved(t, aFew())
		for i := range whole {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			store := &Store{}
			require.Error(t, store.Load(bytes.NewReader(bad)), i)
			require.Empty(t, store.all)
		}
	})
	t.Run("without end, only so much is read", func(t *testing.T) {
		r := &endless{head: []byte(magic)}
		require.Error(t, (&Store{}).Load(r))
		assert.LessOrEqual(t, r.read, maxFileBytes+1)
	})
	t.Run("an error of the disk is told", func(t *testing.T) {
		full := errors.New("no space left on device")
		require.ErrorIs(t, aFew().Prepare()(failing{full}), full)
	})
	t.Run("a save has what was there when it was prepared", func(t *testing.T) {
		store := aFew()
		want, save := saved(t, store), store.Prepare()
		s := scene{at: noon(time.Hour), busy: snapshot.Some(1.0)}
		for range 500 {
			s.at = s.at.Add(fineStep)
			s.add(store)
		}
		var b bytes.Buffer
		require.NoError(t, save(&b))
		assert.Equal(t, want, b.Bytes())
	})
}

func allIsLoaded(t *testing.T) {
	store := aFew()
	again := reloaded(t, store)
	for _, name := range []string{"hour", "day"} {
		r := rangeOf(t, name, noon(5*time.Minute))
		want, is := store.Answer(r, podUID(1)), again.Answer(r, podUID(1))
		assert.EqualExportedValues(t, want.Rules, is.Rules)
		for _, a := range []Answer{want, is} {
			require.Len(t, a.Workloads, 1)
			require.Len(t, a.Disks, 1)
			require.Len(t, a.NICs, 1)
		}
		assertValues(t, want.Node["cpuBusyRatio"].Mean, is.Node["cpuBusyRatio"].Mean, "node")
		assertValues(t, want.Workloads[0].Values["ioSomeRatio"].Max, is.Workloads[0].Values["ioSomeRatio"].Max, "workload")
		assertValues(t, want.NICs[0].Values["dropsPerSecond"].Mean, is.NICs[0].Values["dropsPerSecond"].Mean, "NIC")
	}
	assert.True(t, again.of(kindRule)[0].perWorkload)
	assert.Equal(t, "ratio", again.of(kindRule)[0].unit)
	assert.Equal(t, saved(t, store), saved(t, again))
}

// endless is a file of ones.
type endless struct {
	head []byte
	read int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.head)
	e.head = e.head[n:]
	for i := n; i < len(b); i++ {
		b[i] = byte(kindNode) << 1
	}
	e.read += len(b)
	return len(b), nil
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A disk that hangs delays what reads the file, and no plot.
func TestAnswerWhileFileHangs(t *testing.T) {
	store, reads := &Store{}, 0
	file := readerFunc(func([]byte) (int, error) {
		reads++
		if assert.True(t, store.mu.TryLock()) {
			store.mu.Unlock()
		}
		return 0, io.ErrUnexpectedEOF
	})
	require.Error(t, store.Load(file))
	assert.Positive(t, reads)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// FuzzLoad: any file is refused, or can be drawn, added to and saved.
func FuzzLoad(f *testing.F) {
	var whole bytes.Buffer
	require.NoError(f, aFew().Prepare()(&whole))
	f.Add(whole.Bytes()[len(magic) : whole.Len()-sha256.Size])
	f.Add([]byte{byte(kindEnd) << 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		file := append([]byte(magic), body...)
		sum := sha256.Sum256(file)
		store := &Store{}
		if store.Load(bytes.NewReader(append(file, sum[:]...))) != nil {
			require.Empty(t, store.all)
			return
		}
		now := time.Unix(store.step*10, 0).Add(time.Minute)
		s := scene{at: now, busy: snapshot.Some(0.5), workloads: []snapshot.WorkloadState{workload(podCgroup(1), 1, 1, 1, 1)}}
		s.add(store)
		r := rangeOf(t, "day", now)
		for _, plots := range [][]Plot{store.Node(r), store.Workload(podCgroup(1), r)} {
			for _, p := range plots {
				_ = p.HTML()
			}
		}
		disks, _ := store.Devices(r)
		for _, name := range disks {
			_ = store.Device(name, r)
		}
		reloaded(t, store)
	})
}
