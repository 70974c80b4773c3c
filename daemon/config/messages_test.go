package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUnknownKeySuggestion(t *testing.T) {
	tests := map[string]string{
		"tikc: 1s\n": `test.yaml:3: tikc: unknown key (did you mean "tick"?)`,
		"plugins: {memoryStall: {soft: {stallFul: 0.1}}}\n": `test.yaml:3: plugins.memoryStall.soft.stallFul: unknown key (did you mean "stallFull"?)`,
		"plugins: {memorystall: {}}\n":                      `test.yaml:3: plugins.memorystall: unknown key (did you mean "memoryStall"?)`,
		"listenAddresses: []\n":                             `test.yaml:3: listenAddresses: unknown key here (it belongs at web.listenAddresses)`,
		"plugins: {memoryStall: {stallFull: 1}}\n":          `test.yaml:3: plugins.memoryStall.stallFull: unknown key here (it belongs at plugins.memoryStall.soft.stallFull or plugins.memoryStall.hard.stallFull)`,
		"x: 1\n":       `test.yaml:3: x: unknown key`,
		"metrics: 1\n": `test.yaml:3: metrics: unknown key`,
	}
	for body, want := range tests {
		assert.Equal(t, []string{want}, mistakes(t, file(body), Default()))
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"stallFul", "stallFull", 1},
		{"kitten", "sitting", 3},
		{"window", "widnow", 2},
		{"tick", "kick", 1},
	} {
		assert.Equal(t, tt.want, editDistance(tt.a, tt.b), "%s to %s", tt.a, tt.b)
		assert.Equal(t, tt.want, editDistance(tt.b, tt.a), "%s to %s", tt.b, tt.a)
	}
}
