package guard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What web configurations say; secret is the password of prometheus.
const (
	secret    = "load line"
	withUsers = "basic_auth_users: {prometheus: $2a$04$n1xIPBHV0xr6FNVmQEmSnOVp50labHmNkpNby1KCSSWPsKq1iif4y}\n"
	withTLS   = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
	withMTLS  = "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem, client_auth_type: %s}\n"
)

// required asks for a client certificate, offered takes one.
func required() string { return fmt.Sprintf(withMTLS, "RequireAndVerifyClientCert") }
func offered() string  { return fmt.Sprintf(withMTLS, "VerifyClientCertIfGiven") }

// guarded is a server behind a guard.
type guarded struct {
	t         *testing.T
	dir       string
	authority *authority
	address   string
	tls       bool
}

// guard a server by a web configuration; empty: none.
func guard(t *testing.T, config string, tokens *Tokens) *guarded {
	t.Helper()
	s := &guarded{t: t, dir: t.TempDir(), authority: newAuthority(t)}
	s.authority.write(s.dir)
	g := &Authenticator{Tokens: tokens, Open: []string{"/-/healthy"}, Log: slog.New(slog.DiscardHandler)}
	if config != "" {
		g.File = s.write(config)
	}
	mux := http.NewServeMux()
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	mux.Handle("GET /metrics", says("metrics"))
	mux.Handle("GET /-/healthy", says("healthy"))
	mux.Handle("/", RequireAuthenticated(says("page")))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var err error
	s.tls, err = g.Protect(srv)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = l.Addr().String()
	done := make(chan error, 1)
	go func() {
		if s.tls {
			done <- srv.ServeTLS(l, "", "")
			return
		}
		done <- srv.Serve(l)
	}()
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return s
}

// write the web configuration anew.
func (s *guarded) write(config string) (file string) {
	s.t.Helper()
	file = filepath.Join(s.dir, "web.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(config), 0o600))
	return file
}

// client is who asks, on a connection of its own each time.
type client struct {
	cert           *tls.Certificate
	user, password string
	token          string
	trusts         *authority // nil: the server's own
	sessions       tls.ClientSessionCache
}

// get a path: status and text, or why there was no connection.
func (s *guarded) get(path string, by client) (int, string, error) {
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if s.tls {
		scheme = "https"
		roots := x509.NewCertPool()
		if by.trusts == nil {
			by.trusts = s.authority
		}
		roots.AddCert(by.trusts.cert)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, ClientSessionCache: by.sessions}
		if by.cert != nil {
			// Also where the server asks for another authority's.
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return by.cert, nil }
		}
	}
	return ask(s.t, transport, scheme+"://"+s.address+path, by)
}

func ask(t *testing.T, transport *http.Transport, url string, by client) (int, string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if by.user != "" {
		r.SetBasicAuth(by.user, by.password)
	}
	if by.token != "" {
		r.Header.Set("Authorization", "Bearer "+by.token)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// status of an answer that must come.
func (s *guarded) status(path string, by client) int {
	s.t.Helper()
	status, _, err := s.get(path, by)
	require.NoError(s.t, err)
	return status
}

func TestAuthTLSServerIdentity(t *testing.T) {
	s := guard(t, withTLS, nil)
	status, text, err := s.get("/metrics", client{})
	require.NoError(t, err)
	assert.Equal(t, "200 metrics", fmt.Sprint(status, " ", text))
	_, _, err = s.get("/metrics", client{trusts: newAuthority(t)})
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
	status, _, err = ask(t, &http.Transport{DisableKeepAlives: true}, "http://"+s.address+"/metrics", client{})
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, status)
}

func TestAuthClientCertificateRequired(t *testing.T) {
	s := guard(t, required(), nil)
	for name, cert := range map[string]*tls.Certificate{
		"none": nil, "expired": s.authority.client(-time.Hour), "of another authority": newAuthority(t).client(time.Hour),
	} {
		for _, path := range []string{"/metrics", "/-/healthy", "/"} {
			_, _, err := s.get(path, client{cert: cert})
			var refused *net.OpError
			require.ErrorAs(t, err, &refused, "%s: %s", name, path)
			assert.Contains(t, refused.Error(), "remote error: tls", name)
		}
	}
	good := client{cert: s.authority.client(time.Hour)}
	assert.Equal(t, http.StatusOK, s.status("/metrics", good))
	assert.Equal(t, http.StatusOK, s.status("/", good), "it has proved who it is")
}

func TestAuthPasswordWrong(t *testing.T) {
	s := guard(t, withUsers, nil)
	for name, by := range map[string]client{
		"none": {}, "wrong": {user: "prometheus", password: "load lime"}, "nobody": {user: "somebody", password: secret}, "a token": {token: secret},
	} {
		assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", by), name)
		assert.Equal(t, http.StatusUnauthorized, s.status("/", by), name)
		assert.Equal(t, http.StatusOK, s.status("/-/healthy", by), name)
	}
	good := client{user: "prometheus", password: secret}
	assert.Equal(t, http.StatusOK, s.status("/metrics", good))
	assert.Equal(t, http.StatusOK, s.status("/", good))
}

func TestAuthPagesNeedIdentity(t *testing.T) {
	s := guard(t, offered(), nil)
	assert.Equal(t, http.StatusOK, s.status("/metrics", client{}), "the file asks nobody who it is")
	assert.Equal(t, http.StatusNotFound, s.status("/", client{}))
	assert.Equal(t, http.StatusOK, s.status("/", client{cert: s.authority.client(time.Hour)}))
	assert.Equal(t, http.StatusNotFound, guard(t, withTLS, nil).status("/", client{}), "encryption tells nothing of who asks")
	assert.Equal(t, http.StatusNotFound, guard(t, "", nil).status("/", client{user: "prometheus", password: secret}), "nobody checks")
}

func TestAuthPasswordsReload(t *testing.T) {
	s := guard(t, withUsers, nil)
	by := client{user: "prometheus", password: secret}
	assert.Equal(t, http.StatusOK, s.status("/", by))
	s.write("basic_auth_users: {}\n")
	assert.Equal(t, http.StatusNotFound, s.status("/", by), "nobody checks passwords any more")
	assert.Equal(t, http.StatusOK, s.status("/metrics", by))
	s.write(withUsers)
	assert.Equal(t, http.StatusUnauthorized, s.status("/metrics", client{}))
	assert.Equal(t, http.StatusOK, s.status("/", by))
}

func TestAuthBadFileRefusesAll(t *testing.T) {
	s := guard(t, withUsers, nil)
	by := client{user: "prometheus", password: secret}
	assert.Equal(t, http.StatusOK, s.status("/metrics", by))
	for _, bad := range []string{"basic_auth_user: {}\n", "no: yaml: at all\n\t"} {
		s.write(bad)
		assert.Equal(t, http.StatusInternalServerError, s.status("/metrics", by))
		assert.Equal(t, http.StatusInternalServerError, s.status("/", by))
		assert.Equal(t, http.StatusOK, s.status("/-/healthy", client{}))
	}
	require.NoError(t, os.Remove(filepath.Join(s.dir, "web.yaml")))
	assert.Equal(t, http.StatusInternalServerError, s.status("/metrics", by))
}

func TestAuthServerCertificateReload(t *testing.T) {
	s := guard(t, withTLS, nil)
	assert.Equal(t, http.StatusOK, s.status("/metrics", client{}))
	old := s.authority
	s.authority = newAuthority(t)
	s.authority.write(s.dir)
	assert.Equal(t, http.StatusOK, s.status("/metrics", client{}), "of another authority now")
	_, _, err := s.get("/metrics", client{trusts: old})
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
}

func TestAuthClientCAReload(t *testing.T) {
	s := guard(t, required(), nil)
	by := client{cert: s.authority.client(time.Hour), trusts: s.authority, sessions: tls.NewLRUClientSessionCache(1)}
	assert.Equal(t, http.StatusOK, s.status("/metrics", by))
	// Of the clients alone, so that the session could go on.
	before := s.authority
	s.authority = newAuthority(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "ca.pem"), block("CERTIFICATE", s.authority.cert.Raw), 0o600))
	_, _, err := s.get("/metrics", by)
	require.Error(t, err, "a session that goes on is judged anew")
	by.sessions = nil
	_, _, err = s.get("/metrics", by)
	require.Error(t, err)
	by.trusts = before
	by.cert = s.authority.client(time.Hour)
	assert.Equal(t, http.StatusOK, s.status("/metrics", by))
}

func TestAuthBadFileAtStartOneLine(t *testing.T) {
	dir := t.TempDir()
	for text, why := range map[string]string{
		"tls_server_config: {cert_file: cert.pem}\n":                     "missing one of key or key_file",
		"tls_server_config: {cert_file: none.pem, key_file: none.pem}\n": "no such file",
		"basic_auth_users: {prometheus: secret}\n":                       "bcrypt",
		"basic_auth_user: {prometheus: secret}\n":                        "field basic_auth_user not found",
		"http_server_config: {headers: {Server: x}}\n":                   "Server",
	} {
		file := filepath.Join(dir, "web.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := (&Authenticator{File: file, Log: slog.New(slog.DiscardHandler)}).Protect(&http.Server{Handler: http.NewServeMux(), ReadHeaderTimeout: time.Second})
		require.ErrorContains(t, err, why)
		assert.NotContains(t, err.Error(), "\n")
		assert.Contains(t, err.Error(), file)
	}
	_, err := (&Authenticator{File: filepath.Join(dir, "none"), Log: slog.New(slog.DiscardHandler)}).Protect(&http.Server{Handler: http.NewServeMux(), ReadHeaderTimeout: time.Second})
	require.Error(t, err)
	assert.False(t, errors.Is(err, net.ErrClosed))
}

func TestAuthHostMustBeAddress(t *testing.T) {
	h := RequireAddressHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"127.0.0.1:9773": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:9773": http.StatusOK, "[::1]": http.StatusOK,
		"localhost:9773": http.StatusOK, "LOCALHOST": http.StatusOK,
		"evil.example:9773": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden, "": http.StatusForbidden,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}
}
