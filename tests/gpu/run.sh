#!/bin/bash
# Runs what needs a GPU with a build that was made elsewhere, and writes one short table a part.
#
#   tests/gpu/run.sh [-c COMMIT] [-o DIR] [-m CHECKPOINT] [-t TUNING] [kernels] [sanitizer] [bench] [attention]
#                    [gemm] [fixtures] [models] [peer] [model]
#
#   kernels    every template against the reference device, 100 trials each
#   sanitizer  compute-sanitizer memcheck and racecheck on small trials
#   bench      kernels at shapes of real models against the read and mma rates of the same run
#   attention  prefill attention of long prompts against the mma rate of the same run
#   gemm       products of long prompts beside cuBLAS
#   fixtures   every committed checkpoint: layers against the reference device, tokens against transformers
#   models     atlas bench on real shapes with random weights: every row and every launch; JSON and a page with plots
#              beside the table
#   peer       one stream of real shapes beside transformers, context 128 to 640
#   model      CHECKPOINT (made by scripts/smollm2_checkpoint.py): tokens, layers, perplexity against transformers
#
# DIR defaults to build/gpu-results; models and peer compile with the times in TUNING. Of the build the first five need build/tests-gpu/kernel_test, the others
# build/atlasc and build/atlas. NVRTC is taken from where the build found it, else from an installed toolkit or a
# Python package that brings it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
commit=unknown
out=build/gpu-results
model=build/smollm2
tuning=()
while getopts c:o:m:t: option; do
	case $option in
	c) commit=$OPTARG ;;
	o) out=$OPTARG ;;
	m) model=$OPTARG ;;
	t) tuning=(--tuning "$OPTARG") ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- kernels sanitizer bench
test=build/tests-gpu/kernel_test
mkdir -p "$out"

if ldd $test build/atlasc 2>/dev/null | grep -q 'libnvrtc.*not found'; then
	nvrtc=$(find /usr/local/cuda*/ /usr/lib /opt "$HOME" -name 'libnvrtc.so.13*' 2>/dev/null | head -n 1)
	[ -n "$nvrtc" ] || { echo "run.sh: no libnvrtc.so.13 on this machine" >&2; exit 5; }
	export LD_LIBRARY_PATH=${nvrtc%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
jobs=$(nproc)
[ "$jobs" -le 16 ] || jobs=16
failed=0

part() { # name command...
	local name=$1 rc
	shift
	{
		echo "card, driver: $card"
		echo "commit: $commit"
		echo "command: $*" | sed "s:$out:DIR:g"
		"$@" 2>&1
		rc=$?
		echo "exit code: $rc"
	} >"$out/$name.txt"
	[ "$rc" -eq 0 ] || failed=1
	echo "== $name"
	tail -n 60 "$out/$name.txt"
}

bench_model() { # shape max_context pool_tokens
	printf '[runtime]\nslots = 32\nmax_context = %s\n[kv]\npool_tokens = %s\n' "$2" "$3" >"$out/$1.toml"
	build/atlasc "tests/gpu/shapes/$1.json" --random-weights --model "$out/$1.toml" -o "build/$1.bin" -q \
		"${tuning[@]}" --cache-dir build/kernel-cache &&
		part "bench-$1" build/atlas bench "build/$1.bin" -q --kernels --json "$out/bench-$1.json" \
			--html "$out/bench-$1.html" || failed=1
	rm -f "build/$1.bin" "$out/$1.toml"
}

peer() { # shape
	build/atlasc "tests/gpu/shapes/$1.json" --random-weights -o "build/$1.bin" -q "${tuning[@]}" \
		--cache-dir build/kernel-cache &&
		part "peer-$1" python3 tests/gpu/peer_transformers.py build "tests/gpu/shapes/$1.json" "build/$1.bin" ||
		failed=1
	rm -f "build/$1.bin"
}

for what in "$@"; do
	case $what in
	kernels) part kernels $test --cases 100 --jobs "$jobs" ;;
	sanitizer)
		for tool in memcheck racecheck; do
			part $tool compute-sanitizer --tool $tool --error-exitcode 1 --print-limit 20 \
				$test --small --cases 6 --jobs "$jobs"
		done
		;;
	bench)
		part bench-all $test --bench --jobs "$jobs" >/dev/null
		{ # the best tunables of each shape; bench-all has every one
			grep -v '^ ' "$out/bench-all.txt"
		} >"$out/bench.txt"
		echo "== bench"
		cat "$out/bench.txt"
		;;
	attention) part attention $test --bench --only attn_wgmma --jobs "$jobs" ;;
	gemm) part peer_gemm python3 tests/gpu/peer_gemm.py $test ;;
	fixtures) part fixtures python3 tests/gpu/fixtures.py build ;;
	models)
		bench_model smollm2-135m 8192 131072
		bench_model llama-3.2-1b 17408 196608
		bench_model llama-3.1-8b 17408 163840
		;;
	peer)
		peer smollm2-135m
		peer llama-3.2-1b
		peer llama-3.1-8b
		;;
	model)
		build/atlasc "$model" -o build/model.bin -q &&
			part model python3 tests/gpu/against_transformers.py "$model" build/model.bin \
				tests/fixtures/llama-trained/heldout.txt || failed=1
		;;
	*) echo "run.sh: no part $what" >&2; exit 2 ;;
	esac
done
exit $failed
