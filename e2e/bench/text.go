package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scrapeLimit is the goal of one scrape.
const scrapeLimit = 2500 * time.Microsecond

// metricsText runs the benchmark that turns 5,000 series into text beside
// client_golang. It lives where the code is, which nobody else may know.
func metricsText(ctx context.Context, o *options) ([]Row, error) {
	o.say("5,000 series to text")
	out, err := goBenchmark(ctx, "./daemon/web", "^BenchmarkMetrics$", 5*o.ticks)
	if err != nil {
		return nil, err
	}
	return textRows(out)
}

// goBenchmark runs benchmarks of a package so many times, thrice, and returns
// what they print.
func goBenchmark(ctx context.Context, pkg, pattern string, times int) (string, error) {
	out, err := goTest(ctx, nil, "-run", "^$", "-bench", pattern, "-benchtime", fmt.Sprintf("%dx", times), "-count", "3", pkg)
	if err != nil {
		return "", fmt.Errorf("benchmark of %s: %w: %s", pkg, err, out)
	}
	return out, nil
}

// goTest runs go test, with the environment and more of it, and returns what it prints.
// When ctx is done the test itself is killed, too.
func goTest(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	c.Env = append(os.Environ(), env...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	out, err := c.Output()
	return string(out), err
}

// textRows makes a row of each thing that the benchmark compared: the medians
// of its runs.
func textRows(out string) ([]Row, error) {
	pattern := regexp.MustCompile(`(?m)^BenchmarkMetrics/(\S+?)(?:-\d+)?\s.*?(\S+) ours-cpu-ns.*?(\S+) peer-cpu-ns`)
	ours, peer := map[string][]time.Duration{}, map[string][]time.Duration{}
	var names []string
	for _, m := range pattern.FindAllStringSubmatch(out, -1) {
		name := m[1]
		a, err := strconv.ParseFloat(m[2], 64)
		b, peerErr := strconv.ParseFloat(m[3], 64)
		if err = errors.Join(err, peerErr); err != nil {
			return nil, fmt.Errorf("benchmark of daemon/web: %s: %w", name, err)
		}
		if ours[name] == nil {
			names = append(names, name)
		}
		ours[name], peer[name] = append(ours[name], time.Duration(a)), append(peer[name], time.Duration(b))
	}
	if len(names) == 0 {
		return nil, errors.New("benchmark of daemon/web: it printed no numbers")
	}
	var rows []Row
	for _, name := range names {
		rows = append(rows, textRow(name, median(ours[name]), median(peer[name])))
	}
	return rows, nil
}

func textRow(name string, ours, peer time.Duration) Row {
	row := Row{
		What: "5,000 series scraped: " + name, Ours: short(ours), Peer: "client_golang: " + short(peer),
		Ratio: cheaper(over(peer, ours)),
	}
	if strings.HasSuffix(name, "gzip") {
		row.Goal = AtMost(float64(scrapeLimit), float64(ours), short(scrapeLimit))
	}
	return row
}
