#!/bin/bash
# Fuzz a reader of foreign files with libFuzzer under ASan and UBSan. Needs clang.
#
#   scripts/fuzz.sh toml|json|safetensors [SECONDS]
#
# Starts from tests/fuzz/NAME, where inputs that once broke something are kept (the tests replay them); what it
# finds on the way stays under build/fuzz. A crash leaves its input there and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-} seconds=${2:-60}
common='compiler/base.c compiler/input.c compiler/value.c'
case $name in
toml) source=compiler/toml.c rest=$common libs= ;;
json) source=compiler/json.c rest=$common libs=-ljansson ;;
safetensors)
	source=compiler/read_weights.c libs=-ljansson
	rest="$common compiler/json.c artifacts/tables.c" ;;
*)
	echo 'usage: scripts/fuzz.sh toml|json|safetensors [SECONDS]' >&2
	exit 2 ;;
esac
out=build/fuzz/$name
mkdir -p "$out/corpus"
flags='-std=c11 -D_GNU_SOURCE -O1 -g -I. -DARENA_MALLOC -fsanitize=address,undefined,fuzzer-no-link
	-fno-sanitize-recover=all'
objects=()
for file in $source $rest; do
	object=$out/$(basename "$file" .c).o
	define=
	[ "$file" = "$source" ] && define=-DFUZZ
	# shellcheck disable=SC2086  # words on purpose
	clang $flags $define -c -o "$object" "$file"
	objects+=("$object")
done
# shellcheck disable=SC2086
clang -fsanitize=address,undefined,fuzzer -o "$out/fuzz" "${objects[@]}" $libs
"$out/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=5 -artifact_prefix="$out/" -print_final_stats=1 \
	"$out/corpus" "tests/fuzz/$name"
