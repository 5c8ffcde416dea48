#!/bin/bash
# Words that may not come back into documentation, comments, help and messages: private ones for which the field or plain
# English has a term.
#
#   scripts/check_prose.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0

complain() { # advice; hits on stdin
	local hits
	hits=$(cat)
	[ -n "$hits" ] || return
	echo "$hits"
	echo "$1"
	bad=1
}

words='\b(told|tells?|nobody|held against|holds? [^.;]* against|as (it|they) stands?)\b'
files=$(find README.md docs CHANGELOG.md CONTRIBUTING.md tests/README.md tests/gpu/results/README.md artifacts compiler models runtime \
	\( -name '*.md' -o -name '*.[ch]' \) 2>/dev/null | grep -v '/codes\.h$')
# shellcheck disable=SC2086  # one word per file
complain 'say it with the words of the field: print, report, note, compare, unused' < <(
	grep -nEi "$words" $files /dev/null | sed -E 's/"[^"]*"/""/g' | grep -Ei "$words")

# Strings, which help and messages are made of.
strings='\b(told|tells?|nobody|stands?|behind|beside|vouch\w*|none such|of (its|their) own|which is not given|likewise|'
strings+='(do|does) not suffice|held against|as (it|they) stands?|(is|are) of (--|atlas))\b'
strings+='|(?<!there) (is|are) no (more )?[a-z]' # "there is no x" is fine, "y is no x" is "y is not an x"
# shellcheck disable=SC2046  # one word per file
complain 'help and messages: print, after, next to, need, "is not a"' < <(
	scripts/c_strings.py $(find artifacts compiler models runtime -name '*.[ch]' 2>/dev/null |
		grep -vE '^runtime/(session\.c|text/)' | sort) | grep -Pi "^[^ ]+ .*?($strings)")

# Comments and pages: words that have a standard one. "left behind", "stands for" and "stand-in" are plain English.
private='\b(told|tells?|nobody|somebody|anybody|whoever|for who|(?<!left )behind|beside|(stands?|stood)(?! for|-in)|'
private+='so many|(on|in) (its|their) way|in vain|for ever|laid over|vouch\w*|as (it|they) stands?)\b'
# shellcheck disable=SC2046,SC2086  # one word per file
complain 'comments and pages: after, next to, in flight, merged, is, that many, the caller' < <(
	{
		scripts/c_strings.py --comments $(find artifacts compiler models runtime -name '*.[ch]' 2>/dev/null | sort)
		grep -nE '' $(printf '%s\n' $files | grep '\.md$') /dev/null
	} | sed -E 's/"[^"]*"/""/g' | grep -Pi "^[^ ]+ .*?$private|^[^:]+\.md:[0-9]+:.*$private")
exit $bad
