package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// A password, and its hash as it stands in a web configuration.
const (
	password     = "load line"
	passwordHash = "$2a$04$n1xIPBHV0xr6FNVmQEmSnOVp50labHmNkpNby1KCSSWPsKq1iif4y"
)

// scrapers makes two service accounts, of which one may read metrics, and
// returns their tokens.
func scrapers(t *testing.T, c *cluster.Cluster) (may, mayNot string) {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC, deploy.RBACMetrics))
	namespace := c.Namespace(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	}
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Client.RbacV1().ClusterRoleBindings().Delete(contextWithoutCancel(t), namespace, metav1.DeleteOptions{}))
	})
	token := func(name string) string {
		config, err := c.ServiceAccountConfig(t.Context(), namespace, name, cluster.BoundTo{})
		require.NoError(t, err)
		return config.BearerToken
	}
	return token("prometheus"), token("passerby")
}

// statusWith a bearer token; empty: none.
func statusWith(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	status, _, err := do(&http.Client{Timeout: patience}, req)
	require.NoError(t, err)
	return status
}

// doctorSays waits until doctor prints lines of these expressions.
func doctorSays(t *testing.T, config, kubeconfig string, lines ...string) {
	t.Helper()
	eventually(t, "doctor says so", func() error {
		_, out, errs := run(t, "doctor", "--config", config, "--kubeconfig", kubeconfig)
		for _, line := range lines {
			if !regexp.MustCompile(line).MatchString(out) {
				return fmt.Errorf("no %s in\n%s%s", line, out, errs)
			}
		}
		return nil
	})
}

// Of the agent and of the controller, on a real API server, and without it.
func scrapesNeedReviewedToken(t *testing.T, o *outage) {
	c, election := o.c, o.c.Namespace(t) // another test's controller leads in the usual one
	letElect(t, c, election)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	needy := configFile(t, "web: {tokenReview: true}\neviction: {via: controller}\nplugins: {reclaimedOvercommit: {enabled: true}}\n")
	examined := func(agentsFile string, lines ...string) {
		t.Helper()
		doctorSays(t, needy, agentsFile, lines...)
	}
	agentsFile, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	examined(agentsFile, `FAIL +rights +2 of \d+ missing: create tokenreviews\.authentication\.k8s\.io, create subjectaccessreviews\.authorization\.k8s\.io \(apply .*deploy/rbac-metrics\.yaml\)`)
	may, mayNot := scrapers(t, c)
	fresh, _ := scrapers(t, c) // nobody has asked about it
	examined(agentsFile, `PASS +web configuration +none; clients need a token of the cluster`, `PASS +rights +all `)
	require.NoError(t, c.Apply(t.Context(), []byte(customNodeResources)))
	examined(agentsFile, `FAIL +rights +4 of \d+ missing: get customnoderesources\.node\.katalyst\.kubewharf\.io, .* \(apply .*deploy/rbac-katalyst\.yaml, `)
	require.NoError(t, c.Apply(t.Context(), deploy.RBACKatalyst))
	examined(agentsFile, `PASS +rights +all `)
	controllersFile, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(t, err)
	ofAgent := prepareAgent(t, "--config", configFile(t, "web: {tokenReview: true}\n"), "--kubeconfig", agentsFile, "--node", "nobody",
		"--state.dir", filepath.Join(t.TempDir(), "state")).start()
	config := write(t, filepath.Join(t.TempDir(), "controller.yaml"), "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\n"+noVelero+"web: {tokenReview: true}\nelection: {namespace: "+election+"}\nagents: {enabled: false}\n")
	ofController := &agent{t: t, ended: make(chan struct{})}
	ofController.cmd = exec.Command(binary, "controller", "--config", config, "--kubeconfig", controllersFile, "--web.listen-address", "127.0.0.1:0")
	ofController.cmd.Stdout, ofController.cmd.Stderr = &ofController.stdout, &ofController.stderr
	ofController.start()

	both := []*agent{ofAgent, ofController}
	for _, a := range both {
		for path, want := range map[string][4]int{ // without a token, with one of nobody, of who may not, of who may
			"/metrics":   {401, 401, 403, 200},
			"/":          {401, 401, 403, 403},
			"/api/v1/":   {401, 401, 403, 403}, // which Kubernetes would grant every token
			"/-/healthy": {200, 200, 200, 200},
		} {
			for i, token := range []string{"", "eyJhbGciOiJSUzI1NiJ9.e30.c2ln", mayNot, may} {
				assert.Equal(t, want[i], statusWith(t, a.url+path, token), "%s of %s: %d", path, a.cmd.Args[1], i)
			}
		}
	}
	o.begins(t, func() {
		for _, a := range both {
			assert.Equal(t, 200, statusWith(t, a.url+"/metrics", fresh))
		}
	})
	for _, a := range both {
		assert.Equal(t, 200, statusWith(t, a.url+"/metrics", fresh), "what was answered holds for a while")
		assert.Equal(t, 503, statusWith(t, a.url+"/metrics", "another"), "and nobody else gets in")
		assert.Equal(t, 200, statusWith(t, a.url+"/-/healthy", ""))
	}
	o.ends(t)
	for _, a := range both {
		eventually(t, "it asks again", func() error { return wanted(statusWith(t, a.url+"/metrics", "another"), 401) })
	}
}

func TestTokenReviewNeedsCluster(t *testing.T) {
	t.Parallel()
	status, _, stderr := run(t, "agent", "--standalone", "--state.dir", t.TempDir(), "--api.socket", filepath.Join(t.TempDir(), "s"),
		"--config", configFile(t, "web: {tokenReview: true, listenAddresses: [\"127.0.0.1:0\"]}\n"))
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "web.tokenReview: needs an API server, but the agent runs standalone")
}

// webConfig is a web configuration with TLS and a password, in a directory with
// the certificate, which is its own authority.
func webConfig(t *testing.T) (file, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	authority = write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	return write(t, filepath.Join(dir, "web.yaml"), fmt.Sprintf(
		"tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {prometheus: %s}\n", passwordHash)), authority
}
