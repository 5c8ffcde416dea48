"""`atlasc --context` and `--slots`: beside MODEL.toml, in the plan, in a rebuild, in an estimate; the note without them."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def model(repo, tmp_path):
    """A model of 16,384 positions without a MODEL.toml of its own."""
    folder = tmp_path / "model"
    shutil.copytree(repo / "tests/fixtures/llama", folder)
    (folder / "MODEL.toml").unlink()
    config = (
        (folder / "config.json")
        .read_text()
        .replace('"max_position_embeddings": 512', '"max_position_embeddings": 16384')
    )
    (folder / "config.json").write_text(config)
    return folder


@pytest.fixture
def line(model):
    text = (model / "config.json").read_text()
    return text[: text.index('"max_position')].count("\n") + 1


def info(atlas, plan):
    return json.loads(atlas("info", plan, "--json").stdout)


def test_a_model_that_can_read_more(atlasc, atlas, model, line, tmp_path):
    plan = tmp_path / "p.bin"
    run = atlasc(model, "--target", "none", "-o", plan, "-q")
    assert (run.returncode, run.stderr) == (
        0,
        f"{model}/config.json:{line}:30: note[A0309]: the model can read 16384 tokens; "
        "this plan's context is 4096, the default of family llama: --context N changes it\n",
    )
    assert info(atlas, plan)["max_context"] == 4096
    for words in (["--context", 4096], ["--context", 16384]):
        run = atlasc(model, "--target", "none", "-o", plan, "-q", *words)
        assert (run.returncode, run.stderr) == (0, "") and info(atlas, plan)["max_context"] == words[1]
    (model / "MODEL.toml").write_text("[runtime]\nmax_context = 4096\n")
    assert atlasc(model, "--target", "none", "-o", plan, "-q").stderr == ""


def test_numbers_of_the_command_line_replace_those_of_the_file(atlasc, atlas, model, tmp_path):
    plan = tmp_path / "p.bin"
    (model / "MODEL.toml").write_text("[runtime]\nmax_context = 256\nslots = 3\n")
    run = atlasc(model, "--target", "none", "-o", plan, "-q", "--context", 512, "--slots", 3)
    assert (run.returncode, run.stderr) == (
        0,
        f"{model}/MODEL.toml:2:15: note[A0308]: runtime.max_context = 256 is not used: --context 512\n",
    )
    got = info(atlas, plan)
    assert (got["slots"], got["max_context"]) == (3, 512)
    assert got["replaced"] == {"runtime.max_context": "256 of MODEL.toml, by --context 512"}
    assert "\nreplaced     runtime.max_context = 256 of MODEL.toml, by --context 512\n" in atlas("info", plan).stdout
    run = atlas("verify", plan, "--rebuild", "--checkpoint", model)
    assert run.returncode == 0 and run.stdout.endswith("the rebuilt plan is equal\n"), run.stdout
    (model / "MODEL.toml").write_text("[runtime]\nmax_context = 512\nslots = 3\n")
    assert atlasc(model, "--target", "none", "-o", plan, "-q", "--slots", 3).stderr == ""
    assert info(atlas, plan)["replaced"] == {}


@pytest.mark.parametrize(
    "words,message",
    [
        (["--context", "0"], "atlasc: error[A0101]: --context 0: expected 1 to 268435456"),
        (["--context", "4k"], "atlasc: error[A0101]: --context 4k: expected 1 to 268435456"),
        (["--slots", "1.5"], "atlasc: error[A0101]: --slots 1.5: expected 1 to 1024"),
        (["--slots", "99999999999999999999"], "atlasc: error[A0101]: --slots 99999999999999999999: expected 1 to 1024"),
        (["--context"], "atlasc: error[A0101]: --context needs N"),
    ],
)
def test_mistakes(atlasc, model, words, message):
    run = atlasc(model, "--estimate", *words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message + "\n")


def test_more_than_the_model_has(atlasc, model, line):
    run = atlasc(model, "--estimate", "--context", 16385)
    assert (run.returncode, run.stdout, run.stderr) == (
        4,
        "",
        "--context: error[A0304]: runtime.max_context = 16385: max_position_embeddings = 16384 "
        f"({model}/config.json:{line})\n",
    )


def test_the_estimate_counts_them(atlasc, model):
    small, large = (atlasc(model, "--estimate", "--context", n, "--slots", 2).stdout for n in (1024, 8192))
    assert small.startswith("sm_90a: 2 slots of 1024 tokens: ") and large.startswith("sm_90a: 2 slots of 8192 tokens: ")
    got = json.loads(atlasc(model, "--estimate", "--json", "--context", 8192, "--slots", 2).stdout)
    assert (got["slots"], got["max_context"]) == (2, 8192)
    [kv] = [i["bytes"] for i in got["targets"][0]["items"] if i["item"] == "keys and values"]
    [before] = [
        i["bytes"]
        for i in json.loads(atlasc(model, "--estimate", "--json", "--context", 1024, "--slots", 2).stdout)["targets"][
            0
        ]["items"]
        if i["item"] == "keys and values"
    ]
    assert kv == 8 * before
