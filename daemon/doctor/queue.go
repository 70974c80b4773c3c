package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
)

// veleroServers selects them.
const veleroServers = backup.Servers

// queues checks, for each Velero that the caller may read, what starts its
// Backups. An agent may read none, which gives no row. clock is the API server's.
func queues(ctx context.Context, client kubernetes.Interface, clock *agents.Clock) []Row {
	servers, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: veleroServers})
	if err != nil || len(servers.Items) == 0 {
		return nil
	}
	// election.namespace of the controller is not known here.
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + controller.LeaseName})
	var rows []Row
	for i := range servers.Items {
		rows = append(rows, queueRow(&servers.Items[i], leases.Items, err, clock.Now()))
	}
	return rows
}

// queueRow tells what starts the Backups of one Velero. leases have the name of that of the
// controller's leader election, each in its namespace; err is why they could not be listed.
func queueRow(server *appsv1.Deployment, leases []coordinationv1.Lease, err error, now time.Time) Row {
	const check = "backup queue"
	name := server.Namespace + "/" + server.Name
	var args []string
	for _, c := range server.Spec.Template.Spec.Containers {
		args = slices.Concat(args, c.Command, c.Args)
	}
	runs := workers(flag(args, "concurrent-backups", "1"), flag(args, "item-block-worker-count", "1"))
	if !backup.HandedOver(args) {
		return Row{Pass, check, name + ": Velero's own queue starts Backups, so backups.enabled must be false; " + runs}
	}
	if err != nil {
		return Row{Warn, check, fmt.Sprintf("%s runs with --disable-controllers=backup-queue, and whether a plimsoll controller is leader and starts Backups is not known: cannot list Leases %s: %s",
			name, controller.LeaseName, oneLine(err))}
	}
	leader, namespace := leaderOf(leases, now)
	switch namespace {
	case "":
	case config.DefaultController().Election.Namespace:
		return Row{Pass, check, name + ": the plimsoll controller starts Backups, leader " + leader + "; " + runs}
	default: // anybody who may write Leases there could have made it
		return Row{Warn, check, fmt.Sprintf("%[1]s runs with --disable-controllers=backup-queue, and %[2]s holds Lease %[3]s/%[4]s: the plimsoll controller starts Backups if it has election.namespace: %[3]s, else nothing does; %[5]s",
			name, leader, namespace, controller.LeaseName, runs)}
	}
	return Row{Fail, check, name + " runs with --disable-controllers=backup-queue and no plimsoll controller is leader: no Backup starts. " +
		"Start the controller, or Velero's server without that flag"}
}

// workers tells how many Backups run at a time, and their worker threads together.
func workers(backups, each string) string {
	text := fmt.Sprintf("it runs at most %s at a time with %s each", counted(backups, "Backup"), counted(each, "worker"))
	b, errB := strconv.ParseUint(backups, 10, 31)
	w, errW := strconv.ParseUint(each, 10, 31)
	if errB == nil && errW == nil {
		text += fmt.Sprintf(", %d together", max(1, b)*w) // Velero takes a limit below 1 as 1
	}
	return text + " (--concurrent-backups, no less than backups.limit; --item-block-worker-count)"
}

func counted(n, what string) string {
	if n == "1" {
		return n + " " + what
	}
	return n + " " + what + "s"
}

// leaderOf is the present holder of one of the Leases, that of the default namespace first, and
// where that is; empty: there is none.
func leaderOf(leases []coordinationv1.Lease, now time.Time) (holder, namespace string) {
	for i := range leases {
		l := &leases[i]
		held := l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) <= lifetime(l)
		if held && (namespace == "" || l.Namespace == config.DefaultController().Election.Namespace) {
			holder, namespace = *l.Spec.HolderIdentity, l.Namespace
		}
	}
	return holder, namespace
}

// flag is the value of a flag in a command line, after = or as the next
// argument; the last occurrence counts.
func flag(args []string, name, absent string) string {
	value := absent
	for i, a := range args {
		if rest, is := strings.CutPrefix(a, "--"+name+"="); is {
			value = rest
		} else if a == "--"+name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}
