package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/problems"
)

func TestDecode(t *testing.T) {
	t.Run("every type", decodeEveryType)
	t.Run("defaults kept lists replaced", decodeDefaultsKeptListsReplaced)
	t.Run("errors name line and path", decodeErrorsNameLineAndPath)
	t.Run("errors in line order", decodeErrorsInLineOrder)
	t.Run("errors capped", decodeErrorsCapped)
	t.Run("error fields", decodeErrorFields)
	t.Run("header required", decodeHeaderRequired)
	t.Run("alias", decodeAlias)
	t.Run("alias bomb refused", decodeAliasBombRefused)
	t.Run("ten thousand values", decodeTenThousandValues)
	t.Run("unread value not judged", decodeUnreadValueNotJudged)
	t.Run("contradiction names set key", decodeContradictionNamesSetKey)
	t.Run("schema mistake panics", decodeSchemaMistakePanics)
	t.Run("durations", decodeDurations)
	t.Run("ratios", decodeRatios)
	t.Run("sizes", decodeSizes)
}

func decodeEveryType(t *testing.T) {
	got := readEverything(t, `
inner: text
flag: true
word: "with: colon"
count: -3
pause: 1m30s
share: 0.25
size: 256Mi
names: [a, "10"]
part: {label: one}
parts:
  - label: two
    limit: 1k
    tags:
      - x
  - {}
`)
	want := everything{
		shared: shared{"text"},
		Flag:   true, Word: "with: colon", Count: -3, Pause: 90 * time.Second, Share: 0.25, Size: 256 << 20,
		Names: []string{"a", "10"},
		Part:  part{Label: "one"},
		Parts: []part{{Label: "two", Limit: 1000, Tags: []string{"x"}}, {}},
	}
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(everything{})))
}

func decodeDefaultsKeptListsReplaced(t *testing.T) {
	got := everything{Word: "kept", Names: []string{"a", "b"}, Part: part{Label: "kept", Limit: 1}, Parts: []part{{Label: "old"}}}
	require.NoError(t, Decode("test.yaml", file("names: [c]\npart: {limit: 2}\nparts: [{limit: 3}]\n"), &got))
	want := everything{Word: "kept", Names: []string{"c"}, Part: part{Label: "kept", Limit: 2}, Parts: []part{{Limit: 3}}}
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(everything{})))

	require.NoError(t, Decode("test.yaml", file("names: []\n"), &got))
	assert.Nil(t, got.Names, "an empty list empties the list")
}

func decodeErrorsNameLineAndPath(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"unknown key":             {"wrod: x\n", `test.yaml:3: wrod: unknown key (did you mean "word"?)`},
		"unknown key in a part":   {"part:\n  lable: x\n", `test.yaml:4: part.lable: unknown key (did you mean "label"?)`},
		"unknown key in a list":   {"parts:\n  - {}\n  - limit: 1\n    l: x\n", `test.yaml:6: parts[1].l: unknown key`},
		"two keys as near":        {"part_: x\n", `test.yaml:3: part_: unknown key (did you mean "part"?)`},
		"wrong case":              {"WORD: x\n", `test.yaml:3: WORD: unknown key (did you mean "word"?)`},
		"no such thing":           {"telemetry: x\n", `test.yaml:3: telemetry: unknown key`},
		"odd key":                 {"\"a\\nb\": x\n", `test.yaml:3: "a\nb": unknown key`},
		"misplaced key":           {"label: x\n", `test.yaml:3: label: unknown key here (it belongs at part.label or parts[].label)`},
		"repeated key":            {"word: a\nflag: true\nword: a\n", `test.yaml:5: word: already set on line 3`},
		"repeated header":         {"kind: AgentConfiguration\n", `test.yaml:3: kind: already set on line 2`},
		"nothing":                 {"word:\nflag: true\n", `test.yaml:3: word: no value: write one, or leave the key out to keep the default`},
		"null":                    {"part: null\n", `test.yaml:3: part: no value: write one, or leave the key out to keep the default`},
		"null in a list":          {"names:\n  - a\n  - ~\n", `test.yaml:5: names[1]: no value: write one, or leave the key out to keep the default`},
		"merge key":               {"part:\n  <<: {label: x}\n", `test.yaml:4: part.<<: merge keys are not supported: write the keys out`},
		"list as key":             {"? [a]\n: b\n", `test.yaml:3: a key must be a word, got a list`},
		"value for a section":     {"part: x\n", `test.yaml:3: part: want keys and values, got "x"`},
		"list for a section":      {"part: [x]\n", `test.yaml:3: part: want keys and values, got a list`},
		"tag on a section":        {"part: !set {label: x}\n", `test.yaml:3: part: want keys and values, got keys and values tagged !set`},
		"value for a list":        {"names: x\n", `test.yaml:3: names: want a list, got "x"`},
		"tag on a list":           {"names: !set [x]\n", `test.yaml:3: names: want a list, got a list tagged !set`},
		"section for a value":     {"word: {a: b}\n", `test.yaml:3: word: want a single value, got keys and values`},
		"section in a list":       {"names: [{a: b}]\n", `test.yaml:3: names[0]: want a single value, got keys and values`},
		"tag on a value":          {"word: !secret x\n", `test.yaml:3: word: want text, got x tagged !secret: put it in quotes if it is meant as text`},
		"number for text":         {"word: 10\n", `test.yaml:3: word: want text, got 10: put it in quotes if it is meant as text`},
		"not printable":           {"word: \"a\\tb\"\n", `test.yaml:3: word: a character that cannot be printed in "a\tb" in quotes`},
		"yes":                     {"flag: yes\n", `test.yaml:3: flag: want true or false, got "yes"`},
		"True":                    {"flag: True\n", `test.yaml:3: flag: want true or false, got True`},
		"quoted true":             {"flag: \"true\"\n", `test.yaml:3: flag: want true or false, got "true" in quotes`},
		"fraction for a count":    {"count: 1.5\n", `test.yaml:3: count: want a whole number in decimal, got 1.5`},
		"octal":                   {"count: 010\n", `test.yaml:3: count: want a whole number in decimal, got 010`},
		"huge count":              {"count: 99999999999999999999\n", `test.yaml:3: count: want a whole number in decimal, got 99999999999999999999`},
		"a long value is cut":     {"flag: " + strings.Repeat("x", 100) + "\n", `test.yaml:3: flag: want true or false, got "` + strings.Repeat("x", 64) + `"…`},
		"a wrong value on a line": {"word: x\n\n# comment\npause: soon\n", `test.yaml:6: pause: want a duration like 10s or 1m30s (units ns, us, ms, s, m, h), got "soon"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, []string{tt.want}, mistakes(t, file(tt.body), everything{}))
		})
	}
}

func decodeErrorsInLineOrder(t *testing.T) {
	got := mistakes(t, []byte(`kind: ControllerConfiguration
share: 2
part:
  limit: -1
  label: 1
names: x
unknown: 1
`), everything{})
	assert.Equal(t, []string{
		`test.yaml:1: apiVersion: missing: write apiVersion: plimsoll.dev/v1alpha1`,
		`test.yaml:1: kind: is "ControllerConfiguration": this program reads AgentConfiguration`,
		`test.yaml:2: share: want a ratio from 0 to 1 (0.25 is a quarter), got 2`,
		`test.yaml:4: part.limit: want a size in whole bytes, 0 or more, like 256Mi, got -1`,
		`test.yaml:5: part.label: want text, got 1: put it in quotes if it is meant as text`,
		`test.yaml:6: names: want a list, got "x"`,
		`test.yaml:7: unknown: unknown key`,
	}, got)
}

func decodeErrorsCapped(t *testing.T) {
	got := mistakes(t, file(strings.Repeat("x: 1\n", 30_000)), everything{})
	require.Len(t, got, 101)
	assert.Equal(t, "test.yaml:102: x: unknown key", got[99])
	assert.Equal(t, "test.yaml:103: too many mistakes; those from here on are not listed", got[100])
}

func decodeErrorFields(t *testing.T) {
	var into everything
	err := Decode("test.yaml", file("share: 2\nflag: 1\n"), &into)
	var first *Error
	require.True(t, errors.As(err, &first))
	assert.Equal(t, &Error{"test.yaml", 3, "share", "want a ratio from 0 to 1 (0.25 is a quarter), got 2"}, first)
}

func decodeHeaderRequired(t *testing.T) {
	missing := []string{
		"test.yaml:1: apiVersion: missing: write apiVersion: plimsoll.dev/v1alpha1",
		"test.yaml:1: kind: missing: write kind: AgentConfiguration",
	}
	for name, data := range map[string]string{"empty": "", "comments": "# nothing\n", "empty document": "---\n...\n", "no header": "word: x\n"} {
		assert.Equal(t, missing, mistakes(t, []byte(data), everything{}), name)
	}
	assert.Equal(t, []string{
		`test.yaml:1: apiVersion: is "v1": this program reads plimsoll.dev/v1alpha1`,
		`test.yaml:2: kind: is "Agent": this program reads AgentConfiguration`,
	}, mistakes(t, []byte("apiVersion: v1\nkind: Agent\n"), everything{}))
	assert.Equal(t, []string{
		`test.yaml:1: apiVersion: want text, got 1: put it in quotes if it is meant as text`,
		`test.yaml:2: kind: no value: write one, or leave the key out to keep the default`,
	}, mistakes(t, []byte("apiVersion: 1\nkind:\n"), everything{}))
	assert.Equal(t, []string{"test.yaml:1: want keys and values, got a list"}, mistakes(t, []byte("- a\n"), everything{}))
}

func decodeAlias(t *testing.T) {
	got := readEverything(t, "part: &p {label: x, limit: 1Ki}\nparts: [*p, *p]\nword: &w text\ninner: *w\n")
	p := part{Label: "x", Limit: 1024}
	want := everything{shared: shared{"text"}, Word: "text", Part: p, Parts: []part{p, p}}
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(everything{}), cmpopts.EquateEmpty()))

	assert.Equal(t, []string{`test.yaml:4: flag: want true or false, got "text"`},
		mistakes(t, file("word: &w text\nflag: *w\n"), everything{}), "the line is that of the alias")
}

// nest can be as deep as a file says.
type nest struct {
	Name     string `yaml:"name"`
	Children []nest `yaml:"children"`
}

func (nest) Kind() string            { return Agent{}.Kind() }
func (nest) Validate() problems.List { return nil }

func decodeAliasBombRefused(t *testing.T) {
	laughs := "children:\n- &l0 {name: ha}\n"
	for level := 1; level < 30; level++ {
		laughs += fmt.Sprintf("- &l%d {children: [%s*l%d]}\n", level, strings.Repeat(fmt.Sprintf("*l%d, ", level-1), 9), level-1)
	}
	for body, want := range map[string]string{
		laughs: "more than 10000 values here, counting what aliases repeat",
		"children: [" + strings.Repeat("{}, ", maxValues) + "]\n": "more than 10000 values here, counting what aliases repeat",
		"children: &a [{children: *a}, {children: *a}]\n":         "more than 32 levels deep",
	} {
		begin := deadline.Start()
		got := mistakes(t, file(body), nest{})
		assert.Less(t, begin.Elapsed(), 10*time.Second)
		require.Len(t, got, 1)
		assert.Contains(t, got[0], want)
	}
}

func decodeTenThousandValues(t *testing.T) {
	got := readEverything(t, "names: ["+strings.Repeat("a, ", maxValues-3)+"]\n") // beside the header and the list
	assert.Len(t, got.Names, maxValues-3)
}

func decodeUnreadValueNotJudged(t *testing.T) {
	// Without the tick the window would be too short for the default tick.
	assert.Equal(t, []string{
		`test.yaml:3: tick: wrong unit: "0.1": write a duration like 10s`,
		`test.yaml:5: log.level: want one of debug, info, warn, error, got "loud"`,
	}, mistakes(t, file("tick: 0.1\nwindow: 200ms\nlog: {level: loud}\n"), Default()))
}

func decodeContradictionNamesSetKey(t *testing.T) {
	assert.Equal(t, []string{"test.yaml:3: window: window (1s) must be at least 2 × tick (1s)"},
		mistakes(t, file("window: 1s\n"), Default()))
	assert.Equal(t, []string{"test.yaml:3: tick: window (10s) must be at least 2 × tick (6s)"},
		mistakes(t, file("tick: 6s\neviction: {round: 6s}\nplugins: {memoryStall: {hard: {window: 6s}}}\n"), Default()))
	assert.Equal(t, []string{"test.yaml:5: web.listenAddresses[1]: want a port from 0 to 65535, got \"http\""},
		mistakes(t, file("web:\n  listenAddresses: [':1',\n    ':http']\n"), Default()))
	unset := Default()
	unset.Window = time.Second
	assert.Equal(t, []string{
		"test.yaml:3: x: unknown key",
		"test.yaml: window: window (1s) must be at least 2 × tick (1s)",
	}, mistakes(t, file("x: 1\n"), unset))
}

func decodeSchemaMistakePanics(t *testing.T) {
	assert.PanicsWithValue(t, "config: field Untagged of config.untagged has no yaml tag",
		func() { _ = Decode("test.yaml", file(""), &untagged{}) })
	assert.PanicsWithValue(t, `config: no way to write a float64 with unit "miles"`,
		func() { _ = Decode("test.yaml", file("far: 1\n"), &unknownUnit{}) })
}

type untagged struct{ Untagged int }

func (untagged) Kind() string            { return "" }
func (untagged) Validate() problems.List { return nil }

type unknownUnit struct {
	Far float64 `yaml:"far" unit:"miles"`
}

func (unknownUnit) Kind() string            { return Agent{}.Kind() }
func (unknownUnit) Validate() problems.List { return nil }

func decodeDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "'10s'": 10 * time.Second, "1h": time.Hour, "100ms": 100 * time.Millisecond, "1.5s": 1500 * time.Millisecond,
		"-1s": -time.Second, "2540400h": 2540400 * time.Hour, "0s": 0,
	} {
		assert.Equal(t, want, readEverything(t, "pause: "+text+"\n").Pause, text)
	}
	for _, number := range []string{"10", "0", "1.5", "-1", "1e400"} {
		want := fmt.Sprintf(`test.yaml:3: pause: wrong unit: "%s": write a duration like 10s`, number)
		assert.Equal(t, []string{want}, mistakes(t, file("pause: "+number+"\n"), everything{}))
		assert.Equal(t, []string{want}, mistakes(t, file("pause: '"+number+"'\n"), everything{}), "quotes are no unit")
	}
	for _, text := range []string{"1d", "10 s", "ten", "''", "true", "!x 10s", "9999999999h"} {
		assert.Contains(t, mistakes(t, file("pause: "+text+"\n"), everything{})[0], "want a duration like 10s", text)
	}
}

func decodeRatios(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "1": 1, "0.25": 0.25, ".5": 0.5, "1e-3": 0.001, "1.0": 1} {
		assert.InDelta(t, want, readEverything(t, "share: "+text+"\n").Share, 0, text)
	}
	for _, text := range []string{"1.01", "-0.1", "-0", "25", "25%", "'0.5'", ".nan", ".inf", "0x1", "!!float nan", "!!float 0x1p-2", "true", "''", "0.5.5"} {
		assert.Contains(t, mistakes(t, file("share: "+text+"\n"), everything{})[0], "want a ratio from 0 to 1", text)
	}
}

func decodeSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "256Mi": 256 << 20, "1Gi": 1 << 30, "1k": 1000, "1M": 1e6, "12e3": 12000, "0.5Gi": 1 << 29, "'100'": 100, "2.000": 2,
		"7Ei": 7 << 60, "9223372036854775806": math.MaxInt64 - 1,
	} {
		assert.Equal(t, want, readEverything(t, "size: "+text+"\n").Size, text)
	}
	for _, text := range []string{
		"-1", "-1Mi", "1.5", "100m", "1MB", "1mi", "0.1Ki", "0x10", "ten", "''", "true", "1e999999999", "1e-999999999", "1e30", "1 Gi",
		"1n", "0.0000000001", "!x 1Gi", "100E",
	} {
		assert.Contains(t, mistakes(t, file("size: "+text+"\n"), everything{})[0], "want a size in whole bytes", text)
	}
	for _, text := range []string{"8Ei", "1000Ei", "9223372036854775807"} {
		assert.Contains(t, mistakes(t, file("size: "+text+"\n"), everything{})[0], "larger than any memory or disk", text)
	}
}
