"""Same inputs, same bytes: wherever, by whomever and however often a plan is compiled."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

FIXTURE = "tests/fixtures/llama"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_digest_whatever_the_surroundings(atlasc, kernel_cache, repo, tmp_path):
    first = tmp_path / "first.bin"
    assert atlasc(FIXTURE, "-o", first, "-j", 1, "--cache-dir", kernel_cache).returncode == 0
    elsewhere = tmp_path / "a folder" / "checkpoint"
    elsewhere.parent.mkdir()
    shutil.copytree(repo / FIXTURE, elsewhere)
    for name in sorted(os.listdir(elsewhere), reverse=True):  # another order of files and other times
        os.utime(elsewhere / name, (1, 1))
    others = {
        "no cache, two jobs": dict(args=[FIXTURE, "-j", 2]),
        "four jobs": dict(args=[FIXTURE, "-j", 4, "--cache-dir", kernel_cache]),
        "another locale": dict(
            args=[FIXTURE, "--cache-dir", kernel_cache],
            env={"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "TZ": "America/St_Johns"},
        ),
        "another folder": dict(args=[elsewhere, "--cache-dir", kernel_cache]),
        "from inside": dict(args=[".", "--cache-dir", kernel_cache], cwd=elsewhere),
        "another user's surroundings": dict(
            args=[FIXTURE, "--cache-dir", kernel_cache],
            env={
                "HOME": "/nonexistent",
                "LANG": "tr_TR.UTF-8",
                "LC_ALL": "C",
                "TZ": "Asia/Kathmandu",
                "TMPDIR": "/",
                "CUDA_VISIBLE_DEVICES": "7",
                "NVRTC_DUMP": "1",
            },
        ),
    }
    old = os.umask(0o077)
    try:
        for what, run in others.items():
            plan = tmp_path / "other.bin"
            done = atlasc(*run.pop("args"), "-o", plan, **run)
            assert done.returncode == 0, done.stderr
            assert digest(plan) == digest(first), what
    finally:
        os.umask(old)


def test_rules_say_the_same_wherever_their_file_lies(atlasc, kernel_cache, repo, tmp_path):
    rules = (
        '[[kernels.pin]]\ntemplate = "stream_norm"\nphase = "decode"\ntunables = { TILES = 2 }\n'
        '[[kernels.ban]]\ntemplate = "stream_swiglu"\ntunables = { COLS = 128 }\n'
    )
    digests = set()
    for name in ("fast.toml", "another folder/fast.toml"):
        options = tmp_path / name
        options.parent.mkdir(exist_ok=True)
        options.write_text((repo / FIXTURE / "MODEL.toml").read_text() + rules)
        plan = tmp_path / "plan.bin"
        done = atlasc(FIXTURE, "--model", options, "-o", plan, "--cache-dir", kernel_cache)
        assert done.returncode == 0, done.stderr
        assert b"by the pin at fast.toml:" in plan.read_bytes()
        assert str(tmp_path).encode() not in plan.read_bytes()
        digests.add(digest(plan))
    assert len(digests) == 1


def test_no_trace_of_this_machine(atlasc, kernel_cache, repo, tmp_path):
    plan = tmp_path / "plan.bin"
    assert atlasc(repo / FIXTURE, "-o", plan, "--cache-dir", kernel_cache).returncode == 0
    data = plan.read_bytes()
    for word in (os.uname().nodename, str(repo), str(tmp_path), os.path.expanduser("~") + "/"):
        assert word.encode() not in data, word


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_in_another_order_of_files(atlasc, repo, tmp_path):
    """Somebody who owns nothing, in a folder whose files were made in the opposite order, under another umask."""
    mine = tmp_path / "mine.bin"
    assert atlasc(FIXTURE, "--target", "none", "-o", mine).returncode == 0
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        model = pathlib.Path(place) / "model"
        model.mkdir(mode=0o755)
        for name in sorted(os.listdir(repo / FIXTURE), reverse=True):
            shutil.copy(repo / FIXTURE / name, model / name)
        theirs = pathlib.Path(place) / "theirs.bin"
        words = [atlasc, model, "-o", theirs, "-q", "-j", "1", "--target", "none"]
        try:
            run = subprocess.run(
                words,
                user=65534,
                group=65534,
                extra_groups=[],
                umask=0o007,
                cwd="/",
                env={},
                capture_output=True,
                text=True,
            )
        except PermissionError:
            pytest.skip("the build lies where nobody else may read")
        assert run.returncode == 0, run.stderr
        assert theirs.stat().st_uid == 65534 and digest(theirs) == digest(mine)


def test_nothing_is_asked_of_the_machine(build_dir, repo):
    """No object of the compiler asks for a user, a host, a locale, the environment or a date; but the kernel cache asks
    who owns it, which decides whether it is used and changes no byte. Folders are listed in three places, for remarks
    on files that are not read, to find a snapshot and chat templates, and sorted."""
    objects = [
        *build_dir.glob("obj/compiler/**/*.o"),
        *build_dir.glob("obj/artifacts/*.o"),
        *build_dir.glob("obj/models/*/*.o"),
    ]
    asked = subprocess.run(["nm", "-A", "-u", *objects], capture_output=True, text=True, check=True).stdout.split("\n")
    calls = {}
    for line in filter(None, asked):
        file, name = line.split(":")[0], line.split()[-1].split("@")[0]
        calls.setdefault(name, set()).add(pathlib.Path(file).name)
    never = {
        "getenv",
        "secure_getenv",
        "getpwuid",
        "getuid",
        "geteuid",
        "gethostname",
        "uname",
        "setlocale",
        "time",
        "localtime",
        "gmtime",
        "strftime",
        "random",
        "rand",
        "scandir",
        "glob",
        "ftw",
        "nftw",
    }
    assert calls.pop("geteuid") == {"kernel_cache.o"}
    assert never & set(calls) == set()
    assert calls["dlopen"] == {"nvrtc.o"}  # of the library that belongs to the NVRTC in use
    assert calls["readdir"] == {"foreign_files.o", "model_folder.o", "read_text.o"}
