package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// requiredOfNode is the required part of a node affinity; nil without one.
func requiredOfNode(affinity *corev1.Affinity) *corev1.NodeSelector {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// onlyNode reports whether a requirement allows a single node, and its name there.
// One of the terms let the pod run here, so a single node is this one, also if its
// hostname label differs from its name. Terms that name one node each by different
// keys count as one node: they may mean the same one.
func onlyNode(required *corev1.NodeSelector) (node string, one bool) {
	names := map[string]string{} // key → the one value
	for _, term := range required.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue // matches no node
		}
		key, value, one := onlyNodeOfTerm(term)
		if !one {
			return "", false
		}
		if value == "" {
			continue // it matches no node
		}
		if before, there := names[key]; there && before != value {
			return "", false
		}
		names[key] = value
		node = value
	}
	return node, true
}

// onlyNodeOfTerm reports whether a term allows at most one value of the hostname
// label or the node's name.
func onlyNodeOfTerm(term corev1.NodeSelectorTerm) (key, value string, one bool) {
	if value, one := onlyValue(term.MatchFields, "metadata.name"); one {
		return "metadata.name", value, true
	}
	value, one = onlyValue(term.MatchExpressions, corev1.LabelHostname)
	return corev1.LabelHostname, value, one
}

// onlyValue reports whether the requirements, which must all hold, allow at most
// one value of a key, and which.
func onlyValue(all []corev1.NodeSelectorRequirement, key string) (string, bool) {
	var left []string
	asked := false
	for _, r := range all {
		if r.Key != key || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if !asked {
			left, asked = slices.Compact(slices.Sorted(slices.Values(r.Values))), true
			continue
		}
		left = slices.DeleteFunc(left, func(v string) bool { return !slices.Contains(r.Values, v) })
	}
	for _, r := range all {
		if r.Key == key && r.Operator == corev1.NodeSelectorOpNotIn {
			left = slices.DeleteFunc(left, func(v string) bool { return slices.Contains(r.Values, v) })
		}
	}
	if !asked || len(left) > 1 {
		return "", false
	}
	return strings.Join(left, ""), true
}

// volumeOnlyHere is why a volume can be used on few nodes only, so that its pod
// would be scheduled here again or stay Pending; empty if it can be used elsewhere.
func volumeOnlyHere(volume *corev1.PersistentVolume) string {
	switch {
	case volume.Spec.Local != nil:
		return fmt.Sprintf("its volume %s is a disk of this node (local %s)", volume.Name, truncate(volume.Spec.Local.Path))
	case volume.Spec.HostPath != nil:
		return fmt.Sprintf("its volume %s is a directory of this node (hostPath %s)", volume.Name, truncate(volume.Spec.HostPath.Path))
	case volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil:
		return ""
	}
	return requiredOnlyHere(volume.Name, volume.Spec.NodeAffinity.Required)
}

func requiredOnlyHere(volume string, required *corev1.NodeSelector) string {
	var why string
	for _, term := range required.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue // matches no node
		}
		asks, few := restrictsToFewNodes(term)
		if !few {
			return "" // this term allows other nodes
		}
		why = fmt.Sprintf("its volume %s can be used only where %s is one of %q", volume, asks.Key, asks.Values)
	}
	return truncate(why)
}

// restrictsToFewNodes finds a requirement that may allow this node only: the hostname,
// and every key that is not known to be shared by many nodes, because drivers of
// local disks use keys of their own (topology.topolvm.io/node,
// openebs.io/nodename).
func restrictsToFewNodes(term corev1.NodeSelectorTerm) (corev1.NodeSelectorRequirement, bool) {
	for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
		if r.Operator == corev1.NodeSelectorOpIn && !isTopologyKey(r.Key) {
			return r, true
		}
	}
	return corev1.NodeSelectorRequirement{}, false
}

// isTopologyKey recognizes the keys of zones, regions and kinds of nodes by their
// end, because each storage driver has its own prefix
// (topology.ebs.csi.aws.com/zone, topology.csi.vmware.com/k8s-region).
func isTopologyKey(key string) bool {
	name := key[strings.LastIndexByte(key, '/')+1:]
	return slices.ContainsFunc([]string{"zone", "region", "location", "os", "arch", "instance-type"}, func(end string) bool {
		return name == end || strings.HasSuffix(name, "-"+end)
	})
}
