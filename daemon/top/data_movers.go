package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// throttledShown in a frame.
const throttledShown = 3

// dataMovers shows data movers, where there are any or something limits them.
func (f *frame) dataMovers(s *view.State) {
	if s.Cluster == nil || s.Cluster.DataMovers == nil {
		return
	}
	l := s.Cluster.DataMovers
	if l.Running == 0 && l.Budget == nil && l.StartHoldUntil.IsZero() && len(l.Throttled) == 0 && l.Problem == "" {
		return
	}
	f.add(line{{"data movers", bold}, {"  " + l.Text(), levelStyle(max(l.Level, plugins.None))}})
	for _, t := range l.Throttled[:min(throttledShown, len(l.Throttled))] {
		f.add(line{{"  throttled: ", dim}, {t.Text(), plain}})
	}
	if l.Problem != "" {
		f.add(line{{"  " + view.Printable(l.Problem), yellow}})
	}
}
