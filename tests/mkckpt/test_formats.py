"""Quantised formats with a tensor too few or too many, biases of zeros, the rules for keys of quantization_config, and
--random-weights in every form of it, held against files of that form."""

import json
import shutil

import mkckpt
import numpy as np
import pytest
from container import Tensor, read_safetensors, write_safetensors

UP = "model.layers.1.mlp.up_proj"
LAYERS = "model.layers.*proj"
WRITERS = {
    "fp8-block": {"writer": "fp8", "formats": {LAYERS: "fp8-block"}, "static": True},
    "fp8-tensor": {"writer": "fp8", "formats": {LAYERS: "fp8-tensor"}, "static": True},
    "fp8-modelopt": {"writer": "modelopt", "formats": {LAYERS: "fp8-tensor"}, "static": True, "both_files": True},
    "fp8-channel-modelopt": {"writer": "modelopt", "formats": {LAYERS: "fp8-channel"}},
    "fp8-ct": {"writer": "ct", "formats": {LAYERS: "fp8-tensor"}, "static": True},
    "fp8-channel-ct": {"writer": "ct", "formats": {LAYERS: "fp8-channel"}},
    "fp8-block-ct": {"writer": "ct", "formats": {LAYERS: "fp8-block"}},
    "nvfp4-modelopt": {"writer": "modelopt", "formats": {LAYERS: "nvfp4"}, "static": True},
    "nvfp4-ct": {"writer": "ct", "formats": {LAYERS: "nvfp4"}, "static": True},
    "mxfp4-modelopt": {"writer": "modelopt", "formats": {LAYERS: "mxfp4"}, "both_files": True},
    "mxfp4-ct": {"writer": "ct", "formats": {LAYERS: "mxfp4"}},
    "int4-awq": {"writer": "awq", "formats": {LAYERS: "int4"}, "group": 32},
    "int4-gptq": {"writer": "gptq", "formats": {LAYERS: "int4"}, "group": 32},
    "int4-ct": {"writer": "ct", "formats": {LAYERS: "int4"}, "group": 32, "zeros": True},
    "int4-ct-symmetric": {"writer": "ct", "formats": {LAYERS: "int4"}, "group": 32},
    "mixed-modelopt": {"writer": "modelopt", "formats": {"*self_attn.*_proj": "fp8-tensor", "*mlp*": "nvfp4"}},
    "mixed-both": {"writer": "modelopt", "formats": {"*self_attn.*_proj": "fp8-tensor", "*mlp*": "nvfp4"},
                   "both_files": True},
    "mixed-ct": {"writer": "ct", "formats": {"*self_attn.*_proj": "fp8-channel", "*mlp*": "nvfp4"}},
}  # fmt: skip
OPTIONAL = (
    "input_scale",
    "activation_scale",
    "input_global_scale",
    "weight_shape",
    "g_idx",
)  # say nothing that is needed
ALL = {"input_scale", "activation_scale", "input_global_scale", "weight_shape", "g_idx", "weight", "weight_packed",
       "qweight", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_zero_point", "qzeros",
       "scales"}  # fmt: skip


def knob_of(name, **more):
    return {**mkckpt.DEFAULTS, "quant": WRITERS[name], **more}


def parts_of(name):
    tensors = mkckpt.make_tensors(knob_of(name))
    return [t.name.rpartition(".")[2] for t in tensors if t.name.startswith(f"{UP}.")]


def run_of(atlasc, folder, *words):
    run = atlasc(folder, "--dry-run", "--stop-after=build-graph", *words)
    return (
        run.returncode,
        [line.partition("error")[2] for line in run.stderr.splitlines() if "error[" in line],
        run.stderr,
    )


@pytest.mark.parametrize("name, part", [(n, p) for n in WRITERS for p in parts_of(n)])
def test_each_tensor_missing(name, part, atlasc, tmp_path):
    """One line, which names the one that is missing; those that say nothing may be."""
    mkckpt.build(knob_of(name, missing=[f"{UP}.{part}"])).write(tmp_path / "m")
    code, errors, text = run_of(atlasc, tmp_path / "m")
    if part in OPTIONAL:
        assert (code, errors) == (0, []), text
    else:
        assert code == 4 and len(errors) == 1 and errors[0].startswith(f"[A0601]: tensor {UP}.{part} is missing"), text


@pytest.mark.parametrize("name", WRITERS)
def test_each_tensor_too_many(name, atlasc, tmp_path):
    """Of another format: one line, which names it. What counts as activations' may be there."""
    mkckpt.build(knob_of(name)).write(tmp_path / "m")
    tensors = read_safetensors(tmp_path / "m" / "model.safetensors")
    for part in sorted(ALL - set(parts_of(name)) - {"weight", "weight_packed", "qweight", "weight_scale_inv"}):
        extra = Tensor(f"{UP}.{part}", "F32", (1,), np.ones(1, "<f4").tobytes())
        write_safetensors(tmp_path / "m" / "model.safetensors", [*(Tensor(n, *t) for n, t in tensors.items()), extra])
        code, errors, text = run_of(atlasc, tmp_path / "m")
        if part in OPTIONAL[:3]:
            assert (code, errors) == (0, []), (part, text)
        else:
            assert code == 4 and len(errors) == 1 and f"tensor {UP}.{part} " in errors[0], (part, text)


@pytest.mark.parametrize("name", ["fp8", "nvfp4"])
@pytest.mark.parametrize("part", ["gate_proj.weight", "up_proj.weight_scale", "down_proj.weight"])
def test_experts_with_a_tensor_missing(name, part, atlasc, tmp_path):
    kind, writer = {"fp8": ("fp8-channel", "ct"), "nvfp4": ("nvfp4", "modelopt")}[name]
    missing = f"model.layers.1.mlp.experts.3.{part}"
    mkckpt.build(
        {
            **mkckpt.DEFAULTS,
            "family": "qwen3_moe",
            "tokenizer": "qwen2",
            "missing": [missing],
            "quant": {"writer": writer, "formats": {"*.experts.*": kind}},
        }
    ).write(tmp_path / "m")
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert code == 4 and len(errors) == 1 and errors[0].startswith(f"[A0601]: tensor {missing} is missing"), text


# Biases ---------------------------------------------------------------------------------------------------------------

BIASED = ["self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"]


def with_biases(folder, knob, dtype, value=0.0, modules=BIASED):
    mkckpt.build(knob).write(folder)
    tensors = read_safetensors(folder / "model.safetensors")
    rows = {name.removesuffix(".weight"): shape[0] for name, shape, *_ in mkckpt.tensor_plan(knob)}
    extra = []
    for layer in range(2):
        for module in modules:
            name = f"model.layers.{layer}.{module}"
            x = np.zeros(rows[name], np.float32)
            if layer == 1 and module == modules[-1]:
                x[5] = value
            extra.append(Tensor(f"{name}.bias", dtype, x.shape, mkckpt.encode(x, dtype)))
    write_safetensors(folder / "model.safetensors", [*(Tensor(n, *t) for n, t in tensors.items()), *extra])


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("quantised", [None, "int4-gptq", "fp8-block", "nvfp4-ct"])
def test_biases_of_zeros(dtype, quantised, atlasc, tmp_path):
    knob = knob_of(quantised) if quantised else mkckpt.DEFAULTS
    with_biases(tmp_path / "m", knob, dtype)
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert (code, errors) == (0, []), text
    [note] = [x for x in text.splitlines() if "note[A0613]" in x]
    assert note == (
        f"{tmp_path}/m/model.safetensors: note[A0613]: model.layers.0.mlp.down_proj.bias and 5 more biases are "
        "zero everywhere: llama has no such bias, and adds none"
    )
    with_biases(tmp_path / "n", knob, dtype, -0.0)
    assert run_of(atlasc, tmp_path / "n")[0] == 0
    for value in (2.0**-14, float("nan")):
        with_biases(tmp_path / str(value), knob, dtype, value)
        code, errors, _ = run_of(atlasc, tmp_path / str(value))
        assert code == 4 and errors == [
            "[A0604]: tensor model.layers.1.mlp.down_proj.bias [64] is not used by llama, and element 5 of it is not zero: "
            "list it under [weights] ignore if that is meant"
        ]


def test_biases_that_a_family_has_or_that_belong_to_nothing(atlasc, tmp_path):
    """Qwen2's are read; a bias beside no product of the model, and one in integers, is an error whatever it holds."""
    knob = {**mkckpt.DEFAULTS, "family": "qwen2", "tokenizer": "qwen2"}
    with_biases(tmp_path / "m", knob, "BF16", modules=["self_attn.o_proj"])
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert code == 0 and "model.layers.0.self_attn.o_proj.bias and 1 more biases are zero" in text
    mkckpt.build(
        {**mkckpt.DEFAULTS, "extra": {"model.layers.9.mlp.up_proj.bias": [96]}, "values": [["*.layers.9.*", "all", 0]]}
    ).write(tmp_path / "x")
    assert run_of(atlasc, tmp_path / "x")[:2] == (
        4,
        [
            "[A0604]: tensor model.layers.9.mlp.up_proj.bias [96] is not used by llama: list it under [weights] ignore if that "
            "is meant"
        ],
    )


# Keys -----------------------------------------------------------------------------------------------------------------

READS = {  # writer -> key -> a value that it takes and that would mean something elsewhere
    "fp8": {"fmt": "e4m3", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"], "scale_fmt": "float",
            "ignored_layers": ["lm_head"], "modules_to_convert": ["q_proj"]},
    "modelopt": {"quant_algo": "NVFP4", "ignore": ["lm_head"], "exclude_modules": ["lm_head"],
                 "kv_cache_scheme": {"num_bits": 8}, "kv_cache_quant_algo": "FP8", "group_size": 16,
                 "config_groups": {"g": {}}, "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}}},
    "compressed-tensors": {"format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8},
                           "config_groups": {"g": {}}, "quantization_status": "compressed"},
    "awq": {"bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": ["lm_head"], "lm_head": True,
            "desc_act": True},
    "gptq": {"bits": 4, "group_size": 128, "format": "gptq", "checkpoint_format": "gptq", "lm_head": True, "desc_act": True,
             "modules_to_not_convert": ["lm_head"], "dynamic": {"-:.*lm_head": {}},
             "modules_in_block_to_quantize": [["self_attn.q_proj"]]},
}  # fmt: skip
NEUTRAL = {"modules_to_not_convert": [[], None], "ignored_layers": [[], None], "modules_to_convert": [None, []],
           "ignore": [[], None], "exclude_modules": [[]], "lm_head": [False, None], "desc_act": [False], "dynamic": [{}, None],
           "quantized_layers": [{}], "config_groups": [{}, None], "zero_point": [False], "sparsity_config": [{}]}  # fmt: skip
FREE = {"damp_percent": 0.01, "sym": False, "true_sequential": True, "static_groups": True, "meta": {"a": 1}, "backend": "x",
        "producer": {"name": "modelopt", "version": "1"}, "global_compression_ratio": 1.5, "dequantize": True,
        "version": "GEMM", "autoround_version": "0.5", "act_group_aware": True, "activation_scheme": "dynamic"}  # fmt: skip
FOLDERS = {
    "fp8": "fp8-block",
    "modelopt": "mxfp4-modelopt",
    "compressed-tensors": "fp8-channel-ct",
    "awq": "int4-awq",
    "gptq": "int4-gptq",
}


def with_keys(folder, method, keys):
    mkckpt.build(knob_of(FOLDERS[method])).write(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"].update(keys)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("method", READS)
def test_what_one_method_reads_is_an_error_in_another(method, atlasc, tmp_path):
    foreign = {k: v for other, keys in READS.items() for k, v in keys.items() if k not in READS[method]}
    for i, (key, value) in enumerate(foreign.items()):
        with_keys(tmp_path / str(i), method, {key: value})
        code, errors, text = run_of(atlasc, tmp_path / str(i))
        assert code == 4 and len(errors) == 1, (key, text)
        assert errors[0].startswith(f"[A0208]: quantization_config.{key} = "), text
        assert errors[0].endswith(": a setting of another quant_method: it means nothing here"), text


@pytest.mark.parametrize("method", READS)
def test_what_says_nothing_passes(method, atlasc, tmp_path):
    foreign = {k: v for k, values in NEUTRAL.items() for v in values if k not in READS[method]}
    with_keys(tmp_path / "m", method, foreign | {k: v for k, v in FREE.items() if (k, method) != ("version", "awq")})
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert (code, errors) == (0, []) and "A0207" not in text, text
    with_keys(tmp_path / "n", method, {"wieght_block_size": 3, "b": 1})
    code, errors, text = run_of(atlasc, tmp_path / "n")
    assert code == 0 and "note[A0207]: unknown keys are not used: quantization_config.wieght_block_size" in text


@pytest.mark.parametrize(
    "where, key, message",
    [
        (
            "weights",
            {"dynamic": True},
            "[A0208]: {}.weights.dynamic = true: weights that are not stored quantized are not read",
        ),
        ("weights", {"num_bitz": 3}, "note[A0207]: unknown keys are not used: {}.weights.num_bitz"),
        ("", {"traget": 3}, "note[A0207]: unknown keys are not used: {}.traget"),
    ],
)
def test_keys_of_a_group(where, key, message, atlasc, tmp_path):
    mkckpt.build(knob_of("fp8-channel-ct")).write(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    group = config["quantization_config"]["config_groups"]["group_0"]
    (group[where] if where else group).update(key)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    code, _, text = run_of(atlasc, tmp_path / "m")
    assert code == (0 if "note" in message else 4)
    assert message.format("quantization_config.config_groups.group_0") in text


@pytest.mark.parametrize(
    "status, passes", [("compressed", True), ("frozen", True), (None, True), ("initialized", False)]
)
def test_stage_and_sparsity(status, passes, atlasc, tmp_path):
    dense = {
        "format": "dense",
        "global_sparsity": 0.1,
        "ignore": [],
        "registry_requires_subclass": False,
        "sparsity_structure": "unstructured",
        "targets": [],
    }
    with_keys(tmp_path / "m", "compressed-tensors", {"quantization_status": status, "sparsity_config": dense})
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert code == (0 if passes else 4), text
    with_keys(tmp_path / "s", "compressed-tensors", {"sparsity_config": {**dense, "format": "sparse-24-bitmask"}})
    assert run_of(atlasc, tmp_path / "s")[1] == [
        "[A0208]: quantization_config.sparsity_config: this feature is not implemented"
    ]


def test_classes_have_defaults(atlasc, tmp_path):
    """As transformers' classes: blocks of 128, groups of 128, four bits of AWQ; GPTQ's bits have none."""
    shape = {"hidden": 128, "intermediate": 256}
    for name, keys in {
        "fp8-block": ["weight_block_size", "fmt", "activation_scheme"],
        "int4-awq": ["group_size", "bits", "zero_point", "version"],
        "int4-gptq": ["group_size", "desc_act", "sym", "checkpoint_format"],
    }.items():
        knob = knob_of(name, **shape)
        knob["quant"] = {**knob["quant"], "group": 128}
        mkckpt.build(knob).write(tmp_path / name)
        path = tmp_path / name / "config.json"
        config = json.loads(path.read_text())
        for key in keys:
            config["quantization_config"].pop(key, None)
        path.write_text(json.dumps(config))
        assert run_of(atlasc, tmp_path / name)[:2] == (0, [])
    del config["quantization_config"]["bits"]
    path.write_text(json.dumps(config))
    assert run_of(atlasc, tmp_path / name)[:2] == (4, ["[A0202]: quantization_config.bits is missing"])


# ModelOpt without its name ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["no method", "no producer", "whole file", "file alone", "flat file"])
@pytest.mark.parametrize("name", ["nvfp4-modelopt", "fp8-modelopt", "mixed-both"])
def test_modelopt_without_quant_method(form, name, atlasc, tmp_path):
    knob = knob_of(name)
    knob["quant"] = {**knob["quant"], "both_files": True}
    mkckpt.build(knob).write(tmp_path / "m")
    config_file, file = tmp_path / "m" / "config.json", tmp_path / "m" / "hf_quant_config.json"
    config, told = json.loads(config_file.read_text()), json.loads(file.read_text())
    inner = config["quantization_config"]
    if form in ("no method", "no producer"):
        del inner["quant_method"]
        if form == "no producer":
            del inner["producer"]
        file.unlink()
    elif form == "whole file":
        config["quantization_config"] = told
        file.unlink()
    else:
        del config["quantization_config"]
        if form == "flat file":
            file.write_text(json.dumps({**told["quantization"], "producer": told["producer"]}))
    config_file.write_text(json.dumps(config))
    for words in ([], ["--random-weights"]):
        code, errors, text = run_of(atlasc, tmp_path / "m", *words)
        assert (code, errors) == (0, []) and not {"A0207", "A0608"} & set(x[:5] for x in text.split("[")), text


def test_another_producer_is_not_guessed(atlasc, tmp_path):
    with_keys(tmp_path / "m", "modelopt", {"quant_method": None, "producer": {"name": "quark"}})
    assert run_of(atlasc, tmp_path / "m")[1][0].startswith("[A0208]: quantization_config: quant_method is missing")


# Random weights -----------------------------------------------------------------------------------------------------------


def items(atlasc, folder, *words):
    run = atlasc(folder, "--estimate", "--json", *words)
    assert run.returncode == 0, run.stderr
    [target] = json.loads(run.stdout)["targets"]
    return {i["item"]: i["bytes"] for i in target["items"]}


def formats(atlasc, folder, *words):
    run = atlasc(folder, "--dry-run", "-d", "g", "--stop-after=build-graph", *words)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith("tensor")]
    return sorted(row[3:5] for row in rows if row[2] == "weight")


SHAPES = {"llama": {}, "qwen3_moe": {"family": "qwen3_moe", "tokenizer": "qwen2"},
          "nested": {"family": "qwen3_5_moe", "tokenizer": "qwen2", "rope_keys": "new", "nested": True,
                     "prefix": "model.language_model.", "moe": {"shared": 64, "intermediate": 64}}}  # fmt: skip


def real_and_random(atlasc, tmp_path, family, knob, edit=None):
    mkckpt.build({**mkckpt.DEFAULTS, "hidden": 128, "intermediate": 128, **SHAPES[family], "quant": knob}).write(
        tmp_path / "m"
    )
    if edit:
        for file in ("config.json", "hf_quant_config.json"):
            path = tmp_path / "m" / file
            if path.exists():
                path.write_text(edit(path.read_text()))
    real = items(atlasc, tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    assert items(atlasc, tmp_path / "bare", "--random-weights")["weights"] == real["weights"]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_random_weights_take_what_files_take(name, family, atlasc, tmp_path):
    """--estimate of a config.json alone, against that of the checkpoint, and the formats of every product."""
    knob = WRITERS[name]
    if family == "qwen3_moe":
        if "int4" in name:
            pytest.skip("no op reads experts in INT4")
        knob = {
            **knob,
            "formats": {
                g.replace(LAYERS, "*.experts.*").replace("*mlp*", "*.experts.*"): k for g, k in knob["formats"].items()
            },
            "block": [32, 32],
            "ignore": ["lm_head", "*.mlp.gate", "*self_attn*"] if len(knob["formats"]) == 1 else ["lm_head"],
        }
        if knob["writer"] in ("ct", "fp8"):
            knob["ignore"] = [f"re:{g.replace('*', '.*')}" for g in knob["ignore"]]
    real_and_random(atlasc, tmp_path, family, knob)
    if family == "llama":
        assert formats(atlasc, tmp_path / "m", "--random-weights") == formats(atlasc, tmp_path / "m")


ROOTS = ["model.language_model.", "language_model.model.", "model."]
LISTS = {
    "names": lambda root: [f"{root}layers.{i}.{m}" for i, mixer in enumerate(["linear_attn", "self_attn"]) for m in (
        mixer, "mlp.gate", "mlp.shared_expert", "mlp.shared_expert_gate")] + ["lm_head"],
    "stars": lambda root: [f"{root}layers.{i}.{m}*" for i, mixer in enumerate(["linear_attn", "self_attn"]) for m in (
        mixer, "mlp.gate", "mlp.shared_expert")] + ["lm_head"],
    "ends": lambda root: ["linear_attn", "self_attn", "mlp.gate", "shared_expert", "shared_expert_gate", "lm_head"],
}  # fmt: skip


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("root", ROOTS)
def test_lists_in_any_wrapping(kind, root, atlasc, tmp_path):
    """NVFP4 experts and nothing else, which the list says in the names of one wrapping or of another."""
    ignore = (
        ["*linear_attn*", "*self_attn*", "*mlp.gate", "*shared_expert*", "lm_head"]
        if kind == "ends"
        else LISTS[kind](root)
    )
    knob = {"writer": "modelopt", "formats": {"*.experts.*": "nvfp4"}, "ignore": ignore, "both_files": True}
    real_and_random(atlasc, tmp_path, "nested", knob)
    code, _, text = run_of(atlasc, tmp_path / "m")
    assert code == 0 and "A0608" not in text, text
    code, _, text = run_of(atlasc, tmp_path / "bare", "--random-weights")
    assert code == 0 and "A0608" not in text, text


@pytest.mark.parametrize(
    "writer, kind", [("modelopt", "nvfp4"), ("modelopt", "fp8-tensor"), ("fp8", "fp8-block"), ("ct", "mxfp4")]
)
def test_routers_stay_where_no_list_names_them(writer, kind, atlasc, tmp_path):
    """They are no Linear of PyTorch: NVIDIA's lists of Qwen3.5's modules leave them out."""
    knob = {
        "writer": writer,
        "formats": {"*.experts.*": kind, "*self_attn.*_proj": kind},
        "ignore": ["lm_head"],
        "block": [32, 32],
    }
    real_and_random(atlasc, tmp_path, "qwen3_moe", knob)
    code, _, text = run_of(atlasc, tmp_path / "m")
    assert code == 0 and "A0608" not in text, text


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("where", ["config.json", "hf_quant_config.json"])
def test_mixed_precision_by_module(root, where, atlasc, tmp_path):
    """Every quantised module by its name, experts one by one: never silently what config.json's dtype says."""
    knob = {
        "writer": "modelopt",
        "formats": {"*.experts.*": "nvfp4", "*shared_expert.*_proj": "fp8-tensor"},
        "ignore": ["lm_head"],
        "both_files": True,
    }
    real_and_random(atlasc, tmp_path, "nested", knob, lambda text: text.replace("model.language_model.", root))
    told = json.loads((tmp_path / "m" / "config.json").read_text())["quantization_config"]["quantized_layers"]
    assert any(".experts.7.down_proj" in name for name in told)
    if where == "hf_quant_config.json":
        config = json.loads((tmp_path / "bare" / "config.json").read_text())
        del config["quantization_config"]
        (tmp_path / "bare" / "config.json").write_text(json.dumps(config))
    else:
        (tmp_path / "bare" / "hf_quant_config.json").unlink()
    code, _, text = run_of(atlasc, tmp_path / "bare", "--random-weights")
    assert code == 0 and "A0608" not in text, text
    words = [w for row in formats(atlasc, tmp_path / "bare", "--random-weights") for w in row[:1]]
    assert {"e2m1", "e4m3"} <= set(words)


def bare(tmp_path, family, knob, change):
    mkckpt.build({**mkckpt.DEFAULTS, "hidden": 128, "intermediate": 128, **SHAPES[family], "quant": knob}).write(
        tmp_path / "m"
    )
    (tmp_path / "m" / "model.safetensors").unlink()
    for file in ("config.json", "hf_quant_config.json"):
        path = tmp_path / "m" / file
        if path.exists():
            tree = json.loads(path.read_text())
            told = tree.get("quantization_config" if file == "config.json" else "quantization")
            if told:
                change(told)
            path.write_text(json.dumps(tree))
    return tmp_path / "m"


def test_random_weights_refuse_what_they_cannot_follow(atlasc, tmp_path):
    mixed = {"writer": "modelopt", "formats": {"*.experts.*": "nvfp4", "*self_attn.*_proj": "fp8-tensor"}}

    def one_expert_differs(told):
        told["quantized_layers"]["model.layers.0.mlp.experts.3.up_proj"]["quant_algo"] = "FP8"
        told["quantized_layers"]["model.layers.0.mlp.experts.3.up_proj"].pop("group_size")

    def one_expert_plain(told):
        del told["quantized_layers"]["model.layers.1.mlp.experts.0.down_proj"]

    def other_names(told):
        told["quantized_layers"] = {f"encoder.{k}": v for k, v in told["quantized_layers"].items()}

    def no_format(told):
        for value in told["quantized_layers"].values():
            del value["quant_algo"]

    def no_list(told):
        del told["quantized_layers"]

    def empty_list(told):
        told["quantized_layers"] = {}

    cases = [
        (
            one_expert_differs,
            "[A0603]: model.layers.0.mlp.experts.3.up_proj is FP8 by tensor according to the files, "
            "model.layers.0.mlp.experts.0.gate_proj is NVFP4: they are read as one, "
            "model.layers.0.mlp.experts.gate_up_proj",
        ),
        (
            one_expert_plain,
            "[A0603]: model.layers.1.mlp.experts.1.down_proj is NVFP4 according to the files, "
            "model.layers.1.mlp.experts.0.down_proj is plain: they are read as one, "
            "model.layers.1.mlp.experts.down_proj",
        ),
        (
            other_names,
            "none of the model's products is quantized according to the files, and --random-weights has no tensors "
            "to see it from",
        ),
        (no_format, "the files do not say in which format, and --random-weights has no tensors to see it from"),
        (no_list, "the files do not say in which format, and --random-weights has no tensors to see it from"),
        (empty_list, "the files do not say in which format, and --random-weights has no tensors to see it from"),
    ]
    for i, (change, message) in enumerate(cases):
        folder = bare(tmp_path / str(i), "qwen3_moe", mixed, change)
        code, errors, text = run_of(atlasc, folder, "--random-weights")
        assert code == 4 and any(message in e for e in errors), text
    folder = bare(tmp_path / "act", "llama", {**WRITERS["int4-gptq"]}, lambda told: told.update(desc_act=True))
    code, errors, text = run_of(atlasc, folder, "--random-weights")
    assert code == 4 and "act-order (desc_act) is not supported" in errors[0], text
    folder = bare(
        tmp_path / "int4",
        "qwen3_moe",
        {"writer": "gptq", "formats": {"*.experts.*": "int4"}, "group": 32},
        lambda told: None,
    )
    code, errors, text = run_of(atlasc, folder, "--random-weights")
    assert (
        code == 4
        and "model.layers.0.mlp.experts.gate_up_proj is INT4 according to the files: read as a part of" in errors[0]
    )


def test_groups_that_name_no_module(atlasc, tmp_path):
    """compressed-tensors: nothing is quantized by such lists, which --random-weights must not take for a bf16 model."""
    said = "[A0611]: compressed-tensors: no list names a quantized module, and --random-weights has no tensors that could show it"
    for i, change in enumerate(
        (lambda told: told.update(config_groups={}), lambda told: told["config_groups"]["group_0"].update(targets=[]))
    ):
        code, errors, text = run_of(
            atlasc, bare(tmp_path / str(i), "llama", WRITERS["fp8-block-ct"], change), "--random-weights"
        )
        assert code == 4 and len(errors) == 1 and errors[0].endswith(said), text
    folder = bare(
        tmp_path / "absent",
        "llama",
        WRITERS["fp8-block-ct"],
        lambda told: told["config_groups"]["group_0"].pop("targets"),
    )
    code, errors, text = run_of(atlasc, folder, "--random-weights")
    assert code == 4 and errors[0].endswith("[A0202]: quantization_config.config_groups.group_0.targets is missing"), (
        text
    )
    naive = bare(
        tmp_path / "naive", "llama", WRITERS["fp8-block-ct"], lambda told: told.update(format="naive-quantized")
    )
    assert run_of(atlasc, naive, "--random-weights")[0] == 0  # FP8 under an older word


@pytest.mark.parametrize(
    "where,settings",
    [
        (
            "hf_quant_config.json",
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}},
        ),
        (
            "config.json",
            {"quant_method": "modelopt", "quant_algo": None, "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        ),
        (
            "config.json",
            {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}},
        ),
    ],
)
def test_a_cache_alone_is_quantized(where, settings, atlasc, tmp_path):
    mkckpt.build(mkckpt.DEFAULTS).write(tmp_path / "m")
    path = tmp_path / "m" / where
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    path.write_text(json.dumps({**tree, "quantization_config": settings} if where == "config.json" else settings))
    for words in ((), ("--random-weights",)):
        code, errors, text = run_of(atlasc, tmp_path / "m", *words)
        assert (code, errors) == (0, []), text
        assert "note[A0607]" in text and "keys and values are kept in bf16; [kv] dtype in MODEL.toml decides" in text


def test_lists_of_many_modules(atlasc, tmp_path):
    """As many entries as a model of 512 experts has: all are read, and quickly."""
    mixed = {"writer": "modelopt", "formats": {"*.experts.*": "nvfp4", "*self_attn.*_proj": "fp8-tensor"}}

    def more(told):
        for i in range(2, 30):
            for e in range(512):
                for p in ("gate_proj", "up_proj", "down_proj"):
                    told["quantized_layers"][f"model.layers.{i}.mlp.experts.{e}.{p}"] = {
                        "quant_algo": "NVFP4",
                        "group_size": 16,
                    }

    folder = bare(tmp_path, "qwen3_moe", mixed, more)
    code, errors, text = run_of(atlasc, folder, "--random-weights")
    assert (code, errors) == (0, []), text
    assert '" and 43007 more: no product of the model has such a name' in text


def test_a_wrong_group_size_is_not_a_wrong_width(atlasc, tmp_path):
    """hidden_size = 128 would explain the scales' shapes too, but not those of the tensors that fit."""
    mkckpt.build({**mkckpt.DEFAULTS, "quant": WRITERS["int4-gptq"]}).write(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["group_size"] = 64
    path.write_text(json.dumps(config))
    code, errors, text = run_of(atlasc, tmp_path / "m")
    assert code == 4 and "A0214" not in text, text
    assert errors[0].endswith(
        "[A0602]: tensor model.layers.0.self_attn.q_proj.scales has shape [2, 128]: INT4 of [128, 64] by "
        "groups of 64 asks for [1, 128]"
    ), text


def test_gptq_rules_that_leave_modules_alone(atlasc, tmp_path):
    def dynamic(told):
        told["dynamic"] = {"-:.*\\.1\\.mlp\\..*": {}}

    knob = {**WRITERS["int4-gptq"], "formats": {"model.layers.1.mlp.*": "plain", LAYERS: "int4"}}
    mkckpt.build({**mkckpt.DEFAULTS, "quant": knob}).write(tmp_path / "real")
    path = tmp_path / "real" / "config.json"
    config = json.loads(path.read_text())
    dynamic(config["quantization_config"])
    path.write_text(json.dumps(config))
    assert "A0608" not in run_of(atlasc, tmp_path / "real")[2]
    assert formats(atlasc, tmp_path / "real", "--random-weights") == formats(atlasc, tmp_path / "real")
