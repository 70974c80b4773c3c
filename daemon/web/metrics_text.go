package web

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// family is one metric.
type family[T any] struct {
	name string
	kind string // counter or gauge
	// help is one short sentence with the kernel's source, without backslash
	// and line break.
	help string
	// value appends the value; nothing when it is absent.
	value func(b []byte, t *T) []byte
}

// The kinds of a family.
const (
	counter = "counter"
	gauge   = "gauge"
)

// appendFamilies appends each family with a line for each thing that has a
// value. All families of one call share their labels, which are empty or
// {name="value",…}.
func appendFamilies[T any](b []byte, things []T, labels func(b []byte, t *T) []byte, families []family[T]) []byte {
	// Labels are escaped once, not once per family: ends[i] is the end of those
	// of thing i.
	text := make([]byte, 0, 32*len(things))
	ends := make([]int, len(things))
	for i := range things {
		text = labels(text, &things[i])
		ends[i] = len(text)
	}
	for i := range families {
		b = families[i].append(b, things, text, ends)
	}
	return b
}

// append omits the family if no thing has a value.
func (f *family[T]) append(b []byte, things []T, labels []byte, ends []int) []byte {
	start := len(b)
	b = appendHeader(b, f.name, f.kind, f.help)
	header := len(b)
	from := 0
	for i := range things {
		line := len(b)
		b = append(b, f.name...)
		b = append(b, labels[from:ends[i]]...)
		b = append(b, ' ')
		from = ends[i]
		before := len(b)
		b = f.value(b, &things[i])
		if len(b) == before {
			b = b[:line]
			continue
		}
		b = append(b, '\n')
	}
	if len(b) == header {
		return b[:start]
	}
	return b
}

func appendHeader(b []byte, name, kind, help string) []byte {
	b = append(b, "# HELP "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, help...)
	b = append(b, "\n# TYPE "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, kind...)
	return append(b, '\n')
}

// appendLabel appends one label as the only one of its series.
func appendLabel(b []byte, name, value string) []byte {
	return append(appendPair(append(b, '{'), name, value), '}')
}

// appendLabels appends two.
func appendLabels(b []byte, name1, value1, name2, value2 string) []byte {
	b = appendPair(append(b, '{'), name1, value1)
	return append(appendPair(append(b, ','), name2, value2), '}')
}

func appendPair(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, `="`...)
	b = appendLabelValue(b, value)
	return append(b, '"')
}

// histogram of one set of labels: cumulative counts by bound, total count and
// sum.
type histogram struct {
	labels []string
	within []uint64
	count  uint64
	sum    float64
}

func appendHistogram(b []byte, name string, bounds []float64, h histogram) []byte {
	bucket := func(le string, n uint64) {
		b = appendAll(append(b, name+"_bucket"...), append(slices.Clip(h.labels), "le", le))
		b = append(appendCount(append(b, ' '), n), '\n')
	}
	for i, bound := range bounds {
		bucket(strconv.FormatFloat(bound, 'g', -1, 64), h.within[i])
	}
	bucket("+Inf", h.count)
	b = appendAll(append(b, name+"_sum"...), h.labels)
	b = append(appendFloat(append(b, ' '), h.sum), '\n')
	b = appendAll(append(b, name+"_count"...), h.labels)
	return append(appendCount(append(b, ' '), h.count), '\n')
}

// noLabels is for families with one series.
func noLabels[T any](b []byte, _ *T) []byte { return b }

// appendLabelValue escapes a value. The format is UTF-8 only, and a device's
// name may be any bytes: an invalid one is written as \x and two hexadecimal
// digits, with the backslash escaped.
func appendLabelValue(b []byte, v string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(v); {
		r, n := utf8.DecodeRuneInString(v[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, '\\', '\\', 'x', hex[v[i]>>4], hex[v[i]&15])
		case r == '\\' || r == '"':
			b = append(b, '\\', v[i])
		case r == '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, v[i:i+n]...)
		}
		i += n
	}
	return b
}

// appendCount appends a number of things.
func appendCount(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) }

func appendOptCount(b []byte, o snapshot.Opt[uint64]) []byte {
	if v, ok := o.Get(); ok {
		return appendCount(b, v)
	}
	return b
}

// appendFloat appends nothing for NaN and infinity: there is no measurement.
func appendFloat(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return b
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func appendOptFloat(b []byte, o snapshot.Opt[float64]) []byte {
	if v, ok := o.Get(); ok {
		return appendFloat(b, v)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, '1')
	}
	return append(b, '0')
}

// appendScaled appends v/scale exactly, where a float would lose digits. scale
// is a power of ten: 1e3 makes seconds of milliseconds.
func appendScaled(b []byte, v, scale uint64) []byte {
	b = strconv.AppendUint(b, v/scale, 10)
	part := v % scale
	if part == 0 {
		return b
	}
	b = append(b, '.')
	for part > 0 {
		part *= 10
		b = append(b, '0'+byte(part/scale))
		part %= scale
	}
	return b
}

func appendOptScaled(b []byte, o snapshot.Opt[uint64], scale uint64) []byte {
	if v, ok := o.Get(); ok {
		return appendScaled(b, v, scale)
	}
	return b
}
