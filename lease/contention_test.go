package lease_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

func read(text string) (lease.NodeContention, error) {
	return lease.ReadContention(map[string]string{lease.ContentionAnnotation: text})
}

func TestContention(t *testing.T) {
	disk := func(device string) lease.ResourceContention {
		return lease.ResourceContention{
			Resource: "disk", Device: device, Coverage: new(0.94),
			Culprits:  []lease.Workload{{Kind: "pod", Name: "batch/du", Ratio: 0.71}},
			Sufferers: []lease.Workload{{Kind: "pod", Name: "shop/db", Ratio: 0.38}},
		}
	}
	t.Run("what is written is read", func(t *testing.T) {
		want := lease.NodeContention{Version: "v1", Resources: []lease.ResourceContention{disk("sda")}, Unknown: []string{"disk sdb"}}
		got, err := read(want.Encode())
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
	t.Run("whatever the node has, it stays within the bound, and what is left out is counted", func(t *testing.T) {
		var n lease.NodeContention
		for i := range 100 {
			r := disk(strings.Repeat("\x01", 1000) + fmt.Sprint(i))
			for range 20 {
				r.Culprits = append(r.Culprits, lease.Workload{Name: strings.Repeat("\x01", 1000)})
			}
			n.Resources, n.Unknown = append(n.Resources, r), append(n.Unknown, strings.Repeat("ü", 500))
		}
		got, err := read(n.Encode())
		require.NoError(t, err)
		assert.Equal(t, 100, len(got.Resources)+got.More)
	})
	t.Run("workloads that are left out are counted", func(t *testing.T) {
		r := disk("sda")
		r.MoreCulprits = 2 // of which the agent knows no more
		for _, name := range []string{"a/a", "b/b", "c/c"} {
			r.Sufferers = append([]lease.Workload{{Kind: "pod", Name: name, Ratio: 0.4}}, r.Sufferers...)
		}
		text := lease.NodeContention{Resources: []lease.ResourceContention{r}}.Encode()
		assert.NotContains(t, text, "shop/db")
		got, err := read(text)
		require.NoError(t, err)
		assert.Len(t, got.Resources[0].Sufferers, 3)
		assert.Equal(t, 1, got.Resources[0].MoreSufferers)
		assert.Equal(t, 2, got.Resources[0].MoreCulprits)
		assert.Equal(t, text, got.Encode())
	})
	t.Run("the longest waits come first, and stay", func(t *testing.T) {
		var n lease.NodeContention
		for i := range 9 {
			n.Resources = append(n.Resources, disk(fmt.Sprint(i)))
		}
		n.Resources[8].Resource, n.Resources[8].Sufferers[0].Ratio = "memory", 0.39
		got, err := read(n.Encode())
		require.NoError(t, err)
		assert.Equal(t, append(n.Resources[8:], n.Resources[:7]...), got.Resources)
		assert.Equal(t, 1, got.More)
	})
	t.Run("without the annotation it is not known", func(t *testing.T) {
		_, err := lease.ReadContention(nil)
		require.ErrorIs(t, err, lease.ErrNoContention)
	})
	t.Run("what is no report is an error", func(t *testing.T) {
		for _, text := range []string{"", "[]", `{"resources":[{"culprits":[{"ratio":7}]}]}`, `{"resources":[{"culprits":[{"ratio":0.5,"throttled":101}]}]}`, `{"resources":[{"coverage":-1}]}`, `{"resources":[{"moreSufferers":-1}]}`, `{"more":-1}`, `{"version":"` + strings.Repeat("a", 5000) + `"}`} {
			_, err := read(text)
			require.ErrorContains(t, err, "annotation plimsoll.dev/contention: ", "%.40q", text)
		}
	})
}

func FuzzReadContention(f *testing.F) {
	f.Add(`{"version":"v1","resources":[{"resource":"disk","device":"sda","coverage":0.9,"culprits":[{"name":"a/b","ratio":0.5}]}],"unknown":["memory"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		n, err := read(text)
		if err != nil {
			return
		}
		again, err := read(n.Encode())
		if n.Encode() == "" {
			return
		}
		require.NoError(t, err)
		_, err = json.Marshal(again)
		require.NoError(t, err)
	})
}
