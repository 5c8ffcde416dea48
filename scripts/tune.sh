#!/bin/bash
# The file of measured times that atlasc carries for a card, kernels/tuning/TARGET.CARD.toml, in two steps: plans with
# candidates need no GPU and minutes of compiling, measuring needs the GPU for less than one minute a plan.
#
#   scripts/tune.sh plans [-i] [-b BUILD] [-n N] [-o DIR] [-s SLOTS] [SHAPE...]    SHAPE.bin into DIR
#   scripts/tune.sh measure [-b BUILD] [-o DIR] [-c CARD]                     times of all plans in DIR into
#                                                                             DIR/TARGET.CARD.toml
#
# -i: candidates of plans with [numerics] invariant. BUILD defaults to build, DIR to BUILD/tune, N (candidates of a
# template for an op) to 4, SLOTS (the largest bucket of decode, a power of two) to 32, TARGET is sm_90a. A shape is a
# config.json of tests/gpu/shapes, cut to a few layers. CARD is the card's word in the file's name, by default the
# first of its name behind NVIDIA, in small letters: h200. Measuring begins with the times of that card in
# kernels/tuning, if there are any. To end:
#
#   cp build/tune/sm_90a.CARD.toml kernels/tuning/ && make
set -euo pipefail
cd "$(dirname "$0")/.."
target=sm_90a
build=build out='' n=4 card='' slots=32 invariant=false
what=${1-}
shift || true
while getopts ib:n:o:c:s: option; do
	case $option in
	i) invariant=true ;;
	b) build=$OPTARG ;;
	n) n=$OPTARG ;;
	o) out=$OPTARG ;;
	c) card=$OPTARG ;;
	s) slots=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
out=${out:-$build/tune}

buckets() { # "1, 2, 4"
	local rows=1 list=1
	while [ "$rows" -lt "$slots" ]; do
		rows=$((rows * 2))
		list="$list, $rows"
	done
	echo "$list"
}

plans() {
	local shape
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	mkdir -p "$out"
	cat >"$folder/MODEL.toml" <<-TOML
		[runtime]
		slots = $slots
		max_context = 4096
		[kv]
		pool_tokens = 131072
		[phases]
		prefill = [128, 512, 2048]
		decode = [$(buckets)]
		[numerics]
		invariant = $invariant
	TOML
	for shape; do
		python3 scripts/empty_checkpoint.py "tests/gpu/shapes/$shape.json" "$folder/$shape"
		"$build/atlasc" "$folder/$shape" --model "$folder/MODEL.toml" --target "$target" \
			--candidates "$n" --random-weights --weights ref --cache-dir "$build/kernel-cache" -o "$out/$shape.bin"
	done
}

card_word() { # of the GPU: "NVIDIA H100 80GB HBM3" is h100
	nvidia-smi --query-gpu=name --format=csv,noheader | sed -n '1{s/^NVIDIA //; s/ .*//; p}' | tr '[:upper:]' '[:lower:]'
}

measure() {
	local plan times
	[ -n "$card" ] || card=$(card_word)
	[ -n "$card" ] || { echo "tune.sh: nvidia-smi names no card: say which with -c CARD" >&2; exit 5; }
	times=$out/$target.$card.toml
	[ -e "$times" ] || [ ! -e "kernels/tuning/$target.$card.toml" ] || cp "kernels/tuning/$target.$card.toml" "$out"
	for plan in "$out"/*.bin; do
		echo "== $(basename "$plan" .bin)" >&2
		"$build/atlas" tune "$plan" -o "$times"
	done
	echo "$times"
}

case $what in
plans)
	[ $# -gt 0 ] || set -- smollm2-135m llama-3.2-1b llama-3.1-8b
	plans "$@"
	;;
measure) measure ;;
*)
	sed -n '2,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0" >&2
	exit 2
	;;
esac
