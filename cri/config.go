package cri

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// Config is where the container runtime is reached, and how often it is asked.
type Config struct {
	Socket  string        `yaml:"socket" unit:"path" why:"The runtime's Unix socket on the host, as in the kubelet's containerRuntimeEndpoint without unix://. CRI-O: /run/crio/crio.sock, k3s: /run/k3s/containerd/containerd.sock. Its protocol lets a client start any container, so only root can use it."`
	Every   time.Duration `yaml:"every" why:"How often it is asked. Each time it reads the cgroups of all containers, and CRI-O may walk their writable layers, as for the kubelet every ten seconds."`
	Timeout time.Duration `yaml:"timeout" why:"How long its answer may take. The agent does not wait for it: the rule that needs it then says that it cannot judge."`
}

// DefaultConfig has the socket of containerd.
func DefaultConfig() Config {
	return Config{Socket: "/run/containerd/containerd.sock", Every: 30 * time.Second, Timeout: 10 * time.Second}
}

// maxTimeout is more than any answer takes that is still worth waiting for.
const maxTimeout = 5 * time.Minute

// Validate says which values must not be used.
func (c Config) Validate(at problems.Section) {
	at.Path("socket", c.Socket)
	at.Duration("every", c.Every, time.Second, problems.MaxDuration)
	at.Duration("timeout", c.Timeout, 100*time.Millisecond, maxTimeout)
	at.Must(c.Timeout <= c.Every, fmt.Sprintf("timeout (%s) must not be longer than every (%s)",
		problems.Duration(c.Timeout), problems.Duration(c.Every)), "every", "timeout")
}
