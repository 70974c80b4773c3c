package vgdp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKind(t *testing.T) {
	t.Run("an unknown one has no label of another", func(t *testing.T) {
		assert.Empty(t, Kind("BlockUpload").Facts().PodLabel)
	})
	t.Run("an unknown one has no exposer of another", func(t *testing.T) {
		facts := Kind("BlockUpload").Facts()
		assert.Equal(t, "unknown exposer", facts.Exposer)
		assert.Equal(t, "unknown", facts.Prefix)
	})
}
