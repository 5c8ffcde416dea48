"""Answers as models write them, and what a client is to see of each: written by hand.

A sample is (format, answer, pieces) or, with settings of the parser, (format, answer, pieces, settings). Arguments of
calls are objects here; a client gets their JSON."""


def text(t):
    return ["text", t]


def think(t):
    return ["reasoning", t]


def call(number, name, **arguments):
    return ["call", number, name, arguments]


def tool(name, properties=None, **more):
    parameters = {"type": "object", "properties": properties or {}, **more}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    tool("now"),
    {"type": "function", "function": {"name": "ping"}},
    tool(
        "typed",
        {
            "s": {"type": "string"},
            "i": {"type": "integer"},
            "n": {"type": "number"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "o": {"type": "object"},
            "a": {"type": "array"},
            "maybe": {"type": ["string", "null"]},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "colour": {"$ref": "#/$defs/Colour"},
            "level": {"enum": [1, 2, 3]},
            "one": {"const": True},
            "any": {},
            "loop": {"$ref": "#/properties/loop"},
            "both": {"allOf": [{"$ref": "#/$defs/Colour"}]},
            "second": {"$ref": "#/properties/either/anyOf/1"},
            "slash": {"$ref": "#/$defs/a~1b"},
            "tilde": {"$ref": "#/$defs/~0"},
            "percent": {"$ref": "#/$defs/50%25"},
            "none": {"$ref": "#/properties/either/anyOf/x"},
        },
        **{
            "$defs": {
                "Colour": {"type": "string", "enum": ["red", "7"]},
                "a/b": {"type": "integer"},
                "~": {"type": "boolean"},
                "50%": {"type": "number"},
            },
            "additionalProperties": {"type": "integer"},
        },
    ),
    tool("mcp__files.read:v1/x", {"path": {"type": "string"}}),
]
BERLIN = call(0, "get_weather", city="Berlin", days=2)
WEATHER = '{"name": "get_weather", "arguments": {"city": "Berlin", "days": 2}}'
NOW = '{"name": "now", "arguments": {}}'
BLOCK = f"<tool_call>\n{WEATHER}\n</tool_call>"
THINKS = {"reasoning": True}
BEGUN = {"reasoning": True, "begins": True}
DEEP = "[" * 61 + "]" * 61  # with the call's own objects 64 deep less one
DEEPER = "[" * 63 + "]" * 63


def same(format_, answer, **settings):
    """An answer that is text as it is."""
    return (format_, answer, [text(answer)], settings)


HERMES = [
    ("hermes", BLOCK, [BERLIN]),
    ("hermes", f"Let me look.\n{BLOCK}", [text("Let me look."), BERLIN]),
    ("hermes", f"{BLOCK}\n<tool_call>\n{NOW}\n</tool_call>", [BERLIN, call(1, "now")]),
    ("hermes", f"<tool_call>{WEATHER}</tool_call><tool_call>{NOW}</tool_call> \n", [BERLIN, call(1, "now")]),
    ("hermes", f"<tool_call>\n{WEATHER}\n{NOW}\n</tool_call>", [BERLIN, call(1, "now")]),
    ("hermes", f"<tool_call>[{WEATHER}, {NOW}]</tool_call>", [BERLIN, call(1, "now")]),
    ("hermes", f"{BLOCK}\n\nDone.\n", [BERLIN, text("Done.\n")]),
    ("hermes", f"One\n\n{BLOCK}\ntwo <tool_call>{NOW}</tool_call>", [text("One"), BERLIN, text("two"), call(1, "now")]),
    (
        "hermes",
        '<tool_call>{"arguments": {"city": "</tool_call><tool_call>{\\"a\\": 1}"}, "name": "get_weather"}</tool_call>',
        [call(0, "get_weather", city='</tool_call><tool_call>{"a": 1}')],
    ),
    ("hermes", '<tool_call>{"name": "now"}</tool_call>', [call(0, "now")]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [call(0, "now")]),
    ("hermes", '<tool_call>{"name": "now", "parameters": {"a": [1, {}]}}</tool_call>', [call(0, "now", a=[1, {}])]),
    ("hermes", '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>', [call(0, "now", a=1)]),
    ("hermes", '<tool_call>{"name": "now", "arguments": " "}</tool_call>', [call(0, "now")]),
    (
        "hermes",
        '<tool_call>{"name": "n\\u006fw", "arguments": "{\\"a\\": \\"\\ud83d\\ude00 \\u00e9\\\\n\\"}\\n"}</tool_call>',
        [call(0, "now", a="\U0001f600 é\n")],
    ),
    (
        "hermes",
        '<tool_call>{"name": "g\\u0065t_weather", "arguments": {"city": "Z\\u00fcrich 日本 \U0001f600"}}</tool_call>',
        [call(0, "get_weather", city="Zürich 日本 \U0001f600")],
    ),
    (
        "hermes",
        '<tool_call>{"name": "now", "arguments": {"n": 123456789012345678901234567890, "x": -1.5e-300}}</tool_call>',
        [call(0, "now", n=123456789012345678901234567890, x=-1.5e-300)],
    ),
    (
        "hermes",
        f'<tool_call>{{"name": "now", "arguments": {{"d": {DEEP}}}}}</tool_call>',
        [call(0, "now", d=eval(DEEP))],
    ),
    same("hermes", f'<tool_call>{{"name": "now", "arguments": {{"d": {DEEPER}}}}}</tool_call>'),
    # whole but for the mark at the end: cut there, or a stop string of the client
    ("hermes", f"<tool_call>\n{WEATHER}\n", [BERLIN]),
    ("hermes", f"<tool_call>\n{WEATHER}\n</tool_c", [BERLIN]),
    # cut off
    same("hermes", "<tool_call>"),
    same("hermes", "Text. <tool_cal"),
    same("hermes", "Text.\n\n<tool_call>\n" + WEATHER[:-1]),
    same("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Ber'),
    # no calls
    same("hermes", 'Plain text, {"name": "now"} and <b>tags</b> < <t <tool </tool_call>.\n'),
    same("hermes", "The mark `<tool_call>` begins a call."),
    same("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    same("hermes", f'<tool_call>{NOW}{{"name": "unknown"}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": [1]}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": "not JSON"}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": 5}</tool_call>'),
    same("hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    same("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    same("hermes", "<tool_call>[]</tool_call>"),
    same("hermes", "<tool_call>[1]</tool_call>"),
    same("hermes", "<tool_call>{'name': 'now'}</tool_call>"),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1,}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": 01}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1.}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": tru}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": "line\nbreak"}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": "\\x"}}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {]}</tool_call>'),
    same("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1}}}</tool_call>'),
    same("hermes", "<tool_call></tool_call>"),
    same("hermes", " \n\n "),
    same("hermes", "ends in blanks \n\n"),
    # what broke off is text, and what comes after it is read
    ("hermes", f"<tool_call>{BLOCK}", [text("<tool_call>"), BERLIN]),
    ("hermes", f"<<tool_call><tool_{BLOCK}", [text("<<tool_call><tool_"), BERLIN]),
    ("hermes", f'<tool_call>{{"name": {BLOCK}', [text('<tool_call>{"name":'), BERLIN]),
    ("hermes", f"<tool_call>{WEATHER}</tool{BLOCK}", [text(f"<tool_call>{WEATHER}</tool"), BERLIN]),
    ("hermes", "é<tool_call>日本", [text("é<tool_call>日本")]),
]


def f(name, *pairs, between="\n"):
    """A function as Qwen3-Coder writes it."""
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>{between}" for k, v in pairs)
    return f"<function={name}>{between}{inner}</function>"


def block(*functions):
    return "<tool_call>\n" + "\n".join(functions) + "\n</tool_call>"


CITY = f("get_weather", ("city", "Berlin"), ("days", "2"))
ELEMENTS = [
    ("qwen3_coder", block(CITY), [BERLIN]),
    ("qwen3_coder", f"Let me look.\n\n{block(CITY)}\n", [text("Let me look."), BERLIN]),
    ("qwen3_coder", block(CITY, f("now")), [BERLIN, call(1, "now")]),
    ("qwen3_coder", block(CITY) + "\n" + block(f("now")), [BERLIN, call(1, "now")]),
    ("qwen3_coder", f"<tool_call>{CITY}{f('now', between='')}</tool_call>", [BERLIN, call(1, "now")]),
    ("qwen3_coder", "<tool_call><function=now></function></tool_call>", [call(0, "now")]),
    ("qwen3_coder", block(f("ping", ("x", "1"))), [call(0, "ping", x="1")]),
    ("qwen3_coder", block(f("mcp__files.read:v1/x", ("path", "/a b"))), [call(0, "mcp__files.read:v1/x", path="/a b")]),
    # types
    (
        "qwen3_coder",
        block(f("typed", ("s", "5"), ("i", "5"), ("n", "5.5e1"), ("b", "true"), ("z", "null"), ("o", '{"k": [1]}'))),
        [call(0, "typed", s="5", i=5, n=55.0, b=True, z=None, o={"k": [1]})],
    ),
    (
        "qwen3_coder",
        block(
            f("typed", ("b", "False"), ("z", "None"), ("a", '[1, "x"]'), ("i", " -7 "), ("n", "12345678901234567890"))
        ),
        [call(0, "typed", b=False, z=None, a=[1, "x"], i=-7, n=12345678901234567890)],
    ),
    (
        "qwen3_coder",
        block(f("typed", ("i", "five"), ("n", "1,5"), ("b", "yes"), ("o", "[1]"), ("a", "{}"), ("z", ""), ("o2", "x"))),
        [call(0, "typed", i="five", n="1,5", b="yes", o="[1]", a="{}", z="", o2="x")],
    ),
    (
        "qwen3_coder",
        block(f("typed", ("maybe", "null"), ("either", "7"), ("colour", "7"), ("level", "2"), ("one", "true"))),
        [call(0, "typed", maybe=None, either=7, colour="7", level=2, one=True)],
    ),
    (
        "qwen3_coder",
        block(
            f("typed", ("maybe", "7"), ("either", "None"), ("any", "7"), ("loop", "7"), ("both", "7"), ("more", "7"))
        ),
        [call(0, "typed", maybe="7", either=None, any="7", loop="7", both="7", more=7)],
    ),
    (
        "qwen3_coder",
        block(f("typed", ("second", "null"), ("slash", "7"), ("tilde", "true"), ("percent", "1.5"), ("none", "7"))),
        [call(0, "typed", second=None, slash=7, tilde=True, percent=1.5, none="7")],
    ),
    ("qwen3_coder", block(f("typed", ("i", "1.0"), ("i2", "01"))), [call(0, "typed", i="1.0", i2="01")]),
    (
        "qwen3_coder",
        block(f("typed", ("a", "[" * 63 + "]" * 63), ("o", "{}, {}"), ("n", "1, 2"))),
        [call(0, "typed", a=eval("[" * 63 + "]" * 63), o="{}, {}", n="1, 2")],
    ),
    ("qwen3_coder", block(f("typed", ("a", "[" * 64 + "]" * 64))), [call(0, "typed", a="[" * 64 + "]" * 64)]),
    ("qwen3_coder", block(f("typed", ("s", "a"), ("i", "1"), ("s", "b"))), [call(0, "typed", i=1, s="b")]),
    # values are text: quotes, markers, blanks and lines
    (
        "qwen3_coder",
        block(f("typed", ("s", '  if a < b:\n\tprint("</function> </tool_call>")\n\n<tool_call>'))),
        [call(0, "typed", s='  if a < b:\n\tprint("</function> </tool_call>")\n\n<tool_call>')],
    ),
    (
        "qwen3_coder",
        block(f("typed", ("s", "a </parameter> b </parameter></para <parameter=x>1</parameter> c"))),
        [call(0, "typed", s="a </parameter> b </parameter></para <parameter=x>1</parameter> c")],
    ),
    ("qwen3_coder", block(f("typed", ("s", "\n\ntwo\n\n"))), [call(0, "typed", s="\n\ntwo\n\n")]),
    ("qwen3_coder", block(f("typed", ("s", ""))), [call(0, "typed", s="")]),
    (
        "qwen3_coder",
        "<tool_call><function=typed><parameter=s>in one line</parameter> <parameter=i>3</parameter></function></tool_call>",
        [call(0, "typed", s="in one line", i=3)],
    ),
    ("qwen3_coder", block(f("typed", ("s", "日本 \U0001f600"))), [call(0, "typed", s="日本 \U0001f600")]),
    ("qwen3_coder", block(f("typed", ("ein Schlüssel", "1"))), [call(0, "typed", **{"ein Schlüssel": 1})]),
    # the model leaves out the mark before, or after
    ("qwen3_coder", f"Look:\n{CITY}\n</tool_call>", [text("Look:"), BERLIN]),
    ("qwen3_coder", f"{CITY}\nThat is it.", [BERLIN, text("That is it.")]),
    ("qwen3_coder", f"{CITY}\n<{f('now')}", [BERLIN, text("<"), call(1, "now")]),
    ("qwen3_coder", f"<tool_call>\n{CITY}\n", [BERLIN]),
    ("qwen3_coder", f"<tool_call>\n{CITY}\n</too", [BERLIN]),
    ("qwen3_coder", f"<tool_call>\n{CITY}\nThat is it.", [BERLIN, text("That is it.")]),
    ("qwen3_coder", f"<tool_call>\n{CITY}\n<func", [BERLIN, text("<func")]),
    # cut off, or no calls
    same("qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nBerl"),
    same("qwen3_coder", "Well\n" + block(CITY)[: -len("</function>\n</tool_call>")]),
    same("qwen3_coder", "<tool_call>\n<function=get_wea"),
    same("qwen3_coder", block(f("unknown", ("a", "1")))),
    same("qwen3_coder", "Write `<function=NAME>` in <tool_call>, please."),
    same("qwen3_coder", "int f() { return a <function=1; }"),
    same("qwen3_coder", "<tool_call>" + WEATHER + "</tool_call>"),
    same("qwen3_coder", "<tool_call>\n<function=now>\nno parameter\n</function>\n</tool_call>"),
    same("qwen3_coder", "<tool_call>\n<function=now>\n<parameter=>\n1\n</parameter>\n</function>\n</tool_call>"),
    same("qwen3_coder", "<tool_call>\n<function=>\n</function>\n</tool_call>"),
    same("qwen3_coder", "<tool_call></function></tool_call>"),
    ("qwen3_coder", "<tool_call>" + block(CITY), [text("<tool_call>"), BERLIN]),
    ("qwen3_coder", "<function=unknown>" + block(CITY), [text("<function=unknown>"), BERLIN]),
]
LLAMA_WEATHER = WEATHER.replace("arguments", "parameters")
LLAMA_NOW = NOW.replace("arguments", "parameters")
PYTHON_TAG = [
    ("llama3_json", LLAMA_WEATHER, [BERLIN]),
    ("llama3_json", "\n\n" + LLAMA_WEATHER + "\n", [BERLIN]),
    ("llama3_json", "<|python_tag|>" + LLAMA_WEATHER, [BERLIN]),
    ("llama3_json", f"{LLAMA_WEATHER}; {LLAMA_NOW}", [BERLIN, call(1, "now")]),
    ("llama3_json", f"<|python_tag|>{LLAMA_WEATHER};{LLAMA_NOW}", [BERLIN, call(1, "now")]),
    ("llama3_json", f"{LLAMA_WEATHER}\n{LLAMA_NOW};", [BERLIN, call(1, "now")]),
    ("llama3_json", f"[{LLAMA_WEATHER}, {LLAMA_NOW}]", [BERLIN, call(1, "now")]),
    ("llama3_json", WEATHER, [BERLIN]),
    ("llama3_json", '{"type": "function", ' + LLAMA_WEATHER[1:], [BERLIN]),
    (
        "llama3_json",
        '{"name": "now", "parameters": {"a": "};{<|python_tag|>\\""}}',
        [call(0, "now", a='};{<|python_tag|>"')],
    ),
    ("llama3_json", f"I look it up: <|python_tag|>{LLAMA_WEATHER}", [text("I look it up:"), BERLIN]),
    ("llama3_json", f"<think>\nHm.\n</think>\n\n{LLAMA_WEATHER}", [think("Hm."), BERLIN], THINKS),
    same("llama3_json", f"I would write {LLAMA_WEATHER}"),
    same("llama3_json", f"{LLAMA_WEATHER} is what I would write."),
    same("llama3_json", f"{LLAMA_WEATHER};{LLAMA_NOW[:-2]}"),
    same("llama3_json", LLAMA_WEATHER[:-1]),
    same("llama3_json", '{"city": "Berlin"}'),
    same("llama3_json", '{"name": "unknown", "parameters": {}}'),
    same("llama3_json", '{"name": "Berlin", "parameters": 5}'),
    same("llama3_json", "{}"),
    same("llama3_json", "[1] says so."),
    same("llama3_json", "[1, 2, 3]\n"),
    same("llama3_json", "{% if x %}"),
    same("llama3_json", '<|python_tag|>brave_search.call(query="x")'),
    same("llama3_json", f"<|python_tag|>{LLAMA_WEATHER}; print(1)"),
    same("llama3_json", "<|python_"),
    same("llama3_json", f";{LLAMA_WEATHER}"),
]
LIST = [
    ("mistral_calls", f"[TOOL_CALLS] [{WEATHER}]", [BERLIN]),
    ("mistral_calls", f"[TOOL_CALLS][{WEATHER}, {NOW}]", [BERLIN, call(1, "now")]),
    ("mistral_calls", f"[TOOL_CALLS] {WEATHER}", [BERLIN]),
    ("mistral_calls", f"Right.[TOOL_CALLS]  [\n{WEATHER}\n]\n", [text("Right."), BERLIN]),
    ("mistral_calls", '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcdef123"}]', [call(0, "now")]),
    ("mistral_calls", '[TOOL_CALLS]get_weather[ARGS]{"city": "Berlin", "days": 2}', [BERLIN]),
    ("mistral_calls", '[TOOL_CALLS]get_weather[ARGS] {"city": "Berlin", "days": 2}', [BERLIN]),
    (
        "mistral_calls",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Berlin", "days": 2}[TOOL_CALLS]now[ARGS]{}',
        [BERLIN, call(1, "now")],
    ),
    ("mistral_calls", '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Berlin", "days": 2}', [BERLIN]),
    (
        "mistral_calls",
        'I look.[TOOL_CALLS]now[ARGS]{"a": "[TOOL_CALLS]x[ARGS]{}"}\nDone',
        [text("I look."), call(0, "now", a="[TOOL_CALLS]x[ARGS]{}"), text("Done")],
    ),
    (
        "mistral_calls",
        '[TOOL_CALLS]mcp__files.read:v1/x[ARGS]{"path": "é"}',
        [call(0, "mcp__files.read:v1/x", path="é")],
    ),
    ("mistral_calls", "[[TOOL_CALLS]now[ARGS]{}", [text("["), call(0, "now")]),
    ("mistral_calls", f"[TOOL_CALLS]x[TOOL_CALLS] [{WEATHER}]", [text("[TOOL_CALLS]x"), BERLIN]),
    ("mistral_calls", "[TOOL_CALLS]now[ARGS]{}]", [call(0, "now"), text("]")]),
    same("mistral_calls", f"[TOOL_CALLS] [{WEATHER}"),
    same("mistral_calls", "[TOOL_CALLS]now[ARGS]"),
    same("mistral_calls", "[TOOL_CALLS]now[ARG"),
    same("mistral_calls", "[TOOL_CALLS]now[CALL_ID]abc"),
    same("mistral_calls", "[TOOL_CALLS]now[CALL_ID]a b[ARGS]{}"),
    same("mistral_calls", "[TOOL_CALLS]now"),
    same("mistral_calls", "[TOOL_CALLS]unknown[ARGS]{}"),
    same("mistral_calls", '[TOOL_CALLS] [{"name": "unknown", "arguments": {}}]'),
    same("mistral_calls", "[TOOL_CALLS]now[ARGS][1]"),
    same("mistral_calls", "[TOOL_CALLS]now[ARGS]{'a': 1}"),
    same("mistral_calls", "[TOOL_CALLS]now{}"),
    same("mistral_calls", "[TOOL_CALLS]now [ARGS]{}"),
    same("mistral_calls", "a[0] = b[TOOL_C] and [TOOL_CALLS] is a token."),
    same("mistral_calls", "[TOOL_CALLS] []"),
]
REASONING = [
    (None, "<think>\nTwo and two.\n</think>\n\nFour.", [think("Two and two."), text("Four.")], THINKS),
    (None, "Two and two.\n</think>\n\nFour.\n", [think("Two and two."), text("Four.\n")], BEGUN),
    (None, "\n\n</think>\n\nFour.", [text("Four.")], BEGUN),
    (None, "<think></think>Four.", [text("Four.")], THINKS),
    (None, "<think>\n\n</think>", [], THINKS),
    (None, " \n<think>A\n\nB </think> C", [think("A\n\nB"), text("C")], THINKS),
    (None, "Cut in the mid", [think("Cut in the mid")], BEGUN),
    (None, "Cut in the mark </thin", [think("Cut in the mark </thin")], BEGUN),
    (None, "Cut in blanks \n\n", [think("Cut in blanks")], BEGUN),
    (None, "<think>日本</think>\U0001f600", [think("日本"), text("\U0001f600")], THINKS),
    # another mark is text, before and after
    (None, "A</think>B <think>C</think> D", [think("A"), text("B <think>C</think> D")], BEGUN),
    (None, "<think>A <think> B</think>C", [think("A <think> B"), text("C")], THINKS),
    (None, "Write <think> and </think>.", [text("Write <think> and </think>.")], THINKS),
    (None, "<thin king>", [text("<thin king>")], THINKS),
    (None, "<th", [text("<th")], THINKS),
    (None, "\n", [text("\n")], THINKS),
    (None, "<think>A</think>B", [text("<think>A</think>B")], {}),
    (None, f"A</think>\n{BLOCK}", [think("A"), text(BLOCK)], BEGUN),
    ("hermes", f"A</think>\n\n{BLOCK}", [think("A"), BERLIN], BEGUN),
    ("hermes", f"A {BLOCK}\n</think>\n\nText\n{BLOCK}", [think(f"A {BLOCK}"), text("Text"), BERLIN], BEGUN),
    ("hermes", f"{BLOCK}\n<think>A</think>", [BERLIN, text("<think>A</think>")], THINKS),
    ("hermes", f"<tool_call>x<think>A</think>{BLOCK}", [text("<tool_call>x<think>A</think>"), BERLIN], THINKS),
    ("qwen3_coder", f"A\n</think>\n\n{block(CITY)}", [think("A"), BERLIN], BEGUN),
    ("mistral_calls", "<think>A</think>[TOOL_CALLS]now[ARGS]{}", [think("A"), call(0, "now")], THINKS),
]
SAMPLES = [s if len(s) == 4 else (*s, {}) for s in HERMES + ELEMENTS + PYTHON_TAG + LIST + REASONING]
