#!/bin/bash
# Many streams and prompts of published shapes with random weights: tables with shares of the bound of the same run.
#
#   tests/gpu/streams.sh plans SET [atlasc options]   BUILD/streams/NAME.bin, a few MB each: the weights are made at open;
#                                                     needs no GPU, and can be carried to one
#   tests/gpu/streams.sh measure SET [DIR]            on the GPU: DIR/streams-SET.txt (default: BUILD/gpu-results), and
#                                                     each launch of some phases in DIR/launches-SET.txt
#   tests/gpu/streams.sh certify SET [DIR]            on the GPU: DIR/certify-SET.txt, each shape, with weights above
#                                                     40 GB every fourth of its layers: every launch against its op's
#                                                     reference function, every layer against the reference device;
#                                                     SECONDS_EACH of a shape (600)
#   tests/gpu/streams.sh certified SET [atlasc options]   their plans, which certify takes where they are: needs no GPU
#   tests/gpu/streams.sh estimate SET                 device memory that each plan takes, item by item
#
# BUILD is build. SET is `many`: Llama 3.1 8B, Qwen3.6-35B-A3B and Qwen3.5-27B at 1 to 256 streams, with long contexts and
# prompts, and 35B with drafts at a prescribed acceptance of 0.85 and 0.75; or `families`: a published size of other
# families at 1 and 32 streams. `many:8b,27b` are those two of the set. Rows are drawn at temperature 1, so that experts
# are those of different texts. What a card's memory has no room for is skipped, with the reason.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
build=build

# name shape slots max_context pool_tokens prefill decode rows launches, lines to add to MODEL.toml
many() {
	local tg=tg32@128x
	cat <<-EOF
		8b llama-3.1-8b 256 9216 147456 2048 1,16,32,64,128,256 pp2048,pp8192,${tg}1,${tg}16,${tg}32,${tg}64,${tg}128,${tg}256,tg32@8192x16 decode[32]
		8b-fp8 llama-3.1-8b-fp8 256 1024 147456 2048 1,32,64,256 ${tg}1,${tg}32,${tg}64,${tg}256 decode[32],decode[256]
		8b-fp8-rows llama-3.1-8b-fp8 256 1024 147456 2048 1,32,64,256 ${tg}1,${tg}32,${tg}64,${tg}256 - [numerics]\nfp8_rows=32
		8b-nvfp4 llama-3.1-8b-nvfp4 32 1024 32768 2048 1,32 ${tg}1,${tg}32 decode[1],decode[32]
		35b qwen3.6-35b-a3b-fp8 64 33280 557056 2048,8192 1,16,32,64 pp2048,pp8192,${tg}1,${tg}16,${tg}32,${tg}64,tg32@32768x16 decode[1],prefill[8192]
		27b qwen3.5-27b-fp8 64 9216 73728 8192 1,16,32,64 pp8192,${tg}1,${tg}16,${tg}32,${tg}64 decode[1],decode[16],decode[64],prefill[8192]
		27b-rows qwen3.5-27b-fp8 64 9216 73728 8192 1,16,32,64 pp8192,${tg}16,${tg}32,${tg}64 decode[16],decode[64] [numerics]\nfp8_rows=16
		35b-drafts qwen3.6-35b-a3b-fp8 8 1024 16384 2048 1,8 ${tg}1,sp32@128x1,${tg}8,sp32@128x8 verify[3],draft[1] [speculate]\nrows=3\nhead="fp8-block"\nvocabulary=32768
	EOF
}

families() {
	local rows=pp2048,tg32@128x1,tg32@128x32 name
	for name in olmo-3-32b gemma-3-27b glm-4.5-air-fp8 laguna-s-fp8 minimax-m2-nvfp4 gpt-oss-20b gpt-oss-120b \
		gemma-4-26b-a4b-fp8 gemma-4-31b-fp8; do
		echo "$name $name 32 4096 16384 2048 1,32 $rows decode[1],decode[32]"
	done
}

toml() { # slots max_context pool_tokens prefill decode lines
	printf '[runtime]\nslots = %s\nmax_context = %s\n[kv]\npool_tokens = %s\n' "$1" "$2" "$3"
	printf '[phases]\nprefill = [%s]\ndecode = [%s]\n%b\n' "$4" "$5" "$6"
}

each() { # command... of every plan, with its options in BUILD/streams/NAME.toml
	local name shape slots context pool prefill decode rows launches lines bad=0
	mkdir -p "$build/streams"
	while read -r name shape slots context pool prefill decode rows launches lines; do
		[[ -z $names || ,$names, == *",$name,"* ]] || continue
		toml "$slots" "$context" "$pool" "$prefill" "$decode" "$lines" >"$build/streams/$name.toml"
		"$@" "$name" "$shape" "$rows" "$launches" || bad=1
	done < <("$set")
	return $bad
}

plan() { # name shape
	"$build/atlasc" "tests/gpu/shapes/$2.json" --random-weights --weights ref --model "$build/streams/$1.toml" \
		-o "$build/streams/$1.bin" -q --cache-dir "$build/kernel-cache" "${words[@]}"
}

estimate() { # name shape
	echo "== $1"
	"$build/atlasc" "tests/gpu/shapes/$2.json" --random-weights --weights ref --model "$build/streams/$1.toml" --estimate -q
}

measure() { # name shape rows launches
	local log phase rc=0 drafts=()
	log=$(mktemp)
	[ -e "$build/streams/$1.bin" ] || plan "$1" "$2" || return 1
	! grep -q speculate "$build/streams/$1.toml" || drafts=(--speculate mtp --acceptance "0.85,0.75")
	"$build/atlas" bench "$build/streams/$1.bin" -q --device cuda --tokens 32 --temperature 1 --only "$3" --kernels \
		"${drafts[@]}" >"$log" 2>&1 || rc=$?
	{
		printf '\n-- %s: ' "$1"
		paste -sd' ' "$build/streams/$1.toml"
		sed -n '/^bounds/p; /^drafts/p; /^row /,/^$/p; /error/p' "$log" | sed '/^$/d'
		[ "$rc" -eq 0 ] || echo "exit code: $rc"
	} | tee -a "$out/streams-$set.txt"
	for phase in ${4//,/ }; do
		{
			printf '\n-- %s, ' "$1"
			awk -v phase="$phase " 'index($0, phase) == 1 { on = 1 } on && /^$/ { exit } on' "$log"
		} >>"$out/launches-$set.txt"
	done
	rm -f "$log"
	return "$rc"
}

fewer_layers() { # FILE TO BYTES: its config.json; of weights above 40 GB with every fourth layer of each kind
	python3 - "$@" <<-'END'
	import json, sys

	config = json.load(open(sys.argv[1]))
	text = config.get("text_config", config)
	n, step = text["num_hidden_layers"], 4 if int(sys.argv[3]) > 40e9 else 1
	lists = {key: value for key, value in text.items() if isinstance(value, list) and len(value) == n}
	kinds = {}
	for layer in range(n):
	    kinds.setdefault(str([value[layer] for value in lists.values()]), []).append(layer)
	kept = sorted(layer for layers in kinds.values() for layer in layers[::step])
	text |= {key: [value[layer] for layer in kept] for key, value in lists.items()} | {"num_hidden_layers": len(kept)}
	json.dump(config, open(sys.argv[2], "w"))
	print("all" if step == 1 else f"{len(kept)} of", n, "layers")
	END
}

certified_plan() { # name shape: its plan, and what is certified of it
	local file=$build/streams/certified-$1 layers bytes
	bytes=$("$build/atlasc" "tests/gpu/shapes/$2.json" --random-weights --weights ref --estimate -q 2>/dev/null |
		sed -n 's/^ *weights *device *\([0-9]*\) bytes/\1/p')
	layers=$(fewer_layers "tests/gpu/shapes/$2.json" "$file.json" "${bytes:-0}") || return 1
	printf '[runtime]\nslots = 4\nmax_context = 1024\n[phases]\nprefill = [64]\ndecode = [1, 4]\n' >"$file.toml"
	printf '%s, %s, %.1f GB of weights in all\n' "$1" "$layers" "$(awk "BEGIN { print $bytes / 1e9 }")" >"$file.txt"
	"$build/atlasc" "$file.json" --random-weights --weights ref --model "$file.toml" -o "$file.bin" -q \
		--cache-dir "$build/kernel-cache" "${words[@]}" || return 1
	rm "$file.json" "$file.toml"
}

certify() { # name shape
	local file=$build/streams/certified-$1 rc
	[ -e "$file.bin" ] || certified_plan "$1" "$2" || return 1
	printf '\n-- ' >>"$out/certify-$set.txt"
	cat "$file.txt" >>"$out/certify-$set.txt"
	TIMEFORMAT='%R s, %U of processors, %S of the system'
	{
		time timeout -k 1 "$SECONDS_EACH" "$build/atlas" verify "$file.bin" --certify -q \
			--tokens 1,22,333,4444,5,66,777,8888,9,1010,11,1212 >"$file.out" 2>&1
		rc=$?
	} 2>"$file.time"
	sed '1{/^$/d}' "$file.out" >>"$out/certify-$set.txt"
	echo "exit code: $rc; $(cat "$file.time")" | tee -a "$out/certify-$set.txt"
	rm -f "$file".*
	return $rc
}

what=${1-} set=${2-} names=
[[ $set != *:* ]] || names=${set#*:} set=${set%%:*}
shift
shift
words=("$@")
case $what/$set in
plans/many | plans/families) each plan ;;
estimate/many | estimate/families) each estimate ;;
certified/many | certified/families) each certified_plan ;;
measure/many | measure/families)
	out=${1:-$build/gpu-results} words=()
	mkdir -p "$out"
	{
		echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
		echo "command: tests/gpu/streams.sh plans $set --card h200; tests/gpu/streams.sh measure $set"
		echo "  (atlas bench PLAN -q --device cuda --tokens 32 --temperature 1 --kernels, one plan after the other)"
	} | tee "$out/streams-$set.txt" >"$out/launches-$set.txt"
	each measure
	;;
certify/many | certify/families)
	SECONDS_EACH=${SECONDS_EACH:-600}
	out=${1:-$build/gpu-results} words=()
	mkdir -p "$out"
	each certify
	;;
*)
	sed -n '2,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0" >&2
	exit 2
	;;
esac
