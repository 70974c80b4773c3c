package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func ring(dir string) *Ring[string] { return &Ring[string]{Dir: dir, Max: 10, MaxBytes: 4000} }

func load(t *testing.T, dir string) (values []string, spoiled int) {
	t.Helper()
	values, spoiled, err := ring(dir).Load()
	require.NoError(t, err)
	return values, spoiled
}

func onDisk(t *testing.T, dir string) (size int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		size += info.Size()
	}
	return size
}

func TestRingNewestBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		dir := filepath.Join(t.TempDir(), "decisions")
		values, spoiled := load(t, dir)
		require.Empty(t, values)
		require.Zero(t, spoiled)
		r := ring(dir)
		var all []string
		for i := range 300 {
			v := fmt.Sprint(i, strings.Repeat("x", random.IntN(400)))
			all = append(all, v)
			require.NoError(t, r.Append(v))
			require.LessOrEqual(t, onDisk(t, dir), int64(4000))
			if random.IntN(10) == 0 { // the next agent
				require.NoError(t, r.Close())
				r = ring(dir)
				_, _, err := r.Load()
				require.NoError(t, err)
			}
			kept, spoiled := load(t, dir)
			require.Zero(t, spoiled)
			require.LessOrEqual(t, len(kept), 20)
			require.Equal(t, all[len(all)-len(kept):], kept)
			require.GreaterOrEqual(t, len(kept), min(len(all), 4), "half of the bytes, at the least")
		}
	}
}

func TestRingSpoiledFiles(t *testing.T) {
	for what, row := range map[string]struct {
		spoil   func([]byte) []byte
		want    []string
		spoiled int
	}{
		"cut in its last line":  {func(b []byte) []byte { return b[:len(b)-3] }, []string{"a", "b"}, 1},
		"cut after a line":      {func(b []byte) []byte { return b[:2*len(b)/3] }, []string{"a", "b"}, 0},
		"one bit":               {func(b []byte) []byte { b[10] ^= 1; return b }, []string{"b", "c"}, 1},
		"a line of nothing":     {func(b []byte) []byte { return append([]byte("\n\n"), b...) }, []string{"a", "b", "c"}, 2},
		"zeros, as after power": {func(b []byte) []byte { return append(b, make([]byte, 4096)...) }, []string{"a", "b", "c"}, 1},
		"another's":             {func([]byte) []byte { return []byte("what is this\n") }, nil, 1},
		"another type":          {func([]byte) []byte { line, _ := encodeLine(7); return line }, nil, 1},
		"empty":                 {func([]byte) []byte { return nil }, nil, 0},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			r := ring(dir)
			for _, v := range []string{"a", "b", "c"} {
				require.NoError(t, r.Append(v))
			}
			require.NoError(t, r.Close())
			b, err := os.ReadFile(filepath.Join(dir, newer))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, newer), row.spoil(b), 0o600))
			got, spoiled := load(t, dir)
			assert.Equal(t, row.want, got)
			assert.Equal(t, row.spoiled, spoiled)
			next := ring(dir)
			_, _, err = next.Load()
			require.NoError(t, err)
			require.NoError(t, next.Append("new"))
			got, _ = load(t, dir)
			assert.Equal(t, append(row.want, "new"), got, "what comes after is not lost with it")
		})
	}
}

func TestRingValueTooLarge(t *testing.T) {
	dir := t.TempDir()
	r := ring(dir)
	require.NoError(t, r.Append("a"))
	require.ErrorContains(t, r.Append(strings.Repeat("x", 2000)), "exceeds half of the maximum of 4000")
	require.NoError(t, r.Append("b"))
	got, _ := load(t, dir)
	assert.Equal(t, []string{"a", "b"}, got)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, ring(filepath.Join(file, "x")).Append("a"), "not a directory")
}

func TestRingBound(t *testing.T) {
	dir := t.TempDir()
	r := ring(dir)
	require.NoError(t, r.Append("a"))
	require.NoError(t, r.Close())
	require.NoError(t, os.Truncate(filepath.Join(dir, newer), maxBytes+1)) // which takes no space
	next := ring(dir)
	values, _, err := next.Load()
	require.ErrorContains(t, err, "larger than any such file")
	assert.Empty(t, values)
	require.NoError(t, next.Append("b"))
	b, err := os.ReadFile(filepath.Join(dir, newer))
	require.NoError(t, err)
	assert.Contains(t, string(b), `"b"`, "what comes after is not appended to it")
}

// inProcessOfItsOwn runs the test once more, in a process of its own, and tells whether this is
// it: a limit on files would end what go test itself writes meanwhile.
func inProcessOfItsOwn(t *testing.T) bool {
	t.Helper()
	const mark = "PLIMSOLL_TEST_LIMITED"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "it must not pass by not running")
	return false
}

// withFilesOfAtMost runs do while the process can write no file beyond size bytes.
func withFilesOfAtMost(t *testing.T, size uint64, do func()) {
	t.Helper()
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}))
	do()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
}

// The line of a killed program cannot be ended, as on a full disk: it is tried again before the
// next value, which is not lost with it.
func TestRingRepairRepeated(t *testing.T) {
	if !inProcessOfItsOwn(t) {
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, newer), []byte("cut"), 0o600))
	r := ring(dir)
	var err error
	withFilesOfAtMost(t, 3, func() { err = r.Append("a") })
	require.ErrorIs(t, err, syscall.EFBIG)
	require.NoError(t, r.Append("b"))
	values, spoiled := load(t, dir)
	assert.Equal(t, []string{"b"}, values)
	assert.Equal(t, 1, spoiled)
}

// A disk that is full for long costs what comes meanwhile, and nothing of what is there.
func TestRingFullDiskKeepsOld(t *testing.T) {
	if !inProcessOfItsOwn(t) {
		return
	}
	dir := t.TempDir()
	r := ring(dir)
	want := []string{"a", "b"}
	for _, v := range want {
		require.NoError(t, r.Append(v))
	}
	var failed error
	withFilesOfAtMost(t, uint64(onDisk(t, dir)), func() {
		for range 3 * r.Max {
			failed = r.Append("lost")
		}
	})
	require.ErrorIs(t, failed, syscall.EFBIG)
	require.NoError(t, r.Append("c"))
	values, spoiled := load(t, dir)
	assert.Equal(t, append(want, "c"), values)
	assert.Zero(t, spoiled)
}

func TestRingHalfFilledExactly(t *testing.T) {
	lineOf := func(size int) string { return strings.Repeat("x", size-len(`01234567 ""`)-1) }
	for sizes, files := range map[[3]int][]string{
		{2000, 0, 0}:       {newer},
		{1000, 1000, 0}:    {newer},
		{1000, 1001, 0}:    {newer, older},
		{1000, 1000, 1000}: {newer, older},
	} {
		dir := t.TempDir()
		r := ring(dir)
		for _, size := range sizes {
			if size > 0 {
				require.NoError(t, r.Append(lineOf(size)))
			}
		}
		require.ErrorContains(t, r.Append(lineOf(2001)), "value of 2001 bytes exceeds half of the maximum of 4000")
		var names []string
		found, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range found {
			names = append(names, f.Name())
		}
		assert.Equal(t, files, names, sizes)
		require.NoError(t, r.Close())
	}
}

// appendUntilKilled is the program of the test below.
func appendUntilKilled(dir string) {
	r := ring(dir)
	values, _, err := r.Load()
	if err != nil {
		panic(err)
	}
	next := 0
	if len(values) > 0 {
		next, _ = strconv.Atoi(strings.TrimRight(values[len(values)-1], "x"))
		next++
	}
	for ; ; next++ {
		if err := r.Append(strconv.Itoa(next) + strings.Repeat("x", next%300)); err != nil {
			panic(err)
		}
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("PLIMSOLL_TEST_RING"); dir != "" {
		appendUntilKilled(dir)
	}
	if dir := os.Getenv("PLIMSOLL_TEST_LOCK"); dir != "" {
		lockUntilKilled(dir)
	}
	os.Exit(m.Run())
}

func TestRingKilledWhileAppending(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir, last := t.TempDir(), -1
	random := rand.New(rand.NewPCG(3, 3))
	for range 40 {
		program := exec.CommandContext(t.Context(), self)
		program.Env = append(os.Environ(), "PLIMSOLL_TEST_RING="+dir)
		var stderr bytes.Buffer
		program.Stderr = &stderr
		require.NoError(t, program.Start())
		deadline.Eventually(t, func() bool {
			values, _ := load(t, dir)
			return len(values) > 0 && strings.TrimRight(values[len(values)-1], "x") != strconv.Itoa(last)
		}, 20*time.Second, time.Millisecond)
		time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond) // any moment will do
		require.NoError(t, program.Process.Signal(syscall.SIGKILL))
		_ = program.Wait() // killed
		require.Empty(t, stderr.String())
		values, spoiled := load(t, dir)
		require.LessOrEqual(t, spoiled, 1)
		require.NotEmpty(t, values)
		for i := range values {
			n, err := strconv.Atoi(strings.TrimRight(values[i], "x"))
			require.NoError(t, err)
			if i > 0 {
				before, _ := strconv.Atoi(strings.TrimRight(values[i-1], "x"))
				require.Equal(t, before+1, n)
			}
			if i == len(values)-1 {
				require.Greater(t, n, last)
				last = n
			}
		}
	}
	t.Logf("%d values, killed 40 times", last)
}
