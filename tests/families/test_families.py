"""Families as files of facts: one that no code was written for, against transformers; --family; every mistake in such a
file with its place."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import shutil
import tomllib

import numpy as np
import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
TOLERANCE = 1e-5  # as tests/cpu/test_golden.py has it
NAMES = sorted(p.parent.name for p in HERE.glob("*/golden.safetensors"))
OLMO2 = (REPO / "models" / "olmo2.toml").read_text(encoding="utf-8")


def error_of(got, want):
    assert got.shape == want.shape
    return float(np.max(np.abs(got.astype(np.float64) - want)) / np.max(np.abs(want)))


def check_golden(atlas, plan, name, tmp_path):
    """Each layer, the logits and the greedy tokens are those of transformers."""
    want = load_file(HERE / name / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    done = atlas("dump", plan, "--tokens", ids, "--hidden", "--device", "cpu", "-o", tmp_path / "d.safetensors", "-q")
    assert done.returncode == 0, done.stderr
    got = load_file(tmp_path / "d.safetensors")
    errors = {k: error_of(got[f"l{k[7:]}.out"], v) for k, v in want.items() if k.startswith("hidden.")}
    errors["logits"] = error_of(got["logits"], want["logits"])
    config = json.loads((HERE / name / "config.json").read_text())
    assert len(errors) == config.get("text_config", config)["num_hidden_layers"]
    assert max(errors.values()) < TOLERANCE, errors
    n = len(want["tokens"])
    done = atlas("run", plan, "--tokens", ids, "-n", n, "--device", "cpu", "--json")
    assert json.loads(done.stdout)["results"][0]["tokens"] == want["tokens"].tolist(), done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_golden(atlasc, atlas, tmp_path, name):
    done = atlasc(HERE / name, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    check_golden(atlas, tmp_path / "p.bin", name, tmp_path)


# Compiling kernels takes most of the time: gpt-oss alone has no kernel that reads `seg`.
@pytest.mark.parametrize("name", [n if n == "gpt_oss" else pytest.param(n, marks=pytest.mark.long) for n in NAMES])
def test_golden_on_a_fake_gpu(atlasc, atlas, build_dir, tmp_path, name):
    """The runtime of GPUs finds all that it writes and reads in a plan, whichever kernels it has."""
    (tmp_path / "MODEL.toml").write_text("[runtime]\nslots = 1\n[phases]\nprefill = [64]\ndecode = [1]\n")
    done = atlasc(HERE / name, "--model", tmp_path / "MODEL.toml", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    want = load_file(HERE / name / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    fake = {"FAKE_CUDA_CC": "9.0", "LD_LIBRARY_PATH": f"{build_dir}/tests-gpu/fake"}
    words = ("run", tmp_path / "p.bin", "--tokens", ids, "-n", len(want["tokens"]), "--device", "cuda", "--json")
    done = atlas(*words, env=os.environ | fake)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["tokens"] == want["tokens"].tolist()


def switches():
    """Fixture and key, of keys that are several switches at once."""
    for name in NAMES:
        facts = tomllib.loads((REPO / "models" / f"{name.partition('-')[0]}.toml").read_text())["family"]["keys"]
        config = json.loads((HERE / name / "config.json").read_text())
        text = config.get("text_config", config)
        for key, fact in facts.items():
            if isinstance(fact.get("is"), list) and text.get(key) == fact["default"]:
                yield name, key


@pytest.mark.parametrize(("name", "key"), list(switches()))
def test_a_default_is_that_of_all_switches(atlasc, atlas, tmp_path, name, key):
    config = json.loads((HERE / name / "config.json").read_text())
    del config.get("text_config", config)[key]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    for file in [*(HERE / name).glob("model.safetensors"), *(HERE / name).glob("MODEL.toml")]:
        (tmp_path / "m" / file.name).symlink_to(file)
    done = atlasc(tmp_path / "m", "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    check_golden(atlas, tmp_path / "p.bin", name, tmp_path)


def test_capped_logits(atlasc, atlas, tmp_path):
    """Gemma-3's class has the key, and what it makes of logits is a formula."""
    config = json.loads((HERE / "gemma3" / "config.json").read_text()) | {"final_logit_softcapping": 4.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(HERE / "gemma3" / "model.safetensors")
    done = atlasc(tmp_path, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    want = load_file(HERE / "gemma3" / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    done = atlas("dump", tmp_path / "p.bin", "--tokens", ids, "--device", "cpu", "-o", tmp_path / "d.safetensors", "-q")
    assert done.returncode == 0, done.stderr
    got = load_file(tmp_path / "d.safetensors")["logits"]
    assert error_of(got, 4 * np.tanh(want["logits"].astype(np.float64) / 4)) < TOLERANCE


def test_some_switches_are_on():
    assert any("gpt_oss" in name for name, _ in switches())


@pytest.mark.parametrize("name", ["gpt_oss", "gpt_oss-mxfp4"])
@pytest.mark.parametrize(
    "options",
    ["[phases]\nprefill = [8]\n", '[speculate]\ndrafter = "ngram"\nrows = 3\n', "[kernels]\nfuse = false\n"],
    ids=["chunks", "ngrams", "alone"],
)
def test_other_steps_give_the_same_tokens(atlasc, atlas, tmp_path, name, options):
    """Prompts in steps as long as a window, and drafts, look at windows and sinks in other phases."""
    (tmp_path / "MODEL.toml").write_text(options)
    plan = tmp_path / "p.bin"
    done = atlasc(HERE / name, "--model", tmp_path / "MODEL.toml", "--target", "none", "-o", plan, "-q")
    assert done.returncode == 0, done.stderr
    want = load_file(HERE / name / "golden.safetensors")
    ids = ",".join(map(str, want["prompt"]))
    done = atlas("run", plan, "--tokens", ids, "-n", len(want["tokens"]), "--device", "cpu", "--json")
    assert json.loads(done.stdout)["results"][0]["tokens"] == want["tokens"].tolist(), done.stderr


def test_windows_of_the_other_layers(atlasc, atlas, tmp_path):
    """They are another function: the golden would see it."""
    for file in (HERE / "gpt_oss").iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text())
    config["layer_types"] = ["full_attention", "sliding_attention", "full_attention"]
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = atlasc(tmp_path, "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    with pytest.raises(AssertionError):
        check_golden(atlas, tmp_path / "p.bin", "gpt_oss", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_a_kernel(atlasc, name):
    done = atlasc(HERE / name, "--target", "sm_90a", "--stop-after", "pick-kernels")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_op_has_a_kernel_on_all_targets(atlasc, name):
    targets = [line.split()[0] for line in atlasc("--list-targets").stdout.splitlines() if line.startswith("sm_")]
    assert len(targets) >= 5
    done = atlasc(HERE / name, "--target", ",".join(targets), "--stop-after", "pick-kernels")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def unknown(tmp_path):
    """The OLMo-2 checkpoint under a model type that atlasc does not know, and a file of facts for it."""
    folder = tmp_path / "m"
    shutil.copytree(HERE / "olmo2", folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "newer", "architectures": ["NewerLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    facts = OLMO2.replace('"olmo2"', '"newer"').replace('"Olmo2ForCausalLM"', '"NewerLM"')
    (tmp_path / "newer.toml").write_text(facts)
    return folder


def test_a_users_family(atlasc, atlas, unknown, tmp_path):
    """Without a build; the plan says whose facts it was compiled with."""
    facts, plan = tmp_path / "newer.toml", tmp_path / "p.bin"
    done = atlasc("m", "--target", "none", "--dry-run", cwd=tmp_path)
    assert done.returncode == 4 and 'model_type = "newer": expected one of' in done.stderr
    done = atlasc("m", "--target", "none", "-o", plan, "-q", "--family", "newer.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check_golden(atlas, plan, "olmo2", tmp_path)
    said = f"newer.toml, sha256 {hashlib.sha256(facts.read_bytes()).hexdigest()}"
    assert f"\nfamily       newer, by facts of the user: {said}\n" in atlas("info", plan).stdout
    assert json.loads(atlas("info", plan, "--json").stdout)["family_facts"] == said
    bom = json.loads(atlas("info", plan, "--sbom").stdout)
    [file] = [c for c in bom["components"] if c["name"] == "newer.toml"]
    assert file["hashes"][0]["content"] == hashlib.sha256(facts.read_bytes()).hexdigest()


def test_an_embedded_family_is_no_users(atlasc, atlas, tmp_path):
    done = atlasc(HERE / "olmo2", "--target", "none", "-o", tmp_path / "p.bin", "-q")
    assert done.returncode == 0, done.stderr
    assert "\nfamily       olmo2\n" in atlas("info", tmp_path / "p.bin").stdout
    assert json.loads(atlas("info", tmp_path / "p.bin", "--json").stdout)["family_facts"] is None


def test_a_users_family_goes_before(atlasc, atlas, tmp_path):
    """Norms before in place of norms after: another function, of tensors that are not there."""
    (tmp_path / "f.toml").write_text(OLMO2.replace('norms = "after"', 'norms = "both"'))
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", tmp_path / "f.toml")
    assert done.returncode == 4
    assert "tensor model.layers.0.input_layernorm.weight is missing: olmo2 needs it with shape [128]" in done.stderr


# What is there, what goes in its place, the messages after "f.toml:".
MISTAKES = [
    ('name = "olmo2"', "name = 3", ["4:8: error[A0216]: family.name = 3: expected a string"]),
    ('name = "olmo2"', 'nme = "olmo2"', ["4:1: error[A0216]: family has no key nme: did you mean name?",
                                         "3:2: error[A0216]: family.name is missing"]),
    ('model_types = ["olmo2"]', "model_types = []",
     ["5:15: error[A0216]: family.model_types = []: expected 1 to 4 names"]),
    ('tokenizer = "unchanged"', 'tokenizer = { class = "BertTokenizer" }',
     ['7:23: error[A0216]: family.tokenizer.class = "BertTokenizer": this class is not implemented']),
    ('is = "ffn_dim"', 'is = "ffn_dm"',
     ['10:28: error[A0216]: family.keys.intermediate_size.is = "ffn_dm": there is no such meaning of a key: did you mean '
      "ffn_dim?"]),
    ('{ is = "ffn_dim" }', '{ is = "ffn_dim", must = [1] }',
     ["10:21: error[A0216]: family.keys.intermediate_size: expected one of is, must, unused and as"]),
    ('{ is = "ffn_dim" }', '{ is = "ffn_dim", defalt = 1 }',
     ["10:39: error[A0216]: family.keys.intermediate_size has no key defalt: did you mean default?"]),
    ('{ is = "ffn_dim" }', '{ is = "ffn_dim", default = 0 }',
     ["10:49: error[A0216]: family.keys.intermediate_size.default = 0: expected an integer from 1 to 1048576"]),
    ('{ is = "ffn_dim" }', "{ unused = [3] }",
     ["10:33: error[A0216]: family.keys.intermediate_size.unused: 3 is not false, true, 0, 1, [] or a word"]),
    ('{ is = "ffn_dim" }', "{ must = [] }",
     ["10:30: error[A0216]: family.keys.intermediate_size.must = []: expected a list of values, or \"full_attention "
      'alone"']),
    ('{ is = "ffn_dim" }', '{ as = "ffn_dim" }',
     ['10:21: error[A0216]: family.keys.intermediate_size.as = "ffn_dim": this table reads no such key']),
    ("rms_norm_eps = {", 'norm_epsilon = { as = "rms_norm_eps", null = true }\nrms_norm_eps = {',
     ["14:16: error[A0216]: family.keys.norm_epsilon: another name of rms_norm_eps has nothing else"]),
    ('intermediate_size = { is = "ffn_dim" }', 'intermediate_size = { unused = "any" }',
     ['3:2: error[A0216]: family.keys: no key is "ffn_dim", which an MLP needs']),
    (", default = false }", " }",
     ["13:18: error[A0216]: family.keys.attention_bias: default is missing: what the class has where config.json says "
      "nothing"]),
    ('["qkv_bias", "o_bias"]', '["qkv_bias", "ffn_dim"]',
     ['13:25: error[A0216]: family.keys.attention_bias.is = ["qkv_bias", "ffn_dim"]: only true and false can be of several '
      "things"]),
    ("rms_norm_eps = {", "norm_epsilon = {",
     ["14:16: error[A0216]: family.keys.norm_epsilon and rms_norm_eps are read into one thing"]),
    ("rms_norm_eps = {", "hidden_size = {",
     ["14:15: error[A0216]: family.keys.hidden_size: every family has this key, with another meaning"]),
    ("bos_token_id = {", "begin_id = {",
     ['15:19: error[A0216]: family.keys.begin_id.is = "bos": all files of a checkpoint have it as bos_token_id']),
    ('norms = "after"', 'norms = "behind"',
     ['19:9: error[A0216]: family.layer.norms = "behind": expected "before", "after" or "both"']),
    ('qk_norm = "whole"', "qk_norm = true", ["20:11: error[A0216]: family.layer.qk_norm = true: expected a string"]),
    ("mlp_post_norm", "mlp_post_nrm",
     ["24:1: error[A0216]: family.tensors has no key mlp_post_nrm: did you mean mlp_post_norm?"]),
    ('mlp_post_norm = "post_feedforward_layernorm"\n', "",
     ["3:2: error[A0216]: family.tensors: norms after mixer and MLP have no usual names: mixer_post_norm and "
      "mlp_post_norm must be there"]),
    ('[family.tensors]', '[family.layers]\nfull_attention = { window = true }\nx = { mixer = "mamba" }\n\n[family.tensors]',
     ["23:18: error[A0216]: family.layers.full_attention: every family has layers of this word",
      '24:15: error[A0216]: family.layers.x.mixer = "mamba": expected "attention" or "delta"']),
    ('[family.tensors]', '[family.layers]\nx = { mixer = "delta", window = true }\n\n[family.tensors]',
     ["23:5: error[A0216]: family.layers.x: only attention has a window"]),
    ('[family.tensors]', '[family.draft]\n\n[family.tensors]',
     ["22:9: error[A0216]: family.draft: prefix is missing"]),
    ('norms = "after"', "norms = after", ["19:9: error[A0301]: expected a value: strings need quotes"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), MISTAKES, ids=[m[1][:30].replace("\n", " ") for m in MISTAKES])
def test_mistakes_have_their_place(atlasc, tmp_path, old, new, says):
    assert OLMO2.count(old) == 1
    (tmp_path / "f.toml").write_text(OLMO2.replace(old, new))
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", "f.toml", cwd=tmp_path)
    assert done.returncode == 4
    assert [line for line in done.stderr.splitlines() if "f.toml:" in line] == [f"f.toml:{s}" for s in says], (
        done.stderr
    )


def test_all_mistakes_are_found(atlasc, tmp_path):
    text = OLMO2.replace('norms = "after"', "norms = 1").replace('"ffn_dim"', '"x"').replace("name =", "nam =")
    (tmp_path / "f.toml").write_text(text)
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", "f.toml", cwd=tmp_path)
    assert done.returncode == 4 and done.stderr.count("f.toml:") == 4, done.stderr


def test_a_file_without_facts(atlasc, tmp_path):
    (tmp_path / "f.toml").write_text("[weights]\nignore = []\n")
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", "f.toml", cwd=tmp_path)
    assert done.returncode == 4
    assert "f.toml:1:1: error[A0216]: there is no table [family]: this file has no facts of a family\n" in done.stderr


def test_options_of_a_family(atlasc, atlas, tmp_path):
    """A section of MODEL.toml is the family's default, over that of all families; an unknown one is an error."""
    (tmp_path / "f.toml").write_text(OLMO2 + "\n[runtime]\nslots = 3\n")
    done = atlasc(HERE / "olmo2", "--target", "none", "-o", tmp_path / "p.bin", "-q", "--family", tmp_path / "f.toml")
    assert done.returncode == 0, done.stderr
    assert json.loads(atlas("info", tmp_path / "p.bin", "--json").stdout)["slots"] == 3
    (tmp_path / "f.toml").write_text(OLMO2 + "\n[runtme]\nslots = 3\n")
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", "f.toml", cwd=tmp_path)
    assert done.returncode == 4 and "f.toml:26:2: error[A0302]: unknown key runtme: did you mean runtime" in done.stderr


def test_given_prefixes_are_all_there_are(atlasc, tmp_path):
    (tmp_path / "f.toml").write_text(OLMO2.replace("[family.tensors]", '[family.tensors]\nprefix = ["transformer"]'))
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", tmp_path / "f.toml")
    assert done.returncode == 4 and "tensor transformer.embed_tokens.weight is missing" in done.stderr, done.stderr


def test_a_window_has_tokens(atlasc, tmp_path):
    facts = (
        (REPO / "models" / "qwen2.toml")
        .read_text()
        .replace('is = "window", default = 4096', 'is = "window", default = 0')
    )
    (tmp_path / "f.toml").write_text(facts)
    fixture = REPO / "tests" / "fixtures" / "qwen2"
    done = atlasc(fixture, "--target", "none", "--dry-run", "--family", "f.toml", cwd=tmp_path)
    assert done.returncode == 4
    assert "error[A0216]: family.keys.sliding_window.default = 0: expected an integer from 1 to" in done.stderr


VALUES = """0;1;-1;"";"x";[];[1];true;{};nan;1e9;"head_dim";"model";[["a"]];{ window = true };{ mixer = "delta" };{ must = [] };
{ is = "window", default = 0 };{ is = "window", default = 8 };{ is = "n_experts" };{ is = "has_window", default = true };
{ unused = "any" };{ as = "head_dim" };{ is = ["qkv_bias", "o_bias"], default = true }""".replace("\n", "").split(";")


def edited(lines, draw):
    """Facts with up to three lines that are gone, there twice, of another key or of another value."""
    for _ in range(draw.randrange(1, 4)):
        at, kind = draw.randrange(len(lines)), draw.randrange(4)
        key, sign, value = lines[at].partition("=")
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, draw.choice(lines))
        elif sign:
            lines[at] = f"{key}= {draw.choice(VALUES)}" if kind == 2 else f"other_{at} ={value}"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(100, 2000, 100))])
def test_whatever_the_facts_say(atlasc, tmp_path, first):
    """Facts and config.json with random mistakes: a plan, or errors with a place."""
    fixtures = REPO / "tests" / "fixtures"
    files = sorted(p for p in (REPO / "models").glob("*.toml") if p.stem not in ("defaults", "olmo2"))
    facts, folder = tmp_path / "f.toml", tmp_path / "m"
    folder.mkdir()
    for seed in range(first, first + 100):
        draw = random.Random(seed)
        file = draw.choice(files)
        facts.write_text(edited(file.read_text().splitlines(), draw))
        own = HERE / file.stem
        config = json.loads(((own if own.is_dir() else fixtures / file.stem) / "config.json").read_text())
        inner = config.get("text_config", config)
        for key in draw.sample(sorted(inner), draw.randrange(4)):
            inner[key] = draw.choice([None, 0, 3, True, "x", [], ["sliding_attention"] * 4])
            if draw.random() < 0.5:
                del inner[key]
        (folder / "config.json").write_text(json.dumps(config))
        done = atlasc(
            folder, "--family", facts, "--random-weights", "--weights", "ref", "--target", "none", "--dry-run"
        )
        assert done.returncode in (0, 3, 4), (seed, file.stem, done.returncode, done.stderr[-400:])
        assert done.returncode == 0 or "error[A" in done.stderr, (seed, done.stderr[-400:])


def test_no_such_file(atlasc, tmp_path):
    done = atlasc(HERE / "olmo2", "--target", "none", "--dry-run", "--family", "none.toml", cwd=tmp_path)
    assert done.returncode in (4, 5) and "none.toml: error[A0102]" in done.stderr, done.stderr
