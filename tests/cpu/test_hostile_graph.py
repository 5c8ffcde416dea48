"""Plans whose graph lies: the reference device refuses or runs them, but never crashes.

A sound plan is taken apart; a few values of its graph section (numbers, names, enums, operands, shapes) are
replaced by others that occur in it or by extremes; the file is sealed again, so that no hash gives it away. Run
with `--build-dir build-asan` for the sharpest eye.
"""

from __future__ import annotations

import random

import msgpack
import pytest
from plan_file import put_together, take_apart

ROUNDS = 12
PER_ROUND = 10
EXTREMES = [-2, -1, 0, 1, 2, 3, 7, 64, 65535, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 62)]
EXIT_CODES = {0, 4, 5, 6, 7, 9}  # done, or one of the refusals; a signal is negative


def places(value, path=()):
    """Paths of all numbers and strings."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from places(v, (*path, k))
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from places(v, (*path, i))
    elif isinstance(value, (int, float, str)):
        yield path


def reach(value, path):
    for k in path:
        value = value[k]
    return value


def repack(graph):
    """As the writer packs: floats are single, everything minimal and in order."""
    return msgpack.packb(graph, use_single_float=True)


@pytest.fixture(scope="module", params=["qwen3", "qwen3_5"])  # the second drafts and verifies
def sections(small_plan_of, request):
    data = small_plan_of(request.param, "--target", "none").read_bytes()
    return data[:12], take_apart(data)


def test_the_knife_is_sharp(atlas, sections, tmp_path):
    """Taken apart and put together without a change, the plan runs."""
    magic, parts = sections
    graph = msgpack.unpackb(parts["graph"])
    assert repack(graph) == parts["graph"]
    (tmp_path / "plan").write_bytes(put_together(magic, parts))
    run = atlas("run", tmp_path / "plan", "--tokens", "1,2,3", "-n", 3, "--device", "cpu", "-q")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_lies(atlas, sections, tmp_path, seed):
    magic, parts = sections
    pick = random.Random(seed)
    codes = []
    for _ in range(PER_ROUND):
        graph = msgpack.unpackb(parts["graph"])
        # one place in a field chosen first, so that short fields are hit as often as the long lists
        group = pick.choice(["ops", "ops", "tensors", "tensors", "weights", None])
        spots = list(
            places(graph[group], (group,))
            if group
            else places({k: v for k, v in graph.items() if not isinstance(v, list)})
        )
        told = []
        for path in pick.sample(spots, pick.choice([1, 1, 2, 5])):
            old = reach(graph, path)
            same_key = [reach(graph, p) for p in spots if p[-1] == path[-1] or isinstance(path[-1], int)]
            choices = [v for v in same_key if isinstance(v, type(old)) and v != old]
            if isinstance(old, int):
                choices = choices * 3 + EXTREMES
            if not choices:
                continue
            reach(graph, path[:-1])[path[-1]] = new = pick.choice(choices)
            told.append((path, old, new))
        (tmp_path / "plan").write_bytes(put_together(magic, {**parts, "graph": repack(graph)}))
        run = atlas("run", tmp_path / "plan", "--tokens", "1,2,3,4,5", "-n", 3, "--device", "cpu", "-q", "--threads", 1)
        assert run.returncode in EXIT_CODES, f"{told}: exit {run.returncode}\n{run.stderr[-3000:]}"
        assert run.returncode == 0 or run.stderr.startswith(("atlas run: error[", "atlas run: error: ")), told
        codes.append(run.returncode)
    assert set(codes) - {0}, "nothing was noticed"
