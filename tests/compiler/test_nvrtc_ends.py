"""NVRTC that crashes, is killed, exits or has no memory ends one kernel, not the compile."""

from __future__ import annotations

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import pytest

FIXTURE = "tests/fixtures/llama"
# Goes before libnvrtc: ends in some way at the kernels of one file, and does the rest by the real library.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_bad;
int nvrtcCreateProgram(void **program, const char *text, const char *name, int n, const char *const *headers,
    const char *const *names)
{
    is_bad = strcmp(name, BAD) == 0;
    return ((int (*)(void **, const char *, const char *, int, const char *const *, const char *const *))
        dlsym(RTLD_NEXT, "nvrtcCreateProgram"))(program, text, name, n, headers, names);
}
int nvrtcCompileProgram(void *program, int n, const char *const *options)
{
    if (is_bad) {
        HOW;
    }
    return ((int (*)(void *, int, const char *const *))dlsym(RTLD_NEXT, "nvrtcCompileProgram"))(program, n, options);
}
"""
ENDS = {
    "abort": (
        'fputs("terminate called after throwing std::bad_alloc\\n", stderr); abort()',
        "was ended by signal 6 (Aborted): terminate called after throwing std::bad_alloc",
    ),
    "crash": ("raise(SIGSEGV)", "was ended by signal 11 (Segmentation fault)"),
    "killed": ("raise(SIGKILL)", "was ended by signal 9 (Killed), as a system without memory does"),
    "exit": ("_exit(3)", "ended its process with exit code 3"),
}


def shim(tmp_path, bad, how):
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(
        ["cc", "-w", "-shared", "-fPIC", f'-DBAD="{bad}"', f"-DHOW={how}", "-o", library, source, "-ldl"], check=True
    )
    return library


def run(atlasc, *words, **how):
    return subprocess.run([atlasc, FIXTURE, *words], text=True, capture_output=True, timeout=120, check=False, **how)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("jobs", [1, 3])
def test_end_at_a_kernel(atlasc, tmp_path, how, jobs):
    code, says = ENDS[how]
    bad = "products/stream_norm.cu"
    done = run(
        atlasc,
        "-o",
        tmp_path / "plan.bin",
        "--json",
        "-q",
        "-j",
        str(jobs),
        env={**os.environ, "LD_PRELOAD": str(shim(tmp_path, bad, code))},
    )
    assert done.returncode == 5, done.stderr
    errors = [d for d in json.loads(done.stdout)["diagnostics"] if d["severity"] == "error"]
    assert errors and all(d["code"] == "A0915" and d["file"].endswith(bad) for d in errors), errors
    for d in errors:
        assert re.fullmatch(r"kernel stream_norm \[.*\] for sm_90a: NVRTC " + re.escape(says), d["message"]), d
    assert len({d["message"] for d in errors}) == len(errors)
    assert list(tmp_path.glob("plan.bin*")) == [] and list(tmp_path.glob("core*")) == []


def test_end_at_the_first_call(atlasc, tmp_path):
    done = run(
        atlasc,
        "-o",
        tmp_path / "plan.bin",
        "-q",
        env={**os.environ, "LD_PRELOAD": str(shim(tmp_path, "empty.cu", "abort()"))},
    )
    assert (done.returncode, done.stderr) == (
        5,
        "atlasc: error[A0910]: NVRTC does not work: it was ended by signal 6 (Aborted)\n",
    )


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_their_parent(atlasc, tmp_path, number):
    """In the middle of a kernel, which here never ends."""
    env = {**os.environ, "LD_PRELOAD": str(shim(tmp_path, "products/stream_norm.cu", "pause()"))}
    parent = subprocess.Popen(
        [atlasc, FIXTURE, "-o", tmp_path / "plan.bin", "-q", "-j", "2"],
        env=env,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    children, until = [], time.monotonic() + 60
    while len(children) < 2 and time.monotonic() < until:
        children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    time.sleep(0.5)
    parent.send_signal(number)
    assert parent.wait(timeout=10) == (-9 if number == signal.SIGKILL else 130)
    until = time.monotonic() + 10
    while any(map(is_alive, children)) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(children) == 2 and not any(map(is_alive, children))
    assert list(tmp_path.glob("plan.bin*")) == []


@pytest.mark.long
def test_no_memory(atlasc, tmp_path):
    """With less and less address space a compile works, then says what failed; it never ends in another way."""
    seen = set()
    for megabytes in range(260, 100, -20):
        limit = megabytes << 20
        done = run(
            atlasc,
            "-o",
            tmp_path / "plan.bin",
            "-q",
            "-j",
            "1",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        if "error while loading shared libraries" in done.stderr:
            break
        assert done.returncode in (0, 5), (megabytes, done.returncode, done.stderr)
        assert done.returncode == 0 or re.search(r"error\[A0(915|910|105)\]", done.stderr), (megabytes, done.stderr)
        seen |= set(re.findall(r"error\[(A\d+)\]", done.stderr))
    assert seen & {"A0915", "A0910"}, seen
