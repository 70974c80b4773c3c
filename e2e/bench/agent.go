package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const scrapePeriod = 15 * time.Second

// longTick is the tick of who pays by the core, and longTickLimit the share of the CPU time at
// one sample a second that it may cost.
const (
	longTick      = 5 * time.Second
	longTickLimit = 0.25
)

// tickLimit is the goal of a tick.
const tickLimit = 20 * time.Millisecond

// memoryLimit is the goal of the agent's cgroup with so many pods; 0: none.
func memoryLimit(pods int) uint64 {
	switch pods {
	case 250:
		return 40 << 20
	case 1000:
		return 64 << 20
	}
	return 0
}

// agentConfig is the default one, but for where it may write and look.
const agentConfig = `apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration
workloads: {roots: [%q]}
api: {socket: %q}
state: {dir: %q}
web: {listenAddresses: [%q]}
`

// agent is the built program as it runs on a node.
type agent struct {
	*process
	web   string // its address
	url   string // of its metrics
	dir   string
	first time.Duration   // how long the first tick took, in which everything is new
	ticks []time.Duration // how long ticks took after it
}

// startAgent starts one that looks at the pods below root; more are its
// further arguments, normally --standalone.
func startAgent(ctx context.Context, o *options, w *world, root, more string, args ...string) (a *agent, err error) {
	address, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	a = &agent{web: "http://" + address, url: "http://" + address + "/metrics"}
	if a.dir, err = os.MkdirTemp("", ownPrefix); err != nil {
		return nil, err
	}
	config := filepath.Join(a.dir, "agent.yaml")
	text := fmt.Sprintf(agentConfig, root, filepath.Join(a.dir, "socket"), filepath.Join(a.dir, "state"), address) + more
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir))
	}
	a.process, err = w.startIn("agent", append([]string{o.plimsoll, "agent", "--config", config}, args...)...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir))
	}
	if err := a.begin(ctx); err != nil {
		return nil, errors.Join(err, a.end())
	}
	return a, nil
}

// end ends the agent and removes what it wrote.
func (a *agent) end() error {
	return errors.Join(a.process.end(), os.RemoveAll(a.dir))
}

// begin waits for the first tick.
func (a *agent) begin(ctx context.Context) error {
	if err := a.answers(ctx, a.url); err != nil {
		return err
	}
	return until(ctx, "the first tick", func() error {
		body, err := scrape(ctx, a.url)
		if err != nil {
			return err
		}
		seconds, err := metric(body, "plimsoll_tick_duration_seconds")
		a.first = time.Duration(seconds * float64(time.Second))
		return err
	})
}

// lookAtTicks keeps how long each tick of a time took.
func (a *agent) lookAtTicks(ctx context.Context, length, tick time.Duration) error {
	_, err := a.watch(ctx, a.url, length, tick, func(body []byte) error {
		seconds, err := metric(body, "plimsoll_tick_duration_seconds")
		a.ticks = append(a.ticks, time.Duration(seconds*float64(time.Second)))
		return err
	})
	return err
}

// metric is the value of a series without labels.
func metric(body []byte, name string) (float64, error) {
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		return 0, fmt.Errorf("no %s among the metrics", name)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// wholeAgent measures the built program on the world's pods; with the pods of the peers, all
// busy, with a long tick, too.
func wholeAgent(ctx context.Context, o *options, w *world, every int) (rows []Row, used window, err error) {
	rows, used, err = agentAt(ctx, o, w, every, time.Second)
	if err != nil {
		return nil, used, err
	}
	alone, err := everySecond(ctx, readable(w.place().fiveOfAll()), loopSeconds)
	if err != nil {
		return rows, used, err
	}
	ratio := over(used.perSecond(), alone)
	rows[0].Peer = "loop of the five files of each pod, once a second: " + short(alone) + " a second"
	rows[0].Ratio = digits(ratio) + " ×"
	rows[0].Goal = AtMost(secondLimit, ratio, fmt.Sprintf("%g ×", secondLimit))
	if len(w.pods) != peersAt || every != busy {
		return rows, used, nil
	}
	slow, usedThen, err := agentAt(ctx, o, w, every, longTick)
	if err != nil {
		return rows, used, err
	}
	ratio = over(usedThen.perSecond(), used.perSecond())
	slow[0].Peer = "the agent at 1s: " + short(used.perSecond()) + " a second"
	slow[0].Ratio = digits(ratio) + " ×"
	slow[0].Goal = AtMost(longTickLimit, ratio, fmt.Sprintf("%g ×", longTickLimit))
	return append(rows, slow...), used, nil
}

// agentAt measures it with a tick. Its first row is that of the CPU time.
func agentAt(ctx context.Context, o *options, w *world, every int, tick time.Duration) (rows []Row, used window, err error) {
	what := fmt.Sprintf("the agent, %s, %s, tick: %s", podCount(len(w.pods)), pace(every), tick)
	o.say("%s", what)
	more, length := "", o.window
	if tick > time.Second {
		more = fmt.Sprintf("tick: %s\n", tick)
		length *= 2 // one tick more or less must not decide
	}
	a, err := startAgent(ctx, o, w, w.kubepods(), more, "--standalone")
	if err != nil {
		return nil, window{}, err
	}
	defer func() { err = errors.Join(err, a.end()) }()
	rows, used, err = a.measure(ctx, what, length, tick)
	if err != nil {
		return nil, used, err
	}
	if limit := memoryLimit(len(w.pods)); limit > 0 {
		rows[2].Goal = AtMost(float64(limit), float64(used.memory), mebibytes(limit))
	}
	rows[0].Note, err = a.slowed(ctx)
	return rows, used, err
}

// slowed is what the agent says of reading the pods less often than at each tick.
func (a *agent) slowed(ctx context.Context) (string, error) {
	body, err := scrape(ctx, a.web+"/api/v1/snapshot")
	if err != nil {
		return "", err
	}
	var s struct {
		Probes []struct{ Note string }
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return "", err
	}
	var notes []string
	for _, p := range s.Probes {
		if p.Note != "" {
			notes = append(notes, p.Note)
		}
	}
	return strings.Join(notes, "; "), nil
}

// loopSeconds is how often the loop reads that is measured beside the agent.
const loopSeconds = 10

// measure looks at the ticks while the agent warms up, then at its CPU time
// while it is scraped every 15 seconds, as a Prometheus does.
func (a *agent) measure(ctx context.Context, what string, length, tick time.Duration) ([]Row, window, error) {
	if err := a.lookAtTicks(ctx, length*2, tick); err != nil {
		return nil, window{}, err
	}
	used, err := a.watch(ctx, a.url, length, scrapePeriod, unseen)
	if err != nil {
		return nil, used, err
	}
	slow := quantile(a.ticks, 0.99)
	return []Row{
		{What: what + ", scraped every 15 s: CPU", Ours: fmt.Sprintf("%s a second over %s", short(used.perSecond()), used.real.Round(time.Second))},
		{
			What: what + ": tick, p99", Ours: fmt.Sprintf("%s of %d ticks (median %s; the first of all %s)", short(slow), len(a.ticks), short(median(a.ticks)), short(a.first)),
			Goal: AtMost(float64(tickLimit), float64(slow), short(tickLimit)),
		},
		{What: what + ": memory of its cgroup", Ours: fmt.Sprintf("%s (%s)", mebibytes(used.memory), used.parts)},
	}, used, nil
}

func mebibytes(n uint64) string { return digits(float64(n)/(1<<20)) + " MiB" }
