package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// owned is a load of a Backup or Restore, whose name is longer than a label's value.
func owned(kind, version, backup, more string) string {
	return fmt.Sprintf(`{apiVersion: velero.io/%s, kind: %s, metadata: {name: %s, uid: %s, creationTimestamp: %q, labels: {velero.io/backup-name: short, velero.io/restore-name: r},
ownerReferences: [{apiVersion: velero.io/v1, kind: Backup, name: %s, uid: b}]%s}, spec: {node: n1}}`, version, kind, kind, kind, noon().Format(time.RFC3339), backup, more)
}

// backupYAML is one in a phase.
func backupYAML(name, phase string) string {
	return fmt.Sprintf(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":%q,"namespace":"velero"},"spec":{"itemOperationTimeout":"30h"},"status":{"phase":%q}}`, name, phase)
}

func TestWantedOfLoads(t *testing.T) {
	opens := noon().Add(10 * time.Hour)
	asked := map[string]bool{}
	wanted := func(velero, backup string) vgdp.Wanted {
		asked[velero+"/"+backup] = true
		return map[string]vgdp.Wanted{"long-name": {LatestStart: noon()}, "postponed": {PostponedUntil: opens}}[backup]
	}
	r, _ := placed(t, `{"loadConcurrency":{"prepareQueueLength":9}}`, nodesOf("n1"), agentsOn("", "n1"), classYAML("c", immediate, ""))
	with(t, r, documents(owned("DataUpload", "v2alpha1", "long-name", ""), owned("PodVolumeBackup", "v1", "postponed", ""), owned("DataDownload", "v2alpha1", "postponed", "")))
	v := r.veleros["velero"]
	list := func(phase string) {
		require.NoError(t, v.backups.Replace([]any{object(t, backupYAML("long-name", "InProgress")), object(t, backupYAML("postponed", phase))}, ""))
	}
	list("InProgress")

	in, loads, _ := look(t, r, noon())
	assert.Zero(t, loads["DataUpload"].Wanted, "nothing is wanted of any")
	assert.False(t, in.Veleros["velero"].Postponing)

	r.Wanted = wanted
	in, loads, _ = look(t, r, noon())
	assert.Equal(t, noon(), loads["DataUpload"].Wanted.LatestStart)
	assert.Equal(t, opens, loads["PodVolumeBackup"].Wanted.PostponedUntil)
	assert.Zero(t, loads["DataDownload"].Wanted, "a restore")
	assert.Equal(t, map[string]bool{"velero/long-name": true, "velero/postponed": true}, asked)
	assert.True(t, in.Veleros["velero"].Postponing, "it makes loads")

	in, _, _ = look(t, r, opens)
	assert.False(t, in.Veleros["velero"].Postponing, "its window is open")
	list("WaitingForPluginOperations")
	in, _, _ = look(t, r, noon())
	assert.False(t, in.Veleros["velero"].Postponing, "it makes no more loads")

	list("InProgress")
	settings := r.Settings()
	settings.Enabled = false
	r.Settings = func() Settings { return settings }
	in, loads, _ = look(t, r, noon())
	assert.Zero(t, loads["PodVolumeBackup"].Wanted, "admission is disabled")
	assert.False(t, in.Veleros["velero"].Postponing)
}

func TestReadPostponement(t *testing.T) {
	for text, want := range map[string]time.Time{`"2026-03-01T22:00:00Z"`: noon().Add(10 * time.Hour), `"tomorrow"`: {}, `""`: {}} {
		for _, waiting := range []string{"", `,"plimsoll.dev/waiting":"{\"reason\":7}"`} {
			o := Read(vgdp.DataUpload, object(t, `{"apiVersion":"velero.io/v2alpha1","kind":"DataUpload","metadata":{"name":"a","annotations":{"plimsoll.dev/postponed-until":`+text+waiting+`}}}`))
			assert.Equal(t, vgdp.Note{PostponedUntil: want}, o.Load.Note, text)
		}
	}
}

func TestEventsOfPostponement(t *testing.T) {
	events := &told{}
	p := publisher{log: slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), events: events, counters: &counters.Group[Counts]{}, clock: &clock{}}
	l := &vgdp.Load{Name: "a", Namespace: "velero", Kind: vgdp.DataUpload, Created: noon()}
	p.logWrite(&edit{load: l, kind: KindNote, wait: &vgdp.Wait{Code: vgdp.CodePostponed, Until: noon().Add(3 * time.Hour), Detail: "so"}})
	p.logWrite(&edit{load: l, kind: KindAdmit, grant: &vgdp.Grant{Load: l, NotPostponed: noon().Add(10 * time.Hour)}})
	p.logWrite(&edit{load: l, kind: KindAdmit, grant: &vgdp.Grant{Load: l}})
	assert.Equal(t, []string{
		"Normal LoadPostponed postponed until 2026-03-01T15:00:00Z, when the backup window of its Backup opens; so",
		"Warning LoadNotPostponed not postponed until 2026-03-01T22:00:00Z, when the backup window of its Backup opens: Velero cancels it at 2026-03-01T16:00:00Z (Velero's 4h0m0s, counted from 2026-03-01T12:00:00Z), and a quarter of that time must be left to run; set a longer one to postpone it",
	}, events.list)
}
