#!/bin/bash
# No mutable object of file scope: nothing of ours lies in .data, .bss, thread-local storage or as a common
# symbol. Constant tables land in .rodata or, when they hold pointers, in .data.rel.ro. The one exception is `listening`
# of the command: CUPTI calls back without a pointer of its caller's.
#
#   scripts/check_globals.sh [BUILD]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
objects=$(find "${1:-build}"/obj/{artifacts,compiler,models,runtime} "${1:-build}"/gen -name '*.o' 2>/dev/null)
[ -n "$objects" ] || { echo 'no object file: run make'; exit 1; }
# shellcheck disable=SC2086  # one word per file
objdump -t $objects | awk '
	/file format/ { file = $1; sub(/:$/, "", file) }
	/[[:space:]](O[[:space:]]+(\.data|\.bss|\*COM\*)|\.tdata|\.tbss)/ && !/\.data\.rel\.ro/ && !/ d / &&
		!(file ~ /runtime\/cli\/trust\/receipt_cupti\.o$/ && $NF == "listening") {
		print file ": " $NF ": a mutable object of file scope"
		bad = 1
	}
	END { exit bad }'
