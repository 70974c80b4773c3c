package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each stream in testdata was recorded by testdata/module/record.sh.
func TestReportFlaky(t *testing.T) {
	var out bytes.Buffer
	ok, err := run([]string{"testdata/flaky.json"}, &out, "", true)
	require.NoError(t, err)
	assert.True(t, ok, "that the others failed is the runner's to say")
	assert.Equal(t, "FLAKY: flaky TestFirstTime/part failed, and passed when it ran again\n"+
		"FLAKY: flaky TestFirstTime failed, and passed when it ran again\n", out.String())
}

func TestReportSlowest(t *testing.T) {
	var out bytes.Buffer
	r := newReport()
	for name, seconds := range map[string]float64{"TestQuick": 9.9, "TestSlow": 10, "TestSlower": 10.5, "TestSlow/part": 99} {
		r.add(event{Action: "pass", Package: "p", Test: name, Elapsed: seconds})
	}
	assert.True(t, r.print(&out, skipList{}, true))
	assert.Equal(t, "\nof 10 s and more: 2\n   10.5s  p TestSlower\n   10.0s  p TestSlow\n", out.String())
}

func TestReportWithoutTests(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.json")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	var out bytes.Buffer
	ok, err := run([]string{empty}, &out, "", false)
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Equal(t, "no test ran\n", out.String())

	_, err = run([]string{filepath.Join(t.TempDir(), "none.json")}, &out, "", false)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, newReport().read(iotest.ErrReader(os.ErrDeadlineExceeded)), os.ErrDeadlineExceeded)
}

func TestReportLongLine(t *testing.T) {
	r := newReport()
	long := strings.Repeat("x", 1<<20)
	require.NoError(t, r.read(strings.NewReader("go: no such tool\n"+
		`{"Action":"output","Package":"p","Test":"TestX","Output":"    x_test.go:1: `+long+`\n"}`+"\n"+
		`{"Action":"skip","Package":"p","Test":"TestX"}`)))
	assert.Equal(t, []skip{{testID{"p", "TestX"}, long}}, r.skipped)
}

func TestSkipReasonIsLastLogged(t *testing.T) {
	tests := []struct{ name, output, want string }{
		{"one line", "    a_test.go:3: no cgroup v1 here\n", "no cgroup v1 here"},
		{"after other logs", "    a_test.go:3: looking\n    vm_test.go:12: no qemu\n", "no qemu"},
		{"several lines", "    a_test.go:3: no qemu:\n        apt-get install\n--- SKIP: TestX (0.00s)\n", "no qemu: apt-get install"},
		{"of a subtest", "=== RUN   TestX/a\n        a_test.go:3: deeper\n    --- SKIP: TestX/a (0.00s)\n", "deeper"},
		{"printed, not logged", "some noise\n", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, skipReason(tt.output), tt.name)
	}
}

func TestReportShortPackage(t *testing.T) {
	assert.Equal(t, ".", short("github.com/plimsoll-dev/plimsoll"))
	assert.Equal(t, "e2e/vm", short("github.com/plimsoll-dev/plimsoll/e2e/vm"))
	assert.Equal(t, "example.test/x", short("example.test/x"))
}
