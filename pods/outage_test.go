package pods

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// broken is a lab whose watcher hears the second API server, which a test may break
// for a while. It is a user of its own: those of one user share their connections.
func broken(t *testing.T) (lab, *cluster.Process, *Watcher) {
	t.Helper()
	l, c := shared(t)
	user, err := c.User("watcher-of-"+l.namespace, "system:masters")
	require.NoError(t, err)
	user.Host = c.AdminAt(1).Host
	l.node = "n1" // so short that a reason that has it is whole
	l.addNode(c, l.node)
	w := l.watcher(user)
	l.eventually("synced", w.Synced)
	return l, c.APIServers[1], w
}

// change makes pods, changes them while the watcher hears nothing, and returns
// what must be known afterwards.
func (l lab) change(meanwhile func()) (uids []string) {
	l.Helper()
	l.create(podOf("again", on(l.node)))
	l.create(podOf("away", on(l.node)))
	stays := l.create(podOf("stays", on(l.node)))
	meanwhile()
	l.remove("again", 0)
	l.remove("away", 0)
	again := l.create(podOf("again", on(l.node)))
	comes := l.create(podOf("comes", on(l.node)))
	return []string{string(again.UID), string(comes.UID), string(stays.UID)}
}

func uidsOf(list List) (all []string) {
	for _, p := range list.Pods {
		all = append(all, p.UID)
	}
	return all
}

// fresh waits until the mark is gone: at that moment the list must be right.
func (l lab) fresh(w *Watcher, want []string) time.Duration {
	l.Helper()
	var list List
	took := l.eventually("heard again", func() bool { list = w.List(DefaultRules()); return list.StaleSince.IsZero() })
	assert.Equal(l, want, uidsOf(list))
	assert.Empty(l, list.StaleBecause)
	return took
}

func TestWatcherAPIServerKilled(t *testing.T) {
	l, api, w := broken(t)
	killed, clock := time.Now(), deadline.Start()
	want := l.change(func() {
		l.eventually("all seen", func() bool { return len(w.List(DefaultRules()).Pods) == 3 })
		killed, clock = time.Now(), deadline.Start()
		require.NoError(t, api.Kill())
		l.eventually("stale", func() bool { return !w.List(DefaultRules()).StaleSince.IsZero() })
	})
	list := w.List(DefaultRules())
	assert.Len(t, list.Pods, 3)
	assert.True(t, list.Synced)
	assert.WithinDuration(t, killed, list.StaleSince, clock.Stretch(5*time.Second))
	l.eventually("the reason", func() bool {
		list = w.List(DefaultRules())
		return containsAll(list.StaleBecause, "connection refused")
	})
	assert.WithinDuration(t, killed, list.StaleSince, clock.Stretch(5*time.Second), "it is the first loss that counts")

	require.NoError(t, api.Start())
	require.NoError(t, api.WaitReady(t.Context()))
	t.Logf("missed %v after it was killed, heard %v after it was ready", list.StaleSince.Sub(killed), l.fresh(w, want))
}

func TestWatcherAPIServerHangs(t *testing.T) {
	// The long form waits for the times that client-go has by itself.
	bound := 45 * time.Second
	if os.Getenv("PLIMSOLL_LONG") == "" {
		t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
		t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
		bound = 5 * time.Second
	}
	l, api, w := broken(t)
	var since time.Duration
	want := l.change(func() {
		l.eventually("all seen", func() bool { return len(w.List(DefaultRules()).Pods) == 3 })
		paused, clock := time.Now(), deadline.Start()
		require.NoError(t, api.Pause())
		deadline.Eventually(t, func() bool { return !w.List(DefaultRules()).StaleSince.IsZero() }, bound+patience, 10*time.Millisecond)
		since = w.List(DefaultRules()).StaleSince.Sub(paused)
		assert.Less(t, since, clock.Stretch(bound+5*time.Second))
	})
	lost := w.List(DefaultRules()).StaleSince
	require.Never(t, func() bool { return w.List(DefaultRules()).StaleSince != lost }, 3*time.Second, 10*time.Millisecond,
		"a connection that is accepted and says nothing is no answer")
	require.NoError(t, api.Resume())
	t.Logf("missed after %v, heard %v after it went on", since, l.fresh(w, want))
}

func TestWatcherPodTouched(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	pod := l.bind(podOf("p"))
	l.seen(w, "p")
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "p", "application/merge-patch+json", []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	l.eventually("evicted", func() bool { p, _ := find(w, "p"); return p.Phase == string(corev1.PodFailed) })
	p, _ := find(w, "p")
	assert.Equal(t, "Evicted", p.StatusReason)
	assert.Equal(t, string(pod.UID), p.UID)
}
