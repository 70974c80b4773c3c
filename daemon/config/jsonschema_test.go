package config

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/problems"
)

const schemaFile = "../../deploy/values.schema.json"

func TestValuesSchema(t *testing.T) {
	onDisk, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	t.Run("it is the one the program writes", func(t *testing.T) {
		made, err := ValuesSchema(onDisk)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(string(made), string(onDisk)), "run: go generate ./daemon/config")
	})
	t.Run("what is written by hand stays", func(t *testing.T) {
		made, err := ValuesSchema([]byte("{\n  \"by\": \"hand\",\n  \"definitions\": {\"old\": 1}\n}\n"))
		require.NoError(t, err)
		var s struct {
			By          string
			Definitions map[string]any
		}
		require.NoError(t, json.Unmarshal(made, &s))
		assert.Equal(t, "hand", s.By)
		assert.Contains(t, s.Definitions, "AgentConfiguration")
		assert.NotContains(t, s.Definitions, "old")
	})
	t.Run("without a place for the definitions it is an error", func(t *testing.T) {
		_, err := ValuesSchema([]byte("{}"))
		require.ErrorContains(t, err, "there are no definitions")
	})
	t.Run("every documented key has a type and no key is beside them", func(t *testing.T) {
		var s struct {
			Definitions map[string]object
		}
		require.NoError(t, json.Unmarshal(onDisk, &s))
		for _, d := range []Document{Default(), DefaultController()} {
			n := 0
			walk(structOf(d), func(string, field) { n++ })
			assert.Equal(t, n, s.Definitions[d.Kind()].count(t), d.Kind())
		}
	})
}

// object is the part of a schema that lists keys.
type object struct {
	Type                 any
	Enum                 []string
	Properties           map[string]object
	AdditionalProperties *bool
	Items                *object
	Description          string
}

// count the keys below it.
func (o object) count(t *testing.T) (n int) {
	t.Helper()
	if o.Items != nil {
		n += o.Items.count(t)
	}
	if o.Type == "object" {
		require.NotNil(t, o.AdditionalProperties)
		require.False(t, *o.AdditionalProperties)
	}
	for key, p := range o.Properties {
		require.True(t, p.Type != nil || len(p.Enum) > 1, key)
		require.NotEmpty(t, p.Description, key)
		n += 1 + p.count(t)
	}
	return n
}

// A schema that is stricter than the decoder would refuse a good configuration.
func TestPatterns(t *testing.T) {
	durations, sizes := regexp.MustCompile(durationPattern), regexp.MustCompile(bytesPattern)
	t.Run("a value that is printed is taken", func(t *testing.T) {
		require.NoError(t, quick.Check(func(ns int64, size uint64) bool {
			size /= 2
			return durations.MatchString(problems.Duration(time.Duration(ns))) && sizes.MatchString(problems.Bytes(size))
		}, nil))
	})
	for text, good := range map[string]bool{
		"10s": true, "1h2m3.5s": true, "1.5s": true, ".5s": true, "100us": true, "100µs": true, "-3s": true,
		"10": false, "": false, "1 s": false, "10sec": false, "s": false, "1d": false,
	} {
		assert.Equal(t, good, durations.MatchString(text), text)
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		assert.Equal(t, good, readScalar(n, reflect.ValueOf(new(time.Duration)).Elem(), "") == nil, text)
	}
	for text, good := range map[string]bool{
		"256Mi": true, "1.5Gi": true, "1e6": true, "2G": true, "1k": true, "64": true,
		"": false, "256MiB": false, "1 Gi": false, "lots": false, "-1": false, "1K": false,
	} {
		assert.Equal(t, good, sizes.MatchString(text), text)
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		assert.Equal(t, good, readScalar(n, reflect.ValueOf(new(uint64)).Elem(), "bytes") == nil, text)
	}
}
