package vgdp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Hint is a setting of a node-agent's configuration that Velero silently ignores.
type Hint struct {
	// Key with its path, as in loadConcurrency.perNodeConfig[1].number.
	Key string
	// Why it has no effect, and what to write instead.
	Why string
}

func (h Hint) String() string { return h.Key + ": " + h.Why }

func (c *NodeAgent) hints(text string) []Hint {
	var list []Hint
	walk("", json.RawMessage(text), reflect.TypeFor[NodeAgent](), func(path string) {
		list = append(list, Hint{Key: path, Why: ignoredReason(path)})
	})
	list = append(list, c.LoadConcurrency.hints()...)
	for i, a := range c.LoadAffinity {
		for _, e := range requirements(&a.NodeSelector) {
			if _, err := parsed(e); err != nil {
				list = append(list, Hint{fmt.Sprintf("loadAffinity[%d].nodeSelector", i), "the API server refuses every pod with it: " + err.Error()})
			}
		}
		for j, earlier := range c.LoadAffinity[:i] {
			if earlier.StorageClass == a.StorageClass {
				list = append(list, Hint{fmt.Sprintf("loadAffinity[%d]", i), fmt.Sprintf("never used: loadAffinity[%d] has the same storageClass and comes first", j)})
				break
			}
		}
	}
	return list
}

func (c *LoadConcurrency) hints() []Hint {
	var list []Hint
	if c.GlobalConfig < 0 {
		list = append(list, Hint{"loadConcurrency.globalConfig", fmt.Sprintf("%d is invalid: Velero uses the default, 1", c.GlobalConfig)})
	}
	if c.PrepareQueueLength < 0 {
		list = append(list, Hint{"loadConcurrency.prepareQueueLength", fmt.Sprintf("%d is invalid: Velero limits nothing", c.PrepareQueueLength)})
	}
	for i, r := range c.PerNodeConfig {
		path := fmt.Sprintf("loadConcurrency.perNodeConfig[%d]", i)
		if _, err := metav1.LabelSelectorAsSelector(&r.NodeSelector); err != nil {
			list = append(list, Hint{path + ".nodeSelector", "the rule is skipped: " + err.Error()})
		}
		if r.Number <= 0 {
			list = append(list, Hint{path + ".number", fmt.Sprintf("the rule is skipped: %d is not positive", r.Number)})
		}
	}
	return list
}

// ignoredReason explains a key that Velero does not know.
func ignoredReason(path string) string {
	switch path {
	case "cachePVC.thresholdInGB":
		return "Velero does not read it, whatever its documentation says: write residentThresholdInMB, 1024 times the number"
	case "prepareQueueLength":
		return "Velero does not read it here, whatever its documentation says: write it inside loadConcurrency"
	}
	name := path[strings.LastIndexAny(path, ".]")+1:]
	if right := rightPath("", name, reflect.TypeFor[NodeAgent]()); right != "" && right != path {
		return "Velero does not read it here: write " + right
	}
	return "Velero has no such key and ignores it"
}

// rightPath is where a key of that name belongs; empty: nowhere.
func rightPath(path, name string, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return rightPath(path+"[]", name, t.Elem())
	case reflect.Struct:
		for key, f := range keys(t) {
			inside := strings.TrimPrefix(path+"."+key, ".")
			if strings.EqualFold(key, name) {
				return inside
			}
			if right := rightPath(inside, name, f); right != "" {
				return right
			}
		}
	}
	return ""
}

// walk calls unknown with the path of each key that is not in t. The text is JSON that
// fits t.
func walk(path string, text json.RawMessage, t reflect.Type, unknown func(path string)) {
	switch t.Kind() {
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(text, &list) != nil {
			return
		}
		for i, e := range list {
			walk(fmt.Sprintf("%s[%d]", path, i), e, t.Elem(), unknown)
		}
	case reflect.Struct, reflect.Map:
		each(text, func(key string, value json.RawMessage) {
			inside := strings.TrimPrefix(path+"."+key, ".")
			if f := field(t, key); f != nil {
				walk(inside, value, f, unknown)
				return
			}
			unknown(inside)
		})
	}
}

// field is the type of a key, found as encoding/json does; nil: t has none.
func field(t reflect.Type, key string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for known, f := range keys(t) {
		if strings.EqualFold(known, key) {
			return f
		}
	}
	return nil
}

// each key of a JSON object, in the order of the names.
func each(text json.RawMessage, do func(key string, value json.RawMessage)) {
	var object map[string]json.RawMessage
	if bytes.Equal(text, []byte("null")) || json.Unmarshal(text, &object) != nil {
		return
	}
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		do(name, object[name])
	}
}

// keys of a struct in JSON, with their types, in the order of the fields.
func keys(t reflect.Type) func(yield func(string, reflect.Type) bool) {
	return func(yield func(string, reflect.Type) bool) {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !yield(name, f.Type) {
				return
			}
		}
	}
}
