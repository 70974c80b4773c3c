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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/daemon/cli"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/names"
)

// kubectlPlugin is the program's name as a plugin of kubectl.
const kubectlPlugin = "kubectl-plimsoll"

// Each name of ours that a document or a manifest states is one that the program
// has: who looks for it finds it.
func TestEachName(t *testing.T) {
	source := readSource(t)
	written := pages(t)
	source.readExamples(written)
	t.Run("metrics", func(t *testing.T) { metricsExist(t, source, written) })
	t.Run("annotations, labels, conditions and taints", func(t *testing.T) { keysExist(t, source, written) })
	t.Run("reason codes", func(t *testing.T) { codesExist(t, source, written) })
	t.Run("configuration keys", func(t *testing.T) { configurationExists(t, written) })
	t.Run("configurations", func(t *testing.T) { configurationsDecode(t, written) })
	t.Run("commands and flags", func(t *testing.T) { commandsExist(t, written) })
	t.Run("release beside an alert", func(t *testing.T) { releasesNameNode(t, written) })
	t.Run("other names", func(t *testing.T) { wordsExist(t, source, written) })
}

// releasesNameNode: an alert that names the command is about what one agent left, and without
// --node it would release the whole cluster.
func releasesNameNode(t *testing.T, written []page) {
	found := 0
	for _, p := range written {
		if p.path != "docs/alerts.md" {
			continue
		}
		p.quoted(func(place, text string) {
			if strings.HasPrefix(text, "plimsoll release") {
				assert.Contains(t, text, " --node ", place)
				found++
			}
		})
	}
	assert.Positive(t, found)
}

// ofOthers are names that documents state and that are no names of the program: of
// Kubernetes, of Velero, of recordings.
func ofOthers() []string {
	return []string{
		// Kubernetes.
		"WaitForFirstConsumer", "allowedTopologies", "automountServiceAccountToken", "defaultMode", "includePreferNoSchedule", "PreemptLowerPriority", "resizePolicy", "syncFrequency", "terminationGracePeriodSeconds", "tlsConfig",
		"MemoryPressure", "X-Kubernetes-PF-PriorityLevel-UID", "config.hash", "config.mirror",
		// Velero, Go, systemd, Debian, and a file that is made.
		"velero.io", "IsMirrorPod", "VerifyClientCertIfGiven", "ProtectHome", "RestartSec", "python3-grpcio", "image.tar",
		// Labelled recordings.
		"uncounted-v1", "uncounted-v2",
	}
}

// flagsOfOthers are flags that documents state without their command.
func flagsOfOthers() []string {
	return []string{
		"concurrent-backups", "disable-controllers", "fs-backup-timeout", "node-agent-configmap", // velero
		"set", "set-json", "reuse-values", "reset-then-reuse-values", "api-versions", "kube-version", // helm
		"status-taint",                                                     // cluster-autoscaler
		"audit-policy-file", "feature-gates", "runtime-config", "root-dir", // kube-apiserver, kubelet
		"name", "token-file", // of a plugin made with the kit
	}
}

// page is a document or a manifest, by its path in the repository.
type page struct {
	path  string
	lines []string
}

// pages are what users read: README, docs, deploy, and what the changelog says of
// the next release.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	add := func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		if path == "CHANGELOG.md" {
			_, rest, found := strings.Cut(string(text), "\n## Unreleased\n")
			require.True(t, found)
			unreleased, _, _ := strings.Cut(rest, "\n## ")
			text = []byte(unreleased)
		}
		all = append(all, page{path, strings.Split(string(text), "\n")})
	}
	add("README.md")
	add("CHANGELOG.md")
	documents, err := fs.Glob(os.DirFS(root), "docs/*.md")
	require.NoError(t, err)
	for _, path := range documents {
		add(path)
	}
	require.NoError(t, fs.WalkDir(os.DirFS(root), "deploy", func(path string, d fs.DirEntry, err error) error {
		if err == nil && slices.Contains([]string{".md", ".yaml", ".json", ".tpl", ".txt"}, filepath.Ext(path)) {
			add(path)
		}
		return err
	}))
	require.Greater(t, len(all), 50)
	return all
}

func (p *page) place(line int) string { return p.path + ":" + strconv.Itoa(line+1) }

// each visits what a pattern finds in the pages: its first group, or all of it.
func each(written []page, pattern *regexp.Regexp, visit func(place, name string)) {
	for _, p := range written {
		for i, line := range p.lines {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				visit(p.place(i), m[len(m)-1])
			}
		}
	}
}

// quoted visits what stands between backticks in the text of the documents, without
// what a name was before.
func quoted(written []page, visit func(place, text string)) {
	for _, p := range written {
		if filepath.Ext(p.path) == ".md" {
			p.quoted(visit)
		}
	}
}

func (p *page) quoted(visit func(place, text string)) {
	pattern := regexp.MustCompile("(before: )?`([^`]+)`")
	block := false
	for i, line := range p.lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			block = !block
		}
		if block {
			continue
		}
		for _, m := range pattern.FindAllStringSubmatch(line, -1) {
			if m[1] == "" {
				visit(p.place(i), m[2])
			}
		}
	}
}

// source is what the code of the program declares.
type source struct {
	metrics map[string]bool     // series by name
	keys    map[string]bool     // behind the prefix plimsoll.dev/
	codes   map[string]bool     // reasons: package.value
	texts   map[string]bool     // whole string constants
	words   map[string]bool     // of string constants, tags and identifiers
	named   map[string][]string // values of string constants, by name
}

func readSource(t *testing.T) source {
	t.Helper()
	s := source{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string][]string{}}
	var files []*ast.File
	for _, path := range programFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
		s.constants(filepath.Dir(path), file)
		ast.Inspect(file, s.strings)
	}
	for _, file := range files {
		ast.Inspect(file, s.prefixed)
	}
	s.recorded(t)
	return s
}

// programFiles are those of the program, and the examples of plugins.
func programFiles(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "e2e" || path == "bin" || d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			paths = append(paths, path)
		}
		return nil
	}))
	require.Greater(t, len(paths), 300)
	return paths
}

// constants notes string constants by their name, and those of the type Code.
func (s source) constants(dir string, file *ast.File) {
	for _, d := range file.Decls {
		group, is := d.(*ast.GenDecl)
		if !is || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			s.constant(dir, spec.(*ast.ValueSpec))
		}
	}
}

func (s source) constant(dir string, v *ast.ValueSpec) {
	for i, value := range v.Values {
		text, is := textOf(value)
		if !is {
			continue
		}
		s.named[v.Names[i].Name] = append(s.named[v.Names[i].Name], text)
		if kind, is := v.Type.(*ast.Ident); is && kind.Name == "Code" || dir == "pods" {
			s.codes[dir+"."+text] = true
		}
	}
}

func textOf(e ast.Expr) (string, bool) {
	l, is := e.(*ast.BasicLit)
	if !is || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

func (s source) strings(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		s.words[n.Name] = true
	case *ast.BasicLit:
		text, is := textOf(n)
		if !is {
			break
		}
		s.texts[text] = true
		for _, pattern := range []string{`\w+(-\w+)*`, `\w+`} {
			for _, word := range regexp.MustCompile(pattern).FindAllString(text, -1) {
				s.words[word] = true
			}
		}
		if regexp.MustCompile(`^plimsoll_[a-z0-9_]+$`).MatchString(text) {
			for _, of := range []string{"", "_bucket", "_sum", "_count"} {
				s.metrics[text+of] = true
			}
		}
	}
	return true
}

// prefixed notes what is joined to names.Prefix.
func (s source) prefixed(n ast.Node) bool {
	sum, is := n.(*ast.BinaryExpr)
	if !is || sum.Op != token.ADD {
		return true
	}
	left := sum.X
	if of, is := left.(*ast.SelectorExpr); is {
		left = of.Sel
	}
	if of, is := left.(*ast.Ident); !is || of.Name != "Prefix" {
		return true
	}
	if text, is := textOf(sum.Y); is {
		s.keys[text] = true
	}
	if of, is := sum.Y.(*ast.Ident); is {
		for _, text := range s.named[of.Name] {
			s.keys[text] = true
		}
	}
	return true
}

// readExamples adds the strings of the Go programs that a document shows.
func (s source) readExamples(written []page) {
	for _, p := range written {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			for _, m := range regexp.MustCompile(`"([^"\n]+)"`).FindAllStringSubmatch(block[1], -1) {
				s.texts[m[1]] = true
			}
		}
	}
}

// recorded adds the series that rules of Prometheus record.
func (s source) recorded(t *testing.T) {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/recording.yaml"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)record: (\S+)`).FindAllStringSubmatch(string(rules), -1) {
		s.metrics[m[1]] = true
	}
}

func metricsExist(t *testing.T, s source, written []page) {
	all := slices.Collect(maps.Keys(s.metrics))
	require.Greater(t, len(all), 100)
	n, whole, ofVersion := 0, "", regexp.MustCompile(`^plimsoll_v?\d`)
	each(written, regexp.MustCompile("(?:\\b[a-z_]+:)?\\bplimsoll_[a-z0-9_:]+\\*?|`_[a-z0-9_]+"), func(place, name string) {
		n++
		short, is := strings.CutPrefix(name, "`")
		begins, isGroup := strings.CutSuffix(name, "*")
		switch {
		case strings.HasSuffix(name, "_") && !isGroup, ofVersion.MatchString(name): // a file's name, such as plimsoll_VERSION
		case is:
			assert.True(t, slices.ContainsFunc(all, func(m string) bool { return strings.HasSuffix(m, short) && shareFirstWords(m, whole) }), "%s: no metric is %s beside %s", place, short, whole)
		case isGroup:
			assert.True(t, slices.ContainsFunc(all, func(m string) bool { return strings.HasPrefix(m, begins) }), "%s: no metric is one of %s", place, name)
		default:
			whole = name
			assert.True(t, s.metrics[name], "%s: no metric is %s", place, name)
		}
	})
	assert.Greater(t, n, 300)
}

// shareFirstWords reports whether two metrics begin alike: plimsoll and one word more.
func shareFirstWords(a, b string) bool {
	words := func(s string) string { return strings.Join(strings.SplitN(s, "_", 3)[:2], "_") }
	return words(a) == words(b)
}

func keysExist(t *testing.T, s source, written []page) {
	require.Greater(t, len(s.keys), 10)
	n := 0
	each(written, regexp.MustCompile(`\bplimsoll\.dev/([A-Za-z][\w-]*)`), func(place, name string) {
		n++
		isCondition := regexp.MustCompile(`^[A-Z]+[a-z]`).MatchString(name) && s.texts[name]
		isPlaceholder := regexp.MustCompile(`^[A-Z]+$`).MatchString(name)
		assert.True(t, s.keys[name] || isCondition || isPlaceholder || names.Prefix+name == names.APIVersion, "%s: plimsoll.dev/%s is no name of the program", place, name)
	})
	assert.Greater(t, n, 100)
}

// codesExist reads the tables of reasons.
func codesExist(t *testing.T, s source, written []page) {
	of := map[string][]string{"docs/backups.md": {"backup"}, "docs/controller.md": {"agents"}, "docs/eviction.md": {"evict", "pods"}}
	for _, p := range written {
		packages, has := of[p.path]
		if !has {
			continue
		}
		n, table := 0, false
		for i, line := range p.lines {
			cells := strings.Split(line, "|")
			if len(cells) < 3 {
				table = false
				continue
			}
			table = table || strings.TrimSpace(cells[1]) == "reason" || strings.TrimSpace(cells[1]) == "code"
			if !table {
				continue
			}
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				n++
				known := slices.ContainsFunc(packages, func(dir string) bool { return s.codes[dir+"."+m[1]] })
				assert.True(t, known, "%s: %v have no reason %s", p.place(i), packages, m[1])
			}
		}
		assert.Greater(t, n, 3, p.path)
		delete(of, p.path)
	}
	assert.Empty(t, of)
}

// configurationKeys are the dotted keys of agent, controller and chart.
func configurationKeys(t *testing.T) (keys []string) {
	t.Helper()
	var document bytes.Buffer
	require.NoError(t, config.Markdown(&document))
	agent, controller, found := strings.Cut(document.String(), "\n## The controller\n")
	require.True(t, found)
	for text, value := range map[string]string{agent: "agent.config.", controller: "controller.config."} {
		for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
			key := strings.ReplaceAll(m[1], "[]", "")
			keys = append(keys, key, value+key)
		}
	}
	values, err := os.ReadFile(filepath.Join(root, "deploy/values.yaml"))
	require.NoError(t, err)
	return append(keys, yamlKeys(t, string(values))...)
}

// yamlKeys are the dotted keys of a document that is a mapping.
func yamlKeys(t *testing.T, text string) []string {
	t.Helper()
	var document yaml.Node
	if yaml.Unmarshal([]byte(text), &document) != nil || len(document.Content) == 0 {
		return nil
	}
	return keysIn("", document.Content[0])
}

func keysIn(prefix string, n *yaml.Node) (keys []string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key := prefix + n.Content[i].Value
			keys = append(keys, key)
			keys = append(keys, keysIn(key+".", n.Content[i+1])...)
		}
	case yaml.SequenceNode:
		for _, element := range n.Content {
			keys = append(keys, keysIn(prefix, element)...)
		}
	}
	return keys
}

// pathsOf are all parts of dotted keys, and the words that are sections.
func pathsOf(keys []string) (paths, sections map[string]bool) {
	paths, sections = map[string]bool{}, map[string]bool{}
	for _, key := range keys {
		words := strings.Split(key, ".")
		for from := range words {
			for to := from + 1; to <= len(words); to++ {
				paths[strings.Join(words[from:to], ".")] = true
			}
			if from+1 < len(words) {
				sections[words[from]] = true
			}
		}
	}
	return paths, sections
}

func configurationExists(t *testing.T, written []page) {
	paths, sections := pathsOf(configurationKeys(t))
	n := 0
	check := func(place, name string) {
		key := strings.ReplaceAll(name, "[]", "")
		first, _, dotted := strings.Cut(key, ".")
		if !dotted || !sections[first] || slices.Contains(ofOthers(), key) || !regexp.MustCompile(`^[a-z]\w*(\.[a-z]\w*)+$`).MatchString(key) || isFile(key) {
			return
		}
		n++
		assert.True(t, paths[key], "%s: no configuration has the key %s", place, name)
	}
	quoted(written, func(place, text string) {
		check(place, text)
		if regexp.MustCompile(`^[\w.\[\]]+: `).MatchString(text) {
			for _, key := range yamlKeys(t, text) {
				check(place, key)
			}
		}
	})
	each(written, regexp.MustCompile(`--set(?:-json)? (\S+?)=`), func(place, name string) {
		n++
		assert.True(t, paths[name], "%s: no value of the chart is %s", place, name)
	})
	assert.Greater(t, n, 100)
}

// isFile reports whether a name with dots is one of a file.
func isFile(name string) bool {
	return slices.Contains([]string{".go", ".json", ".md", ".proto", ".stat", ".yaml"}, filepath.Ext(name))
}

// configurationsDecode reads each configuration that a document shows whole.
func configurationsDecode(t *testing.T, written []page) {
	n := 0
	for _, p := range written {
		if filepath.Ext(p.path) != ".md" {
			continue
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			switch config.KindOf([]byte(block[1])) {
			case config.Default().Kind():
				agent := config.Default()
				assert.NoError(t, config.Decode(p.path, []byte(block[1]), &agent))
			case config.DefaultController().Kind():
				controller := config.DefaultController()
				assert.NoError(t, config.Decode(p.path, []byte(block[1]), &controller))
			default:
				continue
			}
			n++
		}
	}
	assert.Greater(t, n, 5)
}

// commandsExist reads each command line of plimsoll and kubectl plimsoll, and the
// flags that stand alone.
func commandsExist(t *testing.T, written []page) {
	flags := map[string]bool{}
	for _, name := range flagsOfOthers() {
		flags[name] = true
	}
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(cli.Commands())
	collect(cli.CommandsFor(kubectlPlugin))
	n := 0
	lineOf := regexp.MustCompile(`^(?:\$ |bin/)?(kubectl )?plimsoll( .*)$`)
	check := func(place, text string) {
		if m := lineOf.FindStringSubmatch(text); m != nil {
			n++
			commandExists(t, place, m[1] != "", m[2])
		}
	}
	quoted(written, func(place, text string) {
		check(place, text)
		if m := regexp.MustCompile(`^--([a-z][a-z0-9.-]*)`).FindStringSubmatch(text); m != nil {
			n++
			assert.True(t, flags[m[1]], "%s: no command has the flag --%s", place, m[1])
		}
	})
	for _, p := range written {
		for i, line := range p.lines {
			check(p.place(i), line)
			if m := regexp.MustCompile(`^ *- --([a-z][a-z0-9.-]*)`).FindStringSubmatch(line); m != nil {
				n++
				assert.True(t, flags[m[1]], "%s: no command has the flag --%s", p.place(i), m[1])
			}
		}
	}
	each(written, regexp.MustCompile(`kubectl plimsoll( [a-z]+)`), func(place, line string) {
		n++
		commandExists(t, place, true, line)
	})
	assert.Greater(t, n, 100)
}

// commandExists looks for a command line's command and flags.
func commandExists(t *testing.T, place string, ofKubectl bool, line string) {
	program := "plimsoll"
	if ofKubectl {
		program = kubectlPlugin
	}
	for _, end := range []string{" -- ", " >", " #"} {
		line, _, _ = strings.Cut(line, end)
	}
	args := strings.Fields(strings.NewReplacer("[", " ", "]", " ", "|", " ", `\`, " ").Replace(line))
	c := cli.CommandsFor(program)
	for _, arg := range args {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(arg) || !c.HasSubCommands() {
			break
		}
		next, _, err := c.Find([]string{arg})
		if !assert.NoError(t, err, "%s: plimsoll%s", place, line) || !assert.NotEqual(t, c, next, "%s: plimsoll%s: no command is %s", place, line, arg) {
			return
		}
		c = next
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	for _, arg := range args {
		if m := regexp.MustCompile(`^--([a-z][a-z0-9.-]*)`).FindStringSubmatch(arg); m != nil {
			assert.True(t, c.Flags().Lookup(m[1]) != nil || c.InheritedFlags().Lookup(m[1]) != nil, "%s: %s has no flag --%s", place, c.CommandPath(), m[1])
		}
	}
}

// wordsExist looks for names that are no prose: of several words in one.
func wordsExist(t *testing.T, s source, written []page) {
	known := maps.Clone(s.words)
	for _, name := range ofOthers() {
		assert.False(t, known[name], "%s is a name of the program, too", name)
		known[name] = true
	}
	for _, p := range written {
		if ext := filepath.Ext(p.path); ext == ".md" || ext == ".json" {
			continue
		}
		for _, line := range p.lines {
			line, _, _ = strings.Cut(line, "#")
			for _, word := range regexp.MustCompile(`\w+(-\w+)*`).FindAllString(line, -1) {
				known[word] = true
			}
		}
	}
	n := 0
	quoted(written, func(place, text string) {
		m := regexp.MustCompile(`^(\w+(?:-\w+)*)(?:: |$)`).FindStringSubmatch(text)
		if m == nil || !regexp.MustCompile(`-|[a-z][A-Z]`).MatchString(m[1]) || regexp.MustCompile(`^(Test|Fuzz)[A-Z]`).MatchString(m[1]) {
			return
		}
		n++
		assert.True(t, known[m[1]], "%s: nothing is named %s", place, m[1])
	})
	assert.Greater(t, n, 100)
}
