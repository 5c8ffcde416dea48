"""`atlas serve --device cuda` on the fake driver: which compiled steps /metrics counts, and what a fault ends with."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import time

import jsonschema
import pytest
from server import read_answer
from test_serve_life import request

BUCKETS = "[runtime]\nslots = 4\nmax_context = 512\n[phases]\nprefill = [64, 128, 256]\ndecode = [1, 2, 4]\n"


@pytest.fixture(scope="module")
def buckets(plan_of, tmp_path_factory, repo):
    """llama-trained with three buckets of each phase."""
    toml = tmp_path_factory.mktemp("buckets") / "MODEL.toml"
    toml.write_text(BUCKETS)
    return plan_of("llama-trained", "--model", toml, "--target", "sm_90a")


@pytest.fixture
def gpu(build_dir, start, tmp_path, monkeypatch):
    """gpu(plan, *options): a server on the fake driver, whose launches fail once the file `fault` is there."""

    def started(plan, *options):
        env = os.environ | {
            "LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"),
            "FAKE_CUDA_CC": "9.0",
            "FAKE_CUDA_FAULT": str(tmp_path / "fault"),
        }
        return start(plan, *options, env=env, device="cuda")

    return started


def ids(n):
    return [300 + i for i in range(n)]


def ask(server, n, answer):
    status, got = server.post(
        "/v1/completions", {"prompt": ids(n), "max_tokens": answer, "temperature": 0, "ignore_eos": True}
    )
    assert status == 200 and got["usage"]["completion_tokens"] == answer, got


def decodes(server):
    """Waits until the server has made more decode steps than so far."""
    before, until = server.steps().get(("decode", 1), 0), time.monotonic() + 20
    while server.steps().get(("decode", 1), 0) <= before:
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("mixed", ["off", "on", "default", "turns"])
def test_steps_are_counted_by_the_bucket_they_went_through(buckets, gpu, mixed):
    """A prompt of 400 that is alone takes 256 + 144 rows. Beside an answer, --max-gap 128 makes it 3 of 128 and one of
    16, or 6 of 64 and the answer's row and one of 16 and that: the smallest bucket that holds each. By default, which is
    the largest bucket of so small a model, one has 192 rows and the answer's, and one 208 and that; where they take turns
    by default, which such a model's 256 rows hardly make longer than 128 do, one has 256 and one 144."""
    how = {"default": [], "turns": ["--mixed", "off"]}.get(mixed, ["--max-gap", 128, "--mixed", mixed])
    server = gpu(buckets, *how, "--prefix-cache", "off")
    assert server.get("/v1/plan")[1]["buckets"] == {"prefill": [64, 128, 256], "decode": [1, 2, 4]}
    ask(server, 400, 5)
    assert server.steps() == {("prefill", 256): 2, ("decode", 1): 4}
    ask(server, 40, 2)
    assert server.steps() == {("prefill", 256): 2, ("prefill", 64): 1, ("decode", 1): 5}
    with server.raw(
        request({"prompt": ids(8), "max_tokens": 480, "temperature": 0, "ignore_eos": True, "stream": True})
    ) as stream:
        assert stream.recv(15).startswith(b"HTTP/1.1 200")
        decodes(server)
        assert server.steps()["prefill", 64] == 2
        ask(server, 400, 1)
        after = server.steps()
        assert after["prefill", 256] == (4 if mixed == "turns" else 2)
        if mixed == "turns":
            assert after["prefill", 64] == 2 and ("prefill", 128) not in after
        elif mixed == "default":
            assert after["mixed", 256] == 2 and ("mixed", 64) not in after and after["prefill", 64] == 2
        elif mixed == "on":
            assert after["mixed", 128] == 6 and after["mixed", 64] == 1 and after["prefill", 64] == 2
        else:
            assert after["prefill", 128] == 3 and after["prefill", 64] == 3
        assert read_answer(stream).endswith(b"0\r\n\r\n")
    expected = server.by_step("step_expected_seconds")
    assert set(server.steps()) <= set(expected) and all(seconds > 0 for seconds in expected.values())
    of_mixed = {rows: seconds for (phase, rows), seconds in expected.items() if phase == "mixed"}
    assert of_mixed == (
        {} if mixed in ("off", "turns") else {rows: expected["prefill", rows] for rows in (64, 128, 256)}
    )
    assert server.get("/v1/plan")[1]["mixed"] is (mixed in ("on", "default"))
    assert ("decode", 4) not in server.steps() and server.stop() == 0


@pytest.mark.parametrize(
    "more, mixed, line, why",
    [
        ("", True, "atlas serve may read prompts and answers in one", None),
        (
            '[speculate]\ndrafter = "ngram"\nrows = 2\n',
            False,
            "atlas serve, with --speculate off alone, may read prompts and answers in one",
            "a row that is mixed in has no drafts; speculate = off goes with it",
        ),
        (
            "grid = 128\n",
            False,
            None,
            "the largest prefill bucket has no row for an answer besides prompt_grid rows of a prompt",
        ),
    ],
    ids=["plain", "drafts", "no room"],
)
def test_info_says_whether_steps_are_mixed(plan_of, gpu, atlas, build_dir, tmp_path, more, mixed, line, why):
    """As the server does it: by default, not with drafts, and never where the largest bucket is a cell of the grid."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(f"[runtime]\nslots = 2\nmax_context = 256\n[phases]\nprefill = [128]\ndecode = [2]\n{more}")
    plan = plan_of("llama-trained", "--model", toml, "--target", "sm_90a")
    assert json.loads(atlas("info", plan, "--json").stdout)["mixed"] is mixed
    told = re.findall(r"^mixed steps +(.*);", atlas("info", plan).stdout, re.M)
    assert told == ([line] if line else [])
    server = gpu(plan)
    assert server.get("/v1/plan")[1]["mixed"] is mixed and server.stop() == 0
    if why:
        env = {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
        run = atlas("serve", plan, "--device", "cuda", "--port", 0, "--mixed", "on", env=os.environ | env, timeout=60)
        assert run.returncode == 4 and f"error[UNSUPPORTED]: mixed = on: {why}\n" in run.stderr


@pytest.mark.parametrize("n, bucket", [(1, 1), (2, 2), (3, 4)])
def test_decode_steps_are_counted_by_their_bucket(buckets, gpu, n, bucket):
    server = gpu(buckets)
    status, got = server.post(
        "/v1/completions", {"prompt": [ids(8)] * n, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    )
    assert status == 200 and len(got["choices"]) == n
    seen = server.steps()
    decode = {rows: count for (phase, rows), count in seen.items() if phase == "decode"}
    # an answer may begin a step before the next one does, whose prompt a mixed step then reads
    assert set(seen) - {("mixed", 64)} == {("prefill", 64)} | {("decode", rows) for rows in decode}
    assert max(decode) == bucket and 5 <= sum(decode.values()) + seen.get(("mixed", 64), 0) <= 5 * n


def test_a_device_that_fails(buckets, gpu, tmp_path):
    """A stream ends with an error event, a whole answer with 503, /health is 503, and the exit code is 9."""
    server = gpu(buckets)
    fields = {"prompt": ids(8), "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    stream, whole = server.raw(request(fields | {"stream": True})), server.raw(request(fields))
    assert stream.recv(15).startswith(b"HTTP/1.1 200")
    server.settles("requests_running", 2)
    (tmp_path / "fault").touch()
    got = read_answer(stream).rsplit(b"data: ", 1)[1]
    assert b'"type":"server_error"' in got and b"cuGraphLaunch" in got and b"[DONE]" not in got
    answer = read_answer(whole)
    assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer
    status, health = server.get("/health")
    assert status == 503 and health["reason"].startswith("DEVICE_FAULT: ")
    assert server.get("/ready")[0] == 503 and server.post("/v1/completions", fields)[0] == 503
    assert server.process.wait(20) == 9
    assert "cuGraphLaunch" in server.wait_line('"event":"failed"')


@pytest.fixture(scope="module")
def two_ranks(plan_of, tmp_path_factory):
    toml = tmp_path_factory.mktemp("ranks") / "MODEL.toml"
    toml.write_text(
        "[runtime]\nslots = 4\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [4]\n[kv]\npage = 16\n"
        "[cache]\nsnapshots = 4\n[parallel]\nranks = 2\n"
    )
    return plan_of("llama-trained", "--model", toml, "--target", "sm_90a")


def ranks_of(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_two_ranks_serve(two_ranks, gpu, start, monkeypatch):
    """Twenty texts, many at once, half of them with a structure, some that begin alike: as the reference device has them
    alone, or near. All processes end with the server."""
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    server, alone = gpu(two_ranks, "--devices", "0,1"), start(two_ranks)
    fields = [
        {"prompt": ids(160)[: 130 + i % 5], "max_tokens": 16, "temperature": 0, "ignore_eos": i % 2 == 0}
        | ({"guided_regex": "[a-z ]{4,12}"} if i % 2 else {})
        for i in range(20)
    ]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda f: server.post("/v1/completions", f), fields))
    want = [alone.post("/v1/completions", f) for f in fields]
    assert all(status == 200 for status, _ in got)
    same = [a["choices"][0]["text"] == b["choices"][0]["text"] for (_, a), (_, b) in zip(got, want)]
    assert sum(same) >= 18  # rows are bf16 on a GPU
    assert all(re.fullmatch("[a-z ]{4,12}", a["choices"][0]["text"]) for (_, a) in got[1::2])
    assert any(a["usage"]["prompt_tokens_details"]["cached_tokens"] for _, a in got)
    [rank] = ranks_of(server)
    assert server.stop() == 0 and not os.path.exists(f"/proc/{rank}")


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_rank_that_is_lost(two_ranks, gpu, monkeypatch, is_idle):
    """With and without an answer under way."""
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    server = gpu(two_ranks, "--devices", "0,1")
    ask(server, 8, 4)
    fields = {"prompt": ids(8), "max_tokens": 480, "temperature": 0, "ignore_eos": True, "stream": True}
    if not is_idle:
        assert server.raw(request(fields)).recv(15).startswith(b"HTTP/1.1 200")
    [rank] = ranks_of(server)
    began = time.monotonic()
    os.kill(rank, signal.SIGKILL)
    time.sleep(0.3)  # its end is seen within a tenth of a second; the server still answers why
    status, health = server.get("/health")
    assert status == 503 and health["status"] == "failed" and "rank 1 was lost" in health["reason"], health
    assert server.process.wait(10) == 10 and time.monotonic() - began < 5
    assert "rank 1" in "".join(server.lines) and not os.path.exists(f"/proc/{rank}")


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "maximum": 999, "minimum": 0},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def structured(server, seed, **fields):
    asked = {"prompt": ids(20), "max_tokens": 300, "temperature": 1, "seed": seed} | fields
    status, answer = server.post("/v1/completions", asked)
    assert status == 200, answer
    return answer["choices"][0]


@pytest.mark.parametrize("mixed", ["off", "on"])
def test_structures_beside_free_answers(buckets, gpu, mixed):
    """In the same steps, with penalties as well."""
    server = gpu(buckets, "--mixed", mixed)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        free = [pool.submit(structured, server, i, max_tokens=200, ignore_eos=True) for i in range(3)]
        held = [
            pool.submit(structured, server, i, guided_json=PERSON, presence_penalty=i % 2, frequency_penalty=i % 2 / 2)
            for i in range(8)
        ]
        for answer in held:
            choice = answer.result()
            assert choice["finish_reason"] == "stop"
            jsonschema.validate(json.loads(choice["text"]), PERSON)
        assert all(f.result()["finish_reason"] == "length" for f in free)
    long = structured(server, 1, guided_regex="[a-z ]{700}", max_tokens=480)  # its pages come as needed
    assert re.fullmatch("[a-z ]+", long["text"]) and len(long["text"]) > 300
    assert server.metric("slots_used") == 0 and server.stop() == 0


def test_structures_where_the_host_drafts(plan_of, gpu, tmp_path):
    toml = tmp_path / "MODEL.toml"
    toml.write_text(BUCKETS + '[speculate]\ndrafter = "ngram"\nrows = 3\n')
    server = gpu(plan_of("llama-trained", "--model", toml, "--target", "sm_90a"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        free = pool.submit(structured, server, 0, max_tokens=250, temperature=0, ignore_eos=True)
        held = [pool.submit(structured, server, i, guided_json=PERSON) for i in range(4)]
        for answer in held:
            jsonschema.validate(json.loads(answer.result()["text"]), PERSON)
        assert free.result()["finish_reason"] == "length"
    assert server.metric("drafts_total") > 0 and server.stop() == 0
