package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/capability"
)

// installedVelero tells what the installed Velero lacks. Where the caller may not read its
// CustomResourceDefinitions, or there is none, there is no row.
func installedVelero(ctx context.Context, how *rest.Config) []Row {
	client, err := dynamic.NewForConfig(how)
	if err != nil {
		return nil // reported by the row of the API server
	}
	r := &abilities.Reader{Definitions: client.Resource(abilities.Resource()), Log: slog.New(slog.DiscardHandler)}
	return veleroRows(r.Now(ctx))
}

// veleroProtected checks that no pod of a Velero is in a namespace whose pods are evicted.
// Without pods that look like Velero's there is no row.
func veleroProtected(ctx context.Context, client kubernetes.Interface, protected []string) []Row {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: veleroServers, ResourceVersion: "0"}) // from the API server's cache
	if err != nil || len(list.Items) == 0 {
		return nil
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	slices.Sort(namespaces)
	return []Row{protectedRow(slices.Compact(namespaces), protected)}
}

func protectedRow(veleros, protected []string) Row {
	const check = "velero protected"
	missing := slices.DeleteFunc(slices.Clone(veleros), func(namespace string) bool { return slices.Contains(protected, namespace) })
	if len(missing) > 0 {
		want := slices.Concat(protected, missing)
		return Row{Warn, check, fmt.Sprintf("pods of %s look like Velero's (label %s) and may be evicted, and a Backup that its server runs fails then. If they are: eviction.protect.namespaces: [%s], which replaces the list in force",
			strings.Join(missing, ", "), veleroServers, strings.Join(want, ", "))}
	}
	return Row{Pass, check, "no pod is evicted in " + strings.Join(veleros, ", ")}
}

func veleroRows(v abilities.Velero) (rows []Row) {
	const check = "velero"
	if v.Unread != "" {
		return nil
	}
	for _, c := range capability.Lacking(v.Capabilities()) {
		rows = append(rows, Row{Warn, check, c.String()})
	}
	if len(rows) == 0 {
		rows = []Row{{Pass, check, "PodVolumeBackups can be held and Backups be queued (Velero 1.18 or later)"}}
	}
	return rows
}
