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

// Tokens judges bearer tokens by the API server: a TokenReview says whose a
// token is, a SubjectAccessReview whether that user may do this to the path (see
// nonResourceURL). An answer holds for a while, whether or not the API server is
// there; without one nobody passes.
type Tokens struct {
	Reviews  authenticationclient.TokenReviewInterface
	Accesses authorizationclient.SubjectAccessReviewInterface
	Log      *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu      sync.Mutex // guards answers
	answers map[question]answer
}

// How long an answer holds. A no is short: who was just given the right need not
// wait for it.
const (
	yesHolds = time.Minute
	noHolds  = 10 * time.Second
)

const (
	askTimeout = 5 * time.Second
	maxToken   = 16 << 10 // larger than any that a cluster makes
	maxAnswers = 1000     // strangers cannot make it grow
)

// question is a hash of token, verb and path: no token is kept.
type question [sha256.Size]byte

// answer is an HTTP status: 200, 401 or 403.
type answer struct {
	status int
	until  time.Time
}

// bearer is the token of a request (RFC 6750, 2.1).
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// serve next to whom the API server allows it.
func (t *Tokens) serve(w http.ResponseWriter, r *http.Request, token string, next http.Handler) {
	status, err := t.judge(r.Context(), token, strings.ToLower(r.Method), nonResourceURL(r.URL.Path))
	if err != nil {
		t.Log.Warn("cannot review a bearer token; request refused", "path", r.URL.Path, "error", err)
		status = http.StatusServiceUnavailable
	}
	switch status {
	case http.StatusOK:
		next.ServeHTTP(w, asKnown(r))
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token of this cluster is needed", status)
	case http.StatusForbidden:
		http.Error(w, "the token's user may not "+strings.ToLower(r.Method)+" this path", status)
	default:
		http.Error(w, "the API server did not answer the token review", status)
	}
}

// nonResourceURL is what a path of ours is called in a role: /metrics, as with
// every exporter, and the others below /plimsoll. By their own names Kubernetes
// grants every token some of them: /api/* (the ClusterRole system:discovery).
func nonResourceURL(path string) string {
	if path == "/metrics" {
		return path
	}
	return "/plimsoll" + path
}

// judge is the status for a token; an error: the API server does not say.
func (t *Tokens) judge(ctx context.Context, token, verb, path string) (int, error) {
	if token == "" || len(token) > maxToken {
		return http.StatusUnauthorized, nil
	}
	q := question(sha256.Sum256([]byte(token + "\x00" + verb + "\x00" + path)))
	if status := t.known(q); status != 0 {
		return status, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, err := t.ask(ctx, token, verb, path)
	if err != nil {
		return 0, err
	}
	t.keep(q, status)
	return status, nil
}

// ask the API server.
func (t *Tokens) ask(ctx context.Context, token, verb, path string) (int, error) {
	review, err := t.Reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	access, err := t.Accesses.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user.Extra),
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

func extra(of map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
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

// known is an answer that still holds, or 0.
func (t *Tokens) known(q question) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.answers[q]; ok && t.now().Before(a.until) {
		return a.status
	}
	return 0
}

// keep an answer. Where there are too many those that no longer hold go, then
// every no: only strangers get so many.
func (t *Tokens) keep(q question, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, holds := t.now(), noHolds
	if status == http.StatusOK {
		holds = yesHolds
	}
	if t.answers == nil {
		t.answers = map[question]answer{}
	}
	if len(t.answers) >= maxAnswers {
		for q, a := range t.answers {
			if a.status != http.StatusOK || !now.Before(a.until) {
				delete(t.answers, q)
			}
		}
	}
	if len(t.answers) < maxAnswers {
		t.answers[q] = answer{status, now.Add(holds)}
	}
}
