package judge

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/judgement"
)

// planned is how many recordings of a class there shall be.
type planned struct {
	class   string
	healthy bool
	count   int
	what    string
}

// plan of the set: a hundred recordings and more, of which sixty and more are healthy
// and busy, and a third held out.
func plan() []planned {
	return []planned{
		{"calm", true, 4, "a machine that does little"},
		{"busy disk", true, 20, "builds, package upgrades, image pulls, databases with fsync (PostgreSQL, Redis, SQLite), backups by restic and kopia, log storms, cron at the hour, compaction; 1 to 4 disks of 100 to 3000 requests a second"},
		{"busy CPU", true, 12, "JVM start, builds, batch jobs of several weights, quotas"},
		{"full memory", true, 9, "page cache, tmpfs, a NUMA node, zram and swap in use without a stall"},
		{"own limit", true, 8, "a pod at its own memory limit, with and without swap"},
		{"busy network", true, 8, "a link full by its own and by others, loss without use"},
		{"slow disk", true, 6, "a disk that is slow by itself"},
		{"filesystem", false, 4, "a filesystem filled by images or by one pod"},
		{"uncounted IO", false, 6, "IO that the kernel counts for no workload"},
		{"memory shortage", false, 14, "leak, fork storm, live lock, with swap and zram, two loads at once"},
		{"disk contention", false, 10, "two workloads on a disk, by requests and by bytes, on 1 to 4 disks"},
		{"CPU contention", false, 4, "a service that waits for a CPU because of another pod"},
		{"network contention", false, 4, "a full link with loss, by its own and by others"},
	}
}

// goOn is how many seconds a recording has to go on after its load, so that the end of a
// latched level is seen.
const goOn = 60

// planText is what is missing of the plan.
func planText(r *Report) string {
	var b strings.Builder
	b.WriteString("| class | recordings | healthy | held out | planned | missing | what is to come |\n|---|---|---|---|---|---|---|\n")
	var all, healthy, heldOut, whole, missing int
	for _, p := range plan() {
		n, h, o := 0, 0, 0
		for _, one := range r.Recordings {
			if one.Class == p.class {
				n, h, o = n+1, h+count(one.Healthy()), o+count(one.HeldOut)
			}
		}
		less := max(0, p.count-n)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", p.class, n, h, o, p.count, less, p.what)
		all, healthy, heldOut, whole, missing = all+n, healthy+h, heldOut+o, whole+p.count, missing+less
	}
	fmt.Fprintf(&b, "| **all** | %d | %d | %d | %d | %d | |\n\n", all, healthy, heldOut, whole, missing)
	b.WriteString(falseHardText(r) + "\n\n")
	b.WriteString("| machine | recordings |\n|---|---|\n")
	for _, c := range []struct {
		what string
		of   func(*Recording) bool
	}{
		{"Linux 6.1", kernel("6.1.")},
		{"Linux 6.12", kernel("6.12.")},
		{"Linux 6.18", kernel("6.18.")},
		{"cgroup v1", func(r *Recording) bool { return strings.Contains(r.Machine, "cgroup v1") }},
		{"with swap", func(r *Recording) bool { return r.Swap }},
		{"not emulated", func(r *Recording) bool { return !isEmulated(r) }},
		{fmt.Sprintf("go on for %d s after the load, so that time to clear is known", goOn), func(r *Recording) bool { return r.Seconds >= r.Load.To+goOn }},
		{"with requests and priorities of pods, by which the kubelet chooses", func(r *Recording) bool { return r.Pods }},
	} {
		n := 0
		for i := range r.Recordings {
			n += count(c.of(&r.Recordings[i]))
		}
		fmt.Fprintf(&b, "| %s | %d of %d |\n", c.what, n, len(r.Recordings))
	}
	return b.String()
}

// falseHardText bounds how often our rules are hard without reason.
func falseHardText(r *Report) string {
	var all, heldOut []*Recording
	for i := range r.Recordings {
		all = append(all, &r.Recordings[i])
		if r.Recordings[i].HeldOut {
			heldOut = append(heldOut, &r.Recordings[i])
		}
	}
	of := func(list []*Recording) (f judgement.Rate, below float64) {
		f = r.group("", list).Figures[0].FalseHard
		to, _ := f.To.Get()
		return f, math.Ceil(10000*to) / 100
	}
	a, aBelow := of(all)
	h, hBelow := of(heldOut)
	return fmt.Sprintf("Our rules reached hard in %d of all %d healthy recordings that could be judged: the rate is at most %.2f %%, by the exact 95 %% interval. Of those held out it was %d of %d: at most %.2f %%.",
		a.Count, a.Of, aBelow, h.Count, h.Of, hBelow)
}

func kernel(version string) func(*Recording) bool {
	return func(r *Recording) bool { return strings.HasPrefix(r.Kernel, version) }
}

func TestLabelledSet(t *testing.T) {
	r := labelledReport(t)
	t.Run("plan", func(t *testing.T) {
		var classes []string
		all, healthy := 0, 0
		for _, p := range plan() {
			classes = append(classes, p.class)
			all += p.count
			if p.healthy {
				healthy += p.count
			}
		}
		assert.GreaterOrEqual(t, all, 100)
		assert.GreaterOrEqual(t, healthy, 60)
		for _, one := range r.Recordings {
			assert.Contains(t, classes, one.Class, one.Name)
			i := slices.Index(classes, one.Class)
			if i >= 0 && plan()[i].healthy {
				assert.True(t, one.Healthy() || one.Want[0].AtMost, "%s is of a class that is healthy", one.Name)
			}
		}
	})
	t.Run("size", func(t *testing.T) {
		whole := int64(0)
		for _, one := range r.Recordings {
			info, err := os.Stat(one.File)
			require.NoError(t, err)
			assert.Less(t, info.Size(), int64(250_000), one.Name)
			whole += info.Size()
		}
		assert.Less(t, whole, int64(len(r.Recordings))*80_000, "on average")
	})
}
