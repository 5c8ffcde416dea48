"""Each kernel template that a plan uses is deleted from the kernel table: what does atlasc say then?

Choosing among admissible kernels is the compiler's work, so a plan may well be made: but only with what the same ledger
has next, which is what a ban of that template gives. It is checked that

  - every op whose only admissible kernel is gone is refused with A0701, which names op, layers, phases, buckets and, of each
    other template, the predicate that fails; and a ban refuses the same;
  - in a plan that is made all the same, ops that had another kernel keep it, and those that had this one have what the
    ban gives them: no op is left without a kernel, and none changes its kernel beside;
  - a pin on the deleted template is refused (A0305): a name that means nothing is not passed over.

Where the lowering itself asks whether a template is there (a norm in front of a product, products of codes by codes), the
ops change with it: the plan is that of a compiler that never had the template, and its ledger says what it chose.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

from workshop import FIXTURES, REPO, Workshop, must, small_toml

SHAPES = REPO / "tests" / "gpu" / "shapes"

# What to compile, for which target, with which keys of MODEL.toml changed, and what stands behind them. A name with
# .json is a shape without weights (tests/gpu/shapes/).
STEPS = {"prefill": "[16, 1024]", "decode": "[2, 8]", "slots": 8}
PLANS = (
    ("llama", "sm_90a", STEPS, ""),
    ("llama", "sm_80", STEPS, ""),
    ("llama", "sm_90a", STEPS | {"dtype": '"fp8"'}, ""),
    ("llama", "sm_80", {"prefill": "[128]", "decode": "[128]", "slots": 128}, ""),
    ("llama-f32", "sm_90a", STEPS, ""),
    ("qwen3_moe", "sm_90a", STEPS, ""),
    ("qwen3_next", "sm_90a", STEPS, ""),
    ("qwen3_next", "sm_80", {"prefill": "[4, 64]"}, ""),
    ("qwen3_5", "sm_80", STEPS, ""),
    ("written-by-modelopt-fp8", "sm_89", STEPS, ""),
    ("qwen3_5", "sm_90a", STEPS | {"rows": 3}, ""),
    ("qwen3_5", "sm_80", STEPS | {"rows": 2}, ""),
    ("llama-fp8-block", "sm_89", STEPS, ""),
    ("llama-fp8-block", "sm_90a", STEPS, ""),
    ("llama-nvfp4-modelopt", "sm_120a", STEPS, '[kernels]\nfp4 = "native"\n'),
    ("llama-3.1-8b-nvfp4.json", "sm_90a", {"prefill": "[2048]", "decode": "[1]", "slots": 1, "max_context": 4096}, ""),
    ("qwen3_5", "sm_90a", STEPS | {"rows": 3}, "[kernels]\nfuse = false\n"),
    ("qwen3_moe", "sm_80", STEPS, "[kernels]\nfuse = false\n"),
    ("written-by-modelopt-fp8", "sm_89", STEPS, "[kernels]\nfuse = false\n"),
    ("llama-nvfp4-modelopt", "sm_120a", STEPS, '[kernels]\nfp4 = "native"\nfuse = false\n'),
    ("qwen3.5-27b-fp8.json", "sm_90a", {"prefill": "[16, 2048]", "decode": "[1]", "slots": 1, "max_context": 4096}, ""),
)
# Used by none of these plans: chosen beside delta_chunks by times, measured or of sm_120a; for drafting heads in f16
# and f32; of ops that no family's graph has alone, or that graphs of tests/families have.
UNUSED = (
    *("delta_chunks_team", "gemv_linear", "plain_dequantise", "plain_dequantise_fp4", "plain_soft_cap"),
    *("plain_geglu", "plain_route_sigmoid", "plain_scale", "plain_softplus_gate", "plain_swiglu_limited"),
    *("plain_columns", "plain_scale_by", "plain_scale_shares", "gemm_experts_up_limited", "gemm_experts_up_gelu"),
)
REFUSED = re.compile(
    r"error\[A0701\]: (?:this (?:ban|pin) of \w+ leaves )?no admissible kernel for \w+ "
    r"\((?:all \w+ buckets, |(?:prefill|decode|draft|verify|probe) rows [\d, ]+, |acquire, )+"
    r"(?:all layers|layers? [\d, -]+)?(?:, )?(?:(?:before|after) the layers)?, sm_\w+\)"
)


def templates() -> list[str]:
    return sorted(p.stem for p in (REPO / "kernels" / "templates").rglob("*.cu"))


def mutants() -> list[dict]:
    return [
        {"name": f"without-{name}", "row": 23, "kind": "without", "template": name, "says": ""}
        for name in templates()
        if name not in UNUSED
    ]


def linked(shop: Workshop) -> pathlib.Path:
    """atlasc with the name of a template to be deleted in front of its arguments."""
    table, main = shop.scratch / "whole.o", shop.scratch / "main.o"
    for out, source, names in (
        (table, "gen/kernel_table.o", ("kernel_table", "n_kernel_table")),
        (main, "obj/compiler/main.o", ("main",)),
    ):
        words = [w for n in names for w in ("--redefine-sym", f"{n}={'atlasc_' if n == 'main' else 'whole_'}{n}")]
        subprocess.run(["objcopy", *words, shop.build / source, out], check=True)
    return shop.linked("without", shop.compiled("without", REPO / "tests/mutation/without.c"), main, table)


class Deletions:
    def __init__(self, shop: Workshop):
        self.shop = shop
        self.program = shop.once("without", lambda: linked(shop))
        for plan, words in enumerate(PLANS):
            code, said, _ = self.picks("-", plan)
            must(code, f"{words}: {said[:300]}")

    def picks(self, template: str, plan: int, rule: str = ""):
        """(exit code, words, [(phase, layer, op, kernel)])"""
        base, target, changes, more = PLANS[plan]
        source = SHAPES / base if base.endswith(".json") else FIXTURES / base

        def ask():
            toml = self.shop.scratch / f"{template}.{plan}.{len(rule)}.toml"
            toml.write_text(small_toml(source, **changes) + more + rule, encoding="utf-8")
            code, said = self.shop.run(
                self.program,
                template,
                source,
                "--model",
                toml,
                "--target",
                target,
                "--dry-run",
                "--stop-after=pick-kernels",
                "-d",
                "k",
                "-q",
                *(["--random-weights"] if base.endswith(".json") else []),
            )
            ops, phase = [], ""
            lines = [line for line in said.splitlines() if not line.startswith("      not fused: ")]
            for line, below in zip(lines, lines[1:] + [""]):
                if line.startswith("phase "):
                    phase = line
                elif re.match(r"  -?\d+ +\w+ ", line):
                    ops.append((phase, *line.split()[:2], (below.split() or [""])[0]))
            return code, said, ops

        return self.shop.once(("picks", template, plan, rule), ask)

    def check(self, template: str, plan: int) -> str | None:
        """What became of the plan; None: it does not use the template. AssertionError: what must not happen."""
        ops, where = self.picks("-", plan)[2], PLANS[plan][:2]
        if not any(kernel == template for *_, kernel in ops):
            return None
        rule = f'[[kernels.{{}}]]\ntemplate = "{template}"\n'
        code, said, left = self.picks(template, plan)
        pin_code, pin_said, _ = self.picks(template, plan, rule.format("pin"))
        assert pin_code == 4 and "A0305" in pin_said, f"{where}: a pin on it: exit {pin_code}: {pin_said[:300]}"
        is_step = [" probe " not in phase for phase, *_ in ops]  # which no rule of MODEL.toml is about
        if code:
            assert code == 3 and REFUSED.search(said), f"{where}: exit {code}: {said[:300]}"
            assert template not in re.findall(r"^    (\w+)", said, re.M), f"{where}: it is still a candidate"
            return "refused"
        if not any(op[3] == template and counts for op, counts in zip(ops, is_step)):
            return None
        banned_code, banned_said, banned = self.picks("-", plan, rule.format("ban"))
        if banned_code == 0 and [op[:3] for op in left] == [op[:3] for op in ops]:
            for a, b, c, counts in zip(ops, left, banned, is_step):
                assert b == c or not counts, f"{where}: {b}, when banned {c}"
                assert a == b or a[3] == template != b[3], f"{where}: {a} became {b}"
            return "next"
        assert banned_code == 0 or REFUSED.search(banned_said), (
            f"{where}: a ban: exit {banned_code}: {banned_said[:300]}"
        )
        assert [op[:3] for op in left] != [op[:3] for op in ops], f"{where}: the same ops, refused only when banned"
        return "lowered"


def judge(shop: Workshop, m: dict) -> tuple[str | None, str]:
    deletions = shop.once("deletions", lambda: Deletions(shop))
    try:
        seen = [deletions.check(m["template"], plan) for plan in range(len(PLANS))]
    except AssertionError as error:
        return None, str(error)
    counts = {kind: seen.count(kind) for kind in ("refused", "next", "lowered")}
    if not any(counts.values()):
        return None, "no plan uses it"
    words = {"refused": "A0701 in {}", "next": "next of the ledger in {}", "lowered": "other ops in {}"}
    return "atlasc: " + ", ".join(words[k].format(n) for k, n in counts.items() if n), ""
