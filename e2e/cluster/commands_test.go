package cluster

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program that was given a port may not listen yet when the next one is given another.
func TestPortsGivenOnce(t *testing.T) {
	p := place{host: "127.91.0.1", given: new(atomic.Uint32)}
	given := map[int]bool{}
	for range 2000 {
		port, err := p.freePort(t.Context())
		require.NoError(t, err)
		require.False(t, given[port], "%d", port)
		given[port] = true
	}
	assert.Len(t, given, 2000)
}
