package abilities

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// server has the definitions of a version, or an error.
type server struct {
	dynamic.ResourceInterface
	has   map[string]*unstructured.Unstructured
	err   error
	hangs bool
	asked int
}

func (s *server) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	s.asked++
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	if u := s.has[name]; u != nil {
		return u, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

func (s *server) install(t *testing.T, version string) {
	t.Helper()
	s.has = map[string]*unstructured.Unstructured{}
	for _, d := range definitions(t, version) {
		s.has[d.GetName()] = d
	}
}

func TestReader(t *testing.T) {
	with := func(t *testing.T, test func(*testing.T, *server, *Reader, *bytes.Buffer)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s, log := &server{}, &bytes.Buffer{}
			test(t, s, &Reader{Definitions: s, Log: slog.New(slog.NewTextHandler(log, nil))}, log)
		})
	}
	t.Run("an upgrade is seen within a minute, and logged", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, log *bytes.Buffer) {
			s.install(t, "v1.16.2")
			assert.Equal(t, "not read yet", r.Last().Unread)
			assert.False(t, r.Now(t.Context()).Queues())
			assert.Equal(t, 3, strings.Count(log.String(), "capability is not available"), log.String())
			assert.Contains(t, log.String(), "a node-agent starts each at once")
			s.install(t, "v1.18.3")
			assert.False(t, r.Now(t.Context()).Queues(), "it is not asked each time")
			time.Sleep(interval)
			assert.True(t, r.Now(t.Context()).Queues())
			assert.Equal(t, 3, strings.Count(log.String(), "capability is available"), log.String())
			assert.True(t, r.Last().Queues())
			assert.Equal(t, 2*len(Definitions()), s.asked)
		})
	})
	t.Run("nothing is logged of the newest", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, log *bytes.Buffer) {
			s.install(t, "v1.18.3")
			r.Now(t.Context())
			assert.Empty(t, log.String())
		})
	})
	t.Run("a failure keeps what was read", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, log *bytes.Buffer) {
			s.install(t, "v1.16.2")
			r.Now(t.Context())
			s.err = errors.New("away")
			time.Sleep(interval)
			assert.False(t, r.Now(t.Context()).Queues())
			s.err = nil
			s.install(t, "v1.18.3")
			time.Sleep(retry)
			assert.True(t, r.Now(t.Context()).Queues())
		})
	})
	t.Run("without the right it is unknown, told once, and tried again", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, log *bytes.Buffer) {
			s.err = apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, "x", nil)
			for range 3 {
				assert.Contains(t, r.Now(t.Context()).Unread, "forbidden")
				time.Sleep(retry)
			}
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
			s.err = nil
			s.install(t, "v1.17.2")
			assert.Empty(t, r.Now(t.Context()).Unread)
		})
	})
	t.Run("a server that hangs costs its callers two seconds", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, _ *bytes.Buffer) {
			s.hangs = true
			began := time.Now()
			assert.NotEmpty(t, r.Now(t.Context()).Unread)
			assert.Equal(t, timeout, time.Since(began))
			r.Now(t.Context())
			assert.Equal(t, timeout, time.Since(began), "not again at once")
		})
	})
	t.Run("a caller that ends says nothing of the server", func(t *testing.T) {
		with(t, func(t *testing.T, s *server, r *Reader, log *bytes.Buffer) {
			s.hangs = true
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			assert.Equal(t, "not read yet", r.Now(ctx).Unread)
			assert.Empty(t, log.String())
		})
	})
	t.Run("without velero it says so", func(t *testing.T) {
		with(t, func(t *testing.T, _ *server, r *Reader, _ *bytes.Buffer) {
			assert.Equal(t, errNone.Error(), r.Now(t.Context()).Unread)
		})
	})
}
