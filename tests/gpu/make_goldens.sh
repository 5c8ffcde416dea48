#!/bin/bash
# Trains the small model and makes every golden, on a machine with torch and transformers.
#
#   tests/gpu/make_goldens.sh TEXT OUT.tar
#
# TEXT is what `python scripts/train_tiny.py extract TEXT` wrote (it needs Debian's bible-kjv). OUT.tar holds what is
# new under tests/fixtures: unpack it in the root of the repository and commit. Goldens are computed on the CPU; the
# training takes a GPU when there is one.
set -euo pipefail
text=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
export CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

"$python" scripts/train_tiny.py train "$text" tests/fixtures/llama-trained
status=0
"$python" scripts/make_fixtures.py goldens || status=$?
tar -cf "$out" tests/fixtures/llama-trained tests/fixtures/*/golden.safetensors
exit $status
