package config

import (
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// everything has a field of each supported type.
type everything struct {
	shared `yaml:",inline"`

	Flag  bool          `yaml:"flag" why:"A flag."`
	Word  string        `yaml:"word" why:"A word."`
	Count int           `yaml:"count" why:"A count."`
	Pause time.Duration `yaml:"pause" why:"A pause."`
	Share float64       `yaml:"share" unit:"ratio" why:"A share of something that takes so many words to explain that they do not fit on one line of a comment."`
	Size  uint64        `yaml:"size" unit:"bytes" why:"A size."`
	Names []string      `yaml:"names" why:"Names."`
	Part  part          `yaml:"part" why:"A part."`
	Parts []part        `yaml:"parts" why:"Parts."`
}

type shared struct {
	Inner string `yaml:"inner" why:"A key of an inline struct."`
}

type part struct {
	Label string   `yaml:"label" why:"A label."`
	Limit uint64   `yaml:"limit" unit:"bytes" why:"A limit."`
	Tags  []string `yaml:"tags" why:"Tags."`
}

// Kind is that of Agent, so that one corpus tries both.
func (everything) Kind() string { return Agent{}.Kind() }

func (everything) Validate() problems.List { return nil }

// Generate makes testing/quick fill in what a file can hold.
func (everything) Generate(r *rand.Rand, size int) reflect.Value {
	return reflect.ValueOf(everything{
		shared: shared{text(r, size)},
		Flag:   r.Intn(2) == 0,
		Word:   text(r, size),
		Count:  int(r.Uint64()),
		Pause:  time.Duration(r.Uint64() >> r.Intn(64)),
		Share:  r.Float64(),
		Size:   size64(r),
		Names:  texts(r, size),
		Part:   somePart(r, size),
		Parts:  someParts(r, size),
	})
}

func somePart(r *rand.Rand, size int) part {
	return part{text(r, size), size64(r), texts(r, size)}
}

func someParts(r *rand.Rand, size int) []part {
	var parts []part
	for range r.Intn(4) {
		parts = append(parts, somePart(r, size))
	}
	return parts
}

// size64 is often a round number, as people write them.
func size64(r *rand.Rand) uint64 {
	small := uint64(r.Intn(2000))
	switch r.Intn(3) {
	case 0:
		return small << (10 * r.Intn(5))
	case 1:
		return small * 1_000_000
	default:
		return r.Uint64() >> 1 &^ 1 // the largest of all is refused
	}
}

func texts(r *rand.Rand, size int) []string {
	var all []string
	for range r.Intn(4) {
		all = append(all, text(r, size))
	}
	return all
}

// text is one that a file can hold: what means something to YAML, or letters
// from all over Unicode that can be printed.
func text(r *rand.Rand, size int) string {
	traps := []string{
		"", "null", "~", "true", "yes", "10", "1e3", "0x1f", "10s", "- a", "a: b", "#", "a #b", "'", `"`, `\`, "<<", "*a", "&a",
		"!!str", "[", "{", "|", ">", "%", "@", "`", " ", "a ", "2001-01-01", "---", "...", ".inf", ".nan", "/", "-", "?", "=",
	}
	if r.Intn(2) == 0 {
		return traps[r.Intn(len(traps))]
	}
	var b strings.Builder
	for range r.Intn(size + 1) {
		if letter := rune(r.Intn(1 << (6 + r.Intn(12)))); unicode.IsPrint(letter) {
			b.WriteRune(letter)
		}
	}
	return b.String()
}

// file adds the header, which is two lines, to the text of a file.
func file(body string) []byte {
	return []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n" + body)
}

// readEverything decodes a body that must be right.
func readEverything(t *testing.T, body string) everything {
	t.Helper()
	var got everything
	require.NoError(t, Decode("test.yaml", file(body), &got))
	return got
}

// mistakes are the lines a person sees for a file with this body.
func mistakes[T Document](t *testing.T, data []byte, into T) []string {
	t.Helper()
	err := Decode("test.yaml", data, &into)
	require.Error(t, err)
	var errs Errors
	require.ErrorAs(t, err, &errs)
	return strings.Split(err.Error(), "\n")
}
