package config

import (
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// describe tells, for a message, what a node contains.
func describe(n *yaml.Node) string {
	var what string
	switch {
	case n.Kind == yaml.AliasNode:
		return describe(n.Alias)
	case n.Kind == yaml.MappingNode:
		what = "keys and values"
	case n.Kind == yaml.SequenceNode:
		what = "a list"
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		what = problems.Quote(n.Value) + " in quotes"
	case n.ShortTag() == "!!str":
		what = problems.Quote(n.Value)
	default:
		what = plainOrQuoted(n.Value)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		what += " tagged " + plainOrQuoted(n.Tag)
	}
	return what
}

// plainOrQuoted is s itself if it is a plain word, otherwise in quotes.
func plainOrQuoted(s string) string {
	odd := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+!<")
	if s == "" || odd != "" || len(s) > problems.MaxQuoted {
		return problems.Quote(s)
	}
	return s
}

// suggest completes the message about an unknown key below parent: where a key of that
// name belongs, below the same parent if it does there, or which key was probably meant.
func suggest(parent, key string, known []field, schema reflect.Value) string {
	var places, near []string
	walk(schema, func(path string, f field) {
		if f.key == key {
			places = append(places, path)
			if parent != "" && strings.HasPrefix(path, parent+".") {
				near = append(near, path)
			}
		}
	})
	if len(near) > 0 {
		places = near
	}
	if len(places) > 0 {
		return " here (it belongs at " + strings.Join(places, " or ") + ")"
	}
	best, distance := "", 1+len(key)/4
	for _, f := range known {
		if d := editDistance(strings.ToLower(key), strings.ToLower(f.key)); d <= distance {
			best, distance = f.key, d-1
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + strconv.Quote(best) + "?)"
}

// editDistance is the Levenshtein distance: letters to insert, remove or
// replace.
func editDistance(a, b string) int {
	if len(a) > problems.MaxQuoted {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
