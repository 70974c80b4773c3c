// Command conntrack is an outer plugin: it sets a condition and a taint while
// the node's table of tracked connections is nearly full. A full table makes
// the kernel drop the packets of every new connection.
//
// It names no pod: neither of the two files that it reads shows which pod
// filled the table. Both files belong to the reader's network namespace, so in
// a pod it needs hostNetwork.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func main() {
	c := &conntrack{}
	flag.StringVar(&c.procfs, "path.procfs", "/proc", "mountpoint of the host's procfs")
	flag.Float64Var(&c.full, "full", 0.80, "share of the table in use from which the node is tainted")
	kit.Main("conntrack-fill", c)
}

// conntrack is the plugin's configuration and last state.
type conntrack struct {
	procfs string
	full   float64
	met    bool
}

// Threshold is met from full on, and latched until the share is below 0.9 of it
// (hysteresis).
func (c *conntrack) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	count, err := c.read("nf_conntrack_count")
	if err != nil {
		return kit.Threshold{}, err
	}
	limit, err := c.read("nf_conntrack_max")
	if err != nil {
		return kit.Threshold{}, err
	}
	if limit == 0 {
		return kit.Threshold{}, errors.New("nf_conntrack_max is 0: the table has no limit")
	}
	t := kit.Threshold{Observed: count / limit, Limit: c.full, Condition: &kit.Condition{Name: "ConntrackFull"}}
	c.met = t.Observed >= c.full || c.met && t.Observed >= 0.9*c.full
	if c.met {
		t.Level = kit.Soft
	}
	return t, nil
}

func (c *conntrack) read(name string) (float64, error) {
	b, err := os.ReadFile(filepath.Join(c.procfs, "sys/net/netfilter", name))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("conntrack is inactive in this network namespace: %w", err)
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return float64(n), nil
}
