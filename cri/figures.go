package cri

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// labelPodUID is what the kubelet labels each container with (pkg/kubelet/types of
// kubernetes). No pod can choose it.
const labelPodUID = "io.kubernetes.pod.uid"

// maxLayerAge is how old the runtime's figure of a writable layer may be. containerd
// walks the layers one after the other, by default ten seconds after it was done: on a
// disk that is slow, or with millions of files, a walk takes minutes.
const maxLayerAge = 5 * time.Minute

// filesystems are the directories that hold writable layers, and the one of them to
// judge: that for containers if the runtime has one, else that for images, and of
// several the first, as the kubelet does.
func filesystems(info *runtime.ImageFsInfoResponse) (all []string, judged string) {
	of := info.GetContainerFilesystems()
	if len(of) == 0 {
		of = info.GetImageFilesystems()
	}
	for _, f := range of {
		if mountpoint := f.GetFsId().GetMountpoint(); mountpoint != "" {
			all = append(all, mountpoint)
		}
	}
	if len(all) == 0 {
		return nil, ""
	}
	return all, all[0]
}

// layers counts writable layers of which nothing is known, by the reason.
type layers struct {
	unmeasured, old int
}

func (l layers) reason() string {
	switch {
	case l.unmeasured+l.old == 0:
		return ""
	case l.old == 0:
		return fmt.Sprintf("the runtime has not measured the writable layers of %d containers", l.unmeasured)
	case l.unmeasured == 0:
		return fmt.Sprintf("what the runtime reports of the writable layers of %d containers is older than %s", l.old, maxLayerAge)
	}
	return fmt.Sprintf("the runtime has not measured the writable layers of %d containers, and what it reports of those of %d is older than %s",
		l.unmeasured, l.old, maxLayerAge)
}

// podsOf adds up the writable layers by pod. elsewhere are the directories of other
// filesystems than the one that is judged: what is there releases nothing here.
func podsOf(stats []*runtime.ContainerStats, elsewhere []string, now time.Time) (list []snapshot.PodRootfs, unknown layers) {
	byUID := map[string]*snapshot.PodRootfs{}
	for _, s := range stats {
		uid, layer := s.GetAttributes().GetLabels()[labelPodUID], s.GetWritableLayer()
		if uid == "" || slices.Contains(elsewhere, layer.GetFsId().GetMountpoint()) {
			continue
		}
		switch {
		// containerd reports a layer that it has not measured yet as 0 bytes at time 0.
		case layer.GetTimestamp() <= 0 || layer.GetUsedBytes() == nil && layer.GetInodesUsed() == nil:
			unknown.unmeasured++
			continue
		case now.Sub(time.Unix(0, layer.GetTimestamp())) > maxLayerAge:
			unknown.old++
			continue
		}
		p := byUID[uid]
		if p == nil {
			p = &snapshot.PodRootfs{PodUID: uid}
			byUID[uid] = p
		}
		p.UsedBytes, p.FilesUsed = plus(p.UsedBytes, layer.GetUsedBytes()), plus(p.FilesUsed, layer.GetInodesUsed())
	}
	for _, p := range byUID {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b snapshot.PodRootfs) int { return cmp.Compare(a.PodUID, b.PodUID) })
	return list, unknown
}

// plus is a sum that does not overflow; what is not reported adds nothing.
func plus(sum snapshot.Opt[uint64], n *runtime.UInt64Value) snapshot.Opt[uint64] {
	if n == nil {
		return sum
	}
	was, _ := sum.Get()
	if n.GetValue() > math.MaxUint64-was {
		return snapshot.Some[uint64](math.MaxUint64)
	}
	return snapshot.Some(was + n.GetValue())
}
