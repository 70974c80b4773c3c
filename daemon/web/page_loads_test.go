package web

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

func TestPageDataMovers(t *testing.T) {
	s := fullState()
	p := newPageCluster(s)
	require.Len(t, p.Throttled, 3)
	assert.Contains(t, p.Throttled[0], "velero/du-1: sda limited to ")
	assert.Equal(t, []string{"shop/web, sda: it is Guaranteed", "limits could not be changed: limit /du-1 read 8:0: input/output error"}, p.NotThrottled)
	f := p.Facts[2]
	assert.Equal(t, "Data movers", f.Name)
	assert.Contains(t, f.Text, "3 running, budget 2")
	assert.True(t, f.Hot)
	assert.Equal(t, "disk soft on sda (read-only file system)", f.Of)

	for of, l := range map[string]*view.DataMovers{
		"limited by Velero's configuration only": {},
		"pressure on this node unknown: no PSI":  {Absent: "no PSI"},
	} {
		c := *s.Cluster
		c.DataMovers = l
		s.Cluster = &c
		f := newPageCluster(s).Facts[2]
		assert.Equal(t, of, f.Of)
		assert.False(t, f.Hot)
	}
}
