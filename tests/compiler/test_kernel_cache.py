"""What a kernel cache can do to a plan: nothing where the plan is signed or verified, and nothing where others can write it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from plan_file import take_apart

HEAD, HASH = 8 + 32 + 8, 32


@pytest.fixture(scope="module")
def clean(atlasc, repo, tmp_path_factory):
    """A folder with llama/, a checkpoint of few kernels, its plan.bin, made without a cache, and cache/ with all of its
    kernels."""
    folder = tmp_path_factory.mktemp("clean")
    shutil.copytree(repo / "tests" / "fixtures" / "llama", folder / "llama")
    (folder / "llama" / "MODEL.toml").write_text("[runtime]\nslots = 1\n[phases]\nprefill = [16]\ndecode = [1]\n")
    assert atlasc(folder / "llama", "-o", folder / "plan.bin", "-q").returncode == 0
    done = atlasc(folder / "llama", "-o", folder / "cached.bin", "-q", "--cache-dir", folder / "cache")
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "cached.bin").read_bytes() == (folder / "plan.bin").read_bytes()
    return folder


@pytest.fixture
def cache(clean, tmp_path):
    return shutil.copytree(clean / "cache", tmp_path / "cache")


def poison(cache):
    """Flips a byte before the last run of zeros of each cubin, and makes its hash right again."""
    for entry in cache.glob("*.kernel"):
        data = bytearray(entry.read_bytes())
        body = data[HEAD:-HASH]
        body[body.rindex(b"\0" * 16) + 3] ^= 0xFF
        data[HEAD:-HASH] = body
        data[-HASH:] = hashlib.sha256(data[:-HASH]).digest()
        entry.write_bytes(data)


def test_poison_reaches_no_signed_plan_and_is_found(atlasc, atlas, clean, cache, tmp_path):
    poison(cache)
    key, plan, signed = tmp_path / "key.pem", tmp_path / "plan.bin", tmp_path / "signed.bin"
    key.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    done = atlasc(clean / "llama", "-o", plan, "-q", "--cache-dir", cache)
    assert done.returncode == 0, done.stderr
    assert plan.read_bytes() != (clean / "plan.bin").read_bytes(), "the poison does nothing: the test sees nothing"
    run = atlas("verify", plan, "--rebuild", "--checkpoint", clean / "llama")
    assert run.returncode == 1 and run.stdout.endswith("the rebuilt plan differs\n"), run.stdout + run.stderr
    done = atlasc(clean / "llama", "-o", signed, "-q", "--cache-dir", cache, "--sign", key)
    assert done.returncode == 0
    assert done.stderr == (f"{cache}: note[A0916]: a signed plan uses no cached kernel: all are compiled\n")
    assert take_apart(signed.read_bytes()) == take_apart((clean / "plan.bin").read_bytes())
    run = atlas("verify", signed, "--rebuild", "--checkpoint", clean / "llama")
    assert run.returncode == 0 and run.stdout.endswith("the rebuilt plan is equal\n"), run.stdout + run.stderr
    done = atlasc(
        clean / "llama", "-o", plan, "-q", "--cache-dir", cache
    )  # its kernels are kept, over the poisoned ones
    assert done.returncode == 0 and plan.read_bytes() == (clean / "plan.bin").read_bytes()


def test_rebuild_has_no_cache(atlas, clean):
    run = atlas(
        "verify", clean / "plan.bin", "--rebuild", "--checkpoint", clean / "llama", "--cache-dir", clean / "cache"
    )
    assert run.returncode == 2 and "--cache-dir" in run.stderr


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_folder_that_others_can_write(atlasc, clean, cache, tmp_path, mode):
    poison(cache)
    cache.chmod(mode)
    done = atlasc(clean / "llama", "-o", tmp_path / "plan.bin", "-q", "--cache-dir", cache)
    assert (done.returncode, done.stderr) == (
        0,
        f"{cache}: note[A0913]: compiled kernels are not kept: others can write there (mode {mode:04o}): chmod go-w\n",
    )
    assert (tmp_path / "plan.bin").read_bytes() == (clean / "plan.bin").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
@pytest.mark.parametrize("what", ["folder", "entries"])
def test_of_another_owner(atlasc, clean, cache, tmp_path, what):
    poison(cache)
    for path in [cache] if what == "folder" else cache.iterdir():
        os.chown(path, 1234, 1234)
    done = atlasc(clean / "llama", "-o", tmp_path / "plan.bin", "-q", "--cache-dir", cache)
    said = f"{cache}: note[A0913]: compiled kernels are not kept: user 1234 owns it, not user 0, who compiles\n"
    assert (done.returncode, done.stderr) == (0, said if what == "folder" else "")
    assert (tmp_path / "plan.bin").read_bytes() == (clean / "plan.bin").read_bytes()


@pytest.mark.parametrize("kind", ["FIFO", "folder", "symbolic link", "device", "huge", "writable"])
def test_entry_that_is_no_file(atlasc, clean, cache, tmp_path, kind):
    poison(cache)
    entry = sorted(cache.iterdir())[0]
    kept = tmp_path / "kept"
    entry.rename(kept)
    if kind == "FIFO":
        os.mkfifo(entry)
    elif kind == "folder":
        entry.mkdir()
    elif kind == "symbolic link":
        entry.symlink_to(kept)
    elif kind == "device":
        try:
            os.mknod(entry, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero never ends
        except PermissionError:
            pytest.skip("makes no device here")
    elif kind == "huge":
        entry.touch()
        os.truncate(entry, 1 << 40)
    else:
        shutil.copy(kept, entry)
        entry.chmod(0o666)
    for other in cache.iterdir():
        if other != entry:
            shutil.copy(clean / "cache" / other.name, other)
    done = subprocess.run(
        [atlasc, clean / "llama", "-o", tmp_path / "plan.bin", "-q", "--cache-dir", cache],
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.bin").read_bytes() == (clean / "plan.bin").read_bytes()
    if kind in ("huge", "writable"):  # a whole entry of our own is in its place
        assert done.stderr == "" and entry.read_bytes() == (clean / "cache" / entry.name).read_bytes()
        assert entry.stat().st_mode & 0o022 == 0
    else:
        assert done.stderr.startswith(f"{cache}: note[A0913]: kernel ")
        assert done.stderr.endswith(f" is not kept: not a regular file but a {kind}\n")


def test_group_umask(atlasc, clean, tmp_path):
    """Where umask lets the group write, folder and entries are still the user's alone."""
    cache = tmp_path / "a" / "cache"
    for _ in range(2):
        done = subprocess.run(
            [atlasc, clean / "llama", "-o", tmp_path / "plan.bin", "-q", "--cache-dir", cache],
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
            umask=0o002,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert {f.stat().st_mode & 0o022 for f in [cache, *cache.iterdir()]} == {0}
    assert {f.name for f in cache.iterdir()} == {f.name for f in (clean / "cache").iterdir()}
