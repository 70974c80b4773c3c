package names_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/names"
)

func TestMoverKinds(t *testing.T) {
	t.Run("each kind has a row", func(t *testing.T) {
		file, err := parser.ParseFile(token.NewFileSet(), "movers.go", nil, 0)
		require.NoError(t, err)
		var declared, rows []string
		ast.Inspect(file, func(n ast.Node) bool {
			if v, is := n.(*ast.ValueSpec); is {
				if kind, is := v.Type.(*ast.Ident); is && kind.Name == "MoverKind" {
					name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
					require.NoError(t, err)
					declared = append(declared, name)
				}
			}
			return true
		})
		for _, f := range names.MoverKinds() {
			rows = append(rows, string(f.Kind))
		}
		assert.Equal(t, declared, rows)
	})
	t.Run("what tells them apart is different", func(t *testing.T) {
		seen := map[string]bool{}
		for _, f := range names.MoverKinds() {
			for _, word := range []string{f.Resource, f.Short, f.PodLabel} {
				assert.NotEmpty(t, word)
				assert.False(t, seen[word], word)
				seen[word] = true
			}
			assert.Equal(t, f, f.Kind.Facts())
		}
	})
	t.Run("an unknown kind is no other", func(t *testing.T) {
		assert.Equal(t, names.MoverFacts{Kind: "BlockUpload", Exposer: "unknown exposer", Prefix: "unknown"}, names.MoverKind("BlockUpload").Facts())
	})
}
