#!/usr/bin/env python3
"""Re-evaluates every verdict of a plan's ledgers from `atlas audit PLAN --json` on stdin, and from nothing else: a
candidate must be rejected exactly when its contract and the operands do not admit it, the chosen one be the cheapest of
those ranked, with the grid, shared memory, bytes and operations of the contract's formulas. Terms: artifacts/plan.h."""

import itertools
import json
import operator
import re
import sys

TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\|\||&&|[<>=!]=|[-+*/%<>!?:(),])")
BITS = {"bf16": 16, "f16": 16, "f32": 32, "i32": 32, "e4m3": 8, "e8m0": 8, "e2m1": 4}
LEVELS = [["||"], ["&&"], ["==", "!="], ["<=", ">=", "<", ">"], ["+", "-"], ["*", "/", "%"]]
OPS = {
    "||": lambda a, b: bool(a or b),
    "&&": lambda a, b: bool(a and b),
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: a - OPS["/"](a, b) * b,
}


Rejected = type("Rejected", (Exception,), {})


def demand(holds, what):
    if not holds:
        raise Rejected(what)


def evaluate(text, env):
    """A C expression of whole numbers; what && || ?: skip is not computed, so that it may divide by zero."""
    tokens, at = [*TOKEN.findall(text), ""], 0
    assert "".join(tokens) == re.sub(r"\s", "", text), text

    def take(*wanted):
        nonlocal at
        at += (found := tokens[at] in wanted)
        return tokens[at - 1] if found else None

    def primary(live):
        nonlocal at
        word, at = tokens[at], at + 1
        if word in ("!", "-", "+"):
            return int({"!": operator.not_, "-": operator.neg, "+": operator.pos}[word](primary(live)))
        if word == "(":
            return (ternary(live), take(")"))[0]
        if take("("):
            a, _, b, _ = ternary(live), take(","), ternary(live), take(")")
            if word in ("min", "max") or not live:
                return max(a, b) if word == "max" else min(a, b)
            demand(b > 0, f"{text}: {word} by {b}")
            return -(-a // b) * {"ceil_div": 1, "align": b}[word]
        demand(word.isdigit() or word in env, f"{text}: unknown name {word}")
        return int(word) if word.isdigit() else env[word]

    def binary(level, live):
        if level == len(LEVELS):
            return primary(live)
        a = binary(level + 1, live)
        while op := take(*LEVELS[level]):
            b = binary(level + 1, live and not (op == "||" and a or op == "&&" and not a))
            a = int(OPS[op](a, b)) if live else 1
        return a

    def ternary(live):
        v = binary(0, live)
        yes, _, no = (ternary(live and bool(v)), take(":"), ternary(live and not v)) if take("?") else (v, None, v)
        return yes if v else no

    value = ternary(True)
    return value if not tokens[at] else demand(False, text)


def order_of(terms, env):
    """'stream(8,64,2) squares(0)': what the contract's ORDER terms come to."""
    words = []
    for word, text in terms:
        items = [""]
        for c in text:
            parted = c == "," and items[-1].count("(") == items[-1].count(")")
            items = [*items, ""] if parted else [*items[:-1], items[-1] + c]
        values = ",".join(str(evaluate(i, env)) for i in items if i.strip())
        words.append(f"{word}({values})" if values else word)
    return " ".join(words)


def admit(target, contract, launch, tunables):
    """Of an admissible candidate the formulas' values, its order, and "preferred" or "pruned", as the contract has it."""

    def of(kind):
        return [(t["name"], t["text"]) for t in contract["terms"] if t["kind"] == kind]

    number, exact = re.fullmatch(r"sm_(\d+)(a?)", target["target"]).groups()
    demand(any(int(number) >= int(a) if a.isdigit() else a == number + exact for a, _ in of("arch")), "architecture")
    operands = {n: (d, s.split(",")) for n, d, s in re.findall(r"(\w+) (\w+) \[([^]]*)\]", launch["operands"])}
    fields, flags, allowed, dims = dict(of("operand")), dict(of("flag")), dict(of("dtype")), [n for n, _ in of("dim")]
    demand(set(operands) <= set(fields), "an operand that the contract does not take")
    attrs = dict(w.split("=") for w in launch["attrs"].split())
    env = {n: int(attrs[n]) for n, _ in of("attr") if n in attrs} | tunables
    env |= {flag: int(name in operands) for name, flag in flags.items()}
    demand(all(n in operands or n in flags for n in fields), "an operand is absent")
    bound, late = {}, []
    for name, (dtype, shape) in ((n, operands[n]) for n in fields if n in operands):
        var, text = re.fullmatch(r"(\w+) \[(.*)\]", fields[name]).groups()
        demand(bound.setdefault(var, dtype) == dtype if var in allowed else var == dtype, f"{name} is {dtype}")
        demand(var not in allowed or dtype in allowed[var].split(), f"{name} is {dtype}")
        items = [i.strip() for i in re.findall(r"(?:[^,(]|\([^()]*(?:\([^()]*\)[^()]*)*\))+", text)]
        demand(len(items) == len(shape), f"dims of {name}")
        for item, have in zip(items, shape):
            have = 0 if have == "*" else int(have)
            if item in dims and item not in env:
                env[item] = have
            else:
                late.append((name, item, have))
    for name, item, have in late:
        demand(have in (0, evaluate(item, env)), f"{name}: {item} against {have}")
    env |= {n: 0 for n in dims if n not in env} | {"SMEM_MAX": target["smem_block_bytes"], "SMS": target["n_sms"]}
    for var, types in allowed.items():
        bits = BITS[bound.get(var, types.split()[0])]
        env |= {f"{var}_BITS": bits} | ({f"{var}_BYTES": bits // 8} if bits >= 8 else {})
    for _, text in of("requires"):
        demand(evaluate(text, env), f"{text} is false")
    limits = {
        "grid.x": (1, 2**31 - 1),
        "grid.y": (1, 65535),
        "grid.z": (1, 65535),
        "block": (1, 1024),
        "smem": (0, target["smem_block_bytes"]),
    } | dict.fromkeys(("reads", "writes", "flops"), (0, 2**63 - 1))
    got = {k: evaluate(of(k)[0][1], env) for k in limits}
    for k, (least, most) in limits.items():
        demand(least <= got[k] <= most, f"{k} = {got[k]}")
    for (name, rows), (_, columns) in zip(of("map.rows"), of("map.columns")):
        dtype, shape = operands[name]
        demand(1 <= evaluate(rows, env) <= 256 and evaluate(columns, env) * BITS[dtype] == 1024, f"tile of {name}")
        demand(len(shape) >= 2 and int(shape[-1]) * BITS[dtype] // 8 % 16 == 0, f"rows of {name}")
    return got, order_of(of("order"), env), "preferred" if all(evaluate(t, env) for _, t in of("prefers")) else "pruned"


def admitted(target, contract, launch, c):
    """The same of each combination of tunables that the candidate stands for."""
    given = {k: int(v) for k, v in (w.split("=") for w in c["tunables"].split())}
    tunables = [(t["name"], map(int, t["text"].split())) for t in contract["terms"] if t["kind"] == "tunable"]
    for x in itertools.product(*([(n, v) for v in values if given.get(n, v) == v] for n, values in tunables)):
        try:
            yield admit(target, contract, launch, dict(x))
        except (Rejected, ZeroDivisionError):
            yield {}, "", "rejected"


def recheck(audit):
    contracts, n, bad = {(k["op"], k["template"]): k for k in audit["contracts"]}, 0, []
    is_free = audit["options"].get("numerics.invariant") != "true"
    for target in audit["targets"]:
        for phase, launch in ((p, x) for p in target["phases"] for x in p["launches"]):
            where = f"{target['target']} {phase['phase']}[{phase['rows']}] layers {launch['layers']} {launch['op']}"
            seen = [
                (c, list(admitted(target, contracts[launch["op"], c["template"]], launch, c)))
                for c in launch["candidates"]
            ]
            ranked = [c for c, _ in seen if c["verdict"] in ("chosen", "slower")]
            best = {got[0][2] for c, got in seen if c["verdict"] == "chosen"}
            may_be = {v: {"preferred", "pruned"} for v in ("chosen", "banned", "slower")} | {
                v: {v} for v in ("rejected", "pruned")
            }
            if best == {"preferred"} and is_free:
                may_be["slower"] = best
            for c, got in seen:
                said = f"{where}: {c['template']} {c['tunables']}"
                n += len(got)
                bad += [
                    f"{said} is {c['verdict']}: {c['reason']}" for *_, word in got if word not in may_be[c["verdict"]]
                ]
                values, order, _ = got[0]
                if order != c["order"]:
                    bad.append(f"{said} adds as {order}, not as {c['order']}")
                if c["verdict"] == "chosen":
                    rivals = ([x for x in ranked if x["cost_from"] == "measured"] if is_free else []) or ranked
                    work = [launch[k] for k in ("smem_bytes", "read_bytes", "write_bytes", "flops")]
                    if list(values.values()) != [*launch["grid"], launch["block"][0], *work]:
                        bad.append(f"{said}: {values} against {launch}")
                    if c["cost_from"] != "pin" and c["cost_us"] > min(x["cost_us"] for x in rivals):
                        bad.append(f"{said} is not the cheapest")
    return n, bad


if __name__ == "__main__":
    count, wrong = recheck(json.load(sys.stdin))
    print(*wrong, f"{count} verdicts, {len(wrong)} disagreements", sep="\n")
    sys.exit(1 if wrong or not count else 0)
