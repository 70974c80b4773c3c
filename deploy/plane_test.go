package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// patience is many times what an idle machine needs.
const patience = time.Minute

// auditLog is the shared API server's.
var auditLog = filepath.Join(os.TempDir(), fmt.Sprintf("plimsoll-deploy-%d-audit.log", os.Getpid()))

func TestMain(m *testing.M) {
	status := cluster.Main(m)
	_ = os.Remove(auditLog) // it is not there when no test asked for the API server
	os.Exit(status)
}

// mutatingV1beta1 is how an API server of Kubernetes 1.34 or 1.35 is told to serve
// MutatingAdmissionPolicies.
var mutatingV1beta1 = []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"}

// plane is the control plane of these tests, with the audit policy of this
// directory. From Kubernetes 1.34 on it serves mutating policies.
func plane(t *testing.T) *cluster.Cluster {
	t.Helper()
	policy, err := filepath.Abs("audit-policy.yaml")
	require.NoError(t, err)
	args := []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}
	version, err := cluster.Pinned(cluster.APIServer)
	require.NoError(t, err)
	if strings.HasPrefix(version, "v1.34.") || strings.HasPrefix(version, "v1.35.") {
		args = append(args, mutatingV1beta1...)
	}
	return cluster.Shared(t, cluster.Options{
		Without: []string{cluster.ControllerManager, cluster.Scheduler},
		Args:    map[string][]string{cluster.APIServer: args},
	})
}

// as is a client of a service account of plimsoll-system.
func as(t *testing.T, c *cluster.Cluster, account string, to cluster.BoundTo) *rest.Config {
	t.Helper()
	file, err := c.ServiceAccount(t.Context(), "plimsoll-system", account, to)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	config.QPS = -1
	return config
}

// send a request as it is; answer is the body.
func send(t *testing.T, config *rest.Config, method, path, kind, body string) (status int, header http.Header, answer string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	ctx, cancel := deadline.Context(t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", kind)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(all)
}

// eventually asks again until there is no complaint.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline.Within(t, patience, what, ask)
}

// granted waits for a right: the API server goes by what was applied a moment later.
func granted(t *testing.T, what string, may func() bool) {
	t.Helper()
	eventually(t, what, func() error {
		if !may() {
			return errors.New("not granted")
		}
		return nil
	})
}

// cleanup is a context for a test's end.
func cleanup(t *testing.T) context.Context {
	ctx, cancel := deadline.Context(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
