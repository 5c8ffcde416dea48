#!/bin/bash
# What other roundings of attention's probabilities would cost in time: kernel_test with kernels changed so.
#
#   tests/gpu/rounding.sh FOLDER [BUILD]     needs a finished BUILD; leaves FOLDER/kernel_test-VARIANT
#
#   its-sum   o is divided by the sum of the rounded probabilities, not by that of the unrounded
#   hi-lo     a probability is the sum of two bf16, so that values are multiplied twice
#
# tests/gpu/run.sh attention-rounding times them; tests/cpu/attention_rounding.py says what they gain.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
build=${2:-build}

# file, then a change of one line: each must fit just once
its_sum='
attention/attend.cuh	s/^(\t*)sum \+= p\[j\]\[e\];/\1if (e % 2)\n\1\tsum += sum_of_pair(pack_bf16(p[j][e - 1], p[j][e]));/
attention/attend_wgmma.cuh	s/^(\t*)sum\[i \/ 2\]\[i % 2\] \+= a\.s\[j\]\[i\];/\1if (i % 2)\n\1\tsum[i \/ 2][j % 2] += sum_of_pair(pack_bf16(a.s[j][i - 1], a.s[j][i]));/
'
hi_lo='
attention/attend.cuh	s/^(\t*)u32 a\[M_\]\[4\];/\1u32 a[M_][4], rest[M_][4];/
attention/attend.cuh	s/^(\t*)a\[t\]\[i\] = pack_bf16\((.*)\);/\1rest[t][i] = pack_rest(a[t][i] = pack_bf16(\2), \2);/
attention/attend.cuh	s/^(\t*)mma\(s\.o\[t\]\[2 \* d\], a\[t\], (.*)\);/&\n\1mma(s.o[t][2 * d], rest[t], \2);/
attention/attend.cuh	s/^(\t*)mma\(s\.o\[t\]\[2 \* d \+ 1\], a\[t\], (.*)\);/&\n\1mma(s.o[t][2 * d + 1], rest[t], \2);/
attention/attend_wgmma.cuh	s/^(\t*)u32 p\[KEYS_ \/ 16\]\[4\];/\1u32 rest[KEYS_ \/ 16][4];\n&/
attention/attend_wgmma.cuh	s/^(\t*)a\.p\[j\]\[i\] = pack_bf16\((.*)\);/\1a.rest[j][i] = pack_rest(a.p[j][i] = pack_bf16(\2), \2);/
attention/attend_wgmma.cuh	s/^(\t*)wgmma_values\(a\.o, a\.p\[j\], (.*)\);/\1wgmma_values(a.o, a.p[j], \2), wgmma_values(a.o, a.rest[j], \2);/
'
# thread level: the two halves of a pair added; what a pair lost when it was rounded, as a pair
parts='__device__ __forceinline__ float sum_of_pair(u32 x)
{
	return __uint_as_float(x << 16) + __uint_as_float(x \& 0xffff0000u);
}

__device__ __forceinline__ u32 pack_rest(u32 x, float lo, float hi)
{
	return pack_bf16(lo - __uint_as_float(x << 16), hi - __uint_as_float(x \& 0xffff0000u));
}
'

make_variant() { # name, changes
	local tree file change
	tree=$(mktemp -d)
	mkdir "$tree/build"
	cp -a artifacts compiler models runtime kernels scripts tests Makefile "$tree"
	cp -a "$build"/obj "$build"/gen "$build"/kernelgen "$tree/build"
	[ ! -d build/deps ] || ln -s "$PWD/build/deps" "$tree/build/deps"
	while IFS=$'\t' read -r file change; do
		[ -n "$file" ] || continue
		file=$tree/kernels/templates/$file
		cp "$file" "$tree/before"
		sed -E -i "$change" "$file"
		[ "$(diff "$tree/before" "$file" | grep -c '^[0-9]')" -eq 1 ] ||
			{ echo "rounding.sh: $1: a change does not fit ${file##*/} once: $change" >&2; exit 1; }
	done <<<"$(printf '%b' "${2//\\/\\\\}")"
	sed -i "0,/^\/\/ The state of a warp's/s//${parts//$'\n'/\\n}\n&/" "$tree/kernels/templates/attention/attend.cuh"
	make -s -C "$tree" build/tests-gpu/kernel_test
	cp "$tree/build/tests-gpu/kernel_test" "$out/kernel_test-$1"
	rm -rf "$tree"
}

make_variant its-sum "$its_sum"
make_variant hi-lo "$hi_lo"
