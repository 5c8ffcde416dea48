"""What of a layer's attention and of a head is one launch, in families whose attention has more than others': sinks,
normed values, K as V, heads of two sizes, capped logits. Plans are picked, not compiled."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
NGRAM = '[runtime]\nslots = 4\n[phases]\nprefill = [64]\ndecode = [1, 4]\n[speculate]\ndrafter = "ngram"\nrows = 3\n'
# kind of phase -> the ops in which a layer attends
ATTENDS = {
    "prefill": [{"rope_write", "attention"}],
    "decode": [{"attention_step"}],
    "verify": [{"attention_verify"}, {"attention_step"}],  # of several rows a slot, of one
}
OPS = set(
    "rope rope_write keys_write kv_write head_norm attention attention_rows attention_step attention_verify".split()
)


@pytest.fixture(scope="module")
def phases(atlasc, tmp_path_factory):
    """[(kind, {layer: [(op, its lines)]})] of a folder's plan for a target; how many layers the model has."""
    toml = tmp_path_factory.mktemp("toml") / "MODEL.toml"
    toml.write_text(NGRAM)

    def picked(folder, target="sm_90a", *words):
        words = [folder, "--model", toml, "--target", target, "--stop-after", "pick-kernels", "-d", "k", *words]
        run = atlasc(*words)
        assert run.returncode == 0, run.stderr
        parts = re.split(r"^phase +\S+ (\w+) rows \d+ outs \d+$", run.stdout, flags=re.M)
        out = []
        for kind, text in zip(parts[1::2], parts[2::2]):
            layers = {}
            for layer, op, lines in re.findall(r"^  (-?\d+) +(\w+) (.*\n(?:      .*\n)*)", text, re.M):
                layers.setdefault(int(layer), []).append((op, lines))
            out.append((kind, layers))
        return [(kind, layers) for kind, layers in out if kind in ATTENDS]

    return picked


@pytest.mark.parametrize("name, n_layers", [("gpt_oss-mxfp4", 3), ("gemma4", 5), ("gemma4-moe", 3)])
def test_attention_is_one_launch(phases, name, n_layers):
    seen = set()
    for kind, layers in phases(HERE / name):
        seen.add(kind)
        for layer in range(n_layers):
            assert {op for op, _ in layers[layer]} & OPS in ATTENDS[kind], (kind, layer)
    assert seen == set(ATTENDS)


def test_sinks_are_read_where_a_row_attends(phases):
    for kind, layers in phases(HERE / "gpt_oss"):
        for layer in range(3):
            reads = [op for op, lines in layers[layer] if f"layers.{layer}.self_attn.sinks" in lines]
            assert len(reads) == 1 and reads[0] in {"attention", "attention_step", "attention_verify"}, (kind, layer)


def test_values_of_layers_without_v(phases):
    """Window layers of the tiny Gemma-4 have v_proj, the others' v is k; either is normed."""
    for kind, layers in phases(HERE / "gemma4-moe"):
        of = {
            layer: re.search(r"V_IS_K=(\d) V_NORM=(\d)", "".join(lines for op, lines in layers[layer] if op in OPS))
            for layer in range(3)
        }
        config = json.loads((HERE / "gemma4-moe" / "config.json").read_text())
        for layer, kind_of in enumerate(config["layer_types"]):
            want = ("1" if kind_of == "full_attention" else "0", "1")
            assert of[layer] and of[layer].groups() == want, (kind, layer)


@pytest.mark.parametrize("name", ["gemma4", "gemma4-ple"])
def test_logits_are_capped_where_they_are_made(phases, name):
    for kind, layers in phases(HERE / name):
        head = layers[max(layers)]
        ops = {op for op, _ in head}
        assert "soft_cap" not in ops and ops & {"norm_logits", "linear_logits"}, (kind, ops)
        caps = {float.fromhex(cap) for _, lines in head for cap in re.findall(r"\bCAP=(\S+)f\b", lines)}
        assert caps == {json.loads((HERE / name / "config.json").read_text())["final_logit_softcapping"]}, kind


@pytest.mark.parametrize("name", ["minimax_m2", "olmo2", "olmo3"])
def test_norms_over_all_heads_are_in_a_decode_step(phases, name, tmp_path):
    """Of rows of different slots; not where bits must be those of other steps, nor where keys are kept as codes."""
    for kind, layers in phases(HERE / name):
        ops = [(op, lines) for op, lines in layers[0] if op in OPS]
        assert len({lines for _, lines in ops}) == len(ops)
        alone = kind == "decode" or [op for op, _ in ops] == ["attention_step"]
        assert [op for op, _ in ops] == ["attention_step"] if alone else {"rope", "kv_write"} < {op for op, _ in ops}, (
            kind
        )
        assert not alone or "NORM_WHOLE=1" in ops[0][1], ops
    for lines in ("[numerics]\ninvariant = true\n", '[kv]\ndtype = "fp8"\n'):
        toml = tmp_path / "MODEL.toml"
        toml.write_text(NGRAM + lines)
        for kind, layers in phases(HERE / name, "sm_90a", "--model", toml):
            assert "attention_step" not in {op for op, _ in layers[0]}, (kind, lines)


@pytest.mark.long
@pytest.mark.parametrize("name", ["minimax_m2", "olmo2", "olmo3"])
def test_drafts_leave_texts_whose_norms_are_over_all_heads(atlas, atlasc, tmp_path, name):
    """Verify steps norm such heads in launches of their own: on the reference device the bits are those of decode."""
    plan, toml = tmp_path / "plan.bin", tmp_path / "MODEL.toml"
    toml.write_text(NGRAM)
    done = atlasc(HERE / name, "--target", "sm_90a", "--model", toml, "-o", plan, "-q", timeout=600)
    assert done.returncode == 0, done.stderr
    for seed in range(4):
        words = [plan, "--device", "cpu", "--tokens", "5,6,7,8,5,6,7,8,5,6,7", "-n", 60, "--json", "--seed", seed]
        words += ["--temperature", 0.9 if seed else 0]
        off, on = (json.loads(atlas("run", *words, "--speculate", s).stdout)["results"][0] for s in ("off", "ngram"))
        assert (off["tokens"], off["logprobs"]) == (on["tokens"], on["logprobs"])
