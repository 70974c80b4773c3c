package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestResource(t *testing.T) {
	seen := map[string]vgdp.Kind{}
	for _, k := range Kinds() {
		name := Resource(k).Resource
		assert.NotEmpty(t, name, k)
		assert.Empty(t, seen[name], "%s and %s are two", k, seen[name])
		seen[name] = k
	}
	assert.Zero(t, Resource("BlockUpload"), "an unknown kind is no other")
}
