#!/usr/bin/env bash
# Runs the tests of a tier: `make check`, `make test` and `make e2e` call it.
#
#   check  what needs no process but its own
#   test   also what this machine's kernel, sockets and a real control plane show
#   e2e    also emulated machines and the long forms, two packages at a time: what
#          passed on this commit is not run again
#
# What the runner records stands in bin/tests: NAME.json, and NAME.xml for CI.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tier=${1:?check, test or e2e}
out=bin/tests
mkdir -p $out

module=$(go list -m)
# Packages whose tests run programs: most of what they test is in processes of its own, and what
# is not (a heartbeat, a reconciler) has tests in its own package, so without the race detector,
# which make e2e has. The one that takes longest begins first.
built=(e2e e2e/chart deploy e2e/clock e2e/cluster e2e/container)
# Packages some of whose tests start processes beside the code that they test. make check
# runs the others.
processes=(daemon/agent evict/kube lease pods throttle/resize)
machines=(e2e/vm)
# Packages in which nothing runs beside anything else, in code or tests, as
# TestShapeUnracedPackagesSequential holds: without the race detector, which make e2e
# has, they take a part of the time, and without cgo they share what the product's
# build compiles.
plain=(abilities agents backoff backup/durations backup/objective capability daemon/advise daemon/explain daemon/gantt
	daemon/history daemon/judge daemon/release daemon/replay daemon/view evict files judgement judgement/peers
	katalyst/v1alpha1 names package/release plugins plugins/outer/examples/conntrack
	plugins/outer/examples/membandwidth plugins/outer/examples/openfiles probes/internal/parse probes/internal/psi
	probes/recordfixture problems snapshot vgdp vgdp/gate vgdp/uploads
	e2e/matrix e2e/repository e2e/testcheck e2e/vm/oci e2e/vm/pause e2e/vm/rungs e2e/vm/slowdisk)
# Packages of make test that have a long form.
longs=(backup daemon/config daemon/history daemon/judge e2e/bench e2e/matrix plugins/outer probes)
# What some tests run that is built only once: whoever needs one first waits for it.
programs=(helm velero versitygw)

units() {
	local others
	others=$(printf '%s\n' "${built[@]}" "${processes[@]}" "${machines[@]}" "${plain[@]}" | sed "s|^|$module/|")
	go list ./... | grep -vxF "$others"
}

# gotestsum NAME ITS-FLAGS… -- GO-TEST-FLAGS…
gotestsum() {
	local name=$1
	shift
	rm -f "$out/$name.json" "$out/$name.xml"
	go tool -modfile=e2e/tools/gotestsum/go.mod gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg \
		--hide-summary skipped --jsonfile "$out/$name.json" --junitfile "$out/$name.xml" "$@"
}

# Of go test: make lint has vetted all packages before, and symbols serve a debugger alone.
flags=(-vet=off -ldflags=-s)
# make check takes the results of what has not changed since it passed: go test's cache knows the
# program, the variables and the files of the module that a test read, not the kernel's. The
# others take none.
anew=(-shuffle=on -count=1)

# temporary is where tests write, unless TMPDIR says it: in memory where 4 GiB are free in a
# filesystem there and programs may be run from it. Tests make and remove small files by the
# thousand, which costs the kernel two to four times as much on a disk.
temporary() {
	local dir=/dev/shm try
	if [ -z "${TMPDIR:-}" ] && [ "$(stat -f -c %T $dir 2>/dev/null)" = tmpfs ] &&
		[ "$(df --output=avail $dir | tail -1)" -gt $((4 << 20)) ] && try=$(mktemp -p $dir); then
		cp "$(type -P true)" "$try" && chmod 700 "$try" && "$try" 2>/dev/null && TMPDIR=$dir
		rm "$try"
	fi
	echo "${TMPDIR:-/tmp}"
}

# alone FLAGS… runs what needs no process but its own: plain, then packages.
alone() {
	local failed=0
	TMPDIR=$(temporary)
	export TMPDIR
	CGO_ENABLED=0 gotestsum plain -- "${flags[@]}" "$@" "${plain[@]/#/./}" || failed=1
	gotestsum units -- "${flags[@]}" -race "$@" "${packages[@]}" || failed=1
	return $failed
}

# again are the flags for packages with processes: three tests that fail at most
# run once more, and are named at the end. What needs none is never run again.
again=(--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race)

# in_dirs NAME PACKAGES… -- FLAGS…
in_dirs() {
	local name=$1 dirs=()
	shift
	while [ "$1" != -- ]; do
		dirs+=("./$1")
		shift
	done
	gotestsum "$name" "${again[@]}" --packages "${dirs[*]}" "$@"
}

# check_skips FILES… fails for a skip that is not listed in CI, and in make e2e, which says
# what is green.
check_skips() {
	local strict=()
	[[ $tier = e2e || ${CI:-} = true ]] && strict=(-strict)
	go run ./e2e/testcheck -skips e2e/testcheck/skips.txt "${strict[@]}" "$@"
}

# Whoever ends this ends all of it, what runs beside it too: of its jobs each is a
# process group (set -m), which has the commands that a function runs. Who ends make's process
# group tells this twice, by make once more: the second must not cut off the end.
trap 'for job in $(jobs -rp); do kill -- "-$job"; done' EXIT
told() {
	trap '' HUP INT TERM
	exit "$1"
}
trap 'told 129' HUP
trap 'told 130' INT
trap 'told 143' TERM

status=0
case $tier in
check)
	mapfile -t packages < <(units && printf './%s\n' "${processes[@]}")
	alone -short -timeout=20m || status=1
	go run ./e2e/testcheck $out/plain.json $out/units.json || status=1
	;;
test)
	# Tests of processes wait for them more than they compute, so the others run
	# beside them; on a fresh machine they begin when the control plane is built.
	# All are jobs: a terminal's Ctrl-C comes here alone, none of them reads from it.
	mapfile -t packages < <(units)
	set -m
	go run ./e2e/programs kube-apiserver </dev/null &
	building=$!
	alone "${anew[@]}" -timeout=40m </dev/null &
	others=$!
	wait $building || exit 1
	go run ./e2e/programs "${programs[@]}" </dev/null &
	building=$!
	CGO_ENABLED=0 in_dirs built "${built[@]}" -- "${flags[@]}" "${anew[@]}" -timeout=80m </dev/null &
	longest=$!
	in_dirs processes "${processes[@]}" -- "${flags[@]}" "${anew[@]}" -race -timeout=80m -p 1 </dev/null &
	wait $! || status=1
	wait $longest || status=1
	wait $building || status=1
	wait $others || status=1
	set +m
	check_skips $out/plain.json $out/units.json $out/built.json $out/processes.json || status=1
	;;
e2e)
	export PLIMSOLL_LONG=1
	# What a green run of this very tree leaves. The records of such runs tell nothing.
	written=(':!e2e/last-green.txt' ':!e2e/matrix/records.json' ':!docs/compatibility.md')
	tree=$({ git rev-parse HEAD && git diff HEAD -- . "${written[@]}"; } | sha256sum | cut -c1-12)
	commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD -- . "${written[@]}" || echo -dirty)
	begun=$SECONDS
	# once NAME PACKAGES… -- FLAGS… runs them unless they passed on this tree.
	once() {
		local start=$SECONDS
		if [ "$(cut -d' ' -f1 "$out/$1.green" 2>/dev/null)" = "$tree" ]; then
			echo "$1: green on this tree already: $out/$1.green"
		elif in_dirs "$@" -count=1 && check_skips "$out/$1.json"; then
			echo "$tree $commit $(date -u +%FT%TZ) $((SECONDS - start)) s" >"$out/$1.green"
		else
			return 1
		fi
	}
	# long DIRS… runs their long forms, one after the other.
	long() {
		local dir failed=0
		for dir; do
			once "e2e-${dir//\//-}" "$dir" -- -timeout=4h || failed=1
		done
		return $failed
	}
	PLIMSOLL_LONG='' gotestsum plain -- -race -ldflags=-s -count=1 -timeout=40m "${plain[@]/#/./}" || status=1
	PLIMSOLL_LONG='' once raced "${built[@]}" -- -race -timeout=80m || status=1
	# The first waits for processes half of its time, so the others run beside it, but for
	# emulated machines, which take both processors.
	set -m
	long "${built[0]}" </dev/null &
	first=$!
	long "${built[@]:1}" "${processes[@]}" "${longs[@]}" </dev/null &
	wait $! || status=1
	wait $first || status=1
	set +m
	long "${machines[@]}" || status=1
	if [ $status = 0 ]; then
		{
			echo "# The last green run of make e2e, which writes this file: when a package passed,"
			echo "# on which commit, and for how long it ran."
			printf '%-15s %s\n' raced "$(cut -d' ' -f2- "$out/raced.green")"
			for dir in "${built[@]}" "${processes[@]}" "${longs[@]}" "${machines[@]}"; do
				printf '%-15s %s\n' "$dir" "$(cut -d' ' -f2- "$out/e2e-${dir//\//-}.green")"
			done
		} >e2e/last-green.txt
		echo "all green after $((SECONDS - begun)) s: e2e/last-green.txt"
	fi
	;;
*)
	echo "run.sh: there is no tier $tier: check, test or e2e" >&2
	exit 2
	;;
esac
exit $status
