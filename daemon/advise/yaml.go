package advise

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

// configuration is YAML with the proposed changes, as `plimsoll config check`
// accepts it.
func configuration(proposals []Proposal) (string, error) {
	root := map[string]any{}
	for _, p := range proposals {
		if p.Outcome == Change {
			set(root, strings.Split(p.Key, "."), p.yaml())
		}
	}
	head := fmt.Sprintf("apiVersion: %s\nkind: %s\n", config.APIVersion, config.Agent{}.Kind())
	if len(root) == 0 {
		return head + "# no changes proposed\n", nil
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return "", fmt.Errorf("advise: %w", err)
	}
	return head + string(text), nil
}

func set(at map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, there := at[name].(map[string]any)
		if !there {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}

// yaml is the value as written in the configuration: durations as Go writes
// them.
func (p Proposal) yaml() any {
	if p.Unit == "seconds" {
		return time.Duration(p.Value * float64(time.Second)).Round(time.Microsecond).String()
	}
	return p.Value
}
