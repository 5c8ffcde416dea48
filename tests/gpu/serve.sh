#!/bin/bash
# atlas serve on shapes with random weights: throughput through HTTP beside atlas bench, and loads.
#
#   tests/gpu/serve.sh plans [NAME] [atlasc options] BUILD/serve/NAME.bin, a few MB each; needs no GPU
#   tests/gpu/serve.sh measure [DIR]                on the GPU: DIR/serve-NAME.txt and .json (default: BUILD/gpu-results)
#   tests/gpu/serve.sh gaps [DIR]                   the same of 8B for each of several --max-gap: DIR/serve-gaps.txt
#   tests/gpu/serve.sh many [DIR]                   256 streams of 8B: DIR/serve-many.txt
#   tests/gpu/serve.sh mixed [DIR]                  32 streams of 8B while prompts of 4,096 come: DIR/serve-mixed.txt
#   tests/gpu/serve.sh bars [DIR]                   8B at 128 and 32 streams beside atlas bench, loads with prefixes: DIR/serve-bars.txt
#   tests/gpu/serve.sh drafts [DIR]                 loads of 35B that drafts, with and without: DIR/serve-drafts.txt;
#                                                   TOKENIZER=FOLDER of its vocabulary: then with schemas too
#   tests/gpu/serve.sh ngrams [DIR]                 loads of 8B with prefixes and drafts by n-grams, of which most are right:
#                                                   DIR/serve-ngrams.txt; SECONDS_OF=20 of each rate
#   tests/gpu/serve.sh soak [DIR] [SECONDS]         tests/serve/soak.py of two fixtures with drafts: DIR/serve-soak.txt
#   tests/gpu/serve.sh cpu                          all of these of a fixture on the reference device: does the script run?
#
# BUILD is build. Of each shape: seconds to /ready; one stream, whose first token is to come within 1 ms of `atlas run`
# (first_token.py); 32 streams, whose steady tokens a second are to be within 5 % of the row of `atlas bench` at the
# same batch and context. Of 8B in bf16 then 1,024 tokens in and 256 out, at 4, 16 and 64 in flight and at 2, 8 and 16
# requests a second. gaps: the same prompts and answers at 16 in flight, a row for each --max-gap, after which one is to
# be chosen whose p99 of gaps is at most 2.5 times their p50. mixed: gaps of the streams and first tokens of the
# prompts, five a second, where whole chunks of 2,048 and of 512 rows take turns with decode steps and where steps are
# mixed, as is the default: then 99 % of gaps are to be at most 20 ms and none above 30, 99 % of first tokens within 300
# ms, and all of the work no longer than with whole chunks. bars: 128 streams are to have 95 % of the tokens a second of
# `atlas bench`, and at 32 a token may take 50 us more than there; then the loads in flight with prompts that have
# nothing in common, and half of their tokens. drafts: the latter of a shape that drafts, and with a tokenizer the same
# where 10 of 100 answers are held to a schema, and draft as others do. many: the host's work of a
# step is to be under 1 ms in each thread. To put another server in its place, start it and give tests/gpu/load.py its
# --url with the flags that are printed. FLIGHTS=16 and REQUESTS=32 take other numbers in flight, and of requests.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
build=build device=cuda python=python3
streams=32 context=128 tokens=512

names='llama-3.1-8b qwen3.6-35b-a3b-fp8'
options() { # slots max_context prefill decode
	printf '[runtime]\nslots = %s\nmax_context = %s\n[phases]\nprefill = %s\ndecode = %s\n' "$@"
}

plan() { # name shape, options on stdin; $words: more options of atlasc
	local shape=tests/gpu/shapes/$2.json
	mkdir -p "$build/serve"
	cat >"$build/serve/$1.toml"
	if [ -n "${TOKENIZER-}" ]; then
		mkdir -p "$build/serve/$1"
		cp "$TOKENIZER"/tokenizer*.json "$build/serve/$1/" && cp "$shape" "$build/serve/$1/config.json" || return 1
		shape=$build/serve/$1
	fi
	"$build/atlasc" "$shape" --random-weights --weights ref --model "$build/serve/$1.toml" \
		-o "$build/serve/$1.bin" -q --cache-dir "$build/kernel-cache" "${words[@]}"
}

# Fixtures whose texts have the same bits beside others, and on whose few pages prefixes come and go.
soaked() { # name fixture drafter
	mkdir -p "$build/serve/$1" && cp tests/fixtures/"$2"/* "$build/serve/$1" || return 1
	sed -i 's/"max_position_embeddings": 512/"max_position_embeddings": 1024/' "$build/serve/$1/config.json"
	"$python" -c 'import sys; sys.path.insert(0, "tests/serve"); from soak import *; print(TEMPLATE)' >"$build/serve/$1/chat_template.jinja"
	options 32 1024 '[128, 512]' '[1, 8, 32]' >"$build/serve/$1.toml"
	printf '[kv]\npool_tokens = 24576\n%s[numerics]\ninvariant = true\n[speculate]\n%srows = 3\n' \
		"$4" "$3" >>"$build/serve/$1.toml"
	"$build/atlasc" "$build/serve/$1" --model "$build/serve/$1.toml" -o "$build/serve/$1.bin" -q --cache-dir "$build/kernel-cache"
}

plan_of() { # name
	if [ "$1" = many ]; then
		options 256 1024 '[128, 512, 2048]' '[1, 64, 256]' | plan many llama-3.1-8b
	elif [ "$1" = bars ]; then
		options 128 2048 '[128, 512, 2048]' '[1, 2, 4, 8, 16, 32, 64, 128]' | plan bars llama-3.1-8b
	elif [ "$1" = drafts ]; then
		{ options 64 2048 '[128, 512, 2048]' '[1, 4, 16, 64]'; printf '[speculate]\nrows = 2\n'; } |
			plan drafts qwen3.6-35b-a3b-fp8
	elif [ "$1" = ngrams ]; then
		{ options 64 2048 '[128, 512, 2048]' '[1, 4, 16, 64]'; printf '[speculate]\ndrafter = "ngram"\nrows = 4\n'; } |
			plan ngrams llama-3.1-8b
	elif [ "$1" = soak ]; then
		soaked soak qwen3_5_moe-trained '' $'[cache]\nsnapshots = 8\n' &&
			soaked soak-ngrams llama-trained $'drafter = "ngram"\n' ''
	elif [ "$1" = mixed ]; then
		options 48 6144 '[128, 512, 2048]' '[1, 2, 4, 8, 16, 32, 48]' | plan mixed llama-3.1-8b
	else
		options 64 2048 '[128, 512, 2048]' '[1, 2, 4, 8, 16, 32, 64]' | plan "$1" "$1"
	fi
}

start() { # plan, options of serve: $server, $url, and the seconds to /ready on stdout
	local began=$EPOCHREALTIME log=$scratch/log
	rm -f "$log" # the line "ready" of the server before
	"$build/atlas" serve "$1" --device "$device" --port 0 --max-queue 1024 "${@:2}" 2>"$log" &
	server=$!
	until grep -q '"event":"ready"' "$log"; do
		kill -0 "$server" 2>/dev/null || { cat "$log"; server=; return 1; }
		sleep 0.02
	done
	url=$(sed -n 's/.*"event":"listening","text":"\(http[^"]*\)".*/\1/p' "$log")
	awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "ready after %.2f s\n", b - a }'
}

stop() {
	kill "$server"
	wait "$server" || bad=1
	server=
}

load() { # words of load.py
	[ -z "${REQUESTS-}" ] || set -- "$@" --requests "$REQUESTS"
	printf "tests/gpu/load.py --url URL%s\n" "$(printf " %q" "$@")"
	"$python" tests/gpu/load.py --url "$url" "$@" || bad=1
}

steps() { # of /metrics: times of the steps by bucket, and the host's work of a step by thread
	"$python" - "$url" <<-'EOF_METRICS'
		import re, sys, urllib.request
		text = urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode()
		value = {m[1]: float(m[2]) for m in re.finditer(r"^atlas_(\S+) (\S+)$", text, re.M)}
		for labels, n in [(m[1], v) for k, v in value.items() if v and (m := re.fullmatch(r"step_seconds_count\{(.*)\}", k))]:
		    ms, expected = 1e3 * value[f"step_seconds_sum{{{labels}}}"] / n, value.get(f"step_expected_seconds{{{labels}}}")
		    print(f"step {labels:<34} {n:>7.0f} steps of {ms:8.3f} ms, expected", f"{1e3 * expected:.3f}" if expected else "-")
		for thread in ("engine", "loop"):
		    labels = f'thread="{thread}"'
		    n = value[f"step_host_seconds_count{{{labels}}}"] or 1
		    bounds = [(float(m[1]), v) for k, v in value.items()
		        if (m := re.fullmatch(rf'step_host_seconds_bucket\{{{labels},le="(.*)"\}}', k))]
		    p99 = next(bound for bound, count in sorted(bounds) if count >= 0.99 * n)
		    print(f"host work of a step, {thread}: mean {1e3 * value[f'step_host_seconds_sum{{{labels}}}'] / n:.3f} ms, "
		        f"p99 at most {1e3 * p99:g} ms")
	EOF_METRICS
}

drafted() { # of /metrics: what drafts brought, and what structures took
	"$python" -c 'import sys, urllib.request
for line in urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode().splitlines():
    if ("draft" in line or "accepted" in line) and line[0] != "#": print(line)' "$url"
}

measure() { # name plan vocab
	local ids
	ids=$(seq -s, 1000 $((1000 + context - 1)))
	"$build/atlas" bench "$2" -q --device "$device" --tokens "$tokens" --only "tg$tokens@${context}x$streams" || bad=1
	for _ in 1 2 3 4 5; do
		"$build/atlas" run "$2" --device "$device" --tokens "$ids" -n 32 --json 2>&1 >"$scratch/run" | grep 'first token'
	done
	start "$2" || return 1
	"$python" tests/gpu/first_token.py --url "$url" --prompt "$context" --vocab "$3" || bad=1
	load --vocab "$3" --prompt "$context" --answer 32 --in-flight 1 --rate '' --requests 40
	load --vocab "$3" --prompt "$context" --answer "$tokens" --in-flight "$streams" --rate '' --requests "$streams" --warm-up 0
	if [ "$1" != qwen3.6-35b-a3b-fp8 ]; then
		load --vocab "$3" --prompt $((context * 8)) --answer "$long" --in-flight "$flights" --rate "$rates" --json "$out/serve-$1.json"
	fi
	steps
	stop
}

# A row for each --max-gap: opening takes seconds, the load about fifteen.
gaps() { # name plan vocab
	local gap
	for gap in $gaps; do
		echo "-- --max-gap $gap"
		start "$2" --max-gap "$gap" || return 1
		load --vocab "$3" --prompt $((context * 8)) --answer "$long" --in-flight "$flight" --rate '' \
			--requests "$each" --json "$scratch/gap-$gap.json"
		steps
		stop
	done
	(cd "$scratch" && "$python" - "$gaps") <<-'EOF_GAPS'
		import json, sys
		print("max-gap   req/s  first p50      p99  gap p50      p99   p99/p50")
		for gap in sys.argv[1].split():
		    [row] = json.load(open(f"gap-{gap}.json"))["rows"]
		    if row["ended"]:
		        print("{:>7}{requests_s:>8.2f}{first_p50_ms:>11.1f}{first_p99_ms:>9.1f}{gap_p50_ms:>9.2f}{gap_p99_ms:>9.2f}{:>10.2f}".format(
		            gap, row["gap_p99_ms"] / row["gap_p50_ms"], **row))
	EOF_GAPS
}

# A row for each way of scheduling; equal work, so that the time of all of it is comparable.
mixed() { # name plan vocab
	local way behind row=0
	for behind in $behinds; do
		for way in "${ways[@]}"; do
			echo "-- streams behind $behind tokens; $way"
			# shellcheck disable=SC2086  # words
			start "$2" ${way#default} || return 1
			load --vocab "$3" --in-flight '' --rate "$rate" --even --requests "$arrivals" --warm-up 0 --prompt $((context * 32)) \
				--answer 8 --beside "$streams" --beside-prompt "$behind" --beside-answer "$beside" --json "$scratch/mixed-$row.json"
			steps
			stop
			row=$((row + 1))
		done
	done
	(cd "$scratch" && "$python" - "$device" "$behinds" "${ways[@]}") <<-'EOF_MIXED' || bad=1
		import itertools, json, sys
		device, behinds, *ways = sys.argv[1:]
		print(f"{'behind':<7}{'':<30}  first p50    p99    gap p50    p99  longest   above 20 ms     seconds")
		good = True
		for number, (behind, way) in enumerate(itertools.product(behinds.split(), ways)):
		    [row] = json.load(open(f"mixed-{number}.json"))["rows"]
		    if way == ways[0]: # of the two, one before and one after the others
		        whole = min(row["beside_seconds"], whole) if number % len(ways) else row["beside_seconds"]
		    print(f"{behind:<7}{way:<30}" + "{first_p50_ms:>11.1f}{first_p99_ms:>7.1f}{beside_gap_p50_ms:>11.2f}{beside_gap_p99_ms:>7.2f}"
		        "{beside_gap_max_ms:>9.2f}{beside_over_20ms:>8} of {beside_gaps}{beside_seconds:>9.3f}".format(**row))
		    good &= row["beside_outlast"]
		    if way == "default" and behind == behinds.split()[0]:
		        good &= row["beside_gap_p99_ms"] <= 20 and row["beside_gap_max_ms"] <= 30
		        good &= row["first_p99_ms"] <= 300
		        mine = row["beside_seconds"]
		    if way == ways[0] and number + 1 == len(ways):
		        good &= mine <= whole
		sys.exit(device == "cuda" and not good)
	EOF_MIXED
}

# What HTTP takes from the rate of atlas bench, at the same batch and context.
bars() { # name plan vocab
	local of
	for of in $batches; do
		"$build/atlas" bench "$2" -q --device "$device" --tokens "$tokens" --only "tg$tokens@${context}x$of" \
			--json "$scratch/bench-$of.json" || bad=1
	done
	start "$2" || return 1
	for of in $batches; do
		load --vocab "$3" --prompt "$context" --answer "$tokens" --in-flight "$of" --rate '' --requests "$of" --warm-up 0 \
			--json "$scratch/bar-$of.json"
	done
	steps
	(cd "$scratch" && "$python" - "$device" "$batches") <<-'EOF_BARS' || bad=1
		import json, sys
		good = True
		for of in map(int, sys.argv[2].split()):
		    [row], [mine] = json.load(open(f"bench-{of}.json"))["rows"], json.load(open(f"bar-{of}.json"))["rows"]
		    bench, http = row["tokens_s"], mine["steady_tokens_s"]
		    if not http:
		        sys.exit(f"{of} streams: never all of them at once")
		    added = 1e6 * of * (1 / http - 1 / bench)
		    print(f"{of} streams: {http:.0f} tokens/s through HTTP, {bench:.0f} by atlas bench: {100 * http / bench:.1f} %, "
		        f"{added:+.0f} us a step")
		    good &= http >= 0.95 * bench if of > 32 else added <= 50
		sys.exit(sys.argv[1] == "cuda" and not good)
	EOF_BARS
	for of in 0 $((context * 4)); do
		load --vocab "$3" --prompt $((context * 8)) --shared "$of" --answer "$long" --in-flight "$flights" --rate ''
	done
	stop
}

drafts() { # name plan vocab
	local how
	for how in $drafter off; do
		echo "-- --speculate $how"
		start "$2" --speculate "$how" || return 1
		load --vocab "$3" --prompt $((context * 8)) --shared $((context * 4)) --answer "$long" --in-flight "$flights" --rate ''
		[ -z "${TOKENIZER-}" ] || load --vocab "$3" --prompt $((context * 8)) --shared $((context * 4)) --answer "$long" \
			--in-flight "$flights" --rate '' --structured 10
		steps
		drafted
		stop
	done
}

# Rates with drafts alone: what drafts bring shows in flight, where the same work waits for them.
ngrams() { # name plan vocab
	local how words=(--vocab "$3" --prompt $((context * 8)) --shared $((context * 4)) --answer "$long" --repeating --in-flight "$flights")
	for how in ngram off; do
		echo "-- --speculate $how"
		start "$2" --speculate "$how" || return 1
		load "${words[@]}" --rate ''
		[ "$how" = off ] || load "${words[@]}" --in-flight '' --rate "$rates" --seconds "$seconds_of"
		steps
		drafted
		stop
	done
}

# Each fixture: its answers alone, then beside others; two thirds of the seconds go to the one that drafts with its head.
soak() {
	local name
	for name in soak soak-ngrams; do
		echo "== $name, tests/serve/soak.py PLAN --clients 64"
		"$python" tests/serve/soak.py "$build/serve/$name.bin" --atlas "$build/atlas" --device "$device" --clients 64 --chat \
			--seconds "$1" || bad=1
		set -- $(($1 / 2))
	done
}

many() { # name plan vocab
	start "$2" || return 1
	load --vocab "$3" --prompt "$context" --answer "$long" --in-flight 256 --rate '' --requests 256 --warm-up 0
	load --vocab "$3" --prompt "$context" --answer "$long" --in-flight 256 --rate '' --requests "$crowd"
	steps
	stop
}

on_gpu() { # part, name of its file and of its plan
	[ -e "$build/serve/$3.bin" ] || plan_of "$3" || return 1
	{
		bad=0
		echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
		echo "== $3"
		"$1" "$3" "$build/serve/$3.bin" 100000 || bad=1
		sed 's/^/MODEL.toml: /' "$build/serve/$3.toml"
		echo "exit code: $bad"
	} >"$out/serve-$2.txt" 2>&1
	tail -n 60 "$out/serve-$2.txt"
	grep -qx 'exit code: 0' "$out/serve-$2.txt"
}

scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT
verb=${1-}
shift || true
words=("$@") out=${1-$build/gpu-results} failed=0 bad=0
flights=${FLIGHTS-4,16,64} seconds_of=${SECONDS_OF-20} rates=2,8,16 long=256 gaps='64 128 256 512' flight=16 each=80 crowd=768
batches='128 32' drafter=mtp rate=5 arrivals=40 beside=1100 behinds='128 2048'
ways=('--mixed off --max-gap 2048' '--mixed off --max-gap 512' default '--mixed off --max-gap 2048')
case $verb in
plans)
	only='many mixed bars drafts ngrams soak'
	case " $names $only " in *" ${1-} "*) names=$1 only=; words=("${@:2}") ;; esac
	for name in $names $only; do plan_of "$name" || failed=1; done ;;
soak)
	mkdir -p "$out"
	[ -e "$build/serve/soak.bin" ] || plan_of soak || exit 1
	{
		echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
		soak "${words[1]-60}"
	} >"$out/serve-soak.txt" 2>&1
	tail -n 40 "$out/serve-soak.txt"
	failed=$bad ;;
measure | gaps | many | mixed | bars | drafts | ngrams)
	words=()
	mkdir -p "$out"
	case $verb in
	measure) for name in $names; do on_gpu measure "$name" "$name" || failed=1; done ;;
	gaps) on_gpu gaps gaps llama-3.1-8b || failed=1 ;;
	bars | drafts | ngrams | many) on_gpu "$verb" "$verb" "$verb" || failed=1 ;;
	mixed) on_gpu mixed mixed mixed || failed=1 ;;
	esac ;;
cpu)
	device=cpu streams=4 context=16 tokens=32 flights=2,4 rates=8 long=16 out=$scratch
	gaps='64 128' flight=4 each=12 crowd=300
	"$build/atlasc" tests/fixtures/llama-trained -o "$scratch/plan.bin" --target none -q || exit 1
	measure fixture "$scratch/plan.bin" 2048 || failed=1
	gaps fixture "$scratch/plan.bin" 2048 || failed=1
	context=4 arrivals=6 beside=300 behinds=16 streams=2
	ways=('--mixed off --max-gap 64' default '--mixed off --max-gap 64')
	mixed fixture "$scratch/plan.bin" 2048 || failed=1
	context=16 streams=4
	options 256 512 '[64]' '[256]' >"$scratch/many.toml"
	"$build/atlasc" tests/fixtures/llama-trained --model "$scratch/many.toml" -o "$scratch/many.bin" --target none -q || exit 1
	many fixture "$scratch/many.bin" 2048 || failed=1
	batches='4 2' context=8 long=8 flights=2
	bars fixture "$scratch/plan.bin" 2048 || failed=1
	{ options 4 512 '[64]' '[1, 4]'; printf '[speculate]\ndrafter = "ngram"\nrows = 2\n'; } >"$scratch/drafts.toml"
	"$build/atlasc" tests/fixtures/llama-trained --model "$scratch/drafts.toml" -o "$scratch/drafts.bin" --target none -q || exit 1
	drafter=ngram TOKENIZER=tests/fixtures/llama-trained
	drafts fixture "$scratch/drafts.bin" 2048 || failed=1
	seconds_of=2
	ngrams fixture "$scratch/drafts.bin" 2048 || failed=1
	[ $bad = 0 ] || failed=1 ;;
*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2 ;;
esac
exit $failed
