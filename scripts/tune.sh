#!/bin/bash
# The file of measured times that atlasc carries for a target, kernels/tuning/TARGET.toml, in two steps: plans with
# candidates need no GPU and minutes of compiling, measuring needs the GPU for less than one minute a plan.
#
#   scripts/tune.sh plans [-b BUILD] [-n N] [-o DIR] [SHAPE...]    SHAPE.bin into DIR
#   scripts/tune.sh measure [-b BUILD] [-o DIR]                    times of all plans in DIR into DIR/TARGET.toml
#
# BUILD defaults to build, DIR to BUILD/tune, N (candidates of a template for an op) to 4, TARGET is sm_90a. A shape is
# a config.json of tests/gpu/shapes; plans of those that are quantised, or no dense decoders, hold a few layers of random
# weights. Measuring begins with the times in kernels/tuning. To end:
#
#   cp build/tune/sm_90a.toml kernels/tuning/ && make
set -euo pipefail
cd "$(dirname "$0")/.."
target=sm_90a
build=build out='' n=4
what=${1-}
shift || true
while getopts b:n:o: option; do
	case $option in
	b) build=$OPTARG ;;
	n) n=$OPTARG ;;
	o) out=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
out=${out:-$build/tune}

plans() {
	local shape
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	mkdir -p "$out"
	cat >"$folder/MODEL.toml" <<-'TOML'
		[runtime]
		slots = 32
		max_context = 4096
		[phases]
		prefill = [128, 512, 2048]
		decode = [1, 2, 4, 8, 16, 32]
	TOML
	for shape; do
		python3 scripts/empty_checkpoint.py "tests/gpu/shapes/$shape.json" "$folder/$shape"
		weights=(--weights ref)
		[ -e "$folder/$shape/model.safetensors" ] || weights=(--random-weights)
		"$build/atlasc" "$folder/$shape" --model "$folder/MODEL.toml" --target "$target" \
			--candidates "$n" "${weights[@]}" --cache-dir "$build/kernel-cache" -o "$out/$shape.bin" 2>&1 |
			grep -v A0803 >&2 # there are no weights
	done
}

measure() {
	local plan
	[ -e "$out/$target.toml" ] || [ ! -e "kernels/tuning/$target.toml" ] || cp "kernels/tuning/$target.toml" "$out"
	for plan in "$out"/*.bin; do
		echo "== $(basename "$plan" .bin)" >&2
		"$build/atlas" tune "$plan" -o "$out/$target.toml"
	done
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
