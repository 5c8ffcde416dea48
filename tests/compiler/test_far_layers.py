"""Equal layers that are not next to each other: one decision, and rules of MODEL.toml for one of them."""

from __future__ import annotations

import json

import pytest
from atlasc_texts import launches

LAYERS = 7
OWN = "[runtime]\nslots = 1\n[phases]\nprefill = [16]\ndecode = [1]\n"


@pytest.fixture
def picks(atlasc, repo, tmp_path):
    """picks(rules, *words): the launches of decode[1] and the whole dump, of Gemma-3 with a window in every other layer."""
    config = json.loads((repo / "tests/families/gemma3/config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = LAYERS
    config["layer_types"] = [("sliding_attention", "full_attention")[i % 2] for i in range(LAYERS)]
    (tmp_path / "config.json").write_text(json.dumps(config))

    def run(rules="", *words):
        (tmp_path / "MODEL.toml").write_text(OWN + rules)
        done = atlasc(
            tmp_path, "--random-weights", "--target", "sm_90a", "--stop-after", "pick-kernels", "-d", "k", *words
        )
        assert done.returncode == 0, done.stderr
        return launches(done.stdout)["decode", 1], done.stdout

    return run


def attention(found):
    return {x.layer: (x.kernel, x.constants) for x in found if x.op == "attention_step"}


def test_equal_layers_have_one_decision(picks):
    found = attention(picks()[0])
    assert list(found) == list(range(LAYERS))
    for layer, choice in found.items():
        assert choice == found[layer % 2]
    assert found[0] != found[1]


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_rule_of_one_layer_is_its_own(picks, layer):
    """Before it and after it are layers that are equal but for the rule."""
    plain = attention(picks()[0])
    warps = {"4": "8", "8": "2", "2": "4"}[plain[layer][1]["WARPS"]]
    pin = f'[[kernels.pin]]\ntemplate = "{plain[layer][0]}"\nlayers = [{layer}]\ntunables = {{ WARPS = {warps} }}\n'
    found = attention(picks(pin)[0])
    assert found.pop(layer)[1]["WARPS"] == warps
    del plain[layer]
    assert found == plain
