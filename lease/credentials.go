package lease

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// credentialsWait is how long a request or a dial waits for the credentials to be read
// again. A disk that works takes far less. For the first ones it waits as long as it may.
const credentialsWait = 100 * time.Millisecond

// credentials are a connection's, as their files have them now. Another goroutine reads
// the files, one read at a time: while the disk hangs, the credentials that were read
// last are used, and the heartbeat goes on.
type credentials struct {
	// read reads all files; it may take forever.
	read func() (*identity, error)
	last atomic.Pointer[identity] // what was read last; nil: nothing yet

	mu      sync.Mutex    // guards all below
	reading chan struct{} // closed when the current read ends; nil: there is none
	failed  error         // why the last read that ended failed
}

// identity is what a connection shows the API server, and what it trusts.
type identity struct {
	token string // empty: none
	tls   *tls.Config
}

// errNotRead: the disk has not answered.
var errNotRead = errors.New("the disk does not answer")

// current returns the credentials, read again if the disk answers in time.
func (c *credentials) current(ctx context.Context) (*identity, error) {
	late := make(<-chan time.Time) // never, while there is nothing to fall back to
	if c.last.Load() != nil {
		late = time.After(credentialsWait)
	}
	select {
	case <-c.reread():
	case <-late:
	case <-ctx.Done():
	}
	if is := c.last.Load(); is != nil {
		return is, nil
	}
	return nil, c.problem()
}

// reread starts a read unless one is under way. The channel is closed when it ends.
func (c *credentials) reread() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading == nil {
		c.reading = make(chan struct{})
		go c.readOnce(c.reading)
	}
	return c.reading
}

func (c *credentials) readOnce(done chan<- struct{}) {
	is, err := c.read()
	if err == nil {
		c.last.Store(is)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.failed = nil, err
	close(done)
}

// problem is why the credentials in use may be out of date; nil where they are not.
func (c *credentials) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return fmt.Errorf("cannot read the credentials for the API server: %w", c.failed)
	case c.reading != nil:
		return fmt.Errorf("cannot read the credentials for the API server: %w", errNotRead)
	}
	return nil
}

// readIdentity reads the files of a configuration. The returned configuration of TLS
// needs none.
func readIdentity(how *rest.Config) (*identity, error) {
	config, err := rest.TLSConfigFor(how)
	if err != nil {
		return nil, err
	}
	if config == nil { // no TLS options: the system's CAs
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.RootCAs == nil { // or the handshake reads them
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, err
		}
	}
	if config.GetClientCertificate != nil { // or the handshake reads it
		certificate, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	is := &identity{token: how.BearerToken, tls: config}
	if how.BearerTokenFile == "" {
		return is, nil
	}
	token, err := os.ReadFile(how.BearerTokenFile)
	if err != nil {
		return nil, err
	}
	if is.token = strings.TrimSpace(string(token)); is.token == "" {
		return nil, fmt.Errorf("%s is empty", how.BearerTokenFile)
	}
	return is, nil
}
