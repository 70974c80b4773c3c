package kube

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// evict's own tests run without the race detector, so the one for which its Log has a
// mutex is here.
func TestLogConcurrentReaders(t *testing.T) {
	l := evict.Log{Max: 10}
	const added = 500
	var readers errgroup.Group
	for range 4 {
		readers.Go(func() error {
			for newest := -1; newest < added-1; {
				list := l.List()
				if len(list) == 0 {
					continue
				}
				first := int(list[0].Time.Sub(at(0)).Seconds())
				if first < newest || len(list) > l.Max {
					return fmt.Errorf("%d of %d decisions, newest %d after %d", len(list), l.Max, first, newest)
				}
				newest = first
				list[0].Causes[0].Scope = "the reader's own"
			}
			return nil
		})
	}
	levels := []plugins.Level{plugins.Soft, plugins.Hard}
	for i := range added {
		d := evict.Decision{
			ID: fmt.Sprint(i), Code: evict.CodeSoft, Time: at(i),
			Causes: []evict.Cause{{Plugin: "memory-stall", Scope: "node", Level: levels[i%2]}},
		}
		l.Add(d)
		l.Update(d.ID, func(d *evict.Decision) { d.After = []evict.Cause{{Scope: "node"}} })
	}
	require.NoError(t, readers.Wait())
	require.Len(t, l.List(), l.Max)
}
