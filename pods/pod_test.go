package pods

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func asking(memory string) corev1.ResourceList {
	if memory == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse("7")}
}

func container(memory string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: asking(memory), Limits: asking("9Gi")}}
}

func sidecar(memory string) corev1.Container {
	c := container(memory)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestPodFields(t *testing.T) {
	created, gone := time.Unix(1000, 0), time.Unix(2077, 0)
	pod := made(annotated(qosLevel, "reclaimed_cores"), claiming("data"), func(p *corev1.Pod) {
		p.CreationTimestamp, p.DeletionTimestamp = metav1.NewTime(created), &metav1.Time{Time: gone}
		p.DeletionGracePeriodSeconds = new(int64(77))
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		p.Spec.Containers[0].Resources.Requests = asking("1Ki")
		p.Spec.TerminationGracePeriodSeconds = new(int64(0))
	})
	want := Pod{
		UID: "u1", Namespace: "shop", Name: "web-1", CgroupUID: "u1",
		Owner: Owner{Kind: "ReplicaSet", Name: "web", UID: "r1"},
		QoS:   "Burstable", LowQoS: true, Priority: 1000, MemoryRequestBytes: 1024, CPURequestMillicores: 7000,
		Created: created, Phase: "Failed", StatusReason: "Evicted", TerminatesBy: gone, DeletionGraceSeconds: 77,
	}
	if diff := cmp.Diff(want, toPod(strip(pod), claimsByName{"data": {known: true}}, DefaultRules())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	assert.Zero(t, toPod(made(), nil, DefaultRules()).TerminatesBy)
	assert.EqualValues(t, 30, toPod(made(), nil, DefaultRules()).GraceSeconds)
	assert.Zero(t, toPod(made(owned(owner("v1", "Node", new(true)))), nil, DefaultRules()).Owner, "a Node is no controller")
}

func TestLowQoS(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*corev1.Pod)
		low    bool
	}{
		"burstable":                   {change: labelled("a", "b")},
		"best effort":                 {change: func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, low: true},
		"guaranteed":                  {change: func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }},
		"Katalyst's reclaimed cores":  {change: annotated(qosLevel, "reclaimed_cores"), low: true},
		"Katalyst's shared cores":     {change: annotated(qosLevel, "shared_cores")},
		"Katalyst's level as a label": {change: labelled(qosLevel, "reclaimed_cores")},
	} {
		t.Run(what, func(t *testing.T) {
			found := toPod(strip(made(row.change)), nil, DefaultRules())
			assert.Equal(t, row.low, found.LowQoS)
			assert.Empty(t, found.Protections)
		})
	}
}

func TestPodByCgroupUID(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	mirror := func(name string, created int64, deleted *metav1.Time) Pod {
		return toPod(made(static(hash), func(p *corev1.Pod) {
			p.UID, p.CreationTimestamp, p.DeletionTimestamp = "mirror-"+p.UID, metav1.Unix(created, 0), deleted
			p.Name = name
		}), nil, DefaultRules())
	}
	deleted := new(metav1.Unix(9, 0))
	victim := toPod(made(), nil, DefaultRules())
	// A pod that claims another's cgroup: by the annotation alone, and as
	// what would be a static pod.
	liar := toPod(made(annotated(configHash, "u1"), func(p *corev1.Pod) { p.UID = "u2" }), nil, DefaultRules())
	worse := toPod(made(static("u1"), func(p *corev1.Pod) { p.UID = "u3" }), nil, DefaultRules())
	require.Equal(t, "u2", liar.CgroupUID)
	for _, list := range []List{
		{Pods: []Pod{worse, liar, victim, mirror("before", 1, deleted), mirror("etcd", 2, nil), mirror("later", 3, nil), mirror("held", 4, deleted)}},
		{Pods: []Pod{mirror("held", 4, deleted), mirror("later", 3, nil), mirror("etcd", 2, nil), mirror("before", 1, deleted), victim, worse, liar}},
	} {
		for _, l := range []List{list, {Pods: list.Pods, byCgroup: indexByCgroup(list.Pods)}} {
			p, found := l.ByCgroupUID("u1")
			require.True(t, found)
			assert.Equal(t, victim, p, "another pod took its place")
			p, found = l.ByCgroupUID(hash)
			require.True(t, found)
			assert.Equal(t, "etcd", p.Name)
			_, found = l.ByCgroupUID("not known")
			assert.False(t, found)
			_, found = l.ByCgroupUID("")
			assert.False(t, found)
		}
	}
}

func TestPodMirrorWithoutHash(t *testing.T) {
	assert.Equal(t, "u1", cgroupUID(made(static(""))))
	lost := made(static("x"))
	delete(lost.Annotations, configHash)
	assert.Equal(t, "u1", cgroupUID(lost))
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{250, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := fullWatcher(b, n)
			for b.Loop() {
				list := w.List(DefaultRules())
				for i := range n {
					if _, found := list.ByCgroupUID(fmt.Sprint("u", i)); !found {
						b.Fatal("lost")
					}
				}
			}
		})
	}
}
