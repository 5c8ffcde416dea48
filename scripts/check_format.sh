#!/bin/bash
# The layout of C and Python files is that of `make format`.
#
#   scripts/check_format.sh [BUILD]
#
# VENV names the Python that has ruff.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0
python3 scripts/format_c.py --check || bad=1
python=${VENV:-build/venv}/bin/python
if "$python" -c 'import ruff' 2>/dev/null; then
	"$python" -m ruff format --check --quiet --no-cache --diff . 2>/dev/null |
		sed -n 's/^--- \([^\t]*\).*/\1: `make format` would change this file/p' | grep . && bad=1
else
	echo "missing: ruff in ${VENV:-build/venv}; \`make deps\` installs it"
	bad=1
fi
exit $bad
