package e2e_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// deschedulerPolicy lets the descheduler evict the pods of an app that are older than a
// second.
const deschedulerPolicy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: e2e
    pluginConfig:
      - name: DefaultEvictor
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: 1, namespaces: {include: [%s]}, labelSelector: {matchLabels: {app: %s}}}
    plugins:
      deschedule: {enabled: [PodLifeTime]}
`

// The real descheduler evicts a large pod on a node under pressure. What that pod uses
// counts as released until it is gone, so no other pod is evicted for the same pressure.
func TestEvictBesideDescheduler(t *testing.T) {
	t.Parallel()
	live.Long(t, "the real descheduler, built once in some minutes")
	program, err := cluster.Program(t.Context(), cluster.Descheduler)
	require.NoError(t, err)
	w := startWorld(t)
	w.c.Node(t, w.node+"-2") // the descheduler does nothing in a cluster of one node
	deaf := func(p *corev1.PodTemplateSpec) {
		grace := int64(9)
		p.Spec.TerminationGracePeriodSeconds = &grace
		p.Spec.Containers[0] = holder(250, "deaf")
	}
	w.deploy("aged", 250, deaf)
	w.deploy("other", 100, nil)
	aged, other := w.running("aged"), w.running("other")
	w.start()
	w.seen(aged, 240)
	w.seen(other, 90)

	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, policy, fmt.Sprintf(deschedulerPolicy, w.namespace, "aged"))
	eventually(t, "the descheduler evicts it, once it is older than a second", func() error {
		ctx, cancel := deadline.Context(t.Context(), patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, "--kubeconfig", w.c.Kubeconfig, "--policy-config-file", policy, "--secure-port=0", "--v=2").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Evicted pod") {
			return errors.Join(err, errors.New(string(out)))
		}
		return nil
	})
	require.NoError(t, w.ending(aged))

	w.press(true)
	d := w.decided("what the descheduler evicted is credited", func(d evict.Decision) bool { return d.Code == evict.CodeTerminating })
	assert.Contains(t, d.Reason, w.namespace+"/"+aged.Name+" is terminating")
	assert.NotEmpty(t, d.Causes[0].Credit)
	eventually(t, "it is gone", func() error {
		require.NoError(t, w.unharmed(other), "while the other was ending: %v", w.words())
		return w.gone(aged)
	})
	w.calm()
	w.noEvictionFor(2 * time.Second)
	require.NoError(t, w.unharmed(other))
	assert.Empty(t, w.evicted(), strings.Join(w.words(), "\n"))
}
