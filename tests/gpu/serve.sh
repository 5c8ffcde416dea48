#!/bin/bash
# atlas serve on shapes with random weights: throughput through HTTP beside atlas bench, and loads.
#
#   tests/gpu/serve.sh plans [atlasc options]       BUILD/serve/NAME.bin, a few MB each; needs no GPU
#   tests/gpu/serve.sh measure [DIR]                on the GPU: DIR/serve-NAME.txt and .json (default: BUILD/gpu-results)
#   tests/gpu/serve.sh cpu                          the same of a fixture on the reference device: does the script run?
#
# BUILD is build. Of each shape: seconds to /ready; one stream, whose first token is to come within 1 ms of `atlas run`; 32
# streams, whose steady tokens a second are to be within 5 % of the row of `atlas bench` at the same batch and context. Of
# 8B in bf16 then 1,024 tokens in and 256 out, at 4, 16 and 64 in flight and at 2, 8 and 16 requests a second. To put
# another server in its place, start it and give tests/gpu/load.py its --url with the flags that are printed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
build=build device=cuda python=python3
streams=32 context=128 tokens=512

names='llama-3.1-8b qwen3.6-35b-a3b-fp8'
options() {
	printf '[runtime]\nslots = 64\nmax_context = 2048\n[phases]\nprefill = [128, 512, 2048]\n'
	printf 'decode = [1, 2, 4, 8, 16, 32, 64]\n'
}

plan() { # name; $words: more options of atlasc
	mkdir -p "$build/serve"
	options >"$build/serve/$1.toml"
	"$build/atlasc" "tests/gpu/shapes/$1.json" --random-weights --weights ref --model "$build/serve/$1.toml" \
		-o "$build/serve/$1.bin" -q --cache-dir "$build/kernel-cache" "${words[@]}"
}

start() { # plan: $server, $url, and the seconds to /ready on stdout
	local began=$EPOCHREALTIME log=$scratch/log
	"$build/atlas" serve "$1" --device "$device" --port 0 --max-queue 1024 2>"$log" &
	server=$!
	until grep -q '"event":"ready"' "$log"; do
		kill -0 "$server" 2>/dev/null || { cat "$log"; return 1; }
		sleep 0.02
	done
	url=$(sed -n 's/.*"event":"listening","text":"\(http[^"]*\)".*/\1/p' "$log")
	awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "ready after %.2f s\n", b - a }'
}

load() { # words of load.py
	printf "tests/gpu/load.py --url URL%s\n" "$(printf " %q" "$@")"
	"$python" tests/gpu/load.py --url "$url" "$@" || bad=1
}

measure() { # name plan vocab
	local bad=0 ids
	ids=$(seq -s, 1000 $((1000 + context - 1)))
	echo "== $1"
	"$build/atlas" bench "$2" -q --device "$device" --tokens "$tokens" --only "tg$tokens@${context}x$streams" || bad=1
	for _ in 1 2 3 4 5; do
		"$build/atlas" run "$2" --device "$device" --tokens "$ids" -n 32 --json 2>&1 >"$scratch/run" | grep 'first token'
	done
	start "$2" || return 1
	load --vocab "$3" --prompt "$context" --answer 32 --in-flight 1 --rate '' --requests 40
	load --vocab "$3" --prompt "$context" --answer "$tokens" --in-flight "$streams" --rate '' --requests "$streams" --warm-up 0
	if [ "$1" != qwen3.6-35b-a3b-fp8 ]; then
		load --vocab "$3" --prompt $((context * 8)) --answer "$long" --in-flight "$flights" --rate "$rates" --json "$out/serve-$1.json"
	fi
	"$python" - "$url" <<-'EOF_METRICS'
		import re, sys, urllib.request
		text = urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode()
		for m in re.finditer(r'^atlas_step_expected_seconds\{(.*)\} (\S+)$', text, re.M):
		    total, n = (float(re.search(rf'^atlas_step_seconds_{k}\{{{re.escape(m[1])}\}} (\S+)$', text, re.M)[1]) for k in ("sum", "count"))
		    if n:
		        print(f"step {m[1]:<34} expected {1e3 * float(m[2]):8.3f} ms, was {1e3 * total / n:8.3f} ms, {n:.0f} steps")
	EOF_METRICS
	kill "$server"
	wait "$server" || bad=1
	return $bad
}

scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
verb=${1-}
shift || true
words=("$@") out=${1-$build/gpu-results} failed=0
flights=4,16,64 rates=2,8,16 long=256
case $verb in
plans)
	for name in $names; do plan "$name" || failed=1; done ;;
measure)
	words=()
	mkdir -p "$out"
	for name in $names; do
		[ -e "$build/serve/$name.bin" ] || plan "$name" || { failed=1; continue; }
		{
			echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
			measure "$name" "$build/serve/$name.bin" 100000
			code=$?
			sed 's/^/MODEL.toml: /' "$build/serve/$name.toml"
			echo "exit code: $code"
		} >"$out/serve-$name.txt" 2>&1
		tail -n 40 "$out/serve-$name.txt"
		grep -qx 'exit code: 0' "$out/serve-$name.txt" || failed=1
	done ;;
cpu)
	device=cpu streams=4 context=16 tokens=32 flights=2,4 rates=8 long=16 out=$scratch
	"$build/atlasc" tests/fixtures/llama-trained -o "$scratch/plan.bin" --target none -q || exit 1
	measure fixture "$scratch/plan.bin" 2048 || failed=1 ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2 ;;
esac
exit $failed
