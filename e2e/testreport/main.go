// Command testreport turns the stream of `go test -json` into what a person and
// a CI log need: each failure with its output when it happens, at the end a
// table of what was skipped and why, and last go test's own package lines.
//
// # Usage
//
//	go test -json ./... | go run ./e2e/testreport [-skips FILE] [-strict]
//
// It ends with 1 when a test, a package or a build failed, when the stream ends
// before each package has its result, and with -strict when a test was skipped
// that FILE does not list.
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

	ok, err := run(os.Stdin, os.Stdout, *skips, *strict)
	if err != nil {
		fmt.Fprintf(os.Stderr, "testreport: %v\n", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run copies the report of the stream in to out and says whether all is well.
// skips is the path of the list of tests that may be skipped, or empty.
func run(in io.Reader, out io.Writer, skips string, strict bool) (ok bool, err error) {
	listed, err := readSkipList(skips)
	if err != nil {
		return false, err
	}
	r := newReport(out)
	if err := r.read(in); err != nil {
		return false, err
	}
	return r.finish(listed, strict), nil
}

// event is one line of the stream, as `go doc test2json` and `go help buildjson`
// describe it.
type event struct {
	Action  string
	Package string
	Test    string // empty for what concerns the whole package
	Output  string
	Elapsed float64 // seconds
}

// read takes in the stream to its end. A line that is no event, such as a
// message of the go command itself, is passed on as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the stream of go test: %w", err)
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	r.add(e)
}
