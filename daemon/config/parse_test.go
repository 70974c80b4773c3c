package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDecodeNotYAMLNamesLine(t *testing.T) {
	tests := map[string]struct {
		data string
		want string
	}{
		"wrong indentation":         {"part:\n    label: x\n  limit: 1\nword: x\n", "test.yaml:3: not YAML: did not find expected key"},
		"the same after a comment":  {"# a\n# b\npart:\n    label: x\n  limit: 1\n", "test.yaml:5: not YAML: did not find expected key"},
		"indented deeper":           {"word: x\n  flag: true\n", "test.yaml:2: not YAML: mapping values are not allowed in this context"},
		"two colons":                {"word: a: b\n", "test.yaml:1: not YAML: mapping values are not allowed in this context"},
		"no colon":                  {"word: x\nflag\ncount: 1\n", "test.yaml:2: not YAML: could not find expected ':'"},
		"quote never closed":        {"flag: true\nword: \"x\ncount: 1\n", "test.yaml:2: not YAML: found unexpected end of stream"},
		"list in keys":              {"word: x\n- a\n", "test.yaml:2: not YAML: did not find expected key"},
		"bracket never closed":      {"word: x\nnames: [a\n", "test.yaml:2: not YAML: did not find expected ',' or ']'"},
		"brackets closed before":    {"names: [\na,\nb,\nc,\nd,\ne\n]\nword: x\n  flag: true\n", "test.yaml:9: not YAML: mapping values are not allowed in this context"},
		"tab":                       {"part:\n\tlabel: x\n", "test.yaml:2: not YAML: a tab in the indentation: write spaces"},
		"tab after spaces":          {"flag: true\npart:\n  label: x\n \tlimit: 1\n", "test.yaml:4: not YAML: a tab in the indentation: write spaces"},
		"reserved character":        {"word: @x\n", "test.yaml:1: not YAML: found character that cannot start any token"},
		"unknown anchor":            {"flag: true\nword: *x\n", "test.yaml:2: not YAML: unknown anchor 'x' referenced"},
		"control character":         {"flag: true\n\nword: \x01\n", "test.yaml:3: not YAML: control characters are not allowed"},
		"not UTF-8":                 {"flag: true\nword: \xff\n", "test.yaml:2: not YAML: invalid leading UTF-8 octet"},
		"last line without its end": {"flag: true\nword: \"x", "test.yaml:2: not YAML: found unexpected end of stream"},
		"second document":           {"word: x\n---\nword: y\n", "test.yaml:2: a second YAML document begins here: want one"},
		"empty second document":     {"word: x\n---\n", "test.yaml:2: a second YAML document begins here: want one"},
		"broken second document":    {"word: x\n---\n- [\n", "test.yaml:3: not YAML: did not find expected node content"},
		"huge":                      {strings.Repeat("# comment\n", 30_000), "test.yaml: larger than 256Ki: not a configuration file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, []string{tt.want}, mistakes(t, []byte(tt.data), everything{}))
		})
	}
}

func TestDecodeDocumentMarkers(t *testing.T) {
	var got everything
	assert.NoError(t, Decode("test.yaml", append([]byte("---\n"), append(file("word: x\n"), "...\n"...)...), &got))
	assert.Equal(t, "x", got.Word)
}
