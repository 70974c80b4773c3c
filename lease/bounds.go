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

// Whoever has the token of an agent writes into that node's Lease what it likes.
// These are the bounds of what is read of it; an agent keeps within them.
const (
	// MaxRequests that stand in a Lease at a time. An agent chooses three pods in
	// a round by default, and asks for one after the other.
	MaxRequests = 16
	// MaxReason of a Request, in bytes.
	MaxReason = 256
	// MaxPlugins that a NodeReport names.
	MaxPlugins = 8

	// maxReport, maxRequested and maxAnswered are bytes of the annotations: of as
	// many of the longest as there may be, each byte of a reason written as six.
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

// note is one annotation of a Lease: how long it may be, and where it is read to.
type note struct {
	key  string
	most int
	into any
}

func (c *Carried) notes() []note {
	return []note{
		{NodeAnnotation, maxReport, &c.Report},
		{EvictionsAnnotation, maxRequested, &c.Requests},
		{GrantedAnnotation, maxAnswered, &c.Answers},
	}
}

// Carry keeps of a Lease's annotations those that a heartbeat carries, and of one
// that is too long no more than what says so.
func Carry(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, n := range (&Carried{}).notes() {
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

// ReadCarried returns what the annotations of a Lease say. An absent one is
// empty; one that cannot be read, or is beyond the bounds, is empty too and an
// error that names it, and the others are read all the same.
func ReadCarried(annotations map[string]string) (Carried, error) {
	var c Carried
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

func (c *Carried) read(n note, value string) error {
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

// bound drops words that are none of ours, as of a newer agent: what is left is
// shown as labels of metrics.
func (r *NodeReport) bound() error {
	maps.DeleteFunc(r.Pressure, func(resource, level string) bool { return !isResource(resource) || !isLevel(level) })
	maps.DeleteFunc(r.Plugins, func(plugin, level string) bool { return !isPlugin(plugin) || !isLevel(level) })
	if len(r.Plugins) > MaxPlugins {
		return fmt.Errorf("more than %d plugins", MaxPlugins)
	}
	if r.Budget != nil && *r.Budget < 0 {
		return errors.New("negative data mover budget")
	}
	return nil
}

func isResource(name string) bool {
	return slices.Contains([]string{"memory", "disk", "network", "filesystem", "cpu"}, name)
}

func isLevel(level string) bool { return level == LevelSoft || level == LevelHard }

// isPlugin: a name that an outer plugin may register, or one of ours.
func isPlugin(name string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$`).MatchString(name)
}

func checkRequests(list []Request) error {
	if len(list) > MaxRequests {
		return fmt.Errorf("%d requests, at most %d are allowed", len(list), MaxRequests)
	}
	for i := range list {
		if why := list[i].wrong(); why != "" {
			return fmt.Errorf("request %d: %s", i, why)
		}
		if slices.ContainsFunc(list[:i], func(o Request) bool { return o.UID == list[i].UID && o.Since.Equal(&list[i].Since) }) {
			return fmt.Errorf("request %d is a duplicate", i)
		}
	}
	return nil
}

// wrong says why no agent of ours made the request; empty: it may have. What
// becomes part of a path or of the answer is checked most closely.
func (r *Request) wrong() string {
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
	case r.Since.IsZero(): // of the controller's own notes
		return "missing time of choice (since)"
	}
	return ""
}

// Clip a text to so many bytes.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
