package process

import (
	"fmt"
	"log/slog"
	"time"

	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

// NewGuard returns nil if neither a file nor tokens authenticate clients.
func NewGuard(file string, tokens bool, kubeconfig string, log *slog.Logger) (*guard.Authenticator, error) {
	if file == "" && !tokens {
		return nil, nil
	}
	g := &guard.Authenticator{File: file, Open: web.ProbePaths(), Log: log}
	if !tokens {
		return g, nil
	}
	how, err := RestConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if g.Tokens, err = newTokens(how, log); err != nil {
		return nil, fmt.Errorf("web.tokenReview: %w", err)
	}
	return g, nil
}

// Rate limit (token bucket) of the token reviews and of the access reviews:
// unknown clients must not load the API server.
const (
	reviewsPerSecond = 5
	reviewBurst      = 10
	reviewTimeout    = 5 * time.Second
)

func newTokens(how *rest.Config, log *slog.Logger) (*guard.Tokens, error) {
	how = rest.CopyConfig(how)
	how.QPS, how.Burst, how.Timeout = reviewsPerSecond, reviewBurst, reviewTimeout
	authentication, err := authenticationclient.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationclient.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	return &guard.Tokens{Reviews: authentication.TokenReviews(), Accesses: authorization.SubjectAccessReviews(), Log: log}, nil
}
