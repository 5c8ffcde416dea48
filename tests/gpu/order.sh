#!/bin/bash
# Plans with [numerics] invariant = true on a GPU: three short tables, about 15 minutes of an H200.
#
#   tests/gpu/order.sh [DIR] [pairs] [isolate] [cost]     DIR/order-cost-*.json (default: build/gpu-results); all parts
#
#   pairs    kernels of equal ORDER on the same rows must give equal bits, whatever their tunables, template and bucket;
#            of other ORDER, how many pairs gave other bits: a template that never does says more than it needs to.
#            Expected: "0 failed"
#   isolate  texts alone and beside others in the families' default buckets for 16 slots, 20 seeds, prompts shorter and
#            longer than a step, drafts off and on; then off beside on. Expected: "differed": 0, "scores_differed": 0 in
#            every line, "drafts change no bit" for each fixture with a head
#   cost     8B bf16 and 35B FP8 as fast as they are and invariant: 1, 8, 32 streams and a prompt of 2048
#
# Compiled kernels of `pairs` can be made elsewhere, without a GPU, and carried along in build/kernel-cache:
#   build/tests-gpu/kernel_test --orders --no-gpu sm_90a --cases 20 --jobs N --cache-dir build/kernel-cache
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
out=${1:-build/gpu-results}
shift
[ $# -gt 0 ] || set -- pairs isolate cost
mkdir -p "$out"
invariant='[numerics]\ninvariant = true\n'

pairs() {
	build/tests-gpu/kernel_test --orders --cases 20 --jobs "$(nproc)" --cache-dir build/kernel-cache
}

isolate() {
	local rc=0 name fixture lines how told off
	while IFS='|' read -r name fixture lines; do
		sed '/^prefill = /d; /^decode = /d; s/^slots = .*/slots = 16/; s/^max_context = .*/max_context = 512/' \
			"tests/fixtures/$fixture/MODEL.toml" >"$out/order.toml"
		printf '%b' "$invariant$lines" >>"$out/order.toml"
		build/atlasc "tests/fixtures/$fixture" --model "$out/order.toml" -o build/order.bin -q \
			--cache-dir build/kernel-cache || { rc=1; continue; }
		off=
		for how in off mtp; do
			[ "$how" = off ] || ! build/atlas info build/order.bin --json | grep -q '"verify_rows": 0' || continue
			printf '%-28s %-3s ' "$name" "$how"
			told=$(build/tests/isolate_run build/order.bin cuda "$how" 3 32 0-19) || rc=1
			echo "$told"
			told=${told##*'"alone": '}
			[ "$how" = off ] && off=$told && continue
			if [ "$told" = "$off" ]; then
				echo "    drafts change no bit"
			else
				echo "    DRAFTS CHANGE BITS"
				rc=1
			fi
		done
	done <<-'END'
		llama-trained|llama-trained|
		qwen3_5|qwen3_5|
		qwen3_5_moe-trained|qwen3_5_moe-trained|
		llama-fp8-block|llama-fp8-block|
		llama-nvfp4-ct|llama-nvfp4-ct|
		llama-int4-awq|llama-int4-awq|
		llama-f16|llama-f16|
		qwen3_moe|qwen3_moe|
		llama-trained, fp8 caches|llama-trained|[kv]\ndtype = "fp8"\n
		qwen3_5, states in bf16|qwen3_5|[state]\ndtype = "bf16"\n
	END
	rm -f build/order.bin "$out/order.toml"
	return "$rc"
}

cost() {
	local rc=0 shape how toml=$out/order.toml
	for shape in llama-3.1-8b qwen3.6-35b-a3b-fp8; do
		for how in fastest invariant; do
			printf '[runtime]\nslots = 32\nmax_context = 4096\n[phases]\nprefill = [128, 512, 2048]\n' >"$toml"
			[ "$how" = fastest ] || printf '%b' "$invariant" >>"$toml"
			build/atlasc "tests/gpu/shapes/$shape.json" --random-weights --weights ref --model "$toml" -o build/order.bin \
				-q --cache-dir build/kernel-cache || { rc=1; continue; }
			echo "-- $shape, $how"
			build/atlas bench build/order.bin -q --reps 3 --only pp2048,tg64@128x1,tg64@128x8,tg64@128x32 \
				--json "$out/order-cost-$shape-$how.json" || rc=1
		done
	done
	rm -f build/order.bin "$toml"
	return "$rc"
}

failed=0
for what in "$@"; do
	echo "== $what"
	"$what" || failed=1
done
exit $failed
