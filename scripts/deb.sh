#!/bin/bash
# A Debian package of what `make install PREFIX=/usr` installs: BUILD/atlasc_VERSION_ARCH.deb. The same build gives the same
# bytes: times are those of the release, owners root, modes do not depend on the umask.
#
#   VERSION=0.1.0 DATE=2026-01-31 scripts/deb.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 root=$1/deb
: "${VERSION:?}" "${DATE:?}"
SOURCE_DATE_EPOCH=$(date -u -d "$DATE" +%s)
export SOURCE_DATE_EPOCH LC_ALL=C
maintainer='The atlasc maintainers <maintainers@atlasc.example>'
umask 022

rm -rf "$root"
"${MAKE:-make}" --no-print-directory -s install BUILD="$build" PREFIX=/usr DESTDIR="$root" >/dev/null
doc=$root/usr/share/doc/atlasc
mkdir -p "$root/DEBIAN" "$doc" "$root/usr/share/lintian/overrides"
strip -R .comment "$root"/usr/bin/*
strip -R .comment --strip-unneeded "$root"/usr/lib/libatlas.so.0
chmod -x "$root"/usr/lib/libatlas.so.0
strip -R .comment -g -D "$root"/usr/lib/libatlas.a
find "$root/usr/share/man" -type f -exec gzip -9n {} +
gzip -9nc CHANGELOG.md >"$doc/NEWS.gz"
printf 'atlasc (%s) unstable; urgency=medium\n\n  * Release %s: see NEWS.gz.\n\n -- %s  %s\n' "$VERSION" "$VERSION" \
	"$maintainer" "$(date -u -R -d "$DATE")" | gzip -9n >"$doc/changelog.gz"
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: atlasc
Comment: The programs contain libevent, jansson, msgpack-c, libsodium, libedit, libbsd, libmd, ncurses and OpenSSL's
 libcrypto, linked statically; their licences are in /usr/share/doc of the packages that they came from.

Files: *
Copyright: ${DATE%%-*} The atlasc authors
License: Apache-2.0
 On Debian systems, the text of this licence is in /usr/share/common-licenses/Apache-2.0.
END

# What a strict reader of packages would ask, and why it is so.
cat >"$root/usr/share/lintian/overrides/atlasc" <<'END'
# One package has commands, library, header and unit: they are of one version, and the library is small.
atlasc: package-name-doesnt-match-sonames libatlas0
atlasc: link-to-shared-library-in-wrong-package
# atlasc finds NVRTC where NVIDIA's packages put it; no package of Debian has it.
atlasc: custom-library-search-path
# For the architecture of the package alone.
atlasc: pkg-config-unavailable-for-cross-compilation
# Parts that are linked statically.
atlasc: embedded-library ncurses *
END

if [ -e "$root/usr/lib/atlasc/libnvrtc.so.13" ]; then
	cat >>"$doc/copyright" <<-'END'

	Files: usr/lib/atlasc/*
	Copyright: NVIDIA Corporation
	License: CUDA-Toolkit
	 NVIDIA's CUDA Toolkit End User License Agreement, https://docs.nvidia.com/cuda/eula, which lets NVRTC be passed on.
	END
	nvrtc='' level=1 # more takes minutes
else
	nvrtc=$'Recommends: cuda-nvrtc-13-0\n' level=6
	rmdir "$root/usr/lib/atlasc"
fi
needs=$(objdump -T "$root"/usr/bin/* "$root"/usr/lib/libatlas.so.0 | grep -o 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1)
cat >"$root/DEBIAN/control" <<END
Package: atlasc
Version: $VERSION
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f 1)
Depends: libc6 (>= ${needs#GLIBC_})
${nvrtc}Section: science
Priority: optional
Description: ahead-of-time compiler for language models, and its runtime
 atlasc reads a Hugging Face checkpoint, chooses and specialises one CUDA
 kernel for every operation and writes one file, the plan. The command atlas
 runs plans, serves them over HTTP with the OpenAI API, and shows what is in
 them. libatlas is the library for programs in C.
 .
 Running needs a driver for CUDA 13, or no GPU at all with the reference
 device. Compiling needs NVRTC 13.
END
printf 'libatlas 0 atlasc (>= %s)\n' "$VERSION" >"$root/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u+rwX,go+rX,go-w "$root"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# One thread, since the bytes depend on how many there are.
dpkg-deb --root-owner-group -Zxz -z$level --threads-max=1 --build "$root" "$build/atlasc_${VERSION}_$(dpkg --print-architecture).deb" >/dev/null
rm -rf "$root"
