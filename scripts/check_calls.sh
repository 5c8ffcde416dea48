#!/bin/bash
# Who calls whom, by the symbols of objects. A function that only its own file calls is static, and one that nobody calls
# is not there; a test counts as a caller. Files of compiler/graph/ call each other in one direction.
#
#   scripts/check_calls.sh [BUILD]
#
# Exempt: the API, and ref_*, which a table takes by the rows of ops.h; two functions of libsodium are replaced.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
objects=$(find "$build"/obj/{artifacts,compiler,models,runtime} "$build"/gen -name '*.o' 2>/dev/null | while read -r o; do
	source=${o#"$build"/obj/}
	[ "$source" != "$o" ] && [ ! -e "${source%.o}.c" ] || echo "$o" # of a source that is gone
done)
[ -n "$objects" ] || { echo 'no object file: run make'; exit 1; }
bad=0
# shellcheck disable=SC2086  # one word per file
symbols=$(nm -A $objects | sed "s|^$build/||; s|^obj/||" | awk '{ split($1, file, ":"); print file[1], $(NF - 1), $NF }')
while read -r file name; do
	grep -rqw --include='*.[ch]' "$name" tests 2>/dev/null || { echo "${file%.o}.c: $name: no other file calls it"; bad=1; }
done < <(awk '$2 == "T" && $3 !~ /^(main|atlas_.*|ref_.*|randombytes_buf|sodium_misuse)$/ { at[$3] = $1 }
	$2 == "U" { used[$3] = 1 }
	END { for (name in at) if (!(name in used)) print at[name], name }' <<<"$symbols" | sort)
awk '$1 ~ /^compiler\/graph\// { if ($2 == "T") at[$3] = $1; else if ($2 == "U") calls[$1 " " $3] = 1 }
	END { for (c in calls) { split(c, w, " "); if (w[2] in at) print w[1], at[w[2]] } }' <<<"$symbols" | tsort >/dev/null 2>"$build/calls" ||
	{ sed -n 's|^tsort: \(.*\)\.o$|\1.c: in a circle of calls|p' "$build/calls"; bad=1; }
rm -f "$build/calls"
exit $bad
