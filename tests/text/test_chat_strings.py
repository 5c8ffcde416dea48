"""Filters, tests and methods of strings and numbers against jinja2, with random strings of all of Unicode."""

import random
import unicodedata

import chatdump
import pytest

# Letters whose case is odd (of several letters, title case, no other case, sigma), what the rule of sigma looks through
# (marks, apostrophes), blanks, line ends, digits of other scripts, what begins a word.
POINTS = (
    "aAbBzZ \u00df\u01c6\u01c5\u01c4\ufb01\u0149\u0130\u0131\u00aa\u00ba\u02b0\u2177\u24d0\u03a3\u03a3\u03a3\u03c3\u03c2\u0391\u0390"
    "\u1fb3\u1fbc\u0345\u0301'\u2019.:\u00b7\u00ad\u200d\u65e5\u0138\U0001d400\U00010400\U00010428"
    ' \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000-({[<)}]>_0123456789\u0663\u096b\u00b2\u00bd+,"\\&%'
)
NUMBERS = ["0", "1", "2", "-1", "17", "1.5", "2.5", "-0.5", "1e3", "none", "true", "'1'", "a", "[]"]
# s, a, b are strings, c is an empty one; each N is one of NUMBERS.
EXPRESSIONS = [
    "s|title",
    "s|upper",
    "s|lower",
    "s|capitalize",
    "s.title()",
    "s.upper()",
    "s.lower()",
    "s.capitalize()",
    "s is lower",
    "s is upper",
    "s|trim",
    "s|trim(a)",
    "s.strip()",
    "s.strip(a)",
    "s.lstrip(a)",
    "s.rstrip(a)",
    "s.lstrip()",
    "s.rstrip()",
    "s.split()",
    "s.split(a)",
    "s.split(none, N)",
    "s.rsplit(none, N)",
    "s.split(a, N)",
    "s.rsplit(a, N)",
    "s.rsplit(a)",
    "s.splitlines()",
    "s.splitlines(true)",
    "s|replace(a, b)",
    "s|replace(a, b, N)",
    "s.replace(a, b)",
    "s.replace(a, b, N)",
    "s|replace(c, s)",
    "s|indent",
    "s|indent(N)",
    "s|indent(a)",
    "s|indent(N, true)",
    "s|indent(N, true, true)",
    "s|indent(a, false, true)",
    "s|int",
    "s|int(N)",
    "s|int(7, 16)",
    "s|int(7, N)",
    "s|int(base=8)",
    "s|float",
    "s|float(N)",
    "s|length",
    "s|reverse",
    "s|first",
    "s|last",
    "s|list",
    "s|join(a)",
    "s|tojson",
    "s|string",
    "s|sort",
    "s|unique|list",
    "s|min",
    "s|max",
    "[s, a, b, c]|sort",
    "[s, a, b, c]|unique|list",
    "[s, a, b, c]|min",
    "[s, a, b, c]|max",
    "{s: 1, a: 2}|dictsort",
    "s.find(a)",
    "s.rfind(a)",
    "s.count(a)",
    "s.index(a)",
    "s.find(a, N)",
    "s.find(a, N, N)",
    "s.rfind(a, N)",
    "s.count(a, N, N)",
    "s.startswith(a)",
    "s.endswith(a)",
    "s.startswith((a, b))",
    "s.removeprefix(a)",
    "s.removesuffix(a)",
    "s.isdigit()",
    "s.isalpha()",
    "s.join([a, b])",
    "a in s",
    "s < a",
    "s == a",
    "s[N]",
    "s[N:]",
    "s[:N]",
    "s[N:N]",
    "s[::-1]",
    "s[N:N:-2]",
    "s * N",
    "s ~ N",
    "s + a",
    "N|round",
    "N|round(N)",
    "N|round(N, 'common')",
    "N|round(N, 'ceil')",
    "N|round(N, 'floor')",
    "N|round(precision=N)",
    "N|round(none)",
    "N|abs",
    "N|int",
    "N|float",
    "N|string",
    "s|default(a)",
    "s|default(a, true)",
    "N|title",
    "N|upper",
    "N|trim",
    "N|replace('1', a)",
    "N|indent",
    "[N, N, N]|sum",
    "[N, N]|sum(start=N)",
    "[N, N]|sort",
    "[N, N]|max",
    "[N, N]|join(a)",
    "s|tojson|replace('a', '<')",
    "(N/3)|round(N)",
    "(N/3)|round(N, 'floor')",
    "(N*100)|round(none)",
    "s|title|length",
    "s|upper is upper",
    "s.index(a, N)",
]


def number(rng):
    """A text that may be a number."""
    digits = "".join(rng.choice("0123456789_.e+-xXoba\u0663") for _ in range(rng.randrange(8)))
    return rng.choice(["", "-", "+", " ", "0x", "\x1f", "\u3000"]) + digits + rng.choice(["", " ", "\n"])


def word(rng):
    kind = rng.randrange(10)
    if kind < 2:
        return number(rng)
    if kind == 2:
        return "".join(chr(rng.choice((0, 0x800, 0xE000, 0x10000)) + rng.randrange(0x800)) for _ in range(6))
    return "".join(rng.choice(POINTS) for _ in range(rng.randrange(12)))


def drawn(dump, expression, seed, n):
    """How many of n renderings with random strings gave a text, after comparing all."""
    rng = random.Random(f"{expression} {seed}")
    rendered = 0
    for _ in range(n):
        template = "{{ [" + expression + "] }}"  # in a list, so that types show
        while "N" in template:
            template = template.replace("N", rng.choice(NUMBERS), 1)
        s = word(rng)
        given = {"s": s, "a": rng.choice([word(rng)[:2], s[: rng.randrange(3)], "a", " "]), "b": word(rng), "c": ""}
        assert dump.compile(template) == (True, [])
        chat = {"messages": [], "chat_template_kwargs": given}
        wrong = chatdump.compare(dump, template, chat, {})
        assert wrong is None, f"{template} of {given}: {wrong}"
        rendered += dump.render(chat)[0] == "ok"
    return rendered


@pytest.fixture(scope="module")
def dump(build_dir):
    d = chatdump.Chatdump(build_dir / "tests" / "chatdump")
    yield d
    d.close()


unicode_14 = pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="tables are of Unicode 14")


@unicode_14
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_drawn(dump, expression):
    assert drawn(dump, expression, 0, 40) >= 3


@unicode_14
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_drawn_many(dump, expression):
    assert drawn(dump, expression, 1, 2000) >= 50
