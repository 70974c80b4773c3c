package release

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// What is said of a CPU limit that the agent has lowered from 2 to 0.4.
func TestReleaseResizedSaysWhatBecameOfIt(t *testing.T) {
	of := throttle.Knob{Cgroup: "/pod", Name: throttle.Resize, Container: throttle.Container{Namespace: "shop", Pod: "web", UID: "u", Name: "c"}}
	record, err := json.Marshal([]throttle.Limit{{Knob: of, Original: 2000, Value: 400, Written: true}})
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{resize.Annotation: string(record)}}}
	for name, row := range map[string]struct {
		limit  string
		status int // of the resize
		want   string
		done   int
	}{
		"restored":                  {"400m", http.StatusOK, "CPU of container c of shop/web: as before\n", 1},
		"refused, as above a limit": {"400m", http.StatusForbidden, "", 0},
		"another has changed it":    {"300m", http.StatusOK, "CPU of container c of shop/web: left: another program changed it\n", 1},
		"another has restored it":   {"2", http.StatusOK, "CPU of container c of shop/web: as before\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var answer any = node
				if strings.Contains(r.URL.Path, "/pods/") {
					answer = &corev1.Pod{
						TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"},
						Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
							Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(row.limit)},
						}}}},
					}
				}
				if strings.HasSuffix(r.URL.Path, "/resize") && row.status != http.StatusOK {
					w.WriteHeader(row.status)
				}
				assert.NoError(t, json.NewEncoder(w).Encode(answer))
			}))
			defer server.Close()
			core, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			var out bytes.Buffer
			r := &Release{Core: core, Out: &out}
			assert.Equal(t, row.status != http.StatusOK, r.resized(t.Context(), node) != nil)
			assert.Equal(t, row.want, out.String())
			assert.Equal(t, row.done, r.done)
		})
	}
}
