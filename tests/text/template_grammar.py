"""Random chat templates of the grammar that is compiled, for comparison with jinja2."""

import random

NAMES = ["a", "b", "n", "items", "word", "data", "nothing", "messages", "x", "y", "z"]
TEXTS = [
    "",
    "a",
    "Hello World",
    " pad \n",
    "äÖß",
    "x,y,,z",
    "<b>'\"&",
    "日本 語",
    "1",
    "-2.5",
    "ab" * 5,
    "\t",
    "é\u0301",
    "İ",
    "{} {0}{{",
    "{b}: {}",
    "snake_case-of (some) [words]",
    "ΑΣ ς",
]
FILTERS = [
    "abs",
    "capitalize",
    "count",
    "default('D')",
    "default('D', true)",
    "d",
    "dictsort",
    "first",
    "float",
    "int",
    "int(7)",
    "items|list",
    "join",
    "join(',')",
    "join('-', 'k')",
    "last",
    "length",
    "list",
    "lower",
    "upper",
    "trim",
    "trim('a ')",
    "max",
    "min",
    "reject('none')|list",
    "select|list",
    "select('defined')|list",
    "select('string')|list",
    "selectattr('k')|list",
    "selectattr('k', 'equalto', 1)|list",
    "rejectattr('k', 'defined')|list",
    "map('upper')|list",
    "map(attribute='k')|list",
    "map(attribute='k', default=0)|list",
    "map('string')|join('|')",
    "replace('a', 'Z')",
    "replace('', '.', 2)",
    "reverse|list",
    "safe",
    "sort",
    "sort(reverse=true)",
    "string",
    "sum",
    "tojson",
    "tojson(indent=2)",
    "tojson(ensure_ascii=true)",
    "tojson(sort_keys=true, separators=(',',':'))",
    "unique|list",
    "indent",
    "indent(2, true)",
    "indent(width=1, blank=true)",
    "sort(attribute='k')",
    "dictsort(by='value')",
    "title",
    "round",
    "round(1)",
    "round(2)|string",
]
TESTS = [
    "boolean",
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "iterable",
    "mapping",
    "sequence",
    "true",
    "false",
    "even",
    "odd",
    "lower",
    "upper",
    "callable",
    "in items",
    "in 'abc'",
    "eq 1",
    "equalto('a')",
    "ne n",
    "sameas true",
    "divisibleby 3",
    "gt 1",
    "lt('b')",
    ">= 2",
]
METHODS = [
    "strip()",
    "strip('a')",
    "lstrip()",
    "rstrip('\\n')",
    "split()",
    "split(',')",
    "split(',', 1)",
    "rsplit(' ', 1)",
    "upper()",
    "lower()",
    "title()",
    "capitalize()",
    "startswith('a')",
    "endswith(('a', 'b'))",
    "replace('a', 'b')",
    "find('l')",
    "rfind('l')",
    "count('a')",
    "splitlines()",
    "items()|list",
    "keys()|list",
    "values()|list",
    "get('k')",
    "get('q', 5)",
    "index(1)",
    "count(1)",
    "isdigit()",
    "isalpha()",
    "removeprefix('a')",
    "removesuffix('b')",
    "join(['a', 'b'])",
    "format(n, 'x')",
    "format('y', b=word)",
]
ATTRIBUTES = [
    ".k",
    "['k']",
    ".role",
    ".content",
    "[0]",
    "[-1]",
    "['items']",
    ".items",
    ".q",
    "[1:]",
    "[:-1]",
    "[::-1]",
    "[::2]",
    "[-3:2]",
    "[5:1:-2]",
    ".0",
]


class Grammar:
    """Templates of one seed; each call of template() is another one."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.macros, self.loops, self.spaces = [], 0, []

    def pick(self, *of):
        return self.random.choice(of)

    def literal(self):
        kind = self.random.randrange(9)
        if kind < 3:
            text = self.random.choice(TEXTS)
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
        if kind == 3:
            return str(self.random.choice([0, 1, 2, 3, -1, 7, 10, 255]))
        if kind == 4:
            return str(self.random.choice([0.5, 1.0, 2.25, 1e20, 1e-7, 3.14159]))
        if kind == 5:
            return self.pick("true", "false", "none", "True", "None")
        if kind == 6:
            return "[" + ", ".join(self.expression(3) for _ in range(self.random.randrange(4))) + "]"
        if kind == 7:
            return "(" + "".join(self.expression(3) + ", " for _ in range(self.random.randrange(1, 3))) + ")"
        pairs = [self.pick('"k"', '"j"', "1") + ": " + self.expression(3) for _ in range(self.random.randrange(3))]
        return "{" + ", ".join(pairs) + "}"

    def name(self):
        loop = [
            "loop.index",
            "loop.index0",
            "loop.first",
            "loop.last",
            "loop.length",
            "loop.revindex",
            "loop.previtem",
            "loop.nextitem",
            "loop.cycle('p', 'q')",
            "loop.changed(x)",
            "loop.depth",
        ]
        if self.loops and self.random.random() < 0.3:
            return self.random.choice(loop)
        if self.spaces and self.random.random() < 0.3:
            return self.random.choice(self.spaces) + self.pick(".v", ".w", "['v']")
        return self.random.choice(NAMES)

    def call(self):
        name, n = self.random.choice(self.macros)
        given = [self.expression(3) for _ in range(self.random.randrange(n + 1))]
        if self.random.random() < 0.3 and len(given) < n:
            given.append(f"p{n - 1}={self.expression(3)}")
        return f"{name}({', '.join(given)})"

    def expression(self, depth=0):
        kind = self.random.randrange(17) if depth < 3 else self.random.randrange(3)
        inner = lambda: self.expression(depth + 1)  # noqa: E731
        if kind == 0:
            return self.literal()
        if kind in (1, 2):
            return self.name()
        if kind == 3:
            if self.random.random() < 0.1:
                return f"({self.pick('n', '7', '-7', '2.5')} % {self.pick('n', '2', '-3', '0.7', 'x')})"
            return f"({inner()} {self.pick('+', '-', '*', '/', '//', '**', '~', '+', '~')} {inner()})"
        if kind == 4:
            return f"({inner()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {inner()})"
        if kind == 5:
            return f"({inner()} {self.pick('and', 'or')} {inner()})"
        if kind == 6:
            return f"(not {inner()})"
        if kind == 7:
            return f"({inner()} if {inner()}" + (f" else {inner()})" if self.random.random() < 0.7 else ")")
        if kind in (8, 9):
            return f"{self.primary(depth)}|{self.random.choice(FILTERS)}"
        if kind == 10:
            return f"({self.primary(depth)} is {self.pick('', '', 'not ')}{self.random.choice(TESTS)})"
        if kind == 11:
            return f"{self.primary(depth)}.{self.random.choice(METHODS)}"
        if kind in (12, 13):
            return self.pick(
                self.name(), self.name(), f"({self.name()} or {self.expression(depth + 1)})"
            ) + self.random.choice(ATTRIBUTES)
        if kind == 14:
            return f"range({self.random.choice(['3', '1, 4', '5, 0, -2', 'n', '2, n'])})|list"
        if kind == 15:
            return self.call() if self.macros else self.literal()
        return f"(-{inner()})"

    def primary(self, depth):
        return self.pick(self.name(), self.name(), f"({self.expression(depth + 1)})", self.literal())

    def tag(self, text):
        return "{%" + self.pick("", "", "", "-", "+") + f" {text} " + self.pick("", "", "", "-") + "%}"

    def text(self):
        return self.pick("x", " ", "\n", "  \n  ", "a b\n", "\n\n", "{# note #}", "{#- note -#}\n", "é", "\t", "")

    def body(self, depth):
        return "".join(self.statement(depth + 1) for _ in range(self.random.randrange(1, 4)))

    def target(self):
        return self.random.choice(NAMES)

    def statement(self, depth=0):
        kind = self.random.randrange(20)
        if kind < 6 or depth > 3:
            return (
                self.text()
                + "{{"
                + self.pick("", "", "-")
                + f" {self.expression()} "
                + self.pick("", "", "-")
                + "}}"
                + self.text()
            )
        if kind < 9:
            return self.tag(f"set {self.target()} = {self.expression()}") + self.text()
        if kind == 9:
            return self.tag(f"set {self.target()}, {self.target()} = {self.pick('(1, 2)', 'items', self.expression())}")
        if kind in (10, 11):
            out = self.tag(f"if {self.expression()}") + self.body(depth)
            for _ in range(self.random.randrange(3)):
                out += self.tag(f"elif {self.expression()}") + self.body(depth)
            return out + (self.tag("else") + self.body(depth) if self.random.random() < 0.5 else "") + self.tag("endif")
        if kind in (12, 13, 14):
            return self.loop(depth)
        if kind == 15:
            return (
                self.tag(f"set {self.target()}{self.pick('', ' | upper', ' | trim')}")
                + self.body(depth)
                + self.tag("endset")
            )
        if kind == 16:
            if depth == 0 or self.random.random() < 0.3:
                return self.macro(depth)
            name = self.pick("upper", "trim", "replace('a', 'o')", "indent")
            return self.tag(f"filter {name}") + self.body(depth) + self.tag("endfilter")
        if kind == 17:
            return self.tag(f"with {self.target()} = {self.expression()}") + self.body(depth) + self.tag("endwith")
        if kind == 18:
            if self.spaces and self.random.random() < 0.7:
                return self.tag(f"set {self.random.choice(self.spaces)}.{self.pick('v', 'w')} = {self.expression()}")
            if depth == 0:
                self.spaces.append(f"ns{len(self.spaces)}")
                return self.tag(f"set {self.spaces[-1]} = namespace(v={self.expression(2)}, w=0)")
        loops, self.loops = self.loops, 0
        out = self.tag("generation") + self.body(depth) + self.tag("endgeneration")
        self.loops = loops
        return out

    def loop(self, depth):
        target = self.pick(self.target(), self.target(), f"{self.target()}, {self.target()}")
        over = self.pick(
            "items",
            "items",
            "messages",
            "data",
            "data.items()",
            "word",
            "[1, 2, 3]",
            "[(1, 2), (3, 4)]",
            "range(3)",
            "data|items",
            self.expression(),
        )
        test = f" if {self.expression(1)}" if self.random.random() < 0.25 else ""
        out = self.tag(f"for {target} in {over}{test}")
        self.loops += 1
        out += self.body(depth)
        if self.random.random() < 0.25:
            out += (
                self.tag(f"if {self.expression(2)}")
                + self.tag(self.pick("break", "continue"))
                + self.tag("endif")
                + self.body(depth)
            )
        self.loops -= 1
        return out + (self.tag("else") + self.body(depth) if self.random.random() < 0.2 else "") + self.tag("endfor")

    def macro(self, depth):
        name, n = f"m{len(self.macros)}", self.random.randrange(3)
        params = [f"p{i}" for i in range(n)]
        if n and self.random.random() < 0.5:
            params[-1] += f"={self.expression(3)}"
        loops, self.loops = self.loops, 0
        names = list(NAMES)
        NAMES.extend(f"p{i}" for i in range(n))
        out = self.tag(f"macro {name}({', '.join(params)})") + self.body(depth) + self.tag("endmacro")
        NAMES[:] = names
        self.loops = loops
        self.macros.append((name, n))
        return out

    def template(self):
        self.macros, self.loops, self.spaces = [], 0, []
        return "".join(self.statement() for _ in range(self.random.randrange(1, 4)))


CONTEXT = {
    "messages": [
        {"role": "user", "content": "Hi <there>", "k": 1},
        {"role": "assistant", "content": "Yo\n", "items": [3]},
    ],
    "chat_template_kwargs": {
        "a": 1,
        "b": "bee",
        "n": 4,
        "items": [3, 1, 2, 1],
        "word": "a b a",
        "nothing": None,
        "data": {"k": "v", "j": [1, 2.5, None, True], "items": {"q": '"x"'}},
    },
}
