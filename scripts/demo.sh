#!/bin/bash
# From a checkpoint to text: what `make demo` runs after the build. The commands are shown as they run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
mkdir -p "$build/demo"
show() {
	printf '\n$ %s\n' "$*"
	"$@"
}
show "$build/atlasc" tests/fixtures/llama-trained -o "$build/demo/plan.bin" --cache-dir "$build/kernel-cache"
show "$build/atlas" audit "$build/demo/plan.bin"
printf '\n$ %s\n' "$build/atlas run $build/demo/plan.bin -p \"In the beginning\" -n 64"
"$build/atlas" run "$build/demo/plan.bin" -p 'In the beginning' -n 64
echo
