package guard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64 // serial number
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{t: t, cert: cert, key: key, last: 1}
}

// valid for some hours from now, or hours ago; for 127.0.0.1 and as a client.
func (a *authority) issue(until time.Duration) (certificate, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	a.last++
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: "somebody"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(until), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, private.Public(), a.key)
	require.NoError(a.t, err)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(a.t, err)
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", text)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// client's certificate.
func (a *authority) client(until time.Duration) *tls.Certificate {
	a.t.Helper()
	cert, err := tls.X509KeyPair(a.issue(until))
	require.NoError(a.t, err)
	return &cert
}

// write the authority, and a certificate of its, into a directory.
func (a *authority) write(dir string) {
	a.t.Helper()
	certificate, key := a.issue(time.Hour)
	for name, text := range map[string][]byte{"ca.pem": block("CERTIFICATE", a.cert.Raw), "cert.pem": certificate, "key.pem": key} {
		require.NoError(a.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
}
