// Command testcheck says of a run of tests what its runner does not: which tests
// failed and then passed, which took long, and which were skipped although no list
// allows it.
//
// # Usage
//
//	gotestsum --jsonfile units.json …
//	go run ./e2e/testcheck [-skips FILE] [-strict] units.json …
//
// It ends with 1 when no test ran, and with -strict when a test was skipped that
// FILE does not list. Whether a test failed is the runner's to say.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	skips := flag.String("skips", "", "`file` of the tests that may be skipped, and why")
	strict := flag.Bool("strict", false, "fail when a test was skipped that the file does not list")
	flag.Parse()

	ok, err := run(flag.Args(), os.Stdout, *skips, *strict)
	if err != nil {
		fmt.Fprintf(os.Stderr, "testcheck: %v\n", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports on the streams that the files hold and says whether all is well.
// skips is the path of the list of tests that may be skipped, or empty.
func run(files []string, out io.Writer, skips string, strict bool) (ok bool, err error) {
	listed, err := readSkipList(skips)
	if err != nil {
		return false, err
	}
	r := newReport()
	for _, file := range files {
		if err := r.readFile(file); err != nil {
			return false, err
		}
	}
	return r.print(out, listed, strict), nil
}

// event is one line of a stream, as `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string // empty for what concerns the whole package
	Output  string
	Elapsed float64 // seconds
}

func (r *report) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open what the test runner recorded: %w", err)
	}
	defer f.Close()
	return r.read(f)
}

// read takes in a stream to its end. A line that is no event is left out: the
// runner has shown it.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test != "" {
			r.add(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what the test runner recorded: %w", err)
		}
	}
}
