package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decisionLimit is the goal of one decision about 50,000 loads on 5,000 nodes.
const decisionLimit = 50 * time.Millisecond

// loadDecisions runs the benchmarks of the decision about Velero's loads, and the
// one beside its slow and plain double, which lives among its tests.
func loadDecisions(ctx context.Context, o *options) ([]Row, error) {
	o.say("decisions about loads")
	out, err := goBenchmark(ctx, "./vgdp", "^Benchmark(Decide|Model)$", max(2, o.ticks/3))
	if err != nil {
		return nil, err
	}
	return loadRows(out)
}

// loadRows makes a row of each thing that was decided about.
func loadRows(out string) ([]Row, error) {
	printed := regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s(.*)$`)
	number := regexp.MustCompile(`(\S+) (\S+)`)
	runs := map[string]map[string][]float64{} // by name and unit
	var names []string
	for _, m := range printed.FindAllStringSubmatch(out, -1) {
		name := m[1]
		if runs[name] == nil {
			runs[name] = map[string][]float64{}
			names = append(names, name)
		}
		for _, n := range number.FindAllStringSubmatch(m[2], -1) {
			value, err := strconv.ParseFloat(n[1], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark of vgdp: %s: %w", name, err)
			}
			runs[name][n[2]] = append(runs[name][n[2]], value)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("benchmark of vgdp: it printed no numbers")
	}
	var rows []Row
	for _, name := range names {
		rows = append(rows, loadRow(name, runs[name]))
	}
	return rows, nil
}

// loadRow is of the medians of a benchmark's runs, by unit.
func loadRow(name string, runs map[string][]float64) Row {
	middle := func(unit string) float64 {
		if len(runs[unit]) == 0 {
			return 0
		}
		return slices.Sorted(slices.Values(runs[unit]))[len(runs[unit])/2]
	}
	took := func(unit string) time.Duration { return time.Duration(middle(unit) * float64(time.Millisecond)) }
	ours := took("cpu-ms/op")
	if peer := took("model-cpu-ms/op"); peer > 0 {
		return Row{
			What: "who of 200 loads on 20 nodes goes on", Ours: short(ours),
			Peer: "the same rules, plainly: all is counted anew for each load: " + short(peer), Ratio: cheaper(over(peer, ours)),
		}
	}
	_, limit, _ := strings.Cut(name, ",_limit_")
	what := "limit " + limit
	if limit == "0" {
		what = "no limit but pressure"
	}
	return Row{
		What: "who of 50,000 loads on 5,000 nodes goes on, " + what,
		Ours: fmt.Sprintf("%s, %.0f allocations", short(ours), middle("allocs/op")),
		Goal: AtMost(float64(decisionLimit), float64(ours), short(decisionLimit)),
	}
}
