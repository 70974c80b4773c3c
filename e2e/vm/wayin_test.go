package vm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

// The kubelet's configuration of whether it listens. Who may ask it is not what these
// tests are about, and only the API server reaches it.
const (
	deaf    = "enableServer: false\n"
	hearing = "enableServer: true\nauthentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
)

// wayIn is an HTTP proxy into the network of a machine: for the API server, which has
// one where it does not reach its nodes itself, and for Prometheus.
type wayIn struct {
	socket  string // for CONNECT
	server  *httptest.Server
	machine atomic.Pointer[vm.VM] // nil until it has booted
}

func newWayIn(t *testing.T) *wayIn {
	t.Helper()
	dir, err := os.MkdirTemp("", "plimsoll-way-") //nolint:usetesting // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	w := &wayIn{socket: filepath.Join(dir, "proxy")}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.socket)
	require.NoError(t, err)
	local := &http.Server{Handler: w} //nolint:gosec // only the API server of the test asks
	served := make(chan error, 1)
	go func() { served <- local.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, local.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return w
}

// egress is a file that has an API server ask nodes, pods and services through w.
func (w *wayIn) egress(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "egress.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, w.socket)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// open the way into a machine.
func (w *wayIn) open(m *vm.VM) { w.machine.Store(m) }

func (w *wayIn) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m := w.machine.Load()
	if m == nil {
		return nil, fmt.Errorf("dial %s: the machine has not booted", address)
	}
	return m.Dial(ctx, address)
}

func (w *wayIn) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		forward := httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{DialContext: w.dial, DisableKeepAlives: true}}
		forward.ServeHTTP(answer, r)
		return
	}
	to, err := w.dial(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, buffered, err := http.NewResponseController(answer).Hijack()
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	defer from.Close()
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // either may end it
		ended <- struct{}{}
	}
	go pass(to, buffered)
	go pass(from, to)
	<-ended
}
