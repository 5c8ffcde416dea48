"""Bytes of answers and streams: what clients parse must not change unseen."""

from __future__ import annotations

import json
import re

PROMPT = "In the beginning"
GREEDY = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0}
HEAD = (
    'data: {"id":"cmpl-ID","object":"text_completion","created":TIME,"model":"tiny","system_fingerprint":"ROOT",'
    '"choices":['
)
USAGE = (
    '{"prompt_tokens":4,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0},'
    '"completion_tokens_details":{"reasoning_tokens":0}}'
)


def plain(body: bytes) -> str:
    """The text without what differs from run to run and from plan to plan."""
    text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9a-f]{24}"', r'"id":"\1-ID"', body.decode())
    text = re.sub(r'"created":\d{10}', '"created":TIME', text)
    return re.sub(r'"system_fingerprint":"[0-9a-f]{12}"', '"system_fingerprint":"ROOT"', text)


def choice(text, finish="null"):
    return f'{{"index":0,"text":{json.dumps(text)},"logprobs":null,"finish_reason":{finish}}}'


def test_stream_of_completions(served):
    assert plain(served.stream("/v1/completions", GREEDY)) == "".join(
        [
            HEAD + choice(" of") + "]}\n\n",
            HEAD + choice(" the") + "]}\n\n",
            HEAD + choice(" month") + "]}\n\n",
            HEAD + choice("", '"length"') + "]}\n\n",
            "data: [DONE]\n\n",
        ]
    )


def test_stream_with_usage(served):
    asked = GREEDY | {"max_tokens": 1, "stream_options": {"include_usage": True}}
    assert plain(served.stream("/v1/completions", asked)) == "".join(
        [
            HEAD + choice(" of") + '],"usage":null}\n\n',
            HEAD + choice("", '"length"') + '],"usage":null}\n\n',
            HEAD + '],"usage":' + USAGE % (1, 5) + "}\n\n",
            "data: [DONE]\n\n",
        ]
    )
    asked["stream_options"]["continuous_usage_stats"] = True
    assert plain(served.stream("/v1/completions", asked)) == "".join(
        [
            HEAD + choice(" of") + '],"usage":' + USAGE % (1, 5) + "}\n\n",
            HEAD + choice("", '"length"') + '],"usage":' + USAGE % (1, 5) + "}\n\n",
            HEAD + '],"usage":' + USAGE % (1, 5) + "}\n\n",
            "data: [DONE]\n\n",
        ]
    )


def numbers(text):
    """With N in place of log probabilities, which are negative."""
    return re.sub(r"-\d+(\.\d+)?(e-\d+)?", "N", text)


def test_stream_with_logprobs(served):
    """Of two tokens, one chunk each; the chunk that ends the answer has none."""
    asked = GREEDY | {"max_tokens": 2, "logprobs": 2}
    got = numbers(plain(served.stream("/v1/completions", asked)))
    top = r'\{(" of":N,"[^"]*":N|" the":N,"[^"]*":N)\}'
    one = '{"index":0,"text":"%s","logprobs":{"tokens":["%s"],"token_logprobs":[N],"top_logprobs":[TOP],"text_offset":[%d]},'
    assert re.sub(top, "TOP", got) == "".join(
        [
            HEAD + one % (" of", " of", 0) + '"finish_reason":null}]}\n\n',
            HEAD + one % (" the", " the", 3) + '"finish_reason":null}]}\n\n',
            HEAD + choice("", '"length"') + "]}\n\n",
            "data: [DONE]\n\n",
        ]
    )


def test_whole_answer(served):
    status, headers, body = served.ask("POST", "/v1/completions", json.dumps(GREEDY).encode())
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert (
        plain(body)
        == HEAD.removeprefix("data: ") + choice(" of the month", '"length"') + '],"usage":' + USAGE % (3, 7) + "}"
    )


def test_headers_of_a_stream(served):
    body = json.dumps(GREEDY | {"stream": True}).encode()
    got = served.exchange(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-request-id: my-id.7\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    head = re.sub(rb"Date: [^\r]*", b"Date: X", got.split(b"\r\n\r\n")[0])
    assert head == (
        b"HTTP/1.1 200 OK\r\nDate: X\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\nx-request-id: my-id.7\r\n"
        b"Transfer-Encoding: chunked"
    )
    assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_error(served):
    status, headers, body = served.ask("POST", "/v1/completions", b'{"prompt": 7}')
    assert (status, headers["Content-Type"], body) == (
        400,
        "application/json",
        b'{"error":{"message":"prompt is a whole number: expected a string, token ids, or a list of either",'
        b'"type":"invalid_request_error","param":"prompt","code":null}}',
    )


def test_a_model_object_satisfies_both_clients(served):
    [one, _] = served.get("/v1/models")[1]["data"]
    assert list(one) == [
        "id",
        "object",
        "created",
        "owned_by",
        "type",
        "display_name",
        "created_at",
        "lifecycle",
        "max_model_len",
    ]
    assert one["object"] == "model" and one["type"] == "model" and one["lifecycle"] == "active"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["created_at"])


def test_tokenize(served):
    status, got = served.post("/tokenize", {"model": "tiny", "prompt": PROMPT})
    assert status == 200 and got == {"count": 4, "max_model_len": 512, "tokens": got["tokens"], "token_strs": None}
    assert served.post("/detokenize", {"tokens": got["tokens"]}) == (200, {"prompt": PROMPT})
    assert (
        served.post("/tokenize", {"prompt": ""})[1]["tokens"]
        == served.post("/tokenize", {"prompt": PROMPT})[1]["tokens"][:0]
    )
    assert served.post("/tokenize", {"prompt": "word " * 2000})[1]["count"] > 512
    assert served.post("/detokenize", {"tokens": []}) == (200, {"prompt": ""})


def test_plan(served, atlas, trained):
    info = json.loads(atlas("info", trained, "--json").stdout)
    plan = served.get("/v1/plan")[1]
    for name in ("root", "family", "slots", "max_context", "page", "pages", "prompt_grid", "verify_rows", "vocab"):
        assert plan[name] == info[name], name
    assert (plan["drafter"], plan["ladder"], plan["mixed"]) == (None, [], True)
    assert plan["system_fingerprint"] == info["root"][:12] and plan["signers"] == [] and plan["certificate"] is None
    assert plan["receipt_sha256"] is None and plan["target"] == "" and plan["buckets"] == {"prefill": [], "decode": []}


def test_page_and_probes(served):
    status, headers, body = served.ask("GET", "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"/v1/completions" in body
    status, headers, empty = served.ask("HEAD", "/")
    assert (status, empty, headers["Content-Length"]) == (200, b"", str(len(body)))
    assert served.get("/health") == (200, {"status": "ok"}) and served.get("/ready") == (200, {"status": "ready"})


def test_metrics_are_prometheus_text(served):
    served.post("/v1/completions", GREEDY | {"never_heard_of": 1, 'strange " name\n': 2})
    status, headers, body = served.ask("GET", "/metrics")
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    kinds, seen = {}, {}
    for line in body.decode().splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = re.fullmatch(r'(\w+)(\{(?:\w+="[^"\\]*",?)+\})? (\S+)', line).groups()
            seen[name + (labels or "")] = float(value)
            assert re.sub("_(bucket|sum|count)$", "", name) in kinds or name in kinds
    assert seen['atlas_unknown_field_total{name="never_heard_of"}'] == 1
    assert seen['atlas_unknown_field_total{name="(others)"}'] == 1
    assert seen["atlas_time_to_first_token_seconds_count"] >= 1 and seen["atlas_requests_running"] == 0
    assert seen['atlas_step_seconds_count{phase="decode",bucket="2"}'] >= 2
    steps = sum(v for k, v in seen.items() if k.startswith("atlas_step_seconds_count"))
    assert seen['atlas_step_host_seconds_count{thread="engine"}'] == steps
    assert seen['atlas_step_host_seconds_count{thread="loop"}'] == steps
    for name, kind in kinds.items():
        if kind == "histogram":
            for labels in {re.sub(r'le="[^"]*"', "", k) for k in seen if k.startswith(f"{name}_bucket")}:
                pattern = re.escape(labels).replace(r"\{", r"\{").replace(r"\}", r'le="([^"]*)"\}')
                rows = [(float(m[1]), v) for k, v in seen.items() if (m := re.fullmatch(pattern, k))]
                assert [v for _, v in sorted(rows)] == sorted(v for _, v in rows) and max(rows)[0] == float("inf")


def test_names_of_metrics(served):
    """What dashboards ask for, from the first answer on; histograms have the names that vLLM's have."""
    served.post("/v1/completions", GREEDY)
    _, _, body = served.ask("GET", "/metrics")
    kinds = dict(re.findall(r"^# TYPE atlas_(\w+) (\w+)$", body.decode(), re.M))
    histograms = (
        "time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds request_queue_seconds "
        "step_seconds step_host_seconds"
    )
    counters = (
        "prompt_tokens_total generation_tokens_total request_success_total cancelled_total shed_total "
        "unknown_field_total drafts_total accepted_total preemptions_total "
        "prefix_cache_queries_total prefix_cache_hits_total prefix_cache_evicted_total http_requests_total"
    )
    gauges = (
        "plan_info requests_running requests_waiting requests_aside slots_total slots_used kv_pages_total kv_pages_used "
        "prefix_cache_pages prefix_cache_snapshots step_expected_seconds"
    )
    for kind, names in (("histogram", histograms), ("counter", counters), ("gauge", gauges)):
        assert {n: kinds.get(n) for n in names.split()} == dict.fromkeys(names.split(), kind)
    assert served.metric('request_success_total{finished_reason="length"}') >= 1


def test_a_refused_stream_is_a_plain_answer(served):
    for more, status in (({"prompt": [1] * 600}, 400), ({"model": "other"}, 404), ({"n": 3}, 400)):
        asked = json.dumps(GREEDY | {"stream": True} | more).encode()
        seen, headers, body = served.ask("POST", "/v1/completions", asked)
        assert (seen, headers["Content-Type"]) == (status, "application/json") and json.loads(body)["error"]["message"]


def test_every_piece_of_a_stream_is_utf_8(served):
    """Of tokens at random, many of which are parts of code points: these come whole, and the pieces are the answer."""
    for seed in range(6):
        asked = {"prompt": PROMPT, "max_tokens": 120, "temperature": 20, "seed": seed, "ignore_eos": True}
        text = served.post("/v1/completions", asked)[1]["choices"][0]["text"]
        events = served.stream("/v1/completions", asked).split(b"\n\n")
        pieces = [json.loads(e[6:].decode())["choices"][0]["text"] for e in events if e.startswith(b"data: {")]
        assert "".join(pieces) == text and any(ord(c) > 127 for c in text)
