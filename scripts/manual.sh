#!/bin/bash
# Manual pages and completion of bash, zsh and fish, which the commands print from their own tables, into BUILD/share.
#
#   scripts/manual.sh BUILD
set -euo pipefail
build=$1 new=$1/share.new
rm -rf "$new"
mkdir -p "$new"/man/man1 "$new"/man/man5 "$new"/bash-completion/completions "$new"/zsh/site-functions \
	"$new"/fish/vendor_completions.d
"$build/atlasc" --help-as man >"$new/man/man1/atlasc.1"
"$build/atlasc" --help-as model >"$new/man/man5/MODEL.toml.5"
"$build/atlas" --help-as man >"$new/man/man1/atlas.1"
verbs=$("$build/atlas" --help | sed -n 's/^  \([a-z]*\)   *[a-z].*/\1/p')
for verb in $verbs; do
	"$build/atlas" "$verb" --help-as man >"$new/man/man1/atlas-$verb.1"
done
for command in atlasc atlas; do
	"$build/$command" --help-as bash >"$new/bash-completion/completions/$command"
	"$build/$command" --help-as zsh >"$new/zsh/site-functions/_$command"
	"$build/$command" --help-as fish >"$new/fish/vendor_completions.d/$command.fish"
done
rm -rf "$build/share"
mv "$new" "$build/share"
