package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// module is cut off package paths where a person reads them.
const module = "github.com/plimsoll-dev/plimsoll"

// testID names one test or subtest.
type testID struct{ pkg, test string }

func (id testID) String() string { return id.pkg + " " + id.test }

// skip is a test that was skipped, with the reason it gave (empty: none).
type skip struct {
	testID
	reason string
}

// failure is a test that failed, with what it printed.
type failure struct {
	testID
	text string
}

// took is how long a test ran, in seconds.
type took struct {
	testID
	seconds float64
}

// report is what is known of the run so far.
type report struct {
	out io.Writer

	output   map[testID]*strings.Builder // of the tests that have not ended
	packages map[string]*packageState    // those that have not ended
	ended    int                         // packages

	broken  []string // packages that failed although none of their tests did
	failed  []failure
	skipped []skip
	slow    []took
	results []string // go test's own line of each package
}

// packageState is what is known of a package that is being tested. Subtests
// count.
type packageState struct {
	passed, failed, skipped int
	seed                    string // go test's line with the seed of the order
}

func newReport(out io.Writer) *report {
	return &report{
		out:      out,
		output:   map[testID]*strings.Builder{},
		packages: map[string]*packageState{},
	}
}

func (r *report) add(e event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Test != "":
		r.addTest(e)
	case e.Package != "":
		r.addPackage(e)
	}
}

func (r *report) addTest(e event) {
	id := testID{short(e.Package), e.Test}
	switch e.Action {
	case "run":
		r.output[id] = &strings.Builder{}
	case "output":
		r.outputOf(id).WriteString(e.Output)
	case "pass":
		r.state(e.Package).passed++
		if e.Elapsed >= slowSeconds && !strings.Contains(e.Test, "/") {
			r.slow = append(r.slow, took{id, e.Elapsed})
		}
		delete(r.output, id)
	case "skip":
		r.state(e.Package).skipped++
		r.skipped = append(r.skipped, skip{id, skipReason(r.text(id))})
		delete(r.output, id)
	case "fail":
		r.fail(e.Package, id, fmt.Sprintf("%.2fs", e.Elapsed))
	}
}

// fail shows a failed test with what it printed; how says how long it took, or
// how it ended.
func (r *report) fail(pkg string, id testID, how string) {
	r.state(pkg).failed++
	f := failure{id, r.text(id)}
	r.failed = append(r.failed, f)
	fmt.Fprintf(r.out, "--- FAIL: %s (%s)\n%s", id, how, f.text)
	delete(r.output, id)
}

func (r *report) addPackage(e event) {
	switch e.Action {
	case "start":
		r.state(e.Package)
	case "output":
		r.packageOutput(e)
	case "pass", "fail", "skip":
		r.endPackage(e)
	}
}

// packageOutput sorts what a package prints outside its tests: go test's own
// lines are kept for the end, everything else (TestMain says what it builds, a
// data race is reported) is shown at once.
func (r *report) packageOutput(e event) {
	switch {
	case isResult(e.Output, e.Package):
		r.results = append(r.results, e.Output)
	case strings.HasPrefix(e.Output, "-test.shuffle "):
		r.state(e.Package).seed = e.Output
	case e.Output == "PASS\n", e.Output == "FAIL\n":
	default:
		fmt.Fprint(r.out, e.Output)
	}
}

func (r *report) endPackage(e event) {
	if e.Action == "fail" {
		r.failPackage(e.Package, "failed, none of its tests did")
	}
	s := r.state(e.Package)
	if s.passed+s.failed+s.skipped > 0 {
		fmt.Fprintf(r.out, "%s: %d passed, %d failed, %d skipped in %.1fs\n",
			short(e.Package), s.passed, s.failed, s.skipped, e.Elapsed)
	}
	delete(r.packages, e.Package)
	r.ended++
}

// failPackage shows what is left to show of a failed package: what the tests
// said that have no result, as after a timeout, a fatal error or an exit, and
// the seed. why stands in the summary where no test of the package failed.
func (r *report) failPackage(pkg, why string) {
	ids := slices.SortedFunc(maps.Keys(r.output), func(a, b testID) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, id := range ids {
		if id.pkg == short(pkg) {
			r.fail(pkg, id, "did not end")
		}
	}
	s := r.state(pkg)
	fmt.Fprint(r.out, s.seed)
	if s.failed == 0 {
		r.broken = append(r.broken, short(pkg)+": "+why)
	}
}

// finish prints the summary and says whether all is well. What failed stands
// last.
func (r *report) finish(listed skipList, strict bool) bool {
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		r.failPackage(pkg, "no result, the stream ended")
	}
	if r.ended == 0 {
		r.broken = append(r.broken, "no package was tested")
	}
	r.printSlow()
	unlisted := r.printSkipped(listed)
	ok := len(r.broken) == 0 && len(r.failed) == 0 && (!strict || len(unlisted) == 0)
	r.printResults(false)
	if ok {
		return true
	}
	r.printFailed()
	if strict && len(unlisted) > 0 {
		fmt.Fprintf(r.out, "\nskipped and not in the list of tests that may be:\n  %s\n", strings.Join(unlisted, "\n  "))
	}
	r.printResults(true)
	fmt.Fprintln(r.out, "FAIL")
	return false
}

// printResults prints go test's own lines of the packages that failed, or of the
// others.
func (r *report) printResults(failed bool) {
	list := slices.DeleteFunc(slices.Clone(r.results), func(line string) bool { return strings.HasPrefix(line, "FAIL\t") != failed })
	if len(list) > 0 {
		fmt.Fprintf(r.out, "\n%s", strings.Join(list, ""))
	}
}

// From slowSeconds on a test is among the slow ones, of which slowShown are
// named.
const (
	slowSeconds = 10
	slowShown   = 20
)

func (r *report) printSlow() {
	slices.SortStableFunc(r.slow, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range r.slow[:min(slowShown, len(r.slow))] {
		if i == 0 {
			fmt.Fprintf(r.out, "\nof %d s and more: %d\n", slowSeconds, len(r.slow))
		}
		fmt.Fprintf(r.out, "%7.1fs  %s\n", t.seconds, t.testID)
	}
}

// printSkipped prints the table of what was skipped and returns those of these
// tests that the list does not name, each with its reason.
func (r *report) printSkipped(listed skipList) (unlisted []string) {
	if len(r.skipped) == 0 {
		return nil
	}
	fmt.Fprintf(r.out, "\nskipped: %d\n", len(r.skipped))
	table := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PACKAGE\tTEST\tREASON\tMAY BE SKIPPED")
	for _, s := range r.skipped {
		reason := cmp.Or(s.reason, "(none given)")
		why, ok := listed.why(s.testID)
		if !ok {
			unlisted = append(unlisted, s.testID.String()+": "+reason)
			why = "not listed"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.pkg, s.test, reason, why)
	}
	if err := table.Flush(); err != nil {
		fmt.Fprintf(r.out, "print the table: %v\n", err)
	}
	return unlisted
}

// failedLines are shown again of what a failed test printed: often no more of a
// log is kept than its end.
const failedLines = 12

func (r *report) printFailed() {
	if len(r.failed)+len(r.broken) == 0 {
		return
	}
	fmt.Fprintf(r.out, "\nfailed:\n")
	for _, f := range r.failed {
		fmt.Fprintf(r.out, "  %s\n", f.testID)
		n := 0
		for line := range strings.Lines(f.text) {
			if n++; n > failedLines {
				break
			}
			fmt.Fprintf(r.out, "  %s", line)
		}
	}
	for _, what := range r.broken {
		fmt.Fprintf(r.out, "  %s\n", what)
	}
}

func (r *report) state(pkg string) *packageState {
	s, ok := r.packages[pkg]
	if !ok {
		s = &packageState{}
		r.packages[pkg] = s
	}
	return s
}

func (r *report) outputOf(id testID) *strings.Builder {
	b, ok := r.output[id]
	if !ok {
		b = &strings.Builder{}
		r.output[id] = b
	}
	return b
}

// text is what a test has printed so far, without the lines in which go test
// only says that it runs, waits or has ended.
func (r *report) text(id testID) string {
	var b strings.Builder
	for line := range strings.Lines(r.outputOf(id).String()) {
		if !isFrame(line, id.test) {
			b.WriteString(line)
		}
	}
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		return s + "\n"
	}
	return b.String()
}
