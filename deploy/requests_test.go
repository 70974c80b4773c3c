package deploy

import (
	"net/http"
	"strings"
)

// What became of a request.
const (
	yes    = "yes"
	rights = "no: rights"
	policy = "no: policy"
)

// request is what somebody with an agent's token may try. NODE stands for the
// node's name, PLURAL of path and body.
type request struct {
	what                     string
	method, path, kind, body string
	// own, other: on the node of the token and on another; unbound: on any node
	// with a token of none; allOwn, allOther: if RBAC allowed everything.
	own, other, unbound, allOwn, allOther string
}

const (
	node       = "/api/v1/nodes/NODE"
	nodeStatus = node + "/status"
	heartbeats = "/apis/coordination.k8s.io/v1/namespaces/plimsoll-node-lease/leases"
	heartbeat  = heartbeats + "/NODE"
	pods       = "/api/v1/namespaces/default/pods"
	requested  = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests"
	ourPolicy  = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/plimsoll-agent-node"

	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	apply      = "application/apply-patch+yaml"
	strategic  = "application/strategic-merge-patch+json"
	plain      = "application/json"

	owner = `{"apiVersion":"v1","kind":"Node","name":"%s","uid":"00000000-0000-0000-0000-000000000000"}`
)

// requests that an agent's token is tried on. The first of each part are what an
// agent does.
func requests() []request {
	var all []request
	for _, part := range [][]request{onNodes(), onFieldsOfNodes(), onHeartbeats(), onPods(), onTheRest()} {
		all = append(all, part...)
	}
	return all
}

// bound is for what belongs to the agent of the node alone.
func bound(what, method, path, kind, body string) request {
	return request{what, method, path, kind, body, yes, policy, policy, yes, policy}
}

// never is for what RBAC grants, as it cannot tell, and a policy refuses.
func never(what, method, path, kind, body string) request {
	return request{what, method, path, kind, body, policy, policy, policy, policy, policy}
}

// notGranted is for what RBAC does not grant, with what would become of it if it
// did, on the node of the token and on another.
func notGranted(what, method, path, kind, body, allOwn, allOther string) request {
	return request{what, method, path, kind, body, rights, rights, rights, allOwn, allOther}
}

// anywhere is for what cannot be bound to a node.
func anywhere(what, method, path, kind, body, unbound string) request {
	return request{what, method, path, kind, body, yes, yes, unbound, yes, yes}
}

func onNodes() []request {
	made := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE"}}`
	return []request{
		anywhere("read the Node", http.MethodGet, node, "", "", yes),
		bound("Node: condition plimsoll.dev/…", http.MethodPatch, nodeStatus+"?fieldManager=table&force=true", apply,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE"},"status":{"conditions":[{"type":"plimsoll.dev/Table","status":"True"}]}}`),
		bound("Node: taint plimsoll.dev/…", http.MethodPatch, node, jsonPatch,
			`[{"op":"add","path":"/spec/taints","value":[{"key":"plimsoll.dev/Table","effect":"NoSchedule"},{"key":"theirs","effect":"NoSchedule"}]}]`),
		bound("Node: label plimsoll.dev/…", http.MethodPatch, node, mergePatch, `{"metadata":{"labels":{"plimsoll.dev/table":"x"}}}`),
		bound("Node: annotation plimsoll.dev/…", http.MethodPatch, node, mergePatch, `{"metadata":{"annotations":{"plimsoll.dev/taints":"[]"}}}`),
		notGranted("replace the Node", http.MethodPut, node, plain, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"NODE"}}`, policy, policy),
		notGranted("make a Node", http.MethodPost, "/api/v1/nodes", plain, made, policy, policy),
		notGranted("delete the Node", http.MethodDelete, node, plain, "", policy, policy),
		notGranted("delete all Nodes", http.MethodDelete, "/api/v1/nodes", plain, "", policy, policy),
	}
}

func onFieldsOfNodes() []request {
	return []request{
		never("Node: condition of the kubelet", http.MethodPatch, nodeStatus, strategic, `{"status":{"conditions":[{"type":"DiskPressure","status":"True"}]}}`),
		// Who may renew the Node's own Lease may say Ready.
		{
			"Node: condition Ready", http.MethodPatch, nodeStatus, strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
			policy, policy, policy, yes, policy,
		},
		never("Node: other status (capacity)", http.MethodPatch, nodeStatus, mergePatch, `{"status":{"capacity":{"cpu":"400"}}}`),
		never("Node: other status (a field that was not there)", http.MethodPatch, nodeStatus, mergePatch, `{"status":{"volumesInUse":["v"]}}`),
		never("Node: taint of another owner, added", http.MethodPatch, node, jsonPatch,
			`[{"op":"add","path":"/spec/taints","value":[{"key":"theirs","effect":"NoSchedule"},{"key":"more","effect":"NoExecute"}]}]`),
		never("Node: taint of another owner, removed", http.MethodPatch, node, jsonPatch, `[{"op":"add","path":"/spec/taints","value":[]}]`),
		never("Node: label of another owner, added", http.MethodPatch, node, mergePatch, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		never("Node: label of another owner, removed", http.MethodPatch, node, mergePatch, `{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`),
		never("Node: annotation of another owner", http.MethodPatch, node, mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`),
		never("Node: cordon", http.MethodPatch, node, mergePatch, `{"spec":{"unschedulable":true}}`),
		never("Node: finalizer", http.MethodPatch, node, mergePatch, `{"metadata":{"finalizers":["a/b"]}}`),
		never("Node: owner", http.MethodPatch, node, mergePatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`),
	}
}

func onHeartbeats() []request {
	lease := func(name, holder, owned string) string {
		return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + name + `","ownerReferences":[` +
			strings.ReplaceAll(owner, "%s", owned) + `]},"spec":{"holderIdentity":"` + holder + `"}}`
	}
	return []request{
		anywhere("read the heartbeat", http.MethodGet, heartbeat, "", "", yes),
		bound("make the heartbeat", http.MethodPost, heartbeats, plain, lease("NODE", "NODE", "NODE")),
		bound("beat, with word of the node", http.MethodPatch, heartbeat, mergePatch,
			`{"metadata":{"annotations":{"plimsoll.dev/node-report":"{}","plimsoll.dev/eviction-requests":"[]"}},"spec":{"holderIdentity":"NODE","renewTime":"2026-01-01T00:00:00.000000Z"}}`),
		never("beat for another holder", http.MethodPatch, heartbeat, mergePatch, `{"spec":{"holderIdentity":"somebody"}}`),
		never("make a heartbeat of another Node's", http.MethodPost, heartbeats, plain, lease("NODE", "NODE", "somebody")),
		never("give the heartbeat to another Node", http.MethodPatch, heartbeat, mergePatch,
			`{"metadata":{"ownerReferences":[`+strings.ReplaceAll(owner, "%s", "somebody")+`]}}`),
		never("answer for the controller (plimsoll.dev/eviction-answers)", http.MethodPatch, heartbeat, mergePatch,
			`{"metadata":{"annotations":{"plimsoll.dev/eviction-answers":"[]"}}}`),
		notGranted("replace the heartbeat", http.MethodPut, heartbeat, plain, lease("NODE", "NODE", "NODE"), yes, policy),
		notGranted("delete the heartbeat", http.MethodDelete, heartbeat, plain, "", yes, policy),
		notGranted("delete all heartbeats", http.MethodDelete, heartbeats, plain, "", policy, policy),
		notGranted("beat for the kubelet (kube-node-lease)", http.MethodPatch, strings.Replace(heartbeat, "plimsoll", "kube", 1), mergePatch, `{"spec":{"holderIdentity":"NODE"}}`, yes, policy),
		notGranted("lead in the controller's place", http.MethodPost, strings.Replace(heartbeats, "node-lease", "system", 1), plain,
			lease("plimsoll-controller", "NODE", "NODE"), policy, policy),
		notGranted("make a Lease elsewhere", http.MethodPost, strings.Replace(heartbeats, "plimsoll-node-lease", "default", 1), plain,
			lease("NODE", "NODE", "NODE"), policy, policy),
	}
}

func onPods() []request {
	event := func(host string) string {
		return `{"apiVersion":"v1","kind":"Event","metadata":{"name":"table"},"involvedObject":{"kind":"Pod","namespace":"default","name":"on-NODE"},"source":{"component":"plimsoll-agent","host":"` + host + `"}}`
	}
	resize := func(what string, of func(what, method, path, kind, body string) request, container, resources string) request {
		return of(what, http.MethodPatch, pods+"/on-NODE/resize", strategic, `{"spec":{"containers":[{"name":"`+container+`","resources":`+resources+`}]}}`)
	}
	return []request{
		anywhere("list pods of every node", http.MethodGet, "/api/v1/pods", "", "", yes),
		anywhere("**evict a pod of the node**", http.MethodPost, pods+"/on-NODE/eviction", plain,
			`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"on-NODE","namespace":"default"},"deleteOptions":{"dryRun":["All"]}}`, policy),
		anywhere("**request the eviction of any pod** (EvictionRequest)", http.MethodPost, requested, plain,
			`{"apiVersion":"lifecycle.k8s.io/v1alpha1","kind":"EvictionRequest","metadata":{"name":"new"},"spec":{"requester":"plimsoll.dev/agent"}}`, policy),
		anywhere("withdraw an EvictionRequest of an agent", http.MethodDelete, requested+"/plimsoll-NODE", plain, "", policy),
		never("withdraw an EvictionRequest of others", http.MethodDelete, requested+"/of-others-NODE", plain, ""),
		resize("change the CPU limit of a pod of the node", bound, "c", `{"limits":{"cpu":"1"}}`),
		resize("add a CPU limit", never, "unlimited", `{"limits":{"cpu":"1"}}`),
		resize("change the CPU request of a pod", never, "c", `{"requests":{"cpu":"200m"}}`),
		resize("raise the memory limit of a pod", never, "c", `{"limits":{"memory":"1Gi"}}`),
		resize("change CPU limit and request of a pod", never, "c", `{"limits":{"cpu":"1"},"requests":{"cpu":"200m"}}`),
		notGranted("delete a pod", http.MethodDelete, pods+"/on-NODE", plain, "", yes, yes),
		notGranted("change a pod", http.MethodPatch, pods+"/on-NODE", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`, yes, yes),
		notGranted("make a pod", http.MethodPost, pods, plain,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, yes, yes),
		anywhere("read whether a claim ties a pod to a node", http.MethodGet, "/api/v1/namespaces/default/persistentvolumeclaims/of-NODE", "", "", yes),
		anywhere("list the namespaces and their labels", http.MethodGet, "/api/v1/namespaces", "", "", yes),
		bound("say an Event, as the node's", http.MethodPost, "/api/v1/namespaces/default/events", plain, event("NODE")),
		never("say an Event, as another node's", http.MethodPost, "/api/v1/namespaces/default/events", plain, event("somebody")),
	}
}

func onTheRest() []request {
	return []request{
		notGranted("read Secrets", http.MethodGet, "/api/v1/secrets", "", "", yes, yes),
		notGranted("make a token of itself", http.MethodPost, "/api/v1/namespaces/plimsoll-system/serviceaccounts/plimsoll-agent/token", plain,
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, yes, yes),
		notGranted("change a DataUpload", http.MethodPatch, "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/d", mergePatch, `{}`, yes, yes),
		notGranted("change a PodVolumeBackup", http.MethodPatch, "/apis/velero.io/v1/namespaces/velero/podvolumebackups/p", mergePatch, `{}`, yes, yes),
		notGranted("change a Backup", http.MethodPatch, "/apis/velero.io/v1/namespaces/velero/backups/b", mergePatch, `{}`, yes, yes),
		notGranted("change the Gate", http.MethodPatch, "/apis/plimsoll.dev/v1alpha1/namespaces/velero/gates/main", mergePatch, `{}`, yes, yes),
		notGranted("CustomNodeResource of the node", http.MethodPatch, "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/NODE", mergePatch,
			`{"spec":{"a":"b"}}`, yes, policy),
		notGranted("delete these policies", http.MethodDelete, ourPolicy, plain, "", yes, yes),
		notGranted("give itself rights", http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/plimsoll-agent", mergePatch, `{"rules":null}`, yes, yes),
	}
}

// of the node.
func (r request) of(name string) request {
	r.path = strings.ReplaceAll(r.path, "NODE", name)
	r.body = strings.ReplaceAll(r.body, "NODE", name)
	if r.method != http.MethodGet {
		r.path += map[bool]string{true: "&", false: "?"}[strings.Contains(r.path, "?")] + "dryRun=All"
	}
	return r
}
