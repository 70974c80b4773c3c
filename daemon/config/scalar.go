package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// form is how a value is written, by its Go type and unit tag.
type form int

const (
	formBool form = iota
	formString
	formInt
	formDuration
	formRatio
	formBytes
)

func formOf(t reflect.Type, unit string) form {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return formDuration
	case t.Kind() == reflect.Bool:
		return formBool
	case t.Kind() == reflect.String:
		return formString
	case t.Kind() == reflect.Int:
		return formInt
	case t.Kind() == reflect.Float64 && unit == "ratio":
		return formRatio
	case t.Kind() == reflect.Uint64 && unit == "bytes":
		return formBytes
	}
	panic(fmt.Sprintf("config: no way to write a %s with unit %q", t, unit))
}

// readScalar sets into from n. The error is the reason without the key.
func readScalar(n *yaml.Node, into reflect.Value, unit string) error {
	form := formOf(into.Type(), unit)
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("want a single value, got %s", describe(n))
	}
	switch form {
	case formBool:
		b, err := readBool(n)
		into.SetBool(b)
		return err
	case formInt:
		i, err := readInt(n)
		into.SetInt(int64(i))
		return err
	case formDuration:
		d, err := readDuration(n)
		into.SetInt(int64(d))
		return err
	case formRatio:
		r, err := readRatio(n)
		into.SetFloat(r)
		return err
	case formBytes:
		b, err := readBytes(n)
		into.SetUint(b)
		return err
	default:
		s, err := readString(n)
		into.SetString(s)
		return err
	}
}

func readBool(n *yaml.Node) (bool, error) {
	if n.ShortTag() != "!!bool" || (n.Value != "true" && n.Value != "false") {
		return false, fmt.Errorf("want true or false, got %s", describe(n))
	}
	return n.Value == "true", nil
}

func readInt(n *yaml.Node) (int, error) {
	i, err := strconv.Atoi(n.Value)
	if n.ShortTag() != "!!int" || err != nil || strconv.Itoa(i) != n.Value {
		return 0, fmt.Errorf("want a whole number in decimal, got %s", describe(n))
	}
	return i, nil
}

// readString accepts text only: a number or true that is meant as text needs
// quotes, and unprintable characters do not belong in a path, name or address.
func readString(n *yaml.Node) (string, error) {
	if n.ShortTag() != "!!str" {
		return "", fmt.Errorf("want text, got %s: put it in quotes if it is meant as text", describe(n))
	}
	if strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", fmt.Errorf("a character that cannot be printed in %s", describe(n))
	}
	return n.Value, nil
}

func readDuration(n *yaml.Node) (time.Duration, error) {
	if _, err := strconv.ParseFloat(n.Value, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("wrong unit: %s: write a duration like 10s", problems.Quote(n.Value))
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || n.ShortTag() != "!!str" {
		return 0, fmt.Errorf("want a duration like 10s or 1m30s (units ns, us, ms, s, m, h), got %s", describe(n))
	}
	return d, nil
}

func readRatio(n *yaml.Node) (float64, error) {
	number := n.ShortTag() == "!!float" || n.ShortTag() == "!!int"
	decimal := strings.Trim(n.Value, "0123456789.eE+-") == ""
	r, err := strconv.ParseFloat(n.Value, 64)
	if !number || !decimal || err != nil || math.Signbit(r) || r > 1 {
		return 0, fmt.Errorf("want a ratio from 0 to 1 (0.25 is a quarter), got %s", describe(n))
	}
	return r, nil
}

// readBytes reads a Kubernetes quantity that is a whole number of bytes.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
func readBytes(n *yaml.Node) (uint64, error) {
	wrong := fmt.Errorf("want a size in whole bytes, 0 or more, like 256Mi, got %s", describe(n))
	tag := n.ShortTag()
	if (tag != "!!str" && tag != "!!int" && tag != "!!float") || hugeExponent(n.Value) {
		return 0, wrong
	}
	q, err := resource.ParseQuantity(n.Value)
	if err != nil {
		return 0, wrong
	}
	whole := q.Value()
	if whole < 0 || q.Cmp(*resource.NewQuantity(whole, resource.DecimalSI)) != 0 {
		return 0, wrong
	}
	if whole == math.MaxInt64 { // the parser's result for everything larger
		return 0, fmt.Errorf("larger than any memory or disk: %s", describe(n))
	}
	return uint64(whole), nil
}

// hugeExponent keeps the quantity parser from evaluating 10^2147483647.
func hugeExponent(s string) bool {
	at := strings.IndexAny(s, "eE")
	return at >= 0 && len(s)-at > len("e-99")
}

// writeScalar is v as people write it, such that readScalar gives v again.
func writeScalar(v reflect.Value, unit string) string {
	switch formOf(v.Type(), unit) {
	case formBool:
		return strconv.FormatBool(v.Bool())
	case formInt:
		return strconv.FormatInt(v.Int(), 10)
	case formDuration:
		return problems.Duration(time.Duration(v.Int()))
	case formRatio:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case formBytes:
		return problems.Bytes(v.Uint())
	default:
		return formatString(v.String())
	}
}

// formatString leaves plain words plain. Everything else is quoted as Go does
// it, which YAML reads alike for text that can be printed.
func formatString(s string) string {
	if plainOrQuoted(s) == s && (unicode.IsLetter(rune(s[0])) || s[0] == '/') &&
		(&yaml.Node{Kind: yaml.ScalarNode, Value: s}).ShortTag() == "!!str" {
		return s
	}
	return strconv.Quote(s)
}
