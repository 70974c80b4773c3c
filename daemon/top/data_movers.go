package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// throttledShown in a frame.
const throttledShown = 3

// dataMoverLines show data movers, where there are any or something limits them.
func dataMoverLines(s *view.State) []line {
	if s.Cluster == nil || s.Cluster.DataMovers == nil {
		return nil
	}
	l := s.Cluster.DataMovers
	if l.Running == 0 && l.Budget == nil && l.StartHoldUntil.IsZero() && len(l.Throttled) == 0 && l.Problem == "" {
		return nil
	}
	lines := []line{{{"data movers", bold}, {"  " + l.Text(), levelStyle(max(l.Level, plugins.None))}}}
	for _, t := range l.Throttled[:min(throttledShown, len(l.Throttled))] {
		lines = append(lines, line{{"  throttled: ", dim}, {t.Text(), plain}})
	}
	if l.Problem != "" {
		lines = append(lines, line{{"  " + view.Printable(l.Problem), yellow}})
	}
	return lines
}
