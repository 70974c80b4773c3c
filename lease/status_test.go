package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// node is an API server that knows one Node, if any.
type node struct {
	corev1client.NodeInterface
	mu     sync.Mutex // guards all below
	node   *corev1.Node
	broken error
	refuse error // for a patch of Ready
	reads  int
	writes []time.Time
}

func (n *node) Nodes() corev1client.NodeInterface { return n }

func (n *node) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	if n.broken != nil {
		return nil, n.broken
	}
	if n.node == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	return n.node.DeepCopy(), nil
}

func (n *node) Patch(_ context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, sub ...string) (*corev1.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := schema.GroupResource{Resource: "nodes"}
	var head struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(patch, &head); err != nil {
		return nil, err
	}
	switch {
	case n.broken != nil:
		return nil, n.broken
	case n.node == nil:
		return nil, apierrors.NewNotFound(nodes, name)
	case kind != types.StrategicMergePatchType || !slices.Equal(sub, []string{"status"}):
		return nil, fmt.Errorf("%s of %s of %s is not known here", kind, sub, name)
	case head.Metadata.ResourceVersion != "" && head.Metadata.ResourceVersion != n.node.ResourceVersion:
		return nil, apierrors.NewConflict(nodes, name, errors.New("it has changed"))
	case n.refuse != nil && strings.Contains(string(patch), `"Ready"`):
		return nil, n.refuse
	}
	before, err := json.Marshal(n.node)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		return nil, err
	}
	n.node = &corev1.Node{}
	err = json.Unmarshal(after, n.node)
	n.writes = append(n.writes, time.Now())
	n.node.ResourceVersion = strconv.Itoa(len(n.writes))
	return n.node.DeepCopy(), err
}

func (n *node) set(broken error, is *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken, n.node = broken, is
}

// given are the conditions that are handed in.
type given struct {
	mu   sync.Mutex // guards list
	list []Condition
}

func (g *given) set(list ...Condition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = list
}

func (g *given) get() []Condition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// running is a status loop on a fake clock, and what it said.
func running(t *testing.T, n *node, g *given) (s *Status, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	s = &Status{Node: "n1", Nodes: n, Conditions: g.get, ReportEvery: 4 * time.Minute, Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	synctest.Wait()
	return s, log
}

// pass lets the clock go on, and then all that is due at that moment happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func counts(changed, report, failed uint64) map[Write]uint64 {
	return map[Write]uint64{Changed: changed, Report: report, WriteFailed: failed}
}

func pressed(reason string) Condition {
	return Condition{Type: "plimsoll.dev/Mem", Status: corev1.ConditionTrue, Reason: reason, Message: reason}
}

func TestStatusUnchangedWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		g.set(pressed("Stall"))
		s, _ := running(t, n, g)
		assert.Equal(t, counts(1, 0, 0), s.Writes())
		pass(4*time.Minute - time.Second)
		assert.Equal(t, counts(1, 0, 0), s.Writes())
		pass(time.Minute)
		assert.Equal(t, counts(1, 1, 0), s.Writes())
		pass(56 * time.Minute)
		assert.Equal(t, counts(1, 15, 0), s.Writes())
		assert.Equal(t, 1, n.reads, "the Node is read at the start and never again")
	})
}

func TestStatusUrgentWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		s, _ := running(t, n, g)
		assert.Equal(t, counts(0, 0, 0), s.Writes())
		g.set(pressed("Stall"))
		pass(DefaultEvery - time.Second)
		assert.Equal(t, counts(0, 0, 0), s.Writes())
		pass(2 * time.Second)
		assert.Equal(t, counts(1, 0, 0), s.Writes())
		g.set(pressed("Floor"))
		before := time.Now()
		for range 3 {
			s.Wake()
		}
		synctest.Wait()
		assert.Equal(t, counts(2, 0, 0), s.Writes())
		assert.Equal(t, before, n.writes[1])
		g.set()
		s.Wake()
		synctest.Wait()
		assert.Equal(t, counts(3, 0, 0), s.Writes())
		assert.Empty(t, n.node.Status.Conditions)
	})
}

func TestStatusAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		heard := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
		n, g := &node{node: &corev1.Node{}}, &given{}
		n.node.Status.Conditions = []corev1.NodeCondition{{
			Type: "plimsoll.dev/Mem", Status: corev1.ConditionTrue, Reason: "Stall", LastTransitionTime: began, LastHeartbeatTime: heard,
		}}
		g.set(pressed("Stall"))
		s, _ := running(t, n, g)
		assert.Equal(t, counts(0, 0, 0), s.Writes())
		pass(3*time.Minute + DefaultEvery + time.Second)
		assert.Equal(t, counts(0, 1, 0), s.Writes())
		assert.True(t, began.Equal(&n.node.Status.Conditions[0].LastTransitionTime))
	})
}

func TestStatusWithoutNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{}, &given{}
		g.set(pressed("Stall"))
		s, log := running(t, n, g)
		pass(time.Hour)
		assert.Equal(t, 1, strings.Count(log.String(), "failed to update node status; retrying"), log)
		assert.Greater(t, n.reads, 300, "it is not tried again")
		n.set(nil, &corev1.Node{})
		pass(DefaultEvery + time.Second)
		assert.Equal(t, counts(1, 0, 0), s.Writes())
		assert.Contains(t, log.String(), "node status update recovered")
		// It is made anew under its name: what was there is not there any more.
		n.set(nil, nil)
		g.set(pressed("Floor"))
		pass(time.Minute)
		assert.Equal(t, counts(1, 0, 1), s.Writes())
		n.set(nil, &corev1.Node{})
		pass(DefaultEvery + time.Second)
		assert.Equal(t, counts(2, 0, 1), s.Writes())
	})
}

func TestStatusRetriesFromNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		g.set(pressed("Stall"))
		s, log := running(t, n, g)
		n.set(errors.New("no route"), n.node)
		g.set(pressed("Floor"))
		pass(time.Minute)
		assert.Equal(t, counts(1, 0, 1), s.Writes(), "after the first only the reading fails")
		assert.Equal(t, 2, strings.Count(log.String(), "no route"), "once for each call")
		n.set(nil, n.node)
		pass(DefaultEvery + time.Second)
		assert.Equal(t, counts(2, 0, 1), s.Writes())
		require.Len(t, n.node.Status.Conditions, 1)
		assert.Equal(t, "Floor", n.node.Status.Conditions[0].Reason)
	})
}

// keptReady is the condition Ready of an agent that keeps its Node Ready.
func keptReady() Condition {
	return Condition{Type: "Ready", Status: corev1.ConditionTrue, Reason: "AgentBeats", Message: "m"}
}

// conditionOf the Node, or an empty one.
func (n *node) conditionOf(kind corev1.NodeConditionType) corev1.NodeCondition {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (n *node) refuses(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
}

// asKubelet writes Ready, and nothing else.
func (n *node) asKubelet(status corev1.ConditionStatus, reason string) {
	n.asClient(corev1.NodeCondition{
		Type: "Ready", Status: status, Reason: reason, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	})
}

// asClient writes one condition, and nothing else.
func (n *node) asClient(is corev1.NodeCondition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes = append(n.writes, time.Now())
	n.node.ResourceVersion = strconv.Itoa(len(n.writes))
	n.node.Status.Conditions = slices.DeleteFunc(n.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == is.Type })
	n.node.Status.Conditions = append(n.node.Status.Conditions, is)
}

func TestReadyRefused(t *testing.T) {
	const mem = "plimsoll.dev/Mem"
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		n.refuses(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("a policy")))
		g.set(pressed("Stall"), keptReady())
		_, log := running(t, n, g)
		assert.Equal(t, "Stall", n.conditionOf(mem).Reason, "a refusal of Ready refuses no other condition")
		assert.Empty(t, n.conditionOf("Ready"))
		g.set(pressed("Floor"), keptReady())
		pass(time.Minute)
		assert.Equal(t, "Floor", n.conditionOf(mem).Reason)
		assert.Equal(t, 1, strings.Count(log.String(), "the API server refused the Node's Ready condition"), log)
		assert.NotContains(t, log.String(), "failed to update node status")
		n.refuses(nil)
		pass(DefaultEvery + time.Second)
		assert.Equal(t, "AgentBeats", n.conditionOf("Ready").Reason)
		assert.Contains(t, log.String(), "the agent writes the Node's Ready condition again")
	})
}

func TestReadyStaysWhenNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		g.set(pressed("Stall"), keptReady())
		s, log := running(t, n, g)
		require.Equal(t, "AgentBeats", n.conditionOf("Ready").Reason)
		n.refuses(errors.New("no right"))
		for _, list := range [][]Condition{{pressed("Floor")}, nil} {
			g.set(list...)
			s.Reread()
			pass(time.Minute)
			assert.Equal(t, "AgentBeats", n.conditionOf("Ready").Reason)
		}
		assert.Empty(t, n.conditionOf("plimsoll.dev/Mem"))
		assert.Empty(t, log.String())
	})
}

// The agent reads the Node after each of its heartbeats then.
func TestReadyLeftToKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		g.set(pressed("Stall"), keptReady())
		s, log := running(t, n, g)
		for range 30 { // as often as a kubelet reports, for 2.5 h
			n.asKubelet(corev1.ConditionFalse, "KubeletNotReady")
			for range 30 {
				s.Reread()
				pass(10 * time.Second)
				require.Equal(t, "KubeletNotReady", n.conditionOf("Ready").Reason)
			}
		}
		assert.Equal(t, 1, strings.Count(log.String(), "another client, such as a kubelet, writes the Node's Ready condition"), log)
		for range 121 { // the kubelet has stopped
			s.Reread()
			pass(10 * time.Second)
		}
		assert.Equal(t, "AgentBeats", n.conditionOf("Ready").Reason)
		assert.Contains(t, log.String(), "the agent writes the Node's Ready condition again")
	})
}

func TestReadyWrittenBetweenReadAndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		g.set(keptReady())
		s, _ := running(t, n, g)
		n.asKubelet(corev1.ConditionTrue, "KubeletReady") // the agent does not know it when its report is due
		pass(4*time.Minute + DefaultEvery)
		assert.Equal(t, "KubeletReady", n.conditionOf("Ready").Reason)
		assert.EqualValues(t, 1, s.Writes()[WriteFailed])
	})
}

// While the API server does not answer, no client can write.
func TestReadyLeftAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := &node{node: &corev1.Node{}}, &given{}
		n.asKubelet(corev1.ConditionFalse, "KubeletNotReady")
		g.set(keptReady())
		s, _ := running(t, n, g)
		for _, c := range []struct {
			broken error
			lasts  time.Duration
		}{{nil, 5 * time.Minute}, {errors.New("no route"), time.Hour}, {nil, 5 * time.Minute}} {
			n.set(c.broken, n.node)
			for range c.lasts / DefaultEvery {
				s.Reread()
				pass(DefaultEvery)
				require.Equal(t, "KubeletNotReady", n.conditionOf("Ready").Reason)
			}
		}
	})
}

// The client writes the same again, with the same times or none.
func TestReadyRestoredAfterTakeover(t *testing.T) {
	for name, client := range map[string]corev1.NodeCondition{
		"with the same times": on("Ready", corev1.ConditionFalse, "Maintenance", 5, 6),
		"without times":       {Type: "Ready", Status: corev1.ConditionFalse, Reason: "Maintenance"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := &node{node: &corev1.Node{}}, &given{}
				n.asClient(client)
				g.set(keptReady())
				s, _ := running(t, n, g)
				since := time.Now()
				for range 3 {
					for n.conditionOf("Ready").Reason == "Maintenance" {
						require.Less(t, time.Since(since), otherWriterGone+2*DefaultEvery)
						s.Reread()
						pass(DefaultEvery)
					}
					require.GreaterOrEqual(t, time.Since(since), otherWriterGone)
					pass(time.Second)
					n.asClient(client)
					since = time.Now()
				}
			})
		})
	}
}

// A conflict shows that the Node was changed between read and write.
func TestReadyConflictLoggedWhenItStays(t *testing.T) {
	for name, c := range map[string]struct {
		conflicts int
		want      []string
	}{
		"one":  {1, nil},
		"many": {conflictsLogged, []string{"failed to write the Node's Ready condition; retrying", "the agent writes the Node's Ready condition again"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := &node{node: &corev1.Node{}}, &given{}
				s, log := running(t, n, g)
				n.refuses(apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("it has changed")))
				g.set(keptReady())
				pass(time.Duration(c.conflicts) * DefaultEvery)
				assert.EqualValues(t, c.conflicts, s.Writes()[WriteFailed])
				n.refuses(nil)
				pass(DefaultEvery)
				assert.Equal(t, "AgentBeats", n.conditionOf("Ready").Reason)
				assert.Equal(t, len(c.want), strings.Count(log.String(), "\n"), log)
				for _, line := range c.want {
					assert.Contains(t, log.String(), line)
				}
			})
		})
	}
}

func TestStatusReportsSpread(t *testing.T) {
	tenth := map[int]int{}
	for i := range 1000 {
		every := (&Status{Node: fmt.Sprintf("node-%d", i)}).reportEvery()
		require.GreaterOrEqual(t, every, 4*time.Minute)
		require.Less(t, every+DefaultEvery, 5*time.Minute)
		tenth[int((every-minReportInterval)*10/reportSpread)]++
	}
	for i := range 10 {
		assert.InDelta(t, 100, tenth[i], 50, "part %d", i)
	}
	assert.Equal(t, time.Second, (&Status{ReportEvery: time.Second}).reportEvery())
}
