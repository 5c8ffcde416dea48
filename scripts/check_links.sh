#!/bin/bash
# What the binaries need and show: they start with the C library alone (atlasc loads NVRTC when it compiles a kernel);
# libatlas exports versioned atlas_* names and nothing else; no file names the folder it was built in.
#
#   scripts/check_links.sh [BUILD]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build} bad=0
libc='libc\.so\.6|libm\.so\.6|ld-linux[a-z0-9-]*\.so\.[0-9]+'

needs() { # file allowed-regex
	local extra
	[ -e "$1" ] || { echo "$1: missing"; bad=1; return; }
	extra=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE "$2")
	[ -z "$extra" ] || { echo "$1 needs ${extra//$'\n'/ }"; bad=1; }
	if grep -qaF "$PWD/" "$1"; then
		echo "$1 holds the path of its build folder"
		bad=1
	fi
}
needs "$build/atlas" "$libc"
needs "$build/libatlas.so" "$libc"
needs "$build/atlasc" "$libc"

shown=$(nm -D --defined-only "$build/libatlas.so" | awk '{ print $3 }' | grep -vE '^(atlas_[a-z0-9_]+@@)?ATLAS_[0-9.]+$')
[ -z "$shown" ] || { echo "libatlas.so exports ${shown//$'\n'/ }"; bad=1; }
shown=$(nm -g --defined-only "$build/libatlas.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | grep -v '^atlas_')
[ -z "$shown" ] || { echo "libatlas.a shows ${shown//$'\n'/ }"; bad=1; }
for name in $(grep -ohE '\batlas_[a-z0-9_]+ *\(' runtime/atlas.h 2>/dev/null | tr -d ' (' | sort -u); do
	nm -D --defined-only "$build/libatlas.so" | grep -q " $name@@" ||
		{ echo "runtime/atlas.h declares $name, which libatlas.so does not export"; bad=1; }
done
exit $bad
