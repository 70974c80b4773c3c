package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// commentWidth is where comments are wrapped, without indentation.
const commentWidth = 90

// Print writes the document as YAML with the description of each key as a
// comment above it. [Decode] reads the same value back. The error is w's.
func Print(w io.Writer, d Document) error {
	p := &printer{}
	p.line("", "apiVersion: %s", APIVersion)
	p.line("", "kind: %s", d.Kind())
	for _, f := range fieldsOf(structOf(d)) {
		p.line("", "")
		p.field("", f)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

type printer struct{ strings.Builder }

func (p *printer) line(indent, format string, args ...any) {
	p.WriteString(indent)
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

func (p *printer) fields(indent string, v reflect.Value) {
	for _, f := range fieldsOf(v) {
		p.field(indent, f)
	}
}

func (p *printer) field(indent string, f field) {
	p.comment(indent, f.description)
	switch f.value.Kind() {
	case reflect.Struct:
		p.line(indent, "%s:", f.key)
		p.fields(indent+"  ", f.value)
	case reflect.Slice:
		p.list(indent, f)
	default:
		p.line(indent, "%s: %s", f.key, writeScalar(f.value, f.unit))
	}
}

func (p *printer) list(indent string, f field) {
	if f.value.Len() == 0 {
		p.line(indent, "%s: []", f.key)
		return
	}
	p.line(indent, "%s:", f.key)
	for i := range f.value.Len() {
		element := f.value.Index(i)
		if element.Kind() == reflect.Struct {
			p.line(indent, "  -")
			p.fields(indent+"    ", element)
			continue
		}
		p.line(indent, "  - %s", writeScalar(element, ""))
	}
}

func (p *printer) comment(indent, text string) {
	line := "#"
	for w := range strings.FieldsSeq(text) {
		if len(line)+1+len(w) > commentWidth {
			p.line(indent, "%s", line)
			line = "#"
		}
		line += " " + w
	}
	if line != "#" {
		p.line(indent, "%s", line)
	}
}
