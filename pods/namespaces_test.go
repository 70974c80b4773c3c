package pods

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/names"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l lab) namespaceLabel(user *rest.Config, to *lockedBuffer) *NamespaceLabel {
	l.Helper()
	client, err := kubernetes.NewForConfig(user)
	require.NoError(l, err)
	n := NewNamespaceLabel(names.Throttle, client.CoreV1(), slog.New(slog.NewTextHandler(to, nil)))
	ctx, stop := context.WithCancel(l.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	l.Cleanup(func() {
		stop()
		assert.NoError(l, <-ended)
	})
	return n
}

// grants lets the default service account do that with namespaces.
func (l lab) grants(verbs ...string) {
	l.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs}}}
	_, err := l.client.RbacV1().ClusterRoles().Create(l.Context(), role, metav1.CreateOptions{})
	require.NoError(l, err)
	_, err = l.client.RbacV1().ClusterRoleBindings().Create(l.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: l.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: l.namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: l.namespace, Name: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(l, err)
}

// The label of a namespace on a real API server, with list and watch alone. That deploy/
// grants them is shown there.
func TestNamespaceLabel(t *testing.T) {
	t.Parallel()
	l, c := shared(t)
	reader, err := c.ServiceAccountConfig(t.Context(), l.namespace, "default", cluster.BoundTo{})
	require.NoError(t, err)
	var log lockedBuffer
	n := l.namespaceLabel(reader, &log)
	l.eventually("that it may not is logged", func() bool { return strings.Contains(log.String(), "cannot watch the labels of namespaces") })
	assert.Contains(t, log.String(), "forbidden")
	assert.Equal(t, Unlisted, n.Value(l.namespace))
	l.grants("list", "watch")
	label := func(value string) {
		t.Helper()
		_, err := l.client.CoreV1().Namespaces().Patch(t.Context(), l.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+names.Throttle+`":`+value+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	label(`"never"`)
	l.eventually("it is known", func() bool { return n.Value(l.namespace) == "never" })
	label(`"allow"`)
	l.eventually("it has another", func() bool { return n.Value(l.namespace) == "allow" })
	label("null")
	l.eventually("it has none", func() bool { return n.Value(l.namespace) == "" })
	assert.Empty(t, (*NamespaceLabel)(nil).Value("any"), "standalone there are none")
	assert.Equal(t, Unlisted, NewNamespaceLabel(names.Throttle, nil, nil).Value(l.namespace), "it does not watch yet")
}
