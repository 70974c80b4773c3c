package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
)

func node(name string, silent bool, n *lease.NodeContention) Node {
	return Node{Name: name, Silent: silent, Contention: n}
}

func disk(device, culprit string, waits ...lease.Workload) lease.ResourceContention {
	return lease.ResourceContention{Resource: "disk", Device: device, Culprits: []lease.Workload{{Name: culprit, Ratio: 0.7}}, Sufferers: waits}
}

func TestContentions(t *testing.T) {
	o := Overview{Nodes: []Node{
		node("a", false, &lease.NodeContention{Resources: []lease.ResourceContention{disk("sda", "batch/du", lease.Workload{Name: "shop/db", Ratio: 0.2})}, More: 2}),
		node("b", false, &lease.NodeContention{Unknown: []string{"Disk sdb", "Network eth0"}}),
		node("c", true, &lease.NodeContention{Resources: []lease.ResourceContention{disk("sda", "old/old")}}),
		node("d", false, nil),
		node("e", false, &lease.NodeContention{Resources: []lease.ResourceContention{disk("sdc", "shopping/x", lease.Workload{Name: "web/y", Ratio: 0.9})}, Unknown: []string{"Network eth0"}}),
	}}
	t.Run("the longest wait is first, and what is not known is counted apart", func(t *testing.T) {
		all := o.Contentions("")
		assert.Equal(t, "e", all.Contentions[0].Node)
		assert.Equal(t, "a", all.Contentions[1].Node)
		assert.Len(t, all.Contentions, 2)
		assert.Equal(t, 5, all.Nodes)
		assert.Equal(t, 2, all.More)
		assert.Equal(t, []string{"c"}, all.Silent)
		assert.Equal(t, []string{"d"}, all.Unreported)
		assert.Equal(t, []string{"b"}, all.Unknown, "no kernel tells who waits for a link")
	})
	t.Run("of a namespace only its own", func(t *testing.T) {
		all := o.Contentions("shop")
		assert.Len(t, all.Contentions, 1)
		assert.Equal(t, "a", all.Contentions[0].Node)
	})
	t.Run("a node is named where a pod of the namespace may be one of those that are not", func(t *testing.T) {
		wait := func(kind string, names ...string) (list []lease.Workload) {
			for _, name := range names {
				list = append(list, lease.Workload{Kind: kind, Name: name, Ratio: 0.4})
			}
			return list
		}
		four := disk("sda", "batch/du", wait("pod", "a/a", "b/b", "c/c", "shop/db")...)
		read, err := lease.ReadContention(map[string]string{lease.ContentionAnnotation: lease.NodeContention{Resources: []lease.ResourceContention{four, four}}.Encode()})
		require.NoError(t, err)
		o := Overview{Nodes: []Node{
			node("four", false, &read),
			node("of one UID", false, &lease.NodeContention{Resources: []lease.ResourceContention{disk("sda", "batch/du", wait("pod", "pod 1-2-3")...)}}),
			node("named", false, &lease.NodeContention{Resources: []lease.ResourceContention{disk("sda", "batch/du", wait("service", "sshd.service")...)}}),
			node("silent", true, &read),
		}}
		all := o.Contentions("shop")
		assert.Empty(t, all.Contentions)
		assert.Equal(t, []string{"four", "of one UID"}, all.Unnamed)
		assert.Empty(t, o.Contentions("batch").Unnamed, "each of them is listed")
		assert.Empty(t, o.Contentions("").Unnamed)
	})
	t.Run("the culprit is another than the sufferer, and accounts for enough of enough", func(t *testing.T) {
		db, du := lease.Workload{Name: "shop/db", Ratio: 0.8}, lease.Workload{Name: "batch/du", Ratio: 0.2}
		culprit := func(coverage *float64, culprits ...lease.Workload) string {
			c := Contention{ResourceContention: lease.ResourceContention{Coverage: coverage, Culprits: culprits, Sufferers: []lease.Workload{db}}}
			w, _ := c.MainCulprit()
			return w.Name
		}
		assert.Equal(t, "batch/du", culprit(nil, db, du))
		assert.Equal(t, "batch/du", culprit(new(0.7), db, du))
		assert.Empty(t, culprit(new(0.69), db, du), "too little of the use is counted")
		assert.Empty(t, culprit(nil, db, lease.Workload{Name: "batch/du", Ratio: 0.19}), "too small")
		assert.Empty(t, culprit(nil, db), "it does not wait because of itself")
		assert.Empty(t, culprit(nil))
	})
}

func TestNode(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(ago time.Duration, annotations map[string]string) Node {
		renewed := lease.Micro(now.Add(-ago))
		return newNode(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: annotations}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: new(int32(40))}}, now)
	}
	t.Run("one that renews is not silent", func(t *testing.T) { assert.False(t, of(39*time.Second, nil).Silent) })
	t.Run("one that does not is", func(t *testing.T) { assert.True(t, of(41*time.Second, nil).Silent) })
	t.Run("one that renews no Lease reports nothing, whatever was left", func(t *testing.T) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
			lease.NodeAnnotation: `{"pressure":{"disk":"hard"}}`, lease.ContentionAnnotation: lease.NodeContention{Version: "v1"}.Encode(),
		}}}
		assert.Equal(t, Node{Name: "a", Silent: true, Problem: "renews no Lease (lease.enabled: false)"}, newNode(l, now))
	})
	t.Run("a clock a little ahead is no age", func(t *testing.T) {
		n := of(-39*time.Second, nil)
		assert.Zero(t, *n.HeartbeatSeconds)
		assert.False(t, n.Silent)
	})
	t.Run("one whose clock is far ahead may be dead", func(t *testing.T) {
		n := of(-10*time.Minute, nil)
		assert.True(t, n.Silent)
		assert.InDelta(t, -600, *n.HeartbeatSeconds, 0)
		assert.Equal(t, "its clock is, or was, 10 min ahead: whether it lives is not known; the agent does not report contention", n.Problem)
	})
	t.Run("and one that looks dead may have a clock that is behind", func(t *testing.T) {
		assert.Contains(t, of(10*time.Minute, nil).Problem, "it has not renewed its Lease, or its clock is behind")
	})
	t.Run("an agent of an older version is told apart from one without contention", func(t *testing.T) {
		old := of(0, map[string]string{lease.NodeAnnotation: `{"pressure":{"disk":"hard"}}`})
		assert.Nil(t, old.Contention)
		assert.Equal(t, "the agent does not report contention", old.Problem)
		assert.Equal(t, map[string]string{"disk": "hard"}, old.Pressure)
		assert.True(t, old.Judged)
		none := of(0, map[string]string{lease.ContentionAnnotation: lease.NodeContention{Version: "v1"}.Encode()})
		assert.NotNil(t, none.Contention)
		assert.Empty(t, none.Problem)
		assert.False(t, none.Judged)
	})
	t.Run("what is not judged, or only reported, is no all-clear", func(t *testing.T) {
		n := of(0, map[string]string{lease.NodeAnnotation: `{"reported":{"cpu":"soft"},"notJudged":["memory"]}`})
		assert.Equal(t, map[string]string{"cpu": "soft"}, n.Reported)
		assert.Equal(t, []string{"memory"}, n.NotJudged)
	})
	t.Run("what cannot be read is named", func(t *testing.T) {
		n := of(0, map[string]string{lease.NodeAnnotation: "{", lease.ContentionAnnotation: "{"})
		assert.Contains(t, n.Problem, "annotation plimsoll.dev/node-report")
		assert.False(t, n.Judged)
	})
}
