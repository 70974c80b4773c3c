package names_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/names"
)

// Code that spells the domain out would keep the old one when it changes.
func TestDomain(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == filepath.Join("..", "names", "names.go") {
			return err
		}
		files++
		for at, text := range stringsOf(t, path) {
			assert.False(t, strings.HasPrefix(text, names.Group), "%s: %q: use package names", at, text)
		}
		return nil
	}))
	assert.Greater(t, files, 300, "the whole module is read")
}

// stringsOf are the string constants of a file, by position.
func stringsOf(t *testing.T, path string) map[string]string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			require.NoError(t, err)
			found[set.Position(l.Pos()).String()] = text
		}
		return true
	})
	return found
}
