"""Every writer of both commands writes all, syncs the file, gives it its name, and syncs the folder; whatever fails of
that is an error that says so, with no file left and the old one as it was.

What a command does is written down by preload/record_files.c, which also makes single calls fail.
"""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
FIXTURE = HERE.parent / "fixtures" / "llama"
TOKENS = ["--tokens", "3,4,5,6"]
BENCH = ["--device", "cpu", "--tokens", "2", "--only", "tg2@0x1"]


@pytest.fixture(scope="session")
def recorder(tmp_path_factory):
    library = tmp_path_factory.mktemp("recorder") / "record_files.so"
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            library,
            HERE / "preload" / "record_files.c",
            "-ldl",
        ],
        check=True,
    )
    return library


class Inputs:
    """What the writers read, made when it is first asked for: plans, a key, a text."""

    def __init__(self, folder, atlasc, kernel_cache):
        compile_ = [atlasc, FIXTURE, "-q", "-o"]
        of_gpu = ["--target", "sm_90a", "--cache-dir", kernel_cache]
        self.folder = folder
        self.made_by = {
            "plan.bin": [*compile_, folder / "plan.bin", "--target", "none"],
            "gpu.bin": [*compile_, folder / "gpu.bin", *of_gpu],
            "timed.bin": [*compile_, folder / "timed.bin", *of_gpu, "--candidates", "2"],
            "key.pem": ["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem"],
        }
        (folder / "text").write_text("In the beginning was the Word, and the Word was with God.\n", encoding="utf-8")

    def __truediv__(self, name):
        if name in self.made_by and not (self.folder / name).exists():
            subprocess.run(self.made_by[name], check=True, capture_output=True)
        return self.folder / name


@pytest.fixture(scope="session")
def inputs(build_dir, kernel_cache, tmp_path_factory):
    return Inputs(tmp_path_factory.mktemp("inputs"), build_dir / "atlasc", kernel_cache)


# `atlasc calibrate` runs `atlas calibrate`, in an environment of its own, so that is what is looked at.
WRITERS = {
    "compile": lambda i, out: ["atlasc", FIXTURE, "--target", "none", "-q", "-o", out],
    "compile, signed": lambda i, out: ["atlasc", FIXTURE, "--target", "none", "-q", "--sign", i / "key.pem", "-o", out],
    "calibrate": lambda i, out: ["atlas", "calibrate", i / "plan.bin", "-f", i / "text", "-q", "-o", out],
    "sign": lambda i, out: ["atlas", "sign", i / "plan.bin", "--key", i / "key.pem", "-o", out],
    "audit": lambda i, out: ["atlas", "audit", i / "plan.bin", "--html", out],
    "rebuild": lambda i, out: ["atlas", "verify", i / "plan.bin", "--rebuild", "--checkpoint", FIXTURE, "-o", out],
    "dump": lambda i, out: ["atlas", "dump", i / "plan.bin", *TOKENS, "--device", "cpu", "-o", out],
    "bench, JSON": lambda i, out: ["atlas", "bench", i / "plan.bin", *BENCH, "--json", out],
    "bench, page": lambda i, out: ["atlas", "bench", i / "plan.bin", *BENCH, "--html", out],
    "receipt": lambda i, out: ["atlas", "receipt", i / "gpu.bin", "-o", out],
    "tune": lambda i, out: ["atlas", "tune", i / "timed.bin", "--only", "sample_best", "-o", out],
    "certify": lambda i, out: ["atlas", "verify", i / "certified.bin", "--certify", "-q"],
}


class Writer:
    def __init__(self, name, build_dir, inputs, recorder, folder):
        self.name, self.inputs, self.folder, self.out = name, inputs, folder, folder / "out"
        if name == "certify":  # beside the plan
            shutil.copy(inputs / "gpu.bin", folder / "certified.bin")
            self.inputs, self.out = folder, folder / "certified.bin.cert"
        words = WRITERS[name](self.inputs, self.out)
        self.words = [build_dir / words[0], *words[1:]]
        self.others = {p.name for p in folder.iterdir()}
        self.record = inputs / "record"
        self.env = os.environ | {
            "LD_PRELOAD": str(recorder),
            "RECORD_TO": str(self.record),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
        }
        if name in ("receipt", "tune", "certify"):  # of a GPU: the driver of the tests
            self.env |= {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
        self.n_ways, self.n_faults = 3, len(FAULTS)
        if name == "tune":  # which takes longer, and writes as others do
            self.env |= {"FAKE_CUDA_IDLE": "1"}
            self.n_ways, self.n_faults = 1, 1

    def run(self, fault=None):
        """(the finished process, the lines of the record)"""
        self.record.unlink(missing_ok=True)
        done = subprocess.run(
            self.words,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
            env=self.env | ({"RECORD_FAULT": fault} if fault else {}),
        )
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return done, [line.split(maxsplit=2) for line in lines]

    def left(self):
        """Names in the folder that were not there before."""
        return {p.name for p in self.folder.iterdir()} - self.others


@pytest.fixture(params=WRITERS)
def writer(request, build_dir, inputs, recorder, tmp_path):
    return Writer(request.param, build_dir, inputs, recorder, tmp_path)


def check_order(record, out):
    """Of each file that got a name: all of it was written, then synced, then named, then its folder was synced."""
    info = out.stat()
    names = [(i, line[1], pathlib.Path(line[2])) for i, line in enumerate(record) if line[0] == "name"]
    for at, inode, path in names:
        events = [(i, line) for i, line in enumerate(record) if line[0] in ("write", "fsync") and line[1] == inode]
        assert [line[0] for i, line in events if i < at][-1:] == ["fsync"], f"{path} has its name before it is synced"
        assert not any(i > at and line[0] == "write" for i, line in events), f"{path} is written when it has its name"
    last = names[-1]
    assert (last[1], last[2]) == (str(info.st_ino), out)
    ends = [int(line[2]) for line in record if line[0] == "write" and line[1] == last[1]]
    assert max(ends) == info.st_size, "written by other calls than those that are recorded"
    synced = [line for line in record[last[0] + 1 :] if line[0] == "fsync-folder"]
    assert synced == [["fsync-folder", str(out.parent.stat().st_ino)]]


def n_calls(record, call):
    return sum(line[0] == call for line in record)


def test_order(writer):
    """A new file, one that replaces another, and the same where files without a name do not exist."""
    sizes = set()
    for fault in (None, f"tmpfile:0:{errno.EOPNOTSUPP}", "short")[: writer.n_ways]:
        for old in False, True:
            if not old:
                writer.out.unlink(missing_ok=True)
            done, record = writer.run(fault)
            assert done.returncode == 0, done.stderr
            assert writer.left() == {writer.out.name}
            if fault and fault != "short":
                assert ["fault", "tmpfile"] in record
            check_order(record, writer.out)
            sizes.add(writer.out.stat().st_size)
    assert len(sizes) == 1 or writer.name.startswith(("bench", "tune")), sizes  # times have as many digits as they have


FAULTS = [
    ("fsync:0", errno.EIO),
    ("write:1", errno.ENOSPC),
    ("write:LAST", errno.EIO),
    ("fsync:0", errno.ENOSPC),
    ("linkat:0", errno.ENOSPC),
    ("rename:0", errno.EACCES),
]


def test_faults(writer):
    """Of each call that the writer makes: an error that names the file and the cause, and nothing is left."""
    done, record = writer.run()
    assert done.returncode == 0
    n_writes, before = n_calls(record, "write"), writer.out.read_bytes()
    writer.out.unlink()
    for fault, number in FAULTS[: writer.n_faults]:
        old = fault.startswith("rename") or fault == "write:1"
        if old:
            writer.out.write_bytes(before)
        if fault == "write:LAST" and writer.name == "rebuild":  # of two programs
            continue
        done, record = writer.run(f"{fault.replace('LAST', str(n_writes))}:{number}")
        assert ["fault", fault.split(":")[0]] in record, f"{fault}: {record}"
        assert done.returncode == 5, f"{fault}: {done.stdout}{done.stderr}"
        path = "MODEL.toml" if "MODEL.toml: cannot" in done.stderr and writer.name == "rebuild" else str(writer.out)
        says = f"cannot be written: {os.strerror(number)}"
        assert f"{path}: " in done.stderr and says in done.stderr, f"{fault}: {done.stderr}"
        assert writer.left() == ({writer.out.name} if old else set()), fault
        if old:
            assert writer.out.read_bytes() == before
            writer.out.unlink()


def test_folder_that_cannot_be_synced(writer):
    """The file is there and has its name: that is no reason to lose it."""
    done, record = writer.run(f"fsync-folder:0:{errno.EINVAL}")
    assert ["fault", "fsync-folder"] in record
    assert done.returncode == 0 and writer.left() == {writer.out.name} and writer.out.stat().st_size > 3


def test_kernel_cache(build_dir, inputs, recorder, kernel_cache, tmp_path):
    """An entry has its name when it is whole, and only its owner may write it; one that cannot be written is no entry,
    and no reason to fail. A loss of power may lose it: it is not synced."""
    cache, record = tmp_path / "cache", tmp_path / "record"
    env = os.environ | {
        "LD_PRELOAD": str(recorder),
        "RECORD_TO": str(record),
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
    }
    cache.mkdir()

    def compile_(fault=None, folder=cache):
        record.unlink(missing_ok=True)
        done = subprocess.run(
            [
                build_dir / "atlasc",
                FIXTURE,
                "--target",
                "sm_90a",
                "-q",
                "-o",
                tmp_path / "plan.bin",
                "--cache-dir",
                folder,
            ],
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
            umask=0,
            env=env | ({"RECORD_FAULT": fault} if fault else {}),
        )
        return done, [line.split(maxsplit=2) for line in record.read_text().splitlines()]

    _, seen = compile_(folder=kernel_cache)
    used = {
        pathlib.Path(line[1]) for line in seen if line[0] == "read" and pathlib.Path(line[1]).parent == kernel_cache
    }
    assert len(used) > 5
    for path in used:
        shutil.copy(path, cache)
    entry = cache / min(path.name for path in used if path.suffix == ".kernel")
    whole = entry.read_bytes()
    for fault, number in ("write:1", errno.ENOSPC), ("write:3", errno.ENOSPC), ("linkat:1", errno.EIO), (None, 0):
        entry.unlink()
        done, lines = compile_(f"{fault}:{number}" if fault else None)
        assert done.returncode == 0, done.stderr
        named = [i for i, line in enumerate(lines) if line[0] == "name" and line[2] == str(entry)]
        if fault:
            assert ["fault", fault.split(":")[0]] in lines and os.strerror(number) in done.stderr
            assert not named and sorted(p.name for p in cache.iterdir()) == sorted(
                p.name for p in used if p.name != entry.name
            )
            entry.touch()
            continue
        inode = str(entry.stat().st_ino)
        assert entry.read_bytes() == whole and stat.S_IMODE(entry.stat().st_mode) == 0o644
        assert len(named) == 1 and max(int(x[2]) for x in lines[: named[0]] if x[:2] == ["write", inode]) == len(whole)
        assert not any(x[:2] == ["write", inode] for x in lines[named[0] :]) and ["fsync", inode] not in lines


def test_nothing_else_writes_files(repo):
    """Of the sources of both commands, one makes files and gives them names; so the writers above are all there are."""
    makes = re.compile(
        r"O_CREAT|O_TMPFILE|\b(?:creat|mkstemp|mkostemp|rename|renameat|link|linkat)\s*\(|"
        r"\bfopen\s*\([^;]*,\s*\"[wa]|\bfreopen\s*\("
    )
    sources = [
        p
        for room in ("artifacts", "compiler", "models", "runtime")
        for p in (repo / room).rglob("*.c")
        if "kernelgen" not in p.parts
    ]  # a tool of the build
    found = [str(p.relative_to(repo)) for p in sources if makes.search(p.read_text(encoding="utf-8"))]
    assert found == ["artifacts/new_file.c"] and len(sources) > 100
