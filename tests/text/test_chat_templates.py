"""Chat templates against jinja2 as transformers sets it: generated ones, and each construct by hand."""

import unicodedata

import chatdump
import jinja2
import pytest
import template_grammar


@pytest.fixture(scope="module")
def dump(build_dir):
    d = chatdump.Chatdump(build_dir / "tests" / "chatdump")
    yield d
    d.close()


def generated(dump, seeds):
    """How many templates of the seeds were rendered, after comparing all."""
    rendered = 0
    for seed in seeds:
        template = template_grammar.Grammar(seed).template()
        compiled, notes = dump.compile(template)
        if not compiled:
            with pytest.raises(chatdump.jinja2.exceptions.TemplateError):
                chatdump.reference._cached_compile_jinja_template(template)
                raise AssertionError(f"seed {seed}: jinja2 takes {template!r}, not we: {notes}")
            continue
        wrong = chatdump.compare(dump, template, template_grammar.CONTEXT, {})
        assert wrong is None, f"seed {seed}: {template!r}: {wrong}"
        rendered += dump.render(template_grammar.CONTEXT)[0] == "ok"
    return rendered


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_generated(dump, first):
    assert generated(dump, range(first, first + 250)) >= 40


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("first", range(100000, 140000, 2000))
def test_generated_many(dump, first):
    assert generated(dump, range(first, first + 2000)) >= 320


# Hand-written: each construct once, with what it is to give -------------------------------------------------------

CASES = [
    ("  {% if true %}\n a\n  {%- endif +%}\n b\n", " a\n b"),
    ("{#- c -#}\n{% raw %}{{ x }}{% endraw %}\n", "{{ x }}"),
    ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% else %}none{% endfor %}", "xx"),
    ("{% for m in [1] %}{% break %}{% else %}none{% endfor %}", "none"),
    ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
    ("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "231"),
    ("{% macro f(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}", "1B32"),
    ("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"),
    ("{% set t %}{{ messages[0].content }}!{% endset %}{{ t | upper }}", "ONE!"),
    ("{% filter upper %}a{{ 1.50 }}{% endfilter %}", "A1.5"),
    ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"),
    ("{% generation %}g{% endgeneration %}", "g"),
    ("{{ 'a' ~ none ~ 1 ~ true }}", "aNone1True"),
    ("{{ (1, 'x', [none, {'k': 2.0}]) }}", "(1, 'x', [None, {'k': 2.0}])"),
    ("{{ {'a': '<é\"'} | tojson }}{{ 'é' | tojson(ensure_ascii=true) }}", '{"a": "<é\\""}"\\u00e9"'),
    ("{{ messages | map(attribute='role') | join(',') }}", "user,assistant,user"),
    ("{{ 'abcdef'[::-2] }}{{ [1, 2, 3][-2:] }}", "fdb[2, 3]"),
    ("{{ (x.y is defined) if (x is defined) else 'no' }}", "no"),
    (
        "{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 1e16 }} {{ 0.1 + 0.2 }}",
        "-4 2 1024 3.5 1e+16 0.30000000000000004",
    ),
    ("{{ 0.5 is odd }}{{ 3.0 is odd }}{{ 2.0 is even }}{{ -3 is odd }}", "FalseTrueTrueTrue"),
    ("{{ '%s' if false }}{{ 1 < 2 < 3 }}{{ 'a' in 'cat' }}", "TrueTrue"),
]


@pytest.mark.parametrize("template, expected", CASES)
def test_construct(dump, template, expected):
    chat = {
        "messages": [{"role": r, "content": c} for r, c in (("user", "One"), ("assistant", "Two"), ("user", "Three"))]
    }
    assert dump.compile(template) == (True, [])
    assert dump.render(chat)[:2] == ("ok", expected)
    assert chatdump.oracle(template, chat) == ("ok", expected)


# What is not compiled is said with its place.
@pytest.mark.parametrize(
    "template, note",
    [
        (
            "a\n{% include 'x' %}",
            "2:4: [A0521] statement 'include': a chat template with it is not compiled; the plan takes no chats",
        ),
        (
            "{{ x | lenght }}",
            "1:8: [A0522] filter 'lenght' is not implemented (there is 'length'); the plan takes no chats",
        ),
        (
            "{{ x is definde }}",
            "1:9: [A0522] test 'definde' is not implemented (there is 'defined'); the plan takes no chats",
        ),
        ("{{ x.encode() }}", "1:6: [A0523] method 'encode' is not implemented; the plan takes no chats"),
        ("{{ x[, 1] }}", "1:6: [A0520] ',': expected an index; the plan takes no chats"),
        ("{{ 1 +\n }}", "2:2: [A0520] }}: expected an expression; the plan takes no chats"),
        (
            "{% for a in b %}",
            "1:17: [A0520] the end of the template: expected {% endfor, else; the plan takes no chats",
        ),
        (
            "{{ " + "(" * 70 + "1" + ")" * 70 + " }}",
            "1:68: [A0520] too many brackets inside each other; the plan takes no chats",
        ),
        (
            "{{ " + " + ".join("a" * 300) + " }}",
            "1:794: [A0524] operators, filters or parts in a row of more than 198; the plan takes no chats",
        ),
    ],
)
def test_refused(dump, template, note):
    compiled, notes = dump.compile(template)
    assert not compiled and notes[0] == note


def test_messages_cut_no_code_point(dump):
    """The reason lies in the plan, whose reader takes UTF-8 alone."""
    for n in range(8):
        compiled, notes = dump.compile("{% " + "x" * n + "日本語é" * 200 + " %}")
        assert not compiled and "is not a statement" in notes[0]


def test_large_templates_end(dump):
    """Sizes at which a quadratic compiler would be heard of: refused or compiled, in a moment."""
    for template in (
        '{{ "a" ' + '"b"' * 300000 + " }}",
        "".join(f"{{% set v{i} = {i} %}}" for i in range(40000)),
        "".join(f"{{% if a %}}{{% set v{i} = 1 %}}{{% endif %}}" for i in range(20000)),
        "{{ x }}" * 140000,
        "{{" + "-" * 500000 + "1}}",
    ):
        dump.compile(template)
    assert dump.compile("ok")[0]


# Failures -------------------------------------------------------------------------------------------------------


def user(text="Hi"):
    return {"messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize(
    "template, fault, words",
    [
        ("{{ raise_exception('Roles must ' ~ messages[0].role) }}", "raised", "Roles must user"),
        ("\n{{ none.x }}", "ok", "\n"),
        ("\n\n{{ messages[0].x.y }}", "value", "line 3 of the chat template: 'dict object' has no attribute 'x'"),
        ("{{ a.b }}", "value", "line 1 of the chat template: 'a' is undefined"),
        ("{{ 'a' + 1 }}", "value", "line 1 of the chat template: unsupported operand type(s) for +: 'str' and 'int'"),
        ("{{ messages.append(1) }}", "value", "line 1 of the chat template: 'list object' has no attribute 'append'"),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "limit",
            "line 1 of the chat template: more than 64 macros run inside each other",
        ),
        (
            "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
            "limit",
            "line 1 of the chat template: the template takes more than 10000000 steps",
        ),
        ("{{ 9000000000000000000 * 2 }}", "value", "line 1 of the chat template: a whole number beyond 64 bits"),
        (
            "{{ range(1000000) }}",
            "value",
            "line 1 of the chat template: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).",
        ),
    ],
)
def test_failure(dump, template, fault, words):
    assert dump.compile(template)[0]
    assert dump.render(user())[:2] == (fault, words)


def test_limits(dump):
    assert dump.compile("{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}")[0]
    assert dump.render(user("x" * 100), limits=(10**7, 100000, 1 << 24))[0] == "ok"
    assert dump.render(user("x" * 100), limits=(10**7, 99999, 1 << 24))[:2] == (
        "limit",
        "line 1 of the chat template: the template writes more than 99999 bytes",
    )
    assert dump.render(user("x" * 100), limits=(2000, 100000, 1 << 24))[0] == "limit"
    assert dump.compile(
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    )[0]
    fault, text, _ = dump.render(user())
    assert fault == "limit" and "MiB of memory" in text
    assert dump.compile("{% for i in range(40000) %}{% set x = messages[0].content ~ i %}{% endfor %}ok")[0]
    assert dump.render(user("x" * 1000), limits=(10**7, 1000, 1 << 20))[0] == "limit"


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "not JSON, line 1, column 1: it ends too early"),
        ('{"messages": [{"role": "user",\n "content": "é" x}]}', "not JSON, line 2, column 17: expected ',' or '}'"),
        ('{"messages": [], "messages": []}', "not JSON, line 1, column 18: a name that was there before"),
        ('{"messages": []} x', "not JSON, line 1, column 18: text after the value"),
        ('{"messages": ["\\ud800"]}', "not JSON, line 1, column 16: half of a surrogate pair"),
        (b'{"messages": ["\xff"]}', "not JSON, line 1, column 16: bytes that are not UTF-8"),
        ('{"messages": [' + "[" * 70, "the JSON nests deeper than 64"),
        ('{"messages": [01]}', "not JSON, line 1, column 15: a number that is none"),
        ('{"messages": [99999999999999999999]}', "messages[0]: expected an object"),
        ("[]", "expected an object with messages"),
        ("{}", "messages: expected an array"),
        ('{"messages": {}}', "messages: expected an array"),
        ('{"messages": [1]}', "messages[0]: expected an object"),
        ('{"messages": [], "tools": [{}, 2]}', "tools[1]: expected an object"),
        ('{"messages": [], "model": "x"}', '"model": a conversation has no such member'),
        ('{"messages": [], "add_generation_prompt": 1}', "add_generation_prompt: expected true or false"),
        ('{"messages": [], "chat_template_kwargs": []}', "chat_template_kwargs: expected an object"),
        (
            '{"messages": [], "chat_template_kwargs": {"tools": 1}}',
            'chat_template_kwargs: "tools" is a member of the conversation itself',
        ),
        ('{"messages": [], "continue_final_message": true}', "continue_final_message: there is no message"),
        (
            '{"messages": [{"role": "assistant"}], "continue_final_message": true}',
            'continue_final_message: the final message has no text "content"',
        ),
        (
            '{"messages": [{"content": "a"}], "continue_final_message": true, "add_generation_prompt": true}',
            "continue_final_message and add_generation_prompt exclude each other",
        ),
        (
            '{"messages": [{"content": "a"}], "continue_final_message": true}',
            "continue_final_message: the chat template does not write the final message as it is",
        ),
    ],
)
def test_input(dump, text, words):
    assert dump.compile("fixed")[0]
    fault, said, _ = dump.render(text)
    assert fault in ("input", "limit") and said == words


# Marks ----------------------------------------------------------------------------------------------------------


def written(text, spans):
    """The text with what the template wrote in brackets."""
    data, out, at = text.encode(), "", 0
    for begin, end in spans:
        out += data[at:begin].decode() + "[" + data[begin:end].decode() + "]"
        at = end
    return out + data[at:].decode()


@pytest.mark.parametrize(
    "template, expected",
    [
        ("<|{{ messages[0].role }}|>{{ messages[0].content }}<|end|>", "[<|user|>]A<b>c d[<|end|>]"),
        ("{{ messages[0].content | upper | replace('B', 'xx') }}", "A<[xx]>C D"),
        ("{{ messages[0].content.split('<')[0] ~ '<' ~ messages[0].content[-1:] }}", "A[<]d"),
        ("{{ messages[0].content.split() | join('<|end|>') }}", "A<b>c[<|end|>]d"),
        ("{{ [messages[0].content] }}{{ messages[0].content | tojson }}", "[[']A<b>c d[']\"]A<b>c d[\"]"),
        ("{% set t %}x{{ messages[0].content | trim }}{% endset %}{{ t[1:4] }}{{ t | length }}", "A<b[8]"),
        ("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(messages[0].content[0]) }}", "[<]A[>]"),
        ("{{ messages[0].content | indent(2, true) }}", "[  ]A<b>c d"),
        ("{{ messages[0].other }}{{ messages[0].n }}{{ x }}", "oth[7]kw"),
        ("{% for k in messages[0] %}{{ k }}{% endfor %}", "rolecontentothern"),
    ],
)
def test_marks(dump, template, expected):
    assert dump.compile(template)[0]
    fault, text, spans = dump.render(
        {
            "messages": [{"role": "user", "content": "A<b>c d", "other": "oth", "n": 7}],
            "chat_template_kwargs": {"x": "kw"},
        }
    )
    assert fault == "ok"
    assert written(text, spans) == expected


def test_unknown_role_is_marked(dump):
    assert dump.compile("<|{{ messages[0].role }}|>")[0]
    fault, text, spans = dump.render({"messages": [{"role": "im_end", "content": ""}]})
    assert (fault, written(text, spans)) == ("ok", "[<|]im_end[|>]")


# Shapes ---------------------------------------------------------------------------------------------------------

API = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Wea"}, {"type": "text", "text": "ther?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": '{"b":1, "a":"x"}'}}],
        },
    ],
    "shape_messages": True,
    "add_generation_prompt": False,
}
BODY = "{% for m in messages %}[CONTENT]{% for c in m.tool_calls %}[ARGUMENTS]{% endfor %};{% endfor %}"


@pytest.mark.parametrize(
    "content, arguments, expected",
    [
        ("{{ m.content }}", "{{ c.function.arguments }}", 'Wea\nther?;{"b": 1, "a": "x"};'),
        ("{{ m.content }}", "{{ c.function.arguments | tojson }}", 'Wea\nther?;{"b": 1, "a": "x"};'),
        ("{{ m.content + '.' }}", "{{ '<' + c.function.arguments }}", 'Wea\nther?.;.<{"b":1, "a":"x"};'),
        (
            "{{ m.content | trim }}",
            "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }} {% endfor %}",
            "Wea\nther?;b=1 a=x ;",
        ),
        ("{% for p in m.content or [] %}({{ p.text }}){% endfor %}", "{{ c.function.arguments.a }}", "(Wea)(ther?);x;"),
        (
            "{% if m.content is none %}null{% else %}{{ m.content }}{% endif %}",
            "{{ c.function.arguments }}",
            'Wea\nther?;null{"b":1, "a":"x"};',
        ),
        (
            "{% if m.content is not string and m.content is not none %}{{ raise_exception('text!') }}{% endif %}",
            "",
            ";;",
        ),
    ],
)
def test_shapes(dump, content, arguments, expected):
    template = BODY.replace("", "").replace("[CONTENT]", content).replace("[ARGUMENTS]", arguments)
    assert dump.compile(template)[0]
    fault, text, _ = dump.render(API)
    assert (fault, text) == (
        "ok",
        expected.replace('{"b": 1, "a": "x"}', '{"b":1, "a":"x"}') if "tojson" not in arguments else expected,
    )


def test_shapes_that_nothing_helps(dump):
    """The first failure is reported; without shape_messages nothing is changed."""
    assert dump.compile("{{ raise_exception('no ' ~ (messages[0].content is string)) }}")[0]
    assert dump.render(API)[:2] == ("raised", "no False")
    assert dump.compile("{{ messages[1].content }}{{ messages[1].tool_calls[0].function.arguments | tojson }}")[0]
    fault, text, _ = dump.render({k: v for k, v in API.items() if k != "shape_messages"})
    assert (fault, text) == ("ok", 'None"{\\"b\\":1, \\"a\\":\\"x\\"}"')


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="tables are of Unicode 14")
def test_case_of_every_code_point(dump):
    """As str has them; also of which are letters, which are digits or blanks, and where words with them end."""
    points = [chr(c) for c in range(0x80, 0x20000) if not 0xD800 <= c < 0xE000]
    for template, case in (
        ("m.content.upper()", str.upper),
        ("m.content.lower()", str.lower),
        ("m.content.title()", str.title),
        ("m.content.capitalize()", str.capitalize),
        ("m.content | title", jinja2.filters.do_title),
        ("m.content[0] is lower", lambda word: str(word[0].islower())),
        ("m.content[0] is upper", lambda word: str(word[0].isupper())),
        ("m.content[0] | int", lambda word: str(int(word[0])) if word[0].isdecimal() else "0"),
        (
            "(m.content[0] ~ '1' ~ m.content[0]) | float",
            lambda word: str(jinja2.filters.do_float(word[0] + "1" + word[0])),
        ),
    ):
        assert dump.compile("{%% for m in messages %%}{{ %s }}\n{%% endfor %%}" % template)[0]
        for first in range(0, len(points), 2048):
            # Alone, before and after a letter, between what may be letters and sigmas at the end of a word or not.
            words = [
                f"{c} a{c} {c}b a{c}\u03a3 1{c}\u03a3 a\u03a3{c}b a\u03a3{c}" for c in points[first : first + 2048]
            ]
            text = dump.render({"messages": [{"role": "user", "content": w} for w in words]})[1]
            assert text == "".join(case(w) + "\n" for w in words)


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="tables are of Unicode 14")
def test_repr_of_every_code_point(dump):
    """What a list writes of its strings: escapes for what cannot be printed."""
    points = [chr(c) for c in range(0x20, 0x110000) if not 0xD800 <= c < 0xE000]
    assert dump.compile("{% for m in messages %}{{ [m.content] }}\n{% endfor %}")[0]
    for first in range(0, len(points), 8192):
        some = points[first : first + 8192]
        text = dump.render({"messages": [{"role": "user", "content": c} for c in some]})[1]
        assert text == "".join(repr([c]) + "\n" for c in some)
