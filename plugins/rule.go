package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"time"
)

// Rule identifies the configuration of a plugin, to notice changes.
type Rule struct {
	// Hash of the configuration.
	Hash string
	// Window is the longest window of the rule.
	Window time.Duration
	// Default: it is the default configuration.
	Default bool
}

// Rules returns the rules of the inner plugins of a configuration, by name.
func Rules(c Config) map[string]Rule {
	fresh := map[string]string{}
	for _, p := range Inners(Default()) {
		fresh[p.Name()] = hash(p)
	}
	rules := map[string]Rule{}
	for _, p := range Inners(c) {
		sum := hash(p)
		rules[p.Name()] = Rule{Hash: sum, Window: longestWindow(reflect.ValueOf(p)), Default: sum == fresh[p.Name()]}
	}
	return rules
}

func hash(p Inner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%T %+v", p, p))
	return hex.EncodeToString(sum[:8])
}

// longestWindow is the longest field with the key window or for, in a struct and its nested
// structs: how long the rule takes to be met.
func longestWindow(v reflect.Value) time.Duration {
	longest := time.Duration(0)
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanInterface() {
			continue
		}
		key := v.Type().Field(i).Tag.Get("yaml")
		switch d, isDuration := reflect.TypeAssert[time.Duration](f); {
		case f.Kind() == reflect.Struct:
			longest = max(longest, longestWindow(f))
		case isDuration && (key == "window" || key == "for"):
			longest = max(longest, d)
		}
	}
	return longest
}
