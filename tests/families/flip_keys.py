#!/usr/bin/env python3
"""Every key of a family's class in transformers with other values: does atlasc follow it, or refuse it by name?

    tests/families/flip_keys.py --build-dir build [NAME...] [--keys KEY,...] [--record]

Needs torch and transformers. NAME is a folder beside this file. Each of the class's keys gets other values, one at a
time, and transformers makes random weights for the config that results. A line says what came of it:

  refused    atlasc names the key (or what does not fit it)
  followed   logits are those of transformers, and others than before
  neutral    they are those of transformers, and the same as before
  loose      atlasc accepts what transformers does not read at all
  known      they are not, for a reason that docs/models.md or this file states
  SILENT     atlasc accepts and computes something else: exit 1

--record writes what needs no weights but the folder's to NAME/keys.json, which test_keys.py reads without torch.
"""

import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from make_goldens import fill, fill_experts, saved
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file
from transformers import AutoConfig, PreTrainedConfig

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4
PROMPT, CONTEXT, N_LOGITS = 41, 48, 12
OF_TRAINING = {"attention_dropout", "embd_pdrop", "resid_pdrop", "residual_dropout", "initializer_range", "use_cache",
               "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "bos_token_id", "eos_token_id",
               "pad_token_id", "max_position_embeddings", "vocab_size", "hidden_size"}  # fmt: skip
BY_KIND = ("gemma3", "gemma4", "laguna", "olmo3", "step3p5")
ABSENT = "absent"
ACTS = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2")
NOT_OF_IT = {"architectures", "model_type", "torch_dtype", "dtype", "quantization_config"}


def text_of(config):
    return config.get("text_config", config)


def annotations_of(config_class):
    """Keys and types of the class and of those it is made of, but for PreTrainedConfig."""
    before = config_class.__mro__[: config_class.__mro__.index(PreTrainedConfig)]
    found = {}
    for cls in before:
        found |= {k: str(v) for k, v in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(v)}
    return {k: v for k, v in found.items() if not k.startswith(("_", "base_model_"))}


def of_rope(table):
    """Tables with one number changed, and of each other type."""
    if any(isinstance(v, dict) for v in table.values()):
        for kind, inner in table.items():
            for other in of_rope(inner):
                yield table | {kind: other}
        return
    for key, value in table.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield table | {key: value * 1.5 if key != "partial_rotary_factor" else (0.5 if value != 0.5 else 1.0)}
        if isinstance(value, bool):
            yield table | {key: not value}
    theta = {k: v for k, v in table.items() if k in ("rope_theta", "partial_rotary_factor")}
    yield theta | {"rope_type": "default"}
    yield theta | {"rope_type": "linear", "factor": 4.0}
    yield theta | {"rope_type": "dynamic", "factor": 4.0}
    yield theta | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    yield theta | {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "attention_factor": 1.3,
        "beta_fast": 16.0,
    }
    yield theta | {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "truncate": False,
    }
    llama3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    yield theta | {"rope_type": "llama3", "factor": 8.0} | llama3
    yield theta | {"rope_type": "proportional"}


def others(key, value, hint):
    """Values for a key that are not `value`."""
    names = str(hint)
    if key in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
        return [*of_rope(value), None]
    if key in ("hidden_act", "hidden_activation"):
        return [a for a in ACTS if a != value]
    if isinstance(value, bool):
        return [not value, *([None] if "None" in names else [])]
    if isinstance(value, int):
        more = [v for v in (value + 1, value * 2, value - 1, value // 2, 0, -1) if v != value]
        return [*dict.fromkeys(more), None]
    if isinstance(value, float):
        return [value * 1.7 + 0.3, 0.0, -1.0, None]
    if isinstance(value, list):
        turned = [*value[1:], value[0]] if value else []
        more = [value[:-1], [], None, [*value, *value[-1:]]]
        if value and all(isinstance(v, str) for v in value):
            words = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention", "dense", "sparse"]
            more += [[w] * len(value) for w in words] + [[*words[:2], *words[:2], *words[:2]][: len(value)]]
        elif value and all(isinstance(v, (int, float)) for v in value):
            more += [[0] * len(value), [1] * len(value), [v * 2 for v in value]]
        return [turned, *more] if turned != value else more
    if isinstance(value, str):
        return ["x", None, True, False, "all", "vision", "per-element", "per-head", "softmax", "sigmoid"]
    if value is None:
        more = []
        if "bool" in names:
            more += [True, False]
        if "int" in names or "float" in names:
            more += [1, 2, 4, 8]
        if "float" in names:
            more += [0.5]
        if "str" in names:
            more += ["x", "all"]
        if "list" in names:
            more += [["full_attention"], [0], [1]]
        return more or [True, 4]
    if isinstance(value, dict):
        return [{}, None]
    return []


def build(config, seed):
    model = getattr(transformers, config.architectures[0])(config).eval().to(torch.float32)
    fill(model, seed)
    return model


def reference(model, ids):
    with torch.no_grad():
        return model(ids, use_cache=False).logits[0].float().numpy()


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


class Judge:
    """A folder's config with one change after the other."""

    def __init__(self, build_dir, name, work):
        self.build_dir, self.folder, self.work = build_dir, HERE / name, work
        self.raw = json.loads((self.folder / "config.json").read_text())
        self.name = name
        self.base = None
        self.stored = load_torch(self.folder / "model.safetensors")
        self.records = []

    def load(self, raw):
        """A config as from_pretrained makes it of a file."""
        path = self.work / "config.json"
        path.write_text(json.dumps(raw))
        return AutoConfig.from_pretrained(self.work, attn_implementation="eager")

    def seed(self):
        """The one that the folder's weights are of."""
        with safe_open(self.folder / "golden.safetensors", "pt") as file:
            return int(file.metadata()["seed"])

    def note(self, key, value, **what):
        """For test_keys.py, if the folder's own weights are those of the case."""
        self.records.append({"key": key, "value": value} | what)

    def model_of(self, raw, seed):
        config = self.load(raw)
        packed = {}
        is_packed = (getattr(config, "quantization_config", None) or {}).get("quant_method") == "mxfp4"
        if is_packed:
            del config.quantization_config
        model = build(config, seed)
        if is_packed:
            packed = fill_experts(model, seed)
        if config.model_type == "gpt_oss":
            for module in model.modules():
                if hasattr(module, "limit"):
                    module.limit = text_of(raw).get("swiglu_limit", 7.0)
                if hasattr(module, "alpha"):
                    module.alpha = text_of(raw).get("swiglu_alpha", 1.702)
        return model, packed

    def atlas(self, raw, n_prompt, context=CONTEXT):
        """Logits of the first tokens; or None and what was said. The exit code."""
        (self.work / "config.json").write_text(json.dumps(raw))
        plan, dump = self.work / "p.bin", self.work / "d.safetensors.out"
        done = run(self.build_dir / "atlasc", self.work, "--target", "none", "-o", plan, "-q", "--context", context)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error[" in line]
            return None, lines or [done.stderr.strip()[-200:]], done.returncode
        ids = ",".join(map(str, self.ids[0, :n_prompt].tolist()))
        got = run(self.build_dir / "atlas", "dump", plan, "--tokens", ids, "--device", "cpu", "-o", dump, "-q",
                  "--threads", "1")  # fmt: skip
        if got.returncode:
            return None, ["dump: " + got.stderr.strip()[-200:]], 70
        return load_file(dump)["logits"], done.stderr.splitlines(), 0

    def case(self, key, value, raw):
        try:
            model, packed = self.model_of(raw, self.seed())
            want = reference(model, self.ids)
            for file in self.work.glob("*.safetensors"):
                file.unlink()
            tensors = saved(model, packed)
            is_own = {k: v.shape for k, v in tensors.items()} == {k: v.shape for k, v in self.stored.items()} and all(
                torch.equal(v, self.stored[k]) for k, v in tensors.items()
            )
            save_file(tensors, self.work / "model.safetensors", {"format": "pt"})
            trouble = None if np.isfinite(want).all() else "not finite"
        except Exception as error:  # noqa: BLE001  what transformers cannot build, atlasc need not
            is_own, want, trouble = (
                False,
                None,
                f"{type(error).__name__}: {str(error).splitlines()[0][:90] if str(error) else ''}",
            )
        got, lines, code = self.atlas(raw, PROMPT)
        if got is None:
            crash = code not in (3, 4)
            found = re.search(r"error\[(A02\d\d)\]", lines[0])
            if found and found[1] != "A0214":
                self.note(key, value, refused=found[1])
            return (
                "CRASH" if crash else "refused",
                f"exit {code} {lines[0][:230]}" + ("" if trouble is None else f"   ({trouble})"),
            )
        if want is None or trouble:
            return "loose", trouble
        if got.shape != want.shape:
            return "SILENT", f"shape {got.shape} for {want.shape}"
        error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
        if error > TOLERANCE:
            text = json.dumps(raw)
            if '"truncate": false' in text and self.name.partition("-")[0] in BY_KIND:
                return (
                    "known",
                    "the class reads truncate beside the tables, where no file has it; it is followed in them",
                )
            if any("A0217" in line for line in lines):
                return "known", "longrope: the list is that of runtime.max_context"
            return "SILENT", f"error {error:.2g} {[line for line in lines if 'A0207' in line or 'A02' in line][:2]}"
        if is_own:
            self.note(key, value, logits=[float(f"{v:.5g}") for v in want[-1, :N_LOGITS]])
        same = (
            self.base is not None and want.shape == self.base.shape and float(np.max(np.abs(want - self.base))) < 1e-5
        )
        return ("neutral" if same else "followed"), f"error {error:.1g}"

    def run(self, keys, most):
        vocab = text_of(self.raw)["vocab_size"]
        self.ids = torch.tensor([[3 + 7 * i % (vocab // 2 - 5) for i in range(PROMPT)]])
        model, _ = self.model_of(self.raw, self.seed())
        self.base = reference(model, self.ids)
        kind, told = self.case(None, None, self.raw)
        yield "(base)", None, kind, told
        text = model.config.get_text_config()
        whole = text.to_dict()
        hints = annotations_of(type(text))
        for key in keys or sorted(
            k for k in {*hints, *text_of(self.raw)} - NOT_OF_IT if most is None or k not in OF_TRAINING
        ):
            value = text_of(self.raw).get(key, whole.get(key))
            values = others(key, value, hints.get(key, ""))[:most]
            for other in [*values, *([ABSENT] if key in text_of(self.raw) else [])]:
                raw = copy.deepcopy(self.raw)
                text_of(raw)[key] = other
                if other == ABSENT:
                    del text_of(raw)[key]
                if key == "rope_parameters":  # in the place of the older keys
                    for old in ("rope_theta", "rope_scaling", "partial_rotary_factor"):
                        text_of(raw).pop(old, None)
                kind, told = self.case(key, other, raw)
                yield key, other, kind, told


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--build-dir", default="build", type=pathlib.Path)
    p.add_argument("--record", action="store_true")
    p.add_argument("--most", type=int, help="values of a key")
    p.add_argument("--keys", type=lambda s: s.split(","))
    args = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    silent = 0
    for name in args.names or sorted(p.parent.name for p in HERE.glob("*/golden.safetensors")):
        with tempfile.TemporaryDirectory() as work:
            judge = Judge(args.build_dir.resolve(), name, pathlib.Path(work))
            for key, value, kind, told in judge.run(args.keys, args.most):
                silent += kind in ("SILENT", "CRASH")
                print(f"{name:14} {key:32} {json.dumps(value):40} {kind:9} {told}", flush=True)
        if args.record and not silent:
            rows = ",\n".join(json.dumps(record) for record in judge.records)
            (HERE / name / "keys.json").write_text(f"[\n{rows}\n]\n")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
