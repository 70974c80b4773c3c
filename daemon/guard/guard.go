// Package guard authenticates the clients of an HTTP server: by a password or a
// client certificate of the web configuration (the file of Prometheus'
// exporter-toolkit), or by a bearer token that the API server reviews.
//
// # Usage
//
//	srv := &http.Server{Handler: mux}
//	g := &guard.Authenticator{File: "/etc/plimsoll/web.yaml", Open: []string{"/-/healthy"}, Log: log}
//	tls, err := g.Protect(srv)
//	if tls { err = srv.ServeTLS(listener, "", "") }
//
// # Concurrency
//
// After Protect the server may serve any number of clients. The file is read
// again for each connection and each request, so passwords, certificates and
// authorities can change while the server runs; with an invalid file every
// client is refused.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/files"
)

// Authenticator authenticates the clients of a server. The zero value admits every
// client, without an identity.
type Authenticator struct {
	// File is the web configuration; empty: none.
	File string
	// Tokens reviews bearer tokens; nil: tokens are not accepted.
	Tokens *Tokens
	// Open paths are served without authentication.
	Open []string
	Log  *slog.Logger
}

// maxWebConfig bounds the web configuration, which may list users.
const maxWebConfig = 1 << 20

// Protect puts authentication before the server's handler, and TLS into the
// server if the file configures it: then it must serve TLS. It fails if the
// file is invalid.
func (g *Authenticator) Protect(srv *http.Server) (tls bool, err error) {
	served, byFile := srv.Handler, srv.Handler
	if g.File != "" {
		if _, err := files.Read(g.File, maxWebConfig); err != nil { // the toolkit reads it without a bound
			return false, fmt.Errorf("web configuration %s: %w", g.File, err)
		}
		srv.Handler = g.markAuthenticated(served)
		if err := byToolkit(srv, g.File, g.Log); err != nil {
			return false, fmt.Errorf("web configuration %s: %s", g.File, strings.Join(strings.Fields(err.Error()), " "))
		}
		byFile = srv.Handler
		tls = srv.TLSConfig != nil && srv.TLSConfig.GetConfigForClient != nil
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, isToken := bearer(r.Header)
		switch {
		case slices.Contains(g.Open, r.URL.Path):
			served.ServeHTTP(w, r)
		case g.Tokens != nil && (isToken || !g.hasUsers()):
			g.Tokens.serve(w, r, token, served)
		default:
			byFile.ServeHTTP(w, r)
		}
	})
	return tls, nil
}

// byToolkit lets exporter-toolkit install its handler and its TLS. It exports
// neither, so it is made to serve once, on a closed listener.
func byToolkit(srv *http.Server, file string, log *slog.Logger) error {
	err := web.Serve(closedListener{}, srv, &web.FlagConfig{WebConfigFile: &file}, slog.New(onlyErrors{log.Handler()}))
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// closedListener is a closed listener.
type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return &net.TCPAddr{} }

// onlyErrors drops the toolkit's messages about its listener.
type onlyErrors struct{ slog.Handler }

func (h onlyErrors) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

// markAuthenticated marks a request as authenticated that passed the toolkit, if the
// toolkit demands a password or verified a client certificate.
func (g *Authenticator) markAuthenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.hasUsers() || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			r = withAuthenticated(r)
		}
		next.ServeHTTP(w, r)
	})
}

// hasUsers tells whether the file demands passwords now; an invalid file does
// not.
func (g *Authenticator) hasUsers() bool {
	if g.File == "" {
		return false
	}
	text, err := files.Read(g.File, maxWebConfig)
	if err != nil {
		return false
	}
	var c struct {
		Users map[string]string `yaml:"basic_auth_users"`
	}
	return yaml.Unmarshal(text, &c) == nil && len(c.Users) > 0
}

// authenticatedKey is the context key of the mark that a client is authenticated.
type authenticatedKey struct{}

func withAuthenticated(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), authenticatedKey{}, true))
}

// RequireAuthenticated serves authenticated clients; the others get 404.
func RequireAuthenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known, _ := r.Context().Value(authenticatedKey{}).(bool); !known {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// RequireAddressHost serves only requests whose Host is an IP address or localhost.
// Otherwise a website could point its name at 127.0.0.1 and read what loopback
// serves (DNS rebinding).
func RequireAddressHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if net.ParseIP(host) == nil && !strings.EqualFold(host, "localhost") {
			http.Error(w, "unknown host name: use the server's address or localhost (web.open)", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
