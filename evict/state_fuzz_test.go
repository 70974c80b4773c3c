package evict

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// remembering is a Memory with something in every field.
func remembering() State {
	return State{
		Marks: map[string]MarkState{"MemoryContention": {LastMet: [2]time.Time{at(1), at(2)}, TaintLevel: plugins.Soft, TaintedAt: at(1), UntaintedAt: at(-9), Flaps: 2}},
		Victims: []Chosen{{
			Victim: Victim{UID: "u", Namespace: "shop", Name: "web", GraceSeconds: 20}, Decision: "abc", Time: at(3),
			Outcome: Evicted, DryRun: true, TerminatedAt: at(4), Owner: "shop/ReplicaSet/web", Relief: map[string]float64{"memory-stall/node": 5},
		}},
		Cooldowns:        map[string]time.Time{"memory-stall/node": at(7)},
		DryRunEvicted:    map[string]Chosen{"disk-contention/sda": {Victim: Victim{UID: "p"}, Time: at(8)}},
		KubeletEvictions: map[string]time.Time{"MemoryPressure": at(9)},
		RateLimits:       RateLimits{Boot: "boot", Since: 5, Node: 6, Owners: map[string]time.Duration{"shop/ReplicaSet/web": 7}},
		Rules:            map[string]Rule{"memory-stall": {Hash: "abc", Since: 4, InForce: true}},
		CooldownUntil:    at(5).Add(123456789),
		Backoffs:         map[string]Backoff{"w": {Until: at(6), Attempts: 2, Code: CodePDB, Text: "a budget"}},
		KubeletEvicted:   []string{"k"},
	}
}

func TestStateRoundTrip(t *testing.T) {
	for _, m := range []State{remembering(), {}} {
		b, err := json.Marshal(m)
		require.NoError(t, err)
		var back State
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Empty(t, cmp.Diff(m, back))
	}
}

func FuzzDecideAnyState(f *testing.F) {
	whole, err := json.Marshal(remembering())
	require.NoError(f, err)
	for _, seed := range [][]byte{whole, []byte("null"), []byte("{}")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m State
		if json.Unmarshal(b, &m) != nil {
			return
		}
		in := three(0)
		in.State = m
		play(in, &api{})
	})
}
