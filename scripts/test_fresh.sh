#!/bin/bash
# What a newcomer meets: a bare Debian 12 made by debootstrap, in it a clone of this tree's last commit and the commands
# of README.md: make and git from apt, `make demo`, `atlas chat` and `atlas serve`, `make test`. Nothing of this machine is seen in there but its devices
# and what its apt and pip are told about mirrors, proxies and certificates.
#
#   scripts/test_fresh.sh BUILD [demo] [test]
#
# Needs root, a mirror of Debian and 4 GB in BUILD; gives all of it back, also when interrupted. The last lines are the
# results, one a command. Exit codes: 0 all passed, 1 one failed, 2 usage, 5 this machine cannot do it. All mounts live
# in a namespace of their own and end with it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:?scripts/test_fresh.sh BUILD [demo] [test]}
shift
wanted=" ${*:-demo test} " suite=bookworm

refuse() { echo "test-fresh: $*" >&2; exit 5; }

[ "$(id -u)" -eq 0 ] || refuse 'needs root, for debootstrap and chroot'
unshare --mount --pid --fork true 2>/dev/null || refuse 'needs namespaces (unshare --mount --pid), which this machine refuses'
git rev-parse -q --verify HEAD >/dev/null 2>&1 || git -c safe.directory='*' rev-parse -q --verify HEAD >/dev/null 2>&1 ||
	refuse 'needs a git checkout: a newcomer starts with a clone'
if ! command -v debootstrap >/dev/null; then
	echo 'installing debootstrap: makes the bare root'
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap >/dev/null 2>&1 || refuse 'needs debootstrap, which apt-get cannot install'
fi

mkdir -p "$build"
work=$(mktemp -d "$(realpath "$build")/fresh.XXXXXX") root=$work/root child=
mkdir "$root"
end() {
	trap '' INT TERM
	[ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null
	rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

apart() { # in namespaces that end with it, mounts, processes and all; in the background, so that a signal is heard at once
	unshare --mount --pid --fork --kill-child --mount-proc "$@" &
	child=$!
	wait "$child"
	local rc=$?
	child=
	return $rc
}

# Variables and files by which this machine reaches mirror and index.
carried=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE PIP_CERT \
	PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_PROXY PIP_DEFAULT_TIMEOUT; do
	[ -z "${!name-}" ] || carried+=("$name=${!name}")
done
carry_files() {
	local file
	for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt \
		"${SSL_CERT_FILE-}" "${REQUESTS_CA_BUNDLE-}" "${PIP_CERT-}"; do
		[ -f "$file" ] && install -D -m 644 "$file" "$root$file"
	done
	apt-config dump | grep -E '^Acquire::(Retries|https?::.*(Proxy|CaInfo|Timeout))' >"$root/etc/apt/apt.conf.d/90network"
}
mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb (\[[^]]*\] )?([^ ]+) .*/\2/p' /etc/apt/sources.list \
	/etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null | grep -E '^(https?|file):.*/debian/?$' | head -n 1)

inside() { # words, run in the root as a login on a new machine would
	# shellcheck disable=SC2016  # for the inner shell
	apart bash -c '
		mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && exec chroot "$0" "$@"' \
		"$root" env -i "${carried[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		TERM="${TERM-dumb}" "$@"
}

echo "test-fresh: Debian $suite from ${mirror:-the mirror of debootstrap}"
apart env "${carried[@]}" debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
	{ tail -n 5 "$work/log" >&2; refuse "debootstrap failed (above)"; }
carry_files
printf '[safe]\n\tdirectory = *\n' >"$work/.gitconfig"
HOME=$work git clone -q --bare --depth 1 "file://$PWD" "$root/srv/atlasc.git" || refuse 'the tree cannot be cloned'
results=() failed=0
# The README's own words, before the first make.
echo '$ apt-get update && apt-get install -y make git'
inside bash -c 'apt-get update && apt-get install -y make git' >"$work/log" 2>&1 ||
	{ tail -n 20 "$work/log" >&2; refuse 'apt-get failed in the new root (above)'; }
carry_files # certificates, which a package has just written anew
inside git clone -q file:///srv/atlasc.git /root/atlasc || refuse 'the clone failed in the new root'

result() { # command seconds verdict
	results+=("$(printf '%-9s %s, %d s' "$1" "$3" "$2")")
	[[ $3 == passed* ]] || failed=1
}
try() { # TARGET: runs it and shows it; what it said is in $work/TARGET
	local start=$SECONDS rc
	echo "\$ make $1"
	inside make -C /root/atlasc --no-print-directory "$1" > >(tee "$work/$1") 2>&1
	rc=$?
	wait # for tee
	[ $rc -eq 0 ] && verdict=passed || verdict="failed with exit code $rc"
	seconds=$((SECONDS - start))
}
# With a model of one's own: the demo's, and a chat template of one line. The port is any that is free.
# shellcheck disable=SC2016  # for the inner shell
talk='
cd /root/atlasc && cp -r tests/fixtures/llama-trained /root/model || exit
echo "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}" >/root/model/chat_template.jinja
build/atlasc /root/model -o plan.bin || exit
echo "In the beginning" | build/atlas chat plan.bin -n 16 >chat.txt && cat chat.txt && [ -s chat.txt ] || exit
build/atlas serve plan.bin --port 0 >serve.log 2>&1 &
for i in $(seq 600); do
	port=$(sed -n "s|.*\"event\":\"ready\",\"text\":\"http://127.0.0.1:\([0-9]*\).*|\1|p" serve.log)
	[ -z "$port" ] && kill -0 $! || break
	sleep 0.1
done
body="{\"messages\": [{\"role\": \"user\", \"content\": \"In the beginning\"}], \"max_tokens\": 16}"
exec 3<>"/dev/tcp/127.0.0.1/$port" || { cat serve.log; exit 1; }
printf "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n" >&3
printf "Content-Length: %d\r\n\r\n%s" ${#body} "$body" >&3
timeout 60 cat <&3 >answer.txt
cat answer.txt; echo
kill $! && wait $! && grep -q "\"content\":\"..*\"" answer.txt'

if [[ $wanted == *' demo '* ]]; then
	try demo
	took=$seconds
	if [ "$verdict" = passed ] && grep -i warning "$work/demo"; then
		verdict='failed: it warns (above)'
	elif [ "$verdict" = passed ]; then
		try demo # nothing is left to install or to build
		if [ "$verdict" = passed ] && grep -E '^(installing|  (cc|link|kernelgen|embed|ar|manual) )' "$work/demo"; then
			verdict='failed: a second one does things again (above)'
		fi
	fi
	result 'make demo' "$took" "$verdict"
	if [ "$verdict" = passed ]; then
		start=$SECONDS
		inside bash -c "$talk" 2>&1
		rc=$?
		[ $rc -eq 0 ] && verdict=passed || verdict="failed with exit code $rc"
		result 'atlas chat and serve' $((SECONDS - start)) "$verdict"
	fi
fi
if [[ $wanted == *' test '* ]]; then
	try test
	result 'make test' "$seconds" "$verdict: $(tail -n 1 "$work/test")"
fi
printf '%s\n' "${results[@]}"
exit $failed
