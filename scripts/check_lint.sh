#!/bin/bash
# Shell scripts pass shellcheck (.shellcheckrc), Python files pass ruff (ruff.toml).
#
#   scripts/check_lint.sh [BUILD]
#
# A shell script is a file that starts with #!/bin/bash or #!/bin/sh. VENV names the Python that has ruff.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0
if command -v shellcheck >/dev/null; then
	mapfile -t scripts < <(find . -name 'build*' -prune -o -name .git -prune -o -type f -size -200k -exec awk '
		FNR == 1 { if (/^#!\/bin\/(ba)?sh/) print FILENAME; nextfile }' {} + | sort)
	shellcheck -f gcc "${scripts[@]}" || bad=1
	[ "${#scripts[@]}" -gt 0 ] || { echo 'no shell script was found'; bad=1; }
else
	echo 'missing: shellcheck; `make deps` installs it'
	bad=1
fi
python=${VENV:-build/venv}/bin/python
if "$python" -c 'import ruff' 2>/dev/null; then
	"$python" -m ruff check --quiet --no-cache --output-format concise . || bad=1
else
	echo "missing: ruff in ${VENV:-build/venv}; \`make deps\` installs it"
	bad=1
fi
exit $bad
