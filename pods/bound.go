package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// requiredOfNode is what an affinity requires of a node; nil for nothing.
func requiredOfNode(affinity *corev1.Affinity) *corev1.NodeSelector {
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// onlyNode tells whether a requirement leaves a single node, and how it calls
// it. One of the terms let the pod run here, so a single node is this one; its
// own names are not needed, and a hostname label that differs from the node's
// name does not matter. Terms that name one node each by different keys count
// as one node too: they may mean the same one, and here that is assumed.
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
			continue // what it asks for excludes itself
		}
		if before, there := names[key]; there && before != value {
			return "", false
		}
		names[key] = value
		node = value
	}
	return node, true
}

// onlyNodeOfTerm looks for one value of the hostname label or the node's name
// that a term leaves; none left counts as one.
func onlyNodeOfTerm(term corev1.NodeSelectorTerm) (key, value string, one bool) {
	if value, one := onlyValue(term.MatchFields, "metadata.name"); one {
		return "metadata.name", value, true
	}
	value, one = onlyValue(term.MatchExpressions, corev1.LabelHostname)
	return corev1.LabelHostname, value, one
}

// onlyValue tells whether the requirements, which must all hold, leave a key
// one value at most, and which.
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

// volumeOnlyHere says why a volume can be used on few nodes only, so that a
// pod that needs it comes back to this one or waits; empty where it does not.
func volumeOnlyHere(volume *corev1.PersistentVolume) string {
	switch {
	case volume.Spec.Local != nil:
		return fmt.Sprintf("its volume %s is a disk of this node (local %s)", volume.Name, short(volume.Spec.Local.Path))
	case volume.Spec.HostPath != nil:
		return fmt.Sprintf("its volume %s is a directory of this node (hostPath %s)", volume.Name, short(volume.Spec.HostPath.Path))
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
		asks, few := asksForFewNodes(term)
		if !few {
			return "" // this term is a way to other nodes
		}
		why = fmt.Sprintf("its volume %s can be used only where %s is one of %q", volume, asks.Key, asks.Values)
	}
	return short(why)
}

// asksForFewNodes finds a requirement that may leave this node alone: the
// hostname, and every key that is not known to be shared by many nodes,
// because drivers of local disks call their nodes as they like
// (topology.topolvm.io/node, openebs.io/nodename).
func asksForFewNodes(term corev1.NodeSelectorTerm) (corev1.NodeSelectorRequirement, bool) {
	for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
		if r.Operator == corev1.NodeSelectorOpIn && !manyNodesShare(r.Key) {
			return r, true
		}
	}
	return corev1.NodeSelectorRequirement{}, false
}

// manyNodesShare knows the keys of places and of kinds of nodes by how they
// end, because each storage driver puts its own name before them
// (topology.ebs.csi.aws.com/zone, topology.csi.vmware.com/k8s-region).
func manyNodesShare(key string) bool {
	name := key[strings.LastIndexByte(key, '/')+1:]
	return slices.ContainsFunc([]string{"zone", "region", "location", "os", "arch", "instance-type"}, func(end string) bool {
		return name == end || strings.HasSuffix(name, "-"+end)
	})
}
