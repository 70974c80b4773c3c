package vm_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

// TestNUMA records a machine with two NUMA nodes, for the tests of probes.
func TestNUMA(t *testing.T) {
	skipUnrecorded(t)
	t.Parallel()
	n := startNode(t, vm.Options{Name: "numa", MemMiB: 1024, NUMA: 2}, "./e2e/vm/steady", "./probes/recordfixture")
	t.Run("recorded", func(t *testing.T) {
		n := n.with(t)
		n.work("here", "-p MemoryAccounting=yes -p NUMAPolicy=bind -p NUMAMask=0", "-memory 24")
		n.work("there", "-p MemoryAccounting=yes -p NUMAPolicy=bind -p NUMAMask=1", "-memory 64")
		n.record(machine{
			name:    "vm-v2-numa",
			load:    "two NUMA nodes of 512 MiB; here.service is bound to node 0 and runs steady -memory 24, there.service to node 1 and runs steady -memory 64",
			cgroups: "/system.slice/here.service,/system.slice/there.service",
			want:    "sys/devices/system/node/node1/meminfo", hide: []string{n.mac(), n.bootID()},
		}, nil)
	})
}
