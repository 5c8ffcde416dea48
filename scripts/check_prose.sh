#!/bin/bash
# Words that may not come back into documentation, comments and names: private ones for which the field has a term. Words
# inside quotes are messages or help and are not looked at.
#
#   scripts/check_prose.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
words='\b(told|tells?|nobody|held against|holds? [^.;]* against|as (it|they) stands?)\b'
files=$(find README.md docs CHANGELOG.md tests/gpu/results/README.md artifacts compiler models runtime \
	\( -name '*.md' -o -name '*.[ch]' \) 2>/dev/null | grep -v '/codes\.h$')
# shellcheck disable=SC2086  # one word per file
hits=$(grep -nEi "$words" $files /dev/null | sed -E 's/"[^"]*"/""/g' | grep -Ei "$words")
[ -z "$hits" ] || { echo "$hits"; echo 'say it with the words of the field: print, report, note, compare, unused'; exit 1; }
