"""`atlas info --sbom`: sound by the official schema, and true: every hash in it is computed again from the file it is of."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re

import msgpack
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from plan_file import take_apart

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = REPO / "tests" / "fixtures"
MODEL = "llama-sharded"


def sbom(atlas, plan):
    run = atlas("info", plan, "--sbom")
    assert (run.returncode, run.stderr) == (0, "")
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(run.stdout)
    assert error is None, str(error)[:2000]
    return json.loads(run.stdout)


def properties(component):
    return {p["name"]: p["value"] for p in component["properties"]}


def of_kind(document, kind):
    return {c["name"]: c for c in document["components"] if properties(c)["atlas:kind"] == kind}


def hash_of(component):
    [entry] = component["hashes"]
    assert entry["alg"] == "SHA-256"
    return entry["content"]


@pytest.fixture(scope="module")
def plan(small_plan_of):
    return small_plan_of(MODEL, "--hash-files")


@pytest.fixture(scope="module")
def document(atlas, plan):
    return sbom(atlas, plan)


def test_model(atlas, document, plan):
    model = document["metadata"]["component"]
    options = msgpack.unpackb(take_apart(plan.read_bytes())["options"])
    got = properties(model)
    assert {k.removeprefix("atlas:option:"): v for k, v in got.items() if k.startswith("atlas:option:")} == options
    assert got["atlas:root"] == json.loads(atlas("info", plan, "--json").stdout)["root"]
    digits = document["serialNumber"].removeprefix("urn:uuid:").replace("-", "")
    assert digits[:12] == got["atlas:root"][:12] and digits[12] == "8" and digits[16] in "89ab"
    assert atlas("info", plan, "--sbom").stdout == atlas("info", plan, "--sbom").stdout


def test_tools(document, repo):
    tools = {t["name"]: t for t in document["metadata"]["tools"]["components"]}
    assert set(tools) == {"atlasc", "nvrtc", "ptxas"}
    version = re.search(r"^VERSION := (\S+)", (repo / "Makefile").read_text(), re.M)[1]
    assert tools["atlasc"]["version"] == version
    assert "-std=c++17" in properties(tools["nvrtc"])["atlas:options"]
    for t in tools.values():
        assert re.fullmatch(r"\d+(\.\d+)+", t["version"]) and t["licenses"][0]["expression"], t["name"]
    assert "Apache License" in (repo / "LICENSE").read_text()
    assert tools["atlasc"]["licenses"] == [{"expression": "Apache-2.0"}]


def test_sources_and_kernels(document, plan):
    """Every kernel by its machine code and its template's file, every file as it lies in the tree."""
    sections = take_apart(plan.read_bytes())
    target = msgpack.unpackb(sections["plan.sm_90a"])
    sources = of_kind(document, "source")
    for name, c in sources.items():
        assert hash_of(c) == hashlib.sha256((REPO / "kernels" / "templates" / name).read_bytes()).hexdigest()
        assert c["licenses"] == [{"expression": "Apache-2.0"}]
    kernels = [c for c in document["components"] if properties(c)["atlas:kind"] == "kernel"]
    assert len(kernels) == len(target["kernels"])
    own = {name.split("/")[-1]: c for name, c in sources.items()}
    needs = {d["ref"]: d.get("dependsOn") for d in document["dependencies"]}
    assert needs["plan"] == [c["bom-ref"] for c in kernels]
    for c, k in zip(kernels, target["kernels"]):
        code = sections["cubins"][k["cubin_offset"] : k["cubin_offset"] + k["cubin_bytes"]]
        assert (c["name"], hash_of(c)) == (k["name"], hashlib.sha256(code).hexdigest())
        assert properties(c)["atlas:defines"] == k["defines"]
        assert needs[c["bom-ref"]] == [own[k["name"] + ".cu"]["bom-ref"]]
    assert {f"{k['name']}.cu" for k in target["kernels"]} == {n for n in own if n.endswith(".cu")}
    refs = [c["bom-ref"] for c in document["components"]]
    assert len(set(refs)) == len(refs)


def test_files(document):
    inputs, weights = of_kind(document, "input"), of_kind(document, "weights")
    folder = FIXTURES / MODEL
    for name in ("config.json", "model.safetensors.index.json", "tokenizer.json"):
        assert hash_of(inputs[name]) == hashlib.sha256((folder / name).read_bytes()).hexdigest(), name
        assert properties(inputs[name])["atlas:bytes"] == str((folder / name).stat().st_size)
    for name in ("llama.toml", "defaults.toml"):
        facts = (REPO / "models" / name).read_bytes()
        assert hash_of(inputs[f"models-{name}"]) == hashlib.sha256(facts).hexdigest()
    tuning = (REPO / "kernels" / "tuning" / "sm_90a.h100.toml").read_bytes()
    assert hash_of(inputs["sm_90a.h100.toml"]) == hashlib.sha256(tuning).hexdigest()
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(weights) == set(index["weight_map"].values()) and len(weights) > 1
    for name, c in weights.items():
        assert hash_of(c) == hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert int(properties(c)["atlas:weights"]) > 0


def test_files_are_hashed_only_when_asked(atlas, small_plan_of):
    """What costs a pass over all weights is not done unasked, and nothing is made up in its place."""
    got = of_kind(sbom(atlas, small_plan_of(MODEL, "--weights", "ref")), "weights")
    assert len(got) > 1 and not any("hashes" in c for c in got.values())


def test_without_kernels(atlas, small_plan_of):
    document = sbom(atlas, small_plan_of("llama", "--target", "none"))
    assert {t["name"] for t in document["metadata"]["tools"]["components"]} == {"atlasc"}
    assert not of_kind(document, "source") and not of_kind(document, "kernel")


def test_names_of_the_users_files_do_not_count(atlas, atlasc, tmp_path):
    """Whatever they are called, and whether that is UTF-8: a plan says what they are."""
    plans = []
    for name in ("MODEL.toml", "\xfcber\udcff.toml"):
        (tmp_path / name).write_text("# all as the family has it\n")
        plans.append(tmp_path / f"{len(plans)}.bin")
        run = atlasc(FIXTURES / "llama", "-o", plans[-1], "--target", "none", "--model", tmp_path / name)
        assert run.returncode == 0, run.stderr
    assert plans[0].read_bytes() == plans[1].read_bytes()
    assert {"MODEL.toml", "config.json", "tokenizer.json"} < set(of_kind(sbom(atlas, plans[0]), "input"))


def test_mistakes(atlas, atlasc, plan, tmp_path):
    run = atlas("info", plan, "--sbom", "--json")
    assert (run.returncode, run.stderr) == (
        2,
        "atlas info: error: --sbom and --json both write to stdout: give one of them\n",
    )
    run = atlasc(FIXTURES / "llama", "--random-weights", "--hash-files", "-o", tmp_path / "plan.bin")
    assert run.returncode == 2 and "--hash-files with --random-weights: there are no files to hash" in run.stderr
