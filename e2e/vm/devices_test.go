package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVMForwardsOnlyGivenAddresses(t *testing.T) {
	m := &VM{host: "127.1.2.3", port: 4022}
	assert.Equal(t, "user,id=n0,restrict=on,ipv6=off,hostfwd=tcp:127.1.2.3:4022-:22", m.network())
	m.options.Forward = map[string]string{"10.0.2.101:80": "127.0.0.1:8080", "10.0.2.100:6443": "127.9.8.7:1"}
	assert.Equal(t, "user,id=n0,restrict=on,ipv6=off,hostfwd=tcp:127.1.2.3:4022-:22"+
		",guestfwd=tcp:10.0.2.100:6443-cmd:busybox nc 127.9.8.7 1"+
		",guestfwd=tcp:10.0.2.101:80-cmd:busybox nc 127.0.0.1 8080", m.network())
}

func TestVMShareSize(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("not installed (make deps): mkfs.ext4")
	}
	for name, files := range map[string]map[string]int{
		"nothing":           {},
		"one large file":    {"large": 50 << 20},
		"many small ones":   manySmall(2000),
		"one in the depths": {"a/b/c/d/e": 3},
	} {
		t.Run(name, func(t *testing.T) {
			m := &VM{dir: t.TempDir(), options: Options{Share: t.TempDir()}}
			for file, size := range files {
				path := filepath.Join(m.options.Share, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600))
			}
			args, err := m.disks()
			require.NoError(t, err)
			assert.Contains(t, args, "if=none,format=raw,cache=unsafe,id=share,file=share,readonly=on")
			said, err := exec.CommandContext(t.Context(), "e2fsck", "-fn", filepath.Join(m.dir, "share")).CombinedOutput()
			assert.NoError(t, err, "%s", said)
		})
	}
}

func manySmall(n int) map[string]int {
	files := map[string]int{}
	for i := range n {
		files[strings.Repeat("f", 1+i%50)+string(rune('a'+i%26))+strings.Repeat("g", i/50)] = 1
	}
	return files
}

func TestVMShareMissing(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	_, err := (&VM{dir: t.TempDir(), options: Options{Share: none}}).disks()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, none)
}
