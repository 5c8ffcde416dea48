"""Every published config gets the verdict of its row in table.toml; the corpus is as wide as it says."""

import collections
import dataclasses
import importlib.machinery
import importlib.util
import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import verdicts  # noqa: E402

ENTRIES = verdicts.entries()
FAMILIES = set(
    """llama mistral qwen2 qwen3 qwen3_moe qwen3_next qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe seed_oss smollm3 step3p7
    ernie4_5 exaone4 gemma3 gemma3_text gemma4 glm4_moe gpt_oss laguna llama4 minimax_m2 mixtral olmo3 phi3""".split()
)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_verdict(atlasc, tmp_path, entry):
    said = verdicts.judge(atlasc.path, entry, tmp_path)
    assert said.right, f"{said.verdict} {said.why}: expected {entry.verdict} {entry.says}"


def weights_of(atlasc, entry, folder):
    """Bytes of the weights that are made up."""
    folder.mkdir()
    said = verdicts.judge(atlasc.path, entry, folder)
    assert said.verdict == "accepted", said.why
    (target,) = json.loads(said.stdout)["targets"]
    return next(i["bytes"] for i in target["items"] if i["item"] == "weights")


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.verdict == "accepted" and e.is_quantised], ids=lambda e: e.name
)
def test_made_weights_are_quantised(atlasc, tmp_path, entry):
    """What is made up is what the files say: beside the same model in bf16, a little more than a half or a quarter."""
    plain = json.loads(json.dumps(entry.files["config.json"]))
    plain.pop("quantization_config", None)
    if plain["model_type"] == "gpt_oss":
        plain["torch_dtype"] = "bfloat16"  # which files of mxfp4 leave out
    bf16 = weights_of(atlasc, dataclasses.replace(entry, files={"config.json": plain}), tmp_path / "plain")
    share = weights_of(atlasc, entry, tmp_path / "quantised") / bf16
    low, high = (
        (0.26, 0.52) if any(w in entry.format.lower() for w in ("nvfp4", "mxfp4", "awq", "gptq")) else (0.50, 0.62)
    )
    if "MIXED" in entry.format:
        low, high = 0.28, 0.5  # experts or the MLP in four bits, the rest in eight or sixteen
    assert low < share < high


def test_a_file_for_every_row():
    assert {e.name for e in ENTRIES} == {p.stem for p in HERE.glob("*.json")}


def test_width():
    """Many kinds, and no kind by its number alone."""
    kinds = collections.Counter((e.model_type, e.format) for e in ENTRIES)
    quantised = [e for e in ENTRIES if e.is_quantised]
    assert len(ENTRIES) >= 100 and max(kinds.values()) <= 3
    assert len({e.model_type for e in ENTRIES}) >= 45 and len(quantised) >= 40
    accepted = {e.model_type for e in ENTRIES if e.verdict == "accepted"}
    assert accepted == FAMILIES
    for entry in ENTRIES:
        assert entry.source and (entry.verdict == "accepted") == (not entry.missing) == (not entry.says), entry.name


def test_the_command(build_dir, tmp_path, monkeypatch, capsys):
    """It exits with 1, and says what was expected, if a verdict is not the table's."""
    loader = importlib.machinery.SourceFileLoader("published_run", str(HERE / "run"))
    command = importlib.util.module_from_spec(importlib.util.spec_from_loader("published_run", loader))
    loader.exec_module(command)
    monkeypatch.setattr(verdicts, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run", "--build-dir", str(build_dir)])
    names = ["Qwen-Qwen3-0.6B", "LiquidAI-LFM2-2.6B"]
    for name in names:
        (tmp_path / f"{name}.json").write_bytes((HERE / f"{name}.json").read_bytes())
    table = '["Qwen-Qwen3-0.6B"]\nsource = "x"\nverdict = "accepted"\n["LiquidAI-LFM2-2.6B"]\nsource = "x"\n'
    (tmp_path / "table.toml").write_text(table + 'verdict = "A0204"\nsays = "lfm2"\nmissing = "conv"\n')
    assert command.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["Qwen-Qwen3-0.6B", "qwen3", "bfloat16", "accepted"],
        ["LiquidAI-LFM2-2.6B", "lfm2", "bfloat16", "A0204", "conv"],
        ["1", "of", "2", "accepted"],
    ]
    (tmp_path / "table.toml").write_text(table + 'verdict = "accepted"\n')
    assert command.main() == 1
    out, err = capsys.readouterr()
    assert "EXPECTED accepted: model_type" in out and out.endswith("1 of 2 accepted\n")
    assert err == "1 verdicts are not those of tests/published/table.toml\n"
