package e2e_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxFilesOfType is in how many files a type and its methods may be: more scatter its
// reader.
const maxFilesOfType = 3

// spreadTypes are types in more files, with the reason.
func spreadTypes() map[string]string {
	return map[string]string{
		"daemon/top.frame":     "it is what all parts of the screen write into",
		"daemon/view.State":    "each file formats one part of it, for all outputs alike",
		"daemon/web.PodSeries": "which pods have series, their cache and their rows are read apart",
		"daemon/web.pages":     "each page is a file that is named after it",
		"daemon/web.Server":    "each page and endpoint is a file that is named after it",
		"e2e/bench.bench":      "each file measures one thing",
		"e2e/cluster.Cluster":  "each file starts one part of a control plane",
		"e2e/demo.show":        "each act of the demonstration is a file",
		"plugins/outer.Host":   "finding, asking and judging plugins beside a rival are read apart",
		"plugins/outer.plugin": "registration and calls are read apart",
	}
}

// filesOfTypes has the files of each type of the repository that has methods: where it
// is declared, and where it has methods.
func filesOfTypes(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.Dir(path), "../")
		for _, name := range typesIn(file) {
			if files[dir+"."+name] == nil {
				files[dir+"."+name] = map[string]bool{}
			}
			files[dir+"."+name][filepath.Base(path)] = true
		}
		return nil
	}))
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

// A type with its methods is in three files at most.
func TestShapeTypesInFewFiles(t *testing.T) {
	all := filesOfTypes(t)
	assert.Greater(t, len(all), 500)
	spread := spreadTypes()
	for name, files := range all {
		if len(files) > maxFilesOfType {
			assert.Contains(t, spread, name, "%s is in %d files: %v", name, len(files), files)
		}
	}
	for name := range spread {
		assert.Greater(t, len(all[name]), maxFilesOfType, "%s needs no exception", name)
	}
}
