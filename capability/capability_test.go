package capability

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLog(t *testing.T) {
	has, lacks, unread := Has("hide", "served"), Lacks("hide", "not served", "they stay visible"), Unread("hide", "away", "")
	steers := Has("steer", "served")
	for name, row := range map[string]struct {
		before, list []Capability
		want         string
	}{
		"first, available":     {nil, []Capability{has}, ""},
		"first, missing":       {nil, []Capability{lacks}, `level=WARN msg="capability is not available" capability=hide state=missing reason="not served" consequence="they stay visible"`},
		"as before":            {[]Capability{lacks}, []Capability{lacks}, ""},
		"missing, now unread":  {[]Capability{lacks}, []Capability{unread}, `level=WARN msg="capability is not available" capability=hide state=unknown`},
		"missing, now there":   {[]Capability{lacks}, []Capability{has}, `level=INFO msg="capability is available" capability=hide reason=served`},
		"another was in front": {[]Capability{steers, lacks}, []Capability{lacks, steers}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			Log(slog.New(slog.NewTextHandler(&text, nil)), row.before, row.list)
			assert.Contains(t, text.String(), row.want)
			assert.Equal(t, row.want != "", text.Len() > 0)
			assert.LessOrEqual(t, strings.Count(text.String(), "\n"), 1)
		})
	}
}

func TestLacking(t *testing.T) {
	list := []Capability{Has("hold", "served"), Lacks("steer", "not served", "they wait there"), Unread("hide", "away", "")}
	assert.Equal(t, list[1:], Lacking(list))
	assert.Equal(t, "steer is missing: not served: they wait there", list[1].String())
	assert.Equal(t, "hide is unknown: away", list[2].String())
}
