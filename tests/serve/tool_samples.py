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
    tool(
        "joined",
        allOf=[{"$ref": "#/$defs/one"}, {"anyOf": [{"properties": {"b": {"type": "boolean"}}}]}],
        **{"$defs": {"one": {"properties": {"a": {"type": "integer"}}}}},
    ),
]
BERLIN = call(0, "get_weather", city="Berlin", days=2)
WEATHER = '{"name": "get_weather", "arguments": {"city": "Berlin", "days": 2}}'
NOW = '{"name": "now", "arguments": {}}'
BLOCK = f"<tool_call>\n{WEATHER}\n</tool_call>"
THINKS = {"reasoning": "</think>"}
BEGUN = THINKS | {"begins": True}
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
    ("qwen3_coder", f("joined", ("a", "1"), ("b", "true"), ("c", "1")), [call(0, "joined", a=1, b=True, c="1")]),
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


def glm(name, *parameters, sep="\n"):
    inner = "".join(f"<arg_key>{k}</arg_key>{sep}<arg_value>{v}</arg_value>{sep}" for k, v in parameters)
    return f"<tool_call>{name}{sep}{inner}</tool_call>"


def invoke(name, *parameters, mark="", more=""):
    inner = "".join(f'<{mark}parameter name="{k}"{more}>{v}</{mark}parameter>\n' for k, v in parameters)
    return f'<{mark}invoke name="{name}">\n{inner}</{mark}invoke>\n'


def minimax(*calls):
    return "<minimax:tool_call>\n" + "".join(calls) + "</minimax:tool_call>"


PAIRS = (("city", "Berlin"), ("days", "2"))
TYPED = (("s", "07"), ("i", "7"), ("n", "1.5"), ("b", "true"), ("z", "null"), ("o", '{"k": [1]}'), ("a", "[]"))
HAS_TYPES = call(0, "typed", s="07", i=7, n=1.5, b=True, z=None, o={"k": [1]}, a=[])
WITH_TEXT = (("s", 'a < b </arg> </parameter "x"\n {"k": 1}'),)
GLM = [
    ("glm45", glm("get_weather", *PAIRS), [BERLIN]),
    ("glm45", f"Look.\n{glm('get_weather', *PAIRS, sep='')}\n{glm('now')}", [text("Look."), BERLIN, call(1, "now")]),
    ("glm45", glm("now") + glm("now", sep=""), [call(0, "now"), call(1, "now")]),
    ("glm45", glm("typed", *TYPED), [HAS_TYPES]),
    ("glm45", glm("typed", ("s", "</arg_value> is a mark")), [call(0, "typed", s="</arg_value> is a mark")]),
    ("glm45", glm("typed", ("s", "\n two lines \n")), [call(0, "typed", s="\n two lines \n")]),
    ("glm45", glm("typed", *WITH_TEXT), [call(0, "typed", s=WITH_TEXT[0][1])]),
    ("glm45", f"{glm('now')} and so on", [call(0, "now"), text("and so on")]),
    ("glm45", f"A\n</think>\n{glm('now')}", [think("A"), call(0, "now")], BEGUN),
    same("glm45", glm("unknown")),
    same("glm45", glm("now")[:-1]),
    same("glm45", glm("get_weather", *PAIRS)[:60]),
    same("glm45", "<tool_call> is a mark"),
    same("glm45", BLOCK),
    same("glm45", "<tool_call>now<arg_key></arg_key><arg_value>1</arg_value></tool_call>"),
    same("glm45", "<tool_call>now<arg_key>k</arg_key>1</tool_call>"),
    same("glm45", "<tool_call>now then</tool_call>"),
]
MINIMAX = [
    ("minimax_m2", minimax(invoke("get_weather", *PAIRS)), [BERLIN]),
    ("minimax_m2", minimax(invoke("get_weather", *PAIRS), invoke("now")), [BERLIN, call(1, "now")]),
    ("minimax_m2", minimax(invoke("typed", *TYPED)) + "\n", [HAS_TYPES]),
    ("minimax_m2", minimax(invoke("typed", *WITH_TEXT)), [call(0, "typed", s=WITH_TEXT[0][1])]),
    ("minimax_m2", "So:\n" + minimax(invoke("now"))[:-20] + " Then.", [text("So:"), call(0, "now"), text("Then.")]),
    ("minimax_m2", minimax(invoke("now"))[:-3], [call(0, "now")]),
    same("minimax_m2", minimax(invoke("none"))),
    same("minimax_m2", minimax(invoke("now"))[:40]),
    same("minimax_m2", "<minimax:tool_call></minimax:tool_call>"),
    same("minimax_m2", '<minimax:tool_call><invoke name="now"><parameter name="a"b">1</parameter></invoke>'),
    same("minimax_m2", "<invoke> alone is text"),
    (
        "seed_oss",
        f"<seed:tool_call>\n{f('get_weather', *PAIRS)}</seed:tool_call>",
        [call(0, "get_weather", city="\nBerlin\n", days=2)],
    ),
    (
        "seed_oss",
        "<seed:think>Hm. </think></seed:think>Go.\n<seed:tool_call>\n<function=typed>\n<parameter=s>x</parameter>\n"
        "</function>\n<function=now></function>\n</seed:tool_call>",
        [think("Hm. </think>"), text("Go."), call(0, "typed", s="x"), call(1, "now")],
        {"reasoning": "<seed:think></seed:think>"},
    ),
    (
        "seed_oss",
        "<seed:tool_call><function=typed><parameter=o>{'k': [True, None, \"it's\"]}</parameter><parameter=a>[1,</parameter>"
        "</function></seed:tool_call>",
        [call(0, "typed", o={"k": [True, None, "it's"]}, a="[1,")],
    ),
    same("seed_oss", "<seed:tool_call>\n<function=none></function></seed:tool_call>"),
]


def dsml(name, *calls):
    return f"<｜DSML｜{name}>\n" + "".join(calls) + f"</｜DSML｜{name}>"


def typed_invoke(name, *parameters):
    """(key, is a string, value)"""
    inner = "".join(
        f'<｜DSML｜parameter name="{k}" string="{str(is_text).lower()}">{v}</｜DSML｜parameter>\n'
        for k, is_text, v in parameters
    )
    return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'


SEP, BEGIN, END = "<｜tool▁sep｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
CITY_JSON = '{"city": "Berlin", "days": 2}'
V3 = f"{BEGIN}function{SEP}get_weather\n```json\n{CITY_JSON}\n```{END}"
V31 = f"{BEGIN}get_weather{SEP}{CITY_JSON}{END}"
KIMI = f"<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{CITY_JSON}<|tool_call_end|>"
SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
DEEPSEEK = [
    (
        "deepseek_v32",
        dsml("function_calls", typed_invoke("get_weather", ("city", True, "Berlin"), ("days", False, "2"))),
        [BERLIN],
    ),
    ("deepseek_v32", dsml("function_calls", typed_invoke("typed", ("i", True, "7"))), [call(0, "typed", i="7")]),
    ("deepseek_v32", dsml("function_calls", typed_invoke("typed", ("s", False, "7"))), [call(0, "typed", s="7")]),
    (
        "deepseek_v4",
        "A." + dsml("tool_calls", typed_invoke("now"), typed_invoke("ping")),
        [text("A."), call(0, "now"), call(1, "ping")],
    ),
    same("deepseek_v4", dsml("function_calls", typed_invoke("now"))),
    same(
        "deepseek_v32", dsml("function_calls", typed_invoke("now").replace('string="', 'type="').replace("now", "no"))
    ),
    ("deepseek_v3", SECTION[0] + V3 + "\n" + V3 + SECTION[1], [BERLIN, call(1, "get_weather", city="Berlin", days=2)]),
    ("deepseek_v3", "So." + SECTION[0] + V3[:-3], [text("So."), BERLIN]),
    same("deepseek_v3", SECTION[0] + V3.replace("}", "")),
    same("deepseek_v3", SECTION[0] + V31),
    (
        "deepseek_v31",
        SECTION[0] + V31 + V31 + SECTION[1] + "\n",
        [BERLIN, call(1, "get_weather", city="Berlin", days=2)],
    ),
    ("deepseek_v31", SECTION[0] + V31 + " and text", [BERLIN, text("and text")]),
    same("deepseek_v31", SECTION[0] + V31.replace("get", "got") + SECTION[1]),
    (
        "kimi_k2",
        SECTIONS[0] + KIMI + KIMI.replace(":0", ":11") + SECTIONS[1],
        [BERLIN, call(1, "get_weather", city="Berlin", days=2)],
    ),
    (
        "kimi_k2",
        SECTIONS[0] + KIMI.replace("get_weather", "mcp__files.read:v1/x").replace(CITY_JSON, "{}"),
        [call(0, "mcp__files.read:v1/x")],
    ),
    same("kimi_k2", SECTIONS[0] + KIMI.replace("functions.", "tools.") + SECTIONS[1]),
    ("hunyuan", f"<tool_calls><tool_call>get_weather\n```json\n{CITY_JSON}\n```</tool_call></tool_calls>", [BERLIN]),
    (
        "hy_v3",
        "<tool_calls>\n<tool_call>now<tool_sep>\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>\n</tool_calls>",
        [call(0, "now", a="x")],
    ),
    (
        "functionary",
        f"<function=get_weather>{CITY_JSON}</function><function=now>{{}}</function>",
        [BERLIN, call(1, "now")],
    ),
    ("phi4_mini_json", f"<|tool_call|>[{WEATHER}]<|/tool_call|>", [BERLIN]),
    ("phi4_mini_json", f'<|tool_call|>[{{"type": "function", "function": {NOW}}}]', [call(0, "now")]),
    (
        "cohere",
        '<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        [call(0, "now")],
    ),
    ("nemotron_json", f"<TOOLCALL>[{WEATHER}, {NOW}]</TOOLCALL>", [BERLIN, call(1, "now")]),
    ("gigachat3", f"Hm.<|function_call|>{WEATHER}", [text("Hm."), BERLIN]),
]


def gemma(name, arguments=""):
    return f"<|tool_call>call:{name}{{{arguments}}}<tool_call|>"


def quoted(t):
    return f'<|"|>{t}<|"|>'


ODD_TEXT = 'a "b"\n}]{[,:\\ </tool_call> <|" \'x\' é'
GEMMA = [
    ("gemma4", gemma("get_weather", f"city:{quoted('Berlin')},days:2"), [BERLIN]),
    ("gemma4", f"So:\n{gemma('now')}{gemma('ping')}", [text("So:"), call(0, "now"), call(1, "ping")]),
    ("gemma4", gemma("typed", f"s:{quoted(ODD_TEXT)}"), [call(0, "typed", s=ODD_TEXT)]),
    (
        "gemma4",
        gemma("typed", f"a:[1,{quoted('x')},[]],b:true,n:-1.5e3,o:{{k:{{{quoted('a b')}:null}}}},z:None"),
        [call(0, "typed", a=[1, "x", []], b=True, n=-1.5e3, o={"k": {"a b": None}}, z=None)],
    ),
    ("gemma4", gemma("now")[:-4], [call(0, "now")]),
    (
        "gemma4",
        "<|channel>thought\nHm.\n<channel|>" + gemma("now"),
        [think("Hm."), call(0, "now")],
        {"reasoning": "<|channel>thought\n<channel|>"},
    ),
    ("gemma4", "<|channel>thought\n<channel|>Four.", [text("Four.")], {"reasoning": "<|channel>thought\n<channel|>"}),
    same("gemma4", gemma("unknown")),
    same("gemma4", gemma("now", "a:b c")),
    same("gemma4", gemma("now", "a:1,,b:2")),
    same("gemma4", gemma("now", "a")),
    same("gemma4", gemma("now", f"a:{quoted('x')}")[:-15]),
    same("gemma4", gemma("now", "a:[1)")),
    ("functiongemma", "<start_function_call>call:now{a:<escape>x<escape>}<end_function_call>", [call(0, "now", a="x")]),
]
PYTHON = [
    ("olmo3", '<function_calls>get_weather(city="Berlin", days=2)</function_calls>', [BERLIN]),
    (
        "olmo3",
        "Go.\n<function_calls>now()\nping( )\n</function_calls>\nDone.",
        [text("Go."), call(0, "now"), call(1, "ping"), text("Done.")],
    ),
    (
        "olmo3",
        r"""<function_calls>typed(s='it\'s "x" \\ \n é \x41 \u00e9 \U0001f600 \q )', n=5e1)</function_calls>""",
        [call(0, "typed", s='it\'s "x" \\ \n é A é \U0001f600 \\q )', n=50.0)],
    ),
    (
        "olmo3",
        "<function_calls>typed(b=True, z=None, a=[1, 'x', (False,), null], o={'k': {\"l\": []}},)</function_calls>",
        [call(0, "typed", b=True, z=None, a=[1, "x", [False], None], o={"k": {"l": []}})],
    ),
    ("olmo3", "<function_calls>now(s='a\nb')", [call(0, "now", s="a\nb")]),
    (
        "lfm2",
        "<|tool_call_start|>[now(), get_weather(days=2, city='Berlin')]<|tool_call_end|>",
        [call(0, "now"), call(1, "get_weather", days=2, city="Berlin")],
    ),
    ("pythonic", "[now(), ping()]", [call(0, "now"), call(1, "ping")]),
    ("pythonic", "<|python_start|>[now(a=1)]<|python_end|>", [call(0, "now", a=1)]),
    same("pythonic", "[now()] is a list"),
    same("pythonic", "[1] says so"),
    same("pythonic", "So: [now()]"),
    same("olmo3", "<function_calls>print('x')</function_calls>"),
    same("olmo3", "<function_calls>now('x')</function_calls>"),
    same("olmo3", "<function_calls>now(a=b)</function_calls>"),
    same("olmo3", "<function_calls>now(a=now())</function_calls>"),
    same("olmo3", "<function_calls>now(a='x)</function_calls>"),
    same("olmo3", "<function_calls>now(a=[1)</function_calls>"),
    same("olmo3", f"<function_calls>now(a={'[' * 80}{']' * 80})</function_calls>"),
    same("olmo3", r"<function_calls>now(a='\ud8')</function_calls>"),
]
CHANNELS = {"reasoning": "<|channel|>analysis<|message|><|end|>"}
FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant"
TO = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
HARMONY = [
    (None, f"{ANALYSIS}{FINAL}Four.\n", [think("Two and two."), text("Four.\n")], CHANNELS),
    (None, f"{FINAL}Four. <b> <|x|> <|en", [text("Four. <b> <|x|> <|en")], CHANNELS),
    (None, "Plain text <|end|> is as it was", [text("Plain text  is as it was")], CHANNELS),
    ("harmony", f"{ANALYSIS}{TO}{CITY_JSON}<|call|>", [think("Two and two."), BERLIN], CHANNELS),
    ("harmony", f"{TO}{CITY_JSON}", [BERLIN], CHANNELS),
    (
        "harmony",
        f" to=functions.get_weather<|channel|>commentary json<|message|> {CITY_JSON}\n<|call|>"
        "<|start|>assistant to=functions.now<|channel|>commentary<|message|><|call|>",
        [BERLIN, call(1, "now")],
        CHANNELS,
    ),
    (
        "harmony",
        f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{TO}{CITY_JSON}<|call|>",
        [text("I look."), BERLIN],
        CHANNELS,
    ),
    (
        "harmony",
        f"<|channel|>commentary<|message|>I look.<|end|>\n<|start|>assistant{FINAL}Done.<|return|>",
        [text("I look.\nDone.")],
        CHANNELS,
    ),
    ("harmony", f"{ANALYSIS}{FINAL[:14]}", [think("Two and two.")], CHANNELS),
    ("harmony", "<|channel|>analysis<|message|>Cut", [think("Cut")], CHANNELS),
    ("harmony", TO + CITY_JSON[:-1], [text(TO + CITY_JSON[:-1])], CHANNELS),
    (
        "harmony",
        f"{TO.replace('get', 'got')}{CITY_JSON}<|call|>",
        [text(TO.replace("get", "got") + CITY_JSON)],
        CHANNELS,
    ),
    (
        "harmony",
        "<|channel|>commentary to=python<|message|>1+1<|call|>",
        [text("<|channel|>commentary to=python<|message|>1+1")],
        CHANNELS,
    ),
    ("harmony", "<|channel|>analysis to=python<|message|>1+1<|call|>", [think("1+1")], CHANNELS),
    (None, f"{TO}{CITY_JSON}<|call|>", [text(TO + CITY_JSON)], CHANNELS),
    (None, '{"a": 1}', [text('{"a": 1}')], CHANNELS),
    (None, "[THINK]A</think>[/THINK]B", [think("A</think>"), text("B")], {"reasoning": "[THINK][/THINK]"}),
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
FAMILIES = GLM + MINIMAX + DEEPSEEK + GEMMA + PYTHON + HARMONY
SAMPLES = [s if len(s) == 4 else (*s, {}) for s in HERMES + ELEMENTS + PYTHON_TAG + LIST + FAMILIES + REASONING]
