package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root of the repository.
const root = "../.."

// notThese are the words that the table "Not these" of the glossary has between
// backticks.
func notThese(t *testing.T) *regexp.Regexp {
	t.Helper()
	glossary, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(glossary), "\n## Not these\n")
	require.True(t, found)
	var words []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			words = append(words, regexp.QuoteMeta(m[1]))
		}
	}
	require.Greater(t, len(words), 20)
	return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
}

// texts visits each text of the program: string constants of more than one word,
// the page, the manifests and the documents, each with its place.
func texts(t *testing.T, visit func(place, text string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch {
			case path == "e2e", path != "." && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", d.Name() == "bin", d.Name() == "node_modules":
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go":
			if !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".pb.go") {
				constants(t, path, visit)
			}
		case ".html", ".js", ".yaml", ".tpl", ".txt", ".md", ".service":
			lines(t, path, visit)
		}
		return nil
	})
	require.NoError(t, err)
}

func constants(t *testing.T, path string, visit func(place, text string)) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			require.NoError(t, err)
			if strings.Contains(strings.TrimSpace(text), " ") {
				visit(path+":"+strconv.Itoa(files.Position(l.Pos()).Line), text)
			}
		}
		return true
	})
}

func lines(t *testing.T, path string, visit func(place, text string)) {
	t.Helper()
	if path == "docs/glossary.md" || path == "CHANGELOG.md" {
		return
	}
	content, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		visit(path+":"+strconv.Itoa(n), line)
	}
}

func TestEachTextHasGlossaryWords(t *testing.T) {
	not := notThese(t)
	names := regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)") // tests and files have names of their own
	n := 0
	texts(t, func(place, text string) {
		n++
		if strings.Contains(place, ".md:") {
			text = names.ReplaceAllString(text, "")
		}
		assert.Empty(t, not.FindAllString(text, -1), "%s: %.200s\n(docs/glossary.md says which words to use)", place, text)
	})
	assert.Greater(t, n, 5000, "all texts were found")
}
