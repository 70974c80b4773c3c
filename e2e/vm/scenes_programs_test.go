package vm_test

import (
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// preparePrograms makes what the programs work on, on vdf, a disk of 300 requests a second
// from then on: a database, a tree of C files and a package.
func (n *node) preparePrograms() {
	n.t.Helper()
	n.run(`set -e
		install -d -o postgres -m 700 /vdf/postgres
		runuser -u postgres -- bash -c '/usr/lib/postgresql/*/bin/initdb -N -A trust -D /vdf/postgres' >/dev/null
		mkdir -p /vdf/redis /vdf/c
		` + filesOfC("/vdf/c") + `
		install -d /vdf/package/DEBIAN /vdf/package/opt
		printf 'Package: played\nVersion: 1\nArchitecture: all\nMaintainer: none <none@example.org>\nDescription: files\n' >/vdf/package/DEBIAN/control
		cp -r /usr/lib/systemd /vdf/package/opt/
		dpkg-deb -Zgzip -z1 -b /vdf/package /vdf/played.deb >/dev/null; mkdir /vdf/installed; sync`)
	n.postgres()
	n.run("bash -c '/usr/lib/postgresql/*/bin/pgbench -q -i -s 2 -h /tmp -U postgres postgres' 2>/dev/null")
	units("postgres")(n)
	n.throttle(300, "vd5")
}

// filesOfC makes forty files of C there, of 150 functions each.
func filesOfC(dir string) string {
	return `for i in {1..40}; do
			{ echo '#include <stdio.h>'; echo '#include <stdlib.h>'; for j in {1..150}; do echo "int f${i}_$j(int n) { int s = $j; for (int k = 0; k < n; k++) s = s * 31 + printf(\"%d\", k); return s; }"; done; } >` + dir + `/$i.c
		done`
}

// postgres starts PostgreSQL in the pod of the shop and waits until it answers.
func (n *node) postgres() {
	n.t.Helper()
	n.unit("postgres", inPodOf("burstable", shopUID)+" -p User=postgres -p KillSignal=SIGINT", "exec /usr/lib/postgresql/*/bin/postgres -k /tmp -D /vdf/postgres")
	n.until(2*time.Minute, "PostgreSQL answers", func() bool {
		return n.run("bash -c '/usr/lib/postgresql/*/bin/pg_isready -q -h /tmp' && echo ready || true") == "ready\n"
	})
}

// clients commit transactions at PostgreSQL as fast as it goes, and say each second how
// many there were and how long they took.
func (n *node) clients(count string) {
	n.t.Helper()
	n.unit("clients", inPodOf("burstable", mailUID)+" -p StandardError=truncate:/run/clients", "exec /usr/lib/postgresql/*/bin/pgbench -n -N -P 1 -T 600 -c "+count+" -h /tmp -U postgres postgres")
	n.until(time.Minute, "the clients commit", func() bool { return strings.Contains(n.run("cat /run/clients"), " tps") })
}

// scenesOfPrograms are of programs that are on many nodes.
func scenesOfPrograms() []scene {
	const (
		beside = "; a service works on vdh, a disk of 100 requests a second"
		vdf    = "vdf, a disk of 300 requests a second"
	)
	shop := func(n *node) { n.work("web", inPodOf("burstable", scanUID), "-file /dev/vdh"+fewReads) }
	// alone is one program, as a unit of that name, beside the service.
	alone := func(name, class, unit, properties, did, why, script string, want ...judgement.Want) scene {
		return scene{
			name: name, class: class, run: 75 * time.Second, usual: usualOf("vda", "vdf", "vdh"), want: want, did: did + beside, why: why,
			begin: func(n *node) {
				shop(n)
				n.unit(unit, properties, script)
			},
			end: units(unit, "web"),
		}
	}
	return []scene{
		{
			name: "postgres-beside-reads", class: "disk contention", run: 100 * time.Second, usual: usualOf("vdf"),
			want: []judgement.Want{{Resource: plugins.Disk, Scope: "vdf", Level: plugins.Soft, Culprit: copyUID, Sufferer: shopUID}},
			did:  "PostgreSQL commits for four clients on " + vdf + "; a BestEffort pod reads it with 24 requests of 256 KiB in flight",
			why:  "each commit waits for the presser's requests",
			begin: func(n *node) {
				n.postgres()
				n.clients("4")
				n.press("presser", inPodOf("besteffort", copyUID), "vdf")
			},
			end: func(n *node) {
				units("presser")(n)
				n.t.Logf("what the clients said:\n%s", n.run("tail -n 20 /run/clients"))
				units("clients", "postgres")(n)
			},
		},
		{
			name: "redis-beside-hog", class: "memory shortage", run: 45 * time.Second, want: hardMemory(), from: filled,
			did: "Redis holds some MiB and answers eight clients; a program takes all memory but 50 MiB as fast as it can, and reads 150 MiB of file pages at random on a disk of 1000 requests a second",
			why: "every page read evicts another that is needed soon: the node stalls",
			begin: func(n *node) {
				n.redis("no")
				n.fill("-available 50")
			},
			end: units("hog", "clients", "redis"),
		},
		{
			name: "postgres-commits", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdf", "vdh"),
			did: "PostgreSQL commits for four clients on " + vdf + ", as fast as it goes" + beside,
			why: "it waits for its own commits, and nothing else uses its disk",
			begin: func(n *node) {
				shop(n)
				n.postgres()
				n.clients("4")
			},
			end: units("clients", "postgres", "web"),
		},
		{
			name: "redis-appends", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdf", "vdh"),
			did: "Redis syncs each write to its file on " + vdf + ", for eight clients, as fast as it goes" + beside,
			why: "it waits for its own writes, and nothing else uses its disk",
			begin: func(n *node) {
				shop(n)
				n.redis("yes")
			},
			end: units("clients", "redis", "web"),
		},
		alone("sqlite-transactions", "busy disk", "inserts", inPodOf("burstable", shopUID),
			"a program inserts into a SQLite database on "+vdf+", one row a transaction, as fast as it goes",
			"it waits for its own transactions, and nothing else uses its disk",
			`rm -f /vdf/rows*; { echo "create table rows (id integer primary key, at text);"; while :; do echo "insert into rows (at) values (datetime());"; done; } | sqlite3 /vdf/rows`),
		{
			name: "postgres-beside-build", class: "busy disk", run: 75 * time.Second, usual: usualOf("vdf"),
			did: "PostgreSQL commits for one client on " + vdf + "; a BestEffort pod of the weight that a kubelet gives its class compiles C files, two at a time, on two CPUs",
			why: "two loads at once, and the build gives way at the CPUs",
			begin: func(n *node) {
				n.postgres()
				n.clients("1")
				n.build(inPodOf("besteffort", copyUID))
				n.run("systemctl set-property --runtime kubepods-besteffort.slice CPUWeight=1")
			},
			end: func(n *node) {
				units("build", "clients", "postgres")(n)
				n.run("systemctl revert kubepods-besteffort.slice")
			},
		},
		alone("restic-backup", "busy disk", "backup", inPodOf("besteffort", copyUID)+" -p Environment=RESTIC_PASSWORD=none -p Environment=GOMAXPROCS=1",
			"restic backs up the system's files to a new repository on "+vdf+", over and over", "no other workload uses its disks",
			"while :; do rm -rf /vdf/repository; restic -q init --no-cache -r /vdf/repository; restic -q backup --no-cache -r /vdf/repository /usr/lib; done"),
		alone("gcc-build", "busy CPU", "build", inPodOf("burstable", copyUID),
			"a pod compiles C files on "+vdf+", one at a time, on two CPUs", "a CPU is left, and no other workload uses its disk",
			"cd /vdf/c; while :; do for i in {1..40}; do gcc -O1 -c $i.c; done; gcc -r -o all.o [0-9]*.o; done"),
		alone("package-upgrade", "busy disk", "upgrade", "",
			"dpkg installs a package of some hundred files on "+vdf+", over and over: it syncs each file", "no other workload uses its disk",
			"while :; do dpkg --instdir=/vdf/installed -i /vdf/played.deb; done"),
		alone("log-storm", "busy disk", "logs", inPodOf("burstable", copyUID),
			"a pod writes lines to a log on "+vdf+", as fast as it goes; at 64 MiB each it is packed and begun anew", "no other workload uses its disk",
			`while :; do yes "$(date) GET /index.html 200 and what else a line of a log says" | head -c 64M >/vdf/log; gzip -1 -f /vdf/log; done`),
		alone("cron-at-once", "busy CPU", "cron", "",
			"each 20 s twelve programs start in the same second, on two CPUs: each reads and sums the files of a directory",
			"it is soon over; a level of the CPUs may be reported, and no pod is named",
			"while :; do for i in {1..12}; do sha256sum /usr/lib/systemd/* >/dev/null 2>&1 & done; wait; sleep $((20 - $(date +%s) % 20)); done",
			judgement.Want{Resource: plugins.CPU, Level: plugins.Soft, AtMost: true, NoCulprit: true}),
	}
}

// redis starts Redis with eight clients; its file of appended writes is synced at each of
// them, or there is none.
func (n *node) redis(appends string) {
	n.t.Helper()
	n.unit("redis", inPodOf("burstable", shopUID), "exec redis-server --dir /vdf/redis --save '' --appendfsync always --appendonly "+appends)
	n.until(time.Minute, "Redis answers", func() bool { return n.run("redis-cli ping 2>/dev/null || true") == "PONG\n" })
	n.unit("clients", inPodOf("burstable", mailUID), "while :; do redis-benchmark -q -t set,get -c 8 -d 512 -r 20000; done")
}

// build compiles C files, two at a time.
func (n *node) build(properties string) {
	n.t.Helper()
	n.unit("build", properties, "cd /vdf/c; while :; do echo {1..40}.c | tr ' ' '\n' | xargs -P 2 -n 1 gcc -O1 -c; done")
}
