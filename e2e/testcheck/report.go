package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
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

// took is how long a test ran, in seconds.
type took struct {
	testID
	seconds float64
}

// report is what is known of the runs so far.
type report struct {
	output  map[testID]string // of the tests that have not ended
	failed  map[testID]bool   // in an earlier attempt
	ended   int
	flaky   []testID // failed, and passed when they ran again
	skipped []skip
	slow    []took
}

func newReport() *report {
	return &report{output: map[testID]string{}, failed: map[testID]bool{}}
}

func (r *report) add(e event) {
	id := testID{short(e.Package), e.Test}
	switch e.Action {
	case "output":
		r.output[id] += e.Output
		return
	case "fail":
		r.failed[id] = true
	case "pass":
		r.pass(id, e.Elapsed)
	case "skip":
		r.skipped = append(r.skipped, skip{id, skipReason(r.output[id])})
	default:
		return
	}
	r.ended++
	delete(r.output, id)
}

func (r *report) pass(id testID, seconds float64) {
	if r.failed[id] {
		r.flaky = append(r.flaky, id)
	}
	if seconds >= slowSeconds && !strings.Contains(id.test, "/") {
		r.slow = append(r.slow, took{id, seconds})
	}
}

// print the report and say whether all is well.
func (r *report) print(out io.Writer, listed skipList, strict bool) bool {
	r.printSlow(out)
	unlisted := r.printSkipped(out, listed)
	for _, id := range r.flaky {
		fmt.Fprintf(out, "FLAKY: %s failed, and passed when it ran again\n", id)
	}
	switch {
	case r.ended == 0:
		fmt.Fprintln(out, "no test ran")
		return false
	case strict && len(unlisted) > 0:
		fmt.Fprintf(out, "skipped and not in the list of tests that may be:\n  %s\n", strings.Join(unlisted, "\n  "))
		return false
	}
	return true
}

// From slowSeconds on a test is among the slow ones, of which slowShown are
// named.
const (
	slowSeconds = 10
	slowShown   = 20
)

func (r *report) printSlow(out io.Writer) {
	slices.SortStableFunc(r.slow, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range r.slow[:min(slowShown, len(r.slow))] {
		if i == 0 {
			fmt.Fprintf(out, "\nof %d s and more: %d\n", slowSeconds, len(r.slow))
		}
		fmt.Fprintf(out, "%7.1fs  %s\n", t.seconds, t.testID)
	}
}

// printSkipped prints the table of what was skipped and returns those of these
// tests that the list does not name, each with its reason.
func (r *report) printSkipped(out io.Writer, listed skipList) (unlisted []string) {
	if len(r.skipped) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nskipped: %d\n", len(r.skipped))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
		fmt.Fprintf(out, "print the table: %v\n", err)
	}
	return unlisted
}

// skipReason finds in a skipped test's output why it was skipped: the last thing
// it logged, on one line. Empty: it logged nothing.
func skipReason(output string) string {
	logLine := regexp.MustCompile(`^\s*\S+\.go:\d+: ?`)
	var reason []string
	for line := range strings.Lines(output) {
		switch at := logLine.FindString(line); {
		case at != "":
			reason = []string{strings.TrimSpace(line[len(at):])}
		case strings.HasPrefix(strings.TrimSpace(line), "--- "), strings.HasPrefix(line, "=== "), reason == nil:
		default:
			reason = append(reason, strings.TrimSpace(line))
		}
	}
	return strings.TrimSpace(strings.Join(reason, " "))
}

// short is a package's path within this module; the root is ".".
func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}
