package skip

import "testing"

func TestNeedsVM(t *testing.T) { t.Log("looking"); t.Skip("no qemu: apt-get install\nqemu-system-x86") }
func TestSilent(t *testing.T)  { t.SkipNow() }
func TestSubs(t *testing.T) {
	t.Run("v1", func(t *testing.T) { t.Skipf("no %s here", "cgroup v1") })
	t.Run("v2", func(t *testing.T) {})
}
