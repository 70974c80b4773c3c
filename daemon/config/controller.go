package config

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Controller is the configuration of the controller, which runs once per
// cluster.
type Controller struct {
	Web        ControllerWeb        `yaml:"web" why:"The HTTP server for metrics, health and the status page; everything on it is read-only."`
	Log        Log                  `yaml:"log" why:"The log on standard error."`
	Kubernetes ControllerKubernetes `yaml:"kubernetes" why:"How the cluster is reached."`
	Election   Election             `yaml:"election" why:"The leader election: which of several replicas acts."`
	Velero     []Velero             `yaml:"velero" unit:"Velero installations" why:"The Velero installations of the cluster; none: each namespace that has a Backup or a node-agent in it is one."`
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

// ControllerKubernetes configures how the cluster is reached.
type ControllerKubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" unit:"path" why:"The kubeconfig of the API server; empty: the service account of the pod."`
}

// Election configures the leader election.
type Election struct {
	Enabled   bool          `yaml:"enabled" why:"Whether replicas elect a leader. Without an election only one replica may run."`
	Namespace string        `yaml:"namespace" unit:"name" why:"The namespace of the Lease plimsoll-controller."`
	Duration  time.Duration `yaml:"duration" why:"How long a leader that does not renew its Lease counts as alive, so how long no replica acts after the leader was killed."`
}

// Velero is one Velero installation of the cluster.
type Velero struct {
	Namespace          string `yaml:"namespace" unit:"name" why:"Its namespace."`
	NodeAgentConfigMap string `yaml:"nodeAgentConfigMap" unit:"name" why:"The ConfigMap of its node-agents; empty: the one that they name on their command lines."`
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

const (
	maxBackups   = 1000
	maxHideAbove = 1_000_000
	minGateLease = 4 * time.Second
	maxElection  = 10 * time.Minute
	maxAging     = 30 * 24 * time.Hour
)

// Validate lists every value that must not be used, in the order of the keys.
func (c Controller) Validate() []Problem {
	var p problems
	for i, address := range c.Web.ListenAddresses {
		why := addressProblem(address)
		p.must(why == "", why, fmt.Sprintf("web.listenAddresses[%d]", i))
	}
	p.must(c.Web.ConfigFile == "" || isCleanPath(c.Web.ConfigFile), wantCleanPath(c.Web.ConfigFile), "web.configFile")
	oneOf(&p, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(&p, "log.format", c.Log.Format, "text", "json")
	p.must(c.Kubernetes.Kubeconfig == "" || isCleanPath(c.Kubernetes.Kubeconfig), wantCleanPath(c.Kubernetes.Kubeconfig), "kubernetes.kubeconfig")
	namespace(&p, "election.namespace", c.Election.Namespace)
	// The API server counts a Lease's duration in whole seconds.
	durationBetween(&p, "election.duration", c.Election.Duration, time.Second, maxElection)
	p.must(c.Election.Duration%time.Second == 0, "want whole seconds", "election.duration")
	seen := map[string]bool{}
	for i, v := range c.Velero {
		key := fmt.Sprintf("velero[%d].namespace", i)
		namespace(&p, key, v.Namespace)
		p.must(!seen[v.Namespace], quote(v.Namespace)+" is named twice", key)
		seen[v.Namespace] = true
		wrong := validation.IsDNS1123Subdomain(v.NodeAgentConfigMap)
		p.must(v.NodeAgentConfigMap == "" || len(wrong) == 0, "want the name of a ConfigMap, got "+quote(v.NodeAgentConfigMap), fmt.Sprintf("velero[%d].nodeAgentConfigMap", i))
	}
	durationBetween(&p, "agents.monitorGracePeriod", c.Fleet.Grace, time.Second, time.Hour)
	durationBetween(&p, "agents.taintRemovalDelay", c.Fleet.TaintsStay, c.Fleet.Grace, maxDuration)
	durationBetween(&p, "agents.evictions.period", c.Fleet.Evictions.Per, time.Second, maxDuration)
	durationBetween(&p, "agents.evictions.ownerInterval", c.Fleet.Evictions.PerOwner, time.Second, maxDuration)
	durationBetween(&p, "agents.evictions.brakedInterval", c.Fleet.Evictions.BrakedPer, c.Fleet.Evictions.UrgentPer, maxDuration)
	durationBetween(&p, "agents.evictions.urgentInterval", c.Fleet.Evictions.UrgentPer, time.Second, maxDuration)
	durationBetween(&p, "agents.evictions.maxGrace", c.Fleet.Evictions.MaxGrace, time.Second, maxDuration)
	for i, name := range c.Fleet.Evictions.ForceGraceZero {
		p.must(name != "" && len(name) <= maxPlugName, fmt.Sprintf("want a plugin's name, got %s", quote(name)), fmt.Sprintf("agents.evictions.forceGraceZero[%d]", i))
	}
	// A Gate's lease and its renewal are counted in seconds.
	durationBetween(&p, "vgdp.leaseDuration", c.VGDP.LeaseDuration, minGateLease, maxElection)
	p.must(c.VGDP.LeaseDuration%time.Second == 0, "want whole seconds", "vgdp.leaseDuration")
	intBetween(&p, "vgdp.reasonsPerSecond", c.VGDP.NotesPerSecond, 1, maxBackups)
	intBetween(&p, "vgdp.hideAbove", c.VGDP.QuietAbove, 0, maxHideAbove)
	durationBetween(&p, "backups.resync", c.Backups.Resync, time.Second, time.Hour)
	intBetween(&p, "backups.limit", c.Backups.Limit, 0, maxBackups)
	durationBetween(&p, "backups.aging", c.Backups.Aging, 0, maxAging)
	durationBetween(&p, "backups.stuckAfter", c.Backups.StuckAfter, 0, maxDuration)
	return p
}

func namespace(p *problems, key, name string) {
	wrong := validation.IsDNS1123Label(name)
	p.must(len(wrong) == 0, fmt.Sprintf("want the name of a namespace, got %s", quote(name)), key)
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
