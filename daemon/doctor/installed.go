package doctor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
	"github.com/plimsoll-dev/plimsoll/deploy"
)

// installed looks for what the manifests install in the API server: kinds,
// admission policies and flow control. A policy without its binding has no
// effect, nor has a binding without its policy. Without Velero there is no data mover load
// to hold, to hide or to steer.
func installed(ctx context.Context, client rest.Interface, velero bool, now time.Time) []Row {
	needed := func(list []capability.Capability) []capability.Capability {
		return slices.DeleteFunc(list, func(c capability.Capability) bool { return !velero && c.Name != capabilities.BindAgents })
	}
	has, err := capabilities.Read(ctx, client, now)
	if err != nil {
		return capabilityRows(needed(capabilities.Unread(oneLine(err))))
	}
	rows := slices.Concat(identity(ctx, client), priorityLevel(ctx, client), gates(ctx, client, &has))
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Check == "gate" && strings.HasPrefix(r.Finding, notInstalled) }) {
		return rows // there is nothing to hide, and nothing to steer
	}
	return append(rows, capabilityRows(needed(capabilities.List(&has)))...)
}

// notInstalled begins the finding about the gate where it is not installed.
const notInstalled = "not installed: "

// capabilityRows has a row for each capability that the cluster does not have, or one for
// all of them.
func capabilityRows(list []capability.Capability) (rows []Row) {
	const check = "capability"
	for _, c := range capability.Lacking(list) {
		rows = append(rows, Row{Warn, check, c.String()})
	}
	if rows == nil {
		var names []string
		for _, c := range list {
			names = append(names, c.Name)
		}
		return []Row{{Pass, check, "this cluster has what these need: " + strings.Join(names, ", ")}}
	}
	return rows
}

func identity(ctx context.Context, client rest.Interface) []Row {
	const check = "admission policies"
	o := findObjects(ctx, client, deploy.Identity)
	switch {
	case o.hidden:
		return nil
	case len(o.missing) > 0:
		return []Row{{Fail, check, o.missingText("an agent's token is not bound to its node (apply deploy/identity.yaml)")}}
	}
	return []Row{{Pass, check, fmt.Sprintf("all %d that bind agents to their nodes, with their bindings, are installed", o.n/2)}}
}

func priorityLevel(ctx context.Context, client rest.Interface) []Row {
	const check = "priority level"
	o := findObjects(ctx, client, deploy.Heartbeats)
	switch {
	case o.hidden:
		return nil
	case len(o.missing) > 0:
		return []Row{{Warn, check, o.missingText("heartbeats share a priority level with all service accounts and queue behind their requests (apply deploy/heartbeats.yaml)")}}
	}
	return []Row{{Pass, check, "heartbeats have their own"}}
}

// gates checks what holds data mover loads; it is optional. What the cluster does not
// serve is a row of its own: capabilities.
func gates(ctx context.Context, client rest.Interface, has *capabilities.Cluster) []Row {
	const check = "gate"
	held, mutating := findObjects(ctx, client, deploy.GateCRD, deploy.Gate), objects{}
	file := map[string]string{"v1": "deploy/gate-mutating.yaml", "v1beta1": "deploy/gate-mutating-v1beta1.yaml"}[has.Mutating]
	switch has.Mutating {
	case "v1":
		mutating = findObjects(ctx, client, deploy.GateMutating)
	case "v1beta1":
		mutating = findObjects(ctx, client, deploy.GateMutatingV1beta1)
	}
	switch {
	case held.hidden || mutating.hidden:
		return nil
	case len(held.missing) == held.n && len(mutating.missing) == mutating.n:
		return []Row{{Pass, check, notInstalled + "no data mover load is held (vgdp.enabled of the controller must be false)"}}
	case len(held.missing) > 0:
		return []Row{{Fail, check, held.missingText("data mover loads are not held as the controller decides (apply deploy/gate-crd.yaml, deploy/gate.yaml)")}}
	case len(mutating.missing) > 0:
		consequence := "movers may be scheduled to nodes that take none (apply " + file + ")"
		if !has.Job.Works {
			consequence = "held data mover loads are not hidden from node-agents, which try each in vain, and " + consequence
		}
		return []Row{{Warn, check, mutating.missingText(consequence)}}
	case mutating.n == 0:
		return []Row{{Pass, check, fmt.Sprintf("all %d objects that this cluster has the kinds for", held.n)}}
	}
	return []Row{{Pass, check, fmt.Sprintf("all %d objects: kind, policies and bindings", held.n+mutating.n)}}
}

// objects tells which objects of manifests the API server has.
type objects struct {
	n       int
	missing []string
	hidden  bool // the caller may not read them, or the API server does not answer
}

func (o *objects) missingText(consequence string) string {
	return fmt.Sprintf("%d of %d missing: %s: %s", len(o.missing), o.n, strings.Join(o.missing, ", "), consequence)
}

// findObjects looks for the objects of manifests, all of them cluster-scoped.
func findObjects(ctx context.Context, client rest.Interface, manifests ...[]byte) (found objects) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(bytes.Join(manifests, []byte("\n---\n"))), 4096)
	for {
		var o metav1.PartialObjectMetadata
		if documents.Decode(&o) != nil { // the end: a test decodes what is embedded
			return found
		}
		if o.Kind == "" { // the separator between two manifests
			continue
		}
		found.n++
		gvk := o.GroupVersionKind()
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		err := client.Get().AbsPath("/apis", gvk.Group, gvk.Version, plural.Resource, o.Name).Do(ctx).Error()
		switch {
		case apierrors.IsNotFound(err):
			found.missing = append(found.missing, o.Kind+" "+o.Name)
		case err != nil:
			found.hidden = true
			return found
		}
	}
}
