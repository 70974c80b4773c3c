// Package repository tests what is written here: that documents name what there is, in the
// words of the glossary, and that the code keeps its shape.
package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testsOf has the tests, the names of subtests and the test files of each directory of
// the repository.
func testsOf(t *testing.T) map[string]map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	literal := regexp.MustCompile(`"([^"\n]+)"`)
	all := map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.Dir(path), root+"/")
		if all[dir] == nil {
			all[dir] = map[string]bool{}
		}
		all[dir][d.Name()] = true
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			all[dir][m[1]] = true
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			all[dir]["/"+strings.ReplaceAll(m[1], " ", "_")] = true
		}
		return nil
	}))
	return all
}

// Where a document says that something holds, the test that it names is there:
// in the directory that it names before.
func TestDocumentsTestsExist(t *testing.T) {
	tests := testsOf(t)
	quoted := regexp.MustCompile("`([^`\n]+)`(:?)")
	named := regexp.MustCompile(`^((?:Test|Fuzz)\w+)(/\S+)?$|^(\w+_test\.go)$`)
	count := 0
	for _, document := range []string{"invariants.md", "security.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", document))
		require.NoError(t, err)
		for line := range strings.SplitSeq(string(text), "\n") {
			dir := ""
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if m[2] == ":" {
					dir = m[1]
				} else if name := named.FindStringSubmatch(m[1]); name != nil {
					count++
					assert.True(t, tests[dir][name[1]+name[3]], "%s: %s has no %s", document, dir, m[1])
					assert.True(t, name[2] == "" || tests[dir][name[2]], "%s: %s has no subtest %s", document, dir, m[1])
				}
			}
		}
	}
	assert.Greater(t, count, 200)
}

// A row of the threat table says what cannot be done and by which test, or, in
// bold, what can.
func TestDocumentsThreatRowsHaveTests(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/security.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Who could do what\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 2 || strings.HasSuffix(line, "| and |") || strings.HasSuffix(line, "| is |") || strings.HasSuffix(line, "| an attacker can |") {
			continue
		}
		rows++
		assert.Regexp(t, "`(Test|Fuzz)\\w+(/\\S+)?`|^\\*\\*.*\\*\\* \\|$", cells[1], line)
	}
	assert.GreaterOrEqual(t, rows, 40)
}

// documents are the pages of the repository, by their path, without code blocks.
func documents(t *testing.T) map[string][]byte {
	t.Helper()
	pages := map[string][]byte{}
	for _, pattern := range []string{root + "/*.md", root + "/docs/*.md", root + "/docs/adr/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			pages[file] = regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
		}
	}
	return pages
}

// anchors are those that GitHub makes of a page's headings.
func anchors(page []byte) map[string]bool {
	all := map[string]bool{"": true}
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(page, -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(string(m[1])), ""), " ", "-")] = true
	}
	return all
}

func TestDocumentsLinks(t *testing.T) {
	pages := documents(t)
	link := regexp.MustCompile(`\]\(([^)#\s:]*)(?:#([^)\s]*))?\)`)
	for file, page := range pages {
		for _, m := range link.FindAllSubmatch(page, -1) {
			target := file
			if len(m[1]) > 0 {
				target = filepath.Join(filepath.Dir(file), string(m[1]))
			}
			_, err := os.Stat(target)
			assert.NoError(t, err, "%s: %s", file, m[0])
			if text, ok := pages[target]; ok {
				assert.True(t, anchors(text)[string(m[2])], "%s: no such heading: %s", file, m[0])
			}
		}
	}
}

// No command that installs ends in ImagePullBackOff: what comes before it on the
// page says how to get the image.
func TestDocumentsImageFirst(t *testing.T) {
	installs := regexp.MustCompile(`helm install plimsoll|kubectl apply[^\n]*plimsoll\.yaml|plimsoll\.yaml[^\n]*\| *kubectl apply`)
	pages := 0
	for _, pattern := range []string{root + "/README.md", root + "/docs/*.md", root + "/deploy/README.md", root + "/deploy/*.yaml", root + "/deploy/templates/NOTES.txt"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.NotRegexp(t, `--reuse-values[^\n]*--set`, string(text), "%s: a newer chart would get the defaults of the older one", file)
			at := installs.FindIndex(text)
			if at == nil {
				continue
			}
			pages++
			assert.Contains(t, string(text[:at[0]]), "make push IMAGE=", file)
		}
	}
	assert.GreaterOrEqual(t, pages, 3)
}

func TestDocumentsADRIndex(t *testing.T) {
	index, err := os.ReadFile(root + "/docs/adr/README.md")
	require.NoError(t, err)
	files, err := filepath.Glob(root + "/docs/adr/0*.md")
	require.NoError(t, err)
	for _, file := range files {
		assert.True(t, strings.Contains(string(index), "]("+filepath.Base(file)+") | "), file)
	}
}

// The files of the table "Where is ...?".
func TestDocumentsContributingFiles(t *testing.T) {
	_, table, found := strings.Cut(string(documents(t)[root+"/CONTRIBUTING.md"]), "\n## Where is ...?\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_]+/[a-zA-Z0-9_/.-]+)`").FindAllStringSubmatch(table, -1) {
		_, err := os.Stat(filepath.Join(root, m[1]))
		require.NoError(t, err)
		assert.False(t, named[m[1]], m[1])
		named[m[1]] = true
	}
	assert.Greater(t, len(named), 20)
}
