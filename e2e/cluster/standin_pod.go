package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// intoCgroups makes itself a pod's process and says so on descriptor 3, before it
// becomes the command, so that nothing the command does is counted elsewhere:
// "sh -c … sh CGROUP… -- COMMAND…".
const intoCgroups = `echo 1000 >/proc/self/oom_score_adj || exit
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done
shift; echo in >&3; exec "$@" 3>&-`

// run is a pod that the StandIn runs.
type run struct {
	group   Group
	process *child // nil: there is no command
	err     error  // why it could not be started
	began   metav1.Time
	told    corev1.PodPhase // what the API server knows
	killAt  time.Time       // zero: not to be ended
	gone    bool            // its processes and cgroups are
	deleted bool            // its object is
}

// Cgroup is the path of a pod's cgroup, below the mount point of each hierarchy.
func (s *StandIn) Cgroup(pod *corev1.Pod) string {
	return path.Join(s.root, "kubepods", map[corev1.PodQOSClass]string{
		corev1.PodQOSBestEffort: "besteffort", corev1.PodQOSBurstable: "burstable",
	}[pod.Status.QOSClass], "pod"+string(pod.UID))
}

// Processes are the ids of a pod's processes, read from its cgroups.
func (s *StandIn) Processes(pod *corev1.Pod) ([]int, error) {
	return s.trees.Child(s.Cgroup(pod)).pids()
}

// Output is what a pod's process has written so far, to stdout and stderr.
func (s *StandIn) Output(pod *corev1.Pod) ([]byte, error) {
	return os.ReadFile(s.output(pod))
}

func (s *StandIn) output(pod *corev1.Pod) string {
	return s.file + "-" + string(pod.UID) + ".log"
}

// Tail is the end of what the StandIn has said.
func (s *StandIn) Tail() string {
	return (&Process{log: s.file + ".log"}).Tail()
}

// care looks after the pods, when something changes and again when that failed
// or a grace is over.
func (s *StandIn) care(ctx context.Context) {
	again := time.NewTicker(retryPeriod)
	defer again.Stop()
	for {
		select {
		case <-s.look:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		present := map[types.UID]bool{}
		for _, pod := range s.mine() {
			present[pod.UID] = true
			if err := s.step(ctx, pod); err != nil && ctx.Err() == nil {
				s.log.Warn("pod", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "err", err)
			}
		}
		for uid := range s.runs {
			if !present[uid] {
				s.forget(ctx, uid)
			}
		}
	}
}

// mine are the pods of the node but for those it leaves.
func (s *StandIn) mine() (pods []*corev1.Pod) {
	for _, o := range s.pods.List() {
		pod := o.(*corev1.Pod)
		if !slices.ContainsFunc(s.leaves, func(leaves func(*corev1.Pod) bool) bool { return leaves(pod) }) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// step does the next thing a pod needs.
func (s *StandIn) step(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := deadline.Context(ctx, callTime)
	defer cancel()
	r := s.runs[pod.UID]
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case r == nil && pod.DeletionTimestamp != nil:
		return s.delete(ctx, pod)
	case r == nil && finished:
		return nil
	case r == nil:
		r = &run{group: s.trees.Child(s.Cgroup(pod)), began: metav1.Now()}
		s.runs[pod.UID] = r
		if r.err = s.begin(pod, r); r.err != nil {
			s.log.Warn("pod does not start", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "err", r.err)
		}
		return s.report(ctx, pod, r)
	case pod.DeletionTimestamp != nil:
		return s.end(ctx, pod, r)
	default:
		return s.report(ctx, pod, r)
	}
}

// begin makes the cgroup of a pod and starts its process.
func (s *StandIn) begin(pod *corev1.Pod, r *run) error {
	if err := r.group.Make(); err != nil {
		return err
	}
	container := pod.Spec.Containers[0]
	if len(container.Command) == 0 {
		return nil
	}
	log, err := os.OpenFile(s.output(pod), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := slices.Concat([]string{"-c", intoCgroups, "sh"}, r.group.Dirs(), []string{"--"}, container.Command, container.Args)
	cmd := exec.Command("sh", args...) //nolint:noctx // its life is the pod's
	cmd.Dir, cmd.Stdout, cmd.Stderr = container.WorkingDir, log, log
	if cmd.Env, err = environment(container); err != nil {
		return err
	}
	if r.process, err = startInside(cmd); err != nil {
		return err
	}
	s.ends.Go(func() {
		<-r.process.ended
		s.wake()
	})
	s.log.Info("pod runs", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "pid", cmd.Process.Pid, "cgroup", s.Cgroup(pod))
	return nil
}

// startInside starts intoCgroups and returns when it is there.
func startInside(cmd *exec.Cmd) (*child, error) {
	said, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd.ExtraFiles = []*os.File{says}
	process, err := startChild(cmd, syscall.SIGKILL)
	_ = says.Close() // the child has its own
	if err != nil {
		return nil, err
	}
	_ = said.SetReadDeadline(time.Now().Add(callTime)) // a pipe can have one
	if word, err := io.ReadAll(said); err != nil || len(word) == 0 {
		_ = process.signal(syscall.SIGKILL) // it may have ended
		<-process.ended
		return nil, errors.Join(fmt.Errorf("process does not enter its cgroup: %s", process.cmd.ProcessState), err)
	}
	return process, nil
}

func environment(c corev1.Container) ([]string, error) {
	all := []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			return nil, fmt.Errorf("env %s: a StandIn knows plain values only", e.Name)
		}
		all = append(all, e.Name+"="+e.Value)
	}
	return all, nil
}

// end goes on with the end of a pod that was deleted.
func (s *StandIn) end(ctx context.Context, pod *corev1.Pod, r *run) error {
	if r.killAt.IsZero() && r.process != nil {
		_ = r.process.signal(syscall.SIGTERM) // it may have ended
	}
	grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	if at := time.Now().Add(grace); r.killAt.IsZero() || at.Before(r.killAt) {
		r.killAt = at // of two deletions the more impatient one counts
	}
	if r.process != nil && r.process.alive() && time.Now().Before(r.killAt) {
		return nil
	}
	if r.deleted {
		return nil
	}
	if err := s.clear(ctx, r); err != nil {
		return err
	}
	err := s.delete(ctx, pod)
	r.deleted = err == nil
	return err
}

// clear ends what is left of a pod on this host.
func (s *StandIn) clear(ctx context.Context, r *run) error {
	if r.gone {
		return nil
	}
	if err := r.group.Remove(ctx); err != nil {
		return err
	}
	r.gone = true
	return nil
}

// forget a pod whose object is gone.
func (s *StandIn) forget(ctx context.Context, uid types.UID) {
	ctx, cancel := deadline.Context(ctx, callTime)
	defer cancel()
	if err := s.clear(ctx, s.runs[uid]); err != nil {
		s.log.Warn("pod", "uid", uid, "err", err)
		return
	}
	s.log.Info("pod is gone", "uid", uid)
	delete(s.runs, uid)
}

// delete the object of a pod of which nothing is left here.
func (s *StandIn) delete(ctx context.Context, pod *corev1.Pod) error {
	err := s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another pod of that name
		return nil
	}
	return err
}

// report tells the API server what has become of a pod, once.
func (s *StandIn) report(ctx context.Context, pod *corev1.Pod, r *run) error {
	status := r.status(pod)
	if r.told == status.Phase {
		return nil
	}
	if err := s.tell(ctx, pod, status); err != nil {
		return err
	}
	r.told = status.Phase
	return nil
}

func (s *StandIn) tell(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.UID, status)
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// statusPatch changes what is set in status of the object with that UID and of
// no other.
func statusPatch(uid types.UID, status any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}
