package chart_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume is a directory with what the pod's volume holds. Directories of the host
// that are not the kernel's lie below host.
func (k *container) volume(name, host string) string {
	k.t.Helper()
	at := slices.IndexFunc(k.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	require.GreaterOrEqual(k.t, at, 0, name)
	v := k.pod.Spec.Volumes[at]
	dir := filepath.Join(k.t.TempDir(), name)
	switch {
	case v.HostPath != nil && (v.HostPath.Path == "/sys" || v.HostPath.Path == "/proc"):
		return v.HostPath.Path
	case v.HostPath != nil:
		require.Equal(k.t, corev1.HostPathDirectoryOrCreate, *v.HostPath.Type)
		dir = filepath.Join(host, v.HostPath.Path)
		require.NoError(k.t, os.MkdirAll(dir, 0o755))
	case v.ConfigMap != nil:
		k.configs[v.ConfigMap.Name] = dir
		require.NoError(k.t, os.MkdirAll(dir, 0o755))
		k.follow()
	case v.Projected != nil:
		require.NoError(k.t, os.MkdirAll(dir, 0o755))
		k.token(dir)
	default:
		require.NotNil(k.t, v.EmptyDir, name)
		require.NoError(k.t, os.MkdirAll(dir, 0o777))
		require.NoError(k.t, os.Chmod(dir, 0o777)) // as a kubelet's
	}
	return dir
}

// token of the pod's account, bound to the pod.
func (k *container) token(dir string) {
	k.t.Helper()
	given, err := k.c.Client.CoreV1().ServiceAccounts(k.pod.Namespace).CreateToken(k.t.Context(), k.pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: k.pod.Name, UID: k.pod.UID},
		}}, metav1.CreateOptions{})
	require.NoError(k.t, err)
	for name, content := range map[string]string{"token": given.Status.Token, "ca.crt": string(k.c.Admin.CAData), "namespace": k.pod.Namespace} {
		require.NoError(k.t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

// follow writes the ConfigMaps as they are now, as a kubelet does: a new
// directory, and one rename that swaps the link to it.
func (k *container) follow() {
	k.t.Helper()
	for name, dir := range k.configs {
		m, err := k.c.Client.CoreV1().ConfigMaps(k.pod.Namespace).Get(k.t.Context(), name, metav1.GetOptions{})
		require.NoError(k.t, err)
		fresh, err := os.MkdirTemp(dir, "..data-")
		require.NoError(k.t, err)
		require.NoError(k.t, os.Chmod(fresh, 0o755))
		for _, file := range slices.Sorted(maps.Keys(m.Data)) {
			require.NoError(k.t, os.WriteFile(filepath.Join(fresh, file), []byte(m.Data[file]), 0o644))
			if err := os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)); !errors.Is(err, os.ErrExist) {
				require.NoError(k.t, err)
			}
		}
		next := filepath.Join(dir, "..data_tmp")
		require.NoError(k.t, os.Symlink(filepath.Base(fresh), next))
		require.NoError(k.t, os.Rename(next, filepath.Join(dir, "..data")))
	}
}
