package lease

import (
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stored is the Lease in the API server's last answer.
type stored struct {
	renewed     time.Time // renewTime; zero: none
	transitions int32
	holder      string
	owner       string // UID of the Node that owns it
	version     string // resourceVersion
	annotations map[string]string
	// mayDiffer: a renewal failed since then, and may have been written all the same.
	mayDiffer bool
	// hasManagedFields: the Lease has managed fields, which are half of its stored size.
	hasManagedFields bool
}

func leaseOf(l *coordinationv1.Lease) stored {
	s := stored{version: l.ResourceVersion, annotations: l.Annotations, hasManagedFields: len(l.ManagedFields) > 0}
	if l.Spec.RenewTime != nil {
		s.renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.LeaseTransitions != nil {
		s.transitions = *l.Spec.LeaseTransitions
	}
	if l.Spec.HolderIdentity != nil {
		s.holder = *l.Spec.HolderIdentity
	}
	for _, o := range l.OwnerReferences {
		if o.Kind == "Node" {
			s.owner = string(o.UID)
		}
	}
	return s
}

// nextRenewTime is the renewTime of a renewal. It always increases, whatever the clock does:
// some observers look for a change, others for an increase.
func nextRenewTime(now, last, stored time.Time) time.Time {
	now = now.UTC().Truncate(time.Microsecond)
	for _, before := range []time.Time{last, stored} {
		if !before.IsZero() && !now.After(before) {
			now = before.Add(time.Microsecond)
		}
	}
	return now
}

// ownerOf is the owner reference of the Lease: it is deleted with the Node.
func ownerOf(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// renewal is a merge patch.
type renewal struct {
	Metadata renewalMetadata `json:"metadata,omitzero"`
	Spec     renewalSpec     `json:"spec"`
}

type renewalMetadata struct {
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
	Annotations     map[string]*string      `json:"annotations,omitempty"`
	ManagedFields   []struct{}              `json:"managedFields,omitempty"`
}

type renewalSpec struct {
	HolderIdentity       string            `json:"holderIdentity"`
	LeaseDurationSeconds int32             `json:"leaseDurationSeconds"`
	RenewTime            metav1.MicroTime  `json:"renewTime"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime,omitempty"`
	LeaseTransitions     *int32            `json:"leaseTransitions,omitempty"`
}

// seconds of a Lease's duration.
func seconds(d time.Duration) int32 { return int32(max(1, d.Round(time.Second)/time.Second)) }

// renew is the patch that renews the stored Lease; that of another holder is taken
// over. An empty annotation is removed, and an unchanged one is not sent.
func (s stored) renew(holder string, duration time.Duration, at time.Time, carried map[string]string) renewal {
	r := renewal{Spec: renewalSpec{HolderIdentity: holder, LeaseDurationSeconds: seconds(duration), RenewTime: Micro(at)}}
	if s.holder != holder {
		acquired, transitions := Micro(at), s.transitions+1
		r.Spec.AcquireTime, r.Spec.LeaseTransitions = &acquired, &transitions
	}
	if s.hasManagedFields {
		r.Metadata.ManagedFields = make([]struct{}, 1) // an empty entry clears them
	}
	if len(carried) > 0 {
		r.Metadata.Annotations = make(map[string]*string, len(carried))
	}
	for key, value := range carried {
		switch is, there := s.annotations[key]; {
		case value == "" && (there || s.mayDiffer):
			r.Metadata.Annotations[key] = nil
		case value != is || value != "" && s.mayDiffer:
			r.Metadata.Annotations[key] = &value
		}
	}
	return r
}

func (r renewal) body() ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode renewal: %w", err)
	}
	return body, nil
}

// create is a new Lease.
func create(node *corev1.Node, holder string, duration time.Duration, at time.Time, carried map[string]string) *coordinationv1.Lease {
	length, transitions, when := seconds(duration), int32(0), Micro(at)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(node)}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &length, AcquireTime: &when, RenewTime: &when, LeaseTransitions: &transitions,
		},
	}
	for key, value := range carried {
		if value != "" {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, value)
		}
	}
	return l
}
