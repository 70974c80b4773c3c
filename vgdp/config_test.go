package vgdp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The cases in testdata are outcomes of Velero's own code, see their headers.
func read[T any](t *testing.T, file string) (out T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

func TestNodeAgentConfig(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			ID          string            `json:"id"`
			ConfigMap   *string           `json:"configMap"`
			Name        *string           `json:"configMapName"`
			Data        map[string]string `json:"data"`
			Expect      *NodeAgent        `json:"expect"`
			ExpectError string            `json:"expectError"`
			Effective   *int              `json:"effectivePrepareQueueLength"`
		} `json:"cases"`
	}](t, "node-agent-configmap.json").Cases
	require.Len(t, cases, 13)
	seen := 0
	for _, c := range cases {
		if c.ConfigMap != nil || c.Name != nil {
			continue // the ConfigMap cannot be read, or none is named: nothing to decode
		}
		seen++
		got, _, err := ReadNodeAgent("node-agent-config", c.Data)
		if c.ExpectError != "" {
			// Velero refuses it with other words.
			require.ErrorIs(t, err, ErrNodeAgent, c.ID)
			continue
		}
		require.NoError(t, err, c.ID)
		assert.Empty(t, cmp.Diff(*c.Expect, got, cmpopts.EquateEmpty()), c.ID)
		if c.Effective != nil {
			assert.Equal(t, *c.Effective, got.PrepareLimit(), c.ID)
		}
	}
	assert.Equal(t, 11, seen)
}

func TestNodeAgentConfigKeysKnown(t *testing.T) {
	listed := read[struct {
		Keys []struct{ Key, Since string } `json:"keys"`
	}](t, "node-agent-configmap.json").Keys
	require.NotEmpty(t, listed)
	for _, k := range listed {
		if k.Since != "" {
			continue // newer than what is released
		}
		name, _, _ := strings.Cut(strings.NewReplacer("[]", "", "{sourceStorageClass}", "").Replace(k.Key), "{")
		last := name[strings.LastIndex(name, ".")+1:]
		text := `{"` + strings.ReplaceAll(name, ".", `":{"`) + `":null` + strings.Repeat("}", strings.Count(name, ".")+1)
		_, hints, err := ReadNodeAgent("c", map[string]string{"k": text})
		require.NoError(t, err, "%s of %s", last, text)
		assert.Empty(t, hints, text)
	}
}

func TestNodeAgentConfigHints(t *testing.T) {
	for text, want := range map[string]string{
		`{"prepareQueueLength": 10}`:       "prepareQueueLength: Velero does not read it here, whatever its documentation says: write it inside loadConcurrency",
		`{"cachePVC":{"thresholdInGB":1}}`: "cachePVC.thresholdInGB: Velero does not read it, whatever its documentation says: write residentThresholdInMB, 1024 times the number",
		`{"loadConcurrency":{"perNodeConfig":[{"nodeSelector":{},"number":1},{"nodeSelector":{},"nummer":3,"number":2}]}}`: "loadConcurrency.perNodeConfig[1].nummer: Velero has no such key and ignores it",
		`{"globalConfig": 3}`:                                                               "globalConfig: Velero does not read it here: write loadConcurrency.globalConfig",
		`{"someothers":{"someother":10}}`:                                                   "someothers: Velero has no such key and ignores it",
		`{"backupPVC":{"fast":{"storageclas":"x"}}}`:                                        "backupPVC.fast.storageclas: Velero has no such key and ignores it",
		`{"loadConcurrency":{"prepareQueueLength":-3}}`:                                     "loadConcurrency.prepareQueueLength: -3 is invalid: Velero limits nothing",
		`{"loadConcurrency":{"globalConfig":-1}}`:                                           "loadConcurrency.globalConfig: -1 is invalid: Velero uses the default, 1",
		`{"loadConcurrency":{"perNodeConfig":[{"nodeSelector":{},"number":0}]}}`:            "loadConcurrency.perNodeConfig[0].number: the rule is skipped: 0 is not positive",
		`{"loadAffinity":[{"nodeSelector":{"matchLabels":{"a":"b"}}},{"nodeSelector":{}}]}`: "loadAffinity[1]: never used: loadAffinity[0] has the same storageClass and comes first",
		`{"loadConcurrency":{"perNodeConfig":[{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]},"number":3}]}}`: `loadConcurrency.perNodeConfig[0].nodeSelector: the rule is skipped: "Gt" is not a valid label selector operator`,
	} {
		_, hints, err := ReadNodeAgent("c", map[string]string{"k": text})
		require.NoError(t, err, text)
		if assert.Len(t, hints, 1, text) {
			assert.Equal(t, want, hints[0].String(), text)
		}
	}
	// encoding/json does not mind the case, and so Velero does not.
	c, hints, err := ReadNodeAgent("c", map[string]string{"k": `{"LOADCONCURRENCY":{"preparequeuelength":3}}`})
	require.NoError(t, err)
	assert.Empty(t, hints)
	assert.Equal(t, 3, c.PrepareLimit())
}

func TestNodeAgentConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"loadConcurrency":{"prepareQueueLength":"10"}}`: "node-agent ConfigMap c: key k: loadConcurrency.prepareQueueLength: want int, got a string",
		"{\n\"loadAffinity\": oops}":                      "node-agent ConfigMap c: key k: line 2: invalid character 'o' looking for beginning of value",
		"":                                                "node-agent ConfigMap c: key k: line 1: unexpected end of JSON input",
	} {
		_, _, err := ReadNodeAgent("c", map[string]string{"k": text})
		assert.EqualError(t, err, want)
	}
}

func FuzzConfigMap(f *testing.F) {
	f.Add(`{"loadConcurrency":{"perNodeConfig":[{"nodeSelector":{"matchLabels":{"a":"b"}},"number":3}]}}`)
	f.Add(`{"a":[{}],"loadAffinity":[null,{"storageClass":1}]}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		c, hints, err := ReadNodeAgent("c", map[string]string{"k": text})
		if err == nil {
			rules := c.LoadConcurrency.Concurrency(DefaultConcurrency)
			assert.Positive(t, rules.On(map[string]string{"a": "b"}))
		}
		for _, h := range hints {
			assert.NotEmpty(t, h.Why)
		}
	})
}

func TestNodeAgentConcurrency(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			ID              string            `json:"id"`
			Default         int               `json:"default"`
			LoadConcurrency LoadConcurrency   `json:"loadConcurrency"`
			Node            *string           `json:"node"`
			NodeLabels      map[string]string `json:"nodeLabels"`
			Expect          int               `json:"expect"`
		} `json:"cases"`
	}](t, "load-concurrency.json").Cases
	require.Len(t, cases, 17)
	for _, c := range cases {
		rules := c.LoadConcurrency.Concurrency(c.Default)
		if c.Node != nil {
			assert.Equal(t, c.Expect, rules.Default(), c.ID)
			continue
		}
		assert.Equal(t, c.Expect, rules.On(c.NodeLabels), c.ID)
	}
}

func TestNodeAgentConfigInForce(t *testing.T) {
	for _, c := range []struct{ live, started, want int }{{4, 2, 2}, {2, 4, 2}, {0, 4, 4}, {4, 0, 4}, {0, 0, 0}} {
		assert.Equal(t, c.want, InForce(c.live, c.started), "live %d, at its start %d", c.live, c.started)
	}
}

func TestPodAffinityAsVelero(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			ID           string                     `json:"id"`
			NodeSelector *metav1.LabelSelector      `json:"nodeSelector"`
			Topology     *[]corev1.NodeSelectorTerm `json:"volumeTopologyTerms"`
			Expect       *struct {
				RequiredTerms []corev1.NodeSelectorTerm `json:"requiredTerms"`
			} `json:"expect"`
		} `json:"cases"`
	}](t, "load-affinity-conversion.json").Cases
	require.Len(t, cases, 8)
	for _, c := range cases {
		var topology *corev1.NodeSelector
		if c.Topology != nil {
			topology = &corev1.NodeSelector{NodeSelectorTerms: *c.Topology}
		}
		got := PodAffinity(c.NodeSelector, topology)
		switch {
		case c.ID == "empty-topology-selector":
			// Velero's affinity has no term there, and no pod can run: a defect.
			assert.Equal(t, PodAffinity(c.NodeSelector, nil), got, c.ID)
		case c.Expect == nil:
			assert.Nil(t, got, c.ID)
		default:
			require.NotNil(t, got, c.ID)
			assert.Empty(t, cmp.Diff(c.Expect.RequiredTerms, terms(got), cmpopts.EquateEmpty()), c.ID)
		}
	}
}

func terms(a *corev1.Affinity) []corev1.NodeSelectorTerm {
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func TestPodAffinitySelectorsAsVelero(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			Name     string                `json:"name"`
			Selector *metav1.LabelSelector `json:"nodeSelector"`
			Topology *corev1.NodeSelector  `json:"volumeTopology"`
			Expected *corev1.Affinity      `json:"expectedAffinity"`
		} `json:"cases"`
	}](t, "load-affinity-golden.json").Cases
	require.Len(t, cases, 12)
	for _, c := range cases {
		before := c.Topology.DeepCopy()
		assert.Empty(t, cmp.Diff(c.Expected, PodAffinity(c.Selector, c.Topology), cmpopts.EquateEmpty()), c.Name)
		assert.Equal(t, before, c.Topology, "the volume's own topology is not touched")
	}
}

func TestPodAffinityLabelsSorted(t *testing.T) {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"c": "1", "a": "2", "b": "3"}}
	for range 20 {
		list := terms(PodAffinity(s, nil))[0].MatchExpressions
		assert.Equal(t, []string{"a", "b", "c"}, []string{list[0].Key, list[1].Key, list[2].Key})
	}
}

func TestPodAffinityOfStorageClass(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			ID     string         `json:"id"`
			List   []LoadAffinity `json:"list"`
			Want   string         `json:"want"`
			Expect *int           `json:"expectIndex"`
		} `json:"cases"`
	}](t, "load-affinity-selection.json").Cases
	require.Len(t, cases, 6)
	for _, c := range cases {
		got := AffinityFor(c.List, c.Want)
		if c.Expect == nil {
			assert.Nil(t, got, c.ID)
			continue
		}
		require.NotNil(t, got, c.ID)
		before := c.List[*c.Expect].copy()
		assert.Equal(t, before, got, c.ID)
		for range 3 {
			got = AffinityFor(c.List, c.Want)
			got.NodeSelector.MatchExpressions = append(got.NodeSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: "added"})
			assert.Len(t, got.NodeSelector.MatchExpressions, len(before.NodeSelector.MatchExpressions)+1, c.ID)
			assert.Equal(t, before, &c.List[*c.Expect], "the configuration is not touched: %s", c.ID)
		}
	}
}
