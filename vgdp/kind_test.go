package vgdp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKind(t *testing.T) {
	t.Run("an unknown one has no label of another", func(t *testing.T) {
		assert.Empty(t, Kind("BlockUpload").PodLabel())
	})
	t.Run("an unknown one has no exposer of another", func(t *testing.T) {
		name, prefix := (&Facts{Kind: "BlockUpload"}).words()
		assert.Equal(t, "unknown exposer", name)
		assert.Equal(t, "unknown", prefix)
	})
}
