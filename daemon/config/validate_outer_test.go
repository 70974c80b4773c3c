package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

func TestValidateOuter(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Outer)
		key    string
	}{
		"a directory that is relative":            {func(o *Outer) { o.Dirs = []string{"/a", "b"} }, "plugins.dirs[1]"},
		"the whole file system":                   {func(o *Outer) { o.Dirs = []string{"/"} }, "plugins.dirs[0]"},
		"hundreds of directories":                 {func(o *Outer) { o.Dirs = make([]string, 21) }, "plugins.dirs"},
		"a user's name":                           {func(o *Outer) { o.Uids = []string{"0", "root"} }, "plugins.uids[1]"},
		"an empty name":                           {func(o *Outer) { o.Names = []string{""} }, "plugins.names[0]"},
		"a name that no plugin can have":          {func(o *Outer) { o.Names = []string{"a", "a//b"} }, "plugins.names[1]"},
		"the name of a built-in plugin":           {func(o *Outer) { o.Names = []string{"memory-stall"} }, "plugins.names[0]"},
		"NoExecute of a built-in plugin":          {func(o *Outer) { o.NoExecute = []string{"memory-stall/C"} }, "plugins.noExecute[0]"},
		"grace 0 for a built-in plugin":           {func(o *Outer) { o.ForceGraceZero = []string{"p", "memory-stall"} }, "plugins.forceGraceZero[1]"},
		"annotations for a built-in plugin":       {annotations("numa-memory", "a/b"), "plugins.annotations[0].plugin"},
		"strict without tokens":                   {func(o *Outer) { o.Strict = true }, "plugins.strict"},
		"tokens in a relative place":              {func(o *Outer) { o.TokenDir = "t" }, "plugins.tokenDir"},
		"no time for an answer":                   {func(o *Outer) { o.Deadline = time.Millisecond }, "plugins.deadline"},
		"another word for plugins beside a rival": {func(o *Outer) { o.Beside = "maybe" }, "plugins.beside"},
		"no time for a call":                      {func(o *Outer) { o.CallTimeout = time.Millisecond }, "plugins.callTimeout"},
		"hours for a call":                        {func(o *Outer) { o.CallTimeout = time.Hour }, "plugins.callTimeout"},
		"hours for an answer":                     {func(o *Outer) { o.Deadline = time.Hour }, "plugins.deadline"},
		"no pod at hard":                          {func(o *Outer) { o.Top = 0 }, "plugins.top"},
		"all pods at hard":                        {func(o *Outer) { o.Top = 1000 }, "plugins.top"},
		"NoExecute without a condition":           {func(o *Outer) { o.NoExecute = []string{"a/b/C", "p"} }, "plugins.noExecute[1]"},
		"NoExecute with an empty one":             {func(o *Outer) { o.NoExecute = []string{"p/"} }, "plugins.noExecute[0]"},
		"NoExecute without a plugin":              {func(o *Outer) { o.NoExecute = []string{"/C"} }, "plugins.noExecute[0]"},
		"annotations without a plugin":            {annotations("", "a/b"), "plugins.annotations[0].plugin"},
		"annotations without a key":               {annotations("p"), "plugins.annotations[0].keys"},
		"a key that no annotation has":            {annotations("p", "a/b", "a b"), "plugins.annotations[0].keys[1]"},
		"the annotation that has it all":          {annotations("p", "kubectl.kubernetes.io/last-applied-configuration"), "plugins.annotations[0].keys[0]"},
		"all that can be said is well":            {func(o *Outer) { *o = whole() }, ""},
		"and what is said without a word,":        {func(*Outer) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := Default()
			c.change(&a.Plugins.Outer)
			keys := map[string]bool{}
			for _, p := range a.Validate() {
				keys[p.Keys[0]] = true
			}
			if c.key == "" {
				assert.Empty(t, keys)
			} else {
				assert.True(t, keys[c.key], "%v", keys)
			}
		})
	}
}

func annotations(plugin string, keys ...string) func(*Outer) {
	return func(o *Outer) { o.Annotations = []outer.Annotations{{Plugin: plugin, Keys: keys}} }
}

func whole() Outer {
	return Outer{
		Dirs: []string{"/run/p"}, Uids: []string{"0", "1000"}, Names: []string{"p"}, Strict: true, TokenDir: "/etc/t", Deadline: time.Second, CallTimeout: time.Second, Beside: "act", Top: 1,
		FullPods: true, Annotations: []outer.Annotations{{Plugin: "p", Keys: []string{"Example.com/key"}}},
		NoExecute: []string{"a/b/C"}, ForceGraceZero: []string{"p"},
	}
}
