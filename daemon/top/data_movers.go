package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// dataMoverLines show data movers, where there are any or something limits them.
func dataMoverLines(s *view.State) []line {
	if s.Cluster == nil || s.Cluster.DataMovers == nil {
		return nil
	}
	l := s.Cluster.DataMovers
	if l.Running == 0 && l.Budget == nil && l.StartHoldUntil.IsZero() && l.Problem == "" {
		return nil
	}
	lines := []line{{{"data movers", bold}, {"  " + l.Text(), levelStyle(max(l.Level, plugins.None))}}}
	if l.Problem != "" {
		lines = append(lines, line{{"  " + view.Printable(l.Problem), yellow}})
	}
	return lines
}

// throttledShown in a frame.
const throttledShown = 3

// throttleLines show who is throttled, and which culprits are not.
func throttleLines(s *view.State) []line {
	if s.Cluster == nil || s.Cluster.Throttles == nil {
		return nil
	}
	l := s.Cluster.Throttles
	var lines []line
	all := l.All()
	for _, text := range all[:min(throttledShown, len(all))] {
		lines = append(lines, line{{"throttled  ", bold}, {text, plain}})
	}
	if more := len(all) - throttledShown; more > 0 {
		lines = append(lines, line{{"  and " + view.Count(uint64(more)) + " more", dim}})
	}
	for _, e := range l.Exempt[:min(throttledShown, len(l.Exempt))] {
		lines = append(lines, line{{"not throttled  ", dim}, {e.Text(), dim}})
	}
	if l.Problem != "" {
		lines = append(lines, line{{"  " + view.Printable(l.Problem), yellow}})
	}
	return lines
}
