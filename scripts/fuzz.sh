#!/bin/bash
# Fuzz the readers of foreign bytes (tests/fuzz/targets.h) with libFuzzer under ASan and UBSan. Needs clang.
#
#   scripts/fuzz.sh [SECONDS [NAME...]]     default: 60 seconds each, all
#
# Starts from tests/fuzz/NAME, which the tests replay, and from the fixtures; what it finds on the way stays under
# build-fuzz/NAME. A finding leaves its input there and fails: mend it, and keep the input in tests/fuzz/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
[ $# -gt 0 ] || set -- plan msgpack model-toml family config safetensors tokenizer tokenizer-config tokenizer-section \
	chat-template chat-program chat-json certificate json toml http request pieces grammar
build=build-fuzz bad=0
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

seed() { # name: what there is besides tests/fuzz/NAME, into its corpus
	local corpus=$build/$1/corpus file line n=0
	mkdir -p "$corpus"
	while read -r line; do
		base64 -d <<<"$line" >"$corpus/found-$n"
		n=$((n + 1))
	done < <(cat "tests/fuzz/$1/found.b64" 2>/dev/null)
	case $1 in
	plan) "$build/tests/plan_seeds" "$corpus" ;;
	tokenizer-section) "$build/tests/tokdump" tests/fixtures/llama 400 "$corpus/llama" >"$build/$1/log" ;;
	config | tokenizer)
		for file in tests/fixtures/*/"$1".json tests/fixtures/tokenizers/*/"$1".json; do
			[ ! -e "$file" ] || cp "$file" "$corpus/$(basename "$(dirname "$file")")"
		done ;;
	tokenizer-config)
		for file in tests/fixtures/*/tokenizer_config.json; do
			cp "$file" "$corpus/$(basename "$(dirname "$file")")"
		done ;;
	family) cp models/[!d]*.toml "$corpus" ;;
	model-toml) cp models/defaults.toml "$corpus/family" ;;
	esac
}

unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that started this: its job server is closed to this one
make -s BUILD=$build CC=clang WARN=-Wno-everything SANITIZE=address,undefined,fuzzer-no-link \
	$build/tests/plan_seeds $build/tests/tokdump "${@/#/$build/fuzz/}"
for name; do
	longest=4096
	case $name in plan | tokenizer*) longest=160000 ;; esac
	seed "$name"
	"$build/fuzz/$name" -max_total_time="$seconds" -max_len=$longest -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
		-artifact_prefix="$build/$name/" -print_final_stats=1 "$build/$name/corpus" "tests/fuzz/$name" \
		>"$build/$name/log" 2>&1 || { bad=1; grep -E 'ERROR|runtime error|internal error|Test unit' "$build/$name/log"; }
	printf '%-18s %s\n' "$name" "$(awk '
		/number_of_executed_units/ { runs = $2 } / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
		/Done [0-9]+ runs in/ { secs = $(NF - 1) } /Test unit written/ { found++ }
		END { printf "%10d inputs %5d s %6d edges %d findings", runs, secs, cov, found }' "$build/$name/log")"
done
exit $bad
