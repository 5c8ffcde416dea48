#!/bin/bash
# Many streams of published shapes with random weights: short tables with shares of the bound of the same run.
#
#   tests/gpu/streams.sh plans [atlasc options]     BUILD/streams/NAME.bin, a few MB each: the weights are made at open;
#                                                   needs no GPU, and can be carried to one
#   tests/gpu/streams.sh measure [DIR]              on the GPU: DIR/streams-NAME.txt and .json (default: BUILD/gpu-results)
#   tests/gpu/streams.sh estimate                   device memory that each plan takes, item by item
#
# BUILD is build. Streams: 1, 16, 32, 64, 256 behind 128 tokens and 1, 16, 64 behind 8192, drawn at temperature 1, so that
# experts are those of different texts; prompts of 2048 and 8192. What a card's memory has no room for is skipped, with the
# reason.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
build=build
rows=pp2048,pp8192,tg64@128x1,tg64@128x16,tg64@128x32,tg64@128x64,tg64@128x256
rows=$rows,tg64@8192x1,tg64@8192x16,tg64@8192x64

# name, tokens of KV in all pages: for 141 GB of device memory
shapes() {
	cat <<-'EOF_SHAPES'
		llama-3.1-8b 589824
		llama-3.1-8b-fp8 589824
		qwen3.6-35b-a3b-fp8 2228224
	EOF_SHAPES
}

options() { # pool_tokens
	printf '[runtime]\nslots = 256\nmax_context = 9216\n[kv]\npool_tokens = %s\n[phases]\nprefill = [2048]\n' "$1"
	printf 'decode = [1, 16, 32, 64, 256]\n'
}

each() { # command name... of every shape, with its options in BUILD/streams/NAME.toml
	local name pool bad=0
	mkdir -p "$build/streams"
	while read -r name pool; do
		options "$pool" >"$build/streams/$name.toml"
		"$@" "$name" || bad=1
	done < <(shapes)
	return $bad
}

plan() { # name; $words: more options of atlasc
	"$build/atlasc" "tests/gpu/shapes/$1.json" --random-weights --weights ref --model "$build/streams/$1.toml" \
		-o "$build/streams/$1.bin" -q --cache-dir "$build/kernel-cache" "${words[@]}"
}

estimate() {
	echo "== $1"
	"$build/atlasc" "tests/gpu/shapes/$1.json" --random-weights --weights ref --model "$build/streams/$1.toml" --estimate -q
}

measure() {
	local to="$out/streams-$1"
	[ -e "$build/streams/$1.bin" ] || plan "$1" || return 1
	{
		echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
		echo "command: atlas bench $1.bin -q --device cuda --tokens 64 --temperature 1 --only $rows"
		"$build/atlas" bench "$build/streams/$1.bin" -q --device cuda --tokens 64 --temperature 1 --only "$rows" \
			--json "$to.json" 2>&1 || echo "exit code: $?"
		sed 's/^/MODEL.toml: /' "$build/streams/$1.toml"
	} >"$to.txt"
	echo "== streams-$1"
	cat "$to.txt"
	[ -s "$to.json" ]
}

what=${1-}
shift || true
words=("$@")
case $what in
plans) each plan ;;
estimate) each estimate ;;
measure)
	out=${1:-$build/gpu-results} words=()
	mkdir -p "$out"
	each measure
	;;
*)
	sed -n '2,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0" >&2
	exit 2
	;;
esac
