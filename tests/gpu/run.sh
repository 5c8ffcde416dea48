#!/bin/bash
# Runs what needs a GPU with a build that was made elsewhere, and writes one short table a part.
#
#   tests/gpu/run.sh [-c COMMIT] [-o DIR] [-m CHECKPOINT] [-t TUNING] [kernels] [sanitizer] [bench] [attention]
#                    [gemm] [fp8] [codes] [fixtures] [many] [floor] [models] [quantised] [hybrid] [isolate]
#                    [isolate-mixed] [isolate-buckets] [isolate-pages] [prefix] [grid] [speculate] [requests] [start] [kv] [peer] [peer-vllm] [model] [receipt]
#                    [memory] [rebuild] [layers] [seal] [starts] [official] [attention-rounding] [tune] [streams]
#                    [families] [serve] [order]
#
#   kernels    every template against the reference device, 100 trials each
#   sanitizer  compute-sanitizer memcheck and racecheck on small trials
#   bench      kernels at shapes of real models against the read and mma rates of the same run
#   attention  prefill attention of long prompts against the mma rate of the same run
#   gemm       products of long prompts beside cuBLAS
#   fp8        products of long prompts of codes by codes against the mma rate of the same run
#   codes      the same of bf16 rows by weights in four bits
#   fixtures   every committed checkpoint: layers against the reference device, tokens against transformers
#   many       the same of steps of 64 slots; products of 64, 128 and 256 rows against the rates of the same run
#   floor      the same of plans whose ops are all alone ([kernels] fuse = false), and the floor's kernels against the
#              reference device; 8B in bf16 with and without fusions
#   models     atlas bench on real shapes with random weights: every row and every launch; JSON and a page with plots
#              beside the table
#   quantised  the same of FP8, NVFP4 and INT4 weights, of an FP8 head, and of FP8 caches behind 16384 tokens
#   hybrid     the same of shapes with experts and Gated DeltaNet: 35B-A3B, 27B, 30B-A3B
#   isolate    texts alone and beside others by the bits of every log probability, with one bucket of each kind
#   grid       prompts of an 8B shape a second where they are cut on the grid, and where they may be cut anywhere
#   isolate-pages  the same in a pool of one context, pages as needed, so that many are set aside; and with
#              prompts and answers that take turns
#   prefix     the same where the start of prompts is kept, also of small pools; then atlas serve of an 8B and a 35B shape with
#              the prefix cache and without, 200 prompts of 1,024 tokens that all begin with and 64 of their own
#   isolate-buckets  how many texts differ with the families' default buckets
#   isolate-mixed  how many do where steps mix prompts and answers, and where these take turns
#   speculate  drafts: a 35B shape with and without them at a prescribed acceptance: 2, 3 and 4 rows a step, eight
#              sequences, and 3 rows with drafts that an FP8 head of 32768 ids scores
#   requests   bias, least lengths, stop tokens and alternatives, drawn again by numpy from the GPU's own scores
#   start      a new process to its first token, five times
#   kv         logits of quantised caches of CHECKPOINT against those of bf16 caches, at 8192 tokens of a licence, beside
#              torch's rounding
#   peer       one stream of real shapes beside transformers, context 128 to 640
#   peer-vllm  1 to 256 streams of 8B and 35B in build/streams beside vLLM, where it is installed
#   receipt    what ran, by CUPTI, beside what the plan lists, of some fixtures and a shape; then with one function
#              swapped under the runtime, which must be seen
#   memory     predicted and measured device memory of the same plans, behind every bucket
#   rebuild    digests of whole plans, those with code compiled there, against the goldens made without a GPU; and a
#              plan made again of what it records
#   layers     a 35B shape of random weights: every layer beside the reference device's from the same input, what adds up,
#              what bf16 alone costs transformers at that shape, and the plan's certificate
#   seal       a process with each --verify to its first token, weights of 8B in memory
#   starts     50 processes whose memory lies elsewhere each time, of two plans, one of which drafts: equal tokens and
#              bits of log probabilities; then ten with both plans, whose steps alternate by chance
#   official   two folders in the official form (tests/published/official.py), BF16 and FP8, four layers of full width:
#              every layer beside the reference device's, text with and without drafts; 10 GB of disk each
#   attention-rounding  attention of prompts as it is and with probabilities rounded in other ways, in kernels that
#              tests/gpu/rounding.sh left in build/rounding: right, and how fast; what the ways gain on CHECKPOINT
#   streams    1 to 256 streams of 8B, 27B and 35B and prompts, drawn at temperature 1: tests/gpu/streams.sh
#   families   every checkpoint of tests/families (tests/gpu/families.py); then published sizes: tests/gpu/streams.sh
#   serve      atlas serve: 32 streams of 8B and 35B beside atlas bench, loads of 8B: tests/gpu/serve.sh
#   order      plans with [numerics] invariant: kernels of equal ORDER by bits, texts in all buckets, cost: tests/gpu/order.sh
#   tune       times of the candidates in build/tune/*.bin, which scripts/tune.sh plans has made: build/tune/TARGET.CARD.toml
#   model      CHECKPOINT (made by scripts/smollm2_checkpoint.py): tokens, layers, perplexity against transformers
#
# DIR defaults to build/gpu-results; models, quantised, start and peer compile with the times in TUNING. Of the build the
# first seven need build/tests-gpu/kernel_test, the others build/atlasc and build/atlas. NVRTC is taken from where the build
# found it, else from an installed toolkit or a Python package that brings it.
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

if ldd $test 2>/dev/null | grep -q 'libnvrtc.*not found' || ! build/atlasc --version | grep -q '^NVRTC: /'; then
	nvrtc=$(find /usr/local/cuda*/ /usr/lib /opt "$HOME" -name 'libnvrtc.so.13*' 2>/dev/null | head -n 1)
	[ -n "$nvrtc" ] || { echo "run.sh: no libnvrtc.so.13 on this machine" >&2; exit 5; }
	export LD_LIBRARY_PATH=${nvrtc%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
device=cuda n_starts=50
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

# A plan of a shape with random weights, build/NAME.bin; the lines of MODEL.toml are the result's. Weights are made when the
# plan is opened, but for those that are made of others while compiling.
random_plan() { # name shape lines
	local weights=ref
	printf '%b' "$3" >"$out/$1.toml"
	! grep -q '^head =\|^\[quant\]' "$out/$1.toml" || weights=embed
	build/atlasc "tests/gpu/shapes/$2.json" --random-weights --weights $weights --model "$out/$1.toml" -o "build/$1.bin" -q \
		"${tuning[@]}" --cache-dir build/kernel-cache || failed=1
}

bench_model() { # name shape lines rows
	random_plan "$1" "$2" "$3" &&
		part "bench-$1" build/atlas bench "build/$1.bin" -q --kernels ${4:+--only "$4"} --json "$out/bench-$1.json" \
			--html "$out/bench-$1.html"
	sed "s/^/MODEL.toml: /" "$out/$1.toml" >>"$out/bench-$1.txt"
	rm -f "build/$1.bin" "$out/$1.toml"
}

room() { # max_context pool_tokens
	printf '[runtime]\\nslots = 32\\nmax_context = %s\\n[kv]\\npool_tokens = %s\\n' "$1" "$2"
}

# One prefill and one decode bucket: kernels of another are other sums. `default` leaves the family's buckets.
isolated_plan() { # fixture one|default lines to add, max_context
	local toml=$out/isolated.toml
	sed "s/^max_context = .*/max_context = ${4-512}/" "tests/fixtures/$1/MODEL.toml" >"$toml"
	if [ "$2" = one ]; then
		sed -i 's/^prefill = .*/prefill = [128]/; s/^decode = .*/decode = [4]/' "$toml"
	else
		sed -i '/^prefill = /d; /^decode = /d; s/^slots = .*/slots = 16/' "$toml"
	fi
	printf '%b' "${3-}" >>"$toml"
	build/atlasc "tests/fixtures/$1" --model "$toml" -o build/isolated.bin -q "${tuning[@]}" --cache-dir build/kernel-cache
	local rc=$?
	rm -f "$toml"
	return "$rc"
}

# Each text alone and beside others, seeds 0 to 19, with and without drafts where there is a head.
isolate() { # one|default [count]
	local rc=0 name fixture lines how
	while IFS='|' read -r name fixture lines; do
		[ "$1" = one ] || [ "$name" = "$fixture" ] || continue
		isolated_plan "$fixture" "$1" "$lines" || { rc=1; continue; }
		for how in off mtp; do
			[ "$how" = off ] || ! build/atlas info build/isolated.bin --json | grep -q '"verify_rows": 0' || continue
			printf '%-28s %-3s ' "$name" "$how"
			if [ $# -eq 2 ]; then # what differs is counted, not told
				build/tests/isolate_run build/isolated.bin cuda "$how" 3 32 0-19 "$2" 2>/dev/null || rc=1
			else
				build/tests/isolate_run build/isolated.bin cuda "$how" 3 32 0-19 || rc=1
			fi
		done
	done <<-'END'
		llama-trained|llama-trained|
		qwen3_5|qwen3_5|
		qwen3_5_moe-trained|qwen3_5_moe-trained|
		llama-fp8-block|llama-fp8-block|
		llama-trained, fp8 caches|llama-trained|[kv]\ndtype = "fp8"\n
		qwen3_5, states in bf16|qwen3_5|[state]\ndtype = "bf16"\n
	END
	rm -f build/isolated.bin
	return "$rc"
}

# Turns, then mixed steps, of the families' own buckets.
isolate_mixed() {
	local rc=0 fixture how
	for fixture in llama-trained qwen3_5 qwen3_5_moe-trained llama-fp8-block; do
		isolated_plan "$fixture" default || { rc=1; continue; }
		for how in '' mixed; do
			printf '%-28s %-5s ' "$fixture" "${how:-turns}"
			# shellcheck disable=SC2086  # no word where there is none
			build/tests/isolate_run build/isolated.bin cuda off 3 32 0-19 count gap=128 $how 2>/dev/null || rc=1
		done
	done
	rm -f build/isolated.bin
	return "$rc"
}

# Requests of all kinds, plain, in mixed steps and with drafts.
requests() {
	local rc=0 fixture how tolerance
	while read -r fixture how tolerance; do
		isolated_plan "$fixture" one || { rc=1; continue; }
		printf '%-28s %-5s ' "$fixture" "$how"
		python3 tests/gpu/requests.py build/isolated.bin "$how" "$tolerance" || rc=1
	done <<-'END'
		llama-trained off 0.25
		llama-trained mixed 0.25
		llama-fp8-block off inf
		qwen3_5_moe-trained off inf
		qwen3_5_moe-trained mixed inf
		qwen3_5_moe-trained mtp inf
	END
	rm -f build/isolated.bin
	return "$rc"
}

# The same where sequences are set aside: caches of each format, states, drafts; prompts take turns with answers in all
# but the first.
isolate_pages() {
	local rc=0 name fixture lines how gap=0 told
	while IFS='|' read -r name fixture lines; do
		isolated_plan "$fixture" one "[kv]\npage = 16\npool_tokens = 320\n$lines" 320 || { rc=1; continue; }
		for how in off mtp; do
			[ "$how" = off ] || ! build/atlas info build/isolated.bin --json | grep -q '"verify_rows": 0' || continue
			printf '%-28s %-3s ' "$name" "$how"
			told=$(build/tests/isolate_run build/isolated.bin cuda "$how" 3 32 0-19 pages gap="$gap") || rc=1
			echo "$told"
			[[ $told != *'"set_aside": 0,'* ]] || rc=1 # then nothing was shown
		done
		gap=64
	done <<-'END'
		llama-trained|llama-trained|
		qwen3_5|qwen3_5|
		qwen3_5_moe-trained|qwen3_5_moe-trained|
		llama-trained, fp8 caches|llama-trained|dtype = "fp8"\n
		llama-trained, nvfp4 caches|llama-trained|dtype = "nvfp4"\n
		qwen3_5, states in bf16|qwen3_5|[state]\ndtype = "bf16"\n
	END
	rm -f build/isolated.bin
	return "$rc"
}

# Texts beside others that begin alike, then times (tests/gpu/prefix.py).
prefix() {
	local rc=0 name fixture lines how told
	while IFS='|' read -r name fixture lines; do
		isolated_plan "$fixture" one "[kv]\npage = 16\n$lines" 320 || { rc=1; continue; }
		for how in off mtp; do
			[ "$how" = off ] || ! build/atlas info build/isolated.bin --json | grep -q '"verify_rows": 0' || continue
			printf '%-28s %-3s ' "$name" "$how"
			told=$(build/tests/isolate_run build/isolated.bin cuda "$how" 3 32 0-19 pages prefix) || rc=1
			echo "$told"
			[[ $told != *'"reused": 0,'* ]] || rc=1 # then nothing was shown
		done
	done <<-'END'
		llama-trained|llama-trained|pool_tokens = 8192\n
		llama-trained, small pool|llama-trained|pool_tokens = 320\n
		llama-trained, fp8 caches|llama-trained|pool_tokens = 8192\ndtype = "fp8"\n
		llama-trained, nvfp4 caches|llama-trained|pool_tokens = 8192\ndtype = "nvfp4"\n
		qwen3_5_moe-trained|qwen3_5_moe-trained|pool_tokens = 8192\n
		qwen3_5, states in bf16|qwen3_5|pool_tokens = 8192\n[state]\ndtype = "bf16"\n
	END
	rm -f build/isolated.bin
	random_plan prefix llama-3.1-8b "[runtime]\nslots = 64\nmax_context = 2048\n\
[phases]\nprefill = [128, 512, 2048]\ndecode = [1, 4, 16, 64]\n" || return 1
	python3 tests/gpu/prefix.py build/prefix.bin || rc=1
	random_plan prefix qwen3.6-35b-a3b-fp8 "[runtime]\nslots = 64\nmax_context = 2048\n\
[phases]\nprefill = [128, 512, 2048]\ndecode = [1, 4, 16, 64]\n" || return 1
	python3 tests/gpu/prefix.py build/prefix.bin || rc=1
	rm -f build/prefix.bin
	return "$rc"
}

# Prompts of an 8B shape, one behind the other: cut on the grid, and anywhere.
grid_cost() {
	local grid rc=0
	for grid in 64 1; do
		random_plan grid llama-3.1-8b "[runtime]\nslots = 64\nmax_context = 8448\n[kv]\npool_tokens = 270336\n\
[phases]\nprefill = [2048]\ngrid = $grid\ndecode = [64]\n" || rc=1
		for load in '300 0.8 512' '1024 1 256' '4096 0.7 64'; do
			# shellcheck disable=SC2086  # three words
			build/tests/prompt_run build/grid.bin cuda $load 1 || rc=1
		done
	done
	rm -f build/grid.bin "$out/grid.toml"
	return "$rc"
}

bench_speculate() { # slots rows, by what drafts are scored (a word, lines of MODEL.toml)
	local name=qwen3.6-35b-a3b-fp8 of="$2${3:+-$3}"
	random_plan "$name-$of" $name "[runtime]\nslots = $1\nmax_context = 5120\n[phases]\nprefill = [512]\n\
decode = [$1]\n[speculate]\nrows = $2\n$4"
	part "bench-$name-rows-$of" build/atlas bench "build/$name-$of.bin" -q --speculate mtp --acceptance 0.85,0.75,0.65 \
		--reps 5 --only "tg128@0x$1,tg128@4096x$1,sp128@0x$1,sp128@4096x$1"
	sed "s/^/MODEL.toml: /" "$out/$name-$of.toml" >>"$out/bench-$name-rows-$of.txt"
	rm -f "build/$name-$of.bin" "$out/$name-$of.toml"
}

starts() {
	random_plan start llama-3.1-8b ''
	for _ in 1 2 3 4 5; do
		build/atlas bench build/start.bin -q --only tg8@0x1 --tokens 8 --reps 3 2>/dev/null | grep -A 1 '^start'
	done
	rm -f build/start.bin "$out/start.toml"
}

added_up() { # plan tokens; what it comes to is no fault
	build/atlas verify "$1" --tokens "$2" --device cuda
	[ $? -le 1 ]
}

layers() {
	local name=qwen3.6-35b-a3b-fp8 plan=build/layers.bin tokens=11,222,3333,44444
	random_plan layers $name '[runtime]\nslots = 1\nmax_context = 4096\n[phases]\nprefill = [64]\ndecode = [1]\n'
	part verify-$name build/atlas verify $plan --tokens $tokens --device cuda --each-layer --tolerance 0.01
	part verify-$name-added-up added_up $plan $tokens
	part bf16-loss-$name python3 tests/gpu/bf16_loss.py tests/gpu/shapes/$name.json
	part certificate-$name build/atlas verify $plan --certify --tokens $tokens,5,66,777,8888 --device cuda
	rm -f $plan "$out/layers.toml"
}

seals() {
	local how TIMEFORMAT='%R s'
	random_plan seal llama-3.1-8b ''
	cat build/seal.bin >/dev/null
	for how in full lazy off full lazy off; do
		echo "--verify $how"
		time build/atlas run build/seal.bin --tokens 1,2,3 -n 1 --device cuda --json -q --verify "$how" >/dev/null || return 1
	done
	rm -f build/seal.bin "$out/seal.toml"
}

official() { # plan
	local words=(build/atlas run "$1" -p "In the beginning" -n 32 --temperature 0 --device cuda)
	build/atlas verify "$1" --tokens 248045,846,198,9707,248046 --device cuda --each-layer --tolerance 0.01 || return 1
	"${words[@]}" --speculate off && "${words[@]}" --speculate mtp
}

officials() {
	local name folder plan=build/official.bin
	for name in Qwen3.6-27B Qwen3.6-27B-FP8; do
		folder=build/official-$name
		python3 tests/published/official.py $name $folder --layers 4 &&
			build/atlasc $folder -o $plan -q "${tuning[@]}" --cache-dir build/kernel-cache &&
			part official-$name official $plan || failed=1
		rm -rf $folder $plan
	done
}

peer() { # shape
	build/atlasc "tests/gpu/shapes/$1.json" --random-weights -o "build/$1.bin" -q "${tuning[@]}" \
		--cache-dir build/kernel-cache &&
		part "peer-$1" python3 tests/gpu/peer_transformers.py build "tests/gpu/shapes/$1.json" "build/$1.bin" ||
		failed=1
	rm -f "build/$1.bin"
}

fixture_plans="llama-trained llama-fp8-block qwen3_moe qwen3_next"
fixture_plan() { # name
	[ -e "build/$1.bin" ] ||
		build/atlasc "tests/fixtures/$1" -o "build/$1.bin" -q "${tuning[@]}" --cache-dir build/kernel-cache
}

receipts() {
	local bad=0 name
	for name in $fixture_plans llama-3.2-1b; do
		echo "-- $name"
		build/atlas receipt "build/$name.bin" -o "$out/receipt-$name.json" || bad=1
	done
	for swap in 1 7; do
		cc -shared -fPIC -DSWAP="$swap" -o build/swapped.so tests/gpu/receipt/swapped_function.c || return 1
		echo "-- llama-trained, function $swap swapped"
		LD_PRELOAD=$PWD/build/swapped.so build/atlas receipt build/llama-trained.bin
		[ $? -eq 1 ] || bad=1
	done
	return "$bad"
}

memory() {
	local bad=0 name
	for name in $fixture_plans llama-3.2-1b; do
		echo "-- $name"
		build/atlas memory "build/$name.bin" || bad=1
	done
	return "$bad"
}

rebuild() {
	tests/golden/run --build-dir build digests digests-sm_90a || return 1
	build/atlasc tests/fixtures/llama-trained -o build/rebuild.bin -q || return 1
	build/atlas verify build/rebuild.bin --rebuild --checkpoint tests/fixtures/llama-trained
}

start_run() { # plans seed text; where its memory lies goes to TEXT.at
	build/tests/start_run "$1" "$device" "$2" >"$3" 2>"$3.at" || { cat "$3.at"; return 1; }
}

many_starts() {
	local name plans=() of seed bad=0 differ places work
	work=$(mktemp -d)
	for name in llama-trained qwen3_5_moe-trained; do
		fixture_plan "$name" || return 1
		plans+=("build/$name.bin")
		differ=0
		for seed in $(seq 0 $((n_starts - 1))); do
			start_run "build/$name.bin" "$seed" "$work/$seed" || return 1
			cmp -s "$work/0" "$work/$seed" || differ=$((differ + 1))
		done
		cp "$work/0" "$work/$name"
		places=$(sed -n 's/^weights at //p' "$work"/*.at | sort -u | wc -l)
		echo "$name: $n_starts starts, $(wc -l <"$work/0") texts of $(wc -w <"$work/0") tokens and ends, weights at" \
			"$places places: $differ starts differ"
		[ "$differ" -eq 0 ] && [ "$places" -gt 1 ] || bad=1
		rm -f "$work"/*.at
	done
	cat "$work/llama-trained" "$work/qwen3_5_moe-trained" >"$work/both"
	of=$(IFS=,; echo "${plans[*]}")
	differ=0
	for seed in 1 2 3 4 5 6 7 8 9 10; do
		start_run "$of" "$seed" "$work/$seed" || return 1
		cmp -s "$work/both" "$work/$seed" || differ=$((differ + 1))
	done
	echo "both in one process: 10 starts: $differ differ from each alone"
	[ "$differ" -eq 0 ] || bad=1
	rm -rf "$work"
	return "$bad"
}

attention_rounding() {
	local way bad=0
	for way in "" -its-sum -hi-lo; do
		local program=build/rounding/kernel_test$way
		[ -n "$way" ] || program=$test
		echo "-- ${way:-as it is}"
		$program --cases 30 --only attn_prefill --jobs "$jobs" && $program --cases 30 --only attn_wgmma --jobs "$jobs" || bad=1
		for shape in "attn_wgmma 8B 2k" "attn_wgmma 8B 8k" "attn_wgmma 1B 2k" "attn_wgmma 1B 8k" "attn_prefill 8B 2k" \
			"attn_prefill 8B 8k"; do
			$program --bench --only "$shape" --jobs "$jobs" | grep '^\*' || bad=1
		done
	done
	python3 tests/cpu/attention_rounding.py "$model" /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/MPL-2.0 \
		--device cuda --tokens 2048 8192 --few || bad=1
	return "$bad"
}

watched_plans() { # made once for both parts
	local name
	for name in $fixture_plans; do
		fixture_plan "$name" || return 1
	done
	[ -e build/llama-3.2-1b.bin ] || random_plan llama-3.2-1b llama-3.2-1b "$(room 8192 131072)"
}

for what in "$@"; do
	case $what in
	kernels) part kernels $test --cases 100 --jobs "$jobs" ;;
	sanitizer)
		for tool in memcheck racecheck; do
			part $tool compute-sanitizer --tool $tool --error-exitcode 1 --print-limit 20 \
				$test --small --cases 6 --jobs "$jobs"
			for name in attn_step attn_verify; do # an odd number of pieces of 16 bytes ends beside what is on its way
				part $tool-$name-80 compute-sanitizer --tool $tool --error-exitcode 1 --print-limit 20 \
					$test --small --cases 6 --only $name --fix "HDIM=80 KVT=e4m3 KV_SCALE=1 KV_BLOCK=0" --jobs "$jobs"
			done
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
	fp8) part bench-fp8-products $test --bench --only fp8_ --jobs "$jobs" ;;
	codes) part bench-codes-products $test --bench --only wgmma_codes_ --jobs "$jobs" ;;
	gemm) part peer_gemm python3 tests/gpu/peer_gemm.py $test ;;
	fixtures) part fixtures python3 tests/gpu/fixtures.py build ;;
	many)
		part fixtures-many python3 tests/gpu/fixtures.py build --many
		part bench-few-products $test --bench --only wgmma_few --jobs "$jobs"
		;;
	floor)
		part floor-fixtures python3 tests/gpu/fixtures.py build --alone
		for file in kernels/templates/plain/*.cu kernels/templates/rows/sum_terms.cu; do
			file=${file##*/}
			part "floor-${file%.cu}" $test --cases 100 --only "${file%.cu}" --jobs "$jobs"
		done
		bench_model llama-3.1-8b-alone llama-3.1-8b "$(room 17408 163840)\n[kernels]\nfuse = false\n" pp2048,tg128@0x1
		bench_model llama-3.1-8b-fused llama-3.1-8b "$(room 17408 163840)" pp2048,tg128@0x1
		;;
	models)
		bench_model smollm2-135m smollm2-135m "$(room 8192 131072)"
		bench_model llama-3.2-1b llama-3.2-1b "$(room 17408 196608)"
		bench_model llama-3.1-8b llama-3.1-8b "$(room 17408 163840)"
		;;
	quantised)
		bench_model llama-3.1-8b-fp8 llama-3.1-8b-fp8 "$(room 17408 163840)" pp2048,tg128@0
		bench_model llama-3.1-8b-fp8-head llama-3.1-8b-fp8 '[quant]\nlm_head = "fp8-block"\n' tg128@0x1
		bench_model llama-3.1-8b-nvfp4 llama-3.1-8b-nvfp4 "$(room 17408 163840)" pp2048,tg128@0
		bench_model llama-3.1-8b-int4 llama-3.1-8b-int4 "$(room 17408 163840)" pp2048,tg128@0
		bench_model llama-3.1-8b-fp8-kv llama-3.1-8b-fp8 "$(room 17408 163840)dtype = \"fp8\"\n" \
			tg128@0x1,tg128@16384
		;;
	start) part start starts ;;
	kv)
		part kv-cosine python3 tests/gpu/kv_cosine.py --build build --model "$model" \
			--text /usr/share/common-licenses/GPL-3
		;;
	peer)
		peer smollm2-135m
		peer llama-3.2-1b
		peer llama-3.1-8b
		;;
	peer-vllm)
		for name in 8b:llama-3.1-8b 35b:qwen3.6-35b-a3b-fp8; do
			part "peer-vllm-${name%:*}" python3 tests/gpu/peer_vllm.py --temperature 1 build \
				"tests/gpu/shapes/${name#*:}.json" "build/streams/${name%:*}.bin"
		done
		;;
	hybrid)
		some='[phases]\nprefill = [2048]\ndecode = [1, 16]\n[runtime]\nslots = 16\nmax_context = '
		bench_model qwen3.6-35b-a3b-fp8 qwen3.6-35b-a3b-fp8 "${some}8704\n" pp2048,pp8192,tg128@0x1,tg128@0x16
		bench_model qwen3.6-35b-a3b-nvfp4 qwen3.6-35b-a3b-nvfp4 "${some}8704\n" pp2048,pp8192,tg128@0x1,tg128@0x16
		bench_model qwen3.5-27b-fp8 qwen3.5-27b-fp8 "${some}4096\n" pp2048,tg128@0x1,tg128@0x16
		bench_model qwen3-30b-a3b-fp8 qwen3-30b-a3b-fp8 "${some}4096\n" pp2048,tg128@0x1,tg128@0x16
		;;
	isolate) part isolate isolate one ;;
	grid) part grid grid_cost ;;
	isolate-buckets) part isolate-buckets isolate default count ;;
	isolate-pages) part isolate-pages isolate_pages ;;
	prefix) part prefix prefix ;;
	isolate-mixed) part isolate-mixed isolate_mixed ;;
	speculate)
		bench_speculate 1 3 fp8-32k 'head = "fp8-block"\nvocabulary = 32768\n'
		for rows in 3 2 4; do
			bench_speculate 1 $rows "" ""
		done
		bench_speculate 8 3 of-8 ""
		;;
	requests) part requests requests ;;
	receipt) watched_plans && part receipt receipts || failed=1 ;;
	rebuild) part rebuild rebuild ;;
	layers) layers ;;
	seal) part seal seals ;;
	official) officials ;;
	streams) part streams tests/gpu/streams.sh measure many "$out" ;;
	families)
		part families python3 tests/gpu/families.py build
		part families-speed tests/gpu/streams.sh measure families "$out"
		part families-certified tests/gpu/streams.sh certify families "$out"
		;;
	order) part order tests/gpu/order.sh "$out" ;;
	serve) part serve tests/gpu/serve.sh measure "$out" ;;
	tune) part tune scripts/tune.sh measure && cp build/tune/*.toml "$out" || failed=1 ;;
	memory) watched_plans && part memory memory || failed=1 ;;
	starts) part starts many_starts ;;
	attention-rounding) part attention-rounding attention_rounding ;;
	model)
		build/atlasc "$model" -o build/model.bin -q &&
			part model python3 tests/gpu/against_transformers.py "$model" build/model.bin \
				tests/fixtures/llama-trained/heldout.txt || failed=1
		;;
	*) echo "run.sh: no part $what" >&2; exit 2 ;;
	esac
done
exit $failed
