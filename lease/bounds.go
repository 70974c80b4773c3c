package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A stolen agent token can write anything into that node's Lease. These bounds hold
// for what is read from it; an agent keeps within them.
const (
	// MaxRequests in a Lease at a time. By default an agent chooses at most three
	// pods in a round.
	MaxRequests = 16
	// MaxReason of a Request, in bytes.
	MaxReason = 256
	// MaxPlugins that a NodeReport names.
	MaxPlugins = 8

	// maxReport, maxRequested and maxAnswered bound the annotations in bytes: the
	// largest number of entries of the largest size, each byte of a reason escaped
	// as six.
	maxReport    = 4 << 10
	maxRequested = 48 << 10
	maxAnswered  = 128 << 10
	maxUID       = 64
)

// The levels of a NodeReport and a Request.
const (
	LevelSoft = "soft"
	LevelHard = "hard"
)

// annotation is one annotation of a Lease: its maximum length, and what it is decoded
// into.
type annotation struct {
	key  string
	most int
	into any
}

func (c *Content) notes() []annotation {
	return []annotation{
		{NodeAnnotation, maxReport, &c.Report},
		{EvictionsAnnotation, maxRequested, &c.Requests},
		{AnswersAnnotation, maxAnswered, &c.Answers},
	}
}

// FilterAnnotations returns those annotations of a Lease that a heartbeat carries. One that is
// too long is truncated to one byte more than allowed, so that reading it still
// fails.
func FilterAnnotations(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, n := range append((&Content{}).notes(), annotation{key: ContentionAnnotation, most: maxContention}) {
		value, is := annotations[n.key]
		if !is {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[n.key] = strings.Clone(value[:min(len(value), n.most+1)])
	}
	return kept
}

// ReadContent decodes the annotations of a Lease. An absent one is empty. One that
// cannot be decoded, or is beyond the bounds, is empty and gives an error that names
// it; the others are decoded all the same.
func ReadContent(annotations map[string]string) (Content, error) {
	var c Content
	var bad error
	for _, n := range c.notes() {
		value, is := annotations[n.key]
		if !is {
			continue
		}
		if err := c.read(n, value); err != nil && bad == nil {
			bad = fmt.Errorf("annotation %s: %w", n.key, err)
		}
	}
	return c, bad
}

func (c *Content) read(n annotation, value string) error {
	var err error
	if len(value) > n.most {
		err = fmt.Errorf("longer than %d bytes", n.most)
	} else {
		err = json.Unmarshal([]byte(value), n.into)
	}
	switch n.key {
	case NodeAnnotation:
		if err == nil {
			err = c.Report.bound()
		}
		if err != nil {
			c.Report = NodeReport{}
		}
	case EvictionsAnnotation:
		if err == nil {
			err = checkRequests(c.Requests)
		}
		if err != nil {
			c.Requests = nil
		}
	}
	return err
}

// bound drops unknown names, as of a newer agent: the others become label values of
// metrics.
func (r *NodeReport) bound() error {
	maps.DeleteFunc(r.Pressure, func(resource, level string) bool { return !isResource(resource) || !isLevel(level) })
	maps.DeleteFunc(r.Reported, func(resource, level string) bool { return !isResource(resource) || !isLevel(level) })
	r.NotJudged = slices.DeleteFunc(r.NotJudged, func(resource string) bool { return !isResource(resource) })
	slices.Sort(r.NotJudged)
	r.NotJudged = slices.Compact(r.NotJudged)
	maps.DeleteFunc(r.Plugins, func(plugin, level string) bool { return !isPlugin(plugin) || !isLevel(level) })
	if len(r.Plugins) > MaxPlugins {
		return fmt.Errorf("more than %d plugins", MaxPlugins)
	}
	if r.DataMoverBudget != nil && *r.DataMoverBudget < 0 {
		return errors.New("negative data mover budget")
	}
	return nil
}

func isResource(name string) bool {
	return slices.Contains([]string{"memory", "disk", "network", "filesystem", "cpu"}, name)
}

func isLevel(level string) bool { return level == LevelSoft || level == LevelHard }

// isPlugin reports whether an outer plugin may register the name, or an inner one
// has it.
func isPlugin(name string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$`).MatchString(name)
}

func checkRequests(list []Request) error {
	if len(list) > MaxRequests {
		return fmt.Errorf("%d requests, at most %d are allowed", len(list), MaxRequests)
	}
	for i := range list {
		if why := list[i].invalid(); why != "" {
			return fmt.Errorf("request %d: %s", i, why)
		}
		if slices.ContainsFunc(list[:i], func(o Request) bool { return o.UID == list[i].UID && o.Since.Equal(&list[i].Since) }) {
			return fmt.Errorf("request %d is a duplicate", i)
		}
	}
	return nil
}

// invalid is why a request is invalid; empty if it is valid. Fields that become part
// of a path or of the answer are checked most strictly.
func (r *Request) invalid() string {
	switch {
	case r.UID == "" || len(r.UID) > maxUID || strings.ContainsFunc(r.UID, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "invalid UID"
	case len(validation.IsDNS1123Label(r.Namespace)) > 0:
		return "invalid namespace"
	case len(validation.IsDNS1123Subdomain(r.Name)) > 0:
		return "invalid pod name"
	case r.Plugin != "" && !isPlugin(r.Plugin):
		return "invalid plugin name"
	case len(r.Reason) > MaxReason:
		return fmt.Sprintf("reason longer than %d bytes", MaxReason)
	case r.Resource != "" && !isResource(r.Resource):
		return "unknown resource"
	case r.Level != "" && !isLevel(r.Level):
		return "unknown level"
	case r.Since.IsZero(): // zero marks the controller's own notes (Answer.Since)
		return "missing time of choice (since)"
	}
	return ""
}

// Truncate truncates a text to at most most bytes.
func Truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
