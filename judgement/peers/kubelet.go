package peers

import (
	"fmt"
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
