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
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
	"github.com/plimsoll-dev/plimsoll/daemon/remote"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

// veleroServers selects them.
const veleroServers = backup.Servers

// queues checks, for each Velero that the caller may read, what starts its
// Backups. An agent may read none, which gives no row. clock is the API server's, and how the
// configuration of a client that asks the leading controller.
func queues(ctx context.Context, client kubernetes.Interface, clock *agents.Clock, how *rest.Config) []Row {
	servers, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: veleroServers})
	if err != nil || len(servers.Items) == 0 {
		return nil
	}
	// election.namespace of the controller is not known here.
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + controller.LeaseName})
	l := leaderOf(leases.Items, err, clock.Now())
	if l.name != "" && l.unknown == "" {
		l.hear(askLeader(ctx, how))
	}
	var rows []Row
	for i := range servers.Items {
		rows = append(rows, queueRow(&servers.Items[i], &l))
	}
	return rows
}

// askTimeout bounds the question to the leading controller: it goes through the API server and
// a kubelet, and other checks follow.
const askTimeout = 5 * time.Second

// askLeader asks the leading controller of a cluster about its Backups.
func askLeader(ctx context.Context, how *rest.Config) (web.Backups, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cluster, err := remote.New(how)
	if err != nil {
		return web.Backups{}, err
	}
	client, err := cluster.LeadingController(ctx, askTimeout)
	if err != nil {
		return web.Backups{}, err
	}
	return client.Backups(ctx)
}

// leader is the plimsoll controller that leads.
type leader struct {
	name string // empty: none does
	// unknown is why it is not known whether it starts Backups; empty: it has said it, or there
	// is none.
	unknown string
	says    web.Backups
}

// hear what it answers.
func (l *leader) hear(says web.Backups, err error) {
	switch {
	case err != nil:
		l.unknown = oneLine(err)
	case !says.Leads:
		l.unknown = "it is not the leader any more, ask again"
	}
	l.says = says
}

// starts tells whether it starts the Backups of a Velero.
func (l *leader) starts(velero string) bool {
	return l.says.Enabled && (len(l.says.Veleros) == 0 || slices.Contains(l.says.Veleros, velero))
}

// queueRow tells what starts the Backups of one Velero.
func queueRow(server *appsv1.Deployment, l *leader) Row {
	const check = "backup queue"
	name := server.Namespace + "/" + server.Name
	var args []string
	for _, c := range server.Spec.Template.Spec.Containers {
		args = slices.Concat(args, c.Command, c.Args)
	}
	runs := "; " + workers(flag(args, "concurrent-backups", "1"), flag(args, "item-block-worker-count", "1"))
	const with = " runs with --disable-controllers=backup-queue"
	switch handedOver, starts := backup.HandedOver(args), l.starts(server.Namespace); {
	case handedOver && l.unknown != "":
		return Row{Warn, check, name + with + ", and whether the plimsoll controller starts its Backups, as it must (backups.enabled: true), is not known: " + l.unknown + runs}
	case l.unknown != "":
		return Row{Warn, check, name + ": Velero's own queue starts Backups, and whether the plimsoll controller does too, as it must not (backups.enabled: false), is not known: " + l.unknown + runs}
	case handedOver && l.name == "":
		return Row{Fail, check, name + with + " and no plimsoll controller is leader: no Backup starts. Start the controller, or Velero's server without that flag"}
	case handedOver && !starts:
		return Row{Fail, check, name + with + " and the plimsoll controller does not start its Backups, leader " + l.name + ": no Backup starts. " +
			"Set backups.enabled: true in its configuration (velero, if it has entries, must name the namespace), or start Velero's server without that flag"}
	case handedOver:
		return Row{Pass, check, name + ": the plimsoll controller starts Backups, leader " + l.name + runs}
	case starts:
		return Row{Fail, check, name + " runs without --disable-controllers=backup-queue and the plimsoll controller starts its Backups too, leader " + l.name + ": two queues start them. " +
			"Start Velero's server with that flag, or set backups.enabled: false in the controller's configuration"}
	}
	return Row{Pass, check, name + ": Velero's own queue starts Backups, so backups.enabled must be false" + runs}
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

// leaderOf is the leader by these Leases, each of which has the name of that of the controller's
// leader election, that of the default namespace first; err is why they could not be listed.
func leaderOf(leases []coordinationv1.Lease, err error, now time.Time) leader {
	if err != nil {
		return leader{unknown: fmt.Sprintf("cannot list Leases %s: %s", controller.LeaseName, oneLine(err))}
	}
	home, namespace, l := config.DefaultController().Election.Namespace, "", leader{}
	for i := range leases {
		of := &leases[i]
		held := of.Spec.HolderIdentity != nil && *of.Spec.HolderIdentity != "" && of.Spec.RenewTime != nil && now.Sub(of.Spec.RenewTime.Time) <= lifetime(of)
		if held && (namespace == "" || of.Namespace == home) {
			l.name, namespace = *of.Spec.HolderIdentity, of.Namespace
		}
	}
	if namespace != "" && namespace != home { // anybody who may write Leases there could have made it
		l.unknown = fmt.Sprintf("%s holds Lease %s/%s, which is the controller's if it has election.namespace: %[2]s", l.name, namespace, controller.LeaseName)
	}
	return l
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
