package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// throttledShown in a frame.
const throttledShown = 3

// loads shows data movers, where there are any or something limits them.
func (f *frame) loads(s *view.State) {
	if s.Cluster == nil || s.Cluster.Loads == nil {
		return
	}
	l := s.Cluster.Loads
	if l.Running == 0 && l.Budget == nil && l.HoldUntil.IsZero() && len(l.Throttled) == 0 && l.Problem == "" {
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
