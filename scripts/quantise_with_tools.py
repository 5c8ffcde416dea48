#!/usr/bin/env python3
"""Let the tools that people quantise with write small checkpoints: the folders tests/fixtures/written-by-*.

    python scripts/quantise_with_tools.py [NAME...]          write the folders (nvidia-modelopt, llmcompressor, auto-round,
                                                             transformers)
    python scripts/make_fixtures.py goldens tests/fixtures/written-by-*
    python scripts/quantise_with_tools.py seeds [NAME...]    look for seeds whose greedy text is clear of ties

Each starts from a plain checkpoint of tests/mkckpt, is calibrated on random ids where its scheme asks for that, and is
committed as the tool's own `save` left it: model.safetensors and every JSON file. Beside them are put the tokenizer, which
tools copy, and a MODEL.toml. tests/fixtures/README.md says which versions wrote them.

IMITATED says how tests/mkckpt would write the same file; tests/mkckpt/test_written.py compares the two.
"""

import copy
import importlib.metadata
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests", "mkckpt"))

import make_fixtures  # noqa: E402
import mkckpt  # noqa: E402

SMALL = {"layers": 1, "tied": True, "vocab": 304}
LAYERS = "model.layers.*proj"
MODELOPT = {"writer": "modelopt", "both_files": True, "ignore": ["lm_head", "model.embed_tokens"]}
IMITATED = {  # name -> knobs of mkckpt.py; those of `plain` are the checkpoint that the tool is given
    "written-by-modelopt-fp8": {
        **SMALL, "seed": 3, "kv_heads": 2, "dtypes": {"*.?_scale": "F32"},
        "extra": {f"model.layers.0.self_attn.{side}_proj.{side}_scale": [] for side in "kv"},
        "quant": {**MODELOPT, "formats": {LAYERS: "fp8-tensor"}, "static": True, "kv": "FP8"}},
    "written-by-modelopt-mxfp4": {
        **SMALL, "seed": 19, "quant": {**MODELOPT, "formats": {LAYERS: "mxfp4"}}},
    "written-by-modelopt-nvfp4": {
        **SMALL, "seed": 5, "quant": {**MODELOPT, "formats": {LAYERS: "nvfp4"}, "static": True}},
    "written-by-modelopt-mixed": {
        **SMALL, "seed": 7, "family": "qwen3", "tokenizer": "qwen2", "layers": 2,
        "quant": {**MODELOPT, "static": True, "ignore": [],
                  "formats": {"*layers.1.mlp.down_proj": "plain", "*self_attn.?_proj": "fp8-tensor", "*mlp.*": "nvfp4"}}},
    "written-by-llmcompressor-fp8-block": {  # 208 rows and columns: blocks that are cut off
        **SMALL, "seed": 10, "intermediate": 208,
        "quant": {"writer": "ct", "formats": {LAYERS: "fp8-block"}, "scale_dtype": "BF16"}},
    "written-by-llmcompressor-fp8-dynamic": {
        **SMALL, "seed": 16, "quant": {"writer": "ct", "formats": {LAYERS: "fp8-channel"}, "scale_dtype": "BF16"}},
    "written-by-llmcompressor-nvfp4": {
        **SMALL, "seed": 10, "quant": {"writer": "ct", "formats": {LAYERS: "nvfp4"}, "static": True}},
    "written-by-llmcompressor-mxfp4": {
        **SMALL, "seed": 10, "quant": {"writer": "ct", "formats": {LAYERS: "mxfp4"}}},
    "written-by-llmcompressor-mixed": {
        **SMALL, "seed": 29, "family": "qwen2", "tokenizer": "qwen2", "layers": 2,
        "quant": {"writer": "ct", "scale_dtype": "BF16",
                  "formats": {"*layers.1.mlp.down_proj": "plain", "*self_attn.?_proj": "fp8-channel", "*mlp.*": "nvfp4"}}},
    "written-by-llmcompressor-int4": {
        **SMALL, "seed": 47, "hidden": 128, "intermediate": 256,
        "quant": {"writer": "ct", "formats": {LAYERS: "int4"}, "zeros": True}},
    "written-by-auto-round-awq": {
        **SMALL, "seed": 99, "hidden": 128, "intermediate": 256, "dtype": "F32",
        "quant": {"writer": "awq", "formats": {LAYERS: "int4"}}},
    "written-by-auto-round-gptq": {  # symmetric: half of the scales are negative
        **SMALL, "seed": 8, "dtype": "F32", "quant": {"writer": "gptq", "formats": {LAYERS: "int4"}, "group": 32,
                                                      "zeros": False}},
    "written-by-transformers-fp8": {
        **SMALL, "seed": 14, "hidden": 128, "kv_heads": 2, "intermediate": 256,
        "quant": {"writer": "fp8", "formats": {LAYERS: "fp8-block"}}},
}  # fmt: skip


def knob_of(name, quantised=True):
    """The full knobs of the imitation, or of the plain checkpoint that a tool starts from."""
    knob = {**mkckpt.DEFAULTS, **IMITATED[name]}
    return knob if quantised else {**knob, "quant": {}, "extra": {}}


def make_uneven(path):
    """Rows and columns of all products get sizes of their own: else one scale would be as good as its neighbour."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    for name, w in tensors.items():
        if name.endswith("proj.weight"):
            rows, columns = (torch.tensor([0.5 + 0.25 * ((i // 16) % 5) for i in range(n)]) for n in w.shape)
            tensors[name] = (w.float() * rows[:, None] * columns[None, :]).to(w.dtype)
    save_file(tensors, path, {"format": "pt"})


def load(folder):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def calibration_ids(vocab):
    import torch

    return torch.randint(3, vocab, (4, 64), generator=torch.Generator().manual_seed(1))


def modelopt(plain, out, config):
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    model = load(plain)
    ids = calibration_ids(model.config.vocab_size)
    mtq.quantize(model, config(mtq), lambda m: [m(row[None]) for row in ids])
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=out)


def preset(name, kv=None):
    def config(mtq):
        out = copy.deepcopy(getattr(mtq, name))
        out["quant_cfg"] += copy.deepcopy(getattr(mtq, kv)["quant_cfg"]) if kv else []
        return out

    return config


def mixed(mtq):
    """FP8 attention, NVFP4 MLP, one matrix left as it is."""
    out = copy.deepcopy(mtq.FP8_DEFAULT_CFG)
    four = next(e["cfg"] for e in mtq.NVFP4_DEFAULT_CFG["quant_cfg"] if e["quantizer_name"] == "*weight_quantizer")
    for kind in ("weight", "input"):
        out["quant_cfg"] += [
            {"quantizer_name": f"*mlp*{kind}_quantizer", "cfg": copy.deepcopy(four)},
            {"quantizer_name": f"*layers.1.mlp.down_proj*{kind}_quantizer", "enable": False},
        ]
    return out


def llmcompressor(plain, out, scheme, calibrated=False):
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier

    model = load(plain)
    ids = calibration_ids(model.config.vocab_size).tolist()
    data = Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]})
    more = {"dataset": data, "num_calibration_samples": len(ids), "max_seq_length": len(ids[0])} if calibrated else {}
    oneshot(model=model, recipe=QuantizationModifier(**scheme), **more)
    model.save_pretrained(out, save_compressed=True)


def simple(scheme):
    return {"targets": "Linear", "scheme": scheme, "ignore": ["lm_head"]}


def groups():
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme

    return {
        "config_groups": {
            "attention": preset_name_to_scheme("FP8_DYNAMIC", ["re:.*self_attn.(q|k|v|o)_proj$"]),
            "mlp": preset_name_to_scheme("NVFP4A16", ["re:.*mlp.*_proj$"]),
        },
        "ignore": ["lm_head", "model.layers.1.mlp.down_proj"],
    }


def transformers_fp8(plain, out):
    """The quantiser wants to see a GPU before it starts, and then uses none."""
    import torch
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

    FineGrainedFP8HfQuantizer.validate_environment = lambda *_, **__: None
    AutoModelForCausalLM.from_pretrained(
        plain, dtype=torch.bfloat16, quantization_config=FineGrainedFP8Config()
    ).save_pretrained(out)


def auto_round(plain, out, layout, **scheme):
    """Rounded to nearest; it saves into a folder of its own below."""
    from auto_round import AutoRound
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as scratch:
        AutoRound(
            load(plain),
            AutoTokenizer.from_pretrained(plain),
            bits=4,
            iters=0,
            device_map="cpu",
            disable_opt_rtn=True,
            **scheme,
        ).quantize_and_save(scratch, format=layout)
        [made] = os.listdir(scratch)
        shutil.copytree(os.path.join(scratch, made), out)
    os.remove(os.path.join(out, "chat_template.jinja"))


WRITERS = {
    "written-by-modelopt-fp8": lambda p, o: modelopt(p, o, preset("FP8_DEFAULT_CFG", "FP8_KV_CFG")),
    "written-by-modelopt-mxfp4": lambda p, o: modelopt(p, o, preset("MXFP4_DEFAULT_CFG")),
    "written-by-modelopt-nvfp4": lambda p, o: modelopt(p, o, preset("NVFP4_DEFAULT_CFG")),
    "written-by-modelopt-mixed": lambda p, o: modelopt(p, o, mixed),
    "written-by-llmcompressor-fp8-block": lambda p, o: llmcompressor(p, o, simple("FP8_BLOCK")),
    "written-by-llmcompressor-fp8-dynamic": lambda p, o: llmcompressor(p, o, simple("FP8_DYNAMIC")),
    "written-by-llmcompressor-nvfp4": lambda p, o: llmcompressor(p, o, simple("NVFP4"), calibrated=True),
    "written-by-llmcompressor-mxfp4": lambda p, o: llmcompressor(p, o, simple("MXFP4")),
    "written-by-llmcompressor-mixed": lambda p, o: llmcompressor(p, o, groups()),
    "written-by-llmcompressor-int4": lambda p, o: llmcompressor(p, o, simple("W4A16_ASYM")),
    "written-by-auto-round-awq": lambda p, o: auto_round(p, o, "auto_awq", group_size=128, sym=False),
    "written-by-auto-round-gptq": lambda p, o: auto_round(p, o, "auto_gptq", group_size=32, sym=True),
    "written-by-transformers-fp8": transformers_fp8,
}


def write(name, seed, out):
    """The folder as a tool leaves it, with the tokenizer beside."""
    with tempfile.TemporaryDirectory() as scratch:
        plain = os.path.join(scratch, "plain")
        mkckpt.build({**knob_of(name, quantised=False), "seed": seed}).write(plain)
        make_uneven(os.path.join(plain, "model.safetensors"))
        WRITERS[name](plain, out)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(plain, file), out)


def search_seed(name):
    for seed in range(1, 1000):
        with tempfile.TemporaryDirectory() as scratch:
            write(name, seed, os.path.join(scratch, name))
            found, report = make_fixtures.clear_of_ties(os.path.join(scratch, name), needs=(0.06, 0.06), distinct=6)
        if found:
            print(f"{name}: seed {seed}, (margin, distinct tokens) {report}", flush=True)
            return


def main():
    assert WRITERS.keys() == IMITATED.keys()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    words = sys.argv[1:]
    if words[:1] == ["seeds"]:
        for name in words[1:] or WRITERS:
            search_seed(name)
        return
    for name in words or WRITERS:
        out = os.path.join(make_fixtures.FIXTURES, name)
        shutil.rmtree(out, ignore_errors=True)
        write(name, knob_of(name)["seed"], out)
        make_fixtures.write_model_toml(name, knob_of(name)["family"], 256)
    for package in ("nvidia-modelopt", "llmcompressor", "auto-round", "compressed-tensors", "transformers", "torch"):
        print(package, importlib.metadata.version(package))


if __name__ == "__main__":
    main()
