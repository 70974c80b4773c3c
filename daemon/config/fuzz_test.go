package config

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// FuzzDecode holds that no file makes the program panic or say a mistake on
// more than a line, and that whatever is accepted can be used and printed.
func FuzzDecode(f *testing.F) {
	var defaults bytes.Buffer
	require.NoError(f, Print(&defaults, Default()))
	f.Add(defaults.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzOne(t, data, Default())
		fuzzOne(t, data, everything{})
		fuzzOne(t, data, nest{})
	})
}

func fuzzOne[T Document](t *testing.T, data []byte, into T) {
	defaults := into
	if err := Decode("fuzz.yaml", data, &into); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			require.Regexp(t, `^fuzz\.yaml(:[1-9][0-9]*)?: .`, line)
		}
		return
	}
	require.Empty(t, into.Validate())
	var printed bytes.Buffer
	require.NoError(t, Print(&printed, into))
	require.NoError(t, Decode("printed.yaml", printed.Bytes(), &defaults), printed.String())
	require.Empty(t, cmp.Diff(into, defaults, cmp.AllowUnexported(everything{})), printed.String())
}
