"""Same inputs, same bytes: wherever, by whomever and however often a plan is compiled."""

import hashlib
import os
import shutil

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
        "another folder": dict(args=[elsewhere, "--cache-dir", kernel_cache]),
        "from inside": dict(args=[".", "--cache-dir", kernel_cache], cwd=elsewhere),
        "another user's surroundings": dict(
            args=[FIXTURE, "--cache-dir", kernel_cache],
            env={"HOME": "/nonexistent", "LANG": "tr_TR.UTF-8", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "TMPDIR": "/",
                 "CUDA_VISIBLE_DEVICES": "7", "NVRTC_DUMP": "1"}),
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
    rules = ('[[kernels.pin]]\ntemplate = "stream_norm"\nphase = "decode"\ntunables = { TILES = 2 }\n'
             '[[kernels.ban]]\ntemplate = "stream_swiglu"\ntunables = { COLS = 128 }\n')
    digests = set()
    for name in ("MODEL.toml", "another folder/fast.toml"):
        options = tmp_path / name
        options.parent.mkdir(exist_ok=True)
        options.write_text((repo / FIXTURE / "MODEL.toml").read_text() + rules)
        plan = tmp_path / "plan.bin"
        done = atlasc(FIXTURE, "--model", options, "-o", plan, "--cache-dir", kernel_cache)
        assert done.returncode == 0, done.stderr
        assert b"by the pin at MODEL.toml:" in plan.read_bytes()
        assert str(tmp_path).encode() not in plan.read_bytes()
        digests.add(digest(plan))
    assert len(digests) == 1


def test_no_trace_of_this_machine(atlasc, kernel_cache, repo, tmp_path):
    plan = tmp_path / "plan.bin"
    assert atlasc(repo / FIXTURE, "-o", plan, "--cache-dir", kernel_cache).returncode == 0
    data = plan.read_bytes()
    for word in (os.uname().nodename, str(repo), str(tmp_path), os.path.expanduser("~") + "/"):
        assert word.encode() not in data, word
