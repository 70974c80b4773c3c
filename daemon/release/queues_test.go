package release

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// A Velero that was not given its queue back starts no Backup any more: something is left.
func TestReleaseNamesVeleroWithoutQueue(t *testing.T) {
	answers := map[string]string{
		"/apis/apps/v1/deployments?component=velero": `{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [
			{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"namespace": "a", "name": "velero"}, "spec": {"template": {"spec": {"containers": [
				{"name": "velero", "command": ["/velero"], "args": ["server", "--disable-controllers=gc,backup-queue"]}]}}}},
			{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"namespace": "b", "name": "velero"}, "spec": {"template": {"spec": {"containers": [
				{"name": "velero", "command": ["/velero"], "args": ["server", "--disable-controllers=gc"]}]}}}}]}`,
		"/apis/coordination.k8s.io/v1/namespaces/plimsoll-node-lease/leases?": `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1"}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := answers[r.URL.Path+"?"+r.URL.Query().Get("labelSelector")]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer api.Close()
	how := &rest.Config{Host: api.URL}
	r := &Release{Dynamic: dynamic.NewForConfigOrDie(how), Leases: coordinationv1client.NewForConfigOrDie(how), Election: types.NamespacedName{Namespace: "plimsoll-system", Name: "plimsoll-controller"}, Out: io.Discard}
	const left = "Deployment a/velero runs with --disable-controllers=backup-queue, and no controller starts its Backups: they wait until you remove that flag"
	require.EqualError(t, r.All(t.Context()), left)

	delete(answers, "/apis/apps/v1/deployments?component=velero")
	assert.ErrorContains(t, r.All(t.Context()), "list Velero's servers: ", "whether one is left is not known")
}
