package config

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// Bounds of a file with its aliases expanded: an alias costs what it stands for
// each time, and may contain itself.
const (
	maxValues = 10_000
	maxDepth  = 32
)

// maxErrors is how many mistakes are listed: a file with more is not a
// configuration, and the list is logged.
const maxErrors = 100

// header is what every file states besides the keys of its document.
type header struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

// Decode reads the YAML file data over into, which holds the defaults: a key
// that the file leaves out keeps its value, a list that it sets replaces the
// whole list. Elements of a list of structs start from zero values.
//
// It is strict: apiVersion and kind must match, and an unknown, misplaced,
// repeated or empty key, a value of the wrong type or without its unit, a
// merge key and a second document are errors. name is the file as messages
// call it. The error is an [Errors] with every mistake found up to a hundred,
// including those of into's Validate; into is then half-written and must not be used.
func Decode[T Document](name string, data []byte, into *T) error {
	d := &decoder{
		file:   name,
		schema: reflect.ValueOf(into).Elem(),
		lines:  map[string]int{},
		failed: map[string]bool{},
	}
	node, err := parse(name, data)
	if err != nil {
		return Errors{err}
	}
	var head header
	if node != nil {
		known := append(fieldsOf(reflect.ValueOf(&head).Elem()), fieldsOf(d.schema)...)
		d.mapping("", node.Line, node, known)
	}
	if !d.failed[""] {
		d.header("apiVersion", head.APIVersion, APIVersion)
		d.header("kind", head.Kind, (*into).Kind())
	}
	d.validate((*into).Validate())
	return d.errs.orNil()
}

// decoder is the state of one Decode.
type decoder struct {
	file   string
	schema reflect.Value   // for suggestions
	lines  map[string]int  // of every known key and list element in the file
	failed map[string]bool // keys that have an error
	values int
	depth  int
	errs   Errors
}

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.failed[path] = true
	if len(d.errs) == maxErrors {
		d.errs = append(d.errs, &Error{File: d.file, Line: line, Reason: "too many mistakes; those from here on are not listed"})
	}
	if d.full() {
		return
	}
	d.errs = append(d.errs, &Error{File: d.file, Line: line, Key: path, Reason: fmt.Sprintf(format, args...)})
}

func (d *decoder) full() bool { return len(d.errs) > maxErrors }

func (d *decoder) header(key, got, want string) {
	line, set := d.lines[key]
	switch {
	case !set:
		d.fail(1, key, "missing: write %s: %s", key, want)
	case got != want && !d.failed[key]:
		d.fail(line, key, "is %s: this program reads %s", problems.Quote(got), want)
	}
}

// validate adds the problems that do not just follow from a value that was not
// read.
func (d *decoder) validate(found problems.List) {
	for _, p := range found {
		if slices.ContainsFunc(p.Keys, func(key string) bool { return d.failed[key] }) {
			continue
		}
		key := p.Keys[0]
		if i := slices.IndexFunc(p.Keys, func(key string) bool { return d.lines[key] > 0 }); i >= 0 {
			key = p.Keys[i]
		}
		d.fail(d.lines[key], key, "%s", p.Reason)
	}
}

func (d *decoder) mapping(path string, line int, n *yaml.Node, known []field) {
	if n.Kind != yaml.MappingNode || n.ShortTag() != "!!map" {
		d.fail(line, path, "want keys and values, got %s", describe(n))
		return
	}
	for i := 0; i+1 < len(n.Content) && !d.full(); i += 2 {
		d.entry(path, n.Content[i], n.Content[i+1], known)
	}
}

func (d *decoder) entry(parent string, key, value *yaml.Node, known []field) {
	if key.Kind != yaml.ScalarNode {
		d.fail(key.Line, parent, "a key must be a word, got %s", describe(key))
		return
	}
	path := join(parent, plainOrQuoted(key.Value))
	f, ok := lookup(known, key.Value)
	switch {
	case key.ShortTag() == "!!merge":
		d.fail(key.Line, path, "merge keys are not supported: write the keys out")
	case !ok:
		d.fail(key.Line, path, "unknown key%s", suggest(parent, key.Value, known, d.schema))
	case d.lines[path] > 0:
		d.fail(key.Line, path, "already set on line %d", d.lines[path])
	default:
		d.value(path, key.Line, value, f)
	}
}

// value reads n, also through an alias, into f.
func (d *decoder) value(path string, line int, n *yaml.Node, f field) {
	d.lines[path] = line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if !d.spend(line, path) {
		return
	}
	d.depth++
	defer func() { d.depth-- }()
	switch kind := f.value.Kind(); {
	case n.ShortTag() == "!!null":
		d.fail(line, path, "no value: write one, or leave the key out to keep the default")
	case kind == reflect.Struct:
		d.mapping(path, line, n, fieldsOf(f.value))
	case kind == reflect.Slice:
		d.list(path, line, n, f.value)
	default:
		if err := readScalar(n, f.value, f.unit); err != nil {
			d.fail(line, path, "%s", err)
		}
	}
}

func (d *decoder) list(path string, line int, n *yaml.Node, into reflect.Value) {
	if n.Kind != yaml.SequenceNode || n.ShortTag() != "!!seq" {
		d.fail(line, path, "want a list, got %s", describe(n))
		return
	}
	size := len(n.Content)
	into.SetZero() // an empty list and an absent one are the same
	if size > 0 {
		into.Set(reflect.MakeSlice(into.Type(), size, size))
	}
	for i, element := range n.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), element.Line, element, field{value: into.Index(i)})
	}
}

// spend counts a value. It is false once the file exceeds maxValues or
// maxDepth, which is reported once and stops the reading.
func (d *decoder) spend(line int, path string) bool {
	if d.values > maxValues {
		return false
	}
	d.values++
	switch {
	case d.depth >= maxDepth:
		d.values = maxValues + 1
		d.fail(line, path, "more than %d levels deep", maxDepth)
	case d.values > maxValues:
		d.fail(line, path, "more than %d values here, counting what aliases repeat", maxValues)
	}
	return d.values <= maxValues
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}
