package evict

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// remembering is a Memory with something in every field.
func remembering() Memory {
	return Memory{
		Marks: map[string]Seen{"MemoryContention": {Met: [2]time.Time{at(1), at(2)}}},
		Last: &Chosen{
			Victim: Victim{UID: "u", Namespace: "shop", Name: "web", GraceSeconds: 20}, Decision: "abc", Time: at(3),
			Outcome: Evicted, DryRun: true, GoneAt: at(4), Settled: true,
		},
		Quiet:   at(5).Add(123456789),
		Waiting: map[string]Waiting{"w": {Until: at(6), Times: 2, Code: CodeBudget, Text: "a budget"}},
		Failed:  []string{"k"},
	}
}

func storing(t *testing.T, m Memory) (Store, []byte) {
	t.Helper()
	s := Store{Path: filepath.Join(t.TempDir(), "evict.json")}
	require.NoError(t, s.Save(m))
	b, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	return s, b
}

func TestAMemoryIsReadAsItWasKept(t *testing.T) {
	s := Store{Path: filepath.Join(t.TempDir(), "not", "made", "yet", "evict.json")}
	_, err := s.Load()
	require.ErrorIs(t, err, ErrNoMemory)
	for _, m := range []Memory{remembering(), {}, remembering()} {
		require.NoError(t, s.Save(m))
		back, err := s.Load()
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(m, back))
	}
	for path, mode := range map[string]os.FileMode{s.Path: 0o600, filepath.Dir(s.Path): 0o700 | os.ModeDir} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), "it names pods, which is nobody else's business")
	}
}

func TestAMemoryThatIsCutIsNoMemory(t *testing.T) {
	s, whole := storing(t, remembering())
	for n := range len(whole) - 1 { // the last byte is the end of the line
		require.NoError(t, os.WriteFile(s.Path, whole[:n], 0o600))
		m, err := s.Load()
		require.ErrorContains(t, err, "state: "+s.Path, "cut after %d bytes", n)
		require.ErrorAs(t, err, new(*json.SyntaxError))
		require.NotErrorIs(t, err, ErrNoMemory)
		require.Equal(t, Memory{}, m)
	}
}

func TestAMemoryWithAFlippedBitIsNoMemoryOrTheSame(t *testing.T) {
	s, whole := storing(t, remembering())
	same := 0
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			require.NoError(t, os.WriteFile(s.Path, bad, 0o600))
			m, err := s.Load()
			if err != nil {
				require.Equal(t, Memory{}, m)
				continue
			}
			same++
			require.Empty(t, cmp.Diff(remembering(), m), "byte %d, bit %d: %s", i, bit, bad)
		}
	}
	assert.Less(t, same, 40, "such as a name in the other case, which means the same")
}

func TestAMemoryOfANewerProgramIsNotGuessedAt(t *testing.T) {
	s, whole := storing(t, remembering())
	require.NoError(t, os.WriteFile(s.Path, bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1), 0o600))
	m, err := s.Load()
	require.ErrorContains(t, err, "version 2, this program reads 1")
	assert.Equal(t, Memory{}, m)
}

func TestAMemoryOfTheRightSumAndTheWrongShapeIsNoMemory(t *testing.T) {
	s, _ := storing(t, Memory{})
	memory := json.RawMessage(`{"quiet":"2026-03-01T12:00:00Z","marks":[]}`)
	b, err := json.Marshal(stored{Version: storeVersion, SHA256: sum(memory), Memory: memory})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path, b, 0o600))
	m, err := s.Load()
	require.ErrorContains(t, err, "cannot unmarshal array")
	assert.Equal(t, Memory{}, m)
}

func TestAMemoryThatCannotBeReadOrKeptIsAnErrorThatNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	below := Store{Path: filepath.Join(file, "evict.json")}
	require.ErrorContains(t, below.Save(remembering()), "state: mkdir "+file)
	_, err := below.Load()
	require.ErrorContains(t, err, "not a directory")
	require.NotErrorIs(t, err, ErrNoMemory)

	s, whole := storing(t, remembering())
	require.NoError(t, os.Mkdir(s.Path+".half", 0o700))
	require.ErrorContains(t, s.Save(Memory{}), "state: open "+s.Path+".half")
	after, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after, "what was kept before is kept still")

	dir := Store{Path: t.TempDir()}
	require.ErrorContains(t, dir.Save(Memory{}), "state: rename ")

	never := remembering()
	never.Quiet = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	s, whole = storing(t, remembering())
	require.ErrorContains(t, s.Save(never), "state: json: ")
	after, err = os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after)
}

func TestAFullDiskKeepsTheMemoryThatWasThere(t *testing.T) {
	s := Store{Path: "/dev/full/evict.json"}
	require.ErrorContains(t, s.Save(remembering()), "state: ")
	s, whole := storing(t, remembering())
	require.NoError(t, os.Symlink("/dev/full", s.Path+".half"))
	require.ErrorContains(t, s.Save(Memory{}), "no space left")
	after, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after)
}

func TestAnAgentThatWasKilledWhileItWroteLosesNothing(t *testing.T) {
	s, whole := storing(t, remembering())
	for _, half := range [][]byte{nil, whole[:20], bytes.Repeat([]byte("x"), 10*len(whole))} {
		require.NoError(t, os.WriteFile(s.Path+".half", half, 0o600))
		m, err := s.Load()
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(remembering(), m))
		require.NoError(t, s.Save(m))
		after, err := os.ReadFile(s.Path)
		require.NoError(t, err)
		require.Equal(t, whole, after)
		require.NoFileExists(t, s.Path+".half")
	}
}

func FuzzAStateFileOfAnyBytesIsReadOrRefused(f *testing.F) {
	memory, err := json.Marshal(remembering())
	require.NoError(f, err)
	whole, err := json.Marshal(stored{Version: storeVersion, SHA256: sum(memory), Memory: memory})
	require.NoError(f, err)
	for _, seed := range [][]byte{whole, memory, nil, []byte("null"), []byte(`{"version":1}`), whole[:40]} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, signed bool) {
		if signed { // as if the sum were right, which no accident makes
			var err error
			if b, err = json.Marshal(stored{Version: storeVersion, SHA256: sum(b), Memory: b}); err != nil {
				return // not JSON at all
			}
		}
		s := Store{Path: filepath.Join(t.TempDir(), "evict.json")}
		require.NoError(t, os.WriteFile(s.Path, b, 0o600))
		m, err := s.Load()
		if err != nil {
			require.Equal(t, Memory{}, m)
			return
		}
		require.NoError(t, s.Save(m))
		back, err := s.Load()
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(m.clone(), back.clone()))
		in := three(0)
		in.Memory = m
		play(in, &api{}) // whatever it says, a round is decided
	})
}
