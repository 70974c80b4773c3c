package evict

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// At soft, where memory is short and no disk is pressed.
func TestTolerationOfWantedTaint(t *testing.T) {
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	for what, row := range map[string]struct {
		toleration corev1.Toleration
		want       Code
	}{
		"of the taint":                    {exists("plimsoll.dev/MemoryContention", ""), CodeTolerates},
		"of it, with its effect at soft":  {exists("plimsoll.dev/MemoryContention", corev1.TaintEffectPreferNoSchedule), CodeTolerates},
		"of it at hard alone":             {exists("plimsoll.dev/MemoryContention", corev1.TaintEffectNoSchedule), CodeEvicted},
		"of it when it ends pods":         {exists("plimsoll.dev/MemoryContention", corev1.TaintEffectNoExecute), CodeEvicted},
		"of one that nothing calls for":   {exists("plimsoll.dev/DiskContention", ""), CodeEvicted},
		"of none, though one has no name": {exists("plimsoll.dev/", ""), CodeEvicted},
		"of all, whatever they are":       {exists("", ""), CodeTolerates},
	} {
		t.Run(what, func(t *testing.T) {
			memory, nameless := pressing(named("a", 30)), pressing()
			memory.Level, memory.MetLevel, memory.Named = plugins.Soft, plugins.Soft, true
			nameless.Plugin, nameless.Condition, nameless.Level, nameless.MetLevel = "files", "", plugins.Soft, plugins.Soft
			in := round(0, []pods.Pod{pod("a", func(p *pods.Pod) { p.Tolerations = []corev1.Toleration{row.toleration} })}, disk(plugins.None), nameless, memory)
			d, _ := play(in, &api{})
			assert.Equal(t, map[string]Code{"a": row.want}, codes(d))
		})
	}
}
