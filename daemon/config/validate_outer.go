package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

const (
	maxDirs     = 20 // each is walked every 10 s
	maxTopPods  = 100
	maxPlugName = 128
	maxKeys     = 50 // of annotations: each costs memory for every pod
)

// validateOuter checks the keys of outer plugins.
func (a Agent) validateOuter(p *problems) {
	o := a.Plugins.Outer
	for i, dir := range o.Dirs {
		p.must(isCleanPath(dir) && dir != "/", wantCleanPath(dir), fmt.Sprintf("plugins.dirs[%d]", i))
	}
	p.must(len(o.Dirs) <= maxDirs, fmt.Sprintf("%d are more than %d directories", len(o.Dirs), maxDirs), "plugins.dirs")
	for i, uid := range o.Uids {
		_, err := strconv.ParseUint(uid, 10, 32)
		p.must(err == nil, fmt.Sprintf("want a user ID in digits, got %s", quote(uid)), fmt.Sprintf("plugins.uids[%d]", i))
	}
	for i, name := range o.Names {
		p.must(name != "" && len(name) <= maxPlugName, fmt.Sprintf("want a plugin's name, got %s", quote(name)), fmt.Sprintf("plugins.names[%d]", i))
	}
	p.must(o.TokenDir == "" || isCleanPath(o.TokenDir), wantCleanPath(o.TokenDir), "plugins.tokenDir")
	p.must(!o.Strict || o.TokenDir != "", "strict needs a tokenDir: without it no plugin has a token", "plugins.strict", "plugins.tokenDir")
	durationBetween(p, "plugins.deadline", o.Deadline, 100*time.Millisecond, time.Minute)
	oneOf(p, "plugins.beside", o.Beside, outer.BesideValues()...)
	durationBetween(p, "plugins.callTimeout", o.CallTimeout, 100*time.Millisecond, time.Minute)
	intBetween(p, "plugins.top", o.Top, 1, maxTopPods)
	for i, of := range o.Annotations {
		validateAnnotations(p, fmt.Sprintf("plugins.annotations[%d]", i), of.Plugin, of.Keys)
	}
	for i, pair := range o.NoExecute {
		plugin, condition, found := cutLast(pair)
		p.must(found && plugin != "" && condition != "", fmt.Sprintf("want plugin/condition, got %s", quote(pair)), fmt.Sprintf("plugins.noExecute[%d]", i))
	}
}

// validateAnnotations checks the annotation keys that a plugin may see.
// kubectl's last-applied one repeats the whole pod with its environment.
func validateAnnotations(p *problems, key, plugin string, keys []string) {
	p.must(plugin != "" && len(plugin) <= maxPlugName, "want a plugin's name, got "+quote(plugin), key+".plugin")
	p.must(len(keys) > 0 && len(keys) <= maxKeys, fmt.Sprintf("want 1 to %d keys, got %d", maxKeys, len(keys)), key+".keys")
	for i, k := range keys {
		at := fmt.Sprintf("%s.keys[%d]", key, i)
		p.must(len(validation.IsQualifiedName(strings.ToLower(k))) == 0, fmt.Sprintf("want an annotation's key, got %s", quote(k)), at)
		p.must(k != corev1.LastAppliedConfigAnnotation, k+" repeats the whole pod, environment and all", at)
	}
}

// cutLast splits at the last slash, because a plugin's name may contain
// slashes.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
