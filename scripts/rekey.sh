#!/bin/sh
# Keeps measured times through an edit of templates that changes no machine code.
#
#   scripts/rekey.sh BUILD COMMIT    (make rekey FROM=COMMIT)
#
# COMMIT has the templates as they were when the times of kernels/tuning counted, HEAD before an edit is committed. Their
# table, written by today's kernelgen, is linked with the compiler of BUILD into BUILD/was/atlasc. Then each file of times
# goes through `atlas tune FILE --rekey`: kernels that changed are compiled by both, and a time gets its kernel's new key
# where the machine code is equal. Templates that today's kernelgen refuses end it: then build COMMIT as a whole, and give
# its atlasc to `atlas tune`.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 2 ] || { echo "usage: make rekey FROM=COMMIT" >&2; exit 2; }
rm -rf "$1/was"
mkdir -p "$1/was/templates"
git archive --format=tar "$2:kernels/templates" | tar -xf - -C "$1/was/templates"
"${MAKE:-make}" -s BUILD="$1" "$1/was/atlasc"
for times in kernels/tuning/*.toml; do
	echo "== $times"
	"$1/atlas" tune "$times" --rekey "$1/was/atlasc"
done
"${MAKE:-make}" -s BUILD="$1" "$1/atlasc" # with these times
