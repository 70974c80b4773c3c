package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func trimNode(o any) (*corev1.Node, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return nil, ErrType(o)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion, Labels: n.Labels}}, nil
}

func node(name, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
}

// rings tells whether the signal was set, and takes it.
func rings(s Signal) bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

func names(s *Store[*corev1.Node]) []string {
	var list []string
	for _, n := range s.List() {
		list = append(list, n.Name)
	}
	return list
}

func TestStore(t *testing.T) {
	labelled := func(n *corev1.Node, value string) *corev1.Node {
		n.Labels = map[string]string{"a": value}
		return n
	}
	t.Run("objects are trimmed however they come", func(t *testing.T) {
		s := New("nodes", NewSignal(), trimNode, nil)
		require.NoError(t, s.Replace([]any{node("a", "1")}, ""))
		require.NoError(t, s.Add(node("b", "1")))
		for _, n := range s.List() {
			assert.Zero(t, n.Spec)
		}
		trimmed, err := s.Transformer()(node("c", "1"))
		require.NoError(t, err)
		assert.Zero(t, trimmed.(*corev1.Node).Spec)
		got, there := s.Get("", "b")
		assert.True(t, there)
		assert.Equal(t, "b", got.Name)
		require.NoError(t, s.Delete(node("b", "2")))
		_, there = s.Get("", "b")
		assert.False(t, there)
	})
	t.Run("an object of another type changes nothing", func(t *testing.T) {
		wake := NewSignal()
		s := New("nodes", wake, trimNode, nil)
		assert.ErrorContains(t, s.Add(&corev1.Pod{}), "unexpected object of type *v1.Pod")
		require.Error(t, s.Replace([]any{node("a", "1"), &corev1.Pod{}}, ""))
		require.ErrorContains(t, s.Delete("text"), "unexpected object of type string")
		assert.Empty(t, s.List())
		assert.False(t, s.Synced())
		assert.False(t, rings(wake))
	})
	t.Run("a round is needed as the change tells", func(t *testing.T) {
		wake := NewSignal()
		s := New("nodes", wake, trimNode, OnUpdate(func(was, is *corev1.Node) bool { return was.Labels["a"] != is.Labels["a"] }))
		for i, row := range []struct {
			what string
			do   func() error
			want bool
		}{
			{"the first list, though empty", func() error { return s.Replace(nil, "") }, true},
			{"the same list", func() error { return s.Replace(nil, "") }, false},
			{"a new object", func() error { return s.Add(node("a", "1")) }, true},
			{"a change that does not matter", func() error { return s.Update(node("a", "2")) }, false},
			{"one that does", func() error { return s.Update(labelled(node("a", "3"), "x")) }, true},
			{"a list of the same", func() error { return s.Replace([]any{labelled(node("a", "3"), "x")}, "") }, false},
			{"a list with a change", func() error { return s.Replace([]any{labelled(node("a", "4"), "y")}, "") }, true},
			{"a list with a new one", func() error { return s.Replace([]any{labelled(node("a", "4"), "y"), node("b", "1")}, "") }, true},
			{"a list without one", func() error { return s.Replace([]any{node("b", "1")}, "") }, true},
			{"a deletion", func() error { return s.Delete(node("b", "1")) }, true},
			{"a deletion of what is not there", func() error { return s.Delete(node("b", "1")) }, false},
		} {
			before := s.Changes()
			require.NoError(t, row.do())
			assert.Equal(t, row.want, rings(wake), "%d: %s", i, row.what)
			assert.Equal(t, row.want, s.Changes() != before, "%d: %s", i, row.what)
		}
		assert.True(t, s.Synced())
	})
	t.Run("each change is observed once and in order", func(t *testing.T) {
		var seen []string
		version := func(n *corev1.Node) string {
			if n == nil {
				return "-"
			}
			return n.Name + n.ResourceVersion
		}
		s := New("nodes", NewSignal(), trimNode, func(was, is *corev1.Node) bool {
			seen = append(seen, version(was)+">"+version(is))
			return false
		})
		require.NoError(t, s.Add(node("a", "1")))
		require.NoError(t, s.Replace([]any{node("a", "2")}, ""))
		require.NoError(t, s.Replace([]any{node("b", "3")}, ""))
		require.NoError(t, s.Delete(node("b", "4")))
		assert.Equal(t, []string{"->a1", "a1>a2", "->b3", "a2>-", "b3>-"}, seen)
	})
	t.Run("what is carried over stays", func(t *testing.T) {
		s := New("nodes", NewSignal(), trimNode, OnUpdate(func(was, is *corev1.Node) bool { is.Labels = was.Labels; return true }))
		require.NoError(t, s.Add(labelled(node("a", "1"), "x")))
		require.NoError(t, s.Update(node("a", "2")))
		require.NoError(t, s.Replace([]any{node("a", "3")}, ""))
		got, _ := s.Get("", "a")
		assert.Equal(t, "x", got.Labels["a"])
	})
	t.Run("an object of the same name elsewhere is another", func(t *testing.T) {
		s := New("pods", NewSignal(), func(o any) (*corev1.Pod, error) { return o.(*corev1.Pod), nil }, nil)
		for _, namespace := range []string{"x", "y"} {
			require.NoError(t, s.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace}}))
		}
		require.NoError(t, s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x"}}))
		require.Len(t, s.List(), 1)
		assert.Equal(t, "y", s.List()[0].Namespace)
	})
}

func TestDeleteFindsObjectByTrimmedKey(t *testing.T) {
	s := New("nodes", NewSignal(), trimNode, nil) // drops the namespace
	o := node("a", "1")
	o.Namespace = "x"
	require.NoError(t, s.Add(o))
	require.NoError(t, s.Delete(o))
	assert.Empty(t, s.List())
}

func TestCaughtUp(t *testing.T) {
	for what, row := range map[string]struct {
		has  string // version that the store has; empty: none
		want bool
	}{
		"the version written":         {"5", true},
		"a later one":                 {"10", true},
		"an earlier one":              {"4", false},
		"it was deleted":              {"", true},
		"versions that have no order": {"five", true},
	} {
		t.Run(what, func(t *testing.T) {
			s := New("nodes", NewSignal(), trimNode, nil)
			if row.has != "" {
				require.NoError(t, s.Add(node("a", row.has)))
			}
			s.Wrote("", "a", "5")
			assert.Equal(t, row.want, s.CaughtUp())
			require.NoError(t, s.Add(node("a", "5")))
			require.True(t, s.CaughtUp())
			require.NoError(t, s.Update(node("a", "3"))) // of a stale list
			assert.True(t, s.CaughtUp(), "what was seen is not waited for again")
		})
	}
	t.Run("all of many", func(t *testing.T) {
		s := New("nodes", NewSignal(), trimNode, nil)
		for i := range 10 {
			require.NoError(t, s.Add(node(fmt.Sprint(i), "1")))
			s.Wrote("", fmt.Sprint(i), "2")
		}
		for i := range 10 {
			assert.False(t, s.CaughtUp())
			require.NoError(t, s.Update(node(fmt.Sprint(i), "2")))
		}
		assert.True(t, s.CaughtUp())
	})
}
