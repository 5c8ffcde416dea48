"""`atlas audit`: one phase, one layer, one decision, and the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as xml

import atlasc_texts
import pytest

MODEL = "llama"


@pytest.fixture
def plan(small_plan_of):
    return small_plan_of(MODEL)


def heads(text):
    return [line.split()[0] for line in text.splitlines() if "] " in line and " launches " in line]


def test_phase_and_layer(atlas, plan):
    whole = atlas("audit", plan).stdout
    assert [h.split("[")[0] for h in heads(whole)] == ["prefill", "decode", "acquire", "probe"]
    for word in ("decode", "decode[2]"):
        text = atlas("audit", plan, "--phase", word).stdout
        assert heads(text) == ["decode[2]"] and text[text.index("\ndecode") :] in whole
    text = atlas("audit", plan, "--phase", "decode", "--layer", "1").stdout
    rows = text[text.index("\n  layers ") + 1 :].splitlines()[1:]
    assert rows[0].split()[:2] == ["0-1", "norm_linear"] and all(r.startswith("          ") for r in rows[1:])
    assert "embed_next" not in text and "norm_logits" not in text
    assert "norm_logits" in atlas("audit", plan, "--layer", "end").stdout


def test_why_holds_all_of_a_decision(atlas, plan):
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    contracts = {k["template"]: k for k in audit["contracts"]}
    for phase in audit["targets"][0]["phases"]:
        for entry in phase["launches"]:
            layer = {-1: "start", audit["n_layers"]: "end"}.get(entry["layers"][0], str(entry["layers"][0]))
            run = atlas("audit", plan, "--why", f"{phase['phase']}[{phase['rows']}]/{layer}/{entry['op']}")
            assert (run.returncode, run.stderr) == (0, "")
            lines = run.stdout.splitlines()
            assert f"operands  {entry['operands']}" in lines and f"constants {entry['defines']}" in lines
            for term in contracts[entry["template"]]["terms"]:
                assert term["kind"] != "requires" or f"  holds   {term['text']}" in lines
            chosen = next(c for c in entry["candidates"] if c["verdict"] == "chosen")
            assert f"order     {chosen['order']}" in lines and chosen["order"]
            for c in entry["candidates"]:
                kernel = " ".join(filter(None, (c["template"], c["tunables"])))
                cost = f", {c['cost_us']:.2f} us ({c['cost_from']})"
                end = cost if not c["reason"] or c["verdict"] == "pruned" else ""
                end += f": {c['reason']}" if c["reason"] else ""
                end += f" ({c['at']})" if c["at"] else ""
                assert f"{c['verdict']:9} {kernel}{end}" in lines


def test_a_false_predicate_has_its_place(atlas, plan):
    """File and line of the contract, in JSON and in both texts; reasons that are no predicate have none."""
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    launches = [x for p in audit["targets"][0]["phases"] for x in p["launches"]]
    candidates = [c for x in launches for c in x["candidates"]]
    places = {f"{c['reason']} ({c['at']})": c for c in candidates if c["at"]}
    assert len(places) > 10
    for c in candidates:
        assert bool(c["at"]) == (" is false: " in c["reason"]), c
        if c["at"]:
            file, line = c["at"].split(":")
            assert re.fullmatch(rf"kernels/templates/\w+/({c['template']}\.cu|\w+_contract\.cuh|operands\.cuh)", file)
            clause = atlasc_texts.clause_at(file, int(line))
            predicate = c["reason"].removeprefix("not preferred: ").split(" is false: ")[0]
            assert re.match(r"(REQUIRE|PREFER|PRUNE)\(", clause)
            assert atlasc_texts.clause_states(clause, predicate), (clause, predicate)
    text = atlas("audit", plan, "--reasons").stdout
    assert all(place in text for place in places)


@pytest.mark.parametrize(
    "words,message",
    [
        (
            ["--why", "decode[3]/0/norm_linear"],
            "--why decode[3]/0/norm_linear: no such slot: expected PHASE[ROWS]/LAYER/OP as the table has them",
        ),
        (
            ["--why", "decode[2]/0"],
            "--why decode[2]/0: no such slot: expected PHASE[ROWS]/LAYER/OP as the table has them",
        ),
        (["--phase", "decode[3]"], "--phase decode[3]: the plan has no such launch"),
        (["--layer", "2"], "--layer 2: the plan has no such launch"),
        (["--layer", "x"], "--layer x: the plan has no such launch"),
        (["--phase", "decode[1]", "--layer", "9"], "--phase decode[1] --layer 9: the plan has no such launch"),
        (["--phase", "decod[1]"], "--phase decod[1]: there is no such phase: did you mean decode?"),
        (["--target", "sm_90"], "--target sm_90: the plan has no such target: it has sm_90a"),
        (
            ["--json", "--layer", "1"],
            "--json holds all of the plan: give it without --phase, --layer, --why and --html",
        ),
    ],
)
def test_mistakes(atlas, plan, words, message):
    run = atlas("audit", plan, *words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"atlas audit: error: {message}\n")


def test_a_plan_without_targets(atlas, small_plan_of, tmp_path):
    """The graph alone: every view says so."""
    plan = small_plan_of(MODEL, "--target", "none")
    assert atlas("audit", plan).stdout.endswith("\ntarget  none: for the reference device\n")
    assert "\ntargets      none: for the reference device\n" in atlas("info", plan).stdout
    assert json.loads(atlas("audit", plan, "--json").stdout)["targets"] == []
    page = atlas("audit", plan, "--html").stdout
    assert "<dd>none: for the reference device</dd>" in page and "<table" not in page
    assert atlas("diff", plan, plan).stdout == "the plans are equal\n"
    assert atlas("diff", plan, small_plan_of(MODEL)).returncode == 1


def hashes_of(page, tag):
    """Those that a page's policy admits, and those of what is between its tags."""
    admitted = re.search(rf"{tag}-src ((?:'[^']*' ?)+)", page)[1].split()
    inside = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    return admitted, [f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in inside]


def test_the_page_needs_nothing_from_elsewhere(atlas, plan, tmp_path):
    """tests/pages has what a browser makes of it."""
    out = tmp_path / "audit.html"
    run = atlas("audit", plan, "--html", out)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    text = out.read_text(encoding="utf-8")
    root = xml.fromstring(text.removeprefix("<!DOCTYPE html>\n"))  # every tag closed, every text escaped
    assert not re.search(r"https?:|src=|url\(|@import|<link|style=|onclick", text)
    assert all(e.get("href").startswith("#") for e in root.iter("a") if e.get("href"))
    assert "default-src 'none';" in text
    for tag in ("style", "script"):
        admitted, inside = hashes_of(text, tag)
        assert admitted == inside and len(inside) == 1, tag
    assert atlas("audit", plan, "--html").stdout == text
