package cluster_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

const harbour = `
# Only a comment.
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: harbours.test.example}
spec:
  group: test.example
  names: {kind: Harbour, plural: harbours}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: test.example/v1
kind: Harbour
metadata: {name: hamburg, namespace: NS}
depth: 17
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {k: "1"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS}, data: {k: "1"}}
`

func TestApplyInOrder(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	text := strings.ReplaceAll(harbour, "NS", ns)
	require.NoError(t, c.Apply(t.Context(), []byte(text)), "a kind can be used right after its definition")
	served, err := c.Serves([]byte(text))
	require.NoError(t, err)
	assert.True(t, served)
	served, err = c.Serves([]byte(strings.ReplaceAll(text, "kind: Harbour", "kind: Lighthouse")))
	require.NoError(t, err)
	assert.False(t, served)
	raw, err := c.Client.Discovery().RESTClient().Get().AbsPath("/apis/test.example/v1/namespaces/" + ns + "/harbours/hamburg").DoRaw(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"depth":17`)

	require.NoError(t, c.Apply(t.Context(), []byte(strings.ReplaceAll(text, `k: "1"`, `k: "2"`))), "and changed")
	for _, name := range []string{"a", "b"} {
		m, err := c.Client.CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"k": "2"}, m.Data)
	}
}

func TestApplyNamesBadManifest(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	err := c.Apply(t.Context(), []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: Big}}`))
	require.ErrorContains(t, err, "apply ConfigMap Big")
	err = c.Apply(t.Context(), []byte(`{apiVersion: v1, kind: ConfigMap`))
	require.Error(t, err)
}
