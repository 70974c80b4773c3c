package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// fakeReviews is a STAND-IN for the API server, in which each token is the name of
// its user: of these two alone.
type fakeReviews struct {
	away          atomic.Bool
	asked         atomic.Int64
	clock         atomic.Int64                                        // seconds
	last          atomic.Pointer[authorizationv1.SubjectAccessReview] // that was asked for
	scraperIsGone atomic.Bool
}

func (v *fakeReviews) tokens() *Tokens {
	return &Tokens{
		Reviews: tokenReviews{fakeReviews: v}, Accesses: accesses{fakeReviews: v}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(v.clock.Load(), 0) },
	}
}

type tokenReviews struct {
	authenticationclient.TokenReviewInterface
	*fakeReviews
}

func (v tokenReviews) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	v.asked.Add(1)
	if v.away.Load() {
		return nil, errors.New("connection refused")
	}
	name := r.Spec.Token
	if name == "scraper" && !v.scraperIsGone.Load() || name == "passerby" {
		r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: name, UID: "uid-" + name, Groups: []string{"all"}, Extra: map[string]authenticationv1.ExtraValue{"node": {"n1"}},
		}}
	}
	return r, nil
}

type accesses struct {
	authorizationclient.SubjectAccessReviewInterface
	*fakeReviews
}

func (v accesses) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	v.last.Store(r.DeepCopy())
	a := r.Spec.NonResourceAttributes
	r.Status.Allowed = r.Spec.User == "scraper" && a.Verb == "get" && a.Path == "/metrics"
	return r, nil
}

func TestAuthTokenReview(t *testing.T) {
	v := &fakeReviews{}
	s := guard(t, "", v.tokens())
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, "stranger": http.StatusUnauthorized, "passerby": http.StatusForbidden, "scraper": http.StatusOK,
	} {
		assert.Equal(t, want, s.status("/metrics", client{token: token}), token)
		assert.Equal(t, http.StatusOK, s.status("/-/healthy", client{token: token}), token)
	}
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", client{user: "scraper", password: "scraper"}), "a password is no token")
	assert.Equal(t, http.StatusForbidden, s.status("/", client{token: "scraper"}), "the right to one path is none to another")
	assert.Equal(t, authorizationv1.SubjectAccessReviewSpec{
		User: "scraper", UID: "uid-scraper", Groups: []string{"all"}, Extra: map[string]authorizationv1.ExtraValue{"node": {"n1"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/plimsoll/"},
	}, v.last.Load().Spec)
}

func TestAuthTokenCacheExpiry(t *testing.T) {
	v := &fakeReviews{}
	s := guard(t, "", v.tokens())
	scraper, passerby := client{token: "scraper"}, client{token: "passerby"}
	assert.Equal(t, http.StatusOK, s.status("/metrics", scraper))
	assert.Equal(t, http.StatusForbidden, s.status("/metrics", passerby))
	v.away.Store(true)
	v.clock.Add(9)
	assert.Equal(t, http.StatusOK, s.status("/metrics", scraper))
	assert.Equal(t, http.StatusForbidden, s.status("/metrics", passerby))
	assert.EqualValues(t, 2, v.asked.Load())
	v.clock.Add(1)
	assert.Equal(t, http.StatusServiceUnavailable, s.status("/metrics", passerby), "a no holds for 10 s")
	v.clock.Add(49)
	assert.Equal(t, http.StatusOK, s.status("/metrics", scraper))
	v.clock.Add(1)
	assert.Equal(t, http.StatusServiceUnavailable, s.status("/metrics", scraper), "a yes holds for a minute")
	assert.Equal(t, http.StatusServiceUnavailable, s.status("/metrics", client{token: "stranger"}))
	assert.Equal(t, http.StatusOK, s.status("/-/healthy", client{}))
	v.away.Store(false)
	assert.Equal(t, http.StatusOK, s.status("/metrics", scraper), "that it was away is not kept")
	v.scraperIsGone.Store(true)
	v.clock.Add(60)
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", scraper))
}

func TestAuthTokenCacheBounded(t *testing.T) {
	v := &fakeReviews{}
	tokens := v.tokens()
	status, err := tokens.status(t.Context(), "scraper", "get", "/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	for i := range 5 * maxCached {
		status, err := tokens.status(t.Context(), fmt.Sprint("stranger", i), "get", "/metrics")
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		require.LessOrEqual(t, len(tokens.cache), maxCached)
	}
	before := v.asked.Load()
	status, err = tokens.status(t.Context(), "scraper", "get", "/metrics")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, before, v.asked.Load(), "it was still known")
	for i := len(tokens.cache); i < maxCached; i++ {
		tokens.store(cacheKey{byte(i), byte(i >> 8)}, http.StatusUnauthorized)
	}
	tokens.store(cacheKey{255}, http.StatusOK)
	assert.Equal(t, http.StatusOK, tokens.cached(cacheKey{255}), "who comes when all room is taken has some")
	status, err = tokens.status(t.Context(), strings.Repeat("x", maxToken+1), "get", "/metrics")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Equal(t, before, v.asked.Load(), "no cluster makes such a token")
}

func TestAuthPasswordOrToken(t *testing.T) {
	s := guard(t, withUsers, (&fakeReviews{}).tokens())
	assert.Equal(t, http.StatusOK, s.status("/metrics", client{user: "prometheus", password: secret}))
	assert.Equal(t, http.StatusOK, s.status("/metrics", client{token: "scraper"}))
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", client{user: "prometheus", password: "wrong"}))
	assert.Equal(t, http.StatusForbidden, s.status("/metrics", client{token: "passerby"}))
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", client{}))
	s.write("basic_auth_users: {}\n")
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", client{}), "without passwords a token is needed")
}

func TestAuthCertificateBesideToken(t *testing.T) {
	s := guard(t, required(), (&fakeReviews{}).tokens())
	by := client{cert: s.authority.client(time.Hour)}
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", by))
	by.token = "scraper"
	assert.Equal(t, http.StatusOK, s.status("/metrics", by))
	by.cert = nil
	_, _, err := s.get("/metrics", by)
	require.Error(t, err)
}

func FuzzAuthBearerHeader(f *testing.F) {
	for _, seed := range []string{"Bearer x", "bearer  x ", "Basic Og==", "Bearer", "", "Bearerx", "bEaReR a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, ok := bearer(http.Header{"Authorization": {value}})
		if !ok {
			return
		}
		require.True(t, len(value) >= len("bearer") && strings.EqualFold(value[:len("bearer")], "bearer"), value)
		require.Equal(t, strings.TrimSpace(token), token)
	})
}
