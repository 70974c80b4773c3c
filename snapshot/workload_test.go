package snapshot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPodUIDOfBothDrivers(t *testing.T) {
	const uid, static = "6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11", "0123456789abcdef0123456789abcdef"
	for cgroup, want := range map[string]string{
		"/kubepods/burstable/pod" + uid: uid,
		"/kubepods/besteffort/pod6f7c":  "6f7c",
		"/kubepods/pod" + uid:           uid,
		"/kubepods/pod" + static:        static,
		"/kubelet/kubepods/pod" + uid:   uid,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f7c1c9e_3f0a_4d8e_9a51_0b5b6f6f2c11.slice":   uid,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod6f7c1c9e_3f0a_4d8e_9a51_0b5b6f6f2c11.slice": uid,
		"/kubepods.slice/kubepods-pod6f7c1c9e_3f0a_4d8e_9a51_0b5b6f6f2c11.slice":                                      uid,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice":                         static,
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod6f7c1c9e_3f0a_4d8e_9a51_0b5b6f6f2c11.slice":        uid,

		"/kubepods":           "",
		"/kubepods/burstable": "",
		"/kubepods/burstable/pod" + uid + "/c0ffee":                          "",
		"/kubepods.slice/kubepods-pod6f7c.slice/cri-containerd-c0ffee.scope": "",
		"/kubepods/pod":                             "",
		"/kubepods.slice/kubepods-pod.slice":        "",
		"/machine/pod" + uid:                        "",
		"/burstable/pod" + uid:                      "",
		"/system.slice/podman.service":              "",
		"/system.slice/my-pod6f7c.slice":            "",
		"/notkubepods.slice/notkubepods-pod1.slice": "",
		"/kubepods/pod1 2":                          "",
		"/kubepods/pod1_2":                          "",
		"/":                                         "",
		"":                                          "",
	} {
		assert.Equal(t, want, PodUID(cgroup), cgroup)
	}
	w := NewWorkload("/kubepods/pod" + uid)
	assert.Equal(t, Workload{Cgroup: "/kubepods/pod" + uid, Kind: KindPod, PodUID: uid, Name: "pod " + uid}, w)
}

func TestWorkloadKindOfUnit(t *testing.T) {
	for cgroup, want := range map[string]struct {
		kind Kind
		name string
	}{
		"/system.slice/cron.service":                       {KindService, "cron.service"},
		"/user.slice/user-0.slice/session-1.scope":         {KindService, "session-1.scope"},
		"/system.slice/system-getty.slice":                 {KindSlice, "/system.slice/system-getty.slice"},
		"/system.slice/dev-disk-by\\x2dlabel-root.service": {KindService, "dev-disk-by-label-root.service"},
		"/system.slice/a\\x2D\\x20b.service":               {KindService, "a- b.service"},
		"/system.slice/evil\\x1b[31m\\x0a.service":         {KindService, "evil\\x1b[31m\\x0a.service"},
		"/system.slice/odd\\x2\\xzz\\.service":             {KindService, "odd\\x2\\xzz\\.service"},
		"/docker/c0ffee":                                   {KindOther, "/docker/c0ffee"},
		"/process_api/0042f01aef02899009e24616a7c56bdf":    {KindOther, "/process_api/0042f01aef02899009e24616a7c56bdf"},
		"/kubepods.slice/kubepods-burstable.slice":         {KindSlice, "/kubepods.slice/kubepods-burstable.slice"},
		"/init.scope": {KindService, "init.scope"},
		"/system.slice/docker-c0ffee.scope/delegated/by-name": {KindOther, "/system.slice/docker-c0ffee.scope/delegated/by-name"},
	} {
		w := NewWorkload(cgroup)
		assert.Equal(t, Workload{Cgroup: cgroup, Kind: want.kind, Name: want.name}, w)
	}
}

func FuzzPodUID(f *testing.F) {
	f.Add("/kubepods/burstable/pod6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11")
	f.Add("/kubepods.slice/kubepods-pod6f7c1c9e_3f0a_4d8e_9a51_0b5b6f6f2c11.slice")
	f.Add("/a-kubepods-besteffort-pod_-pod0.slice")
	f.Add("/system.slice/dev-disk-by\\x2dlabel.service")
	f.Fuzz(func(t *testing.T, cgroup string) {
		w := NewWorkload(cgroup)
		require.Equal(t, cgroup, w.Cgroup)
		require.Equal(t, w.Kind == KindPod, w.PodUID != "")
		if w.PodUID == "" {
			require.LessOrEqual(t, len(w.Name), len(cgroup)+1)
			if !strings.Contains(cgroup, `\`) {
				require.True(t, strings.HasSuffix(cgroup, w.Name) || strings.HasSuffix(strings.TrimRight(cgroup, "/"), w.Name))
			}
			return
		}
		// The kubelet would make these two cgroups for that UID.
		require.Equal(t, w.PodUID, PodUID("/kubepods/burstable/pod"+w.PodUID))
		require.Equal(t, w.PodUID, PodUID("/kubepods.slice/kubepods-pod"+strings.ReplaceAll(w.PodUID, "-", "_")+".slice"))
	})
}
