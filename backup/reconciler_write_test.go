package backup

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// lastWrite is a client whose leader's term ends while it writes.
type lastWrite struct {
	dynamic.NamespaceableResourceInterface

	end context.CancelFunc
}

func (w lastWrite) Namespace(string) dynamic.ResourceInterface { return unanswered{end: w.end} }

type unanswered struct {
	dynamic.ResourceInterface

	end context.CancelFunc
}

func (u unanswered) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	u.end()
	return nil, ctx.Err()
}

// A write whose answer does not come, since the leader's term ends, counts as failed: the
// Backup may have started, and its wait is not counted.
func TestWriteAtEndOfTerm(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	r := &Reconciler{Backups: lastWrite{end: end}, Log: slog.New(slog.DiscardHandler)}
	_, failed := r.write(ctx, &velero{}, []write{{kind: kindStart, object: &Object{}}})
	assert.True(t, failed)
	assert.Equal(t, uint64(1), r.Counts().Failures)
	assert.Empty(t, r.Counts().Waits)
}
