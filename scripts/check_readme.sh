#!/bin/bash
# README, CONTRIBUTING and docs/ cannot rot: every path they name exists, every make target they name is one, every pass of the
# compiler is in README with its letter, and every command in a block marked `sh` runs, in order. Of `make`
# lines only the target is looked up, for they are what runs this check; `apt-get` lines are for a bare machine. In every
# page of the tree, links lead to files that exist and, with #, to a heading there; the web is not asked. Files that
# comments of sources and tests name exist too, where the name has no word to fill in, written in capitals.
#
#   scripts/check_readme.sh [BUILD]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:-build} bad=0

say() { echo "$page: $1"; bad=1; }

page=README.md
while read -r pass; do
	grep -qF "${pass/_/ }" README.md || say "the pass ${pass/_/ } of compiler/main.c is not shown"
done < <(sed -n "/pipeline\[\] = {/,/^};/s/.*{'\(.\)', *\"\([a-z-]*\)\".*/\1_\2/p" compiler/main.c)

mkdir -p "$build/demo"
for page in README.md $(find CONTRIBUTING.md tests/README.md docs -name '*.md' 2>/dev/null | sort); do
	# Paths: `word/word` in backticks, and the tree drawing's first words.
	for path in $(grep -oE '`[A-Za-z0-9_.]+/[A-Za-z0-9_./*-]*`' "$page" | tr -d '`' | sort -u) \
		$(sed -n '/^```tree/,/^```$/s|^\([A-Za-z.][A-Za-z0-9_./-]*\) .*|\1|p' "$page"); do
		case $path in build/* | *NAME*) continue ;; esac # built, or with a word to fill in
		compgen -G "${path%/}" >/dev/null || say "$path does not exist"
	done

	# shellcheck disable=SC2013  # targets are words
	for target in $(grep -oE '(^|[`(])make [a-z_.-]+' "$page" | sed 's/.*make //' | sort -u); do
		grep -qE "^$target:" Makefile || say "make $target: no such target"
	done

	while IFS= read -r line; do
		case $line in
		'' | '#'* | make* | 'apt-get '*) continue ;;
		esac
		bash -c "set -eo pipefail; ${line//build\//$build/}" >/dev/null 2>"$build/readme.log" </dev/null ||
			{ say "\`$line\` fails:"; cat "$build/readme.log"; }
	done < <(sed -n '/^```sh$/,/^```$/p' "$page" | grep -v '^```')
done
rm -f "$build/readme.log"

anchors() { # page: its headings as links name them
	sed -n '/^```/,/^```$/d; s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' |
		awk '{ print n[$0]++ ? $0 "-" n[$0] - 1 : $0 }'
}
while IFS= read -r page; do
	page=${page#./}
	while IFS= read -r link; do
		file=${link%%#*}
		case $link in
		http://* | https://* | mailto:*) continue ;;
		\#*) file=$page ;;
		*) file=$(dirname "$page")/$file ;;
		esac
		if [ ! -e "$file" ]; then
			say "the link $link leads nowhere"
		elif [[ $link == *#* ]] && ! anchors "$file" | grep -qxF -e "${link#*#}"; then
			say "the link $link: ${file#./} has no such heading"
		fi
	done < <(sed '/^```/,/^```$/d; s/`[^`]*`//g' "$page" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
done < <(find . -name 'build*' -prune -o -name .git -prune -o -name '*.md' -print | sort)

# FILE:LINE:PATH. The tests of the checks and of chores write files of their own.
named() {
	find artifacts compiler kernels/templates models runtime tests -name '*.[ch]' -o -name '*.cu*' -o -name '*.py' -o -name '*.sh' 2>/dev/null |
		grep -v '^tests/make/' | sort | xargs -r grep -onE "$1" /dev/null
}
while IFS=: read -r page line path; do
	[[ $path == *[A-Z][A-Z]* || -e $path ]] || say "$line: $path does not exist"
done < <(named '\b(artifacts|compiler|docs|kernels|models|runtime|scripts|tests)/[A-Za-z0-9_/.-]+\.(c|h|cuh?|py|md|toml|sh|txt)\b')
exit $bad
