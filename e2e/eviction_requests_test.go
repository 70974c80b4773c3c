package e2e_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// What Katalyst lends, as its nodes and pods have it.
const (
	reclaimedCPU    corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	reclaimedMemory corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// burner is a container that keeps so many threads busy.
func burner(threads int) corev1.Container {
	return corev1.Container{Name: "burn", Image: "none", Command: []string{loadBinary, "burn", strconv.Itoa(threads)}}
}

// lends makes the Node offer resources to pods of reclaimed_cores.
func (w *world) lends(millicpu, memory string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"status":{"capacity":{%q:%q,%q:%q},"allocatable":{%[1]q:%[2]q,%[3]q:%[4]q}}}`, reclaimedCPU, millicpu, reclaimedMemory, memory)
	_, err := w.c.Client.CoreV1().Nodes().Patch(w.t.Context(), w.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(w.t, err)
}

// borrows lets a pod ask for what is lent.
func borrows(millicpu, memory string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "katalyst.kubewharf.io/qos_level", "reclaimed_cores")
		list := corev1.ResourceList{reclaimedCPU: resource.MustParse(millicpu), reclaimedMemory: resource.MustParse(memory)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// verdict of a plugin about a scope, as the agent published it last.
func (w *world) verdict(plugin, scope string) (plugins.Verdict, error) {
	for _, v := range w.agent.pressure().Verdicts {
		if v.Plugin == plugin && v.Scope == scope {
			return v, nil
		}
	}
	return plugins.Verdict{}, fmt.Errorf("%s says nothing about %s", plugin, scope)
}

// Both ask for four times the CPUs of this machine; one wants them, the other
// sleeps.
func TestEvictCPUSuppressedLowQoSPod(t *testing.T) {
	w := startWorld(t)
	w.rules = "  cpuSuppression: {enabled: true, for: 4s, clearFor: 2s}\n"
	w.configure()
	w.lends("1M", "1Gi")
	asks := strconv.Itoa(4000 * runtime.NumCPU())
	w.deploy("starved", 0, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0] = burner(2 * runtime.NumCPU())
		borrows(asks, "1Mi")(p)
	})
	w.deploy("asleep", 0, func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0] = burner(0)
		borrows(asks, "1Mi")(p)
	})
	starved, asleep := w.running("starved"), w.running("asleep")
	w.start()
	d := w.decided("somebody is evicted", isEvicted)
	going, _ := d.FirstEvicted()
	t.Log(going.Reason)
	assert.Equal(t, starved.Name, going.Pod.Name)
	assert.Equal(t, []string{"cpu-suppression"}, going.Plugins)
	assert.Contains(t, going.Reason, fmt.Sprintf("of the %d CPUs that it requests", 4*runtime.NumCPU()))
	assert.Contains(t, going.Reason, "waits")
	require.Len(t, d.Candidates, 1, "who sleeps misses nothing")
	eventually(t, "the pod is gone", func() error { return w.gone(starved) })
	w.explained(starved.Name, "cpu-suppression", "CPUs that it requests")
	assert.Equal(t, asleep.UID, w.running("asleep").UID)
}

// explained holds that the program tells of an eviction and why.
func (w *world) explained(pod string, words ...string) {
	w.t.Helper()
	code, out, stderr := run(w.t, "explain", "eviction", w.namespace+"/"+pod, "--api.socket", w.agent.socket)
	require.Zero(w.t, code, stderr)
	w.t.Log("\n" + out)
	for _, word := range append(words, pod) {
		assert.Contains(w.t, out, word)
	}
}

// Three hold the same and ask for the same; one says itself that it may, and one
// is little above.
func TestEvictRSSOveruse(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.rules = "  rssOveruse: {enabled: true, rate: 150, for: 3s, clearFor: 2s}\n"
	w.configure()
	asks := func(memory string, change func(*corev1.PodTemplateSpec)) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
			if change != nil {
				change(p)
			}
		}
	}
	w.deploy("greedy", 100, asks("40Mi", nil))
	w.deploy("allowed", 100, asks("40Mi", func(p *corev1.PodTemplateSpec) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "katalyst.kubewharf.io/memory_enhancement", `{"rss_overuse_threshold":"20"}`)
	}))
	w.deploy("modest", 100, asks("400Mi", nil)) // a program with the race detector holds twice that and more
	greedy, allowed, modest := w.running("greedy"), w.running("allowed"), w.running("modest")
	w.start()
	d := w.decided("somebody is evicted", isEvicted)
	going, _ := d.FirstEvicted()
	t.Log(going.Reason)
	assert.Equal(t, greedy.Name, going.Pod.Name)
	assert.Equal(t, []string{"rss-overuse"}, going.Plugins)
	assert.Contains(t, going.Reason, "of the 40 MiB that it requests, limit 150 %")
	require.Len(t, d.Candidates, 1)
	assert.Empty(t, w.getNode().Spec.Taints, "the node is not to blame")
	eventually(t, "the pod is gone", func() error { return w.gone(greedy) })
	w.explained(greedy.Name, "rss-overuse", "MiB that it requests")
	assert.Equal(t, allowed.UID, w.running("allowed").UID)
	assert.Equal(t, modest.UID, w.running("modest").UID)
}

// customNodeResources is the CRD of Katalyst, as far as it is read.
const customNodeResources = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: customnoderesources.node.katalyst.kubewharf.io}
spec:
  group: node.katalyst.kubewharf.io
  names: {kind: CustomNodeResource, listKind: CustomNodeResourceList, plural: customnoderesources, singular: customnoderesource, shortNames: [kcnr]}
  scope: Cluster
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// says writes what of the Node is lent, as Katalyst's agent does.
func (w *world) says(millicpu, memory string) {
	w.t.Helper()
	object := func(status string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":%q},"status":{%s}}`, w.node, status)
	}
	at := w.c.Client.CoreV1().RESTClient()
	path := "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources"
	status := fmt.Sprintf(`"resources":{"allocatable":{%q:%q,%q:%q}}`, reclaimedCPU, millicpu, reclaimedMemory, memory)
	eventually(w.t, "the CustomNodeResource is written", func() error {
		err := at.Post().AbsPath(path).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(object("")).Do(w.t.Context()).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return at.Patch(types.MergePatchType).AbsPath(path, w.node, "status").SetHeader("Accept", "application/json").Body(object(status)).Do(w.t.Context()).Error()
	})
}

// What is lent shrinks to less than what the pods ask for: one goes, and what
// the other asks for fits.
func evictReclaimedOvercommit(t *testing.T, c *cluster.Cluster) {
	w := startWorldOf(t, c)
	w.rules = "  reclaimedOvercommit: {enabled: true, cpuRate: 100, softCpuRate: 100, for: 1s, clearFor: 2s}\n"
	w.configure()
	w.lends("40k", "10Gi")
	w.deploy("large", 5, borrows("20k", "1Gi"))
	w.deploy("small", 5, borrows("10k", "1Gi"))
	large, small := w.running("large"), w.running("small")
	w.start()
	eventually(t, "it is said why nothing is judged", func() error {
		return w.unjudged("reclaimed cpu", "deploy/rbac-katalyst.yaml")
	})
	require.NoError(t, w.c.Apply(t.Context(), deploy.RBACKatalyst))
	eventually(t, "there is no such kind", func() error { return w.unjudged("reclaimed cpu", "no CustomNodeResource") })
	require.NoError(t, w.c.Apply(t.Context(), []byte(customNodeResources)))
	w.says("40k", "10Gi")
	eventually(t, "both fit", func() error {
		v, err := w.verdict("reclaimed-overcommit", "reclaimed cpu")
		if asked, ok := v.Observed.Get(); err == nil && (!ok || asked != 30 || v.Level != plugins.None) {
			err = fmt.Errorf("%s, %s", v.Level, v.Reason)
		}
		return err
	})
	require.Empty(t, w.evicted())
	w.says("15k", "10Gi")
	w.lends("15k", "10Gi")
	d := w.decided("somebody is evicted", isEvicted)
	going, _ := d.FirstEvicted()
	t.Log(d.Causes[0].Reason, "–", going.Reason)
	assert.Equal(t, large.Name, going.Pod.Name, "the larger, of one priority")
	assert.Equal(t, []string{"reclaimed-overcommit"}, going.Plugins)
	assert.Contains(t, d.Causes[0].Reason, "(15 reclaimed, limit 100 %)")
	eventually(t, "the pod is gone", func() error { return w.gone(large) })
	w.explained(large.Name, "reclaimed-overcommit", "requests 20 CPUs")
	w.noEvictionFor(5 * time.Second)
	assert.Equal(t, small.UID, w.running("small").UID)
}

// unjudged is nil when the rule says that it does not know, and why.
func (w *world) unjudged(scope, why string) error {
	v, err := w.verdict("reclaimed-overcommit", scope)
	if err == nil && (v.Level != plugins.None || !strings.Contains(v.Absent, why)) {
		err = fmt.Errorf("%s, absent: %q", v.Level, v.Absent)
	}
	return err
}
