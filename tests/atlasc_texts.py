"""Texts that atlasc reads and prints, for tests of several folders: the MODEL.toml of a fixture with other buckets, the
dumps of fuse and pick-kernels (`-d f`, `-d k`), the clauses of kernel contracts."""

from __future__ import annotations

import dataclasses
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parent.parent


def fixture_options(fixture: str, *, invariant: bool, slots: int = 0, extra: str = "", **buckets: list[int]) -> str:
    """The MODEL.toml of tests/fixtures/FIXTURE with numerics.invariant. Its buckets of prefill and decode are those given,
    else the family's; slots 0: those of the fixture. `extra` are further lines."""
    text = (REPO / "tests" / "fixtures" / fixture / "MODEL.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(prefill|decode) = .*\n", "", text)
    text = text.replace("[phases]\n", "[phases]\n" + "".join(f"{name} = {rows}\n" for name, rows in buckets.items()))
    text, n = re.subn(r"(?m)^slots = .*", f"slots = {slots}" if slots else r"\g<0>", text)
    assert n == 1 and text.count("[phases]") == 1, fixture
    return f"{text}\n[numerics]\ninvariant = {str(invariant).lower()}\n{extra}"


@dataclasses.dataclass
class Launch:
    """A launch of a phase."""

    layer: int  # -1: before the first
    op: str
    operands: dict[str, str]  # name: tensor[shape]dtype
    kernel: str = ""  # of `-d k`, as are the fields that follow
    grid: tuple[int, ...] = ()
    block: int = 0
    constants: dict[str, str] = dataclasses.field(default_factory=dict)


def launches(dump: str) -> dict[tuple[str, int], list[Launch]]:
    """{(phase, rows): its launches in their order} of a dump for one target."""
    phases: dict[tuple[str, int], list[Launch]] = {}
    here: list[Launch] = []
    for line in dump.splitlines():
        if head := re.match(r"phase +\S+ (\w+) rows (\d+) ", line):
            key = (head[1], int(head[2]))
            assert key not in phases, key
            here = phases[key] = []
        elif op := re.match(r"  (-?\d+) +(\w+) +(\w+=.*)", line):
            here.append(Launch(int(op[1]), op[2], dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", op[3]))))
        elif kernel := re.match(r"      (\w+)  grid (\d+) (\d+) (\d+)  block (\d+) ", line):
            last = here[-1]
            last.kernel, last.grid, last.block = kernel[1], tuple(map(int, kernel.groups()[1:4])), int(kernel[5])
        elif re.match(r"      [A-Z_0-9]+=", line):
            here[-1].constants = dict(word.split("=", 1) for word in line.split())
    assert phases and all(phases.values()), dump[:300]
    return phases


def clause_at(file: str, line: int) -> str:
    """The clause of a kernel contract that begins in a line of a file of the repository, in one line, from its keyword to
    the parenthesis that closes it."""
    text = (REPO / file).read_text(encoding="utf-8").split("\n", line - 1)[-1]
    return " ".join(text[: end_of_call(text, text.index("("))].split())


def end_of_call(text: str, at: int) -> int:
    """The place after the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    raise AssertionError(f"not closed: {text[at : at + 80]}")


FORMULA = re.compile(r"\b(?!(?:ceil_div|min|max|align)\b)[a-z]\w*\(|\b(?:MATRICES|VERIFY|KV_CODES|[XY]_BITS)\b")


def clause_states(clause: str, predicate: str) -> bool:
    """Does the clause have the predicate that atlasc prints of it? Formulas of the contract and the parameters of a family
    are written out there: what is around them must be the same, in its order."""
    text, at, pattern = clause[clause.index("(") + 1 : -1], 0, ""
    while formula := FORMULA.search(text, at):
        pattern += re.escape(text[at : formula.start()]) + ".+"
        at = end_of_call(text, formula.end() - 1) if formula[0].endswith("(") else formula.end()
    return re.fullmatch(pattern + re.escape(text[at:]), predicate) is not None
