package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each stream in testdata was recorded by testdata/module/record.sh; the file
// .want beside it is the whole report of it.
func TestEachKindOfRunIsReportedInFull(t *testing.T) {
	tests := []struct {
		name   string
		ok     bool
		strict bool
	}{
		{name: "pass", ok: true, strict: true},
		{name: "none", ok: true, strict: true},
		{name: "fail"},
		{name: "panics"},
		{name: "broken"},
		{name: "mainfails"},
		{name: "slow"}, // a timeout
		{name: "skip", ok: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stream, err := os.Open(filepath.Join("testdata", tt.name+".json"))
			require.NoError(t, err)
			defer stream.Close()
			want, err := os.ReadFile(filepath.Join("testdata", tt.name+".want"))
			require.NoError(t, err)

			var out bytes.Buffer
			ok, err := run(stream, &out, "", tt.strict)
			require.NoError(t, err)
			assert.Equal(t, tt.ok, ok)
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// The go command's format may change with its version; this holds the report
// against the one that runs here.
func TestTheReportUnderstandsTheGoCommandThatRunsIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "./broken", "./fail", "./none", "./pass", "./skip")
	cmd.Dir = filepath.Join("testdata", "module")
	stream, err := cmd.Output()
	require.Error(t, err, "go test must fail where tests fail")
	require.NotEmpty(t, stream)

	var out bytes.Buffer
	ok, err := run(bytes.NewReader(stream), &out, "", false)
	require.NoError(t, err)
	assert.False(t, ok)
	for _, want := range []string{
		"broken/a_test.go:5:34: undefined: noSuchFunction\n",
		"--- FAIL: fail TestSubs/bad_one (0.00s)\n    a_test.go:9: sub went wrong\n",
		"no qemu: apt-get install qemu-system-x86",
		"FAIL\tgithub.com/plimsoll-dev/plimsoll/broken [build failed]\n",
		"?   \tgithub.com/plimsoll-dev/plimsoll/none\t[no test files]\n",
		"ok  \tgithub.com/plimsoll-dev/plimsoll/pass\t",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, out.String(), "silent", "what a passing test logs is not shown")
}

func TestAFailureIsShownBeforeTheStreamEnds(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	r.add(event{Action: "output", Package: "p", Test: "TestX", Output: "    x_test.go:1: the reason\n"})
	assert.Empty(t, out.String(), "it may still pass")
	r.add(event{Action: "fail", Package: "p", Test: "TestX", Elapsed: 1.5})
	assert.Equal(t, "--- FAIL: p TestX (1.50s)\n    x_test.go:1: the reason\n", out.String())
}

func TestTheSlowTestsAreNamedTheSlowestFirst(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	for name, seconds := range map[string]float64{"TestQuick": 9.9, "TestSlow": 10, "TestSlower": 10.5, "TestSlow/part": 99} {
		r.add(event{Action: "pass", Package: "p", Test: name, Elapsed: seconds})
	}
	r.add(event{Action: "pass", Package: "p"})
	out.Reset()
	assert.True(t, r.finish(skipList{}, true))
	assert.Equal(t, "\nof 10 s and more: 2\n   10.5s  p TestSlower\n   10.0s  p TestSlow\n", out.String())
}

func TestTheNextLineOfTheReportBeginsANewLine(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	r.add(event{Action: "output", Package: "p", Test: "TestX", Output: "no newline"})
	r.add(event{Action: "fail", Package: "p", Test: "TestX"})
	assert.Equal(t, "--- FAIL: p TestX (0.00s)\nno newline\n", out.String())
}

// A test that passed must not be taken for one that hung in the same package.
func TestOnlyTestsWithoutAResultDidNotEnd(t *testing.T) {
	for _, result := range []string{"pass", "skip"} {
		var out bytes.Buffer
		r := newReport(&out)
		r.add(event{Action: "run", Package: "p", Test: "TestX"})
		r.add(event{Action: result, Package: "p", Test: "TestX"})
		r.add(event{Action: "fail", Package: "p"})
		assert.NotContains(t, out.String(), "did not end", result)
	}
}

func TestWhatAPackagePrintsOutsideItsTestsIsShownAtOnce(t *testing.T) {
	var out bytes.Buffer
	newReport(&out).add(event{Action: "output", Package: "p", Output: "building: 3 of 10\n"})
	assert.Equal(t, "building: 3 of 10\n", out.String())
}

func TestAStreamThatEndsEarlyFails(t *testing.T) {
	whole, err := os.ReadFile("testdata/pass.json")
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")

	for n := range lines {
		var out bytes.Buffer
		ok, err := run(strings.NewReader(strings.Join(lines[:n], "")), &out, "", false)
		require.NoError(t, err)
		assert.False(t, ok, "after %d of %d lines", n, len(lines))
		assert.Contains(t, out.String(), "failed:\n")
	}
}

func TestAMessageOfTheGoCommandIsPassedOn(t *testing.T) {
	var out bytes.Buffer
	ok, err := run(strings.NewReader("go: no such tool \"x\"\n{\"a\":1}\nno newline"), &out, "", false)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, out.String(), "go: no such tool \"x\"\n{\"a\":1}\nno newline")
}

func TestAStreamThatCannotBeReadIsAnError(t *testing.T) {
	_, err := run(iotest.ErrReader(os.ErrDeadlineExceeded), &bytes.Buffer{}, "", false)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestALineOfAnyLengthIsRead(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var out bytes.Buffer
	_, err := run(strings.NewReader(`{"Action":"output","Package":"p","Output":"`+long+`"}`), &out, "", false)
	require.NoError(t, err)
	assert.Contains(t, out.String(), long)
}
