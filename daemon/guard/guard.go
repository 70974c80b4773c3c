// Package guard decides who may ask an HTTP server: whoever has a password or a
// client certificate of the web configuration (the file of Prometheus'
// exporter-toolkit), or a bearer token that the API server vouches for.
//
// # Usage
//
//	srv := &http.Server{Handler: mux}
//	g := &guard.Guard{File: "/etc/plimsoll/web.yaml", Open: []string{"/-/healthy"}, Log: log}
//	tls, err := g.Protect(srv)
//	if tls { err = srv.ServeTLS(listener, "", "") }
//
// # Concurrency
//
// After Protect the server may be asked by any number of clients. The file is
// read anew for each connection and each request, so passwords, certificates and
// authorities change while the server runs; a file that is bad lets nobody in.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
)

// Guard stands before a server. The zero value lets everybody in and knows
// nobody.
type Guard struct {
	// File is the web configuration; empty: none.
	File string
	// Tokens judges bearer tokens; nil: none are taken.
	Tokens *Tokens
	// Open paths are for everybody who gets a connection.
	Open []string
	Log  *slog.Logger
}

// maxHeader bounds a request's header, which a stranger writes.
const maxHeader = 64 << 10

// Protect puts the guard before what the server serves, and certificates into
// the server where the file has them: then it must serve TLS. It fails when the
// file is bad.
func (g *Guard) Protect(srv *http.Server) (tls bool, err error) {
	srv.MaxHeaderBytes = maxHeader
	served, byFile := srv.Handler, srv.Handler
	if g.File != "" {
		srv.Handler = g.known(served)
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

// byToolkit lets exporter-toolkit put its handler and its TLS into a server. It
// exports neither, so it serves once, on a listener that is closed already.
func byToolkit(srv *http.Server, file string, log *slog.Logger) error {
	err := web.Serve(closed{}, srv, &web.FlagConfig{WebConfigFile: &file}, slog.New(onlyErrors{log.Handler()}))
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// closed is a listener that is.
type closed struct{}

func (closed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closed) Close() error              { return nil }
func (closed) Addr() net.Addr            { return &net.TCPAddr{} }

// onlyErrors is a log without what the toolkit says about its listener.
type onlyErrors struct{ slog.Handler }

func (h onlyErrors) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}

// known notes that whoever passed the toolkit has proved who it is: it did so
// where there are passwords, or by a certificate that was verified.
func (g *Guard) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.hasUsers() || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			r = asKnown(r)
		}
		next.ServeHTTP(w, r)
	})
}

// hasUsers tells whether the file asks for passwords now; a bad one does not.
func (g *Guard) hasUsers() bool {
	if g.File == "" {
		return false
	}
	text, err := os.ReadFile(g.File)
	if err != nil {
		return false
	}
	var c struct {
		Users map[string]string `yaml:"basic_auth_users"`
	}
	return yaml.Unmarshal(text, &c) == nil && len(c.Users) > 0
}

// who is the key of what a request's context says of its client.
type who struct{}

func asKnown(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), who{}, true))
}

// ToKnown serves clients that have proved who they are; for others there is
// nothing.
func ToKnown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known, _ := r.Context().Value(who{}).(bool); !known {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ByAddress serves clients that name the server by its address, or as localhost.
// A site in a browser can point its own name at 127.0.0.1, and would else read
// what loopback shows (DNS rebinding).
func ByAddress(next http.Handler) http.Handler {
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
