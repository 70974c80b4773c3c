package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	maxDirs     = 20 // each is walked every 10 s
	maxTopPods  = 100
	maxPlugName = 128
)

// validateOuter checks what is said of plugins that are processes of their own.
func (a Agent) validateOuter(p *problems) {
	o := a.Plugins.Outer
	for i, dir := range o.Dirs {
		p.must(isPlace(dir) && dir != "/", wantPlace(dir), fmt.Sprintf("plugins.dirs[%d]", i))
	}
	p.must(len(o.Dirs) <= maxDirs, fmt.Sprintf("%d are more than %d directories", len(o.Dirs), maxDirs), "plugins.dirs")
	for i, uid := range o.Uids {
		_, err := strconv.ParseUint(uid, 10, 32)
		p.must(err == nil, fmt.Sprintf("want a user ID in digits, got %s", quote(uid)), fmt.Sprintf("plugins.uids[%d]", i))
	}
	for i, name := range o.Names {
		p.must(name != "" && len(name) <= maxPlugName, fmt.Sprintf("want a plugin's name, got %s", quote(name)), fmt.Sprintf("plugins.names[%d]", i))
	}
	p.must(o.TokenDir == "" || isPlace(o.TokenDir), wantPlace(o.TokenDir), "plugins.tokenDir")
	p.must(!o.Strict || o.TokenDir != "", "strict needs a tokenDir: no plugin could show a token", "plugins.strict", "plugins.tokenDir")
	within(p, "plugins.deadline", o.Deadline, 100*time.Millisecond, time.Minute)
	number(p, "plugins.top", o.Top, 1, maxTopPods)
	for i, pair := range o.NoExecute {
		plugin, condition, found := cutLast(pair)
		p.must(found && plugin != "" && condition != "", fmt.Sprintf("want plugin/condition, got %s", quote(pair)), fmt.Sprintf("plugins.noExecute[%d]", i))
	}
}

// cutLast parts at the last slash: a plugin's name may have some.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
