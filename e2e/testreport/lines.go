package main

import (
	"regexp"
	"strings"
)

// isResult says whether line is go test's own last word on a package: "ok",
// "FAIL" or "?" in front of its path.
func isResult(line, pkg string) bool {
	for _, mark := range []string{"ok  \t", "FAIL\t", "?   \t", "\t"} {
		rest, ok := strings.CutPrefix(line, mark+pkg)
		if ok && (strings.HasPrefix(rest, "\t") || strings.HasPrefix(rest, " ")) {
			return true
		}
	}
	return false
}

// isFrame says whether line is one in which go test only says that this test
// runs, waits, goes on or has ended.
func isFrame(line, test string) bool {
	line = strings.TrimSpace(line)
	if state, ok := strings.CutPrefix(line, "=== "); ok {
		return strings.HasSuffix(state, " "+test)
	}
	result, ok := strings.CutPrefix(line, "--- ")
	return ok && strings.Contains(result, ": "+test+" (")
}

// skipReason finds in a skipped test's output why it was skipped: the last thing
// it logged, on one line. Empty: it logged nothing.
func skipReason(output string) string {
	logLine := regexp.MustCompile(`^\s*\S+\.go:\d+: ?`)
	var reason []string
	for line := range strings.Lines(output) {
		if at := logLine.FindString(line); at != "" {
			reason = nil
			line = line[len(at):]
		} else if reason == nil {
			continue // printed, not logged
		}
		reason = append(reason, strings.TrimSpace(line))
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
