"""`make deb`: the package is reproducible, lintian finds nothing, dpkg installs and removes it, and its commands run.
The image's Containerfile: what it copies is there, and its health check is right about a real server."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "serve"))
from server import Server  # noqa: E402

INSTALL = pathlib.Path("runtime/serve/install")


def run(*words, **kwargs):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(repo, build_dir):
    """The package of the build, twice made: with another umask and time zone the second time."""
    if "asan" in build_dir.name:
        pytest.skip("commands with sanitizers are not packed")
    if not shutil.which("dpkg-deb"):
        pytest.skip("not a Debian: no dpkg-deb")
    made = []
    for umask, zone in ((0o022, "UTC"), (0o077, "Pacific/Auckland")):
        name = build_dir.relative_to(repo)
        env = os.environ | {"TZ": zone, "LANG": "C.UTF-8" if made else "C"}
        run("make", "deb", f"BUILD={name}", cwd=repo, env=env, umask=umask)
        [path] = build_dir.glob("atlasc_*.deb")
        made.append(path.read_bytes())
    assert made[0] == made[1]
    return path


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    run("dpkg-deb", "-x", package, folder)
    return folder


def test_what_is_in_it(package, unpacked):
    rows = [line.split(None, 5) for line in run("dpkg-deb", "-c", package).splitlines()]
    assert {row[1] for row in rows} == {"root/root"} and not any("w" in row[0][4:] for row in rows if row[0][0] != "l")
    assert not any(set(row[0]) & set("sStT") for row in rows)
    names = {row[5].removeprefix("./").split(" -> ")[0] for row in rows}
    for name in (
        "bin/atlas",
        "bin/atlasc",
        "include/atlas.h",
        "lib/libatlas.a",
        "lib/libatlas.so.0",
        "lib/libatlas.so",
        "lib/systemd/system/atlas-serve@.service",
        "share/atlas/nginx.conf",
        "share/atlas/haproxy.cfg",
        "share/atlas/haproxy-many.cfg",
        "share/atlas/nginx-many.conf",
        "share/atlas/Containerfile",
        "share/bash-completion/completions/atlas",
        "share/zsh/site-functions/_atlas",
        "share/fish/vendor_completions.d/atlas.fish",
        "share/man/man1/atlas-serve.1.gz",
        "share/man/man1/atlasc.1.gz",
        "share/man/man5/MODEL.toml.5.gz",
        "share/doc/atlasc/copyright",
        "share/doc/atlasc/changelog.gz",
    ):
        assert f"usr/{name}" in names, name
    unit = (unpacked / "usr/lib/systemd/system/atlas-serve@.service").read_text()
    assert "ExecStart=/usr/bin/atlas serve " in unit
    sums = subprocess.run(["dpkg-deb", "--ctrl-tarfile", package], capture_output=True, check=True).stdout
    checked = subprocess.run(["tar", "-xO", "./md5sums"], input=sums, capture_output=True, check=True).stdout
    run("md5sum", "--quiet", "-c", "-", cwd=unpacked, input=checked.decode())


def test_its_commands_need_only_what_it_depends_on(package, unpacked):
    """No symbol of a newer C library than the one it asks for; nothing but the C library."""
    asked = re.search(r"libc6 \(>= (2\.\d+)\)", run("dpkg-deb", "-f", package, "Depends"))[1]
    for name in ("bin/atlas", "bin/atlasc", "lib/libatlas.so.0"):
        symbols = re.findall(r"GLIBC_2\.(\d+)", run("objdump", "-T", unpacked / "usr" / name))
        assert max(map(int, symbols)) <= int(asked[2:])
        needed = set(re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", unpacked / "usr" / name)))
        assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert run(unpacked / "usr/bin/atlas", "--version").startswith("atlas ")
    assert "cuda-nvrtc" in run("dpkg-deb", "-f", package, "Recommends") or (unpacked / "usr/lib/atlasc").exists()


def test_lintian(package):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    said = run("lintian", "--tag-display-limit", 0, "--display-info", "--fail-on", "error,warning", package)
    wrong = [line for line in said.splitlines() if line[:2] in ("E:", "W:") or "unused-override" in line]
    assert wrong == []


def test_dpkg_installs_and_removes_it(package, tmp_path):
    """Into a root of its own; its dependencies are those of a Debian, which is not there."""
    if os.geteuid() != 0:
        pytest.skip("dpkg wants root")
    root = tmp_path / "root"
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    words = ["dpkg", f"--root={root}", "--force-depends", "--log=/dev/null"]
    run(*words, "-i", package)
    assert "install ok installed" in (root / "var/lib/dpkg/status").read_text()
    assert run(root / "usr/bin/atlas", "--version")
    assert run(*words, "--verify", "atlasc") == ""
    run(*words, "-P", "atlasc")
    assert [path for path in root.rglob("*") if path.is_file() and "var/lib/dpkg" not in str(path)] == []


# Image ------------------------------------------------------------


def instructions(repo):
    """[(instruction, rest)] of the Containerfile."""
    text = (repo / INSTALL / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def test_image(repo, atlas):
    """What is copied is there and runs from its new place; the process is not root; no shell starts it."""
    rows = instructions(repo)
    known = {"FROM", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert [name for name, _ in rows][0] == "FROM" and {name for name, _ in rows} <= known
    for name, rest in rows:
        if name == "COPY":
            source, to = shlex.split(rest)
            assert (repo / source).exists(), source
    assert (source, to) == ("build/atlas", "/usr/bin/atlas")
    user = dict(rows)["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert dict(rows)["STOPSIGNAL"] == "SIGTERM"  # which drains
    entry, words = json.loads(dict(rows)["ENTRYPOINT"]), json.loads(dict(rows)["CMD"])
    assert entry == [to] and words[0] == "serve"
    said = atlas(*words)  # its options are right: only the plan is missing
    assert (said.returncode, "/plan.bin: No such file" in said.stderr) == (5, True), said.stderr


def test_health_check_of_the_image(repo, atlas, small_plan_of, tmp_path):
    check = dict(instructions(repo))["HEALTHCHECK"]
    words = json.loads(check[check.index("CMD ") + 4 :])
    keys = tmp_path / "keys.txt"
    keys.write_text("sesame\n")
    server = Server(atlas, small_plan_of("llama-trained"), "--host", "0.0.0.0", "--api-key-file", keys)

    def healthy():
        here = [word.replace("127.0.0.1/8080", f"127.0.0.1/{server.port}") for word in words]
        assert here != words
        return subprocess.run(here, capture_output=True, timeout=10, check=False).returncode == 0

    try:
        assert healthy()
        assert server.stop() == 0
        assert not healthy()
    finally:
        server.process.kill()


def test_nothing_is_written(atlas, small_plan_of):
    """What --read-only of a container asks: a server that has answered has no file open for writing but its log."""
    server = Server(atlas, small_plan_of("llama-trained"))
    try:
        assert server.post("/v1/completions", {"prompt": "In the beginning", "max_tokens": 3})[0] == 200
        for info in pathlib.Path(f"/proc/{server.process.pid}/fdinfo").iterdir():
            target = os.readlink(f"/proc/{server.process.pid}/fd/{info.name}")
            flags = int(re.search(r"^flags:\s+(\d+)", info.read_text(), re.M)[1], 8)
            assert flags & 3 == os.O_RDONLY or not target.startswith("/") or target == "/dev/null", target
    finally:
        server.process.kill()
