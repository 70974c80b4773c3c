package admission

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestLoadRelease(t *testing.T) {
	for name, row := range map[string]struct {
		annotations, spec map[string]any
		want              string
		hidden            bool
	}{
		"nothing of ours": {annotations: map[string]any{"theirs": "x", "plimsoll.dev/priority": "3"}},
		"words": {
			annotations: map[string]any{"theirs": "x", "plimsoll.dev/admitted": "*@1", "plimsoll.dev/started": "n@1", "plimsoll.dev/waiting": "{}", "plimsoll.dev/diagnosis": "{}"},
			spec:        map[string]any{"datamover": "acme.io/m"},
			want:        `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/admitted":null,"plimsoll.dev/started":null,"plimsoll.dev/waiting":null,"plimsoll.dev/diagnosis":null}}}`,
		},
		"hidden": {
			annotations: map[string]any{"plimsoll.dev/held-datamover": "velero"}, spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":"velero"}}`,
		},
		"hidden, and named none": {
			annotations: map[string]any{"plimsoll.dev/held-datamover": ""}, spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":null}}`,
		},
		"hidden, and its record is lost": {
			spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{}},"spec":{"datamover":null}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": row.annotations}, "spec": row.spec}}
			body, hidden, err := ReleasePatch(u)
			require.NoError(t, err)
			assert.Equal(t, row.hidden, hidden)
			if row.want == "" {
				assert.Nil(t, body)
				return
			}
			assert.JSONEq(t, row.want, string(body))
		})
	}
}
