package backup

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// scene is one leader over an API server, whose log and Events are kept.
type scene struct {
	*server
	*leader

	log    bytes.Buffer
	events keptEvents
	refuse map[string]error // what the API server answers to writes of Backups
}

// keptEvents is what was published, a line each.
type keptEvents struct {
	lines []string
	about *corev1.ObjectReference // of the last one
}

func (k *keptEvents) Event(o runtime.Object, _, reason, message string) {
	k.lines = append(k.lines, reason+": "+message)
	k.about = o.(*corev1.ObjectReference)
}

func newScene(t *testing.T, limit int) *scene {
	s := &scene{server: &server{random: rand.New(rand.NewPCG(1, 1)), now: map[string]*unstructured.Unstructured{}, read: map[string]*Object{}, rank: map[string]int{}}}
	s.leader = newLeader(s.server, func() Settings { return leading(limit, Config{}) })
	t.Cleanup(s.stop)
	s.r.Log, s.r.Events = slog.New(slog.NewTextHandler(&s.log, nil)), &s.events
	return s
}

// backup is created; position is that of Velero's own queue, 0: none.
func (s *scene) backup(name string, position int, includes ...any) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "namespace": "velero", "uid": name},
		"spec":     map[string]any{"includedNamespaces": includes},
	}}
	if position > 0 {
		u.Object["status"] = map[string]any{"phase": string(Queued), "queuePosition": int64(position)}
	}
	u.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second).UTC()))
	s.put(u)
}

// pass lets rounds happen, a second apart, for some time.
func (s *scene) pass(d time.Duration) {
	for end := time.Now().Add(d); ; time.Sleep(time.Second) {
		for again := true; again; again = s.sent != nil {
			s.learn(len(s.history))
			if s.sent != nil {
				s.answer = s.refuse[s.sent.name]
			}
			s.resume()
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// settle lets rounds happen as long as they change something.
func (s *scene) settle() {
	for again := true; again; again = s.sent != nil || s.seen < len(s.history) {
		s.learn(len(s.history))
		s.resume()
	}
}

// positions of Backups, as written.
func (s *scene) positions(names ...string) (all []int) {
	for _, name := range names {
		all = append(all, s.read[name].Backup.Position)
	}
	return all
}

func TestQuietQueuePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		waits := []string{"b", "c", "d", "e", "f", "g"}
		s.backup("a", 1, "a")
		for i, name := range waits {
			s.backup(name, []int{2, 3, 4, 6, 7, 9}[i], "b")
		}
		s.pass(time.Second)
		require.Equal(t, Ready, s.phase("a"))
		require.True(t, s.become(Ready, InProgress))
		rough, exact := []int{1, 2, 3, 6, 7, 9}, []int{1, 2, 3, 4, 5, 6}
		s.pass(20 * time.Minute)
		require.Equal(t, rough, s.positions(waits...))
		s.backup("h", 0, "b") // the half hour begins anew
		waits, rough, exact = append(waits, "h"), append(rough, 10), append(exact, 7)
		s.pass(exactAfter - time.Minute)
		assert.Equal(t, rough, s.positions(waits...), "29 minutes without a change")
		s.pass(2 * time.Minute)
		assert.Equal(t, exact, s.positions(waits...), "half an hour without a change")
	})
}

// While one that comes before another waits until that has a later turn, nothing says that the
// other waits ahead of it.
func TestOvertakingIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.r.Settings = func() Settings { return leading(1, Config{Priorities: true}) }
		s.backup("night", 1, "a")
		s.backup("urgent", 2, "a")
		s.now["urgent"].SetAnnotations(map[string]string{AnnotationPriority: "1"})
		s.put(s.now["urgent"])
		s.pass(0)
		require.Equal(t, CodeOvertakes, s.r.Reports()[0].Waiting[0].Reason)
		assert.Equal(t, "it starts before night as soon as that has a later turn", s.r.Reports()[0].Waiting[0].Why())
		s.pass(2 * time.Second)
		require.Equal(t, Ready, s.phase("urgent"))
		assert.NotContains(t, s.log.String()+strings.Join(s.events.lines, ""), "Backup night, which waits ahead")
	})
}

func TestBackupPublished(t *testing.T) {
	var s *scene
	synctest.Test(t, func(t *testing.T) {
		s = newScene(t, 2)
		s.backup("first", 0, "a", "b", "c")
		s.pass(2 * time.Second)
		require.True(t, s.become(Ready, InProgress))
		s.backup("second", 0, "b", "c", "d")
		s.pass(90 * time.Second)
		s.backup("wrong", 0, "d**")
		s.pass(time.Second)
		require.Equal(t, Queued, s.phase("second"))
		require.Equal(t, Ready, s.phase("wrong"), "it waits for none that it could overlap with")
		require.True(t, s.become(Ready, "FailedValidation"))
		require.True(t, s.become(InProgress, "Completed"))
		s.pass(time.Second)
		require.Equal(t, Ready, s.phase("second"))
	})
	log := s.log.String()
	line := func(message string) string {
		i := strings.LastIndex(log, `msg="`+message+`"`)
		require.GreaterOrEqual(t, i, 0, log)
		return strings.SplitN(log[i:], "\n", 2)[0]
	}
	t.Run("a wait has the namespaces in conflict", func(t *testing.T) {
		assert.Contains(t, line("backup waits"), `reason="it shares namespaces b, c with Backup first, which runs" code=running place=1 blockedBy=first namespaces=b,c shared=2`)
		assert.Contains(t, s.events.lines, "BackupQueued: at place 1: it shares namespaces b, c with Backup first, which runs")
	})
	t.Run("a start has the time waited", func(t *testing.T) {
		assert.Contains(t, line("backup starts"), "backup=velero/second waited=1m31s")
		assert.Contains(t, s.events.lines, "BackupStarts: waited 1m31s")
	})
	t.Run("an invalid pattern is told", func(t *testing.T) {
		assert.Contains(t, s.events.lines, `BackupInvalidNamespaces: invalid namespace pattern: "d**"; Velero will fail it as soon as it starts (FailedValidation)`)
	})
}
