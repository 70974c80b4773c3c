package config

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Controller is the configuration of the controller, which runs once per
// cluster.
type Controller struct {
	Web        ControllerWeb        `yaml:"web" why:"The HTTP server for metrics, health and the status page; everything on it is read-only."`
	Log        Log                  `yaml:"log" why:"The log on standard error."`
	Kubernetes ControllerKubernetes `yaml:"kubernetes" why:"How the cluster is reached."`
	Election   Election             `yaml:"election" why:"The leader election: which of several replicas acts."`
	Velero     []Velero             `yaml:"velero" unit:"Velero installations" why:"The Velero installations of the cluster; none: for the backup queue each namespace with a Backup is one, and for data mover loads each with a node-agent and a Backup or a data mover load."`
	Fleet      agents.Settings      `yaml:"agents" why:"The agents, as their heartbeats show them."`
	VGDP       admission.Settings   `yaml:"vgdp" why:"Velero's data mover loads: in which order they are admitted, and how many at a time."`
	Backups    backup.Settings      `yaml:"backups" why:"The queue of Velero's Backups: several run at a time, but none that share a namespace."`
}

// ControllerWeb configures the controller's HTTP server.
type ControllerWeb struct {
	ListenAddresses []string `yaml:"listenAddresses" unit:"host:port" why:"The addresses to listen on; an empty list turns the server off. Only this host can reach the default."`
	// ConfigFile is bound at startup; the file's content is not.
	ConfigFile  string `yaml:"configFile" unit:"path" why:"TLS, client certificates and passwords: a web configuration of Prometheus' exporter-toolkit, read again for each connection; empty: none."`
	TokenReview bool   `yaml:"tokenReview" why:"Whether a client needs a bearer token whose user may get the nonResourceURL /metrics, or /plimsoll and the path (TokenReview and SubjectAccessReview); a password does as well, where configFile has some."`
	Open        bool   `yaml:"open" why:"Whether an address that other hosts can reach shows every page to every client. false: clients that are not authenticated, by password, client certificate or token, get metrics and health only."`
	Pprof       bool   `yaml:"pprof" why:"Whether /debug/pprof/ is served. Off, because profiles show the inside of the process."`
}

// Validate says which values must not be used.
func (w ControllerWeb) Validate(at problems.Section) {
	validateAddresses(at, "listenAddresses", w.ListenAddresses)
	at.PathOrNone("configFile", w.ConfigFile)
}

// ControllerKubernetes configures how the cluster is reached.
type ControllerKubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" unit:"path" why:"The kubeconfig of the API server; empty: the service account of the pod."`
}

// Validate says which values must not be used.
func (k ControllerKubernetes) Validate(at problems.Section) {
	at.PathOrNone("kubeconfig", k.Kubeconfig)
}

// Election configures the leader election.
type Election struct {
	Enabled   bool          `yaml:"enabled" why:"Whether replicas elect a leader. Without an election only one replica may run."`
	Namespace string        `yaml:"namespace" unit:"name" why:"The namespace of the Lease plimsoll-controller."`
	Duration  time.Duration `yaml:"duration" why:"How long a leader that does not renew its Lease counts as alive, so how long no replica acts after the leader was killed."`
}

const maxElection = 10 * time.Minute

// Validate says which values must not be used.
func (e Election) Validate(at problems.Section) {
	validateNamespace(at, "namespace", e.Namespace)
	// The API server counts a Lease's duration in whole seconds.
	at.Duration("duration", e.Duration, time.Second, maxElection)
	at.Must(e.Duration%time.Second == 0, "want whole seconds", "duration")
}

// maxPrepareQueue is more than any cluster prepares at once.
const maxPrepareQueue = 1_000_000

// Velero is one Velero installation of the cluster.
type Velero struct {
	Namespace          string `yaml:"namespace" unit:"name" why:"Its namespace."`
	NodeAgentConfigMap string `yaml:"nodeAgentConfigMap" unit:"name" why:"The ConfigMap of its node-agents; empty: the one that they name on their command lines."`
	PrepareQueueLength int    `yaml:"prepareQueueLength" unit:"loads" why:"How many of its data mover loads may be accepted and not run yet, where its node-agents' ConfigMap has no lower prepareQueueLength: for Velero 1.16, and where an operator such as OADP writes the ConfigMap; 0: only the ConfigMap limits."`
}

// Validate says which values must not be used.
func (v Velero) Validate(at problems.Section) {
	validateNamespace(at, "namespace", v.Namespace)
	wrong := validation.IsDNS1123Subdomain(v.NodeAgentConfigMap)
	at.Int("prepareQueueLength", v.PrepareQueueLength, 0, maxPrepareQueue)
	at.Must(v.NodeAgentConfigMap == "" || len(wrong) == 0, "want the name of a ConfigMap, got "+problems.Quote(v.NodeAgentConfigMap), "nodeAgentConfigMap")
}

// Kind is ControllerConfiguration.
func (Controller) Kind() string { return "ControllerConfiguration" }

// AtStart lists what is bound at startup: open sockets, and clients with their
// identity.
func (Controller) AtStart() []string {
	return []string{"web", "log.format", "kubernetes", "election", "velero"}
}

// DefaultController is the configuration of a controller without a file.
func DefaultController() Controller {
	return Controller{
		Web:      ControllerWeb{ListenAddresses: []string{"127.0.0.1:9774"}},
		Log:      Log{Level: "info", Format: "text"},
		Election: Election{Enabled: true, Namespace: "plimsoll-system", Duration: 15 * time.Second},
		Fleet:    agents.DefaultSettings(),
		VGDP:     admission.DefaultSettings(),
		Backups:  backup.DefaultSettings(),
	}
}

// Validate lists every value that must not be used.
func (c Controller) Validate() problems.List {
	found := ofSections(c)
	seen := map[string]bool{}
	for i, v := range c.Velero {
		at := found.At("").Element("velero", i)
		at.Must(!seen[v.Namespace], problems.Quote(v.Namespace)+" is named twice", "namespace")
		seen[v.Namespace] = true
	}
	return found
}

func validateNamespace(at problems.Section, key, name string) {
	wrong := validation.IsDNS1123Label(name)
	at.Must(len(wrong) == 0, "want the name of a namespace, got "+problems.Quote(name), key)
}

// KindOf returns the kind that a file states; empty if it states none.
func KindOf(data []byte) string {
	node, err := parse("", data)
	if err != nil || node == nil {
		return ""
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == "kind" {
			return strings.TrimSpace(node.Content[i+1].Value)
		}
	}
	return ""
}
