package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/files"
)

// memory has what a value may have.
type memory struct {
	Marks   map[string][2]time.Time `json:"marks,omitempty"`
	Last    *victim                 `json:"last,omitempty"`
	Quiet   time.Time               `json:"quiet"`
	Failed  []string                `json:"failed,omitempty"`
	Settled bool                    `json:"settled,omitempty"`
}

type victim struct {
	UID   string  `json:"uid"`
	Grace float64 `json:"grace"`
}

func at(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC) }

// remembering is a memory with something in every field.
func remembering() memory {
	return memory{
		Marks: map[string][2]time.Time{"MemoryContention": {at(1), at(2)}}, Last: &victim{"u", 20},
		Quiet: at(5).Add(123456789), Failed: []string{"k"}, Settled: true,
	}
}

func storing(t *testing.T, m memory) (File[memory], []byte) {
	t.Helper()
	s := File[memory]{Path: filepath.Join(t.TempDir(), "evict.json")}
	require.NoError(t, s.Save(m))
	b, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	return s, b
}

func TestFile(t *testing.T) {
	t.Run("round trip", fileRoundTrip(false))
	t.Run("round trip until the next boot", fileRoundTrip(true))
	t.Run("truncated", fileTruncated)
	t.Run("bit flip", fileBitFlip)
	t.Run("newer version", fileNewerVersion)
	t.Run("wrong shape", fileWrongShape)
	t.Run("errors name path", fileErrorsNamePath)
	t.Run("full disk keeps old", fileFullDiskKeepsOld)
	t.Run("killed while writing", fileKilledWhileWriting)
	t.Run("version before", fileVersionBefore)
}

func fileRoundTrip(untilBoot bool) func(*testing.T) {
	return func(t *testing.T) {
		s := File[memory]{Path: filepath.Join(t.TempDir(), "not", "made", "yet", "evict.json"), UntilBoot: untilBoot}
		_, err := s.Load()
		require.ErrorIs(t, err, ErrNoState)
		for _, lost := range []string{"", "\x00\x00\x00"} { // as after a power failure
			require.NoError(t, os.MkdirAll(filepath.Dir(s.Path), 0o700))
			require.NoError(t, os.WriteFile(s.Path, []byte(lost), 0o600))
			_, err := s.Load()
			require.Error(t, err)
			assert.Equal(t, untilBoot, errors.Is(err, ErrNoState))
		}
		for _, m := range []memory{remembering(), {}, remembering()} {
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
}

func fileTruncated(t *testing.T) {
	s, whole := storing(t, remembering())
	for n := range len(whole) - 1 { // the last byte is the end of the line
		require.NoError(t, os.WriteFile(s.Path, whole[:n], 0o600))
		m, err := s.Load()
		require.ErrorContains(t, err, "state: "+s.Path, "cut after %d bytes", n)
		require.ErrorAs(t, err, new(*json.SyntaxError))
		require.NotErrorIs(t, err, ErrNoState)
		require.Equal(t, memory{}, m)
	}
}

func fileBitFlip(t *testing.T) {
	s, whole := storing(t, remembering())
	same := 0
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			require.NoError(t, os.WriteFile(s.Path, bad, 0o600))
			m, err := s.Load()
			if err != nil {
				require.Equal(t, memory{}, m)
				continue
			}
			same++
			require.Empty(t, cmp.Diff(remembering(), m), "byte %d, bit %d: %s", i, bit, bad)
		}
	}
	assert.Less(t, same, 40, "such as a name in the other case, which means the same")
}

func TestFileBound(t *testing.T) {
	t.Run("a file that no program of ours wrote", func(t *testing.T) {
		s, _ := storing(t, remembering())
		require.NoError(t, os.Truncate(s.Path, maxBytes+1)) // which takes no space
		m, err := s.Load()
		require.ErrorIs(t, err, files.ErrTooLarge)
		require.ErrorContains(t, err, s.Path)
		assert.Equal(t, memory{}, m)
	})
	t.Run("a pipe, which would wait for its writer", func(t *testing.T) {
		s := File[memory]{Path: filepath.Join(t.TempDir(), "evict.json")}
		require.NoError(t, unix.Mkfifo(s.Path, 0o600))
		_, err := s.Load()
		require.ErrorIs(t, err, files.ErrNotRegular)
	})
	t.Run("what could not be loaded is not saved", func(t *testing.T) {
		s := File[string]{Path: filepath.Join(t.TempDir(), "text.json")}
		require.NoError(t, s.Save("short"))
		require.ErrorContains(t, s.Save(strings.Repeat("x", maxBytes)), "exceeds the bound")
		kept, err := s.Load()
		require.NoError(t, err)
		assert.Equal(t, "short", kept)
	})
}

func fileNewerVersion(t *testing.T) {
	s, whole := storing(t, remembering())
	require.NoError(t, os.WriteFile(s.Path, bytes.Replace(whole, []byte(`"version":1`), []byte(`"version":2`), 1), 0o600))
	m, err := s.Load()
	require.ErrorContains(t, err, "version 2, this program reads 1 and the one before")
	assert.Equal(t, memory{}, m)
}

func fileWrongShape(t *testing.T) {
	s, _ := storing(t, memory{})
	value := json.RawMessage(`{"quiet":"2026-03-01T12:00:00Z","marks":[]}`)
	b, err := json.Marshal(stored{Version: 1, SHA256: checksum(value), Value: value})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path, b, 0o600))
	m, err := s.Load()
	require.ErrorContains(t, err, "cannot unmarshal array")
	assert.Equal(t, memory{}, m)
}

func fileErrorsNamePath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	below := File[memory]{Path: filepath.Join(file, "evict.json")}
	require.ErrorContains(t, below.Save(remembering()), "state: mkdir "+file)
	_, err := below.Load()
	require.ErrorContains(t, err, "not a directory")
	require.NotErrorIs(t, err, ErrNoState)

	s, whole := storing(t, remembering())
	require.NoError(t, os.Mkdir(s.Path+".half", 0o700))
	require.ErrorContains(t, s.Save(memory{}), "state: open "+s.Path+".half")
	after, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after, "what was kept before is kept still")

	dir := File[memory]{Path: t.TempDir()}
	require.ErrorContains(t, dir.Save(memory{}), "state: rename ")

	never := remembering()
	never.Quiet = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	s, whole = storing(t, remembering())
	require.ErrorContains(t, s.Save(never), "state: json: ")
	after, err = os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after)
}

func fileFullDiskKeepsOld(t *testing.T) {
	s := File[memory]{Path: "/dev/full/evict.json"}
	require.ErrorContains(t, s.Save(remembering()), "state: ")
	s, whole := storing(t, remembering())
	require.NoError(t, os.Symlink("/dev/full", s.Path+".half"))
	require.ErrorContains(t, s.Save(memory{}), "no space left")
	after, err := os.ReadFile(s.Path)
	require.NoError(t, err)
	assert.Equal(t, whole, after)
}

func fileKilledWhileWriting(t *testing.T) {
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

func FuzzFileLoad(f *testing.F) {
	value, err := json.Marshal(remembering())
	require.NoError(f, err)
	whole, err := json.Marshal(stored{Version: 1, SHA256: checksum(value), Value: value})
	require.NoError(f, err)
	for _, seed := range [][]byte{whole, value, nil, []byte("null"), []byte(`{"version":1}`), whole[:40]} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, signed bool) {
		if signed { // as if the sum were right, which no accident makes
			var err error
			if b, err = json.Marshal(stored{Version: 1, SHA256: checksum(b), Value: b}); err != nil {
				return // not JSON at all
			}
		}
		s := File[memory]{Path: filepath.Join(t.TempDir(), "evict.json")}
		require.NoError(t, os.WriteFile(s.Path, b, 0o600))
		m, err := s.Load()
		if err != nil {
			require.Equal(t, memory{}, m)
			return
		}
		require.NoError(t, s.Save(m))
		back, err := s.Load()
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(m, back, cmpopts.EquateEmpty()))
	})
}

func fileVersionBefore(t *testing.T) {
	_, whole := storing(t, remembering())
	for written, row := range map[string]struct {
		reads int
		ok    bool
	}{
		`"version":1`: {2, true}, `"version":2`: {2, true}, `"version":3`: {2, false}, `"version":0`: {1, false},
		`"version":-1`: {0, false}, ` "version":1`: {3, false},
	} {
		s := File[memory]{Path: filepath.Join(t.TempDir(), "evict.json"), Version: row.reads}
		require.NoError(t, os.WriteFile(s.Path, bytes.Replace(whole, []byte(`"version":1`), []byte(written), 1), 0o600))
		back, err := s.Load()
		if row.ok {
			require.NoError(t, err, written)
			assert.Empty(t, cmp.Diff(remembering(), back))
			require.NoError(t, s.Save(back))
			b, err := os.ReadFile(s.Path)
			require.NoError(t, err)
			assert.Contains(t, string(b), `"version":2`, "it is written as this program's own")
			continue
		}
		require.ErrorContains(t, err, "this program reads", written)
		assert.Zero(t, back)
	}
}

func TestFileAdopt(t *testing.T) {
	t.Parallel()
	adopt := func(m *map[string]int) { (*m)["adopted"]++ }
	before := File[map[string]int]{Path: filepath.Join(t.TempDir(), "evict.json"), Version: 1, Adopt: adopt}
	require.NoError(t, before.Save(map[string]int{"a": 1}))
	now := before
	now.Version = 2
	for want, s := range map[int]File[map[string]int]{0: before, 1: now} {
		back, err := s.Load()
		require.NoError(t, err)
		assert.Equal(t, want, back["adopted"], "only a value of the version before")
	}
	back, err := now.Load()
	require.NoError(t, err)
	require.NoError(t, now.Save(back))
	back, err = now.Load()
	require.NoError(t, err)
	assert.Equal(t, 1, back["adopted"], "once")
}
