#!/usr/bin/env python3
"""Soak of `atlas serve`: all APIs, schemas, tools, prefixes, clients that leave and nonsense, all at once.

    tests/serve/soak.py PLAN --seconds 3600                        on the reference device
    tests/serve/soak.py PLAN --device cuda --seconds 120 --clients 64

A fixed set of requests, of which 1 in 20 asks for a schema and 1 in 20 brings tools. Each has an answer of its own: that of
a server without prefix cache and drafts, asked one at a time, not as a stream. Under load it must come back the same, in
streams too; on a GPU that is promised of plans with [numerics] invariant alone, in others the answers that differ are
counted. An answer of a schema is valid (jsonschema, an independent judge), arguments of a forced call fit the tool's
schema. At the end all is as it was: memory, descriptors, threads, pages, slots, and what /metrics counted is the sum of the
log's lines. Half of the requests have a cache_salt that no other has, so that prefixes come and go. A line a minute.

Needs Python's standard library, and jsonschema: where it is missing, schemas and answers are printed, to be judged elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

from server import Server

try:
    import jsonschema
except ImportError:
    jsonschema = None

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = "the king of Babylon came unto Jerusalem and besieged it in the third year".split()
NONSENSE = [
    b"GET /\x00 HTTP/1.1\r\n\r\n",
    b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{"promp',
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    b"\x16\x03\x01\x02\x00",
    b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"prompt": 7}',
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]",
    b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + b'{"input": [7]}'[:13],
    b"POST /tokenize HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]
# Of the form `hermes`, for checkpoints without a chat template.
TEMPLATE = """
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{%- if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SCHEMAS = [
    {
        "type": "object",
        "properties": {"king": {"enum": ["David", "Saul", "Ahab"]}, "years": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["king", "years"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "minItems": 1, "maxItems": 4},
    {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date"}, "who": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 6}]}},
        "required": ["at", "who"],
        "additionalProperties": False,
    },
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"n": {"type": "boolean"}, "of": {
        "type": "array", "items": {"type": "boolean"}, "maxItems": 3}}, "required": ["n"], "additionalProperties": False}}},
]  # fmt: skip
TOOLS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {"utc": {"type": "boolean"}}, "additionalProperties": False},
}


class Case:
    """A request: its path and body; the schema that its answer or the arguments of its call are held to."""

    def __init__(self, path, body, schema=None, forced=False):
        self.path, self.body, self.schema, self.forced = path, body, schema, forced
        self.said = None  # answer of the server that has nothing else to do


def prompt_fields(path, system, words):
    """The same conversation as each API spells it."""
    talk = [{"role": "user", "content": words}]
    if path == "/v1/completions":
        return {"prompt": f"{system} {words}"}
    if path == "/v1/messages":
        return {"system": system, "messages": talk}
    if path == "/v1/responses":
        return {"instructions": system, "input": words}
    return {"messages": [{"role": "system", "content": system}, *talk]}


def structure_fields(path, schema):
    wanted = {"type": "json_schema", "schema": schema}
    if path == "/v1/completions":
        return {"guided_json": schema}
    if path == "/v1/messages":
        return {"output_config": {"format": wanted}}
    if path == "/v1/responses":
        return {"text": {"format": wanted | {"name": "answer"}}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def tool_fields(path, choice):
    """choice: auto, any, or the name of a tool."""
    if path == "/v1/messages":
        tools = [{"name": n, "input_schema": s} for n, s in TOOLS.items()]
        return {
            "tools": tools,
            "tool_choice": {"type": choice} if choice in ("auto", "any") else {"type": "tool", "name": choice},
        }
    if path == "/v1/responses":
        tools = [{"type": "function", "name": n, "parameters": s} for n, s in TOOLS.items()]
        named = {"type": "function", "name": choice}
    else:
        tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in TOOLS.items()]
        named = {"type": "function", "function": {"name": choice}}
    return {"tools": tools, "tool_choice": {"auto": "auto", "any": "required"}.get(choice, named)}


def cases_of(has_chat, has_tools, args):
    """{kind: cases}: plain, schema, tools."""
    draw, answer = random.Random(3), args.answer
    systems = [" ".join(draw.choices(WORDS, k=args.words)) for _ in range(3)]
    paths = ["/v1/completions", *(["/v1/chat/completions", "/v1/messages", "/v1/responses"] if has_chat else [])]

    def case(path, fields, tokens, **more):
        seed = draw.randrange(1 << 30)
        words = " ".join(draw.choices(WORDS, k=draw.randrange(2, 40)))
        limit = {"/v1/responses": "max_output_tokens"}.get(path, "max_tokens")
        body = {"model": "tiny", limit: tokens, "temperature": draw.choice([0, 0.8]), "seed": seed}
        return Case(path, body | prompt_fields(path, draw.choice(systems), words) | fields, **more)

    kinds = {"plain": [case(path, {}, answer) for _ in range(args.plain) for path in paths]}
    kinds["schema"] = [case(p, structure_fields(p, s), 160, schema=s, forced=True) for p in paths for s in SCHEMAS]
    if has_tools:
        choices = ["auto", "any", "get_weather", "now"]
        kinds["tools"] = [
            case(p, tool_fields(p, c), answer if c == "auto" else 160, schema=TOOLS, forced=c != "auto")
            for p in paths[1:]
            for c in choices
        ]
    return kinds


def events(data):
    """Of a stream of text/event-stream."""
    return [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]


def said_of_chat(answers, streams):
    text, calls, end, usage = "", {}, None, None
    for a in answers:
        usage = a.get("usage") or usage
        for choice in a["choices"]:
            m = choice["delta"] if streams else choice["message"]
            text += m.get("content") or ""
            for i, call in enumerate(m.get("tool_calls") or []):
                made = calls.setdefault(call.get("index", i), ["", ""])
                made[0] += call["function"].get("name") or ""
                made[1] += call["function"].get("arguments") or ""
            end = choice["finish_reason"] or end
    return text, list(calls.values()), end, usage and usage["completion_tokens"]


def said_of_completions(answers, streams):
    text = "".join(c["text"] for a in answers for c in a["choices"])
    end = [c["finish_reason"] for a in answers for c in a["choices"]][-1]
    usage = [a["usage"] for a in answers if a.get("usage")]
    return text, [], end, usage[-1]["completion_tokens"]


def said_of_messages(answers, streams):
    if not streams:
        [a] = answers
        text = "".join(b["text"] for b in a["content"] if b["type"] == "text")
        calls = [[b["name"], json.dumps(b["input"])] for b in a["content"] if b["type"] == "tool_use"]
        return text, calls, a["stop_reason"], a["usage"]["output_tokens"]
    text, calls = "", []
    for a in answers:
        assert a["type"] != "error", a
        if a["type"] == "content_block_start" and a["content_block"]["type"] == "tool_use":
            calls.append([a["content_block"]["name"], ""])
        elif a["type"] == "content_block_delta":
            text += a["delta"].get("text", "")
            if "partial_json" in a["delta"]:
                calls[-1][1] += a["delta"]["partial_json"]
        elif a["type"] == "message_delta":
            end, tokens = a["delta"]["stop_reason"], a["usage"]["output_tokens"]
    assert answers[-1]["type"] == "message_stop", answers[-1]
    return text, [[name, json.dumps(json.loads(arguments))] for name, arguments in calls], end, tokens


def said_of_responses(answers, streams):
    a = answers[-1]["response"] if streams else answers[-1]
    text = "".join(p["text"] for o in a["output"] if o["type"] == "message" for p in o["content"])
    calls = [[o["name"], o["arguments"]] for o in a["output"] if o["type"] == "function_call"]
    if streams:
        assert text == "".join(e["delta"] for e in answers if e["type"] == "response.output_text.delta")
        assert [e["sequence_number"] for e in answers] == list(range(len(answers)))
    return text, calls, a["status"], a["usage"]["output_tokens"]


SAID = {
    "/v1/chat/completions": said_of_chat,
    "/v1/completions": said_of_completions,
    "/v1/messages": said_of_messages,
    "/v1/responses": said_of_responses,
}


def said_of(path, data, streams):
    """(text, [[name, arguments]], why it ended, tokens) of an answer."""
    return SAID[path](events(data) if streams else [json.loads(data)], streams)


class Soak:
    def __init__(self, args):
        self.args = args
        self.seen = collections.Counter()
        self.faults: list[str] = []
        self.judged: dict[str, tuple] = {}  # where there is no jsonschema
        self.n = 0

    def fault(self, text):
        self.seen["faults"] += 1
        if len(self.faults) < 20:
            self.faults.append(text)
            print(f"FAULT {text[:1500]}", flush=True)

    def judge(self, schema, value, what):
        if not jsonschema:
            self.judged.setdefault(json.dumps([schema, value]), (schema, value))
            return
        try:
            jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())
        except jsonschema.ValidationError as e:
            self.fault(f"{what}: {json.dumps(value)} is not valid: {e.message}")

    def check(self, case, said):
        """What must hold of an answer whatever the model says."""
        text, calls, end, _ = said
        whole = end in ("stop", "end_turn", "tool_calls", "tool_use", "completed")
        if case.schema is TOOLS:
            for name, arguments in calls:
                value = json.loads(arguments)
                if case.forced:
                    self.judge(TOOLS[name], value, f"arguments of {name}")
            if case.forced and (not whole or len(calls) != 1):
                self.fault(f"{case.path}: a forced call came as {said}")
            self.seen["calls"] += len(calls)
        elif case.schema:
            if not whole:
                self.fault(f"{case.path}: an answer of a schema ended by {end}: {text}")
            else:
                self.judge(case.schema, json.loads(text), case.path)
            self.seen["valid"] += 1

    def solo(self, server):
        """Each case alone; its own answer where it has none yet, else how many differ."""
        differ = 0
        for case in self.cases:
            status, _, data = server.ask("POST", case.path, json.dumps(case.body).encode(), timeout=300)
            if status != 200:
                sys.exit(f"soak: {case.path}: {status} {data.decode()}\n{json.dumps(case.body)}")
            said = said_of(case.path, data, False)
            self.check(case, said)
            differ += case.said is not None and said != case.said
            case.said = case.said or said
        return differ

    def body_of(self, case, streams, draw):
        body = dict(case.body)
        if streams:
            body["stream"] = True
        if streams and case.path in ("/v1/completions", "/v1/chat/completions"):
            body["stream_options"] = {"include_usage": True}
        if draw.random() < 0.5:
            body["cache_salt"] = f"{self.n}-{draw.random()}"
        return json.dumps(body).encode()

    async def one(self, port, draw):
        kind = draw.random()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        self.n += 1
        leaves = False
        try:
            if kind < 0.05:
                writer.write(draw.choice(NONSENSE))
                if draw.random() < 0.5:
                    writer.write_eof()
                await asyncio.wait_for(reader.read(300), 60)
                self.seen["nonsense"] += 1
                return
            which = "schema" if kind < 0.10 else "tools" if kind < 0.15 and "tools" in self.kinds else "plain"
            case, streams = draw.choice(self.kinds[which]), draw.random() < 0.6
            leaves = draw.random() < 0.1
            body = self.body_of(case, streams, draw)
            head = f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            if leaves:
                await asyncio.sleep(draw.random() * self.args.leave)
                self.seen["left"] += 1
                return
            got = await asyncio.wait_for(reader.read(), 300)
            head, _, rest = got.partition(b"\r\n\r\n")
            if head.split(b"\r\n")[0].split()[1:2] in ([b"429"], [b"529"]):
                self.seen["shed"] += 1
                await asyncio.sleep(0.05)
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self.fault(f"{case.path}: {got[:600]!r}")
                return
            if streams:
                rest = self.unchunked(rest)
            said = said_of(case.path, rest, streams)
            self.check(case, said)
            self.seen[which] += 1
            self.seen["streams"] += streams
            if said != case.said:
                self.seen["differ"] += 1
                if self.args.equal:
                    self.fault(f"{case.path}, {which}, stream {streams}: {said} is not {case.said}")
        except (ConnectionResetError, BrokenPipeError):
            if not leaves and kind >= 0.05:
                self.fault("the connection was reset")
        except (AssertionError, LookupError, ValueError, TimeoutError) as e:
            self.fault(f"{type(e).__name__} {e}")
        finally:
            writer.close()

    def unchunked(self, data):
        """Bodies of streams have an end of their own: the chunk of no bytes."""
        out = b""
        while True:
            size, _, rest = data.partition(b"\r\n")
            n = int(size, 16)
            if n == 0:
                return out
            out, data = out + rest[:n], rest[n + 2 :]

    async def load(self, server, seconds):
        until, first = time.monotonic() + seconds, self.n

        async def client(number):
            draw = random.Random(f"{first} {number}")
            while time.monotonic() < until or self.n < first + self.args.least:
                await self.one(server.port, draw)

        async def minutes():
            while time.monotonic() < until:
                await asyncio.sleep(max(0.0, min(60.0, until - time.monotonic())))
                self.line(server)

        await asyncio.gather(minutes(), *(client(i) for i in range(self.args.clients)))

    def state(self, server):
        """(resident KiB, descriptors, threads, MiB of the device) of the server."""
        pid = server.process.pid
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        field = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
        used = 0
        if self.args.device != "cpu":
            told = subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
            )
            used = int(told.stdout.split()[0])
        return int(field["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(field["Threads"]), used

    def line(self, server):
        rss, fds, threads, device = self.state(server)
        counts = " ".join(f"{k} {v}" for k, v in sorted(self.seen.items()))
        print(
            f"{time.monotonic() - self.began:7.0f} s  {rss} KiB, {fds} descriptors, {threads} threads, device {device} MiB  {counts}",
            flush=True,
        )

    def metrics(self, server):
        text = server.ask("GET", "/metrics")[2].decode()
        return {m[1]: float(m[2]) for m in re.finditer(r"^atlas_(\S+) (\S+)$", text, re.M)}

    def require(self, good, text):
        if not good:
            self.fault(text)

    def add_up(self, server):
        """/metrics is the sum of the log's lines, and nothing is taken any more."""
        for name in ("requests_running", "requests_waiting", "requests_aside", "slots_used", "kv_pages_used"):
            try:
                server.settles(name, 0, 60)
            except AssertionError as e:
                self.fault(str(e))
        m, lines = self.metrics(server), server.requests()
        texts = [line for line in lines if "completion_tokens" in line]
        sums = {k: sum(line[k] for line in texts) for k in ("prompt_tokens", "completion_tokens", "cached_tokens")}
        ends = collections.Counter(line["finish"] for line in texts)
        self.require(
            sums["prompt_tokens"] == m["prompt_tokens_total"], f"prompts: {sums} in the log, {m['prompt_tokens_total']}"
        )
        self.require(
            sums["completion_tokens"] == m["generation_tokens_total"],
            f"answers: {sums}, {m['generation_tokens_total']}",
        )
        self.require(ends["client"] == m['cancelled_total{why="client"}'], f"cancelled: {ends}")
        for end in ("stop", "length"):
            counted = m[f'request_success_total{{finished_reason="{end}"}}']
            # the last token of an answer whose peer left may have been counted before the peer's end was
            self.require(0 <= counted - ends[end] <= ends["client"], f"{end}: {counted}, in the log {ends}")
        self.require(m['request_success_total{finished_reason="error"}'] == 0 and not ends["error"], f"errors: {ends}")
        # tokens that were found for answers whose peer left before the first one are not in their lines
        self.require(
            sums["cached_tokens"] <= m["prefix_cache_hits_total"] <= m["prefix_cache_queries_total"], f"hits: {sums}"
        )
        self.require(m["accepted_total"] <= m["drafts_total"], "more drafts were accepted than made")
        self.require(m["prefix_cache_pages"] <= m["kv_pages_total"], "more pages of prefixes than pages")
        for path in SAID:
            counted = sum(v for k, v in m.items() if k.startswith(f'http_requests_total{{route="{path}"'))
            logged = sum(line["route"].endswith(" " + path) and line["status"] != 0 for line in lines)
            self.require(counted == logged, f"{path}: {counted} answers counted, {logged} logged")
        return m

    def run(self):
        args = self.args
        told = json.loads(
            subprocess.run([args.atlas, "info", args.plan, "--json"], capture_output=True, check=True).stdout
        )
        args.equal = args.device == "cpu" or told["invariant"]
        options = ["--name", "tiny", "--max-queue", max(1, args.clients - 12), *args.option]
        alone = Server(
            args.atlas, args.plan, "--prefix-cache", "off", "--speculate", "off", *options, device=args.device
        )
        about = alone.get("/v1/plan")[1]
        self.kinds = cases_of(bool(about["tool_format"]) or args.chat, bool(about["tool_format"]), args)
        self.cases = [case for cases in self.kinds.values() for case in cases]
        self.began = time.monotonic()
        self.solo(alone)
        if alone.stop() != 0:
            sys.exit("soak: the server that is asked alone ended with an error")
        server = Server(args.atlas, args.plan, *options, device=args.device)
        print(f"{len(self.cases)} requests of {len(self.kinds)} kinds, {args.clients} clients, {args.seconds:g} s on {args.device}; tool format "
              f"{about['tool_format']}, drafter {about['drafter']}; alone in {time.monotonic() - self.began:.0f} s", flush=True)  # fmt: skip
        before = self.state(server)
        asyncio.run(self.load(server, max(2.0, args.seconds / 6)))
        self.add_up(server)
        warm = self.state(server)
        self.seen.clear()
        asyncio.run(self.load(server, args.seconds))
        m = self.add_up(server)
        after = self.state(server)
        differ = self.solo(server)
        self.require(not (differ and args.equal), f"{differ} answers differ that have the server for themselves")
        print(f"resident KiB, descriptors, threads, device MiB: {before} at start, {warm} warm, {after} at the end")
        if args.memory:  # not of a sanitizer, which keeps what is freed
            self.require(after[0] < warm[0] + 4096 + warm[0] // 50, "memory grew")
        self.require(
            after[1] <= warm[1] + 2 and after[2] == warm[2] and after[3] <= warm[3] + 2, "something was not given back"
        )
        names = ("prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total", "prefix_cache_evicted_total",
                 "prefix_cache_snapshots", "drafts_total", "accepted_total", "preemptions_total", "shed_total")  # fmt: skip
        print(", ".join(f"{name} {m[name]:.0f}" for name in names))
        print(
            ", ".join(f"{k} {v}" for k, v in sorted(self.seen.items()))
            + f"; {differ} differ alone with prefixes and drafts"
        )
        self.require(
            self.seen["plain"] > 0 and self.seen["valid"] > 0 and self.seen["left"] > 0,
            "the load was too short to show anything",
        )
        self.require(m["prefix_cache_hits_total"] > 0, "no prefix was found")
        self.require(not about["drafter"] or m["drafts_total"] > 0, "nothing was drafted")
        self.require(server.get("/health")[0] == 200, "/health is not 200")
        code = server.stop()
        self.require(code == 0, f"the server ended with {code}")
        for schema, value in self.judged.values():
            print("to be judged: " + json.dumps({"schema": schema, "value": value}))
        print(f"faults: {self.seen['faults']}")
        return 1 if self.seen["faults"] else 0


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--atlas", default=str(REPO / "build" / "atlas"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--least", type=int, default=100, help="requests, however long they take")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--answer", type=int, default=24, help="tokens of free answers")
    parser.add_argument("--words", type=int, default=40, help="of each of the three beginnings that prompts have")
    parser.add_argument("--plain", type=int, default=10, help="free requests of each API")
    parser.add_argument("--leave", type=float, default=0.2, help="seconds within which clients that leave do so")
    parser.add_argument("--chat", action="store_true", help="the plan has a chat template, though it writes no calls")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="memory may grow")
    parser.add_argument("--option", action="append", default=[], help="a word for atlas serve")
    return Soak(parser.parse_args(words)).run()


if __name__ == "__main__":
    sys.exit(main())
