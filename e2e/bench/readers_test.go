package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

func TestReadsTraced(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, f := range []string{a, b} {
		require.NoError(t, os.WriteFile(f, []byte("1"), 0o600))
	}
	below := filepath.Join(dir, "below")
	require.NoError(t, os.Mkdir(below, 0o700))
	seen, err := watchReads([]string{dir})
	require.NoError(t, err)
	defer seen.Close()
	kept, err := os.Open(b)
	require.NoError(t, err)
	defer kept.Close()
	tick, err := seen.during(func() error {
		_, first := os.ReadFile(a)
		_, second := kept.ReadAt(make([]byte, 1), 0)
		_, third := os.ReadFile(a)
		_, list := os.ReadDir(below)
		return errors.Join(first, second, third, list)
	})
	require.NoError(t, err)
	assert.Equal(t, []access{{a, true}, {b, false}, {a, true}}, tick, "to list a directory is not to read a file")
	assert.Equal(t, []access{{a, false}, {b, false}, {a, false}}, keptOpen(tick))

	_, err = seen.during(func() error { return errOverflow })
	require.ErrorIs(t, err, errOverflow, "a reader that fails has not been seen")
}

func TestBareLoopReadsSameFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, f := range []string{a, b} {
		require.NoError(t, os.WriteFile(f, []byte("1"), 0o600))
	}
	kept := func(files ...string) (all []access) {
		for _, f := range files {
			all = append(all, access{path: f})
		}
		return all
	}
	list := reads{kept(b), kept(a), kept(a, b, a), kept(a, b), nil, {{a, true}, {b, false}, {a, true}}}
	open := newOpenFiles(2)
	loop := (&bare{open: open, from: 1, files: func(tick int) []access { return list[tick] }}).contender("bare")
	seen, err := watchReads([]string{dir})
	require.NoError(t, err)
	defer seen.Close()
	// After it is opened to be kept each is read once more, which does not count.
	wants := reads{nil, {{a, true}, {a, false}}, {{b, true}, {a, false}, {b, false}, {a, false}}, kept(a, b), nil, {{a, true}, {b, false}, {a, true}}}
	for tick, want := range wants {
		var took time.Duration
		done, err := seen.during(func() (err error) { took, err = loop.measure(tick, 0); return err })
		require.NoError(t, err)
		// The kernel tells the same twice in a row once, unless something else
		// on this machine comes between.
		assert.Equal(t, distinct(want), distinct(done), "tick %d", tick)
		assert.True(t, took > 0 || len(want) == 0)
	}
	require.NoError(t, open.Close())
	_, err = looping(t, filepath.Join(dir, "not there")).measure(0, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, kept(a), readable([]string{a, filepath.Join(dir, "not there")}))
}

// distinct leaves out a read of the file that was read just before.
func distinct(tick []access) []access {
	return slices.CompactFunc(tick, func(now, before access) bool { return now.path == before.path && !now.opened })
}

func looping(t *testing.T, file string) *contender {
	t.Helper()
	open := newOpenFiles(1)
	t.Cleanup(func() { require.NoError(t, open.Close()) })
	return (&bare{open: open, files: func(int) []access { return []access{{path: file}} }}).contender("bare")
}

func TestBareLoopKeepsSoManyFilesOpen(t *testing.T) {
	var files []access
	for i := range 100 {
		files = append(files, access{path: filepath.Join(t.TempDir(), strconv.Itoa(i))})
		require.NoError(t, os.WriteFile(files[i].path, []byte("1"), 0o600))
	}
	open := newOpenFiles(10)
	loop := (&bare{open: open, files: func(int) []access { return files }}).contender("bare")
	for tick := range 2 {
		_, err := loop.measure(tick, 0)
		require.NoError(t, err)
		assert.Len(t, open.kept, 10)
		assert.Empty(t, open.rest)
	}
	require.NoError(t, open.Close())
	assert.Empty(t, open.kept)
}

func TestReadsPerTick(t *testing.T) {
	assert.InDelta(t, 3, reads{make([]access, 2), make([]access, 4)}.perTick(), 1e-9)
	assert.Zero(t, reads{}.perTick())
}

// The recorded pod with other numbers: what does not grow is as it was.
func TestRecordedTreeUnchanged(t *testing.T) {
	tree, err := newTree(2)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tree.Close()) })
	for _, f := range txtar.Parse(recordedPod).Files {
		name := strings.Replace(f.Name, recordedUID, podUID(0), 1)
		got, err := os.ReadFile(filepath.Join(tree.root, name))
		require.NoError(t, err)
		assert.Equal(t, string(f.Data), string(got), name)
	}
}

func TestRecordedTreeBusyPodsChange(t *testing.T) {
	tree, err := newTree(11)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tree.Close()) })
	read := func(i int, file string) string {
		b, err := os.ReadFile(filepath.Join(tree.root, tree.pods[i], file))
		require.NoError(t, err)
		return string(b)
	}
	all := func() (list []string) {
		for i := range 11 {
			list = append(list, read(i, "cpu.stat")+read(i, "io.stat")+read(i, "memory.pressure")+read(i, "memory.current"))
		}
		return list
	}
	first := all()
	assert.NotEqual(t, first[1], first[2], "pods differ")
	require.NoError(t, tree.tick(idle))
	second := all()
	for i := range 11 {
		assert.Equal(t, i%idle == 0, first[i] != second[i], i)
	}
	require.NoError(t, tree.tick(busy))
	third := all()
	for i := range 11 {
		assert.NotEqual(t, second[i], third[i], i)
	}
	assert.Regexp(t, `^usage_usec 355\d{4}\n`, read(0, "cpu.stat"))
	assert.Contains(t, read(0, "cpu.stat"), "\nnr_periods 75\n", "what is no time stays")
	assert.Regexp(t, `(?m)^full avg10=\S+ avg60=\S+ avg300=\S+ total=\d+\n$`, read(0, "memory.pressure"))
}

func TestRecordedTreeZeroStaysZero(t *testing.T) {
	parts, values := numbers("cpu.stat", "usage_usec 12\nthrottled_usec 0\nburst_usec 3\n")
	assert.Equal(t, []string{"usage_usec ", "\nthrottled_usec 0\nburst_usec ", "\n"}, parts)
	assert.Equal(t, []uint64{12, 3}, values)
	_, values = numbers("memory.max", "4096\n")
	assert.Empty(t, values, "a limit does not grow")
}
