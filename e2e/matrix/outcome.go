package matrix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Outcome of one test or subtest.
type Outcome struct {
	Test string
	// Result is pass, fail or skip; empty: it did not end.
	Result string
	// Smaller is what it said is less here, Against the versions of programs that it
	// said it ran against, by their names.
	Smaller []string
	Against map[string]string
	// Said is all that it said.
	Said string
}

// ReadOutcomes of the tests in what test2json writes, in the order in which they
// began. A line that is no event is left out.
func ReadOutcomes(in io.Reader) ([]Outcome, error) {
	var order []*Outcome
	byTest := map[string]*Outcome{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct{ Action, Test, Output, Key, Value string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		o := byTest[e.Test]
		if o == nil {
			o = &Outcome{Test: e.Test, Against: map[string]string{}}
			byTest[e.Test] = o
			order = append(order, o)
		}
		switch e.Action {
		case "pass", "fail", "skip":
			o.Result = e.Action
		case "output":
			o.Said += e.Output
		case "attr":
			if e.Key == Smaller {
				o.Smaller = append(o.Smaller, e.Value)
			} else {
				o.Against[e.Key] = e.Value
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read what the tests wrote: %w", err)
	}
	all := make([]Outcome, len(order))
	for i, o := range order {
		all[i] = *o
	}
	return all, nil
}

// Judge what a function's tests came to on a version. A test that did not run, did
// not end, or did not say that it ran against that version has failed: a cell is
// never a guess.
func Judge(f *Function, version string, outcomes []Outcome) (State, string) {
	var failed, skipped, smaller []string
	passed := 0
	for _, o := range outcomes {
		if !f.has(o.Test) {
			continue
		}
		switch o.Result {
		case "pass":
			passed++
		case "skip":
			skipped = add(skipped, o.reason())
		default:
			failed = add(failed, o.Test)
		}
		for _, what := range o.Smaller {
			smaller = add(smaller, what)
		}
	}
	if !slices.ContainsFunc(outcomes, func(o Outcome) bool { return f.world(o.Test) && o.Against[f.Of] == version }) {
		failed = add(failed, "no test ran against "+version)
	}
	for _, test := range f.Tests {
		if !slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Test == test }) {
			failed = add(failed, test+" did not run")
		}
	}
	switch {
	case len(failed) > 0:
		return Fails, strings.Join(failed, "; ")
	case passed == 0:
		return Off, strings.Join(skipped, "; ")
	case len(skipped)+len(smaller) > 0:
		return Less, strings.Join(append(smaller, skipped...), "; ")
	}
	return Works, ""
}

// add a text that is not there yet.
func add(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// reason that a test gave for its skip.
func (o *Outcome) reason() string {
	if m := regexp.MustCompile(`(?m)^ *\S+\.go:\d+: (.*)$`).FindStringSubmatch(o.Said); m != nil {
		return m[1]
	}
	return o.Test + " gave no reason"
}
