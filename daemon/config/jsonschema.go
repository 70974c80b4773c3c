package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Patterns of values that are written as text, as readDuration and readBytes
// take them.
const (
	durationPattern = `^[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	bytesPattern    = `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[mkMGTPE]|[eE][-+]?[0-9]{1,2})?$`
)

// schemaStart is where the generated part of a values.schema.json begins: its
// last key. What stands before it is written by hand.
const schemaStart = "\n  \"definitions\": {"

// ValuesSchema is the JSON schema of the chart's values with the definitions of
// the configurations made anew: each key with its type and description, and no
// other key. It is an error if have, the schema as it is, has no definitions.
func ValuesSchema(have []byte) ([]byte, error) {
	byHand, _, found := strings.Cut(string(have), schemaStart)
	if !found {
		return nil, fmt.Errorf("there are no definitions: want a last key%s", schemaStart)
	}
	definitions := map[string]any{}
	for _, d := range []Document{Default(), DefaultController()} {
		definitions[d.Kind()] = schemaOfStruct(structOf(d), maxSchemaDepth)
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("  ", "  ")
	if err := e.Encode(definitions); err != nil {
		return nil, err
	}
	start := strings.TrimSuffix(schemaStart, "{")
	return []byte(byHand + start + strings.TrimSpace(text.String()) + "\n}\n"), nil
}

func schemaOfStruct(v reflect.Value, depth int) map[string]any {
	s := map[string]any{"type": "object"}
	if depth == 0 {
		return s
	}
	keys := map[string]any{}
	for _, f := range fieldsOf(v) {
		key := schemaOfValue(f, depth)
		key["description"] = f.description
		keys[f.key] = key
	}
	s["additionalProperties"], s["properties"] = false, keys
	return s
}

func schemaOfValue(f field, depth int) map[string]any {
	switch f.value.Kind() {
	case reflect.Struct:
		return schemaOfStruct(f.value, depth-1)
	case reflect.Slice:
		element := field{unit: f.unit, value: reflect.Zero(f.value.Type().Elem())}
		return map[string]any{"type": "array", "items": schemaOfValue(element, depth)}
	}
	switch formOf(f.value.Type(), f.unit) {
	case formBool:
		return map[string]any{"type": "boolean"}
	case formInt:
		return map[string]any{"type": "integer"}
	case formDuration:
		return map[string]any{"type": "string", "pattern": durationPattern}
	case formRatio:
		return map[string]any{"type": "number", "minimum": 0, "maximum": 1}
	case formBytes:
		return map[string]any{"type": []string{"integer", "string"}, "minimum": 0, "pattern": bytesPattern}
	default:
		return schemaOfText(f.unit)
	}
}

// schemaOfText of a unit that lists all values ("agent or node") has no other.
func schemaOfText(unit string) map[string]any {
	if before, last, listed := strings.Cut(unit, " or "); listed {
		return map[string]any{"enum": append(strings.Split(before, ", "), last)}
	}
	return map[string]any{"type": "string"}
}
