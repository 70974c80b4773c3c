package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// reclaimedReader reads the resources of this node that Katalyst reclaims for pods of
// low QoS: status.resources of its CustomNodeResource, named after the Node
// (pkg/apis/node/v1alpha1 of katalyst-api).
type reclaimedReader struct {
	rest rest.Interface
	node string

	// Owned by updateFacts's goroutine.
	last        snapshot.Reclaimable
	lastAttempt time.Time
	lastRead    time.Time // when last was read
	reason      string    // why there is no value
}

const (
	// reclaimedInterval is the time between two reads; Katalyst writes about as often.
	reclaimedInterval = 5 * time.Second
	// reclaimedTimeout bounds one read, reclaimedMaxAge is how long the last value is used
	// while reads fail.
	reclaimedTimeout = 2 * time.Second
	reclaimedMaxAge  = time.Minute
)

// Names of reclaimed resources in a CustomNodeResource.
const (
	reclaimedMillicpu corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	reclaimedMemory   corev1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// customNodeResource is the part that is read.
type customNodeResource struct {
	Status struct {
		Resources    resources      `json:"resources"`
		TopologyZone []topologyZone `json:"topologyZone"`
	} `json:"status"`
}

type resources struct {
	Allocatable corev1.ResourceList `json:"allocatable"`
}

// topologyZone is a part of the node, such as a socket or a NUMA node, and its parts.
type topologyZone struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Resources   resources      `json:"resources"`
	Allocations []allocation   `json:"allocations"`
	Children    []topologyZone `json:"children"`
}

// allocation is what a pod requests of a zone; Consumer is namespace/name/UID.
type allocation struct {
	Consumer string              `json:"consumer"`
	Requests corev1.ResourceList `json:"requests"`
}

// poll reads it if reclaimedInterval has passed.
func (l *reclaimedReader) poll(ctx context.Context, now time.Time) {
	if now.Sub(l.lastAttempt) < reclaimedInterval {
		return
	}
	l.lastAttempt = now
	ctx, cancel := context.WithTimeout(ctx, reclaimedTimeout)
	defer cancel()
	lent, err := l.read(ctx)
	switch {
	case err == nil:
		l.last, l.lastRead, l.reason = lent, now, ""
	case apierrors.IsNotFound(err):
		l.last, l.reason = snapshot.Reclaimable{}, "this Node has no CustomNodeResource of Katalyst"
	case apierrors.IsForbidden(err):
		l.last, l.reason = snapshot.Reclaimable{}, "no right to read CustomNodeResources: apply deploy/rbac-katalyst.yaml"
	case now.Sub(l.lastRead) >= reclaimedMaxAge:
		l.last, l.reason = snapshot.Reclaimable{}, err.Error()
	}
}

func (l *reclaimedReader) read(ctx context.Context) (lent snapshot.Reclaimable, err error) {
	body, err := l.rest.Get().AbsPath("/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources", l.node).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return lent, fmt.Errorf("read CustomNodeResource %s: %w", l.node, err)
	}
	if lent, err = decodeReclaimed(body); err != nil {
		return lent, fmt.Errorf("read CustomNodeResource %s: %w", l.node, err)
	}
	return lent, nil
}

// decodeReclaimed decodes a CustomNodeResource.
func decodeReclaimed(body []byte) (lent snapshot.Reclaimable, err error) {
	var found customNodeResource
	if err := json.Unmarshal(body, &found); err != nil {
		return lent, err
	}
	lent = reclaimable(found.Status.Resources.Allocatable)
	lent.Zones = numaZones(found.Status.TopologyZone, nil)
	slices.SortFunc(lent.Zones, func(a, b snapshot.ReclaimableZone) int { return cmp.Compare(a.ID, b.ID) })
	return lent, nil
}

// zoneTypeNUMA is the type of a zone that is a NUMA node; its name is the node's ID.
const zoneTypeNUMA = "Numa"

// numaZones appends the NUMA nodes among zones and their children that report reclaimed
// resources. One whose name is no ID, or that there is already, is left out.
func numaZones(zones []topologyZone, list []snapshot.ReclaimableZone) []snapshot.ReclaimableZone {
	for _, z := range zones {
		if z.Type != zoneTypeNUMA {
			list = numaZones(z.Children, list)
			continue
		}
		id, err := strconv.ParseUint(z.Name, 10, 16)
		lent := reclaimable(z.Resources.Allocatable)
		known := slices.ContainsFunc(list, func(o snapshot.ReclaimableZone) bool { return o.ID == int(id) })
		if err != nil || known || lent.CPUMillicores.IsZero() && lent.MemoryBytes.IsZero() {
			continue
		}
		list = append(list, snapshot.ReclaimableZone{
			ID: int(id), CPUMillicores: lent.CPUMillicores, MemoryBytes: lent.MemoryBytes, Allocations: zoneAllocations(z.Allocations),
		})
	}
	return list
}

// zoneAllocations are what pods request of the reclaimed resources of a zone.
func zoneAllocations(allocations []allocation) (list []snapshot.ZoneAllocation) {
	for _, a := range allocations {
		uid := a.Consumer[strings.LastIndexByte(a.Consumer, '/')+1:]
		requests := reclaimable(a.Requests)
		cpu, _ := requests.CPUMillicores.Get()
		memory, _ := requests.MemoryBytes.Get()
		if uid != "" && cpu+memory > 0 {
			list = append(list, snapshot.ZoneAllocation{PodUID: uid, CPUMillicores: cpu, MemoryBytes: memory})
		}
	}
	return list
}

// reclaimable converts a resource list: a missing resource is unknown, a
// negative one is none.
func reclaimable(list corev1.ResourceList) (lent snapshot.Reclaimable) {
	if cpu, there := list[reclaimedMillicpu]; there {
		lent.CPUMillicores = snapshot.Some(uint64(max(0, cpu.Value())))
	}
	if memory, there := list[reclaimedMemory]; there {
		lent.MemoryBytes = snapshot.Some(uint64(max(0, memory.Value())))
	}
	return lent
}

// absentReason is why there is no value; empty if there is one.
func (l *reclaimedReader) absentReason() string {
	switch {
	case l.reason != "":
		return l.reason
	case l.lastAttempt.IsZero():
		return "not read: plugins.reclaimedOvercommit is off"
	case l.last.Equal(snapshot.Reclaimable{}):
		return "the CustomNodeResource of this Node has no reclaimed resources"
	}
	return ""
}
