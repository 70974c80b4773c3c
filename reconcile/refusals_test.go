package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var errWebhook = apierrors.NewInternalError(errors.New(`failed calling webhook "x": EOF`))

func TestRefusedErrors(t *testing.T) {
	of := schema.GroupResource{Group: "velero.io", Resource: "backups"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "velero.io", Kind: "Backup"}, "b", nil)
	for _, tt := range []struct {
		err             error
		refused, counts bool
	}{
		{invalid, true, true},
		{apierrors.NewForbidden(of, "b", errors.New("a policy")), true, true},
		{apierrors.NewBadRequest("a webhook"), true, true},
		{fmt.Errorf("patch: %w", invalid), true, true},
		{errWebhook, false, true},
		{fmt.Errorf("patch: %w", context.DeadlineExceeded), false, true},
		{fmt.Errorf("patch: %w", io.EOF), false, true}, // the connection was lost
		{apierrors.NewConflict(of, "b", errors.New("it has changed")), false, false},
		{apierrors.NewNotFound(of, "b"), false, false},
		{apierrors.NewUnauthorized("an old token"), false, false},
		{apierrors.NewTooManyRequests("busy", 1), false, false},
		{apierrors.NewInternalError(errors.New("etcd")), false, false},
		{apierrors.NewServiceUnavailable("it starts"), false, false},
		{apierrors.NewTimeoutError("late", 1), false, false},
		{fmt.Errorf("patch: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), false, false},
	} {
		assert.Equal(t, tt.refused, Refused(tt.err), "%v", tt.err)
		var r Refusals
		assert.Equal(t, tt.counts, r.Failed("u", "5", tt.err, true) == 1, "%v", tt.err)
		assert.Equal(t, tt.counts, r.Held("u", "5"), "%v", tt.err)
		assert.False(t, r.Held("u", "6"), "it has changed")
	}
}

// heldFor is how long an object is held from now on.
func heldFor(r *Refusals) time.Duration {
	begun := time.Now()
	for r.Begin(time.Now()); r.Held("u", "5"); r.Begin(time.Now()) {
		time.Sleep(time.Second)
	}
	return time.Since(begun)
}

func TestRefusalPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Refusals
		for i := range 3 { // of an API server that is away
			require.Equal(t, i+1, r.Failed("w", "5", context.DeadlineExceeded, false))
			time.Sleep(settleTime)
			r.Begin(time.Now())
			assert.False(t, r.Held("w", "5"), "no other was changed since")
		}
		for i, want := range []time.Duration{40 * time.Second, 80 * time.Second, 160 * time.Second, RefusedFor, RefusedFor} {
			r.Made() // another one
			require.Equal(t, i+1, r.Failed("u", "5", errWebhook, true))
			_, unknown := r.Unknown("u", "5")
			assert.False(t, unknown, "nothing was written")
			assert.Equal(t, want, heldFor(&r), i)
		}
		assert.Contains(t, r.Reason("u", "5"), "failed calling webhook")
		r.Failed("u", "5", context.DeadlineExceeded, false)
		assert.Equal(t, RefusedFor, heldFor(&r))
		assert.Zero(t, r.Failed("v", "5", io.EOF, false), "it gives nothing")
		time.Sleep(4 * RefusedFor)
		r.Begin(time.Now())
		assert.True(t, r.None(), "it is forgotten")
		assert.LessOrEqual(t, len(Why(errors.New(strings.Repeat("ä", 9000)))), 500)
	})
}

// one is an API server with one object.
type one struct {
	dynamic.ResourceInterface

	version string
	err     error
	lists   int
}

func (o *one) List(_ context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if o.lists++; o.err != nil || options.FieldSelector != "metadata.name=b" {
		return nil, o.err
	}
	u := unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID("u")
	u.SetResourceVersion(o.version)
	return &unstructured.UnstructuredList{Items: []unstructured.Unstructured{u}}, nil
}

// A write without an answer counts as made until a list says that it was not.
func TestRefusalUnanswered(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		err     error
		want    bool // it counts as made still
	}{
		"not made":                 {"5", nil, false},
		"made":                     {"6", nil, true},
		"the server is still away": {"5", errors.New("connection refused"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r Refusals
				server := &one{version: c.version, err: c.err}
				for _, held := range []time.Duration{0, 40 * time.Second} { // after the first time it is tried at once
					r.Failed("u", "5", context.DeadlineExceeded, true)
					for range 39 {
						r.Settle(t.Context(), "u", "5", "b", server)
						_, unknown := r.Unknown("u", "5")
						require.True(t, unknown)
						time.Sleep(time.Second)
					}
					require.Zero(t, server.lists)
					time.Sleep(time.Second)
					r.Settle(t.Context(), "u", "5", "b", server)
					assert.Equal(t, 1, server.lists)
					_, unknown := r.Unknown("u", "5")
					assert.Equal(t, c.want, unknown)
					r.Begin(time.Now())
					if c.want {
						assert.True(t, r.Held("u", "5"))
						r.Settle(t.Context(), "u", "5", "b", server)
						assert.Equal(t, 1, server.lists, "not again so soon")
						return
					}
					assert.Equal(t, held, heldFor(&r))
					server.lists = 0
				}
			})
		})
	}
}
