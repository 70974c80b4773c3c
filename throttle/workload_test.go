package throttle

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestOf(t *testing.T) {
	protected := []pods.Protection{{Code: pods.DaemonSet, Why: "DaemonSet logs would recreate it on this node"}}
	static := []pods.Protection{{Code: pods.Static, Why: "it is static"}}
	for name, row := range map[string]struct {
		config     func(*Config)
		pod        pods.Pod
		namespace  string // its label
		optOutHard []string
		soft, hard string // why it is exempt at that level
	}{
		"BestEffort":                 {pod: pods.Pod{QoS: bestEffort}},
		"reclaimed":                  {pod: pods.Pod{QoS: burstable, LowQoS: true}},
		"Burstable":                  {pod: pods.Pod{QoS: burstable}, soft: "QoS class Burstable is not in throttle.classes", hard: "QoS class Burstable is not in throttle.classes"},
		"Burstable, configured":      {config: func(c *Config) { c.Classes = []string{burstable} }, pod: pods.Pod{QoS: burstable}},
		"Burstable, allowed":         {pod: pods.Pod{QoS: burstable, Throttle: allow}},
		"Guaranteed":                 {pod: pods.Pod{QoS: guaranteed, Throttle: allow}, soft: "it is Guaranteed: it uses what it requested", hard: "it is Guaranteed: it uses what it requested"},
		"never evicted":              {pod: pods.Pod{QoS: bestEffort, Protections: protected}, soft: "protected: DaemonSet logs", hard: "protected: DaemonSet logs"},
		"never evicted, allowed":     {pod: pods.Pod{QoS: bestEffort, Protections: protected, Throttle: allow}},
		"static, allowed":            {pod: pods.Pod{QoS: bestEffort, Protections: static, Throttle: allow}, soft: "protected: it is static", hard: "protected: it is static"},
		"static, of an allowed one":  {pod: pods.Pod{QoS: bestEffort, Protections: static}, namespace: allow},
		"forbidden by its owner":     {pod: pods.Pod{QoS: bestEffort, Throttle: never}, soft: "its owner forbids it: label plimsoll.dev/throttle=never"},
		"by a value with a typo":     {pod: pods.Pod{QoS: bestEffort, Throttle: "nevr"}, soft: "its owner forbids it: label plimsoll.dev/throttle=nevr"},
		"by a trusted owner":         {pod: pods.Pod{Namespace: "shop", QoS: bestEffort, Throttle: never}, optOutHard: []string{"shop"}, soft: "its owner", hard: "its owner"},
		"by any owner":               {pod: pods.Pod{Namespace: "shop", QoS: bestEffort, Throttle: never}, optOutHard: []string{"*"}, soft: "its owner", hard: "its owner"},
		"its namespace forbids it":   {pod: pods.Pod{Namespace: "shop", QoS: bestEffort, Throttle: allow}, namespace: never, soft: "namespace shop forbids it: label plimsoll.dev/throttle=never", hard: "namespace shop forbids it"},
		"with a typo":                {pod: pods.Pod{Namespace: "shop", QoS: bestEffort}, namespace: "alow", soft: "namespace shop forbids it: label plimsoll.dev/throttle=alow", hard: "namespace shop forbids it"},
		"its namespace allows it":    {pod: pods.Pod{QoS: burstable, Protections: protected}, namespace: allow},
		"but its owner does not":     {pod: pods.Pod{QoS: burstable, Throttle: never}, namespace: allow, soft: "its owner forbids it"},
		"Guaranteed all the same":    {pod: pods.Pod{QoS: guaranteed}, namespace: allow, soft: "it is Guaranteed", hard: "it is Guaranteed"},
		"in a namespace of never":    {config: func(c *Config) { c.Never = []string{"shop"} }, pod: pods.Pod{Namespace: "shop", QoS: bestEffort, Throttle: allow}, soft: "namespace shop", hard: "namespace shop"},
		"throttling is switched off": {config: func(c *Config) { c.Enabled = false }, pod: pods.Pod{QoS: bestEffort, Throttle: allow}, soft: "throttle.enabled", hard: "throttle.enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			if row.config != nil {
				row.config(&c)
			}
			row.pod.CPURequestMillicores = 1500
			w := c.Of(&row.pod, row.namespace, row.optOutHard)
			assert.True(t, w.DryRun)
			assert.InDelta(t, 1.5, w.RequestCores, 1e-9)
			for level, want := range map[plugins.Level]string{plugins.Soft: row.soft, plugins.Hard: row.hard} {
				why := w.Exemption(level)
				assert.Contains(t, why, want)
				assert.Equal(t, want == "", why == "", why)
			}
		})
	}
}

// While the labels of namespaces are not listed a pod gets no limit, and keeps what it has:
// its namespace may forbid it.
func TestOfUnlistedNamespace(t *testing.T) {
	c := DefaultConfig()
	w := c.Of(&pods.Pod{Namespace: "shop", QoS: bestEffort, Throttle: allow}, pods.Unlisted, nil)
	require.True(t, w.Unlisted)
	assert.Empty(t, Next(nil, taken(0, plugins.Hard, w)))
	list := Next(nil, taken(0, plugins.Hard, Workload{}))
	held := Next(list, taken(1, plugins.Hard, w))[pod]
	assert.True(t, held.InForce())
	w = c.Of(&pods.Pod{Namespace: "shop", QoS: guaranteed}, pods.Unlisted, nil)
	assert.NotEmpty(t, w.Exempt, "it is exempt whatever its namespace says")
}
