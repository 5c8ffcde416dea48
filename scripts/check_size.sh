#!/bin/bash
# libatlas.so is small: stripped, it has less than 592 KiB. What it grew by is in the longest symbols, which are shown.
#
#   scripts/check_size.sh [BUILD]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
library=${1:-build}/libatlas.so
limit=606208
[ -e "$library" ] || { echo "no $library: run make"; exit 1; }
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library" || exit 1
size=$(wc -c <"$stripped")
[ "$size" -lt "$limit" ] && exit 0
echo "$library: $size bytes when stripped: expected less than $limit; the largest symbols:"
nm --size-sort --reverse-sort --radix=d "$library" | head -n 20
exit 1
