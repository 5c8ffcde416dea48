"""`atlas audit --check`: each rule of a policy finds what breaks it and nothing else, in three forms."""

from __future__ import annotations

import json

import pytest

MODEL = "llama"
CLEAN = """# what this deployment runs
[templates]
required = ["attn_step", "sample*"]
forbidden = [
    "gemv_*", # of another dtype
    'read_probe',
]
[dtypes]
weight = ["bf16"]
embedding = ["bf16", "f16"]
norm = ["bf16"]
activation = ["bf16", "f32"]
[kv]
dtype = ["bf16"]
[[kv.layers]]
layers = "1-1"
dtype = ["bf16", "e4m3"]
[launches]
per_layer = 12
decode = 8
[plan]
waivers = false
"""


@pytest.fixture
def check(atlas, small_plan_of, tmp_path):
    def run(text, *words, plan=None):
        (tmp_path / "policy.toml").write_text(text)
        return atlas("audit", plan or small_plan_of(MODEL), "--check", "policy.toml", *words, cwd=tmp_path)

    return run


@pytest.fixture
def audit(atlas, small_plan_of):
    return json.loads(atlas("audit", small_plan_of(MODEL), "--json").stdout)


def test_a_plan_that_keeps_to_it(check):
    run = check(CLEAN)
    assert (run.returncode, run.stdout, run.stderr) == (0, "the plan keeps to policy.toml\n", "")
    run = check(CLEAN, "--json")
    assert run.returncode == 0 and json.loads(run.stdout) == {
        "schema_version": 1,
        "policy": "policy.toml",
        "ok": True,
        "violations": [],
    }


def found(run):
    assert run.returncode == 1 and run.stderr == "", run.stderr
    got = json.loads(run.stdout)
    assert got["ok"] is False
    return [(v["rule"], v["where"], v["text"]) for v in got["violations"]]


def test_formats_of_a_cache(check, small_plan_of):
    """What MODEL.toml calls fp8 a policy may call so too, or by its dtype; it is printed as MODEL.toml has it."""
    plan = small_plan_of(MODEL, "--target", "none", dtype='"fp8"')
    for word in ("fp8", "e4m3"):
        assert check(f'[kv]\ndtype = ["{word}"]\n', plan=plan).returncode == 0
    for word in ("nvfp4", "bf16"):
        got = found(check(f'[kv]\ndtype = ["{word}"]\n', "--json", plan=plan))
        assert got == [("kv.dtype", f"layer {n}", f"keys and values are fp8: allowed {word}") for n in (0, 1)]
    got = found(check('[dtypes]\nweight = ["fp8"]\n', "--json", plan=plan))
    assert got and all(text.endswith(" is bf16: allowed fp8") for _, _, text in got)


def test_templates(check, audit):
    launches = [(p, e) for p in audit["targets"][0]["phases"] for e in p["launches"] if p["phase"] != "probe"]
    used = sorted({e["template"] for _, e in launches})
    for name in used:
        got = found(check(f'[templates]\nforbidden = ["{name}"]\n', "--json"))
        want = {}
        for p, e in launches:
            if e["template"] == name:
                where = f"sm_90a/{p['phase']}[{p['rows']}]", e["op"]
                want[where] = want.get(where, 0) + e["layers"][1] - e["layers"][0] + 1
        assert {(w, t.split()[0]): int(t.split(", ")[1].split()[0]) for _, w, t in got} == want
        assert check(f'[templates]\nrequired = ["{name}"]\n').returncode == 0
    assert found(check('[templates]\nrequired = ["attn_*", "read_probe", "nothing"]\n', "--json")) == [
        ("templates.required", "sm_90a", "no launch has a template read_probe"),
        ("templates.required", "sm_90a", "no launch has a template nothing"),
    ]


def test_a_plan_without_targets_runs_no_template(check, small_plan_of):
    plan = small_plan_of(MODEL, "--target", "none")
    assert found(check('[templates]\nrequired = ["attn_*"]\n', "--json", plan=plan)) == [
        ("templates.required", "", "no launch has a template attn_*")
    ]


@pytest.mark.parametrize(
    "role,tensor",
    [
        ("weight", "model.layers.0.mlp.up_proj.weight"),
        ("embedding", "model.embed_tokens.weight"),
        ("norm", "model.norm.weight"),
        ("activation", "l0.q"),
    ],
)
def test_dtypes(check, role, tensor):
    got = found(check(f'[dtypes]\n{role} = ["e4m3", "e2m1"]\n', "--json"))
    assert (f"dtypes.{role}", "", f"{role} {tensor} is bf16: allowed e4m3, e2m1") in got
    assert len({t for _, _, t in got}) == len(got)
    names = [t.split()[1] for _, _, t in got]
    assert all((".weight" in n) == (role != "activation") for n in names)
    if role in ("weight", "norm"):
        assert all(("norm" in n) == (role == "norm") for n in names)


def test_kv(check):
    assert found(check('[kv]\ndtype = ["e4m3"]\n[[kv.layers]]\nlayers = "0"\ndtype = ["bf16"]\n', "--json")) == [
        ("kv.dtype", "layer 1", "keys and values are bf16: allowed e4m3")
    ]
    assert found(check('[[kv.layers]]\nlayers = "1-2"\ndtype = ["e2m1"]\n', "--json")) == [
        ("kv.layers", "layer 1", "keys and values are bf16: allowed e2m1"),
        ("kv.layers", "", "layers 1-2: the model has layers 0 to 1"),
    ]


def test_launches(check, audit):
    counts = {}
    for p in audit["targets"][0]["phases"]:
        n = sum(e["layers"] == [0, 1] for e in p["launches"])
        counts[p["phase"]] = n
    assert check(f"[launches]\nper_layer = {max(counts.values())}\n").returncode == 0
    assert found(check(f"[launches]\ndecode = {counts['decode'] - 1}\nprefill = {counts['prefill']}\n", "--json")) == [
        (
            "launches.decode",
            "sm_90a/decode[2]/layers 0-1",
            f"{counts['decode']} launches a layer: at most {counts['decode'] - 1}",
        )
    ]


def test_the_plan_as_a_whole(check, plan_of, tmp_path):
    toml = tmp_path / "ban.toml"
    toml.write_text(
        "[runtime]\nslots = 2\n[phases]\nprefill = [16]\ndecode = [2]\n"
        '[[kernels.ban]]\ntemplate = "attn_wgmma"\nphase = "prefill"\n'
    )
    banned = plan_of(MODEL, "--model", toml)
    run = check("[plan]\nwaivers = false\ncertificate = true\nsignature = true\n", "--json", plan=banned)
    got = found(run)
    assert [g[0] for g in got] == ["plan.waivers", "plan.certificate", "plan.signature"]
    assert got[0][2].startswith("kernels.ban.000: ") and "attn_wgmma" in got[0][2]
    assert got[1][2] == f"there is no {banned}.cert: atlas verify --certify makes one"
    assert got[2][2] == "the plan has no signature"
    assert check("[plan]\nwaivers = true\ncertificate = false\nsignature = false\n", plan=banned).returncode == 0


def test_targets_that_never_ran(atlas, check, plan_of, small_plan_of):
    """Each is named, in a plan of several too; what is recorded is what the list of targets says."""
    both = plan_of(MODEL, "--target", "sm_90a,sm_80,sm_89", "--tuning", "none")
    got = found(check("[plan]\nran = true\n", "--json", plan=both))
    never = "compiled, never run: no plan for {0} had run on hardware when this one was made"
    assert got == [("plan.ran", t, never.format(t)) for t in ("sm_80", "sm_89")]
    assert check("[plan]\nran = true\n").returncode == 0 and check("[plan]\nran = false\n", plan=both).returncode == 0
    text = atlas("info", both).stdout
    assert "sm_80, run on: compiled, never run; " in text and "sm_90a, run on: H100, H200; " in text
    assert "        run on: compiled, never run   times of: no card" in atlas("audit", both).stdout.splitlines()


def test_text_names_line_and_rule(check):
    run = check("[launches]\n\nper_layer = 1\n[plan]\nsignature = true\n")
    lines = run.stdout.splitlines()
    assert run.returncode == 1 and lines[0].startswith(
        "policy.toml:3: launches.per_layer: sm_90a/prefill[64]/layers 0-1: "
    )
    assert lines[-2] == "policy.toml:5: plan.signature: the plan has no signature"
    assert lines[-1] == "3 violations"


def test_sarif(check, atlas):
    """The properties that the schema of SARIF 2.1.0 (OASIS) requires, and the types of those that are given."""
    run = check("[launches]\nper_layer = 1\n[plan]\nsignature = true\n", "--sarif")
    log = json.loads(run.stdout)
    assert run.returncode == 1 and log["version"] == "2.1.0" and "sarif" in log["$schema"] and len(log["runs"]) == 1
    driver, results = log["runs"][0]["tool"]["driver"], log["runs"][0]["results"]
    assert driver["name"] == "atlas audit" and f"atlas {driver['version']}\n" == atlas("--version").stdout
    ids = [r["id"] for r in driver["rules"]]
    assert ids == ["launches.per_layer", "plan.signature"]
    assert all(set(r) <= {"id", "shortDescription"} and r["shortDescription"]["text"] for r in driver["rules"])
    assert len(results) == 3
    for r in results:
        assert set(r) == {"ruleId", "level", "message", "locations"} and r["ruleId"] in ids
        assert r["level"] in ("none", "note", "warning", "error") and r["message"]["text"]
        for location in r["locations"]:
            physical = location["physicalLocation"]
            assert physical["artifactLocation"] == {"uri": "policy.toml"} and physical["region"]["startLine"] >= 1
            assert all(x["fullyQualifiedName"] for x in location.get("logicalLocations", []))
    clean = json.loads(check(CLEAN, "--sarif").stdout)
    assert clean["runs"][0]["results"] == clean["runs"][0]["tool"]["driver"]["rules"] == []


@pytest.mark.parametrize(
    "text,message",
    [
        ("[template]\n", "1: unknown table template: did you mean templates?"),
        ("[zebra]\n", "1: unknown table zebra: expected templates, dtypes, kv, launches or plan"),
        ('[templates]\nforbiden = ["x"]\n', "2: unknown key templates.forbiden: did you mean templates.forbidden?"),
        ("[templates]\nforbidden = []\n", "2: templates.forbidden: the list is empty: leave the key out for no rule"),
        ('[templates]\nforbidden = "x"\n', "2: templates.forbidden: expected a list of strings"),
        ('[templates]\nforbidden = ["*a*"]\n', '2: templates.forbidden: "*a*": at most one *'),
        ('[templates]\nforbidden = ["a" "b"]\n', '2: templates.forbidden: expected , or ] after "a"'),
        ('[templates]\nforbidden = ["a]\n', "2: the string has no end"),
        ('[templates]\nforbidden = ["a"] x\n', "2: expected the end of the line"),
        ('[templates]\nrequired = ["a"]\nrequired = ["b"]\n', "3: templates.required: occurs twice, first in line 2"),
        (
            '[kv]\ndtype = ["fp7"]\n',
            '2: "fp7" is not a dtype: expected one of bf16, f16, f32, i32, e4m3, e2m1, e8m0, u4, f32z, fp8, nvfp4',
        ),
        ('[dtypes]\nweight = ["nvfp4"]\n', '2: "nvfp4" is not a dtype: expected one of '),
        ("[launches]\nper_layer = 0\n", "2: launches.per_layer: expected a whole number from 1"),
        ("[launches]\nper_layer = 1.5\n", "2: launches.per_layer: expected a whole number from 1"),
        ("[plan]\nwaivers = 1\n", "2: plan.waivers: expected true or false"),
        ("[kv.layers]\n", "1: [kv.layers]: expected [[kv.layers]]"),
        ("[[kv]]\n", "1: [[kv]]: expected [kv]"),
        ('[[kv.layers]]\nlayers = "1-0"\n', '2: kv.layers.layers: "1-0": expected "first-last"'),
        ('[[kv.layers]]\nlayers = "1-2"\n', "1: kv.layers: layers and dtype must both be there"),
        ('kv.layers.layers = "1-2"\n', "1: kv.layers.layers: expected in a table [[kv.layers]]"),
        ("waivers\n", "1: expected = after waivers"),
    ],
)
def test_mistakes_of_a_policy(check, text, message):
    run = check(text)
    assert (run.returncode, run.stdout) == (4, "")
    assert run.stderr.splitlines()[0].startswith("atlas audit: policy.toml:" + message.replace(": ", ": error: ", 1))


def test_every_mistake_is_told(check):
    run = check("[plan]\nwaivers = 1\nsigned = true\n[launches]\nper_layer = x\n")
    assert [line.split(":")[2] for line in run.stderr.splitlines()] == ["2", "3", "5"]


def test_mistakes_of_the_command(atlas, small_plan_of, tmp_path):
    plan = small_plan_of(MODEL)
    run = atlas("audit", plan, "--sarif")
    assert (run.returncode, run.stderr) == (2, "atlas audit: error: --sarif needs --check and excludes --json\n")
    run = atlas("audit", plan, "--check", tmp_path / "none.toml")
    assert (run.returncode, run.stderr) == (4, f"atlas audit: error: {tmp_path}/none.toml: No such file or directory\n")
