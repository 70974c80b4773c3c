package lease

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/names"
)

// ContentionAnnotation is a NodeContention. Only the agent writes it; people read it
// (plimsoll who), and nothing is decided by it.
const ContentionAnnotation = names.Prefix + "contention"

// NodeContention is which workloads of a node wait because of which others, as
// compact JSON.
type NodeContention struct {
	// Version of the agent.
	Version string `json:"version"`
	// Resources on which a workload waits because of others, longest wait first.
	Resources []ResourceContention `json:"resources,omitempty"`
	// Unknown are the resources for which the kernel does not report who waits.
	Unknown []string `json:"unknown,omitempty"`
	// More is how many resources are left out.
	More int `json:"more,omitempty"`
}

// ResourceContention is the contention for one resource. Ratios are from 0 to 1, with
// two digits.
type ResourceContention struct {
	// Resource is memory, cpu, disk or network; Device is empty for memory and cpu.
	Resource string `json:"resource"`
	Device   string `json:"device,omitempty"`
	// Coverage is the share of its use that workloads account for: of the traffic, of
	// the CPU time, of memory growth. Absent where it is not known.
	Coverage *float64 `json:"coverage,omitempty"`
	// Culprits by their share of that use, Sufferers by the share of the time that
	// they waited; at most three each, the largest first.
	Culprits  []Workload `json:"culprits,omitempty"`
	Sufferers []Workload `json:"sufferers,omitempty"`
	// MoreCulprits and MoreSufferers are how many are left out; agents of earlier
	// versions do not count them.
	MoreCulprits  int `json:"moreCulprits,omitempty"`
	MoreSufferers int `json:"moreSufferers,omitempty"`
}

// Workload is a culprit or a sufferer.
type Workload struct {
	// Kind and Name as in the agent's API: NAMESPACE/NAME for a pod.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Owner is NAMESPACE/KIND/NAME of what creates a pod anew, the same for all pods of
	// a Deployment; empty where it is not known.
	Owner string  `json:"owner,omitempty"`
	Ratio float64 `json:"ratio"`
	// Throttled is the percentage of its previous use to which the agent limits a
	// culprit; 0: it does not. 100: it keeps the memory that it holds, and gets no more.
	Throttled int `json:"throttled,omitempty"`
}

// A main culprit has at least MainShare of what workloads account for, which is at least
// MinCoverage of all: to end a smaller one ends no contention, and below that coverage
// another one may be the cause.
const (
	MainShare   = 0.2
	MinCoverage = 0.7
)

// MainCulprit is the largest one that is not the main sufferer itself; false: none is
// large enough, or too little of the use is counted to tell.
func (r *ResourceContention) MainCulprit() (Workload, bool) {
	i := slices.IndexFunc(r.Culprits, func(w Workload) bool { return len(r.Sufferers) == 0 || w.Name != r.Sufferers[0].Name })
	if i < 0 || r.Culprits[i].Ratio < MainShare || r.Coverage != nil && *r.Coverage < MinCoverage {
		return Workload{}, false
	}
	return r.Culprits[i], true
}

// Unnamed reports whether it may have pods of any namespace that are not named: some are
// left out, or the agent knows no more of a pod than its UID.
func (r *ResourceContention) Unnamed() bool {
	return r.MoreCulprits > 0 || r.MoreSufferers > 0 ||
		slices.ContainsFunc(slices.Concat(r.Culprits, r.Sufferers), func(w Workload) bool { return w.Kind == "pod" && !strings.Contains(w.Name, "/") })
}

// Waited is the longest wait of a sufferer.
func (r *ResourceContention) Waited() float64 {
	if len(r.Sufferers) == 0 {
		return 0
	}
	return r.Sufferers[0].Ratio
}

// Unseen are those of Unknown of which a kernel can report who waits: all but the
// network, which agents title "Network".
func (n *NodeContention) Unseen() []string {
	return slices.DeleteFunc(slices.Clone(n.Unknown), func(title string) bool { return strings.HasPrefix(title, "Network") })
}

// Bounds of a NodeContention.
const (
	maxContention  = 4 << 10 // bytes
	maxResources   = 8
	maxWorkloads   = 3
	maxWorkload    = 160 // bytes of a name
	maxVersion     = 64
	maxUnknown     = 16
	maxUnknownName = 64
)

// Encode is the annotation, within its bounds: the workloads beyond are counted, and the
// resources beyond, those with the shortest waits.
func (n NodeContention) Encode() string {
	n.Version = Truncate(n.Version, maxVersion)
	n.Resources = slices.Clone(n.Resources)
	slices.SortStableFunc(n.Resources, func(a, b ResourceContention) int { return cmp.Compare(b.Waited(), a.Waited()) })
	for i := range n.Resources {
		r := &n.Resources[i]
		r.Device = Truncate(r.Device, maxUnknownName)
		r.bound()
	}
	n.Unknown = slices.Clone(n.Unknown[:min(len(n.Unknown), maxUnknown)])
	for i := range n.Unknown {
		n.Unknown[i] = Truncate(n.Unknown[i], maxUnknownName)
	}
	for {
		text, err := json.Marshal(n)
		if err == nil && len(text) <= maxContention && len(n.Resources) <= maxResources {
			return string(text)
		}
		if len(n.Resources) == 0 {
			return "" // names that escape to six times their length
		}
		n.Resources, n.More = n.Resources[:len(n.Resources)-1], n.More+1
	}
}

func (r *ResourceContention) bound() {
	r.Culprits, r.MoreCulprits = bounded(r.Culprits, r.MoreCulprits)
	r.Sufferers, r.MoreSufferers = bounded(r.Sufferers, r.MoreSufferers)
}

// bounded is a copy of the first workloads of a list, and how many more there are.
func bounded(list []Workload, more int) ([]Workload, int) {
	n := min(len(list), maxWorkloads)
	more += len(list) - n
	list = slices.Clone(list[:n])
	for i := range list {
		list[i].Name, list[i].Owner = Truncate(list[i].Name, maxWorkload), Truncate(list[i].Owner, maxWorkload)
	}
	return list, more
}

// ErrNoContention says that the Lease has no such annotation: the agent is of a
// version before it, or its rounds are stuck.
var ErrNoContention = errors.New("the agent does not report contention")

// ReadContention decodes the annotation of a Lease. A stolen agent token can write
// anything into it.
func ReadContention(annotations map[string]string) (NodeContention, error) {
	text, is := annotations[ContentionAnnotation]
	if !is {
		return NodeContention{}, ErrNoContention
	}
	fail := func(why string) (NodeContention, error) {
		return NodeContention{}, fmt.Errorf("annotation %s: %s", ContentionAnnotation, why)
	}
	if len(text) > maxContention {
		return fail(fmt.Sprintf("longer than %d bytes", maxContention))
	}
	var n NodeContention
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&n); err != nil {
		return fail(err.Error())
	}
	if n.More < 0 {
		return fail("a negative number of resources")
	}
	if beyond := len(n.Resources) - maxResources; beyond > 0 {
		n.Resources, n.More = n.Resources[:maxResources], n.More+beyond
	}
	for i := range n.Resources {
		r := &n.Resources[i]
		r.Resource, r.Device = Truncate(r.Resource, maxUnknownName), Truncate(r.Device, maxUnknownName)
		r.bound()
		if why := r.invalid(); why != "" {
			return fail(why)
		}
	}
	return n, nil
}

// invalid is what cannot be true; empty: nothing.
func (r *ResourceContention) invalid() string {
	all := slices.Concat(r.Culprits, r.Sufferers)
	if r.Coverage != nil {
		all = append(all, Workload{Ratio: *r.Coverage})
	}
	switch {
	case r.MoreCulprits < 0 || r.MoreSufferers < 0:
		return "a negative number of workloads"
	case slices.ContainsFunc(all, func(w Workload) bool { return w.Ratio < 0 || w.Ratio > 1 }):
		return "a ratio that is not from 0 to 1"
	case slices.ContainsFunc(all, func(w Workload) bool { return w.Throttled < 0 || w.Throttled > 100 }):
		return "a percentage of throttling that is not from 0 to 100"
	}
	return ""
}
