package config

import (
	"reflect"
	"slices"
	"strings"
)

// Differences lists the keys whose values differ, in the order of the document.
// A changed key of a rule restarts that rule.
func Differences(a, b Document) []string {
	var keys []string
	old := values(a)
	walk(structOf(b), func(path string, f field) {
		if f.value.Kind() == reflect.Struct || strings.Contains(path, "[]") {
			return
		}
		if !same(old[path], f.value) {
			keys = append(keys, path)
		}
	})
	return keys
}

// RestartNeeded lists the keys whose values differ and take effect only when
// the program starts.
func RestartNeeded(from, to Followed) []string {
	return slices.DeleteFunc(Differences(from, to), func(key string) bool {
		return !slices.ContainsFunc(to.AtStart(), func(prefix string) bool {
			return key == prefix || strings.HasPrefix(key, prefix+".")
		})
	})
}

// AtStart lists what is bound at startup: open sockets, open files of mounts,
// and the identity at the API server.
func (Agent) AtStart() []string {
	return []string{"paths", "web", "api.socket", "log.format", "state", "kubernetes", "lease", "recording", "plugins.fullPods", "plugins.annotations", "eviction.optOut"}
}

func values(a Document) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	walk(structOf(a), func(path string, f field) { all[path] = f.value })
	return all
}

// same treats a nil slice and an empty one as equal.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
