"""The ledger can be checked without us: recheck.py, which sees the JSON alone, gets the same verdicts."""

from __future__ import annotations

import copy
import json
import pathlib
import re
import subprocess
import sys

import pytest
from atlasc_texts import fixture_options

SCRIPT = pathlib.Path(__file__).with_name("recheck.py")
sys.path.insert(0, str(SCRIPT.parent))
import recheck  # noqa: E402


def audit_of(atlas, plan):
    run = atlas("audit", plan, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_script_stays_short():
    assert len(SCRIPT.read_text().splitlines()) <= 200


@pytest.mark.parametrize(
    "model,words",
    [
        ("llama", ["--target", "sm_90a,sm_80"]),
        ("qwen2", []),
        ("qwen3", []),
        ("llama-f32", []),
        ("qwen3_moe", []),
        ("qwen3_5", []),
    ],
)
def test_every_verdict(atlas, small_plan_of, model, words):
    text = atlas("audit", small_plan_of(model, *words), "--json").stdout
    run = subprocess.run([sys.executable, SCRIPT], input=text, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
    assert run.stdout.endswith(" verdicts, 0 disagreements\n") and int(run.stdout.split()[0]) > 100


def test_a_changed_verdict_is_seen(atlas, small_plan_of):
    """The script is no echo: any one verdict turned round, or one operand changed, is a disagreement. A lie is told in
    an audit with the launch alone, which is quick to check."""
    audit = audit_of(atlas, small_plan_of("llama"))
    assert recheck.recheck(audit)[1] == []

    def with_launch(p, i):
        target = audit["targets"][0]
        phase = target["phases"][p] | {"launches": [copy.deepcopy(target["phases"][p]["launches"][i])]}
        return audit | {"targets": [target | {"phases": [phase]}]}

    seen = set()
    for p, phase in enumerate(audit["targets"][0]["phases"]):
        for i, launch in enumerate(phase["launches"]):
            for k, candidate in enumerate(launch["candidates"]):
                if (launch["op"], candidate["verdict"]) in seen:
                    continue
                seen.add((launch["op"], candidate["verdict"]))
                assert recheck.recheck(with_launch(p, i))[1] == []
                for other in {"rejected", "pruned", "slower"} - {candidate["verdict"]}:
                    if candidate["verdict"] == "chosen" and other == "slower":
                        continue  # it was as good
                    lie = with_launch(p, i)
                    lie["targets"][0]["phases"][0]["launches"][0]["candidates"][k]["verdict"] = other
                    assert recheck.recheck(lie)[1], (launch["op"], candidate, other)
    assert {v for _, v in seen} == {"rejected", "pruned", "slower", "chosen"}
    for key, value in (("grid", [7, 1, 1]), ("smem_bytes", 1), ("read_bytes", 1), ("flops", 1)):
        lie = with_launch(0, 1)
        lie["targets"][0]["phases"][0]["launches"][0][key] = value
        assert recheck.recheck(lie)[1], key


SETS = {"prefill": 0, "decode": 1, "verify": 1}
TWINS = {"attention_verify": "attention_step", "delta_verify_step": "delta_step", "draw_best": "sample_best"}


SHARED = {
    False: {},
    True: {
        "prefill": "prefill 64 to 128",
        "decode": "decode 1 to 2 and verify 3 to 6",
        "verify": "decode 1 to 2 and verify 3 to 6",
    },
}


def orders(audit):
    """{(phase, rows): [order of each launch]}, computed from the contracts."""
    (target,) = audit["targets"]
    contracts = {(k["op"], k["template"]): k for k in audit["contracts"]}
    return {
        (p["phase"], p["rows"]): [
            next(recheck.admitted(target, contracts[x["op"], c["template"]], x, c))[1]
            for x in p["launches"]
            for c in x["candidates"]
            if c["verdict"] == "chosen"
        ]
        for p in target["phases"]
    }


@pytest.mark.parametrize("model,is_invariant", [("llama", False), ("qwen3_5", True)])
def test_the_order_of_every_launch_is_shown(atlas, plan_of, tmp_path, model, is_invariant):
    """In the table and on the page, next to each launch, what its contract comes to; and which phases share it."""
    toml = tmp_path / "m.toml"
    decode = [1, 2] if is_invariant else [1, 32]  # which add in other orders where nothing keeps them from it
    options = fixture_options(model, invariant=is_invariant, slots=decode[1], prefill=[64, 128], decode=decode)
    toml.write_text(options, encoding="utf-8")
    plan = plan_of(model, "--model", toml)
    audit, page, shared = audit_of(atlas, plan), atlas("audit", plan, "--html").stdout, SHARED[is_invariant]
    wanted, shown, labels, phase = orders(audit), {}, {}, None
    for line in atlas("audit", plan).stdout.splitlines():
        if head := re.match(r"(\w+)\[(\d+)(?:x(\d+))?\]  outs ", line):  # of verify: sequences, and rows of each
            rows = int(head[2]) * (int(head[3] or 1) if head[1] == "verify" else 1)
            labels[head[1], rows] = line.split("  outs ")[0]
            phase = shown.setdefault((head[1], rows), [])
            assert line.endswith("  equal orders in " + shared[head[1]] if head[1] in shared else " us by the ledger")
        elif phase is not None and (row := re.search(r" (?:measured|model|pin) +(\S.*)$", line)):
            phase.append(row[1])
    assert shown == wanted
    for (name, rows), of_phase in wanted.items():
        section = page[page.index(f'<section class="phase" id="sm_90a/{labels[name, rows]}">') :].split("</section>")[0]
        assert set(re.findall(r'data-l="Order">([^<]*)</td>', section)) == set(of_phase)
        assert (f" Orders are equal in {shared.get(name)}." in section) == (name in shared)
    for p in audit["targets"][0]["phases"]:
        assert p["equal_orders"] == shared.get(p["phase"], "")
    by_op = {}
    for p in audit["targets"][0]["phases"]:
        count = {}
        for x, order in zip(p["launches"], wanted[p["phase"], p["rows"]]):
            key = SETS.get(p["phase"]), TWINS.get(x["op"], x["op"]), tuple(x["layers"])
            count[key] = count.get(key, -1) + 1
            if key[0] is not None and 0 <= x["layers"][0] < audit["n_layers"] and order != "exact":
                by_op.setdefault((key, count[key]), set()).add(order)
    assert by_op and all(len(o) == 1 for o in by_op.values()) == is_invariant


def test_one_key_changes_the_predicates_that_name_it(atlas, small_plan_of):
    """Pages of another size: where reasons differ, they name pages."""
    a, b = (audit_of(atlas, small_plan_of("llama", page=page)) for page in (16, 32))

    def reasons(audit):
        return [
            (p["phase"], x["op"], c["template"], c["tunables"], c["verdict"], c["reason"])
            for p in audit["targets"][0]["phases"]
            for x in p["launches"]
            for c in x["candidates"]
        ]

    changed = set(reasons(a)) ^ set(reasons(b))
    assert changed and all("PAGE" in reason for *_, reason in changed if reason), changed


@pytest.mark.parametrize(
    "text,value",
    [
        ("1 + 2 * 3", 7),
        ("7 / 2 - 7 % 4", 0),
        ("ceil_div(7, 2) + align(7, 4)", 12),
        ("min(3, 2) * max(1, 5)", 10),
        ("1 == 1 && 2 > 3 || 4 <= 4", 1),
        ("0 && 1 / 0", 0),
        ("1 || 1 / 0", 1),
        ("N ? 5 : 1 / 0", 5),
        ("!N + -2", -2),
        ("N > 1 ? 2 : N > 2 ? 3 : 4", 2),
        ("(1 + 2) * (N - 1)", 6),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
    ],
)
def test_expressions_mean_what_they_mean_in_c(text, value):
    assert recheck.evaluate(text, {"N": 3}) == value


@pytest.mark.parametrize("text", ["M", "1 / (N - 3)", "ceil_div(1, 0)"])
def test_expressions_that_reject(text):
    with pytest.raises((recheck.Rejected, ZeroDivisionError)):
        recheck.evaluate(text, {"N": 3})
