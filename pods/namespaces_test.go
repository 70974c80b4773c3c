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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/deploy"
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
	n := &NamespaceLabel{Label: names.Throttle, Namespaces: client.CoreV1(), Log: slog.New(slog.NewTextHandler(to, nil))}
	ctx, stop := context.WithCancel(l.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	l.Cleanup(func() {
		stop()
		assert.NoError(l, <-ended)
	})
	return n
}

// The label of a namespace on a real API server, read with the rights that deploy/ grants.
func TestNamespaceLabel(t *testing.T) {
	t.Parallel()
	l, c := shared(t)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	agent, err := c.ServiceAccountConfig(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	label := func(value string) {
		t.Helper()
		_, err := l.client.CoreV1().Namespaces().Patch(t.Context(), l.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+names.Throttle+`":`+value+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	var log lockedBuffer
	n := l.namespaceLabel(agent, &log)
	assert.Empty(t, n.Value(l.namespace))
	label(`"never"`)
	l.eventually("it is known", func() bool { return n.Value(l.namespace) == "never" })
	label(`"allow"`)
	l.eventually("it has another", func() bool { return n.Value(l.namespace) == "allow" })
	label("null")
	l.eventually("it has none", func() bool { return n.Value(l.namespace) == "" })
	assert.Empty(t, log.String())
	assert.Empty(t, (*NamespaceLabel)(nil).Value("any"), "standalone there are none")

	nobody, err := c.ServiceAccountConfig(t.Context(), l.namespace, "default", cluster.BoundTo{})
	require.NoError(t, err)
	var refused lockedBuffer
	n = l.namespaceLabel(nobody, &refused)
	l.eventually("that it may not is logged", func() bool { return strings.Contains(refused.String(), "cannot watch the labels of namespaces") })
	assert.Contains(t, refused.String(), "forbidden")
	assert.Empty(t, n.Value(l.namespace))
}
