package admission

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func bodyOf(t *testing.T, e edit) string {
	t.Helper()
	body, err := e.body("41")
	require.NoError(t, err)
	return string(body)
}

func TestEditTicketOfReadVersion(t *testing.T) {
	l := &vgdp.Load{Name: "a", Kind: vgdp.DataUpload}
	list, err := edits(&vgdp.Decision{Admit: []vgdp.Grant{{Load: l, Ticket: vgdp.Ticket{Epoch: 7}}}}, nil, noon())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":{"plimsoll.dev/admitted":"*@7"}}}`, bodyOf(t, list[0]))
}

func TestEditTicketUnhides(t *testing.T) {
	for mover, want := range map[string]string{"": "null", "velero": `"velero"`} {
		l := &vgdp.Load{Hidden: true, Mover: mover}
		list, err := edits(&vgdp.Decision{Admit: []vgdp.Grant{{Load: l, Ticket: vgdp.Ticket{Epoch: 7}}}}, nil, noon())
		require.NoError(t, err)
		assert.JSONEq(t, fmt.Sprintf(`{"metadata":{"resourceVersion":"41","annotations":{"plimsoll.dev/admitted":"*@7","plimsoll.dev/held-datamover":null}},"spec":{"datamover":%s}}`, want), bodyOf(t, list[0]))
		list, err = edits(&vgdp.Decision{Release: []*vgdp.Load{l}}, nil, noon())
		require.NoError(t, err)
		assert.JSONEq(t, fmt.Sprintf(`{"metadata":{"resourceVersion":"41","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":%s}}`, want), bodyOf(t, list[0]))
	}
}

func TestEditAdmitEndsWait(t *testing.T) {
	since := noon().Add(-time.Minute)
	for want, note := range map[string]vgdp.Note{
		`null`: {Reason: vgdp.CodeLimit, Since: since, BlockedBy: "x"},
		`"{\"pressureSince\":\"2026-03-01T11:59:00Z\"}"`:                {Reason: vgdp.CodePressure, Since: since, PressureSince: since},
		`"{\"unusedTickets\":2,\"unusedAt\":\"2026-03-01T11:59:00Z\"}"`: {Reason: vgdp.CodeBackoff, Since: since, Unused: 2, UnusedAt: since},
	} {
		list, err := edits(&vgdp.Decision{Admit: []vgdp.Grant{{Load: &vgdp.Load{Note: note}, Ticket: vgdp.Ticket{Epoch: 7}}}}, nil, noon())
		require.NoError(t, err)
		assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":{"plimsoll.dev/admitted":"*@7","plimsoll.dev/waiting":`+want+`}}}`, bodyOf(t, list[0]))
	}
}

// Until when a load is postponed is an annotation of its own, for the policies. It stays
// when the load is admitted: its rank depends on it.
func TestEditPostponement(t *testing.T) {
	opens := noon().Add(10 * time.Hour)
	l := &vgdp.Load{Created: noon(), Timeout: 20 * time.Hour, Wanted: vgdp.Wanted{PostponedUntil: opens}}
	d := &vgdp.Decision{Waiting: []vgdp.Waiting{{Load: l, Wait: vgdp.Wait{Code: vgdp.CodePostponed, Until: opens}}}}
	const both = `"plimsoll.dev/waiting":"{\"reason\":\"postponed\",\"since\":\"2026-03-01T12:00:00Z\"}","plimsoll.dev/postponed-until":"2026-03-01T22:00:00Z"`
	list, err := edits(d, nil, noon())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":{`+both+`}}}`, bodyOf(t, list[0]))
	list, err = edits(d, []*vgdp.Waiting{&d.Waiting[0]}, noon())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":{`+both+`,"plimsoll.dev/held-datamover":""}},"spec":{"datamover":"plimsoll.dev/held"}}`, bodyOf(t, list[0]))

	l.Note = vgdp.Note{Reason: vgdp.CodePostponed, Since: noon(), PostponedUntil: opens}
	list, err = edits(&vgdp.Decision{Admit: []vgdp.Grant{{Load: l, Ticket: vgdp.Ticket{Epoch: 7}}}}, nil, noon())
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":{"plimsoll.dev/admitted":"*@7","plimsoll.dev/waiting":null}}}`, bodyOf(t, list[0]))
}

func TestEditRevokeOneWrite(t *testing.T) {
	l := &vgdp.Load{Ticket: &vgdp.Ticket{Epoch: 7}}
	for start, key := range map[bool]string{false: "plimsoll.dev/admitted", true: "plimsoll.dev/started"} {
		list, err := edits(&vgdp.Decision{Revoke: []vgdp.Revocation{{Load: l, Start: start, Why: vgdp.CodeBackoff}}}, nil, noon())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, KindRevoke, list[0].kind)
		var patch struct {
			Metadata struct{ Annotations map[string]*string }
		}
		require.NoError(t, json.Unmarshal([]byte(bodyOf(t, list[0])), &patch))
		assert.Nil(t, patch.Metadata.Annotations[key])
		assert.Contains(t, patch.Metadata.Annotations, key)
		assert.JSONEq(t, `{"reason":"backoff","since":"2026-03-01T12:00:00Z","unusedTickets":1,"unusedAt":"2026-03-01T12:00:00Z"}`, *patch.Metadata.Annotations["plimsoll.dev/waiting"])
	}
}

func TestEditOrder(t *testing.T) {
	old := func(name string) *vgdp.Load { return &vgdp.Load{Name: name, Created: noon().Add(-time.Minute)} }
	d := &vgdp.Decision{
		Waiting: []vgdp.Waiting{{Load: old("waits"), Wait: vgdp.Wait{Code: vgdp.CodeFull, Node: "n1", Count: 1}}},
		Admit:   []vgdp.Grant{{Load: old("goes"), Ticket: vgdp.Ticket{Epoch: 7}}},
		Start:   []vgdp.Grant{{Load: old("starts"), Ticket: vgdp.Ticket{Node: "n1", Epoch: 7}}},
		Revoke:  []vgdp.Revocation{{Load: old("back"), Why: vgdp.CodeLimit}},
		Release: []*vgdp.Load{old("free")},
	}
	d.Waiting = append(d.Waiting, vgdp.Waiting{Load: old("hides"), Wait: vgdp.Wait{Code: vgdp.CodeFull, Node: "n1", Count: 1}})
	list, err := edits(d, []*vgdp.Waiting{&d.Waiting[1]}, noon())
	require.NoError(t, err)
	var kinds []Kind
	for _, e := range list {
		kinds = append(kinds, e.kind)
	}
	assert.Equal(t, []Kind{KindRevoke, KindAdmit, KindStart, KindRelease, KindHide, KindNote}, kinds)
	assert.Equal(t, "n1@7", list[2].annotations["plimsoll.dev/started"])
	for _, e := range list[4:] {
		assert.Equal(t, vgdp.CodeFull, e.wait.Code)
		assert.JSONEq(t, `{"reason":"full","since":"2026-03-01T12:00:00Z","blockedBy":"Node n1"}`, e.annotations["plimsoll.dev/waiting"].(string))
	}
}

func TestEditHideOneWrite(t *testing.T) {
	noted := vgdp.Note{Reason: vgdp.CodeLimit, Since: noon().Add(-time.Minute)}
	for want, l := range map[string]*vgdp.Load{
		`{"plimsoll.dev/held-datamover":"","plimsoll.dev/waiting":"{\"reason\":\"limit\",\"since\":\"2026-03-01T12:00:00Z\"}"}`: {Created: noon()},
		`{"plimsoll.dev/held-datamover":"velero"}`: {Created: noon(), Mover: "velero", Note: noted},
	} {
		d := &vgdp.Decision{Waiting: []vgdp.Waiting{{Load: l, Wait: vgdp.Wait{Code: vgdp.CodeLimit}}}}
		list, err := edits(d, []*vgdp.Waiting{&d.Waiting[0]}, noon())
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.JSONEq(t, `{"metadata":{"resourceVersion":"41","annotations":`+want+`},"spec":{"datamover":"plimsoll.dev/held"}}`, bodyOf(t, list[0]))
	}
}

func TestNoteTextSecondsUTC(t *testing.T) {
	text, err := noteText(vgdp.Note{Since: noon().Add(1500 * time.Millisecond).In(time.FixedZone("x", 3600))})
	require.NoError(t, err)
	assert.JSONEq(t, `{"since":"2026-03-01T12:00:01Z"}`, text)
	assert.True(t, toSecond(time.Time{}.In(time.FixedZone("x", 3600))).IsZero())
}

func TestEditTicketNamesNode(t *testing.T) {
	list, err := edits(&vgdp.Decision{Admit: []vgdp.Grant{{Load: &vgdp.Load{}, Ticket: vgdp.Ticket{Node: "n1", Epoch: 7}}}}, nil, noon())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "n1@7", list[0].annotations["plimsoll.dev/admitted"])
}

func TestEditHiddenReasonChanges(t *testing.T) {
	noted := vgdp.Note{Reason: vgdp.CodeLimit, Since: noon().Add(-time.Hour)}
	l := &vgdp.Load{Created: noon(), Note: noted}
	w := &vgdp.Waiting{Load: l, Wait: vgdp.Wait{Code: vgdp.CodeFull, Node: "n1", Count: 1}}
	e, err := hide(w, noon())
	require.NoError(t, err)
	assert.Contains(t, e.annotations["plimsoll.dev/waiting"], `"reason":"full"`)
}
