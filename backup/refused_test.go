package backup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

func invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "velero.io", Kind: "Backup"}, name, nil)
}

// said is how many Events say that the API server refuses to change a Backup.
func (s *scene) said() (n int) {
	for _, line := range s.events.lines {
		if strings.HasPrefix(line, ReasonRefused+": ") {
			n++
		}
	}
	return n
}

// One that the API server refuses to change stops no other, but those that share a namespace
// with it: another leader may start it.
func TestRefusedStopsNoOther(t *testing.T) {
	for name, position := range map[string]int{"is not queued": 0, "does not start": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, 1)
				s.refuse = map[string]error{"bad": invalid("bad")}
				s.backup("bad", position, "a")
				for _, name := range []string{"same", "other", "last"} {
					s.backup(name, 0, map[string]any{"same": "a", "other": "b", "last": "c"}[name])
				}
				for _, name := range []string{"other", "last"} {
					s.pass(3 * time.Second)
					require.Equal(t, Ready, s.phase(name))
					require.True(t, s.become(Ready, InProgress))
					require.True(t, s.become(InProgress, "Completed"))
				}
				s.pass(time.Minute)
				assert.Equal(t, Queued, s.phase("same"))
				assert.Equal(t, 1, s.said())
				assert.Contains(t, s.events.lines, `BackupChangeRefused: the API server refuses to change it: Backup.velero.io "bad" is invalid; it does not start, and Backups queued after it that share a namespace with it wait for it; correct what refuses it, such as an admission policy, or delete the Backup; it is tried again after 5m, or when it has changed; its resourceVersion is 1001`)
				s.pass(RefusedFor)
				assert.Equal(t, 2, s.said())
				s.put(s.now["bad"]) // as its owner edits it
				s.pass(time.Second)
				assert.Equal(t, 3, s.said())
				version := s.now["bad"].GetResourceVersion()
				assert.Equal(t, version, s.events.about.ResourceVersion)
				assert.Contains(t, s.events.lines[len(s.events.lines)-1], "; its resourceVersion is "+version, "or it counts as the Event before")
				s.refuse = nil
				s.pass(RefusedFor + 3*time.Second)
				for range 2 {
					require.True(t, s.become(Ready, InProgress))
					require.True(t, s.become(InProgress, "Completed"))
					s.pass(time.Second)
				}
				assert.Equal(t, []Phase{"Completed", "Completed"}, []Phase{s.phase("bad"), s.phase("same")})
			})
		})
	}
}

// Nor does it stop others where a Backup that was queued after it comes first by priority: its turn
// stays, so the two wait, without a slot.
func TestRefusedStopsNoOtherByPriority(t *testing.T) {
	for name, position := range map[string]int{"is not queued": 0, "does not start": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, 1)
				s.r.Settings = func() Settings { return leading(1, Config{Priorities: true}) }
				s.refuse = map[string]error{"bad": invalid("bad")}
				s.backup("bad", position, "a")
				s.backup("same", 0, "a")
				s.now["same"].SetAnnotations(map[string]string{AnnotationPriority: "1"})
				s.put(s.now["same"])
				s.backup("other", 0, "b")
				s.pass(3 * time.Second)
				require.Equal(t, Ready, s.phase("other"))
				require.Equal(t, Queued, s.phase("same"))
				assert.Equal(t, []any{CodeRefused, "bad"}, []any{s.read["same"].Waiting.Reason, s.read["same"].Waiting.BlockedBy})
				assert.Contains(t, s.log.String(), "it shares namespace a with Backup bad, which was queued before it and which the API server refuses to change")
				require.True(t, s.become(Ready, InProgress))
				require.True(t, s.become(InProgress, "Completed"))
				s.pass(time.Second)
				waiting := s.r.Reports()[0].Waiting
				assert.Equal(t, []string{"same", "bad"}, []string{waiting[0].Name, waiting[1].Name})
				assert.Equal(t, "shares namespace a with bad, which was queued before it and which the API server refuses to change", waiting[0].Why())
				s.refuse = nil
				s.pass(RefusedFor + 3*time.Second)
				for _, name := range []string{"same", "bad"} {
					require.Equal(t, Ready, s.phase(name))
					require.True(t, s.become(Ready, InProgress))
					require.True(t, s.become(InProgress, "Completed"))
					s.pass(time.Second)
				}
			})
		})
	}
}

func TestRefusedRoundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.refuse = map[string]error{}
		for i := range 10 {
			name := fmt.Sprint(i)
			s.refuse[name] = invalid(name)
			s.backup(name, 0, "a")
		}
		for _, want := range []int{3, 6, 9, 10, 10} {
			s.pass(0)
			assert.Equal(t, want, s.said())
		}
	})
}

func TestRefusedIsNotHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		for _, name := range []string{"runs", "x", "bad", "y", "z"} {
			s.backup(name, 0, "a")
			s.pass(time.Second)
		}
		require.True(t, s.become(Ready, InProgress))
		x := s.now["x"]
		delete(s.now, "x")
		delete(s.read, "x")
		s.history = append(s.history, change{object: x, deleted: true})
		s.refuse = map[string]error{"bad": invalid("bad")}
		s.r.Settings = func() Settings { return Settings{Resync: time.Minute} }
		s.pass(5 * time.Second)
		assert.Equal(t, []int{2, 3, 4}, s.positions("bad", "y", "z"), "the order stays")
		assert.True(t, s.read["bad"].Annotated)
		assert.False(t, s.read["y"].Annotated || s.read["z"].Annotated)
		assert.Contains(t, s.log.String(), "handed backup queue back to velero")
		assert.Equal(t, 1, s.said())
		s.backup("new", 0, "b") // Velero's own queue works now, and lets it start
		ready := s.now["new"].DeepCopy()
		require.NoError(t, unstructured.SetNestedField(ready.Object, string(Ready), "status", "phase"))
		s.put(ready)
		versions := len(s.history)
		s.pass(time.Minute)
		assert.Equal(t, time.Minute, s.pause, "nothing is left to hand back")
		s.pass(RefusedFor)
		assert.Equal(t, 2, s.said(), "it is tried again")
		assert.Equal(t, Ready, s.phase("new"))
		assert.Len(t, s.history, versions, "what is not ours stays as it is")
		s.refuse = nil
		s.pass(RefusedFor)
		assert.False(t, s.read["bad"].Annotated)
		assert.Equal(t, []int{2, 3, 4}, s.positions("bad", "y", "z"))
		assert.Equal(t, Ready, s.phase("new"))
	})
}

// Two leaders, of which the API server refuses one to change some Backups.
func TestLeadersRefusedStartInOrder(t *testing.T) {
	for seed := range uint64(live.Times(10, 30)) {
		synctest.Test(t, func(t *testing.T) {
			of := func() Settings { return leading(1+int(seed%3), Config{}) }
			s := &server{random: rand.New(rand.NewPCG(seed, 20)), now: map[string]*unstructured.Unstructured{}, read: map[string]*Object{}, rank: map[string]int{}, ordered: true}
			c := &contest{server: s, settings: []func() Settings{of, of}, leaders: []*leader{newLeader(s, of), newLeader(s, of)}}
			defer func() {
				for _, l := range c.leaders {
					l.stop()
				}
			}()
			for range 600 {
				if l := c.leaders[0]; l.sent != nil && strings.ContainsAny(l.sent.name[3:], "0369") {
					l.answer = invalid(l.sent.name)
					l.resume()
				}
				c.step()
				require.NoError(t, s.wrong, "seed %d", seed)
			}
			time.Sleep(RefusedFor)
			require.NoError(t, c.drain(), "seed %d", seed)
			require.NoError(t, s.wrong, "seed %d", seed)
		})
	}
}

// A Backup for which a webhook fails, or hangs, stops no other, but those that share a namespace
// with it. It is tried again, and published when that lasts.
func TestFailingStopsNoOther(t *testing.T) {
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "x": connection refused`))
	for name, c := range map[string]struct {
		err      error
		position int
		within   time.Duration // each other one starts
	}{
		"webhook fails, not queued":      {webhook, 0, 3 * time.Second},
		"webhook fails, does not start":  {webhook, 1, 3 * time.Second},
		"answer is late, not queued":     {context.DeadlineExceeded, 0, 3 * time.Second},
		"answer is late, does not start": {context.DeadlineExceeded, 1, 95 * time.Second}, // it is tried twice
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, 1)
				s.refuse = map[string]error{"bad": c.err}
				s.backup("bad", c.position, "a")
				for _, name := range []string{"same", "other", "last"} {
					s.backup(name, 0, map[string]any{"same": "a", "other": "b", "last": "c"}[name])
				}
				for _, name := range []string{"other", "last"} {
					s.pass(c.within)
					require.Equal(t, Ready, s.phase(name))
					require.True(t, s.become(Ready, InProgress))
					require.True(t, s.become(InProgress, "Completed"))
				}
				assert.Zero(t, s.said())
				s.pass(20 * time.Minute)
				assert.Equal(t, Queued, s.phase("same"))
				assert.NotZero(t, s.said())
				s.refuse = nil
				s.pass(RefusedFor + 3*time.Second)
				for range 2 {
					require.True(t, s.become(Ready, InProgress))
					require.True(t, s.become(InProgress, "Completed"))
					s.pass(time.Second)
				}
				assert.Equal(t, []Phase{"Completed", "Completed"}, []Phase{s.phase("bad"), s.phase("same")})
				assert.Equal(t, 1, s.most)
			})
		})
	}
}

// A start whose answer does not come may still be made: its slot is given to no other.
func TestLateStartKeepsSlot(t *testing.T) {
	for name, lands := range map[string]time.Duration{"at once": 0, "after 30 s": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, 1)
				s.refuse = map[string]error{"slow": context.DeadlineExceeded}
				s.backup("slow", 1, "a")
				s.backup("other", 2, "b")
				s.learn(len(s.history))
				for s.sent == nil || s.sent.name != "slow" {
					s.resume()
				}
				late := *s.sent
				s.pass(lands)
				assert.Equal(t, Queued, s.phase("other"))
				_, err := s.patch(late)
				require.NoError(t, err)
				s.pass(time.Hour)
				assert.Equal(t, Ready, s.phase("slow"))
				assert.Equal(t, Queued, s.phase("other"))
				assert.Equal(t, 1, s.most)
			})
		})
	}
}
