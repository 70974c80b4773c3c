package guard

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/files"
)

// WebConfigFacts about a web configuration, for plimsoll doctor.
type WebConfigFacts struct {
	// Certificate that the server presents now; nil: no TLS.
	Certificate *x509.Certificate
	// Clients is how client certificates are verified, in the file's words;
	// empty: not at all.
	Clients string
	// Users is the number of users with a password.
	Users int
	// Files are the configuration and the files that it names. Secrets are those
	// with a private key or password hashes.
	Files, Secrets []string
}

// Examine reads a web configuration as a starting server does. It fails where
// that would fail, and where no client could ever authenticate.
func Examine(file string) (WebConfigFacts, error) {
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	if _, err := (&Authenticator{File: file, Log: slog.New(slog.DiscardHandler)}).Protect(srv); err != nil {
		return WebConfigFacts{}, err
	}
	text, err := files.Read(file, maxWebConfig)
	if err != nil {
		return WebConfigFacts{}, err
	}
	var c web.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return WebConfigFacts{}, err
	}
	c.TLSConfig.SetDirectory(filepath.Dir(file))
	f := WebConfigFacts{Clients: c.TLSConfig.ClientAuth, Users: len(c.Users), Files: []string{file}}
	if f.Users > 0 || c.TLSConfig.TLSKey != "" {
		f.Secrets = append(f.Secrets, file)
	}
	if c.TLSConfig.IsEnabled() {
		err = f.examineTLS(&c.TLSConfig)
	}
	if err != nil {
		return WebConfigFacts{}, fmt.Errorf("web configuration %s: %w", file, err)
	}
	return f, nil
}

func (f *WebConfigFacts) examineTLS(c *web.TLSConfig) error {
	served, err := web.ConfigToTLSConfig(c)
	if err != nil {
		return err
	}
	certificate, err := served.GetCertificate(nil)
	if err != nil {
		return err
	}
	f.Certificate = certificate.Leaf
	for _, file := range []string{c.TLSCertPath, c.TLSKeyPath, c.ClientCAs} {
		if file != "" {
			f.Files = append(f.Files, file)
		}
	}
	if c.TLSKeyPath != "" {
		f.Secrets = append(f.Secrets, c.TLSKeyPath)
	}
	// The toolkit accepts a file without a certificate.
	if served.ClientCAs != nil && served.ClientCAs.Equal(x509.NewCertPool()) {
		return errors.New("client_ca contains no certificate, so no client certificate is valid")
	}
	return nil
}
