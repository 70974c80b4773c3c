package lease

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/client-go/rest"
)

// apiServer answers each patch of a Lease with this status; 0: the Lease is renewed.
func apiServer(t *testing.T, status func(*http.Request) int) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := status(r); code != 0 {
			w.WriteHeader(code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/nodes/n" {
			_, err := io.WriteString(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}`)
			assert.NoError(t, err)
			return
		}
		_, err := io.WriteString(w, `{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"annotations": {"same": "1"}}, "spec": {"holderIdentity": "n"}}`)
		assert.NoError(t, err)
	}))
	server.EnableHTTP2, server.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
}

// clocked is a heartbeat whose clock shows when the next attempt is due.
type clocked struct {
	*Heartbeat
	now      atomic.Int64
	renewals []time.Duration
	last     Attempt
}

func newClocked(t *testing.T, how *rest.Config) *clocked {
	t.Helper()
	line, err := NewConnection(how)
	require.NoError(t, err)
	t.Cleanup(line.Close)
	c := &clocked{}
	c.Heartbeat = &Heartbeat{
		Node: "n", Namespace: "ns", Holder: "n", Connection: line, Interval: 10 * time.Second, Duration: 40 * time.Second,
		Uptime: c.uptime, stored: &stored{holder: "n"},
		OnAttempt: func(a Attempt) {
			if c.last = a; a.Outcome.Good() {
				c.renewals = append(c.renewals, c.uptime())
			}
		},
	}
	c.rhythm = steady(0.5)
	c.pulse = c.rhythm.first(0)
	return c
}

func (c *clocked) uptime() time.Duration { return time.Duration(c.now.Load()) }

func (c *clocked) live(ctx context.Context, until time.Duration) {
	for c.pulse.due < until {
		c.now.Store(int64(c.pulse.due))
		c.attemptOnce(ctx)
	}
}

// Behind a load balancer: one API server answers 503 on its connections, and another is healthy.
func TestConnectionToSickAPIServerLeft(t *testing.T) {
	var sick atomic.Pointer[string] // the client's address of the first connection
	c := newClocked(t, apiServer(t, func(r *http.Request) int {
		if address := r.RemoteAddr; sick.CompareAndSwap(nil, &address) || *sick.Load() != address {
			return 0
		}
		return http.StatusServiceUnavailable
	}))
	c.live(t.Context(), 2*time.Minute)
	require.Greater(t, len(c.renewals), 1)
	assert.LessOrEqual(t, c.renewals[1]-c.renewals[0], c.Duration)
	assert.Len(t, c.renewals, 10, "each interval but those that the sick one cost")
	assert.EqualValues(t, 2, c.Connection.Dials.Load())
}

// A kubelet that starts while the agent renews the Node's Lease writes it as often, and leaves the holder.
func TestHeartbeatConflict(t *testing.T) {
	var patches int
	c := newClocked(t, apiServer(t, func(r *http.Request) int {
		if r.Method != http.MethodPatch {
			return 0
		}
		if patches++; patches%2 == 1 {
			return http.StatusConflict
		}
		return 0
	}))
	c.Exclusive = true
	outcomes := map[Outcome]int{}
	c.OnAttempt = func(a Attempt) { outcomes[a.Outcome]++ }
	c.live(t.Context(), time.Minute)
	assert.Equal(t, map[Outcome]int{Renewed: 7}, outcomes)
	assert.Equal(t, 14, patches)
}

// writeCertificate writes one that is valid until then, and its key.
func writeCertificate(t *testing.T, how *rest.Config, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(how.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
	require.NoError(t, os.WriteFile(how.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

func TestConnectionTakesNewCertificate(t *testing.T) {
	var c *clocked
	start := time.Now()
	how := apiServer(t, func(r *http.Request) int {
		if start.Add(c.uptime()).After(r.TLS.PeerCertificates[0].NotAfter) {
			return http.StatusUnauthorized
		}
		return 0
	})
	how.CertFile, how.KeyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	writeCertificate(t, how, start.Add(time.Minute))
	c = newClocked(t, how)
	c.live(t.Context(), 90*time.Second)
	require.Equal(t, Unauthorized, c.last.Outcome, "%v", c.last.Err)
	before := len(c.renewals)
	writeCertificate(t, how, start.Add(time.Hour))
	c.live(t.Context(), 90*time.Second+longestDial)
	require.Equal(t, Renewed, c.last.Outcome, "%v", c.last.Err)
	assert.Less(t, c.renewals[before], 90*time.Second+longestDial)
	assert.LessOrEqual(t, c.Connection.Dials.Load(), uint64(6), "dials back off")
}

// The root disk hangs after a while.
func TestConnectionDiskHangs(t *testing.T) {
	var sent atomic.Value
	how := apiServer(t, func(r *http.Request) int { sent.Store(r.Header.Get("Authorization")); return 0 })
	how.BearerTokenFile = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(how.BearerTokenFile, []byte("one\n"), 0o600))
	c := newClocked(t, how)
	c.live(t.Context(), 30*time.Second)
	assert.Equal(t, "Bearer one", sent.Load())
	require.NoError(t, os.WriteFile(how.BearerTokenFile, []byte("two\n"), 0o600))
	c.live(t.Context(), 40*time.Second)
	assert.Equal(t, "Bearer two", sent.Load(), "a new token is used at once")

	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	c.Connection.credentials.read = func() (*identity, error) { <-hangs; return nil, errNotRead }
	before := len(c.renewals)
	c.live(t.Context(), 70*time.Second)
	c.Connection.Close()
	c.live(t.Context(), 100*time.Second)
	assert.Len(t, c.renewals, before+6, "%v", c.last.Err)
	assert.Equal(t, "Bearer two", sent.Load())
	assert.EqualValues(t, 2, c.Connection.Dials.Load(), "a dial needs no disk either")
}

// nameServer answers that every name has the address 127.0.0.1, until it is silent.
func nameServer(t *testing.T) (resolver *net.Resolver, silent *atomic.Bool) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	silent = &atomic.Bool{}
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return // the test is over
			}
			var m dnsmessage.Message
			if silent.Load() || !assert.NoError(t, m.Unpack(buf[:n])) {
				continue
			}
			m.Response = true
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				}}
			}
			answer, err := m.Pack()
			assert.NoError(t, err)
			_, err = server.WriteTo(answer, from)
			assert.NoError(t, err)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}, silent
}

// The API server is known by a name, and name servers are away when its connection breaks.
func TestConnectionNameServersAway(t *testing.T) {
	how := apiServer(t, func(*http.Request) int { return 0 })
	at, err := url.Parse(how.Host)
	require.NoError(t, err)
	how.Host = "https://example.com:" + at.Port()
	c := newClocked(t, how)
	var silent *atomic.Bool
	c.Connection.resolver, silent = nameServer(t)
	c.live(t.Context(), 20*time.Second)
	require.Equal(t, Renewed, c.last.Outcome, "%v", c.last.Err)
	silent.Store(true)
	c.Connection.Close()
	before := len(c.renewals)
	c.live(t.Context(), 40*time.Second)
	assert.Len(t, c.renewals, before+2, "%v", c.last.Err)
}

func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requestTime = 2 * time.Second
		type answer struct {
			token string
			err   error
		}
		disk := make(chan answer, 1)
		c := credentials{read: func() (*identity, error) {
			a := <-disk
			return &identity{token: a.token}, a.err
		}}
		current := func(a ...answer) (token string, waited time.Duration, err error) {
			for _, one := range a {
				go func() {
					synctest.Wait() // it is waited for: a read that has failed before that is repeated
					disk <- one
				}()
			}
			ctx, cancel := context.WithTimeout(t.Context(), requestTime)
			defer cancel()
			start := time.Now()
			is, err := c.current(ctx)
			if is != nil {
				token = is.token
			}
			synctest.Wait()
			return token, time.Since(start), err
		}
		broken := errors.New("input/output error")
		for i, step := range []struct {
			disk   []answer
			token  string
			waited time.Duration
			err    error // of the answer where there is no token, else of problem
		}{
			{nil, "", requestTime, errNotRead}, // nothing else can be used
			{[]answer{{err: broken}}, "", 0, broken},
			{[]answer{{token: "one"}}, "one", 0, nil},
			{nil, "one", credentialsWait, errNotRead},
			{nil, "one", credentialsWait, errNotRead}, // the same read
			{[]answer{{token: "two"}}, "two", 0, nil},
			{[]answer{{err: broken}}, "two", 0, broken},
			{[]answer{{token: "three"}}, "three", 0, nil},
		} {
			token, waited, err := current(step.disk...)
			assert.Equal(t, step.token, token, i)
			assert.Equal(t, step.waited, waited, i)
			if token != "" {
				require.NoError(t, err, i)
				err = c.problem()
			}
			assert.ErrorIs(t, err, step.err, i)
		}
	})
}

func TestReadIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		how := &rest.Config{BearerTokenFile: filepath.Join(dir, "token")}
		_, err := readIdentity(how)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.NoError(t, os.WriteFile(how.BearerTokenFile, []byte(" \n"), 0o600))
		_, err = readIdentity(how)
		require.ErrorContains(t, err, "is empty")
		how.BearerTokenFile, how.BearerToken = "", "given"
		how.CertFile, how.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		writeCertificate(t, how, time.Now())
		is, err := readIdentity(how)
		require.NoError(t, err)
		assert.Equal(t, "given", is.token)
		assert.NotNil(t, is.tls.RootCAs, "the system's, which a handshake would read")
		before, err := is.tls.GetClientCertificate(&tls.CertificateRequestInfo{})
		require.NoError(t, err)
		writeCertificate(t, how, time.Now())
		time.Sleep(time.Minute) // client-go's own is read again after a second
		after, err := is.tls.GetClientCertificate(&tls.CertificateRequestInfo{})
		require.NoError(t, err)
		assert.Same(t, before, after, "a handshake reads no file")
	})
}
