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
func remembering() Memory {
	return Memory{
		Marks: map[string]Seen{"MemoryContention": {Met: [2]time.Time{at(1), at(2)}, Worn: plugins.Soft, On: at(1), Off: at(-9), Flaps: 2}},
		Victims: []Chosen{{
			Victim: Victim{UID: "u", Namespace: "shop", Name: "web", GraceSeconds: 20}, Decision: "abc", Time: at(3),
			Outcome: Evicted, DryRun: true, GoneAt: at(4), Owner: "shop/ReplicaSet/web", Relief: map[string]float64{"memory-stall/node": 5},
		}},
		Settle:    map[string]time.Time{"memory-stall/node": at(7)},
		Pretended: map[string]Chosen{"disk-contention/sda": {Victim: Victim{UID: "p"}, Time: at(8)}},
		Kubelet:   map[string]time.Time{"MemoryPressure": at(9)},
		Budgets:   Budgets{Boot: "boot", Since: 5, Node: 6, Owners: map[string]time.Duration{"shop/ReplicaSet/web": 7}},
		Rules:     map[string]Rule{"memory-stall": {Hash: "abc", Since: 4, Armed: true}},
		Quiet:     at(5).Add(123456789),
		Waiting:   map[string]Waiting{"w": {Until: at(6), Times: 2, Code: CodeBudget, Text: "a budget"}},
		Failed:    []string{"k"},
	}
}

func TestAMemoryIsTheSameAfterItWasKept(t *testing.T) {
	for _, m := range []Memory{remembering(), {}} {
		b, err := json.Marshal(m)
		require.NoError(t, err)
		var back Memory
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Empty(t, cmp.Diff(m, back))
	}
}

func FuzzWhateverIsRememberedARoundIsDecided(f *testing.F) {
	whole, err := json.Marshal(remembering())
	require.NoError(f, err)
	for _, seed := range [][]byte{whole, []byte("null"), []byte("{}")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Memory
		if json.Unmarshal(b, &m) != nil {
			return
		}
		in := three(0)
		in.Memory = m
		play(in, &api{})
	})
}
