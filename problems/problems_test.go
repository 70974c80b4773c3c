package problems

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSection(t *testing.T) {
	for name, tt := range map[string]struct {
		check func(Section)
		want  List
	}{
		"what holds is no problem": {func(at Section) {
			at.Must(true, "never", "key")
			at.Duration("key", time.Second, time.Second, time.Second)
			at.Int("key", 3, 3, 3)
			at.OneOf("key", "b", "a", "b")
			at.AtLeast(Period{"long", 2}, Period{"short", 1}, 2)
			at.PathOrNone("key", "")
			at.Paths("keys", []string{"/", "/a/b"})
		}, nil},
		"a key is behind the path":         {func(at Section) { at.Must(false, "why", "key") }, List{{[]string{"a.b.key"}, "why"}}},
		"no key is the section":            {func(at Section) { at.Element("list", 2).Must(false, "why") }, List{{[]string{"a.b.list[2]"}, "why"}}},
		"a duration below":                 {func(at Section) { at.Duration("key", 0, time.Second, 2*time.Minute) }, List{{[]string{"a.b.key"}, "0s is not between 1s and 2m"}}},
		"a duration above":                 {func(at Section) { at.Duration("key", 3*time.Hour, 0, time.Hour) }, List{{[]string{"a.b.key"}, "3h is not between 0s and 1h"}}},
		"a number above":                   {func(at Section) { at.Int("key", 4, 1, 3) }, List{{[]string{"a.b.key"}, "4 is not between 1 and 3"}}},
		"a word":                           {func(at Section) { at.OneOf("key", "c", "a", "b") }, List{{[]string{"a.b.key"}, `want one of a, b, got "c"`}}},
		"two keys":                         {func(at Section) { at.AtLeast(Period{"long", 1}, Period{"short", 1}, 2) }, List{{[]string{"a.b.long", "a.b.short"}, "a.b.long (1ns) must be at least 2 × a.b.short (1ns)"}}},
		"a product too large for a number": {func(at Section) { at.AtLeast(Period{"long", 1}, Period{"short", math.MaxInt64}, 1) }, List{{[]string{"a.b.long", "a.b.short"}, "a.b.long (1ns) must be at least a.b.short (2562047h47m16.854775807s)"}}},
		"a path":                           {func(at Section) { at.Paths("keys", []string{"/", "a/../b"}) }, List{{[]string{"a.b.keys[1]"}, `want an absolute path without .., // or a slash at its end, got "a/../b"`}}},
	} {
		t.Run(name, func(t *testing.T) {
			var found List
			tt.check(found.At("a.b"))
			assert.Equal(t, tt.want, found)
		})
	}
	t.Run("the document has no path", func(t *testing.T) {
		var found List
		found.At("").Must(false, "why", "key")
		found.At("").Element("list", 0).Must(false, "why", "key")
		assert.Equal(t, List{{[]string{"key"}, "why"}, {[]string{"list[0].key"}, "why"}}, found)
	})
}

func TestQuote(t *testing.T) {
	assert.Equal(t, `"a\nb"`, Quote("a\nb"))
	assert.Equal(t, `"`+strings.Repeat("x", 64)+`"…`, Quote(strings.Repeat("x", 65)))
}

func TestMinutes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1m", 20 * time.Second: "1m", 89 * time.Second: "1m", 90 * time.Second: "2m", 75 * time.Minute: "1h15m",
	} {
		assert.Equal(t, want, Minutes(d))
	}
}
