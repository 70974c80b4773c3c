package backup

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A write that is refused, because the owner edited that Backup at the moment,
// must not let the next one pass: its position is lower then for a while.
func TestLowerPositionMomentarilyPassesNone(t *testing.T) {
	first := object(Backup{UID: "1", Phase: Queued, Position: 12, Version: 30, Turn: Turn{Version: 10}, Include: []string{"a"}, Created: noon.Add(time.Second)}, Waiting{})
	second := object(Backup{UID: "2", Phase: Queued, Position: 6, Version: 20, Turn: Turn{Version: 11}, Include: []string{"a"}}, Waiting{})
	list := planned(Config{Limit: 2}, noon, false, second, first)
	require.NotEmpty(t, list)
	assert.Equal(t, kindStart, list[0].kind)
	assert.Equal(t, "1", list[0].object.Backup.UID)
	for _, w := range list[1:] {
		assert.NotEqual(t, kindStart, w.kind, w.object.Name)
	}
}

// Another leader may not know the more important one yet, and could let the
// other start: both would run.
func TestPriorityStartWaitsForLaterTurns(t *testing.T) {
	config := Config{Limit: 1, Priorities: true}
	urgent := object(Backup{UID: "urgent", Phase: Queued, Position: 1, Version: 40, Turn: Turn{Version: 30}, Priority: 1, Include: []string{"a"}}, Waiting{})
	overlaps := object(Backup{UID: "overlaps", Phase: Queued, Position: 2, Version: 21, Turn: Turn{Version: 10}, Include: []string{"a"}}, Waiting{})
	other := object(Backup{UID: "other", Phase: Queued, Position: 3, Version: 22, Turn: Turn{Version: 11}, Include: []string{"b"}}, Waiting{})
	list := planned(config, noon, false, urgent, overlaps, other)
	turns := map[string]Turn{}
	for _, w := range list {
		require.NotEqual(t, kindStart, w.kind, "the slot is kept for the more important one")
		turns[w.object.Backup.UID] = w.patch.waiting.Turn
		apply(w)
	}
	assert.Equal(t, map[string]Turn{"urgent": {Version: 30}, "overlaps": {Version: 40}, "other": {Version: 11}}, turns)
	list = planned(config, noon, false, urgent, overlaps, other)
	require.NotEmpty(t, list)
	assert.Equal(t, kindStart, list[0].kind)
	assert.Equal(t, "urgent", list[0].object.Backup.UID)
}

func TestTurnImplausibleIgnored(t *testing.T) {
	for text, want := range map[string]Turn{
		`{"version":9}`:                    {Version: 9},
		`{"version":10}`:                   {}, // the object was older when it was written
		`{"version":18446744073709551615}`: {},
		`{"version":-1}`:                   {},
		`{"position":3}`:                   {Position: 3},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetResourceVersion("10")
		u.SetAnnotations(map[string]string{AnnotationWaiting: `{"reason":"limit","turn":` + text + `}`})
		assert.Equal(t, want, Read(u).Backup.Turn, text)
	}
	for version, want := range map[string]uint64{"7": 7, "": 1, "0": 1, "x": 1, strconv.FormatUint(1<<63, 10): 1} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetResourceVersion(version)
		assert.Equal(t, want, Read(u).Backup.Version, version)
	}
}
