// Package outer is the host of plugins that run as processes of their own: it
// discovers their sockets, registers them as the kubelet registers its plugins,
// calls each of them once per round, and returns the Verdicts that inner plugins
// return too. What is on the wire, and what the answers mean, is package
// katalyst.
//
// # Usage
//
//	host := &outer.Host{Settings: func() outer.Config { … }, Log: log}
//	go host.Run(ctx)
//	verdicts := host.Ask(ctx, round)
//
// # Trust
//
// A plugin may hang, crash, lie, flood or vanish: only its own verdict is lost.
// Nothing in its answers is trusted beyond what katalyst.Converter lets through.
// Which pods may be evicted is decided elsewhere, on the host's own copy of
// them.
//
// # Concurrency
//
// Run and each socket have a goroutine, and each plugin has one during its
// calls. Ask belongs to one goroutine; Status may be called from any.
package outer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Config of the outer plugins. Its keys are among those of the inner plugins.
type Config struct {
	Dirs     []string      `yaml:"dirs" unit:"paths" why:"Directories searched for sockets of outer plugins, with their subdirectories; empty: the directory plugins beside state.dir, which the agent creates."`
	Uids     []string      `yaml:"uids" unit:"user IDs" why:"Users whose processes may be plugins: the user that listens on the socket (SO_PEERCRED)."`
	Names    []string      `yaml:"names" unit:"names" why:"Names of the plugins that may register; empty: any whose user is in uids."`
	Strict   bool          `yaml:"strict" why:"Whether a plugin must present a token: the content of the file of its name in tokenDir."`
	TokenDir string        `yaml:"tokenDir" unit:"path" why:"Directory of the tokens, one file per plugin; read only if strict is true. A file may have several tokens, the old and the new one, in lines."`
	Deadline time.Duration `yaml:"deadline" why:"How long a round waits for a plugin, for all its calls together. A later answer is used by the round in which it comes."`
	// CallTimeout is Katalyst's: deployed plugins count on it.
	CallTimeout time.Duration `yaml:"callTimeout" why:"How long one call of a plugin may take until it is cancelled and counts as failed. No round waits for it longer than deadline."`
	// Beside matters where a rival watches the plugin's directory.
	Beside   string `yaml:"beside" unit:"exclusive, report, mark or act" why:"What happens with a plugin whose directory another process watches, such as katalyst-agent, because it may be asked twice: left to that process (exclusive), asked as a dry run (report), asked to mark the node and evict no pod (mark), or asked as any other (act)."`
	Top      int    `yaml:"top" unit:"pods" why:"How many candidates a plugin is asked for at hard, at most: one, and one more for each that it named and that cannot be evicted. It may name so many unasked."`
	FullPods bool   `yaml:"fullPods" why:"Whether plugins see pods with environment, commands, arguments and all annotations, which may hold secrets. The agent then keeps them in memory."`
	// Annotations are read when the agent starts, like FullPods.
	Annotations []Annotations `yaml:"annotations" unit:"annotations" why:"Annotations of pods that a plugin sees beside those that the agent itself reads. A plugin's name is proved only if strict is true."`
	// NoExecute leaves the eviction to the taint manager.
	NoExecute      []string `yaml:"noExecute" unit:"plugin/condition" why:"Conditions of plugins that may carry a NoExecute taint: with it the taint manager evicts, past every limit of the agent."`
	ForceGraceZero []string `yaml:"forceGraceZero" unit:"names" why:"Plugins that may have pods deleted with a termination grace of 0: the API server removes such a pod's object while the pod may still run."`
}

// Annotations are those that one plugin may see.
type Annotations struct {
	Plugin string   `yaml:"plugin" unit:"name" why:"The plugin."`
	Keys   []string `yaml:"keys" unit:"keys" why:"The annotations' keys, such as katalyst.kubewharf.io/memory_enhancement."`
}

// AnnotationKeys returns the keys that the plugin may see, or for an empty name
// those that any plugin may see.
func (c Config) AnnotationKeys(plugin string) []string {
	var keys []string
	for _, a := range c.Annotations {
		if plugin == "" || a.Plugin == plugin {
			keys = append(keys, a.Keys...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// DefaultConfig trusts plugins that run as root.
func DefaultConfig() Config {
	return Config{Uids: []string{"0"}, Deadline: 3 * time.Second, CallTimeout: 10 * time.Second, Beside: BesideExclusive, Top: 5}
}

const (
	maxConfiguredDirs = 20 // each is walked every 10 s
	maxTop            = 100
	maxKeys           = 50 // of annotations: each costs memory for every pod
)

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	for i, dir := range c.Dirs {
		in := at.Element("dirs", i)
		in.Path("", dir)
		in.Must(dir != "/", `want an absolute path without .., // or a slash at its end, got "/"`)
	}
	at.Must(len(c.Dirs) <= maxConfiguredDirs, fmt.Sprintf("%d are more than %d directories", len(c.Dirs), maxConfiguredDirs), "dirs")
	for i, uid := range c.Uids {
		n, err := strconv.ParseUint(uid, 10, 32)
		at.Element("uids", i).Must(err == nil && strconv.FormatUint(n, 10) == uid, "want a user ID in digits without leading zeros, got "+problems.Quote(uid))
	}
	for i, name := range c.Names {
		mustName(at.Element("names", i), name)
	}
	at.PathOrNone("tokenDir", c.TokenDir)
	at.Must(!c.Strict || c.TokenDir != "", "strict needs a tokenDir: without it no plugin has a token", "strict", "tokenDir")
	at.Duration("deadline", c.Deadline, 100*time.Millisecond, time.Minute)
	at.OneOf("beside", c.Beside, BesideValues()...)
	at.Duration("callTimeout", c.CallTimeout, 100*time.Millisecond, time.Minute)
	at.Int("top", c.Top, 1, maxTop)
	for i, pair := range c.NoExecute {
		plugin, condition, found := cutLast(pair)
		in := at.Element("noExecute", i)
		in.Must(found && plugin != "" && condition != "", "want plugin/condition, got "+problems.Quote(pair))
		if found && plugin != "" {
			mustName(in, plugin)
		}
	}
	for i, name := range c.ForceGraceZero {
		mustName(at.Element("forceGraceZero", i), name)
	}
}

// mustName refuses a name under which no outer plugin can register.
func mustName(at problems.Section, name string, key ...string) {
	if err := katalyst.CheckName(name); err != nil {
		at.Must(false, "no outer plugin can have it: "+err.Error(), key...)
	}
}

// Validate says which values must not be used, such as kubectl's last-applied annotation,
// which repeats the whole pod with its environment.
func (a Annotations) Validate(at problems.Section) {
	mustName(at, a.Plugin, "plugin")
	at.Must(len(a.Keys) > 0 && len(a.Keys) <= maxKeys, fmt.Sprintf("want 1 to %d keys, got %d", maxKeys, len(a.Keys)), "keys")
	for i, key := range a.Keys {
		in := at.Element("keys", i)
		in.Must(len(validation.IsQualifiedName(strings.ToLower(key))) == 0, "want an annotation's key, got "+problems.Quote(key))
		in.Must(key != corev1.LastAppliedConfigAnnotation, key+" repeats the whole pod, environment and all")
	}
}

// cutLast splits at the last slash, because a plugin's name may contain
// slashes.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// Round is the input of all plugins in one round.
type Round struct {
	Time time.Time
	// Pods of the node; none without a cluster.
	Pods []katalyst.Pod
	// Unevictable is, by plugin, how many of the pods that it named for its threshold
	// could not be evicted in the last round: so many more are asked for.
	Unevictable map[string]int
	// Disruptions returns what is known of the PodDisruptionBudgets of pods, by UID, for
	// the eviction records of a plugin that reports candidates; nil: nothing. It may be
	// called by several goroutines, and may send requests.
	Disruptions func(ctx context.Context, uids []string) map[string]katalyst.Disruption
	// Graces receives each reported or missed threshold.
	Graces GraceTimer
	// MaxAge is how old the last answer may be and still count.
	MaxAge time.Duration
	// EvictAge is how long ago a call may have begun and its answer still evict pods; a
	// later one marks the node. 0: MaxAge.
	EvictAge time.Duration
}

// GraceTimer applies the eviction grace period: a threshold must be met for that
// long. It may be called by several goroutines.
type GraceTimer interface {
	// Registered: a process (plugins.Verdict.Process) has just been registered under this
	// name and has not answered yet. It may be the one before, connected anew.
	Registered(plugin, process string, at time.Time)
	// Reported takes a verdict and returns when its grace period ends; the plugin
	// is not asked for pods before.
	Reported(v plugins.Verdict, at time.Time) (due time.Time)
	// Missed: the plugin did not answer.
	Missed(plugin string)
}
