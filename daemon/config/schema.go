package config

import (
	"fmt"
	"reflect"
	"strings"
)

// maxSchemaDepth bounds the walk through a recursive schema.
const maxSchemaDepth = 16

// field is one key of a configuration struct.
type field struct {
	key         string
	unit        string
	description string
	value       reflect.Value
}

// fieldsOf lists the keys of a struct in declaration order, inlined structs
// included.
func fieldsOf(v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		tag, tagged := sf.Tag.Lookup("yaml")
		key, options, _ := strings.Cut(tag, ",")
		switch {
		case options == "inline":
			all = append(all, fieldsOf(v.Field(i))...)
		case !tagged || key == "":
			panic(fmt.Sprintf("config: field %s of %s has no yaml tag", sf.Name, v.Type()))
		default:
			all = append(all, field{key, sf.Tag.Get("unit"), sf.Tag.Get("why"), v.Field(i)})
		}
	}
	return all
}

func lookup(fields []field, key string) (field, bool) {
	for _, f := range fields {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

// walk visits every key below a struct with its dotted path, sections before
// their keys. The elements of a list of structs are visited once, as
// path[].key, with zero values.
func walk(v reflect.Value, visit func(path string, f field)) {
	walkBelow("", v, maxSchemaDepth, visit)
}

func walkBelow(prefix string, v reflect.Value, depth int, visit func(path string, f field)) {
	if depth == 0 {
		return
	}
	for _, f := range fieldsOf(v) {
		path := prefix + f.key
		visit(path, f)
		switch {
		case f.value.Kind() == reflect.Struct:
			walkBelow(path+".", f.value, depth-1, visit)
		case isStructList(f.value.Type()):
			walkBelow(path+"[].", reflect.Zero(f.value.Type().Elem()), depth-1, visit)
		}
	}
}

func isStructList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// structOf is the struct behind a document, given by value or by pointer.
func structOf(d Document) reflect.Value {
	return reflect.Indirect(reflect.ValueOf(d))
}
