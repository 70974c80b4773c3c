package judgement

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Decode reads the label of a recording. Its error has a line for each mistake,
// which names the file, the line and the key.
func Decode(file, name string, text []byte) (Label, error) {
	l := Label{Name: name}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return l, inFile(file, err)
	}
	if len(tree.Content) == 0 {
		return l, fmt.Errorf("%s: empty: want a label", file)
	}
	if n := tree.Content[0]; n.Kind != yaml.MappingNode {
		return l, fmt.Errorf("%s: line %d: want the keys of a label", file, n.Line)
	}
	c := checker{file: file, tree: tree.Content[0]}
	c.words()
	if len(c.found) > 0 {
		return l, errors.Join(c.found...)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&l); err != nil {
		return l, inFile(file, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return l, fmt.Errorf("%s: more than one document: want one label a file", file)
	}
	c.label(l)
	return l, errors.Join(c.found...)
}

// inFile names the file in each line of an error of the decoder.
func inFile(file string, err error) error {
	lines := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if many, is := errors.AsType[*yaml.TypeError](err); is {
		lines = many.Errors
	}
	var all []error
	for _, line := range lines {
		what, _, _ := strings.Cut(line, " not found in type")
		all = append(all, fmt.Errorf("%s: %s", file, strings.Replace(what, "field ", "unknown key ", 1)))
	}
	return errors.Join(all...)
}

// checker collects what is wrong with a label that is well-formed.
type checker struct {
	file  string
	tree  *yaml.Node
	found []error
}

// must notes a mistake unless ok, with the line of the key, or of what is nearest to it.
func (c *checker) must(ok bool, why string, path ...any) {
	if ok {
		return
	}
	n, key := c.tree, ""
	for _, p := range path {
		key += keyText(p)
		if next := below(n, p); next != nil {
			n = next
		}
	}
	c.found = append(c.found, fmt.Errorf("%s: line %d: %s: %s", c.file, max(1, n.Line), strings.TrimPrefix(key, "."), why))
}

func keyText(p any) string {
	if i, is := p.(int); is {
		return fmt.Sprintf("[%d]", i)
	}
	return fmt.Sprintf(".%v", p)
}

// below is the value of a key or the element of a list; nil: there is none.
func below(n *yaml.Node, p any) *yaml.Node {
	switch p := p.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && p < len(n.Content) {
			return n.Content[p]
		}
	case string:
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == p {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// words checks what the decoder would refuse without a line.
func (c *checker) words() {
	want := below(c.tree, "want")
	for i := 0; want != nil && want.Kind == yaml.SequenceNode && i < len(want.Content); i++ {
		level := below(want.Content[i], "level")
		ok := level != nil && (level.Value == plugins.Soft.String() || level.Value == plugins.Hard.String())
		c.must(ok, "want soft or hard", "want", i, "level")
	}
}

// resources that a level may be about.
func resources() []plugins.Resource {
	return []plugins.Resource{plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.Filesystem, plugins.CPU}
}

func (c *checker) label(l Label) {
	for key, text := range map[string]string{"class": l.Class, "machine": l.Machine, "did": l.Did, "why": l.Why} {
		c.must(strings.TrimSpace(text) != "", "missing: every label has it", key)
	}
	c.must(l.Load.From >= 0 && l.Load.From < l.Load.To, "from must be before to, in seconds from the first sample", "load")
	for disk, await := range l.Usual {
		c.must(await > 0, "want how long a request takes", "usual", disk)
	}
	slices.SortFunc(c.found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) }) // of maps
	if k := l.Kubelet; k != nil {
		c.kubelet(*k)
	}
	for i, w := range l.Want {
		c.want(l, i, w)
	}
	for i, n := range l.NotJudged {
		c.must(slices.Contains(resources(), n.Resource), "want "+resourceList(), "notJudged", i, "resource")
		c.must(n.From < n.To, "from must be before to", "notJudged", i)
		c.must(n.From >= l.Load.From && n.To <= l.Load.To, "it must be within the load", "notJudged", i)
		c.must(n.Scope != "", "missing: the device that cannot be judged", "notJudged", i, "scope")
		c.must(n.Sufferer != "", "missing: the workload that is seen to wait", "notJudged", i, "sufferer")
	}
}

func (c *checker) kubelet(k Kubelet) {
	c.must(strings.TrimSpace(k.Version) != "", "missing: which kubelet it was", "kubelet", "version")
	c.must(len(k.Looks) > 0, "missing: when it looked, and what it saw", "kubelet", "looks")
	for i := 1; i < len(k.Looks); i++ {
		c.must(k.Looks[i-1].At < k.Looks[i].At, "it must be later than the one before", "kubelet", "looks", i, "at")
	}
}

func (c *checker) want(l Label, i int, w Want) {
	c.must(slices.Contains(resources(), w.Resource), "want "+resourceList(), "want", i, "resource")
	c.must(w.From < w.To, "from must be before to", "want", i)
	c.must(w.From >= l.Load.From, "it begins before the load", "want", i, "from")
	c.must(w.To <= l.Load.To, "it ends after the load", "want", i, "to")
	ofOne := slices.Contains([]plugins.Resource{plugins.Disk, plugins.NetworkIO, plugins.Filesystem}, w.Resource)
	c.must(w.Scope != "" || !ofOne, "missing: the device, or where the filesystem is mounted", "want", i, "scope")
	c.must(w.Scope == "" || w.Resource != plugins.CPU, "the CPUs have none", "want", i, "scope")
	c.must(!w.NoCulprit || w.Culprit == "", "a culprit and noCulprit contradict each other", "want", i, "culprit")
	c.must(w.Presser == "" || w.Culprit == "", "a culprit is to be evicted, and a presser is not: want one of them", "want", i, "presser")
	twice := slices.ContainsFunc(l.Want[:i], func(b Want) bool {
		return Alarm{b.Resource, b.Scope, b.Level} == Alarm{w.Resource, w.Scope, w.Level} && b.Culprit+b.Presser == w.Culprit+w.Presser && b.From < w.To && w.From < b.To
	})
	c.must(!twice, "it is wanted already: each counts", "want", i)
}

func resourceList() string {
	var names []string
	for _, r := range resources() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}
