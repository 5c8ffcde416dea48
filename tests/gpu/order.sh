#!/bin/bash
# Plans with [numerics] invariant = true on a GPU: three short tables, about 15 minutes of an H200.
#
#   tests/gpu/order.sh [DIR] [pairs] [isolate] [cost]     DIR/order-cost-*.json (default: build/gpu-results); all parts
#
#   pairs    kernels of equal ORDER on the same rows must give equal bits, whatever their tunables, template and bucket;
#            of other ORDER, how many pairs gave other bits: a template that never does says more than it needs to.
#            Expected: "0 failed"; then orders that leave a constant out, each of which must be "seen"
#   isolate  thirteen plans: texts alone and beside others in the families' default buckets for 16 slots, 20 seeds,
#            prompts shorter and longer than a step, drafts off and on; then off beside on. Expected: "differed": 0,
#            "scores_differed": 0 in every line, "drafts change no bit" for each fixture with a head
#   cost     8B bf16 and 35B FP8 as fast as they are and invariant: a prompt of 2048, and 1, 16, 64 streams; a table of
#            tokens a second of both, and the second divided by the first
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
	local rc=0 template constant says
	local -a test=(build/tests-gpu/kernel_test --orders --cases 20 --jobs "$(nproc)" --cache-dir build/kernel-cache)
	"${test[@]}" || rc=1
	while read -r template constant; do
		printf '%-16s without %-8s ' "$template" "$constant"
		says=$("${test[@]}" --only "$template" --without "$constant") || true
		if ! grep -q "FAIL $template .* has other bits by $template .* too$" <<<"$says"; then
			echo 'NOT SEEN'
			rc=1
		elif grep '^FAIL ' <<<"$says" | grep -v 'has other bits by' >/dev/null; then
			echo 'FAILS OTHERWISE'
			rc=1
		else
			echo "seen in $(grep -c '^FAIL ' <<<"$says") of 20 cases"
		fi
	done <<-'END'
		attn_prefill KEYS
		attn_step RUN
		attn_step SPLITS
		delta_step WARPS
		stream_logits SQUARES
		stream_residual CHAINS
	END
	return "$rc"
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
		qwen3_next|qwen3_next|
		llama-trained, fp8 caches|llama-trained|[kv]\ndtype = "fp8"\n
		llama-trained, in runs|llama-trained|[[kernels.pin]]\ntemplate = "attn_step"\ntunables = { RUN = 256 }\n
		qwen3_5, in runs|qwen3_5|[[kernels.pin]]\ntemplate = "attn_step"\ntunables = { RUN = 256 }\n
		qwen3_5, states in bf16|qwen3_5|[state]\ndtype = "bf16"\n
	END
	rm -f build/order.bin "$out/order.toml"
	return "$rc"
}

# FASTEST.json INVARIANT.json: a line a row. Fails when a row has no speed in one of them.
compare_speeds() {
	python3 - "$@" <<-'END'
	import json, sys

	fastest, invariant = ({row["name"]: row for row in json.load(open(path))["rows"]} for path in sys.argv[1:])
	print(f"{'row':14} {'fastest tok/s':>14} {'invariant tok/s':>16} {'ratio':>7}")
	missing = not fastest
	for name in [*fastest, *(invariant.keys() - fastest.keys())]:
	    speeds = [rows.get(name, {}).get("tokens_s") for rows in (fastest, invariant)]
	    missing |= not all(speeds)
	    print(f"{name:14} {speeds[0]:14.1f} {speeds[1]:16.1f} {speeds[1] / speeds[0]:7.3f}" if all(speeds)
	        else f"{name:14} no speed of one of them: {speeds}")
	sys.exit(missing)
	END
}

cost() {
	local rc=0 shape how toml=$out/order.toml result
	for shape in llama-3.1-8b qwen3.6-35b-a3b-fp8; do
		result=$out/order-cost-$shape
		rm -f "$result"-*.json
		for how in fastest invariant; do
			printf '[runtime]\nslots = 64\nmax_context = 2560\n[phases]\nprefill = [128, 512, 2048]\n' >"$toml"
			[ "$how" = fastest ] || printf '%b' "$invariant" >>"$toml"
			build/atlasc "tests/gpu/shapes/$shape.json" --card h200 --random-weights --weights ref --model "$toml" -o build/order.bin \
				-q --cache-dir build/kernel-cache || { rc=1; continue; }
			echo "-- $shape, $how"
			build/atlas bench build/order.bin -q --reps 3 --only pp2048,tg128@0x1,tg128@0x16,tg128@0x64 \
				--json "$result-$how.json" || rc=1
		done
		echo "-- $shape, invariant / fastest"
		compare_speeds "$result-fastest.json" "$result-invariant.json" || rc=1
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
