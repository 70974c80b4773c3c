package katalyst

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is a pod as plugins see it.
type Pod struct {
	UID string
	// Wire is its encoding as k8s.io.api.core.v1.Pod.
	Wire []byte
	// Annotations are encoded parts by key, appended to Wire for a plugin that
	// may see them.
	Annotations map[string][]byte
}

// VisiblePods is the pods of one round as one plugin sees them.
type VisiblePods struct {
	// Wire are their encodings.
	Wire [][]byte
	at   map[string]int // by UID
}

// NewVisiblePods returns the pods with those annotations that the plugin may see.
func NewVisiblePods(pods []Pod, annotations []string) VisiblePods {
	s := VisiblePods{Wire: make([][]byte, 0, len(pods)), at: make(map[string]int, len(pods))}
	for i, p := range pods {
		s.Wire = append(s.Wire, p.with(annotations))
		s.at[p.UID] = i
	}
	return s
}

// with appends the annotations that the pod has.
func (p Pod) with(annotations []string) []byte {
	b := slices.Clip(p.Wire) // all plugins share it
	for _, key := range annotations {
		b = append(b, p.Annotations[key]...)
	}
	return b
}

// OwnEncodings returns the host's encodings of the pods that a plugin named, and their
// UIDs, as far as they were in the request.
func (s VisiblePods) OwnEncodings(named [][]byte) (list [][]byte, uids []string) {
	seen := map[string]bool{}
	for _, raw := range named {
		id, err := identifyPod(raw)
		i, there := s.at[id.uid]
		if err != nil || !there || seen[id.uid] {
			continue
		}
		seen[id.uid] = true
		list, uids = append(list, s.Wire[i]), append(uids, id.uid)
	}
	return list, uids
}

type podID struct{ uid, namespace, name string }

// identifyPod reads a pod's metadata and skips all else.
func identifyPod(raw []byte) (podID, error) {
	var m metav1.PartialObjectMetadata // its metadata has the same field number as a pod's
	if err := m.Unmarshal(raw); err != nil {
		return podID{}, fmt.Errorf("pod: %w", err)
	}
	return podID{string(m.UID), m.Namespace, m.Name}, nil
}
