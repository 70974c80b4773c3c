// Package labelled holds recordings of loads whose truth is known: what was
// done to a machine while its agent recorded, and what a good judge must say of
// it, written down before anybody judged. Its tests play the set by our rules
// and by those of others, and write docs/judgement.md.
//
// # Usage
//
// The files are in testdata: NAME.rec, a recording as an agent makes it, and
// NAME.yaml, its Label. `make labelled` makes them anew.
package labelled

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Label is the truth about one recording.
type Label struct {
	// Name is that of the files, without their endings.
	Name string `yaml:"-"`
	// Machine that it is of, and what was Did to it.
	Machine string `yaml:"machine"`
	Did     string `yaml:"did"`
	// Load is when that was done.
	Load Span `yaml:"load"`
	// Want is what a good judge says; nothing of what is not named.
	Want []Want `yaml:"want,omitempty"`
	// NotJudged is what a good judge says it cannot judge; its page is then no
	// all-clear.
	NotJudged []NotJudged `yaml:"notJudged,omitempty"`
	// Why a good judge says so.
	Why string `yaml:"why"`
	// HeldOut: it was recorded when the rules were made, and no threshold was chosen
	// by it.
	HeldOut bool `yaml:"heldOut,omitempty"`
	// Usual is how long requests of a disk took before, by its name: what an
	// agent that had watched it for a day would know.
	Usual map[string]time.Duration `yaml:"usual,omitempty"`
}

// Span of a recording, in seconds from its first sample.
type Span struct {
	From float64 `yaml:"from"`
	To   float64 `yaml:"to"`
}

// Want is a level that a good judge reaches within the Span.
type Want struct {
	Span     `yaml:",inline"`
	Resource plugins.Resource `yaml:"resource"`
	// Scope is the device; empty: the node.
	Scope string `yaml:"scope,omitempty"`
	// Level is soft or hard.
	Level plugins.Level `yaml:"level"`
	// AtMost: it may be reached and need not be.
	AtMost bool `yaml:"atMost,omitempty"`
	// Culprit and Sufferer are in the names of the workloads that press and
	// that wait; Nobody: no workload may be named as one that should go.
	// Presser is the culprit of the contention that is shown, where no workload
	// is named as one that should go.
	Culprit   string `yaml:"culprit,omitempty"`
	Presser   string `yaml:"presser,omitempty"`
	Sufferer  string `yaml:"sufferer,omitempty"`
	NoCulprit bool   `yaml:"noCulprit,omitempty"`
}

// NotJudged is a scope that lacks a measurement within the Span, so that no
// judge can tell.
type NotJudged struct {
	Span     `yaml:",inline"`
	Resource plugins.Resource `yaml:"resource"`
	Scope    string           `yaml:"scope"`
	// Sufferer is in the name of a workload that is seen to wait all the same.
	Sufferer string `yaml:"sufferer"`
}

// Healthy says whether a good judge says nothing at all.
func (l Label) Healthy() bool { return len(l.Want)+len(l.NotJudged) == 0 }

// Recording is the file that the label is about.
func (l Label) Recording(dir string) string { return filepath.Join(dir, l.Name+".rec") }

// Load reads the labels of a directory, sorted by name. The error names the
// file that is not as it should be.
func Load(dir string) ([]Label, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	slices.Sort(files)
	list := make([]Label, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
		l := Label{Name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("labels: %s: %w", file, err)
		}
		list = append(list, l)
	}
	return list, nil
}
