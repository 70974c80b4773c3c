package katalyst

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
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

// VisiblePods is the pods of one round as plugins see them that may see the same annotations.
type VisiblePods struct {
	// Field are all of them as the field active_pods of any request: appended to the
	// encoding of a request without pods it is that of the request with them, since the
	// fields of a message may come in any order. It is shared, and never changes.
	Field []byte
	wire  map[string][]byte // of one pod, by UID: a part of Field
}

// activePods is the number of that field in evictionplugin.proto.
const activePods = 1

// NewVisiblePods returns the pods with those annotations that a plugin may see.
func NewVisiblePods(pods []Pod, annotations []string) VisiblePods {
	size := 0
	for _, p := range pods {
		size += protowire.SizeTag(activePods) + protowire.SizeBytes(p.size(annotations))
	}
	s := VisiblePods{Field: make([]byte, 0, size), wire: make(map[string][]byte, len(pods))}
	for _, p := range pods {
		s.Field = protowire.AppendVarint(protowire.AppendTag(s.Field, activePods, protowire.BytesType), uint64(p.size(annotations))) //nolint:gosec // a length
		from := len(s.Field)
		s.Field = append(s.Field, p.Wire...)
		for _, key := range annotations {
			s.Field = append(s.Field, p.Annotations[key]...)
		}
		s.wire[p.UID] = s.Field[from:len(s.Field):len(s.Field)]
	}
	return s
}

// size of its encoding with those annotations that it has.
func (p Pod) size(annotations []string) int {
	size := len(p.Wire)
	for _, key := range annotations {
		size += len(p.Annotations[key])
	}
	return size
}

// OwnEncodings returns the host's encodings of the pods that a plugin named, and their
// UIDs, as far as they were in the request.
func (s VisiblePods) OwnEncodings(named [][]byte) (list [][]byte, uids []string) {
	seen := map[string]bool{}
	for _, raw := range named {
		id, err := identifyPod(raw)
		wire, there := s.wire[id.uid]
		if err != nil || !there || seen[id.uid] {
			continue
		}
		seen[id.uid] = true
		list, uids = append(list, wire), append(uids, id.uid)
	}
	return list, uids
}

type podID struct{ uid, namespace, name string }

// Field numbers of generated.proto of k8s.io/api and apimachinery.
const (
	metadataOfPod       = 1
	nameOfMetadata      = 1
	namespaceOfMetadata = 3
	uidOfMetadata       = 5
)

// identifyPod reads a pod's identity and decodes nothing else: a plugin may fill a pod with
// empty messages, which take much more memory than they have bytes.
func identifyPod(raw []byte) (id podID, err error) {
	err = eachBytes(raw, func(number protowire.Number, metadata []byte) error {
		if number != metadataOfPod {
			return nil
		}
		return eachBytes(metadata, func(number protowire.Number, text []byte) error {
			if field := map[protowire.Number]*string{nameOfMetadata: &id.name, namespaceOfMetadata: &id.namespace, uidOfMetadata: &id.uid}[number]; field != nil {
				*field = string(text)
			}
			return nil
		})
	})
	if err != nil {
		return podID{}, fmt.Errorf("pod: %w", err)
	}
	return id, nil
}

// eachBytes calls do with each field of an encoded message that is a text or a message.
func eachBytes(b []byte, do func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[tag:])
			if err := do(number, value); err != nil {
				return err
			}
		}
		b = b[tag+size:]
	}
	return nil
}
