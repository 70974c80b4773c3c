package vm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Containers of pods in which the loads of a host run, below kubepods.
const (
	shopContainer = "burstable/pod" + shopUID + "/c0ffee01"
	copyContainer = "besteffort/pod" + copyUID + "/c0ffee02"
	mailContainer = "burstable/pod" + mailUID + "/c0ffee03"
	// batchContainer has the weight of a service.
	batchContainer = "burstable/pod" + copyUID + "/c0ffee02"
)

// hostScene is a scene of this host, which is not emulated: its begin and end are start,
// and the end of all that was started.
type hostScene struct {
	scene
	// prepare makes what start works on, before anything is recorded.
	prepare func(*pods)
	start   func(*pods)
	// programs are what it needs of the host.
	programs []string
	// alone: no service works beside it.
	alone bool
}

// recordHost makes the recordings of this host, one load after the other, as pods of cgroup
// v1 with v2 beside it.
func recordHost(t *testing.T, r recorder) {
	t.Helper()
	t.Run("host", func(t *testing.T) {
		for _, s := range scenesOfHost() {
			t.Run(s.name, func(t *testing.T) {
				switch {
				case s.recorded():
					t.Skip("its recording is there")
				case r.over():
					t.Skip("left to the next run: the time is over")
				}
				for _, program := range s.programs {
					if _, err := exec.LookPath(program); err != nil {
						t.Skipf("left to a host that has %s", program)
					}
				}
				newPods(t, "").play(s)
			})
		}
	})
}

// play records one scene.
func (p *pods) play(s hostScene) {
	p.t.Helper()
	if s.prepare != nil {
		s.prepare(p)
	}
	require.Greater(p.t, p.available(), 0.15, "the filesystem of %s is nearly full, which no label says: make space", p.dir)
	steady, agent := p.program("./e2e/vm/steady"), p.program(".")
	recorded, config := filepath.Join(p.dir, "recorded"), filepath.Join(p.dir, "agent.yaml")
	require.NoError(p.t, os.WriteFile(config, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n"+
		"workloads: {roots: ["+p.top+"]}\nrecording: {dir: "+recorded+", segmentSize: 256Mi, minAvailable: 0}\n"), 0o600))
	shop := filepath.Join(p.dir, "shop.jsonl")
	p.set("cpu", "besteffort", "cpu.shares", "2")
	p.counted(shopContainer)
	p.counted(copyContainer)
	said, err := os.Create(filepath.Join(p.dir, "agent.log"))
	require.NoError(p.t, err)
	defer said.Close()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, agent, "agent", "--standalone", "--config", config, "--state.dir", filepath.Join(p.dir, "state"), "--api.socket", filepath.Join(p.dir, "agent.sock"))
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(p.t, cmd.Start())
	if !s.alone {
		p.start(shopContainer, "sh", "-c", `exec "$0" -file "$1" -write 1 -read 1 -cpu 100 >"$2"`, steady, p.file(), shop)
	}
	time.Sleep(calm)
	usual := p.waited(s, shop)
	from := time.Now()
	s.start(p)
	wanted := time.Now()
	time.Sleep(s.run)
	for _, load := range p.running {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", load.Process.Pid))
		require.NoError(p.t, err)
		require.NotContains(p.t, string(state), ") Z ", "%s has ended", load.Args)
	}
	pressed := time.Now()
	if waited := p.waited(s, shop); !s.alone {
		p.t.Logf("the service waited %s for a request, %s in calm", waited, usual)
		require.Less(p.t, waited, 5*time.Millisecond, "the service waits for the disk: the label does not say so")
	}
	p.stop()
	to := time.Now()
	after := clears
	if len(s.want) > 0 {
		after = unlatch
	}
	time.Sleep(after)
	cancel()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) { // what it is where the agent ended well
		text, _ := os.ReadFile(said.Name())
		require.Fail(p.t, "the agent failed", "%v: %s", err, text)
	}
	segments, err := filepath.Glob(recorded + "/*.rec")
	require.NoError(p.t, err)
	require.Len(p.t, segments, 1)
	l, _ := s.label(p.t, p.machine(), segments[0], from, wanted, pressed, to)
	s.keep(p.t, l, segments[0])
}

// available is which part of the filesystem of its directory is available.
func (p *pods) available() float64 {
	p.t.Helper()
	var fs unix.Statfs_t
	require.NoError(p.t, unix.Statfs(p.dir, &fs))
	return float64(fs.Bavail) / float64(fs.Blocks)
}

// machine is what a label says of this host.
func (p *pods) machine() string {
	p.t.Helper()
	var name unix.Utsname
	require.NoError(p.t, unix.Uname(&name))
	var has unix.Sysinfo_t
	require.NoError(p.t, unix.Sysinfo(&has))
	processors, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(p.t, err)
	kind := "bare metal"
	if strings.Contains(string(processors), " hypervisor") {
		kind = "virtual machine"
	}
	release := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	gib := math.Round(float64(has.Totalram) * float64(has.Unit) / (1 << 30))
	return fmt.Sprintf("%s, Linux %s.%s, cgroup v1 with v2 beside it for pressure, %d CPUs, %.0f GiB", kind, release[0], release[1], runtime.NumCPU(), gib)
}

// waited is how long a request of the service has taken since it began.
func (p *pods) waited(s hostScene, file string) time.Duration {
	p.t.Helper()
	if s.alone {
		return 0
	}
	text, err := os.ReadFile(file)
	require.NoError(p.t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var did struct {
		Written, Read uint64
		Waited        time.Duration
	}
	require.NoError(p.t, json.Unmarshal([]byte(lines[max(0, len(lines)-2)]), &did)) // the last may be half written
	return did.Waited / time.Duration(max(1, (did.Written+did.Read)/(256<<10)))
}

// scenesOfHost are of programs that are on this host. They came after the rules, and none was
// or may be tuned by them.
func scenesOfHost() []hostScene {
	const (
		beside = "; beside it a service needs a tenth of a CPU and reads and writes 1 MiB/s of the host's disk"
		lone   = "it is a part of what the disk carries, and the service waits for it no longer than before"
	)
	shell := func(container, script string) func(*pods) {
		return func(p *pods) { p.start(container, "bash", "-c", script) }
	}
	healthy := func(name, class, did, why string, start func(*pods)) hostScene {
		return hostScene{scene: scene{name: "host-" + name, class: class, run: 80 * time.Second, did: did, why: why, heldOut: true}, start: start}
	}
	with := func(s hostScene, program string, prepare func(*pods)) hostScene {
		s.programs, s.prepare = []string{program}, prepare
		return s
	}
	alone := func(s hostScene) hostScene {
		s.alone = true
		return s
	}
	bash := func(script string) func(*pods) {
		return func(p *pods) {
			cmd := exec.CommandContext(p.t.Context(), "bash", "-ec", script)
			cmd.Dir = p.dir
			said, err := cmd.CombinedOutput()
			require.NoError(p.t, err, "%s", said)
		}
	}
	spin := func(n int) string { return fmt.Sprintf("for i in {1..%d}; do while :; do :; done & done; wait", n) }
	contended := func(name, did, why string, start func(*pods)) hostScene {
		return alone(hostScene{scene: scene{
			name: "host-" + name, class: "CPU contention", run: 100 * time.Second, did: did, why: why, heldOut: true,
			want: []judgement.Want{{Resource: plugins.CPU, Level: plugins.Soft, NoCulprit: true, Presser: copyUID, Sufferer: shopUID}},
		}, start: start})
	}
	list := []hostScene{
		contended("cpu-contended",
			"a pod computes with eight programs on two CPUs; a service of the same weight needs one and a half",
			"the service waits for a CPU because of the other pod: the level is reported, and no pod is named",
			func(p *pods) {
				p.start(shopContainer, "bash", "-c", spin(3))
				p.start(batchContainer, "bash", "-c", spin(8))
			}),
		contended("outweighed-service",
			"a service needs one CPU; a pod of eight times its weight computes with two programs on the two CPUs",
			"the service waits for most of the time because of the other pod, although no more than three tasks want to run",
			func(p *pods) {
				p.set("cpu", filepath.Dir(batchContainer), "cpu.shares", "8192")
				p.start(shopContainer, "bash", "-c", spin(1))
				p.start(batchContainer, "bash", "-c", spin(2))
			}),
		healthy("calm-service", "calm", "a service needs a tenth of a CPU and reads and writes 1 MiB/s of the host's disk; nothing else", "no workload causes pressure", func(*pods) {}),
		with(healthy("go-build", "busy CPU", "a BestEffort pod of the weight that a kubelet gives its class compiles Go's standard library over and over, on two CPUs"+beside,
			"the build gives way at the CPUs, and the disk carries both", shell(copyContainer, "export HOME=$PWD GOCACHE=$PWD/cache GOFLAGS=; while :; do go build -a std; done")), "go", nil),
		with(healthy("c-build", "busy CPU", "a pod compiles C files, one at a time, on two CPUs"+beside, "a CPU is left",
			shell(mailContainer, "while :; do for i in {1..40}; do gcc -O1 -c $i.c; done; done")), "gcc", bash(filesOfC("."))),
		with(healthy("jvm-starts", "busy CPU", "a BestEffort pod of the weight that a kubelet gives its class starts four Java virtual machines in the same second, again and again, each of which compiles a file, on two CPUs"+beside,
			"they are what waits for a CPU, and they give way to the service", shell(copyContainer, "while :; do for i in {1..4}; do javac -d out$i Some.java & done; wait; sleep 2; done")), "javac",
			bash(`{ echo 'class Some {'; for i in {1..400}; do echo "int f$i(int n) { int s = $i; for (int k = 0; k < n; k++) s = s * 31 + k; return s; }"; done; echo '}'; } >Some.java`)),
		healthy("fork-storm", "busy CPU", "a BestEffort pod of the weight that a kubelet gives its class starts programs as fast as it can with eight shells, on two CPUs"+beside,
			"they give way to the service", shell(copyContainer, "for i in {1..8}; do while :; do /bin/true; done & done; wait")),
		alone(healthy("batch-waits-for-itself", "busy CPU", "one pod computes with eight programs on two CPUs; no other workload needs a CPU",
			"six of the eight always wait, for their own pod: it has all there is", shell(mailContainer, spin(8)))),
		healthy("own-quota", "busy CPU", "a pod with a quota of half a CPU computes with four programs"+beside, "it waits for its own quota, and a CPU is idle", func(p *pods) {
			p.set("cpu", mailContainer, "cpu.cfs_quota_us", "50000")
			p.start(mailContainer, "bash", "-c", spin(4))
		}),
		healthy("unpack", "busy disk", "a tree of ten thousand files is copied to the host's disk, synced and removed, over and over, as an image is unpacked"+beside, lone,
			shell("", `while :; do rm -rf tree; cp -r "$(dirname "$(readlink -f "$(command -v go)")")/../src" tree; sync -f tree; done`)),
		with(healthy("package-upgrade", "busy disk", "dpkg installs a package of some hundred files on the host's disk, over and over: it syncs each file"+beside, lone,
			shell("", "while :; do dpkg --force-not-root --log=/dev/null --admindir=$PWD/admin --instdir=$PWD/installed -i played.deb >/dev/null; done")), "dpkg-deb",
			bash(`mkdir -p package/DEBIAN package/opt installed admin/updates admin/info admin/triggers; touch admin/status admin/available
				printf 'Package: played\nVersion: 1\nArchitecture: all\nMaintainer: none <none@example.org>\nDescription: files\n' >package/DEBIAN/control
				cp -r /usr/share/perl/*/unicore package/opt/ || cp -r /usr/share/doc package/opt/
				dpkg-deb -Zgzip -z1 -b package played.deb >/dev/null`)),
		with(healthy("sqlite-transactions", "busy disk", "a pod inserts into a SQLite database on the host's disk, one row a transaction, as fast as it goes"+beside, lone,
			shell(mailContainer, `{ echo "create table rows (id integer primary key, at text);"; while :; do echo "insert into rows (at) values (datetime());"; done; } | sqlite3 rows`)), "sqlite3", nil),
		healthy("log-storm", "busy disk", "a pod writes lines to a log as fast as it goes; at 64 MiB each it is packed and begun anew"+beside, lone,
			shell(mailContainer, `while :; do yes "$(date) GET /index.html 200 and what else a line of a log says" | head -c 64M >log; gzip -1 -f log; done`)),
		healthy("archive", "busy disk", "a BestEffort pod of the weight that a kubelet gives its class packs the system's files to an archive on the host's disk, over and over, with the page cache dropped before"+beside, lone,
			shell(copyContainer, "while :; do echo 1 >/proc/sys/vm/drop_caches; tar -C /usr -cf - lib | gzip -1 >archive; done")),
		with(healthy("clone", "busy disk", "a BestEffort pod of the weight that a kubelet gives its class clones a repository of two thousand files to the host's disk, over and over"+beside, lone,
			shell(copyContainer, "while :; do rm -rf clone; git clone -q --no-local repository clone; done")), "git",
			bash(`cp -r "$(dirname "$(readlink -f "$(command -v go)")")/../src/cmd" repository; cd repository; git init -q; git add -A; git -c user.name=none -c user.email=none@example.org commit -qm all`)),
		with(healthy("page-cache-filled", "full memory", "a program reads 10 GiB of files over and over, which the page cache holds"+beside,
			"pages of files take memory that is free, and are dropped at no cost", shell("", "while :; do cat pages* >/dev/null; done")), "cp",
			bash("head -c 2G /dev/zero >pages; for i in {1..4}; do cp --reflink=never pages pages$i; done; sync -f pages")),
		healthy("memory-churn", "full memory", "a pod takes 1 GiB and gives it back, over and over"+beside, "memory is taken and given back, and plenty is available",
			shell(mailContainer, `exec python3 -c 'while True: bytearray(1 << 30)'`)),
		healthy("tmpfs", "full memory", "a BestEffort pod writes 3 GiB to a tmpfs and removes them, over and over"+beside, "most of the memory is available all the time",
			func(p *pods) {
				const kept = "/dev/shm/plimsoll-recorded"
				p.t.Cleanup(func() { _ = os.Remove(kept) }) // what it was killed with
				p.start(copyContainer, "bash", "-c", "while :; do head -c 3G /dev/zero >"+kept+"; rm "+kept+"; done")
			}),
		healthy("mail-spool", "busy disk", "a pod writes a file of 4 KiB a message, and syncs each, with four programs"+beside, lone,
			shell(mailContainer, `mkdir spool; for i in {1..4}; do while :; do dd if=/dev/zero of=spool/$i bs=4k count=1 conv=fsync status=none; done & done; wait`)),
		with(healthy("sort", "busy disk", "a BestEffort pod sorts 300 MiB of lines, with temporary files on the host's disk, over and over"+beside, lone,
			shell(copyContainer, `while :; do sort -S 64M -T . lines >sorted; done`)), "sort", bash("head -c 220M /dev/urandom | base64 >lines")),
		healthy("find", "busy disk", "a BestEffort pod looks at each file of the system, over and over, with what the kernel keeps of directories dropped before"+beside, lone,
			shell(copyContainer, "while :; do echo 2 >/proc/sys/vm/drop_caches; find /usr -xdev -newer /etc/passwd >/dev/null; done")),
		with(healthy("compress", "busy CPU", "a BestEffort pod of the weight that a kubelet gives its class compresses with two programs on two CPUs"+beside, "they give way to the service",
			shell(copyContainer, "for i in 1 2; do while :; do gzip -9 <lines >/dev/null; done & done; wait")), "gzip", bash("head -c 64M /dev/urandom | base64 >lines")),
		healthy("sleepers", "busy CPU", "a pod has a thousand programs that wake up once a second"+beside, "together they need less than a CPU",
			shell(mailContainer, `exec python3 -c '
import os, time
for i in range(1000):
    if os.fork() == 0:
        while True: time.sleep(1)
time.sleep(1e6)'`)),
		with(healthy("cron-at-once", "busy CPU", "each 20 s twelve programs start in the same second, on two CPUs: each reads and sums the system's libraries"+beside,
			"it is soon over, and they give way to the service", shell(copyContainer, `while :; do for i in {1..12}; do find /usr/lib/x86_64-linux-gnu -maxdepth 1 -name 'lib[a-f]*' -type f -exec sha256sum {} + >/dev/null & done; wait; sleep $((20 - $(date +%s) % 20)); done`)), "sha256sum", nil),
		healthy("loopback", "busy network", "a pod sends to another one through the loopback device, as fast as it goes"+beside, "nothing is lost, and the device has no limit",
			shell(copyContainer, `exec python3 -c '
import os, socket
here, there = socket.socket(), socket.socket()
here.bind(("127.0.0.1", 0)); here.listen()
there.connect(here.getsockname()); there2, _ = here.accept()
if os.fork() == 0:
    while there2.recv(1 << 16): pass
while True: there.sendall(bytes(1 << 16))'`)),
		healthy("page-cache-limited", "own limit", "a BestEffort pod of the weight that a kubelet gives its class reads 1 GiB of files through a limit of 512 MiB, over and over: pages are dropped and read again"+beside,
			"the pages that it drops are its own, and the node has memory available", func(p *pods) {
				p.set("memory", filepath.Dir(copyContainer), "memory.limit_in_bytes", fmt.Sprint(512<<20))
				p.start(copyContainer, "bash", "-c", "head -c 1G /dev/urandom >pages; while :; do cat pages >/dev/null; done")
			}),
		healthy("own-limit", "own limit", "a pod with a limit of 160 MiB holds 60 and reads 150 MiB of file pages at random"+beside,
			"it thrashes at its own limit and is the only workload that waits; the node has memory available", func(p *pods) {
				hog := p.program("./e2e/vm/hog")
				p.set("memory", filepath.Dir(mailContainer), "memory.limit_in_bytes", fmt.Sprint(160<<20))
				p.start(mailContainer, "bash", "-c", `head -c 150M /dev/urandom >pages; sync; exec "$0" -file pages -fill 60 -readers 1 >/dev/null`, hog)
			}),
	}
	return append(list, together(list, beside)...)
}

// together are healthy loads of a list, two at once beside the service, as the ends of their
// texts say.
func together(list []hostScene, beside string) (pairs []hostScene) {
	of := func(name string) hostScene {
		return list[slices.IndexFunc(list, func(s hostScene) bool { return s.name == "host-"+name })]
	}
	atOnce := [][2]string{
		{"go-build", "sqlite-transactions"},
		{"jvm-starts", "log-storm"},
		{"fork-storm", "unpack"},
		{"compress", "mail-spool"},
		{"cron-at-once", "c-build"},
		{"loopback", "sort"},
		{"memory-churn", "clone"},
		{"tmpfs", "package-upgrade"},
		{"page-cache-limited", "c-build"},
		{"own-limit", "go-build"},
		{"page-cache-filled", "mail-spool"},
		{"sleepers", "find"},
		{"own-quota", "sort"},
		{"loopback", "log-storm"},
		{"cron-at-once", "unpack"},
		{"compress", "archive"},
		{"own-quota", "fork-storm"},
		{"tmpfs", "go-build"},
		{"memory-churn", "sqlite-transactions"},
		{"jvm-starts", "package-upgrade"},
	}
	for _, names := range atOnce {
		a, b := of(names[0]), of(names[1])
		both := a
		both.name = "host-" + names[0] + "-and-" + names[1]
		both.did = "two loads at once: " + strings.TrimSuffix(a.did, beside) + "; " + b.did
		both.why = a.why + "; " + b.why
		both.programs = slices.Concat(a.programs, b.programs)
		both.prepare = func(p *pods) {
			for _, s := range []hostScene{a, b} {
				if s.prepare != nil {
					s.prepare(p)
				}
			}
		}
		both.start = func(p *pods) {
			a.start(p)
			b.start(p)
		}
		pairs = append(pairs, both)
	}
	return pairs
}
