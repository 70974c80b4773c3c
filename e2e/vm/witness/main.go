// Command witness writes down, twice a second, how short of memory the
// kernel says the node is, and beside it what the agent at URL says. It stays
// in memory itself, so that it can watch a node that has none left.
//
//	witness URL
//	witness cell FILE
//	witness serve DIR ADDRESS KIB
//
// The second measures one cell of the experiment of e2e/vm/rungs, in which the third
// is the workload that waits. Of the first, each line is a JSON object: time, availableRatio and fullSeconds and scans as
// the kernel counts them, then the level of memory-stall and why, or the error
// of asking for it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// period is short against the durations that are measured, yet the watching must
// not itself keep the node from standing still.
const period = 500 * time.Millisecond

// line is one look at the node and at its agent.
type line struct {
	Time time.Time `json:"time"`
	// AvailableRatio is MemAvailable / MemTotal; FullSeconds and Scans count
	// since boot: PSI memory full, and pages scanned by global reclaim.
	AvailableRatio float64 `json:"availableRatio"`
	FullSeconds    float64 `json:"fullSeconds"`
	Scans          uint64  `json:"scans"`
	Level          string  `json:"level,omitempty"`
	Reason         string  `json:"reason,omitempty"`
	Error          string  `json:"error,omitempty"`
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1:
		err = run(args[0])
	case len(args) == 2 && args[0] == "cell":
		err = runCell(context.Background(), args[1], os.Stdout)
	case len(args) == 4 && args[0] == "serve":
		var kib int
		if kib, err = strconv.Atoi(args[3]); err == nil {
			err = serve(context.Background(), args[1], args[2], kib)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: witness URL | witness cell FILE | witness serve DIR ADDRESS KIB")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "witness: %v\n", err)
		os.Exit(1)
	}
}

func run(url string) error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("stay in memory: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	return watch(ctx, os.Stdout, "/proc", url)
}

// watch writes a line each period until ctx is done.
func watch(ctx context.Context, out io.Writer, proc, url string) error {
	every := time.NewTicker(period)
	defer every.Stop()
	for e := json.NewEncoder(out); ; {
		l, err := kernel(proc)
		if err != nil {
			return err
		}
		l.ask(ctx, url)
		if err := e.Encode(l); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}

// kernel is what the kernel says at proc.
func kernel(proc string) (line, error) {
	l := line{Time: time.Now()}
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return l, err
	}
	m, err := fs.Meminfo()
	if err != nil {
		return l, err
	}
	if m.MemAvailable == nil || m.MemTotal == nil {
		return l, fmt.Errorf("%s/meminfo: no MemAvailable or MemTotal", proc)
	}
	l.AvailableRatio = float64(*m.MemAvailable) / float64(*m.MemTotal)
	psi, err := fs.PSIStatsForResource("memory")
	if err != nil {
		return l, err
	}
	if psi.Full == nil {
		return l, fmt.Errorf("%s/pressure/memory: no full", proc)
	}
	l.FullSeconds = float64(psi.Full.Total) / 1e6
	l.Scans, err = scans(proc + "/vmstat")
	return l, err
}

// scans adds the pages that global reclaim has looked at, by kswapd and by the
// tasks that wanted memory.
func scans(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum uint64
	found := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n uint64
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name != "pgscan_kswapd" && name != "pgscan_direct" {
			continue
		}
		if _, err := fmt.Sscan(value, &n); err != nil {
			return 0, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		sum, found = sum+n, found+1
	}
	if found != 2 {
		return 0, fmt.Errorf("%s: no pgscan_kswapd or pgscan_direct", path)
	}
	return sum, nil
}

// ask asks the agent for its verdict and notes it, or why there is none.
func (l *line) ask(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	level, reason, err := verdict(ctx, url)
	if err != nil {
		l.Error = err.Error()
		return
	}
	l.Level, l.Reason = level, reason
}

func verdict(ctx context.Context, url string) (level, reason string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("%s: %s", url, resp.Status)
	}
	var p struct {
		Verdicts []struct{ Plugin, Level, Reason string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		return "", "", fmt.Errorf("%s: %w", url, err)
	}
	for _, v := range p.Verdicts {
		if v.Plugin == "memory-stall" {
			return v.Level, v.Reason, nil
		}
	}
	return "", "", fmt.Errorf("%s: no verdict of memory-stall", url)
}
