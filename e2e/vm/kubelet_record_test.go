package vm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsRecorded records a node while pods of all classes run, of which one is
// deleted and followed by another.
func podsRecorded(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		skipUnrecorded(t)
		k := shared.with(t)
		k.run("mkfs.ext4 -q -O ^has_journal /dev/vdc && mkdir -p /srv/work && mount /dev/vdc /srv/work")
		k.deploy("worker", worker("", "96Mi", "-file", "/srv/work/file", "-write", "4", "-read", "2", "-cpu", "100", "-memory", "32"))
		k.deploy("throttled", worker("100m", "64Mi", "-cpu", "300"))
		k.deploy("waiter", idle())
		for _, name := range []string{"worker", "throttled", "waiter"} {
			k.running(name)
		}
		k.stage("three pods run")
		waiter := k.running("waiter")
		a := k.record(machine{
			name: "vm-v2-kubelet",
			load: "cgroup v2, systemd, kubelet 1.37 and containerd; pods: worker (burstable, limit 96 MiB) runs steady -write 4 -read 2 -cpu 100 -memory 32 on vdc," +
				" throttled (guaranteed, limits 100m and 64 MiB) runs steady -cpu 300, waiter (best effort) does nothing and is replaced by another halfway",
			cgroups: "/kubepods.slice,/system.slice/kubelet.service,/system.slice/containerd.service,/system.slice/ssh.service",
			want:    "/memory.stat", hide: []string{k.mac(), k.bootID()},
		}, func() {
			require.NoError(t, k.cluster.Client.CoreV1().Pods(waiter.Namespace).Delete(t.Context(), waiter.Name, metav1.DeleteOptions{}))
			k.ended(waiter)
			k.running("waiter", waiter.UID)
		})
		k.stage("recorded")
		slice := strings.ReplaceAll(string(waiter.UID), "-", "_")
		assert.True(t, slices.ContainsFunc(a.Files, func(f txtar.File) bool {
			return strings.HasSuffix(f.Name, "/removed") && strings.Contains(string(f.Data), slice)
		}), "the pod goes while it is recorded")
	}
}

// worker is a pod that works steadily, burstable without a limit of CPU.
func worker(cpu, memory string, flags ...string) corev1.PodSpec {
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	if cpu != "" {
		limits[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	return corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "steady", Image: imageOf("steady"), Args: flags,
			Resources:    corev1.ResourceRequirements{Limits: limits},
			VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: "/srv/work"}},
		}},
		Volumes: []corev1.Volume{{
			Name:         "work",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/work"}},
		}},
	}
}
