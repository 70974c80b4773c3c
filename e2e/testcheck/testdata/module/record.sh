#!/bin/sh
# Records what go test says of each package here, as ../PACKAGE.json; what failed
# runs again.
cd "$(dirname "$0")" || exit
MARK=$(mktemp -u)
export MARK
for dir in */; do
	out=../${dir%/}.json
	go test -trimpath -json -count=1 "./$dir" >"$out"
	[ "$dir" = skip/ ] || go test -trimpath -json -count=1 -run '^(TestFirstTime|TestAlways)$' "./$dir" >>"$out"
done
rmdir "$MARK"
