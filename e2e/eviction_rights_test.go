package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// By the API server's own audit log: what each did is what it may do. The API
// server streams no lists, as those before Kubernetes 1.34 did not: the client
// then lists pods, else it only watches them.
func TestExactlyTheirRightsAreUsed(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Audit: true, Args: map[string][]string{cluster.APIServer: {"--feature-gates=WatchList=false"}}})
	t.Run("by the controller", func(t *testing.T) { controllerUsesExactlyItsRights(t, c) })
	t.Run("by the agent", func(t *testing.T) { agentUsesExactlyItsRights(t, c) }) // policies bind it to its node
}

func agentUsesExactlyItsRights(t *testing.T, c *cluster.Cluster) {
	w := startWorldOf(t, c)
	w.deploy("presser", 150, nil)
	w.localVolume("volume", 100)
	w.running("volume")
	presser := w.running("presser")
	w.start()
	w.seen(presser, 140)
	w.press(true)
	w.decided("somebody is evicted", isEvicted)
	var used map[string]int
	within(t, 2*patience, "every right is used", func() error {
		w.sway()
		used = w.used()
		for _, right := range granted(t) {
			if used[right] == 0 {
				return fmt.Errorf("%s is granted and was not used; used: %v", right, used)
			}
		}
		return nil
	})
	w.calm()
	assert.ElementsMatch(t, granted(t), slices.Collect(maps.Keys(w.used())))
	for _, right := range granted(t) {
		t.Logf("%-40s used %d times", right, used[right])
	}
}

// sway turns the weather once the agent has seen it. Each pressure that begins
// and ends is some Events; many of a kind are joined by the client, which takes
// another verb.
func (w *world) sway() {
	if v := w.agent.pressure().memory(w.t); v.MetLevel == plugins.Hard || v.Level == plugins.None {
		w.press(v.Level == plugins.None)
	}
}

// granted are the rights of deploy/, as "verb resource".
func granted(t *testing.T) []string {
	return append(grantedBy(t, deploy.RBAC), grantedBy(t, deploy.RBACEvictDirect)...)
}

func grantedBy(t *testing.T, manifest []byte) (rights []string) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, rights)
			return rights
		}
		require.NoError(t, err)
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, verb+" "+resource)
				}
			}
		}
	}
}

// used is what the agent's account did.
func (w *world) used() map[string]int { return usedBy(w.t, w.c, "plimsoll-agent") }
