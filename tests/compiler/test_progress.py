"""How far a compile is: lines in a pipe, a bar as wide as the terminal, nothing with -q."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest

MODEL = "tests/fixtures/qwen3_5_moe"
STATE = r"(\d+) of (\d+)(?:, about \d+ s left)?"


@pytest.fixture
def start(atlasc, repo, tmp_path):
    """Starts a compile of many kernels, one at a time, without a cache."""
    running = []

    def run(stderr, *words):
        process = subprocess.Popen(
            [atlasc, MODEL, "-j1", "--target", "sm_80,sm_89,sm_90a", "-o", tmp_path / "p.bin", *words],
            cwd=repo,
            stderr=stderr,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(30)


def test_a_pipe_gets_lines(start):
    process = start(subprocess.PIPE)
    lines, begin = [], time.monotonic()
    for raw in process.stderr:
        line = raw.decode()
        if re.fullmatch(rf"atlasc: kernels {STATE}\n", line):
            lines.append((time.monotonic() - begin, *map(int, re.search(STATE, line).groups())))
        if len(lines) == 2:
            break
    (first, done, of), (second, more, same) = lines
    assert 0 < done < more < of == same
    assert first >= 4.5 and 4.5 <= second - first < 30  # every few seconds, whatever the machine has to do beside


def test_quiet_is_quiet(start):
    process = start(subprocess.PIPE, "-q")
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == b""


def frames(master, process, is_enough):
    """What is drawn between carriage returns, until that is enough."""
    seen, end = b"", time.monotonic() + 120
    os.set_blocking(master, False)
    while True:
        try:
            seen += os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.02)
        drawn = [f for f in seen.decode().split("\r") if f.strip()]
        if is_enough(drawn):
            return drawn
        assert time.monotonic() < end and process.poll() is None, drawn


def resize(master, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def test_a_bar_is_as_wide_as_the_terminal(start):
    master, slave = pty.openpty()
    resize(master, 100)
    process = start(slave)
    wide = frames(master, process, lambda drawn: any(" s left" in f for f in drawn))
    resize(master, 61)
    narrow = frames(master, process, lambda drawn: len(drawn) > 2)
    resize(master, 30)
    tiny = frames(master, process, lambda drawn: len(drawn) > 2)
    os.close(slave)
    os.close(master)
    assert "\x1b" not in "".join(wide + narrow + tiny)
    for drawn, width in ((wide, 99), (narrow[1:], 60)):
        assert drawn and all(re.fullmatch(rf"kernels \[#* *\] {STATE}", f) and len(f) == width for f in drawn), drawn
    assert tiny[1:] and all(len(f) == 29 and re.match(STATE, f) for f in tiny[1:]), tiny


@pytest.mark.long
def test_a_terminal_without_a_width_gets_lines(start):
    master, slave = pty.openpty()
    resize(master, 0)
    process = start(slave)
    drawn = frames(master, process, lambda drawn: "\n" in "".join(drawn))
    os.close(slave)
    os.close(master)
    lines = "".join(drawn).splitlines()
    assert lines and all(re.fullmatch(rf"atlasc: kernels {STATE}", line) for line in lines if line), lines
