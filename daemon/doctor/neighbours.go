package doctor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/deploy"
)

// taintKeys are those of the built-in rules. The programs that must know them
// take no prefix.
func taintKeys() []string {
	return []string{
		"plimsoll.dev/MemoryContention", "plimsoll.dev/DiskContention", "plimsoll.dev/NetworkContention", "plimsoll.dev/FilesystemPressure",
		"plimsoll.dev/CPUSuppression", "plimsoll.dev/OOMStorm", "plimsoll.dev/ReclaimedOvercommit",
	}
}

// neighbours looks for programs that act on our taints, and for our policies.
// What the caller may not see gives no row: an agent sees none of it.
func neighbours(ctx context.Context, how *rest.Config) []Row {
	client, err := kubernetes.NewForConfig(how)
	if err != nil {
		return nil // the row of the API server says it
	}
	rows := policies(ctx, client)
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range deployments.Items {
			d := &deployments.Items[i]
			rows = append(rows, neighbour(ctx, client, d.Namespace, d.Name, &d.Spec.Template.Spec)...)
		}
	}
	jobs, err := client.BatchV1().CronJobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range jobs.Items {
			j := &jobs.Items[i]
			rows = append(rows, neighbour(ctx, client, j.Namespace, j.Name, &j.Spec.JobTemplate.Spec.Template.Spec)...)
		}
	}
	return rows
}

// neighbour has a row where the pods of a workload are a program that acts on
// taints.
func neighbour(ctx context.Context, client kubernetes.Interface, namespace, name string, pod *corev1.PodSpec) []Row {
	for _, c := range pod.Containers {
		switch {
		case strings.Contains(c.Image, "/cluster-autoscaler"):
			return []Row{autoscalerRow(namespace+"/"+name, slices.Concat(c.Command, c.Args))}
		case strings.Contains(c.Image, "/descheduler"):
			list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil
			}
			var policies []string
			for _, m := range list.Items {
				for _, text := range m.Data {
					policies = append(policies, text)
				}
			}
			return []Row{deschedulerRow(namespace+"/"+name, policies)}
		}
	}
	return nil
}

// autoscalerRow: a taint that cluster-autoscaler does not know becomes part of
// the template of a node group, which then seems to fit no pod.
func autoscalerRow(name string, args []string) Row {
	const check = "cluster-autoscaler"
	missing := slices.DeleteFunc(taintKeys(), func(key string) bool {
		return slices.Contains(args, "--status-taint="+key)
	})
	if len(missing) > 0 {
		return Row{Warn, check, name + ": it takes our taints for a part of every new node of a group and may not scale it up: add --status-taint=" + strings.Join(missing, " --status-taint=")}
	}
	return Row{Pass, check, name + " knows our taints as status taints"}
}

// deschedulerRow looks at what may be its policy: texts that name the strategy.
func deschedulerRow(name string, policies []string) Row {
	const check, strategy = "descheduler", "RemovePodsViolatingNodeTaints"
	missing := map[string]bool{}
	for _, text := range policies {
		if !strings.Contains(text, strategy) {
			continue
		}
		for _, key := range taintKeys() {
			if !strings.Contains(text, key) {
				missing[key] = true
			}
		}
	}
	if len(missing) > 0 {
		list := slices.DeleteFunc(taintKeys(), func(key string) bool { return !missing[key] })
		return Row{Warn, check, name + ": " + strategy + " evicts every pod of a node that carries our NoSchedule, past every limit: excludedTaints: [" + strings.Join(list, ", ") + "]"}
	}
	return Row{Pass, check, name + ": no strategy that evicts for our taints was found"}
}

// policies are those of deploy/identity.yaml and their bindings: without one of
// the two a policy holds nothing.
func policies(ctx context.Context, client kubernetes.Interface) []Row {
	const check = "admission policies"
	var missing []string
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(deploy.Identity), 4096)
	n := 0
	for {
		var o metav1.PartialObjectMetadata
		if documents.Decode(&o) != nil { // its end: what is embedded is tested
			break
		}
		var err error
		switch o.Kind {
		case "ValidatingAdmissionPolicy":
			_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, o.Name, metav1.GetOptions{})
		case "ValidatingAdmissionPolicyBinding":
			_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, o.Name, metav1.GetOptions{})
		default:
			continue
		}
		n++
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, o.Kind+" "+o.Name)
		case err != nil:
			return nil // it may not be seen
		}
	}
	if len(missing) > 0 {
		return []Row{{Fail, check, fmt.Sprintf("%d of %d missing: %s: an agent's token is not bound to its node (apply deploy/identity.yaml)", len(missing), n, strings.Join(missing, ", "))}}
	}
	return []Row{{Pass, check, fmt.Sprintf("all %d that bind agents to their nodes, with their bindings", n/2)}}
}
