package vm_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
)

// repeated is how often a part of a test is done: what that variable says, else once.
func repeated(t *testing.T, variable string) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// longestBeat is the longest time in which neither the kubelet nor the agent may fail to
// renew its Lease: a renewal each 10 s, and what a busy machine adds. Other work on the
// machine that emulates would count, too: only runs that were asked for by number are held
// to it.
const longestBeat = 12500 * time.Millisecond

// eatersAreHeld: without a limit each would take memory until the machine stood still. The
// kubelet's own threshold is below what the agent holds it at.
func eatersAreHeld(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if os.Getenv("PLIMSOLL_LONG") == "" {
			t.Skip("it fills the memory of an emulated machine: make e2e")
		}
		k := shared.with(t)
		k.configure(repeating + "throttle: {dryRun: false}\n")
		defer k.configure(acting)
		k.deploy("steady", idle())
		steady := k.running("steady")
		k.until(time.Minute, "the agent has settled", func() bool { return k.agentAge() > evict.DefaultConfig().Cooldown })
		k.stage("a pod that waits runs")
		for range repeated(t, "PLIMSOLL_EATERS") {
			k.holdsEater()
		}
		assert.Equal(t, steady.UID, k.running("steady").UID, "the other pod is the same")
		assert.NotContains(t, k.run("dmesg"), "Out of memory")
		k.undeploy("steady")
	}
}

// holdsEater waits until a pod that eats was held, evicted and has ended.
func (k *kubeNode) holdsEater() {
	k.t.Helper()
	before := countOf(k.decisions(), evictedFor("memory-stall"))
	gaps := k.watchBeats()
	k.deploy("eater", corev1.PodSpec{Containers: []corev1.Container{{Name: "hog", Image: imageOf("hog"), Args: []string{"-available", "1"}}}})
	eater := k.running("eater")
	k.until(2*time.Minute, "a pod is evicted", func() bool { return countOf(k.decisions(), evictedFor("memory-stall")) > before })
	d := k.evicted(time.Minute, "memory-stall")
	going, _ := d.FirstEvicted()
	assert.Equal(k.t, string(eater.UID), going.Pod.UID)
	k.said(eater.UID, "Throttled", time.Minute)
	held := k.eventOf(eater.UID, "Throttled")
	k.undeploy("eater")
	k.ended(eater)
	assert.Equal(k.t, before+1, countOf(k.decisions(), evictedFor("memory-stall")))
	k.until(2*time.Minute, "the Node is not marked", func() bool { return k.condition(names.Prefix+"MemoryContention") != corev1.ConditionTrue })
	kubelet, agent := gaps()
	k.t.Logf("hard -> held %+.1f s -> eviction accepted %+.1f s; longest beat of the kubelet %.1f s, of the agent %.1f s",
		held.Sub(d.Causes[0].Since).Seconds(), going.Answers[0].Time.Sub(held).Seconds(), kubelet.Seconds(), agent.Seconds())
	if os.Getenv("PLIMSOLL_EATERS") != "" {
		assert.Less(k.t, max(kubelet, agent), longestBeat)
	}
	k.stage("the eater was held, evicted, and has ended")
}

// watchBeats watches the Leases of the kubelet and of the agent until the function is called,
// which returns the longest times between two renewals.
func (k *kubeNode) watchBeats() func() (kubelet, agent time.Duration) {
	ctx, stop := context.WithCancel(k.t.Context())
	var all sync.WaitGroup
	watch := func(namespace string, longest *time.Duration) {
		var last time.Time
		for ctx.Err() == nil {
			l, err := k.cluster.Client.CoordinationV1().Leases(namespace).Get(ctx, nodeName, metav1.GetOptions{})
			if err == nil && l.Spec.RenewTime != nil {
				if !last.IsZero() {
					*longest = max(*longest, l.Spec.RenewTime.Sub(last))
				}
				last = l.Spec.RenewTime.Time
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
		*longest = max(*longest, time.Since(last))
	}
	var kubelet, agent time.Duration
	all.Go(func() { watch(corev1.NamespaceNodeLease, &kubelet) })
	all.Go(func() { watch(lease.Namespace, &agent) })
	return func() (time.Duration, time.Duration) {
		stop()
		all.Wait()
		return kubelet, agent
	}
}

// eventOf is when an Event of that reason about a pod was written, in seconds.
func (k *kubeNode) eventOf(pod types.UID, reason string) time.Time {
	k.t.Helper()
	list, err := k.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(k.t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod) + ",reason=" + reason})
	require.NoError(k.t, err)
	require.NotEmpty(k.t, list.Items)
	if at := list.Items[0].EventTime.Time; !at.IsZero() {
		return at
	}
	return list.Items[0].FirstTimestamp.Time
}
