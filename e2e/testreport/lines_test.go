package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGoTestsOwnLinesAreTold(t *testing.T) {
	tests := []struct {
		line string
		want bool
	}{
		{"ok  \ta/b\t1.2s\n", true},
		{"ok  \ta/b\t(cached)\n", true},
		{"FAIL\ta/b\t0.1s\n", true},
		{"FAIL\ta/b [build failed]\n", true},
		{"?   \ta/b\t[no test files]\n", true},
		{"\ta/b\t\tcoverage: 0.0% of statements\n", true},
		{"FAIL\n", false},
		{"ok  \ta/bc\t1.2s\n", false}, // another package, printed by this one
		{"ok then\n", false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, isResult(tt.line, "a/b"), "%q", tt.line)
	}
}

// A test that prints go test's marks about other tests, as this package's do,
// keeps them in its output.
func TestOnlyTheTestsOwnMarksAreLeftOut(t *testing.T) {
	tests := []struct {
		line string
		want bool
	}{
		{"=== RUN   TestX\n", true},
		{"=== PAUSE TestX\n", true},
		{"=== CONT  TestX\n", true},
		{"=== NAME  TestX\n", true},
		{"--- FAIL: TestX (0.00s)\n", true},
		{"    --- SKIP: TestX (0.00s)\n", true},
		{"--- FAIL: TestXY (0.00s)\n", false},
		{"=== RUN   TestX/a\n", false},
		{"    x_test.go:3: TestX\n", false},
		{"TestX\n", false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, isFrame(tt.line, "TestX"), "%q", tt.line)
	}
}

func TestTheReasonOfASkipIsWhatWasLoggedLast(t *testing.T) {
	tests := []struct{ name, output, want string }{
		{"one line", "    a_test.go:3: no cgroup v1 here\n", "no cgroup v1 here"},
		{"after other logs", "    a_test.go:3: looking\n    vm_test.go:12: no qemu\n", "no qemu"},
		{"several lines", "    a_test.go:3: no qemu:\n        apt-get install\n", "no qemu: apt-get install"},
		{"of a subtest", "        a_test.go:3: deeper\n", "deeper"},
		{"printed, not logged", "some noise\n", ""},
		{"nothing", "", ""},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, skipReason(tt.output), tt.name)
	}
}

func TestPackagesAreNamedByTheirDirectory(t *testing.T) {
	assert.Equal(t, ".", short("github.com/plimsoll-dev/plimsoll"))
	assert.Equal(t, "e2e/vm", short("github.com/plimsoll-dev/plimsoll/e2e/vm"))
	assert.Equal(t, "example.test/x", short("example.test/x"))
}
