package pods

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// EncodedPod is a pod as outer plugins see it.
type EncodedPod struct {
	UID string
	// Bytes are its encoding as k8s.io.api.core.v1.Pod.
	Bytes []byte
	// Annotations are encodings of one annotation each, by key. Appended to Bytes
	// they add the annotation to the pod: protobuf merges repeated messages.
	Annotations map[string][]byte
}

// PluginPods is whether and how pods are stored for outer plugins.
type PluginPods struct {
	Enabled bool
	// Full stores them whole, with environment, commands, arguments, annotations
	// and messages, which may hold secrets.
	Full bool
	// Annotations are the keys of further annotations that some plugin may see.
	Annotations []string
}

// encode stores what plugins see of a pod.
func (w PluginPods) encode(s *storedPod, pod *corev1.Pod) {
	if !w.Enabled {
		return
	}
	s.labels = len(pod.Labels)
	s.encoded = encode(forPlugins(pod, w.Full))
	s.encoded = s.encodedWithin(maxEncoded)
	if !w.Full {
		s.annotations = fitting(encodeAnnotations(pod, w.Annotations), maxEncoded-len(s.encoded))
	}
}

// storedPod is a stripped pod, and what plugins see of the whole one, encoded once
// when it was received.
type storedPod struct {
	*corev1.Pod
	optedOut string // Pod.OptedOut
	encoded  []byte
	labels   int // how many labels the pod has; the encoding of a huge one lacks some
	// annotations are Wire.Annotations, as far as maxEncoded goes.
	annotations map[string][]byte
	// shrunk is wire shrunk to the limit of the last round; the watcher's mu
	// guards it.
	shrunk []byte
	limit  int
}

// maxEncoded bounds the encoding of one pod, whose annotations may have 256 KiB.
const maxEncoded = 64 << 10

// overhead of a pod in a message: its tag and its length.
const overhead = 6

// Encoded returns the pods that are neither terminating nor terminated, in order, in
// at most budget bytes together. If they do not fit, the largest are shrunk; a pod
// always keeps its name, UID and requests.
func (w *Watcher) Encoded(budget int) []EncodedPod {
	stored := w.active()
	sizes := make([]int, 0, len(stored))
	for _, s := range stored {
		sizes = append(sizes, len(s.encoded)+total(s.annotations)+overhead)
	}
	limit := fairLimit(sizes, budget)
	list := make([]EncodedPod, 0, len(stored))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range stored {
		b := s.encodedWithin(limit - overhead)
		list = append(list, EncodedPod{UID: string(s.UID), Bytes: b, Annotations: fitting(s.annotations, limit-overhead-len(b))})
	}
	return list
}

// active returns the active pods, in order.
func (w *Watcher) active() []*storedPod {
	var list []*storedPod
	for _, s := range w.all() {
		if s.encoded != nil && s.DeletionTimestamp == nil && s.Status.Phase != corev1.PodSucceeded && s.Status.Phase != corev1.PodFailed {
			list = append(list, s)
		}
	}
	return list
}

// limitStep rounds the limit, so that pods are not encoded again with every byte
// that another pod grows.
const limitStep = 512

// fairLimit is the size limit of one pod so that all fit into budget: what small ones do
// not need is left to large ones (max-min fairness).
func fairLimit(sizes []int, budget int) int {
	sorted := slices.Sorted(slices.Values(sizes))
	for i, size := range sorted {
		if each := budget / (len(sorted) - i); size > each {
			return max(each-each%limitStep, limitStep)
		}
		budget -= size
	}
	return 1 << 30
}

// encodedWithin is the pod in at most limit bytes.
func (s *storedPod) encodedWithin(limit int) []byte {
	switch {
	case len(s.encoded) <= limit:
		s.shrunk = nil
		return s.encoded
	case s.shrunk != nil && s.limit == limit:
		return s.shrunk
	}
	var pod corev1.Pod
	if pod.Unmarshal(s.encoded) != nil { // impossible: it was encoded here
		return nil
	}
	s.shrunk, s.limit = encode(shrink(&pod, limit)), limit
	return s.shrunk
}

func total(entries map[string][]byte) (size int) {
	for _, entry := range entries {
		size += len(entry)
	}
	return size
}

// fitting returns the entries that fit into room bytes, the smallest first.
func fitting(entries map[string][]byte, room int) map[string][]byte {
	if total(entries) <= room {
		return entries
	}
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(entries[a]), len(entries[b])), cmp.Compare(a, b))
	})
	kept := map[string][]byte{}
	for _, key := range keys {
		if room -= len(entries[key]); room < 0 {
			break
		}
		kept[key] = entries[key]
	}
	return kept
}

// Field numbers of generated.proto of k8s.io/api and apimachinery, and of the
// entries of protobuf maps.
const (
	metadataOfPod         = 1
	annotationsOfMetadata = 12
	keyOfEntry            = 1
	valueOfEntry          = 2
)

// encodeAnnotations encodes each of the pod's annotations with these keys as a pod
// that has nothing else. It is written by hand: Kubernetes' own encoding includes
// empty fields, which would overwrite the pod's when merged.
func encodeAnnotations(pod *corev1.Pod, keys []string) map[string][]byte {
	var list map[string][]byte
	for _, key := range keys {
		value, there := pod.Annotations[key]
		if !there {
			continue
		}
		entry := lengthDelimited(lengthDelimited(nil, keyOfEntry, []byte(key)), valueOfEntry, []byte(value))
		if list == nil {
			list = map[string][]byte{}
		}
		list[key] = lengthDelimited(nil, metadataOfPod, lengthDelimited(nil, annotationsOfMetadata, entry))
	}
	return list
}

func lengthDelimited(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func encode(pod *corev1.Pod) []byte {
	raw, err := pod.Marshal()
	if err != nil { // impossible: it came from the API server in this form
		return nil
	}
	return raw
}

// shrink removes fields from a pod, the least important first, until it fits.
func shrink(pod *corev1.Pod, limit int) *corev1.Pod {
	for _, step := range []func(*corev1.Pod, int){
		func(p *corev1.Pod, limit int) { drop(p, p.Annotations, limit) },
		func(p *corev1.Pod, _ int) { p.Spec.Volumes, p.Spec.EphemeralContainers = nil, nil },
		func(p *corev1.Pod, _ int) { eachContainer(p, func(c *corev1.Container) { *c = withoutEnvironment(c) }) },
		func(p *corev1.Pod, _ int) { p.Status.Conditions, p.Status.EphemeralContainerStatuses = nil, nil },
		func(p *corev1.Pod, limit int) { drop(p, p.Labels, limit) },
		func(p *corev1.Pod, _ int) { *p = *strip(p) },
		func(p *corev1.Pod, _ int) { *p = *identityOnly(p) },
	} {
		if pod.Size() <= limit {
			break
		}
		step(pod, limit)
	}
	return pod
}

// drop removes entries, the largest first, until the pod fits.
func drop(pod *corev1.Pod, entries map[string]string, limit int) {
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(entries[b]), len(entries[a])), cmp.Compare(a, b))
	})
	size := pod.Size()
	for _, key := range keys {
		if size <= limit {
			return
		}
		size -= entrySize(key, entries[key])
		delete(entries, key)
	}
}

// entrySize is how many bytes of the encoding an entry of a map takes, at least: to measure
// the pod after each of some thousand labels would take seconds.
func entrySize(key, value string) int {
	const tag = 1
	return tag + protowire.SizeBytes(tag+protowire.SizeBytes(len(key))+tag+protowire.SizeBytes(len(value)))
}

func eachContainer(p *corev1.Pod, do func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			do(&list[i])
		}
	}
}

// withoutEnvironment is a container's name, image and resources.
func withoutEnvironment(c *corev1.Container) corev1.Container {
	return corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
}

// identityOnly is the pod's identity, requests, priority and QoS.
func identityOnly(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID = p.Name, p.Namespace, p.UID
	out.Spec.NodeName, out.Spec.Priority = p.Spec.NodeName, p.Spec.Priority
	out.Status.Phase, out.Status.QOSClass = p.Status.Phase, p.Status.QOSClass
	for _, c := range p.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: c.Name, Resources: c.Resources})
	}
	if out.Size() > limitStep-overhead {
		out.Spec.Containers = nil
	}
	return out
}
