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
	// Lasts is the longest window of the rule.
	Lasts time.Duration
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
		rules[p.Name()] = Rule{Hash: sum, Lasts: lasts(reflect.ValueOf(p)), Default: sum == fresh[p.Name()]}
	}
	return rules
}

func hash(p Inner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%T %+v", p, p))
	return hex.EncodeToString(sum[:8])
}

// lasts is the longest field with the key over, in a struct and its nested structs.
func lasts(v reflect.Value) time.Duration {
	longest := time.Duration(0)
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanInterface() {
			continue
		}
		switch over, isDuration := reflect.TypeAssert[time.Duration](f); {
		case f.Kind() == reflect.Struct:
			longest = max(longest, lasts(f))
		case isDuration && v.Type().Field(i).Tag.Get("yaml") == "over":
			longest = max(longest, over)
		}
	}
	return longest
}
