#!/bin/bash
# What the build and the tests need from outside, and how to get it.
#
#   deps.sh check PHASE...     say what is missing, one line each, and fail
#   deps.sh install PHASE...   install what is missing, after saying what and why
#
# PHASE is `build`, `test` or `fuzz`. A need is looked for by the file or command that is really used, so a machine
# that has it from elsewhere passes, and so that nothing is started when nothing is missing. The Makefile
# gives CC, CUDA_ROOT (the toolkit in use, or the wheel folder), WHEELS (where wheels go) and VENV.
set -euo pipefail

verb=$1
shift
phases=" $* "

# One row per need: phase, Debian package, probe, reason. The probe is a path relative to /, a pattern,
# `cmd:NAME`, or `lib:NAME` for a file in one of the linker's folders.
needs='
build gcc              cmd:gcc                                the C11 compiler
build libc6-dev        usr/include/stdio.h                    headers of the C library
build binutils         cmd:objcopy                            linker, archiver, objcopy
build libjansson-dev   lib:libjansson.a                       JSON of the checkpoint, linked statically
build libevent-dev     lib:libevent_core.a                    sockets and timers of atlas serve, linked statically
build libmsgpack-dev   lib:libmsgpackc.a                      writes the manifest of a plan, linked statically
build libssl-dev       lib:libcrypto.a                        SHA-256 of plan sections, linked statically
build libsodium-dev    lib:libsodium.a                        Ed25519 signatures of plans, linked statically
build libedit-dev      lib:libedit.a                          line editing of atlas chat, linked statically
build libncurses-dev   lib:libtinfo.a                         terminals of libedit, linked statically
build libclang-19-dev  usr/lib/llvm-1[49]/include/clang-c/Index.h  reads kernel contracts while building
test  libcmocka-dev    usr/include/cmocka.h                   unit tests
test  chromium-headless-shell  cmd:chromium-headless-shell    renders the pages of atlas audit, bench and serve
test  liblua5.3-0      usr/lib/*/liblua5.3.so.0               haproxy needs it
test  libopentracing-c-wrapper0  usr/lib/*/libopentracing-c-wrapper.so.0  haproxy needs it
test  mandoc           cmd:mandoc                             checks the manual pages
test  zsh              cmd:zsh                                runs its completion script
test  fish             cmd:fish                               runs its completion script
test  openssl          cmd:openssl                            certificates of the proxies in tests
test  shellcheck       cmd:shellcheck                         checks the shell scripts, in make check
fuzz  clang            cmd:clang                              builds the fuzzers, with libFuzzer
test  python3-venv     usr/lib/python3*/ensurepip/__init__.py      Python of the tests and their oracles
'
# Exact versions: a plan records its NVRTC, and the same inputs must give the same bytes.
wheels='nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96'

triplet=$("${CC:-cc}" -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")

present() { # probe
	local dir
	case $1 in
	cmd:*) command -v "${1#cmd:}" >/dev/null ;;
	lib:*)
		for dir in "/usr/lib/$triplet" /usr/local/lib /usr/lib; do
			[ -e "$dir/${1#lib:}" ] && return 0
		done
		return 1 ;;
	*) compgen -G "/$1" >/dev/null ;;
	esac
}

wants() { [[ $phases == *" $1 "* ]]; }

has_nvrtc() { [ -e "$CUDA_ROOT/include/nvrtc.h" ] && [ -e "$CUDA_ROOT/include/cuda.h" ]; }

packages=() reasons=()
while read -r phase package probe reason; do
	[ -n "$phase" ] || continue
	! wants "$phase" || present "$probe" || { packages+=("$package"); reasons+=("$reason"); }
done <<<"$needs"
need_wheels=false
if wants build && ! has_nvrtc; then
	need_wheels=true
	[[ " ${packages[*]-} " == *" python3-venv "* ]] || present 'usr/lib/python3*/ensurepip/__init__.py' ||
		{ packages+=(python3-venv); reasons+=('unpacks the CUDA wheels'); }
fi

if [ "$verb" = check ]; then
	for i in "${!packages[@]}"; do
		echo "missing: Debian package ${packages[i]} (${reasons[i]}); \`make deps\` installs it" >&2
	done
	$need_wheels && echo "missing: CUDA toolkit 13 or PyPI package ${wheels%% *} (compiles the kernels);" \
		'`make deps` installs it' >&2
	[ ${#packages[@]} -eq 0 ] && ! $need_wheels
	exit
fi

apt=(apt-get install -y --no-install-recommends "${packages[@]}")
if [ ${#packages[@]} -gt 0 ]; then
	for i in "${!packages[@]}"; do
		printf 'installing %-16s %s\n' "${packages[i]}" "${reasons[i]}"
	done
	as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "missing: Debian packages; as root, run: ${apt[*]}" >&2
			exit 1
		fi
		as_root=(sudo)
	elif ! command -v apt-get >/dev/null; then
		echo "missing: apt-get; install the equivalents of: ${packages[*]}" >&2
		exit 1
	fi
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	# A mirror that cannot be refreshed may still serve: only the installation decides.
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update >"$log" 2>&1 || true
	if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${apt[@]}" >>"$log" 2>&1; then
		tail -n 20 "$log" >&2
		echo "missing: ${packages[*]}: apt-get failed (above); by hand: ${apt[*]}" >&2
		exit 1
	fi
fi

# Proxies in front of atlas serve are unpacked and not installed, since their packages start them.
proxies=build/deps/proxies
for name in nginx haproxy; do
	! wants test || ! command -v apt-get >/dev/null || [ -x "/usr/sbin/$name" ] || [ -x "$proxies/usr/sbin/$name" ] || {
		echo "unpacking $name in $proxies: a proxy in front of atlas serve"
		mkdir -p "$proxies"
		(cd "$proxies" && apt-get -o APT::Sandbox::User=root download -qq "$name" && dpkg -x "$name"_*.deb . && rm "$name"_*.deb) ||
			{ echo "missing: $name: apt-get download failed (above)" >&2; exit 1; }
	}
done

make_venv() {
	[ -x "$VENV/bin/python" ] || "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$VENV"
}

pip_install() { # what is missing without it, then pip's arguments
	local what=$1
	shift
	"$VENV/bin/python" -m pip install -q --disable-pip-version-check "$@" ||
		{ echo "missing: PyPI packages $what: pip failed (above)" >&2; exit 1; }
}

if $need_wheels; then
	echo "installing $wheels in ${WHEELS:?}: no CUDA toolkit with NVRTC 13 found"
	make_venv
	rm -rf "$WHEELS.new"
	mkdir -p "$(dirname "$WHEELS")"
	# shellcheck disable=SC2086  # two requirements, one word each
	pip_install "$wheels" --no-deps --target "$WHEELS.new" $wheels
	rm -rf "$WHEELS"
	mv "$WHEELS.new" "$WHEELS"
fi

if wants test && ! cmp -s tests/requirements.txt "$VENV/requirements.done"; then
	echo "installing in $VENV: $(sed 's|#.*||' tests/requirements.txt | xargs)"
	make_venv
	pip_install 'of tests/requirements.txt' -r tests/requirements.txt
	cp tests/requirements.txt "$VENV/requirements.done"
fi
