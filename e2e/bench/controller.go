package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// controllerLimit is how much of a CPU the controller may use that listens to 5,000 agents.
const controllerLimit = 0.05

// controllerCPU runs the test of the controller beside simulated agents and a real API server,
// which prints what it used.
func controllerCPU(ctx context.Context, o *options) ([]Row, error) {
	o.say("the controller with 5,000 simulated agents")
	out, err := goTest(ctx, []string{"PLIMSOLL_LONG=1"}, "-count=1", "-v", "-run", "^TestManyAgents$/^silence_at_scale$", "./e2e")
	if err != nil {
		return nil, fmt.Errorf("test of the controller: %w: %s", err, out)
	}
	row, err := controllerRow(out)
	return []Row{row}, err
}

// controllerRow is made of what the test prints.
func controllerRow(out string) (Row, error) {
	m := regexp.MustCompile(`(\d+) agents, (\S+) renewals/s: (\S+) % of a core, (.+) resident at most; a bare watch of their Leases: (\S+) %`).FindStringSubmatch(out)
	if m == nil {
		return Row{}, fmt.Errorf("test of the controller: it printed no share of a core: %s", out)
	}
	percent, err := strconv.ParseFloat(m[3], 64)
	bare, err2 := strconv.ParseFloat(m[5], 64)
	if err := errors.Join(err, err2); err != nil {
		return Row{}, fmt.Errorf("test of the controller: %w", err)
	}
	return Row{
		What: fmt.Sprintf("the controller, %s simulated agents, which renew %s times a second in all", m[1], m[2]),
		Ours: fmt.Sprintf("%s %% of a CPU; %s resident at most", m[3], m[4]),
		Peer: fmt.Sprintf("client-go's watch of the same Leases, which keeps nothing: %s %%", m[5]), Ratio: digits(percent/bare) + " ×",
		Goal: AtMost(controllerLimit, percent/100, "5 % of a CPU"),
	}, nil
}
