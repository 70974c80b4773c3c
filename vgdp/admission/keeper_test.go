package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

var errAway = errors.New("connection refused")

// away is an API server that is.
type away struct{ dynamic.ResourceInterface }

func (away) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, errAway
}

func (away) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, errAway
}

func (away) Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error) {
	return nil, errAway
}

// readOnly are Gates that cannot be written.
type readOnly struct {
	away
	of *gates
}

func (r readOnly) Get(ctx context.Context, name string, o metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return r.of.Get(ctx, name, o)
}

func TestGateKeptWhileAPIServerAway(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Now().Add(-20 * time.Second))
	main := &gate.Gate{Spec: gate.Spec{RenewTime: &renewed, LeaseDurationSeconds: 30, Epoch: 7, Limited: true}}
	k := keeper{gates: away{}, lease: 30 * time.Second, clock: &clock{}, main: main, epoch: 7}
	require.ErrorIs(t, k.renew(t.Context(), desiredGates{limited: true}, 7), errAway)
	for range 2 {
		require.ErrorIs(t, k.read(t.Context()), errAway)
		assert.Same(t, main, k.main)
		assert.ErrorIs(t, k.renew(t.Context(), desiredGates{limited: true}, 7), errAway, "it is due")
	}
	assert.Equal(t, int64(7), k.epoch, "nobody else has claimed it")
}
