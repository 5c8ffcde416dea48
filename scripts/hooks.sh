#!/bin/bash
# Makes git run the checks of the source tree before each commit. A hook that is there already is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
hook=$(git rev-parse --git-path hooks)/pre-commit
line='exec make --no-print-directory check'
if [ -e "$hook" ] || [ -L "$hook" ]; then
	if grep -qxF "$line" "$hook" 2>/dev/null; then
		echo "$hook runs the checks already"
		exit 0
	fi
	echo "hooks: $hook is there and is kept; to run the checks, add to it: $line" >&2
	exit 1
fi
mkdir -p "$(dirname "$hook")"
printf '#!/bin/sh\n# Written by make hooks; git commit --no-verify skips it.\n%s\n' "$line" >"$hook"
chmod +x "$hook"
echo "$hook runs make check before each commit"
