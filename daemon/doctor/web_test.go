package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

const (
	webCheck  = "web configuration"
	lifeCheck = "web certificate"
	oneUser   = "basic_auth_users: {prometheus: $2a$04$n1xIPBHV0xr6FNVmQEmSnOVp50labHmNkpNby1KCSSWPsKq1iif4y}\n"
	withTLS   = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
)

// served is a web configuration beside a key and its certificate, which is good
// for a day from then.
type served struct {
	t    *testing.T
	dir  string
	from time.Time
}

func newServed(t *testing.T) served {
	t.Helper()
	s := served{t, t.TempDir(), time.Now().Truncate(time.Second)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: s.from, NotAfter: s.from.Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	s.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	s.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	return s
}

func (s served) path(name string) string { return filepath.Join(s.dir, name) }

func (s served) file(name, text string) string {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), 0o600))
	return s.path(name)
}

// after some of the certificate's day, by a configuration.
func (s served) after(part time.Duration, config string) []Row {
	s.t.Helper()
	return Examination{WebConfig: s.file("web.yaml", config)}.webConfig(s.from.Add(part))
}

func TestDoctorWebAuthentication(t *testing.T) {
	s := newServed(t)
	s.file("ca.pem", string(must(os.ReadFile(s.path("cert.pem")))))
	web := s.path("web.yaml")
	for config, want := range map[string]string{
		withTLS:           "TLS",
		oneUser:           "1 password",
		withTLS + oneUser: "TLS, 1 password",
		"":                "clients are not authenticated",
		"tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: TLS13, cipher_suites: [TLS_AES_128_GCM_SHA256], curve_preferences: [X25519]}\n": "TLS",
		"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}\n":                     "TLS, RequireAndVerifyClientCert",
	} {
		assert.Equal(t, Row{Pass, webCheck, web + ": " + want}, row(t, s.after(time.Hour, config), webCheck))
	}
	tokens := Examination{TokenReview: true, Cluster: &rest.Config{}}
	assert.Equal(t, []Row{{Pass, webCheck, "none; clients need a token of the cluster"}}, tokens.webConfig(s.from))
	tokens.WebConfig = s.file("web.yaml", withTLS)
	assert.Equal(t, Row{Pass, webCheck, web + ": TLS, tokens of the cluster"}, tokens.webConfig(s.from)[0])
	assert.Equal(t, []Row{{Pass, webCheck, "none: clients are not authenticated"}}, Examination{}.webConfig(s.from))
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestDoctorWebConfigBroken(t *testing.T) {
	s := newServed(t)
	s.file("other.pem", string(must(os.ReadFile(newServed(t).path("key.pem")))))
	s.file("empty.pem", "")
	for config, why := range map[string]string{
		"tls_server_config: {cert_file: cert.pem, key_file: other.pem}\n":                                                                        "private key does not match public key",
		"tls_server_config: {cert_file: cert.pem, key_file: none.pem}\n":                                                                         "no such file",
		"tls_server_config: {cert_file: empty.pem, key_file: key.pem}\n":                                                                         "failed to find any PEM data",
		"tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: empty.pem, client_auth_type: RequireAndVerifyClientCert}\n": "client_ca contains no certificate",
		"basic_auth_users: {prometheus: secret}\n":                                                                                               "bcrypt",
		"basic_auth_user: {}\n": "field basic_auth_user not found",
	} {
		rows := s.after(time.Hour, config)
		require.Len(t, rows, 1)
		assert.Equal(t, Fail, rows[0].Result, config)
		assert.Contains(t, rows[0].Finding, "web configuration "+s.path("web.yaml")+": ", config)
		assert.Contains(t, rows[0].Finding, why, config)
		assert.NotContains(t, rows[0].Finding, "\n")
	}
	rows := Examination{WebConfig: s.path("none.yaml")}.webConfig(s.from)
	assert.Equal(t, Fail, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "no such file")
}

func TestDoctorCertificateExpiry(t *testing.T) {
	s := newServed(t)
	until := s.from.Add(24 * time.Hour).UTC().Format(time.RFC3339)
	for part, want := range map[time.Duration]Row{
		-time.Second:     {Fail, lifeCheck, "valid only from " + s.from.UTC().Format(time.RFC3339) + ": no client accepts it; check this host's clock"},
		0:                {Pass, lifeCheck, "valid until " + until},
		21 * time.Hour:   {Pass, lifeCheck, "valid until " + until},
		22 * time.Hour:   {Warn, lifeCheck, "expires at " + until + ", in 2h0m0s: renew it"},
		24*time.Hour + 1: {Fail, lifeCheck, "expired at " + until + ": no client accepts it; a renewed one is served from the next connection on"},
	} {
		assert.Equal(t, want, row(t, s.after(part, withTLS), lifeCheck))
	}
}

func TestDoctorWebFilePermissions(t *testing.T) {
	s := newServed(t)
	web, key, cert := s.file("web.yaml", withTLS+oneUser), s.path("key.pem"), s.path("cert.pem")
	found := func() Row { return Examination{WebConfig: web}.webConfig(s.from)[0] }
	for _, file := range []string{web, key, cert} {
		require.NoError(t, os.Chmod(file, 0o440))
	}
	assert.Equal(t, Pass, found().Result)
	require.NoError(t, os.Chmod(cert, 0o444))
	assert.Equal(t, Pass, found().Result, "a certificate is no secret")
	for file, cases := range map[string]map[os.FileMode]string{
		key:  {0o444: "every user may read the secrets in " + key + " (-r--r--r--): chmod o-r", 0o460: key + " is writable for other users (-r--rw----): chmod go-w"},
		web:  {0o644: "every user may read the secrets in " + web + " (-rw-r--r--): chmod o-r"},
		cert: {0o446: cert + " is writable for other users (-r--r--rw-): chmod go-w"},
	} {
		for mode, want := range cases {
			require.NoError(t, os.Chmod(file, mode))
			assert.Equal(t, Row{Warn, webCheck, want}, found())
		}
		require.NoError(t, os.Chmod(file, 0o440))
	}
	s.file("plain.yaml", withTLS)
	require.NoError(t, os.Chmod(s.path("plain.yaml"), 0o644))
	assert.Equal(t, Pass, Examination{WebConfig: s.path("plain.yaml")}.webConfig(s.from)[0].Result, "there is no secret in it")
}

func TestDoctorCredentials(t *testing.T) {
	s := newServed(t)
	kubeconfig, token := s.file("agent.kubeconfig", ""), s.file("token", "x")
	for name, c := range map[string]struct {
		how               rest.Config
		kubeconfig, token os.FileMode
		want              string // of a warning
	}{
		"a token file":              {rest.Config{BearerTokenFile: token, BearerToken: "x"}, 0o644, 0o640, ""},
		"one that all may read":     {rest.Config{BearerTokenFile: token, BearerToken: "x"}, 0o600, 0o644, "every user may read the secrets in " + token},
		"a token in it":             {rest.Config{BearerToken: "x"}, 0o600, 0o644, ""},
		"one in it, for all":        {rest.Config{BearerToken: "x"}, 0o644, 0o600, "every user may read the secrets in " + kubeconfig},
		"a key in it, for all":      {rest.Config{TLSClientConfig: rest.TLSClientConfig{KeyData: []byte("x")}}, 0o604, 0o600, "every user may read the secrets in " + kubeconfig},
		"others may replace the CA": {rest.Config{BearerTokenFile: token}, 0o620, 0o600, kubeconfig + " is writable for other users"},
	} {
		require.NoError(t, os.Chmod(kubeconfig, c.kubeconfig))
		require.NoError(t, os.Chmod(token, c.token))
		rows := Examination{Kubeconfig: kubeconfig, Cluster: &c.how}.credentials()
		require.Len(t, rows, 1)
		assert.Equal(t, c.want != "", rows[0].Result == Warn, name)
		assert.Contains(t, rows[0].Finding, c.want, name)
	}
	assert.Empty(t, Examination{Cluster: &rest.Config{BearerTokenFile: token}}.credentials(), "a pod's token, which the kubelet guards")
}

func TestDoctorTokenReview(t *testing.T) {
	alone := Examination{TokenReview: true}
	r := row(t, alone.webConfig(time.Now()), webCheck)
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "web.tokenReview")
	alone.ClusterErr = errors.New("kubeconfig: no such file")
	assert.Equal(t, Pass, row(t, alone.webConfig(time.Now()), webCheck).Result, "the row of the API server says it")

	how, asked := apiServerOf(t, good, "create subjectaccessreviews")
	p := Examination{Cluster: how, TokenReview: true}
	r = row(t, p.cluster(t.Context(), false), "rights")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, asked(), "create tokenreviews")
	assert.Contains(t, r.Finding, "missing: create subjectaccessreviews.authorization.k8s.io (apply deploy/rbac.yaml, deploy/rbac-metrics.yaml)")
	p.TokenReview = false
	assert.Equal(t, Pass, row(t, p.cluster(t.Context(), false), "rights").Result, "nobody would ask")
}
