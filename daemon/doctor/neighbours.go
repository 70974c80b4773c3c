package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// taintKeys are those of the built-in rules, spelled out because the programs
// below accept no prefix.
func taintKeys() []string {
	keys := plugins.Conditions()
	for i := range keys {
		keys[i] = names.Prefix + keys[i]
	}
	return keys
}

// neighbours looks for programs that act on Plimsoll's taints, and for
// Plimsoll's own objects. What the caller may not read gives no row; an agent
// may read none of it. velero: it is installed. now is by the API server's clock.
func neighbours(ctx context.Context, client kubernetes.Interface, velero bool, now time.Time) []Row {
	rows := installed(ctx, client.Discovery().RESTClient(), velero, now)
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

// neighbour has a row if a workload's pods run a program that acts on taints.
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
// a node group's template, and no pod seems to fit the group.
func autoscalerRow(name string, args []string) Row {
	const check = "cluster-autoscaler"
	missing := slices.DeleteFunc(taintKeys(), func(key string) bool {
		return slices.Contains(args, "--status-taint="+key)
	})
	if len(missing) > 0 {
		return Row{Warn, check, name + ": takes Plimsoll's taints for a part of every new node of a group and may not scale it up: add --status-taint=" + strings.Join(missing, " --status-taint=")}
	}
	return Row{Pass, check, name + " ignores Plimsoll's taints (status taints)"}
}

// deschedulerRow searches the texts that name the strategy, which may be its
// policy.
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
		return Row{Warn, check, name + ": " + strategy + " evicts every pod of a node with a NoSchedule taint of Plimsoll, past every rate limit: set excludedTaints: [" + strings.Join(list, ", ") + "]"}
	}
	return Row{Pass, check, name + ": no strategy found that evicts because of Plimsoll's taints"}
}
