package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// agentRights are the verbs of the agent's role by resource.
func agentRights(t *testing.T) map[string]string {
	rights := map[string]string{}
	for document := range strings.SplitSeq(string(RBAC), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			assert.Equal(t, []string{""}, rule.APIGroups)
			assert.Empty(t, rule.ResourceNames)
			for _, resource := range rule.Resources {
				rights[resource] += strings.Join(rule.Verbs, ",")
			}
		}
	}
	return rights
}

func TestTheAgentsRoleHoldsNoVerbThatIsNotUsed(t *testing.T) {
	assert.Equal(t, map[string]string{
		"pods":                   "list,watch",
		"pods/eviction":          "create",
		"nodes":                  "get,patch",
		"nodes/status":           "patch",
		"persistentvolumeclaims": "get",
		"persistentvolumes":      "get",
		"events":                 "create,patch",
	}, agentRights(t))
}

func TestARealAPIServerGrantsTheAgentWhatItNeedsAndNothingThatHarms(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	require.NoError(t, c.Apply(t.Context(), RBAC))
	require.NoError(t, c.Apply(t.Context(), RBAC), "a second time")
	for _, ask := range []struct {
		verb, resource string
		may            bool
	}{
		{"list", "pods", true},
		{"watch", "pods", true},
		{"create", "pods/eviction", true},
		{"get", "nodes", true},
		{"patch", "nodes", true},
		{"patch", "nodes/status", true},
		{"get", "persistentvolumeclaims", true},
		{"get", "persistentvolumes", true},
		{"create", "events", true},
		{"patch", "events", true},
		{"delete", "pods", false},
		{"deletecollection", "pods", false},
		{"create", "pods", false},
		{"patch", "pods", false},
		{"create", "pods/exec", false},
		{"delete", "nodes", false},
		{"create", "nodes", false},
		{"update", "nodes", false},
		{"update", "nodes/status", false},
		{"get", "secrets", false},
		{"list", "secrets", false},
		{"create", "serviceaccounts/token", false},
		{"*", "*", false},
	} {
		t.Run(ask.verb+" "+ask.resource, func(t *testing.T) {
			resource, sub, _ := strings.Cut(ask.resource, "/")
			review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User:   "system:serviceaccount:plimsoll-system:plimsoll-agent",
					Groups: []string{"system:serviceaccounts", "system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: "default", Verb: ask.verb, Resource: resource, Subresource: sub,
					},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			assert.Equal(t, ask.may, review.Status.Allowed, review.Status.Reason)
		})
	}
}
