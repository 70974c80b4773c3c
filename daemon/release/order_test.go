package release

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// One pass frees the nodes before it touches data mover loads, and those that have ended last:
// there may be more of them than it has time for.
func TestReleaseOrder(t *testing.T) {
	lists := map[string]string{
		"gates": `{"kind": "GateList", "apiVersion": "plimsoll.dev/v1alpha1", "items": [{"kind": "Gate", "apiVersion": "plimsoll.dev/v1alpha1", "metadata": {"name": "main", "namespace": "velero"}}]}`,
		"nodes": `{"kind": "NodeList", "apiVersion": "v1", "items": [{"kind": "Node", "apiVersion": "v1",
			"metadata": {"name": "n", "resourceVersion": "7", "annotations": {"plimsoll.dev/taints": "[{\"key\":\"plimsoll.dev/MemoryContention\",\"effect\":\"NoSchedule\"}]"}},
			"spec": {"taints": [{"key": "plimsoll.dev/MemoryContention", "effect": "NoSchedule"}]},
			"status": {"conditions": [{"type": "plimsoll.dev/MemoryContention", "status": "True"}]}}]}`,
		"datauploads": `{"kind": "DataUploadList", "apiVersion": "velero.io/v2alpha1", "items": [
			{"kind": "DataUpload", "apiVersion": "velero.io/v2alpha1", "metadata": {"name": "ended", "namespace": "velero", "annotations": {"plimsoll.dev/started": "n@1"}}, "status": {"phase": "Completed"}},
			{"kind": "DataUpload", "apiVersion": "velero.io/v2alpha1", "metadata": {"name": "waits", "namespace": "velero", "annotations": {"plimsoll.dev/waiting": "{}"}}, "status": {"phase": "New"}}]}`,
		"datadownloads": `{"kind": "DataDownloadList", "apiVersion": "velero.io/v2alpha1", "items": [
			{"kind": "DataDownload", "apiVersion": "velero.io/v2alpha1", "metadata": {"name": "hidden", "namespace": "velero"}, "spec": {"datamover": "plimsoll.dev/held"}}]}`,
	}
	var writes []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := lists[path.Base(r.URL.Path)]
		if r.Method != http.MethodGet {
			answer, found = `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}`, true
			writes = append(writes, r.Method+" "+r.URL.Path)
		}
		if !found {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer api.Close()
	r := &Release{Dynamic: dynamic.NewForConfigOrDie(&rest.Config{Host: api.URL, QPS: -1}), Out: io.Discard, unrecorded: map[string]error{}}
	require.NoError(t, r.removeMarks(t.Context()))
	assert.Equal(t, []string{
		"DELETE /apis/plimsoll.dev/v1alpha1/namespaces/velero/gates/main",
		"PATCH /api/v1/nodes/n", "PATCH /api/v1/nodes/n/status",
		"PATCH /apis/velero.io/v2alpha1/namespaces/velero/datauploads/waits",
		"PATCH /apis/velero.io/v2alpha1/namespaces/velero/datadownloads/hidden",
		"PATCH /apis/velero.io/v2alpha1/namespaces/velero/datauploads/ended",
	}, writes)
}
