package guard

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Tokens reviews bearer tokens at the API server: a TokenReview identifies the
// user, a SubjectAccessReview tells whether the user may access the path (see
// nonResourceURL). Answers are cached, also while the API server is away;
// without an answer the request is refused.
type Tokens struct {
	Reviews  authenticationclient.TokenReviewInterface
	Accesses authorizationclient.SubjectAccessReviewInterface
	Log      *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu    sync.Mutex // guards answers
	cache map[cacheKey]cachedStatus
}

// How long an answer is cached. A refusal is short, so that a newly granted
// right works soon.
const (
	allowedTTL = time.Minute
	refusedTTL = 10 * time.Second
)

const (
	reviewTimeout = 5 * time.Second
	maxToken      = 16 << 10 // longer than any token that a cluster issues
	maxCached     = 1000     // bound of the cache, which unknown clients fill
)

// cacheKey is a hash of token, verb and path, so that no token is stored.
type cacheKey [sha256.Size]byte

// cachedStatus is an HTTP status: 200, 401 or 403.
type cachedStatus struct {
	status int
	until  time.Time
}

// bearer is the token of a request (RFC 6750, 2.1).
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// serve calls next for clients that the API server allows.
func (t *Tokens) serve(w http.ResponseWriter, r *http.Request, token string, next http.Handler) {
	status, err := t.status(r.Context(), token, strings.ToLower(r.Method), nonResourceURL(r.URL.Path))
	if err != nil {
		t.Log.Warn("cannot review a bearer token; request refused", "path", r.URL.Path, "error", err)
		status = http.StatusServiceUnavailable
	}
	switch status {
	case http.StatusOK:
		next.ServeHTTP(w, withAuthenticated(r))
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token of this cluster is needed", status)
	case http.StatusForbidden:
		http.Error(w, "the token's user may not "+strings.ToLower(r.Method)+" this path", status)
	default:
		http.Error(w, "the API server did not answer the token review", status)
	}
}

// nonResourceURL is the URL that a role grants for a path of ours: /metrics, as
// with every exporter, the others below /plimsoll. Their own names would not
// do: Kubernetes grants every token some of them, such as /api/* (ClusterRole
// system:discovery).
func nonResourceURL(path string) string {
	if path == "/metrics" {
		return path
	}
	return "/plimsoll" + path
}

// status is the HTTP status for a token; an error if the API server does not
// answer.
func (t *Tokens) status(ctx context.Context, token, verb, path string) (int, error) {
	if token == "" || len(token) > maxToken {
		return http.StatusUnauthorized, nil
	}
	q := cacheKey(sha256.Sum256([]byte(token + "\x00" + verb + "\x00" + path)))
	if status := t.cached(q); status != 0 {
		return status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := t.review(ctx, token, verb, path)
	if err != nil {
		return 0, err
	}
	t.store(q, status)
	return status, nil
}

// review sends both reviews to the API server.
func (t *Tokens) review(ctx context.Context, token, verb, path string) (int, error) {
	review, err := t.Reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	access, err := t.Accesses.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: convertExtra(user.Extra),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func convertExtra(of map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	all := map[string]authorizationv1.ExtraValue{}
	for key, values := range of {
		all[key] = authorizationv1.ExtraValue(values)
	}
	return all
}

func (t *Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// cached is a cached answer that is still valid, or 0.
func (t *Tokens) cached(q cacheKey) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.cache[q]; ok && t.now().Before(a.until) {
		return a.status
	}
	return 0
}

// store caches an answer. A full cache drops expired answers and all refusals:
// only unknown clients cause so many.
func (t *Tokens) store(q cacheKey, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, holds := t.now(), refusedTTL
	if status == http.StatusOK {
		holds = allowedTTL
	}
	if t.cache == nil {
		t.cache = map[cacheKey]cachedStatus{}
	}
	if len(t.cache) >= maxCached {
		for q, a := range t.cache {
			if a.status != http.StatusOK || !now.Before(a.until) {
				delete(t.cache, q)
			}
		}
	}
	if len(t.cache) < maxCached {
		t.cache[q] = cachedStatus{status, now.Add(holds)}
	}
}
