package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSkipsStrict(t *testing.T) {
	all := []string{
		"skip TestNeedsVM  an emulated machine takes long",
		"skip TestSilent   says nothing",
		"skip TestSubs/*   one kind of cgroup is there",
	}
	tests := []struct {
		name   string
		listed []string
		strict bool
		ok     bool
		says   string
	}{
		{"all are listed", all, true, true, "an emulated machine takes long\n"},
		{"one is not", all[1:], true, false, "that may be:\n  skip TestNeedsVM: no qemu: apt-get install qemu-system-x86\n"},
		{"none is", nil, true, false, "that may be:\n  skip TestNeedsVM: no qemu: apt-get install qemu-system-x86\n  skip TestSilent: (none given)\n  skip TestSubs/v1: no cgroup v1 here\n"},
		{"none is, but that is no failure on a developer's machine", nil, false, true, "not listed"},
		{"the same name in another package", []string{"other TestNeedsVM why", all[1], all[2]}, true, false, "that may be:\n  skip TestNeedsVM: no qemu"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "skips.txt")
			require.NoError(t, os.WriteFile(list, []byte(strings.Join(tt.listed, "\n")), 0o600))
			var out bytes.Buffer
			ok, err := run([]string{"testdata/skip.json"}, &out, list, tt.strict)
			require.NoError(t, err)
			assert.Equal(t, tt.ok, ok, out.String())
			assert.Contains(t, out.String(), tt.says)
		})
	}
}

func TestSkipsParse(t *testing.T) {
	got, err := parseSkipList(strings.NewReader("# comment\n\n probes TestX\twhy it may  be\n. TestY/* because\n"))
	require.NoError(t, err)
	want := skipList{
		{"probes", "TestX"}: "why it may be",
		{".", "TestY/*"}:    "because",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(testID{})); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}

	_, err = parseSkipList(strings.NewReader("\nprobes TestX\n"))
	require.EqualError(t, err, `line 2: want a package, a test and a reason, got "probes TestX"`)
}

func TestSkipsFileMissing(t *testing.T) {
	_, err := run(nil, &bytes.Buffer{}, filepath.Join(t.TempDir(), "none.txt"), false)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Whoever edits the list must hear of a mistake before CI does.
func TestSkipsFileWellFormed(t *testing.T) {
	_, err := readSkipList("skips.txt")
	require.NoError(t, err)
}

func TestSkipsStarCoversSubtests(t *testing.T) {
	l := skipList{{"p", "TestX/*"}: "why"}
	for test, want := range map[string]bool{
		"TestX/a":   true,
		"TestX/a/b": true,
		"TestX":     false,
		"TestXY/a":  false,
	} {
		_, ok := l.why(testID{"p", test})
		assert.Equal(t, want, ok, test)
	}
}
