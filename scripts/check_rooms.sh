#!/bin/bash
# Who may include whom. artifacts/ knows nobody; compiler/ and runtime/ know artifacts/ and never each other;
# models/ speak the compiler's nouns only; NVRTC and libclang belong to the compiler, the driver to the
# runtime; no room reads the environment.
set -uo pipefail
shopt -s lastpipe # complain runs at the end of pipes and sets bad
cd "$(dirname "$0")/.." || exit 1
bad=0

complain() { # text on stdin, one finding a line
	local found
	found=$(cat)
	[ -z "$found" ] && return
	echo "${found//$'\n'/: $1$'\n'}: $1"
	bad=1
}

# Includes of a room, FILE:LINE:#include "...", that are not among the allowed path prefixes.
only() { # room allowed-regex rule [exception: FILE:include "..."]
	grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.[ch]' "$1" 2>/dev/null |
		grep -vE "include[[:space:]]*\"($2)" | grep -vE "^${4:-$^}" | complain "$3"
}

only artifacts 'artifacts/' 'artifacts/ includes artifacts/ only'
only runtime '(runtime|artifacts)/' 'runtime/ includes runtime/ and artifacts/ only'
only compiler '(compiler|artifacts)/' 'compiler/ includes compiler/ and artifacts/ only' \
	'compiler/commands/explain\.c:[0-9]+:#include "runtime/atlas\.h"'

# The rooms of compiler/ in the order in which a model becomes bytes; one may include itself and those named here.
while read -r room may; do
	only "compiler/$room" "(artifacts|runtime)/|compiler/((ir|base|codes)\.h|($room${may:+|$may})/)" \
		"compiler/$room/ includes ${may:-nothing} of the other rooms" \
		'compiler/read/(read_family\.c:[0-9]+:#include "compiler/tokenizer/tokenizer_config|read_options\.c:[0-9]+:#include "compiler/pick/times)'
done <<-'END'
	text
	chat text
	read text
	tokenizer text|chat|read
	graph text|read
	lower
	pick text
	kernels pick
	plan
	emit text|graph|pick|kernels
	commands text|read|pick|kernels
END
while read -r room may; do
	only "runtime/cli/$room" "(artifacts|runtime)/([a-z_]*\.h|(cpu|text|serve|grammar|ranks|meet)/)|runtime/cli/([a-z_]*\.h|($room${may:+|$may})/)" \
		"runtime/cli/$room/ includes ${may:-nothing} of the other rooms"
done <<-'END'
	trust
	bench trust
	tune bench
	page bench
	inspect trust|page
	generate trust
END
# Templates share what is in shared/; the experts' products are made of the others, plain kernels of anything.
for room in kernels/templates/*/; do
	[ -d "$room" ] || continue
	room=$(basename "$room")
	may=shared
	[ "$room" != experts ] || may='shared|products'
	[ "$room" != plain ] || may='[a-z]+'
	grep -rnE '^#include "' --include='*.cu*' "kernels/templates/$room" 2>/dev/null |
		grep -vE "include \"($room|$may)/" | complain "kernels/templates/$room/ includes its own files and those of ${may/|/, }"
done
only models '(compiler/((ir|base)|graph/builder|read/(config_keys|family))\.h|artifacts/|models/)' \
	'models/ include nouns of compiler/ (ir, base, builder, config_keys, family) and artifacts/ only'

# A family's name is in its file of facts alone; --random-weights and the like take any. Prose may name what is sold.
# Forms of tool calls have the names that other servers use, which are those of families.
names=$(sed -n 's/^name = "\([a-z0-9_]*\)"$/\1/p' models/*.toml 2>/dev/null | paste -sd'|')
[ -z "$names" ] || grep -rnwE "\"($names)(_text)?\"" --include='*.[ch]' --include='*.cu*' artifacts compiler models runtime \
	kernels 2>/dev/null | grep -vE ':[0-9]+:[[:space:]]*(/?\*)|/\*.*"' |
		grep -v '^runtime/serve/tool_formats\.c:' | complain 'a family is named in models/NAME.toml alone'

grep -rnE '#[[:space:]]*include.*\.c[">]' --include='*.[ch]' artifacts compiler models runtime 2>/dev/null |
	complain 'a source file is not included'

foreign() { # header-regex rooms-that-may rule
	local rooms=() room
	for room in artifacts compiler models runtime; do
		[[ " $2 " == *" $room "* ]] || rooms+=("$room")
	done
	grep -rnE "#[[:space:]]*include.*$1" --include='*.[ch]' "${rooms[@]}" 2>/dev/null | complain "$3"
}
foreign '<nvrtc\.h>' compiler 'NVRTC belongs to compiler/'
foreign '<clang-c/' compiler 'libclang belongs to compiler/kernelgen'
foreign '<cuda\.h>' runtime 'the CUDA driver belongs to runtime/'
foreign '<cuda_runtime' '' 'the CUDA runtime library is not used'
grep -rnE '<clang-c/' --include='*.[ch]' compiler 2>/dev/null | grep -v '^compiler/kernelgen/' |
	complain 'libclang belongs to compiler/kernelgen'
grep -rnE '#[[:space:]]*include[[:space:]]*<' kernels/templates 2>/dev/null |
	complain 'a kernel template includes no header of a toolkit'
# Files are written by artifacts/new_file.c alone; kernelgen serves the build. A folder of scratch may be made.
{
	grep -rnE '\<(creat|mkstemps?|mkostemps?|tmpfile|rename|renameat2?|link|linkat|truncate)\(' --include='*.[ch]' \
		artifacts compiler models runtime
	grep -rnE '\<O_(CREAT|TMPFILE|WRONLY|RDWR|APPEND|TRUNC)\>' --include='*.[ch]' artifacts compiler models runtime
	grep -rnE '\<f(re)?open\(' --include='*.[ch]' artifacts compiler models runtime | grep -vE '"r[be]*"'
} 2>/dev/null | grep -vE '^(artifacts/new_file\.[ch]|compiler/kernelgen/[a-z_]*\.c):' |
	complain 'files are written by artifacts/new_file.c'
grep -rnwE '(secure_)?getenv|environ|setenv|putenv' --include='*.[ch]' artifacts compiler models runtime 2>/dev/null |
	grep -vE ':[[:space:]]*(/?\*|//)' | grep -v '^runtime/cli/atlas_main.c:[0-9]*:	setenv(' | grep -v '^runtime/ranks/nccl_guard.c:' |
	complain 'no room reads the environment, but for what NCCL reads; the command alone sets what the driver reads'
exit $bad
