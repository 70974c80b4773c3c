package vm_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-dev/plimsoll/judgement"
)

// recordKubelet records a node with a real kubelet, and what that says of its memory. The
// workloads are no pods, so that it judges and evicts nothing.
func recordKubelet(t *testing.T, r recorder) {
	t.Helper()
	machine := "QEMU (emulated), Linux 6.1, cgroup v2, kubelet 1.37; 2 CPUs, 2 GiB"
	r.on(t, "kubelet", machine, heldOut(scenesOfKubelet()), func(t *testing.T) *node {
		k := startKubelet(t, kubeOptions{kubelet: "logging: {verbosity: 3}\n"}) // it logs what it sees at each look
		hog := filepath.Join(t.TempDir(), "hog")
		build(t, "./e2e/vm/hog", hog)
		require.NoError(t, k.Push(t.Context(), hog, "/root/hog"))
		k.run("mkfs.ext4 -q /dev/vdb && mkdir -p /vdb && mount /dev/vdb /vdb; dd if=/dev/zero of=/vdb/pages bs=1M count=150 status=none; sync")
		k.throttle(1000, "vd1")
		return k.node
	})
}

func scenesOfKubelet() []scene {
	short := func(name, did, why, flags string) scene {
		return scene{
			name: name, class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled, did: did, why: why,
			begin: func(n *node) { n.fill(flags) }, end: units("hog"),
		}
	}
	list := []scene{
		{
			name: "kubelet-page-cache", class: "full memory", run: 45 * time.Second,
			did: "a program reads vdc from end to end over and over: more file pages than the memory of 2 GiB holds; a kubelet runs",
			why: "little memory is free, but nearly all of it is available: unused pages are dropped at no cost",
			begin: func(n *node) {
				n.unit("reader", "-p MemoryAccounting=yes", "while :; do cat /dev/vdc >/dev/null; done")
			},
			end: units("reader"),
		},
		{
			name: "kubelet-memory-held", class: "full memory", run: 60 * time.Second,
			did: "a program takes all memory but 150 MiB and keeps it, and nothing else needs more; a kubelet runs",
			why: "memory is used, and nothing waits for it",
			begin: func(n *node) {
				since := n.clock()
				n.startHogOn("''", "", "-available 150")
				n.until(3*time.Minute, "memory is held", func() bool {
					return n.run("journalctl -q --no-pager -o cat -u hog --since @"+strconv.FormatInt(since.Unix(), 10)+" | grep -c ' filled ' || true") != "0\n"
				})
			},
			end: units("hog"),
		},
		{
			name: "kubelet-own-limit", class: "own limit", run: 45 * time.Second,
			did:   "a unit with a limit of 160 MiB holds 60 and reads 150 MiB of file pages at random, on a disk of 1000 requests a second; a kubelet runs",
			why:   "it thrashes at its own limit and is the only workload that waits; the node has memory available",
			begin: func(n *node) { n.startHogOn("/vdb/pages", "-p MemoryMax=160M", "-fill 60") }, end: units("hog"),
		},
		short("kubelet-hog", "a program takes all memory but 50 MiB as fast as it can, and reads 150 MiB of file pages at random on a disk of 1000 requests a second; a kubelet runs",
			"every page read evicts another that is needed soon: the node stalls", "-available 50"),
		short("kubelet-leak", "a program takes 40 MiB a second until 50 MiB are available, and reads 150 MiB of file pages at random on a disk of 1000 requests a second; a kubelet runs",
			"sooner or later the node stalls", "-available 50 -pace 40"),
	}
	for i := range list {
		list[i].kubelet = (*node).kubeletLooks
	}
	return list
}

var (
	saysVersion  = regexp.MustCompile(`Kubelet version" kubeletVersion="v([^"]+)"`)
	looksAt      = regexp.MustCompile(`^([0-9.]+) .*"Eviction manager:" log="observations" signal="memory\.available" .*available="?([0-9]+[KMG]i)`)
	setsOut      = regexp.MustCompile(`^([0-9.]+) .*"Eviction manager: attempting to reclaim" resourceName="memory"`)
	sameLook     = 5 * time.Second // as which it sets out to reclaim; the next one is 10 s later
	leastKubelet = 5               // looks in a recording
)

// kubeletLooks is what the kubelet has logged of its memory from then on.
func (n *node) kubeletLooks(start time.Time) *judgement.Kubelet {
	n.t.Helper()
	said := n.run("journalctl -q --no-pager -o short-unix -u kubelet | grep -e 'Kubelet version' -e 'Eviction manager:'")
	version := saysVersion.FindStringSubmatch(said)
	require.NotNil(n.t, version, "the kubelet did not log its version")
	k := &judgement.Kubelet{Version: version[1]}
	for line := range strings.Lines(said) {
		if m := looksAt.FindStringSubmatch(line); m != nil {
			available := resource.MustParse(m[2])
			if at := n.since(start, m[1]); at >= 0 {
				k.Looks = append(k.Looks, judgement.Look{At: at, Available: uint64(available.Value())}) //nolint:gosec // it is a size
			}
		}
		if m := setsOut.FindStringSubmatch(line); m != nil && len(k.Looks) > 0 {
			last := &k.Looks[len(k.Looks)-1]
			last.Reclaims = n.since(start, m[1])-last.At < sameLook.Seconds()
		}
	}
	require.GreaterOrEqual(n.t, len(k.Looks), leastKubelet, "the kubelet looks each 10 s")
	n.t.Logf("the kubelet %s saw %+v", k.Version, k.Looks)
	return k
}

// since is how many seconds after start a Unix time of the journal is.
func (n *node) since(start time.Time, unix string) float64 {
	n.t.Helper()
	at, err := strconv.ParseFloat(unix, 64)
	require.NoError(n.t, err)
	return float64(int64(at*1000)-start.UnixMilli()) / 1000
}
