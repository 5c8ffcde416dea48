"""The layout of C sources that no reviewer has to watch: mends it, or names what is to be mended.

    scripts/format_c.py [--check] [FILE...]

Without FILE: every .c and .h file of artifacts, compiler, models, runtime and tests. Rules:

  - lines end with LF and without blanks, the file with one newline; no two empty lines in a row
  - tabs indent; blanks after them only align
  - && and || end a line; none starts with them
  - a body of a function on a line of its own has its braces on theirs
  - the #include lines on top: our own files first, then an empty line, then those of the system

Exit code: 0 nothing to do or all mended, 1 with --check what `make format` would change, or what it cannot mend.
"""

import pathlib
import re
import sys

ROOMS = ("artifacts", "compiler", "models", "runtime", "tests")
WIDTH = 120  # columns, tabs of 4
OPERATOR = re.compile(r"^(\s*)(&&|\|\|) (.*)$")
BODY = re.compile(r"^\{ (.*;) \}$")
BLANKS = re.compile(r"^\t*(    )+")
INCLUDE = re.compile(r'^#include ([<"])')


def columns(line):
    return len(line.expandtabs(4))


def tabs(found):
    return "\t" * (columns(found[0]) // 4)


def is_comment_end(line):
    return line.endswith("*/") or "//" in line


def operators(lines, problem):
    """Moves && and || from the start of a line to the end of the line before."""
    out = []
    for number, line in enumerate(lines, 1):
        found = OPERATOR.match(line)
        if not found or not out:
            out.append(line)
            continue
        indent, operator, rest = found.groups()
        before = out[-1]
        tail = " \\" if before.endswith("\\") else ""
        if tail:
            before = before[:-1].rstrip()
        if is_comment_end(before) or before.lstrip().startswith(("#", "*", "/*")):
            problem(number, f"{operator} starts the line, and the line before ends with a comment")
            out.append(line)
        elif columns(f"{before} {operator}{tail}") <= WIDTH:
            out[-1:] = [f"{before} {operator}{tail}", indent + rest]
        else:
            problem(number, f"{operator} starts the line, and the line before has no room for it")
            out.append(line)
    return out


def bodies(lines):
    """{ return x; } on a line of its own becomes three lines."""
    out = []
    for line in lines:
        found = BODY.match(line)
        out += ["{", "\t" + found.group(1), "}"] if found else [line]
    return out


def includes(lines):
    """Sorts the first block of #include lines into ours and the system's, each in the order it had."""
    first = next((i for i, line in enumerate(lines) if INCLUDE.match(line)), None)
    if first is None:
        return lines
    end = first
    while end < len(lines) and (not lines[end] or INCLUDE.match(lines[end])):
        end += 1
    block = [line for line in lines[first:end] if line]
    own = [line for line in block if line[9] == '"']
    system = [line for line in block if line[9] == "<"]
    trailing = [""] if end < len(lines) and not lines[end - 1] else []
    return lines[:first] + own + ([""] if own and system else []) + system + trailing + lines[end:]


def formatted(text, problem):
    lines = [BLANKS.sub(tabs, line.rstrip()) for line in text.replace("\r\n", "\n").split("\n")]
    lines = includes(bodies(operators(lines, problem)))
    out = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join(out).strip("\n") + "\n"


def sources():
    return sorted(path for room in ROOMS for path in pathlib.Path(room).rglob("*.[ch]"))


def main(args):
    is_check = args[:1] == ["--check"]
    bad = False
    for path in [pathlib.Path(name) for name in args[is_check:]] or sources():
        text = path.read_bytes().decode()
        problems = []
        new = formatted(text, lambda number, what: problems.append((number, what)))
        for number, what in problems:
            print(f"{path}:{number}: {what}")
            bad = True
        if new == text:
            continue
        if is_check:
            pairs = zip(text.split("\n"), new.split("\n"))
            number = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 1)
            print(f"{path}:{number}: `make format` would change this line")
            bad = True
        else:
            path.write_bytes(new.encode())
            print(f"formatted {path}")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
