package e2e_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// The disk is a pipe that nobody reads, in the place of the file that the agent
// writes: whoever opens it hangs in the kernel until somebody does.
func TestEvictDiskHangsUrgentMemory(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.start()
	w.seen(presser, 140)
	half := filepath.Join(w.state, "evict.json.half")
	eventually(t, "the disk hangs", func() error { return syscall.Mkfifo(half, 0o600) })
	w.press(true)
	d := w.decided("it evicts nobody whom it cannot remember", func(d evict.Decision) bool { return d.Code == evict.CodeState })
	assert.Contains(t, d.Reason, "state: the disk does not answer in time")
	eventually(t, "the node is tainted", func() error { return w.tainted(corev1.TaintEffectNoSchedule) })
	require.NoError(t, w.unharmed(presser))

	w.weather.below.Store(true)
	d = w.decided("memory below its floor waits for no disk", isEvicted)
	going, _ := d.FirstEvicted()
	assert.Equal(t, presser.Name, going.Pod.Name)
	eventually(t, "the pod is gone", func() error { return w.gone(presser) })
	w.calm()

	pipe, err := os.OpenFile(half, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer pipe.Close()
	require.NoError(t, os.Remove(half))
	require.Zero(t, w.agent.end(syscall.SIGTERM), "the disk answers again")
	w.start()
	assert.NotContains(t, w.agent.stderr.String(), "eviction state; starting empty")
	assert.Len(t, w.evicted(), 1, "what was decided meanwhile is kept too")
}
