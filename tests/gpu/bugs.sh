#!/bin/bash
# Known kinds of bugs, one at a time in one kernel of one layer: which output does `atlas verify` name, and which launch
# the certificate? Plans are made on a machine that can build, and looked at on one with a GPU.
#
#   tests/gpu/bugs.sh make FOLDER [BUILD]     needs a finished BUILD; leaves plans, NAME-LAYER.bin, in FOLDER
#   tests/gpu/bugs.sh look FOLDER ATLAS       prints the table
#
# A bug is a copy of a template under another name, changed by sed, that MODEL.toml pins in its layer.
set -euo pipefail

# name, template, op, phase, change
bugs='
residual_lost       stream_residual linear_residual s/: sum + r)/: sum)/
neighbours_weights  stream_residual linear_residual s/n0 + m \* 16, N/(n0 + m * 16) ^ 16, N/
columns_shifted     stream_residual linear_residual s/a.x + i64(t) \* K;/a.x + i64(t) * K + 8;/
silu_left_out       stream_swiglu   norm_swiglu     s|gate / (1.0f + __expf(-gate)) \* up|gate * up|
gate_up_exchanged   stream_swiglu   norm_swiglu     s/first ? a.gate : a.up,/first ? a.up : a.gate,/
norm_left_out       stream_swiglu   norm_swiglu     s/= sums.inverse_rms(t, float(EPS))/= 1.0f + 0 * float(EPS)/
queries_turned_on   rope_write      rope_write      s/frequency, pos, float/frequency, pos + (h < NH), float/
page_table_ignored  rope_write      rope_write      s|MAX_PAGES + pos / PAGE|MAX_PAGES|
'
prompt='In the beginning God created the heaven and the earth. And the earth was without form'

case ${1-} in
make)
	out=$(mkdir -p "$2" && cd "$2" && pwd)
	cd "$(dirname "$0")/../.."
	tree=$(mktemp -d)
	trap 'rm -rf "$tree"' EXIT
	mkdir "$tree/build"
	cp -a artifacts compiler models runtime kernels scripts tests Makefile "$tree"
	cp -a "${3:-build}"/obj "${3:-build}"/gen "${3:-build}"/kernelgen "$tree/build"
	[ ! -d build/deps ] || ln -s "$PWD/build/deps" "$tree/build/deps"
	while read -r name template op change; do
		[ -n "$name" ] || continue
		file=$(echo kernels/templates/*/"$template.cu")
		copy=$tree/${file%/*}/bug_$name.cu
		sed -e "s/\b$template\b/bug_$name/" -e "$change" "$file" >"$copy"
		[ "$(diff "$file" "$copy" | grep -c '^>')" -eq 3 ] ||
			{ echo "$name: the change does not fit $template" >&2; exit 1; }
	done <<<"$bugs"
	make -s -C "$tree" build/atlasc
	while read -r name _ op _; do
		[ -n "$name" ] || continue
		for layer in 0 2; do
			{
				printf '%s\n' '[runtime]' 'slots = 1' 'max_context = 128' '[kv]' 'page = 16' '[phases]' 'prefill = [16]' \
					'decode = [1]' '[[kernels.pin]]' "template = \"bug_$name\"" "op = \"$op\"" "layers = [$layer]" \
					'[[kernels.ban]]' "template = \"bug_$name\"" "layers = [$(seq -s, 0 3 | sed "s/$layer,*//; s/,$//")]"
				awk -v name="$name" 'NF && $1 != name { printf "[[kernels.ban]]\ntemplate = \"bug_%s\"\n", $1 }' <<<"$bugs"
			} >"$tree/MODEL.toml"
			"$tree/build/atlasc" tests/fixtures/llama-trained --model "$tree/MODEL.toml" -q --cache-dir "$tree/cache" \
				-o "$out/$name-$layer.bin"
		done
	done <<<"$bugs" ;;
look)
	printf '%-24s %-28s %s\n' 'bug in layer' 'atlas verify' 'atlas verify --certify'
	for plan in "$2"/*.bin; do
		seen=$("$3" verify "$plan" -q -p "$prompt" 2>&1 | tail -n 1) || true
		launch=$("$3" verify "$plan" -q --certify 2>&1 >/dev/null | tail -n 1) || true
		printf '%-24s %-28s %s\n' "$(basename "$plan" .bin)" "$seen" "${launch#atlas verify: }"
	done ;;
*)
	sed -n '2,8p' "$0" >&2
	exit 2 ;;
esac
