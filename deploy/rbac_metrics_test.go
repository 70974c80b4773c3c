package deploy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func TestRoleTokenReviewAlone(t *testing.T) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC, ControllerRBAC, RBACMetrics))
	roles := c.Client.RbacV1()
	t.Cleanup(func() { // the tests after this one count on its not being so
		require.NoError(t, roles.ClusterRoleBindings().Delete(cleanup(t), "plimsoll-token-review", metav1.DeleteOptions{}))
	})
	role, err := roles.ClusterRoles().Get(t.Context(), "system:auth-delegator", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []rbacv1.PolicyRule{
		{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
		{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
	}, role.Rules)
	for _, account := range []string{"plimsoll-agent", "plimsoll-controller"} {
		granted(t, account, func() bool {
			return may(t, c, account, authorizationv1.SubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
			})
		})
	}
}

func TestRoleMetricsReaderAlone(t *testing.T) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC, RBACMetrics))
	bindings := c.Client.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scrapers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "plimsoll-system", Name: "scraper"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, name := range []string{"scrapers", "plimsoll-token-review"} {
			require.NoError(t, bindings.Delete(cleanup(t), name, metav1.DeleteOptions{}))
		}
	})
	reads := func(path string) bool {
		return may(t, c, "scraper", authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path},
		})
	}
	granted(t, "/metrics", func() bool { return reads("/metrics") })
	for _, path := range []string{"/plimsoll/", "/plimsoll/api/v1/snapshot", "/plimsoll/debug/pprof/heap"} {
		assert.False(t, reads(path), path)
	}
}

// may asks the API server what an account of plimsoll-system may do.
func may(t *testing.T, c *cluster.Cluster, account string, what authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	what.User, what.Groups = "system:serviceaccount:plimsoll-system:"+account, []string{"system:serviceaccounts", "system:authenticated"}
	review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: what}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}
