#!/bin/bash
# What ranks that share one GPU can show, as one table: NCCL of one rank, the kernels of sums, two shots beside one, and
# ranks killed at 15 points of a run of four.
#
#   tests/gpu/ranks_one_gpu.sh BUILD PLANS COMMIT > TABLE
#
# BUILD has atlas and tests-gpu/kernel_test; PLANS is what tests/gpu/ranks.py plans BUILD PLANS has made.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 5
build=$1 plans=$2
python=$(command -v python3 || command -v python)
library() { # its path, next to torch or anywhere
	"$python" -c 'import glob, sys
print(next((f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/" + sys.argv[1])), ""))' "$1" | grep . ||
		find /usr/local/cuda*/ /usr/lib /opt "$HOME" -name "$1*" 2>/dev/null | head -n 1
}
nccl=$(library libnccl.so.2)
nvrtc=$(library libnvrtc.so.13)
[ -z "$nvrtc" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${nvrtc%/*}
part() { # NAME COMMAND...: its output and exit code
	echo "== $1"
	shift
	timeout 60 "$@" 2>&1 | grep -v '^$' | tail -24
	echo "exit ${PIPESTATUS[0]}"
}
echo "card, driver: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)"
echo "commit: $3"
echo "command: tests/gpu/ranks_one_gpu.sh; moe-4 and dense-2: tests/fixtures/qwen3_moe and qwen3 of 4 and 2 ranks; wide-4: a"
echo "  llama of random weights, sums of 512 rows of 512 columns"
part "NCCL of one rank" "$build/tests-gpu/kernel_test" --nccl "${nccl:-libnccl.so.2}"
part "kernels of sums, a rank alone" "$build/tests-gpu/kernel_test" --only sum_peers --cases 20
part "two shots beside one, ranks on one GPU" "$python" tests/gpu/ranks.py shots "$build" 0 "$plans"
part "15 points, R = 4" "$python" tests/gpu/ranks.py kill "$build" 0,0,0,0 "$plans/moe-4.two.bin" 15 2.5 4 SIGKILL
echo "== end"
