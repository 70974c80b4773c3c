package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// In the place of go: each command has one of its own, which holds a lock and waits.
// That which builds the control plane is done where the file "built" is there, and
// fails when the file "fail" is.
const goThatWaits = `#!/bin/sh
case "$*" in
"list -m") echo m; exit ;;
list*) echo m/a; exit ;;
*kube-apiserver) [ ! -e "$RUN_TEST/built" ] || exit 0 ;;
esac
until=over
case "$*" in *kube-apiserver) until=fail ;; esac
flock --shared "$RUN_TEST/lock" sh -c 'echo >>"$RUN_TEST/begun"; while [ ! -e "$RUN_TEST/$1" ] && [ -d "$RUN_TEST" ]; do sleep 0.1; done' sh $until
case "$*" in *kube-apiserver) exit 1 ;; esac
`

func TestRunEndsWhatItBegan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		built string // a file that tells that the control plane is built
		begun int
		end   func(run *os.Process, dir string) error
		exit  int
	}{
		"before the control plane is built": {"", 2, func(run *os.Process, _ string) error { return run.Signal(syscall.SIGTERM) }, 143},
		"among the tests":                   {"built", 4, func(run *os.Process, _ string) error { return run.Signal(syscall.SIGTERM) }, 143},
		"told again until it has ended": {"built", 4, func(run *os.Process, _ string) error {
			go func() {
				for run.Signal(syscall.SIGTERM) == nil { // until it is waited for
					runtime.Gosched()
				}
			}()
			return nil
		}, 143},
		"a control plane that cannot be built": {"", 2, func(_ *os.Process, dir string) error {
			return os.WriteFile(filepath.Join(dir, "fail"), nil, 0o600)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script, err := os.ReadFile("run.sh")
			require.NoError(t, err)
			write(t, filepath.Join(dir, "e2e/run.sh"), string(script))
			write(t, filepath.Join(dir, "bin/go"), goThatWaits)
			require.NoError(t, os.Chmod(filepath.Join(dir, "bin/go"), 0o755))
			write(t, filepath.Join(dir, "lock"), "")
			if c.built != "" {
				write(t, filepath.Join(dir, c.built), "")
			}
			run := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "e2e/run.sh"), "test")
			run.Env = append(os.Environ(), "RUN_TEST="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			require.NoError(t, run.Start())
			free := func() bool {
				return exec.CommandContext(t.Context(), "flock", "--exclusive", "--nonblock", filepath.Join(dir, "lock"), "true").Run() == nil
			}
			t.Cleanup(func() {
				for _, name := range []string{"over", "fail"} {
					_ = os.WriteFile(filepath.Join(dir, name), nil, 0o600)
				}
			})
			deadline.Eventually(t, func() bool {
				begun, _ := os.ReadFile(filepath.Join(dir, "begun"))
				return strings.Count(string(begun), "\n") == c.begun
			}, 20*time.Second, 50*time.Millisecond)
			require.NoError(t, c.end(run.Process, dir))
			_ = run.Wait()
			assert.Equal(t, c.exit, run.ProcessState.ExitCode())
			deadline.Eventually(t, free, 10*time.Second, 50*time.Millisecond, "what it began goes on")
		})
	}
}
