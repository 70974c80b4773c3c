package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// skipList holds the tests that may be skipped, and why each may.
type skipList map[testID]string

// why tells why a test may be skipped; ok is false when it may not. An entry
// TestX/* stands for each subtest of TestX.
func (l skipList) why(id testID) (why string, ok bool) {
	if why, ok = l[id]; ok {
		return why, true
	}
	for i := range len(id.test) {
		if id.test[i] != '/' {
			continue
		}
		if why, ok = l[testID{id.pkg, id.test[:i] + "/*"}]; ok {
			return why, true
		}
	}
	return "", false
}

// readSkipList reads the list at path; an empty path is an empty list.
func readSkipList(path string) (skipList, error) {
	if path == "" {
		return skipList{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the list of skips: %w", err)
	}
	defer f.Close()
	l, err := parseSkipList(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// parseSkipList reads lines of a package's directory, a test and the reason why
// it may be skipped, separated by blanks. Empty lines and those that begin with
// # are left out. A line without a reason is an error that names the line.
func parseSkipList(in io.Reader) (skipList, error) {
	l := skipList{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("line %d: want a package, a test and a reason, got %q", n, line)
		}
		l[testID{fields[0], fields[1]}] = strings.Join(fields[2:], " ")
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the list of skips: %w", err)
	}
	return l, nil
}
