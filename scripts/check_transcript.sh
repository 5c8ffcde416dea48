#!/bin/bash
# Transcripts in the documentation are real: in each block marked `console`, a line that starts with "$ " runs, and the
# lines below it occur in what it prints, in this order. Numbers and the lengths of gaps may differ, since times do;
# "..." at the end of a line stands for its rest, and alone for lines left out. Port 8080 is one that is free; a server is
# asked to end after three seconds, by one signal: a second one ends it at once.
#
#   scripts/check_transcript.sh [BUILD]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build} bad=0

shape() { LC_ALL=C sed -E 's/[0-9]+(\.[0-9]+)?/#/g; s/[ \t]+/ /g; s/ +$//'; }

mkdir -p "$build/demo"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for page in README.md $(find docs -name '*.md' 2>/dev/null | sort); do
	command='' rest=''
	while IFS= read -r line; do
		case $line in
		'$ '*)
			command=${line#'$ '}
			command=${command//8080/$port}
			command=${command/#build\/atlas serve/timeout --foreground --preserve-status 3 build/atlas serve}
			printed=$(bash -c "set -eo pipefail; ${command//build\//$build/}" 2>&1 </dev/null) ||
				{ echo "$page: \`$command\` fails: $printed"; bad=1; }
			rest=$(shape <<<"${printed//$build\//build/}")
			;;
		'...' | '') ;;
		*)
			want=$(shape <<<"${line%...}")
			case $line in *...) end='' ;; *) end=$'\n' ;; esac
			case $'\n'$rest$'\n' in
			*$'\n'"$want$end"*) rest=${rest#*"$want"} ;;
			*) echo "$page: \`$command\` does not print, or not here: $line"; bad=1 ;;
			esac
			;;
		esac
	done < <(sed -n '/^```console$/,/^```$/p' "$page" | grep -v '^```')
done
exit $bad
