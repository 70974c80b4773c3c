package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestAdoptSaved(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC) }
	pod := func(uid, decision string) Chosen { return Chosen{Victim: Victim{UID: uid}, Decision: decision} }
	saved := State{
		Marks:         map[string]MarkState{"Disk": {Flaps: 3}, "Memory": {TaintLevel: plugins.Hard}},
		Victims:       []Chosen{pod("a", "saved"), pod("b", "saved")},
		CooldownUntil: at(10), Cooldowns: map[string]time.Time{"p": at(30), "q": at(5)},
		Terminating: map[string]time.Time{"a": at(1)}, Elsewhere: map[string]time.Time{"e": at(1)}, Covered: map[string]time.Time{"p": at(1)},
		Backoffs: map[string]Backoff{"r": {Attempts: 1}}, Requests: map[string]Victim{"a": {UID: "a"}},
		Named: []NamedPod{{Plugin: "p", UID: "n", Why: "saved"}, {Plugin: "p", UID: "o"}},
		Rules: map[string]Rule{"disk": {Hash: "1", InForce: true}}, RateLimits: RateLimits{Boot: "boot", Since: 1, Node: 2, Fallback: 3},
	}
	since := NoSavedState(at(0), Config{Cooldown: 20 * time.Second})
	since.Marks = map[string]MarkState{"Memory": {TaintLevel: plugins.Soft}}
	since.Victims = []Chosen{pod("b", "new"), pod("c", "new")}
	since.Cooldowns = map[string]time.Time{"p": at(20), "q": at(20)}
	since.Terminating = map[string]time.Time{"a": at(2), "z": at(2)}
	since.Requests = map[string]Victim{"c": {UID: "c"}}
	since.Backoffs = map[string]Backoff{"r": {Attempts: 2}}
	since.Named = []NamedPod{{Plugin: "p", UID: "n", Why: "new"}}
	since.Rules = map[string]Rule{"disk": {Hash: "2"}, "cpu": {Hash: "3"}}
	since.RateLimits = RateLimits{Boot: "boot", Since: 9, Node: 9, Fallback: 9}

	m := since.AdoptSaved(saved)
	assert.Equal(t, map[string]MarkState{"Disk": {Flaps: 3}, "Memory": {TaintLevel: plugins.Soft}}, m.Marks)
	assert.Equal(t, []Chosen{pod("a", "saved"), pod("b", "new"), pod("c", "new")}, m.Victims)
	assert.Equal(t, at(20), m.CooldownUntil)
	assert.Equal(t, map[string]time.Time{"p": at(30), "q": at(20)}, m.Cooldowns)
	assert.Equal(t, map[string]time.Time{"a": at(1), "z": at(2)}, m.Terminating, "since when it was seen first")
	assert.Equal(t, saved.Elsewhere, m.Elsewhere)
	assert.Equal(t, saved.Covered, m.Covered)
	assert.Len(t, m.Requests, 2)
	assert.Equal(t, 2, m.Backoffs["r"].Attempts)
	require.Len(t, m.Named, 2)
	assert.Equal(t, "new", m.Named[1].Why)
	assert.Equal(t, map[string]Rule{"disk": saved.Rules["disk"], "cpu": since.Rules["cpu"]}, m.Rules)
	assert.Equal(t, saved.RateLimits, m.RateLimits, "no token was taken since")
	assert.Len(t, saved.Victims, 2, "it is not changed")

	since.RateLimits.Owners = map[string]time.Duration{"shop/ReplicaSet/web": 10}
	assert.Equal(t, since.RateLimits, since.AdoptSaved(saved).RateLimits, "more tokens than these would be those that were taken")
}
