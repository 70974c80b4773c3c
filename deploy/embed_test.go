package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// agentRights are the verbs of the agent's role by resource.
func agentRights(t *testing.T) map[string]string {
	rights := map[string]string{}
	for document := range strings.SplitSeq(string(RBAC), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		for _, rule := range role.Rules {
			assert.Empty(t, rule.ResourceNames)
			for _, resource := range rule.Resources {
				rights[resource] += strings.Join(rule.Verbs, ",")
			}
		}
	}
	return rights
}

func TestAgentRoleVerbs(t *testing.T) {
	assert.Equal(t, map[string]string{
		"pods":                   "list,watch",
		"nodes":                  "get,patch",
		"nodes/status":           "patch",
		"namespaces":             "list,watch",
		"persistentvolumeclaims": "get",
		"persistentvolumes":      "get",
		"events":                 "create,patch",
		"leases":                 "get,create,patch",
	}, agentRights(t))
}

func TestAgentRoleOnAPIServer(t *testing.T) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC, RBACEvictDirect))
	require.NoError(t, c.Apply(t.Context(), RBAC, RBACEvictDirect), "a second time")
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
			asked := func() bool {
				return may(t, c, "plimsoll-agent", authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: "default", Verb: ask.verb, Resource: resource, Subresource: sub,
				}})
			}
			if ask.may {
				granted(t, "the right", asked)
			} else {
				assert.False(t, asked())
			}
		})
	}
}

func TestAgentRoleLeaseNamespace(t *testing.T) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC))
	leases := func(namespace, verb string) bool {
		return may(t, c, "plimsoll-agent", authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: "coordination.k8s.io", Resource: "leases",
		}})
	}
	for _, verb := range []string{"get", "create", "patch"} {
		granted(t, verb, func() bool { return leases("plimsoll-node-lease", verb) })
		assert.False(t, leases("kube-node-lease", verb), "%s of a Node's own", verb)
		assert.False(t, leases("plimsoll-system", verb), "%s of the controller's", verb)
	}
	for _, verb := range []string{"delete", "update", "list", "watch"} {
		assert.False(t, leases("plimsoll-node-lease", verb), verb)
	}
	require.NoError(t, c.Apply(t.Context(), RBACLeaseNode))
	t.Cleanup(func() { // the tests after this one count on its not being so
		require.NoError(t, c.Client.RbacV1().RoleBindings("kube-node-lease").Delete(cleanup(t), "plimsoll-agent", metav1.DeleteOptions{}))
	})
	for _, verb := range []string{"get", "create", "patch"} {
		granted(t, verb+" of a Node's own", func() bool { return leases("kube-node-lease", verb) })
	}
	assert.False(t, leases("kube-node-lease", "delete"))
}
