package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A value of its environment that Kubernetes' own client cannot read makes that
// speak, before any API server is asked; there is none.
func TestClientGoLogsInOurFormat(t *testing.T) {
	t.Parallel()
	kubeconfig := write(t, filepath.Join(t.TempDir(), "kubeconfig"), `{apiVersion: v1, kind: Config, current-context: c,
  clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`)
	const said = "Could not set feature gate"
	isText := regexp.MustCompile(`^time=\S+ level=\S+ msg=`)
	for name, row := range map[string]struct {
		args []string
		is   func(line string) bool
	}{
		"the agent, as text":      {[]string{"agent", "--state.dir", t.TempDir(), "--api.socket", filepath.Join(t.TempDir(), "s")}, isText.MatchString},
		"the controller, as text": {[]string{"controller"}, isText.MatchString},
		"the controller, as JSON": {[]string{"controller", "--log.format", "json"}, func(line string) bool { return json.Valid([]byte(line)) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := prepareAgent(t)
			a.cmd.Args = append([]string{binary}, append(row.args, "--kubeconfig", kubeconfig, "--web.listen-address", "127.0.0.1:0")...)
			a.cmd.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient=perhaps")
			require.NoError(t, a.cmd.Start())
			go func() {
				_ = a.cmd.Wait() // the status is in ProcessState
				close(a.ended)
			}()
			t.Cleanup(func() {
				_ = a.cmd.Process.Kill() // it may have ended
				<-a.ended
			})
			eventually(t, "the client speaks", func() error {
				if !strings.Contains(a.stderr.String(), said) {
					return errors.New(a.stderr.String())
				}
				return nil
			})
			for line := range strings.Lines(a.stderr.String()) {
				assert.True(t, row.is(strings.TrimSpace(line)), line)
			}
		})
	}
}
