package outer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestCountsForgottenWithPlugin(t *testing.T) {
	now := time.Now()
	c := counts{}
	for _, name := range []string{"stays", "gone", "back"} {
		c.keep(name)
		c.call(name, "ThresholdMet", "OK", time.Millisecond)
	}
	c.unregistered(was("gone", "/p/gone.sock", listener{}), now)
	c.unregistered(was("back", "/p/back.sock", listener{}), now)
	c.keep("back")
	assert.Len(t, c.all(now.Add(forgetAfter), never), 3, "others see for a while that it has gone")
	left := c.all(now.Add(forgetAfter+time.Second), never)
	assert.Len(t, left, 2)
	assert.NotContains(t, left, "gone")
	assert.EqualValues(t, 1, left["back"].Calls[Call{"ThresholdMet", "OK"}], "it goes on counting")
	assert.Empty(t, c.ended)
}

func never(string, listener) bool { return false }

func TestCountsLeftToRival(t *testing.T) {
	c := counts{}
	for _, name := range []string{"up", "taken", "down"} {
		c.keep(name)
	}
	c.unregistered(was("taken", "/shared/taken.sock", listener{}), time.Now())
	c.unregistered(was("down", "/own/down.sock", listener{}), time.Now())
	all := c.all(time.Now(), func(socket string, _ listener) bool { return strings.HasPrefix(socket, "/shared/") })
	assert.True(t, all["taken"].LeftToRival)
	assert.False(t, all["down"].LeftToRival)
	assert.False(t, all["up"].LeftToRival)
}

func TestCountsOfManyNewNames(t *testing.T) {
	now := time.Now()
	c := counts{}
	c.keep("stays")
	c.refuse("stays")("unknown pod")
	for i := range 10 * maxPlugins {
		name := fmt.Sprint("new-", i)
		c.keep(name)
		c.unregistered(was(name, "/p/new.sock", listener{}), now.Add(time.Duration(i)))
	}
	left := c.all(now, never)
	assert.Len(t, left, maxPlugins)
	assert.EqualValues(t, 1, left["stays"].Refused["unknown pod"])
	assert.Contains(t, left, fmt.Sprint("new-", 10*maxPlugins-1), "the last are kept")
	assert.Len(t, c.ended, maxPlugins-1)
}

// A plugin chooses the codes of its errors, and its scopes.
func TestCountsOfManyCodesAndScopes(t *testing.T) {
	w := newPluginEnv(t)
	p := &plugin{host: w.Host, name: "p"}
	for i := range 1000 {
		_, err := call(t.Context(), p, time.Minute, "GetEvictPods", func(context.Context, *wire.GetEvictPodsRequest, ...callOption) (*wire.GetEvictPodsResponse, error) {
			return nil, status.Error(codes.Code(i), "")
		}, &wire.GetEvictPodsRequest{})
		assert.Equal(t, i == int(codes.OK) || i == int(codes.Unimplemented), err == nil)
		w.registry.counts.scope("p", fmt.Sprint(i%500))
	}
	got := w.Counts()["p"]
	assert.Len(t, got.Calls, 16, "all but Unimplemented, which counts as OK")
	assert.EqualValues(t, 984, got.Calls[Call{"GetEvictPods", "Unknown"}])
	assert.Len(t, got.Scopes, maxScopes)
	assert.Equal(t, []string{"0", "31", "other", plugins.ScopeNamed}, []string{got.ScopeLabel("0"), got.ScopeLabel("31"), got.ScopeLabel("32"), got.ScopeLabel(plugins.ScopeNamed)})
	got.Scopes = got.Scopes[1:]
	assert.Equal(t, "32", got.ScopeLabel("32"), "there is a place")
}

func TestCountsCallBuckets(t *testing.T) {
	c := counts{}
	for _, took := range []time.Duration{5 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second} {
		c.call("p", "ThresholdMet", "OK", took)
	}
	got := c.all(time.Now(), never)["p"]
	assert.Equal(t, []uint64{1, 1, 1, 2, 2, 2}, got.Within)
	assert.InDelta(t, 10.305, got.Seconds, 1e-9)
}

// was a plugin.
func was(name, path string, by listener) *plugin {
	return &plugin{name: name, socket: &socket{path: path}, listener: by}
}

func TestCountsOldestUnregistered(t *testing.T) {
	now := time.Unix(1000, 0)
	c := counts{ended: map[string]ended{"b": {at: now.Add(1)}, "a": {at: now}, "c": {at: now.Add(2)}}}
	for range 20 { // in any order
		assert.Equal(t, "a", c.oldestUnregistered())
	}
	assert.Empty(t, (&counts{}).oldestUnregistered())
}

// What is left of a plugin whose listener has ended watches its directory still: it is
// no rival of its own.
func TestCountsLeftToItself(t *testing.T) {
	t.Parallel()
	h := newPluginEnv(t).Host
	plugin := listener{pid: 17, cgroup: "/pods/plugin"}
	h.registry.counts.keep("p")
	h.registry.counts.unregistered(was("p", "/p/p.sock", plugin), time.Now())
	for what, c := range map[string]struct {
		rival Rival
		left  bool
	}{
		"the listener itself":      {Rival{Dir: "/p", PID: 17, Cgroup: "/moved"}, false},
		"another process of it":    {Rival{Dir: "/p", PID: 18, Cgroup: "/pods/plugin"}, false},
		"a process of another pod": {Rival{Dir: "/p", PID: 19, Cgroup: "/pods/rival"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			h.rivals.newest.Store(&knownRivals{byDir: map[string][]Rival{"/p": {c.rival}}, searched: map[string]bool{"/p": true}})
			assert.Equal(t, c.left, h.Counts()["p"].LeftToRival)
		})
	}
}

func TestListenerOf(t *testing.T) {
	t.Parallel()
	procfs := t.TempDir()
	process(t, procfs, "17", "plugin", "")
	assert.Equal(t, listener{17, "/of/17"}, listenerOf(procfs, &connection{peer: &unix.Ucred{Pid: 17}}))
}
