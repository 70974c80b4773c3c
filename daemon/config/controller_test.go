package config

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const controllerHead = "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\n"

func TestControllerConfigErrors(t *testing.T) {
	for body, want := range map[string][]string{
		"backup: {limit: 2}\n":                                 {`test.yaml:3: backup: unknown key (did you mean "backups"?)`},
		"backups: {limit: two}\n":                              {`test.yaml:3: backups.limit: want a whole number in decimal, got "two"`},
		"backups: {limit: 1001}\n":                             {`test.yaml:3: backups.limit: 1001 is not between 0 and 1000`},
		"backups:\n  resync: 100ms\n":                          {`test.yaml:4: backups.resync: 100ms is not between 1s and 1h`},
		"election: {duration: 1500ms}\n":                       {`test.yaml:3: election.duration: want whole seconds`},
		"election: {namespace: A}\n":                           {`test.yaml:3: election.namespace: want the name of a namespace, got "A"`},
		"velero: [{namespace: a}, {namespace: a}]\n":           {`test.yaml:3: velero[1].namespace: "a" is named twice`},
		"velero: [{namespace: a, prepareQueueLength: -1}]\n":   {`test.yaml:3: velero[0].prepareQueueLength: -1 is not between 0 and 1000000`},
		"velero: [{namespace: a, prepareQueueLength: ten}]\n":  {`test.yaml:3: velero[0].prepareQueueLength: want a whole number in decimal, got "ten"`},
		"velero: [{namespace: a, nodeAgentConfigMap: A}]\n":    {`test.yaml:3: velero[0].nodeAgentConfigMap: want the name of a ConfigMap, got "A"`},
		"vgdp: {leaseDuration: 1s}\n":                          {`test.yaml:3: vgdp.leaseDuration: 1s is not between 4s and 10m`},
		"backups: {deadlines: {rpo: 10s}}\n":                   {`test.yaml:3: backups.deadlines.rpo: 10s is not between 1m and 8784h`},
		"velero: [{}]\n":                                       {`test.yaml: velero[0].namespace: want the name of a namespace, got ""`},
		"agents:\n  evictions: {maxGrace: 100ms}\n":            {`test.yaml:4: agents.evictions.maxGrace: 100ms is not between 1s and 24h`},
		"agents:\n  evictions: {urgentInterval: 100ms}\n":      {`test.yaml:4: agents.evictions.urgentInterval: 100ms is not between 1s and 24h`},
		"agents:\n  evictions: {brakedInterval: 30s}\n":        {`test.yaml:4: agents.evictions.brakedInterval: 30s is not between 1m and 24h`},
		"agents:\n  evictions: {maxGrace: 25h}\n":              {`test.yaml:4: agents.evictions.maxGrace: 25h is not between 1s and 24h`},
		"agents:\n  evictions:\n    forceGraceZero: [a, '']\n": {`test.yaml:5: agents.evictions.forceGraceZero[1]: want a plugin's name, got ""`},
		"agents: {evictions: {forcegracezero: [a]}}\n":         {`test.yaml:3: agents.evictions.forcegracezero: unknown key (did you mean "forceGraceZero"?)`},
		"log: {level: loud}\nweb: {listenAddresses: ['9774']}": {`test.yaml:3: log.level: want one of debug, info, warn, error, got "loud"`, `test.yaml:4: web.listenAddresses[0]: want host:port (IPv6 as [::1]:9773), got "9774"`},
	} {
		assert.Equal(t, want, mistakes(t, []byte(controllerHead+body), DefaultController()), body)
	}
	assert.Equal(t, []string{`test.yaml:2: kind: is "AgentConfiguration": this program reads ControllerConfiguration`},
		mistakes(t, file(""), DefaultController()))
}

func TestControllerConfigDefaults(t *testing.T) {
	want := DefaultController()
	assert.Empty(t, want.Validate())
	assert.False(t, want.Backups.Enabled, "until it is handed over, the queue is Velero's")
	assert.False(t, want.VGDP.Enabled, "loads are held where somebody wants it")
	assert.Equal(t, []string{"127.0.0.1:9774"}, want.Web.ListenAddresses)
	want.Velero, want.Backups.Priorities = []Velero{{Namespace: "velero"}, {Namespace: "velero-2", NodeAgentConfigMap: "node-agents"}}, true
	var text bytes.Buffer
	require.NoError(t, Print(&text, want))
	assert.Equal(t, want.Kind(), KindOf(text.Bytes()))
	got := DefaultController()
	require.NoError(t, Decode("printed", text.Bytes(), &got))
	assert.Equal(t, want, got)
}

func TestControllerConfigReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "controller.yaml")
	put := func(body string) { require.NoError(t, os.WriteFile(path, []byte(controllerHead+body), 0o600)) }
	put("backups: {limit: 2}\n")
	f, err := OpenOf(path, DefaultController, func(c *Controller) { c.Log.Level = "debug" })
	require.NoError(t, err)
	assert.Equal(t, 2, f.Current().Backups.Limit)
	put("backups: {limit: 3, aging: 1h}\n")
	require.NoError(t, f.Reload())
	assert.Equal(t, 3, f.Current().Backups.Limit)
	assert.Equal(t, time.Hour, f.Current().Backups.Aging)
	put("backups: {limit: -1}\n")
	require.Error(t, f.Reload())
	assert.Equal(t, 3, f.Current().Backups.Limit)
	assert.Equal(t, "debug", f.Current().Log.Level)
	changed := *f.Current()
	changed.Election.Duration, changed.Backups.Limit = time.Minute, 9
	assert.Equal(t, []string{"election.duration"}, RestartNeeded(*f.Current(), changed))
}

func TestConfigKindOf(t *testing.T) {
	for text, want := range map[string]string{"": "", "a: [": "", "kind: X\n": "X", "a: 1\nkind: 'Y'\n": "Y", "- kind\n": ""} {
		assert.Equal(t, want, KindOf([]byte(text)), text)
	}
}
