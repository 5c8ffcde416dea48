#!/bin/bash
# Every header compiles alone, with the build's own flags: it includes what it uses.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL # this make answers; it is no part of the make that runs the check
flags=$(make -s flags) || exit 1
bad=0
while IFS= read -r header; do
	# A row table (OP(...), DTYPE(...)) is made to be expanded by its includer and says so by having no guard.
	grep -qE '^#(ifndef|pragma once)' "$header" || continue
	# shellcheck disable=SC2086  # flags are words
	printf '#include "%s"\n' "$header" | eval cc $flags -fsyntax-only -x c - || { echo "$header: not self-contained"; bad=1; }
done < <(find artifacts compiler models runtime -name '*.h' | sort)
exit $bad
