package chart_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// patience is how long a test waits for what should come soon.
const patience = time.Minute

// container is the one of a pod, run as a container runtime would: in a root that
// holds the image and the pod's volumes alone, as the user and with the process
// namespace that the pod says, with its token. It is the HOST'S NETWORK that it is
// in, its cgroup is that of this test, and nobody restarts it. What a pod keeps on
// its host is kept in a directory of the test.
type container struct {
	t       *testing.T
	c       *cluster.Cluster
	pod     *corev1.Pod
	root    string
	address string // of the pod
	cmd     *exec.Cmd
	out     live.Output
	ended   chan struct{}
	// configs are the directories of ConfigMaps by their names.
	configs map[string]string
}

// contain a pod that the API server has given a node.
func contain(t *testing.T, c *cluster.Cluster, pod *corev1.Pod, host string) *container {
	t.Helper()
	k := &container{
		t: t, c: c, pod: pod, root: unpacked(t), ended: make(chan struct{}), configs: map[string]string{},
		address: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)),
	}
	spec := pod.Spec.Containers[0]
	args := slices.Concat([]string{"--mount", "--", "sh", "-c", k.script(spec, host), "sh", k.root}, k.args(spec))
	k.cmd = exec.Command("unshare", args...)
	if !pod.Spec.HostPID {
		k.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	k.cmd.Env, k.cmd.Stdout, k.cmd.Stderr = k.env(spec), &k.out, &k.out
	require.NoError(t, k.cmd.Start())
	go func() {
		_ = k.cmd.Wait() // the status is in ProcessState
		close(k.ended)
	}()
	t.Cleanup(func() {
		_ = k.cmd.Process.Kill() // it may have ended
		<-k.ended
		if t.Failed() {
			t.Logf("%s said:\n%s", pod.Name, k.out.String())
		}
	})
	return k
}

// script makes the container out of a mount namespace of its own and becomes its
// program: "sh -c … sh ROOT ARG…".
func (k *container) script(spec corev1.Container, host string) string {
	lines := []string{"set -e", `mount --bind "$1" "$1"`, `mkdir -p "$1/proc" "$1/sys"`, `mount --rbind /sys "$1/sys"`}
	if k.pod.Spec.HostPID {
		lines = append(lines, `mount --rbind /proc "$1/proc"`)
	} else {
		lines = append(lines, `mount -t proc proc "$1/proc"`)
	}
	for _, m := range spec.VolumeMounts {
		from, to := k.volume(m.Name, host), filepath.Join(k.root, m.MountPath)
		require.NoError(k.t, os.MkdirAll(to, 0o755))
		lines = append(lines, fmt.Sprintf("mount --rbind %q %q", from, to))
		if m.ReadOnly {
			below := "" // what is mounted there stays as it is
			if m.RecursiveReadOnly != nil {
				below = "/"
			}
			lines = append(lines, fmt.Sprintf(`for m in $(awk -v d=%q -v below=%q '$5 == d || below != "" && index($5, d below) == 1 {print $5}' /proc/self/mountinfo); do mount -o remount,bind,ro "$m"; done`, to, below))
		}
	}
	require.True(k.t, *spec.SecurityContext.ReadOnlyRootFilesystem)
	lines = append(lines, `mount -o remount,bind,ro "$1"`, `root=$1; shift; exec `+k.become()+` "$root" /plimsoll "$@"`)
	return strings.Join(lines, "\n")
}

// become says how the root, the user and the capabilities are changed. Who is no
// longer root has no capability left; root has those that the pod says, and the one
// that changes the root.
func (k *container) become() string {
	rules := k.pod.Spec.Containers[0].SecurityContext
	if rules.Privileged != nil && *rules.Privileged {
		return "chroot"
	}
	require.NotNil(k.t, rules.RunAsUser)
	require.False(k.t, *rules.AllowPrivilegeEscalation)
	require.Equal(k.t, []corev1.Capability{"ALL"}, rules.Capabilities.Drop)
	kept := "-all,+sys_chroot"
	for _, c := range rules.Capabilities.Add {
		kept += ",+" + strings.ToLower(string(c))
	}
	drop := "setpriv --no-new-privs --inh-caps=-all --bounding-set=" + kept
	if *rules.RunAsUser == 0 {
		return drop + " chroot"
	}
	require.Empty(k.t, rules.Capabilities.Add, "a user other than root has none")
	return fmt.Sprintf("%s,+setuid,+setgid chroot --userspec=%d:%d --groups=", drop, *rules.RunAsUser, *rules.RunAsGroup)
}

// value with the references to the environment that a kubelet resolves.
func (k *container) value(s string) string {
	return strings.NewReplacer("$(NODE_NAME)", k.pod.Spec.NodeName, "$(POD_IP)", k.address).Replace(s)
}

// args but for the pod's own loopback address, which here is everybody's.
func (k *container) args(spec corev1.Container) (list []string) {
	for _, a := range spec.Args {
		if !strings.HasPrefix(a, "--web.listen-address=127.0.0.1:") {
			list = append(list, k.value(a))
		}
	}
	return list
}

func (k *container) env(spec corev1.Container) []string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(k.c.Admin.Host, "https://"))
	require.NoError(k.t, err)
	list := []string{"PATH=" + os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, e := range spec.Env {
		switch {
		case e.ValueFrom == nil:
		case e.ValueFrom.FieldRef.FieldPath == "spec.nodeName":
			e.Value = k.pod.Spec.NodeName
		case e.ValueFrom.FieldRef.FieldPath == "status.podIP":
			e.Value = k.address
		default:
			k.t.Fatalf("env %s: %v", e.Name, e.ValueFrom)
		}
		list = append(list, e.Name+"="+e.Value)
	}
	return list
}

// get asks the pod's address.
func (k *container) get(path string) (status int, body string, err error) {
	port := k.pod.Spec.Containers[0].Ports[0].ContainerPort
	ctx, cancel := context.WithTimeout(k.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(k.address, strconv.Itoa(int(port)))+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// ready waits until its readiness probe would succeed.
func (k *container) ready() {
	k.t.Helper()
	probe := k.pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	eventually(k.t, k.pod.Name+" is ready", func() error {
		select {
		case <-k.ended:
			k.t.Fatalf("%s ended: %s", k.pod.Name, k.cmd.ProcessState)
		default:
		}
		status, body, err := k.get(probe.Path)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// metric without labels; empty: there is none.
func (k *container) metric(name string) string {
	_, body, err := k.get("/metrics")
	if err != nil {
		return err.Error()
	}
	if m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return ""
}

// end it as a kubelet does.
func (k *container) end() {
	k.t.Helper()
	require.NoError(k.t, k.cmd.Process.Signal(syscall.SIGTERM))
	k.wait()
	require.Zero(k.t, k.cmd.ProcessState.ExitCode(), k.out.String())
}

// wait for its end.
func (k *container) wait() {
	k.t.Helper()
	select {
	case <-k.ended:
	case <-deadline.After(patience):
		k.t.Fatalf("%s does not end", k.pod.Name)
	}
}

// eventually asks again until there is no complaint.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	deadline.Within(t, patience, what, ask)
}
