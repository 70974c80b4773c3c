package peers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// kubelet is the kubelet's memory.available with its default threshold of 100Mi,
// looked at every 10 s (Kubernetes 1.37, "Node-pressure Eviction": memory.available :=
// capacity - workingSet; the working set is usage without inactive_file). Usage is
// taken to be all that is not free, as a recording has it: the kernel's own pages
// are in it, so this may alarm a little before a real kubelet does. Its defaults for
// filesystems need to know which is its nodefs and which its imagefs, which a recording
// does not tell apart.
type kubelet struct {
	looked time.Duration
	under  bool
	least  uint64 // available at any look, in bytes
}

const (
	kubeletHard  = 100 << 20
	kubeletEvery = 10 * time.Second
)

func memoryAvailable() judgement.Rule {
	return judgement.Rule{
		Name:      "kubelet",
		Source:    "kubelet 1.37: memory.available below 100Mi, looked at every 10 s (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/); usage is all memory that is not free, since a recording does not separate the kernel's own pages, so that it may alarm a little early; its thresholds for filesystems and process IDs are not judged",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard, Unnamed: "not judged: a recording without an API server lacks requests and priorities of pods, by which it chooses",
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &kubelet{} },
	}
}

func (k *kubelet) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	free, ok1 := s.Memory.FreeBytes.Get()
	inactive, ok2 := s.Memory.InactiveFileBytes.Get()
	if !ok1 || !ok2 {
		return nil, "MemFree or Inactive(file) of /proc/meminfo"
	}
	if k.looked == 0 || s.Monotonic-k.looked >= kubeletEvery {
		if available := free + inactive; k.looked == 0 || available < k.least {
			k.least = available
		}
		k.looked, k.under = s.Monotonic, free+inactive < kubeletHard
	}
	if k.under {
		list = append(list, node(plugins.Memory, plugins.Hard))
	}
	return list, ""
}

// Near is how near it came.
func (k *kubelet) Near() string { return fmt.Sprintf("available at least %d Mi", k.least>>20) }

// realKubelet is what a real kubelet did that ran beside the recorder, with its own path of
// statistics: nothing of it is computed here. The recordings with one are few.
func realKubelet() judgement.Rule {
	return judgement.Rule{
		Name:      "kubelet, as it ran",
		Source:    "a real kubelet beside the recorder: the level is hard from a look at which it logged that it attempts to reclaim memory to the next at which it did not; its version is in the label",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard, Unnamed: "not judged: it had no pods to choose from",
		New: func(l judgement.Label, _ []*snapshot.Sample) judgement.Judge { return &kubeletLog{of: l.Kubelet} },
	}
}

type kubeletLog struct {
	of    *judgement.Kubelet
	first time.Time // sample's
}

func (k *kubeletLog) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	if k.of == nil {
		return nil, "a kubelet that ran beside the recorder"
	}
	if k.first.IsZero() {
		k.first = s.Time
	}
	at, reclaims := s.Time.Sub(k.first).Seconds(), false
	for _, l := range k.of.Looks {
		if l.At > at {
			break
		}
		reclaims = l.Reclaims
	}
	if reclaims {
		list = append(list, node(plugins.Memory, plugins.Hard))
	}
	return list, ""
}

// Near is how near it came.
func (k *kubeletLog) Near() string {
	least := slices.MinFunc(k.of.Looks, func(a, b judgement.Look) int { return cmp.Compare(a.Available, b.Available) })
	return fmt.Sprintf("it saw at least %d Mi available", least.Available>>20)
}
