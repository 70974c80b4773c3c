package repository

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxLines of a file that is no test: what does not fit is another concept.
const maxLines = 600

// maxFilesOfType is in how many files a type and its methods may be: more scatter its
// reader.
const maxFilesOfType = 3

// writtenFiles are the Go files of the repository that are no tests and were written by hand.
func writtenFiles(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".pb.go"):
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

// filesOfTypes has the files of each type of the repository that has methods: where it
// is declared, and where it has methods.
func filesOfTypes(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string]map[string]bool{}
	for _, path := range writtenFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		dir := strings.TrimPrefix(filepath.Dir(path), root+"/")
		for _, name := range typesIn(file) {
			if files[dir+"."+name] == nil {
				files[dir+"."+name] = map[string]bool{}
			}
			files[dir+"."+name][filepath.Base(path)] = true
		}
	}
	all := map[string][]string{}
	for name, of := range files {
		all[name] = slices.Sorted(maps.Keys(of))
	}
	return all
}

// typesIn are the types that a file declares or has methods of.
func typesIn(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				names = append(names, nameOf(d.Recv.List[0].Type))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, is := s.(*ast.TypeSpec); is {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

// nameOf is the name of a receiver's type.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// A type with its methods is in three files at most. One that needs more is several
// types: one composes the others, or what needs no receiver is a function.
func TestShapeTypesInFewFiles(t *testing.T) {
	all := filesOfTypes(t)
	assert.Greater(t, len(all), 500)
	for name, files := range all {
		assert.LessOrEqual(t, len(files), maxFilesOfType, "%s is in %d files: %v", name, len(files), files)
	}
}

// packages of a list in run.sh.
func packages(t *testing.T, name string) []string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(root, "e2e/run.sh"))
	require.NoError(t, err)
	_, list, found := strings.Cut(string(script), "\n"+name+"=(")
	require.True(t, found, name)
	list, _, _ = strings.Cut(list, ")")
	return strings.Fields(list)
}

// besides tells whether a node begins what runs beside it.
func besides(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		called, is := n.Fun.(*ast.SelectorExpr)
		return is && slices.Contains([]string{"Go", "Parallel", "AfterFunc"}, called.Sel.Name)
	}
	return false
}

// There is no race to be found in them. One that gets a go statement leaves the list.
func TestShapeUnracedPackagesSequential(t *testing.T) {
	dirs := packages(t, "plain")
	assert.Greater(t, len(dirs), 20)
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, dir)
		for _, path := range paths {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for n := range ast.Preorder(file) {
				assert.False(t, besides(n), "%s", set.Position(n.Pos()))
			}
		}
	}
}

// make e2e runs these one by one, and one that has no test ends it.
func TestShapePackagesHaveTests(t *testing.T) {
	for _, list := range []string{"processes", "machines", "longs"} {
		for _, dir := range packages(t, list) {
			tests, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
			require.NoError(t, err)
			assert.NotEmpty(t, tests, "%s of %s in run.sh", dir, list)
		}
	}
}

func TestShapeFilesShort(t *testing.T) {
	all := writtenFiles(t)
	assert.Greater(t, len(all), 300)
	for _, path := range all {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.LessOrEqual(t, bytes.Count(text, []byte("\n")), maxLines, path)
	}
}
