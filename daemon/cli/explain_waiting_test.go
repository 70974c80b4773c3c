package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/explain"
)

// refusal is an Event that says so of the Backup with the UID and version, so long ago.
func refusal(uid, version, why string, ago time.Duration) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"reason":"BackupChangeRefused","message":"the API server refuses to change it: %s; it does not start",
"involvedObject":{"kind":"Backup","name":"bad","uid":%q,"resourceVersion":%q},"lastTimestamp":%q}`, why, why, uid, version, time.Now().Add(-ago).UTC().Format(time.RFC3339))
}

// refusedBackups is the kubeconfig of a server with these Events and two Backups that wait: "bad" (UID 1), and
// "behind", which shares a namespace with it. Without Events they are forbidden.
func refusedBackups(t *testing.T, events ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/velero.io/v1/namespaces/velero/backups":
			fmt.Fprint(w, `{"kind":"BackupList","apiVersion":"velero.io/v1","items":[
{"kind":"Backup","apiVersion":"velero.io/v1","metadata":{"namespace":"velero","name":"bad","uid":"1","resourceVersion":"5","creationTimestamp":"2026-03-01T12:00:00Z"},
"spec":{"includedNamespaces":["shop"]},"status":{"phase":"Queued","queuePosition":1}},
{"kind":"Backup","apiVersion":"velero.io/v1","metadata":{"namespace":"velero","name":"behind","uid":"2","resourceVersion":"6","creationTimestamp":"2026-03-01T12:00:01Z"},
"spec":{"includedNamespaces":["shop"]},"status":{"phase":"Queued","queuePosition":2}}]}`)
		case r.URL.Path == "/api/v1/namespaces":
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"shop"}}]}`)
		case r.URL.Path == "/api/v1/namespaces/velero/events" && len(events) > 0:
			assert.Equal(t, "involvedObject.kind=Backup,reason=BackupChangeRefused,source=plimsoll-controller", r.URL.Query().Get("fieldSelector"))
			fmt.Fprintf(w, `{"kind":"EventList","apiVersion":"v1","items":[%s]}`, strings.Join(events, ","))
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no right to it","reason":"Forbidden","code":403}`)
		}
	}))
	t.Cleanup(s.Close)
	return kubeconfigOf(t, s.URL)
}

func TestExplainRefusedBackup(t *testing.T) {
	answer := func(kubeconfig string, args ...string) string {
		status, stdout, stderr := told(append([]string{"explain", "backup", "--kubeconfig", kubeconfig}, args...)...)
		require.Zero(t, status, stderr)
		return stdout
	}

	t.Run("the reason is that of the newest Event", func(t *testing.T) {
		from := refusedBackups(t, refusal("1", "4", "another policy", 4*time.Minute), refusal("1", "5", "policy p denies it", 2*time.Minute), refusal("1", "3", "a policy", 20*time.Minute))
		text := answer(from, "bad")
		assert.Regexp(t, `^velero/bad is Queued, at place 1 of 2, for \S+: the API server refuses to change it\.\n`, text)
		assert.Regexp(t, `\nThe controller reported 2m\S+ ago: the API server refuses to change it: policy p denies it; it does not start\.\n`, text)
		assert.NotContains(t, text, "it starts now")

		text = answer(from, "behind")
		assert.Regexp(t, `^velero/behind is Queued, at place 2 of 2, for \S+: shares namespace shop with bad, which waits ahead of it\.\n`, text)
		assert.Regexp(t, `\n +1 +bad +\S+ +the API server refuses to change it\n`, text)
		assert.NotContains(t, text, "The controller reported")

		var b explain.Backup
		require.NoError(t, json.Unmarshal([]byte(answer(from, "bad", "-o", "json")), &b))
		require.NotNil(t, b.Refused)
		assert.Equal(t, "the API server refuses to change it: policy p denies it; it does not start", b.Refused.Message)
	})

	for name, event := range map[string]string{
		"one that the controller would try again now": refusal("1", "5", "policy p denies it", 7*time.Minute),
		"an earlier Backup of the same name":          refusal("0", "5", "policy p denies it", time.Minute),
		"one that was corrected since":                refusal("1", "4", "policy p denies it", time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			text := answer(refusedBackups(t, event), "bad")
			assert.Regexp(t, "^velero/bad is Queued, next, for \\S+: it could start, and the controller has not started it: see `plimsoll doctor`\\.\\n", text)
			assert.NotContains(t, text, "refuses")
		})
	}

	t.Run("a configuration that starts no Backup says so", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "controller.yaml")
		require.NoError(t, os.WriteFile(file, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\n"), 0o600))
		text := answer(refusedBackups(t), "bad", "--config", file)
		assert.Contains(t, text, ": it could start, but this configuration starts no Backup (backups.enabled is false).\n")
		assert.NotContains(t, text, "has not started it")
	})

	t.Run("without the right to list Events it is not known", func(t *testing.T) {
		text := answer(refusedBackups(t), "bad")
		assert.Regexp(t, `, and the controller has not started it: see .plimsoll doctor.\.\nWhether the API server refuses to change it is not known: list events: .*no right to it.*\.\n`, text)
	})
}
