package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBackupRelease(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(phase Phase, marked bool, since time.Time) *Object {
		return &Object{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Annotated: marked, Backup: Backup{Phase: phase, Position: 3, ReadySince: since}}
	}
	clean := `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/waiting":null}}}`
	for name, row := range map[string]struct {
		object   *Object
		want     string
		returned bool
	}{
		"without a mark":            {object: of(Queued, false, time.Time{})},
		"queued":                    {object: of(Queued, true, time.Time{}), want: clean},
		"running":                   {object: of("InProgress", true, time.Time{}), want: clean},
		"just let start":            {object: of(Ready, true, now.Add(-time.Second)), want: clean},
		"let start by another":      {object: of(Ready, true, time.Time{}), want: clean},
		"let start and left behind": {object: of(Ready, true, now.Add(-requeueAfter)), want: `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/waiting":null}},"status":{"phase":"Queued"}}`, returned: true},
	} {
		t.Run(name, func(t *testing.T) {
			body, returned, err := ReleasePatch(row.object, now)
			require.NoError(t, err)
			assert.Equal(t, row.returned, returned)
			if row.want == "" {
				assert.Nil(t, body)
				return
			}
			assert.JSONEq(t, row.want, string(body))
		})
	}
}
