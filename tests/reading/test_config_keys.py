"""Which keys a family has, what it says of the others, and values of config.json that MODEL.toml replaces."""

import json
import pathlib
import re
import shutil
import tomllib

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
ABSENT = object()


@pytest.fixture
def compiled(repo, tmp_path, atlasc):
    """compiled(fixture, changes, toml, *words) -> (exit code, lines of stderr). "text.KEY" changes a key of the
    text_config; nothing is written but with -o."""

    def run(fixture, changes=None, toml=None, *words):
        folder = tmp_path / "m"
        if not folder.exists():
            shutil.copytree(repo / "tests" / "fixtures" / fixture, folder, ignore=shutil.ignore_patterns("golden*"))
        config = json.loads((repo / "tests" / "fixtures" / fixture / "config.json").read_text())
        for key, value in (changes or {}).items():
            table = config["text_config"] if key.startswith("text.") else config
            table[key.removeprefix("text.")] = value
            if value is ABSENT:
                del table[key.removeprefix("text.")]
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        (folder / "MODEL.toml").unlink(missing_ok=True)
        if toml is not None:
            (folder / "MODEL.toml").write_text(toml)
        words = words or ("--dry-run", "--stop-after=build-graph")
        done = atlasc("m", "--target", "none", *words, cwd=tmp_path)
        run.stdout = done.stdout
        return done.returncode, done.stderr.splitlines()

    return run


def line_of(compiled, key, at=0):
    """Place of a value in the config.json just written."""
    text = (compiled / "config.json").read_text().splitlines()
    return next(i for i, line in enumerate(text, 1) if f'"{key}"' in line and i > at)


# Keys that are errors, each with its message ------------------------------------------------------------------

READS = "qwen3_5, qwen3_5_moe and qwen3_next"
REFUSED = [
    ("qwen3_moe", {"swiglu_limit": 7.0}, "error[A0206]: swiglu_limit = 7.0: this feature is not implemented"),
    ("qwen3_moe", {"routed_scaling_factor": 2.5},
     "error[A0206]: routed_scaling_factor = 2.5: this feature is not implemented"),
    ("qwen3_moe", {"scoring_func": "sigmoid"}, 'error[A0206]: scoring_func = "sigmoid": this feature is not implemented'),
    ("qwen3_moe", {"n_group": 4}, "error[A0206]: n_group = 4: this feature is not implemented"),
    ("qwen3_moe", {"topk_group": 2}, "error[A0206]: topk_group = 2: this feature is not implemented"),
    ("qwen3_moe", {"mlp_layer_types": ["dense", "sparse"]},
     'error[A0206]: mlp_layer_types = [ "dense", "sparse" ]: this feature is not implemented'),
    ("qwen3_moe", {"per_layer_config": {"0": {"head_dim": 32}}},
     'error[A0206]: per_layer_config = { "0": { "head_dim": 32 } }: this feature is not implemented for qwen3_moe: it is a key '
     "of step3p5"),
    ("qwen3_moe", {"attention_out_bias": True},
     "error[A0206]: attention_out_bias = true: this feature is not implemented"),
    ("qwen3_moe", {"use_qk_norm": False}, "error[A0206]: use_qk_norm = false: expected true, as qwen3_moe has it"),
    ("qwen3_moe", {"shared_expert_intermediate_size": 64},
     "error[A0206]: shared_expert_intermediate_size = 64: this feature is not implemented for qwen3_moe: it is a key of "
     "laguna, qwen3_5_moe and qwen3_next"),
    ("qwen3_moe", {"linear_num_key_heads": 2},
     f"error[A0206]: linear_num_key_heads = 2: this feature is not implemented for qwen3_moe: it is a key of {READS}"),
    ("qwen3_moe", {"decoder_sparse_step": 2}, "error[A0206]: decoder_sparse_step = 2: expected 1, as qwen3_moe has it"),
    ("qwen3_moe", {"decoder_sparse_step": None}, "error[A0206]: decoder_sparse_step = null: expected 1, as qwen3_moe has it"),
    ("qwen3_moe", {"hidden_act": "gelu"}, 'error[A0206]: hidden_act = "gelu": expected "silu", as qwen3_moe has it'),
    ("qwen3", {"num_experts": 4}, "error[A0206]: num_experts = 4: this feature is not implemented for qwen3: it is a key of "
     "gemma4, gpt_oss, laguna, minimax_m2, mixtral, qwen3_5_moe, qwen3_moe, qwen3_next and qwen3_vl_moe"),
    ("qwen2", {"mlp_bias": True}, "error[A0206]: mlp_bias = true: this feature is not implemented for qwen2: it is a key of arcee, llama, seed_oss, smollm3 and step3p5"),
    ("qwen3", {"head_dim": None}, "error[A0203]: head_dim = null: expected an integer from 1 to 4096"),
    ("qwen3", {"num_key_value_heads": ABSENT},
     "error[A0205]: num_key_value_heads = 32, the default of qwen3: must divide num_attention_heads = 4"),
    ("qwen3_5", {"text.attention_bias": True}, "error[A0206]: attention_bias = true: expected false, as qwen3_5 has it"),
    ("qwen3_5", {"text.norm_topk_prob": True}, "error[A0206]: norm_topk_prob = true: this feature is not implemented for "
     "qwen3_5: it is a key of glm4_moe, laguna, qwen3_5_moe, qwen3_moe, qwen3_next and qwen3_vl_moe"),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "attn_factor": 1.5}},
     "error[A0209]: rope_scaling.attn_factor = 1.5: transformers does not read it, other engines multiply by it: write [config] in "
     'MODEL.toml, unset = ["rope_scaling.attn_factor"], and where it is meant rope_scaling.attention_factor = 1.70794'),
    ("llama", {"rope_theta": ABSENT, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "linear", "factor": 2.0,
                                                                                          "rope_theta": 1e6}},
     "error[A0209]: rope_parameters.rope_theta: rope_scaling in line"),
    ("llama", {"rope_theta": None}, "error[A0209]: rope_theta = null: expected a number, or no such key"),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": None}},
     "error[A0209]: rope_scaling.truncate = null: expected a value, or no such key"),
]  # fmt: skip


@pytest.mark.parametrize(("fixture", "changes", "message"), REFUSED, ids=[m[2][6:60] for m in REFUSED])
def test_refused(compiled, fixture, changes, message):
    code, lines = compiled(fixture, changes)
    assert code == 4
    assert any(line.startswith("m/config.json:") and message in line for line in lines), lines


MODEL_TYPES = ", ".join(
    name
    for file in sorted((REPO / "models").glob("*.toml"))
    for name in tomllib.loads(file.read_text()).get("family", {}).get("model_types", [])
)

# What is wrong once is told once, and nothing is told of values that follow from it: the file's errors, all of them.
ONCE = [
    ("llama", {"model_type": "Llama"}, "A0204", f'model_type = "Llama": expected one of {MODEL_TYPES}: did you mean llama?'),
    ("qwen3", {"head_dim": 15}, "A0205", "head_dim = 15: expected an even number, rope turns pairs"),
    ("qwen3_5", {"text.head_dim": 31}, "A0205", "head_dim = 31: expected an even number, rope turns pairs"),
    ("qwen3_5", {"text.head_dim": None}, "A0203", "head_dim = null: expected an integer from 1 to 4096"),
    ("qwen3_moe", {"num_key_value_heads": None}, "A0203", "num_key_value_heads = null: expected an integer from 1 to 4096"),
    ("qwen3_next", {"partial_rotary_factor": 0.3}, "A0205",
     "partial_rotary_factor = 0.3: expected an even number of elements of head_dim = 32"),
    ("qwen3_next", {"head_dim": ABSENT, "partial_rotary_factor": 0.3}, "A0205",
     "partial_rotary_factor = 0.3: expected an even number of elements of head_dim = 256, the default of qwen3_next"),
    ("qwen3", {"layer_types": ["chunked_attention", "moe"]}, "A0206",
     'layer_types[0] = "chunked_attention" and 1 other: expected "full_attention" or "sliding_attention"'),
    ("qwen3_next", {"layer_types": ["linear_attention", "mamba", "mamba"]}, "A0206",
     'layer_types[1] = "mamba" and 1 other: expected "full_attention" or "linear_attention"'),
    ("qwen3_next", {"full_attention_interval": 2, "layer_types": ["sliding_attention"] * 3}, "A0206",
     'layer_types[0] = "sliding_attention" and 2 others: expected "full_attention" or "linear_attention"'),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": None}}, "A0209",
     "rope_scaling.factor = null: expected a value, or no such key"),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": None, "high_freq_factor": 4.0}}, "A0209",
     "rope_scaling.low_freq_factor = null: expected a value, or no such key"),
    ("qwen3_5", {"vocab_size": 100}, "A0205", "vocab_size = 100: text_config in line 22 says 304"),
    ("qwen3_5", {"quantization_config": {"quant_method": "fp8"}, "text.quantization_config": {"quant_method": "awq"}}, None,
     'quantization_config = { "quant_method": "fp8" }: text_config in line'),
]  # fmt: skip


@pytest.mark.parametrize(("fixture", "changes", "code", "message"), ONCE)
def test_told_once(compiled, fixture, changes, code, message):
    exit_code, lines = compiled(fixture, changes)
    errors = [m[1] for line in lines if (m := re.fullmatch(r"m/config\.json:\d+:\d+: error\[(.*)", line))]
    assert exit_code == 4
    if code:
        assert errors == [f"{code}]: {message}"], lines
    else:  # a format of its own that cannot be read is another mistake
        assert any(line.startswith(f"A0205]: {message}") for line in errors), lines


# Keys that are accepted, with a note or without ------------------------------------------------------------------

NOTED = [
    ("llama", {"sliding_window": 8}, "note[A0213]: keys that llama does not have are not used: sliding_window"),
    (
        "mistral",
        {"layer_types": ["sliding_attention"] * 2, "attention_bias": True},
        "note[A0213]: keys that mistral does not have are not used: layer_types, attention_bias",
    ),
    (
        "llama",
        {"temperature": 0.5, "num_beams": 4},
        "note[A0213]: keys that llama does not have are not used: temperature, num_beams",
    ),
    (
        "qwen3_next",
        {"sliding_window": 8, "use_sliding_window": True},
        "note[A0213]: keys that qwen3_next does not have are not used: sliding_window, use_sliding_window",
    ),
    (
        "qwen3_5",
        {"text.sliding_window": 8},
        "note[A0213]: keys that qwen3_5 does not have are not used: sliding_window",
    ),
    (
        "qwen3_5_moe",
        {"sliding_window": 8},
        "note[A0213]: keys that qwen3_5_moe does not have are not used: sliding_window",
    ),
    ("qwen3_5", {"hidden_size": 1024}, "note[A0213]: keys outside text_config are not used: hidden_size"),
    (
        "qwen3_5",
        {"text.text_config": {"head_dim": 8}},
        "note[A0213]: keys that qwen3_5 does not have are not used: text_config",
    ),
    ("qwen3_5", {"color": 3, "text.shade": 4}, "note[A0207]: unknown keys are not used: shade, color"),
]


@pytest.mark.parametrize(("fixture", "changes", "message"), NOTED)
def test_noted(compiled, fixture, changes, message):
    code, lines = compiled(fixture, changes)
    assert code == 0 and any(line.startswith("m/config.json:") and message in line for line in lines), lines


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e7,
        "partial_rotary_factor": 0.25, "mrope_interleaved": True, "mrope_section": [2, 1, 1]}  # fmt: skip


@pytest.mark.parametrize(("fixture", "changes"), [
    ("qwen3_moe", {"use_qk_norm": True}), ("qwen3_moe", {"scoring_func": "softmax", "n_group": 1, "routed_scaling_factor": 1.0}),
    ("qwen3_5", {"text.rope_parameters": YARN}), ("qwen3_5", {"vision_config": {"depth": 27}, "image_token_id": 300}),
    ("qwen3_moe", {"max_window_layers": 2, "use_sliding_window": False, "sliding_window": None}),
    ("llama", {"temperature": 1.0, "num_beams": 1, "layer_types": ["full_attention"] * 2, "use_sliding_window": False}),
    ("qwen3_next", {"sliding_window": None, "use_sliding_window": False, "max_window_layers": 28}),
    ("qwen3_next", {"full_attention_interval": None, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}),
    ("llama", {"top_k": 50, "top_p": 1.0, "typical_p": 1.0, "tf_legacy_loss": False, "pruned_heads": {}, "min_length": 0}),
    ("qwen3_5", {"vocab_size": 304, "text.architectures": ["Qwen3_5ForCausalLM"]}),
])  # fmt: skip
def test_accepted_without_a_word(compiled, fixture, changes):
    code, lines = compiled(fixture, changes)
    assert code == 0 and not any("A0206" in line or "A0207" in line or "A0213" in line for line in lines), lines


# Windows ---------------------------------------------------------------------------------------------------

WINDOWS = [
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, [8, 8]),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, [8, 8]),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, [0, 8]),
    (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]},
        [0, 8],
    ),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 512}, [0, 0]),
    ("qwen2", {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}, [0, 0]),
    ("mistral", {"sliding_window": 511}, [511, 511]),
    ("mistral", {"sliding_window": 512}, [0, 0]),
    ("mistral", {"sliding_window": None}, [0, 0]),
    ("mistral", {"sliding_window": ABSENT, "max_position_embeddings": 8192}, [4096, 4096]),
]


@pytest.mark.parametrize(("fixture", "changes", "windows"), WINDOWS)
def test_windows_by_layer(compiled, fixture, changes, windows):
    """What attention of each layer has; a window as long as the context hides nothing, and is none."""
    context = changes.get("max_position_embeddings", 512)
    toml = f"[runtime]\nmax_context = {context}\nslots = 1\n"
    code, lines = compiled(fixture, changes, toml, "--dry-run", "--stop-after=build-graph", "-d", "g")
    assert code == 0, lines
    ops = [line for line in compiled.stdout.splitlines() if re.match(r"op +\d+ +attention ", line)]
    found = [int(m.group(1)) if (m := re.search(r"window=(\d+)", line)) else 0 for line in ops]
    assert found == windows


# One value that the tensors contradict ------------------------------------------------------------------------

CONTRADICTED = [
    ("qwen3", "head_dim", 32, "head_dim = 32: 12 tensors of the checkpoint have the shape of head_dim = 64, as "
     "model.layers.0.self_attn.q_proj.weight [256, 64], not [128, 64]"),
    ("qwen3", "head_dim", ABSENT, "head_dim = 128, the default of qwen3: 12 tensors of the checkpoint have the shape of head_dim = 64, "
     "as model.layers.0.self_attn.q_proj.weight [256, 64], not [512, 64]"),
    ("llama", "num_hidden_layers", 5, "num_hidden_layers = 5: the checkpoint has tensors of 2 layers"),
    ("llama", "num_hidden_layers", 1, "num_hidden_layers = 1: the checkpoint has tensors of 2 layers"),
    ("llama", "hidden_size", 128, "hidden_size = 128: 21 tensors of the checkpoint have the shape of hidden_size = 64, as "
     "model.embed_tokens.weight [307, 64], not [307, 128]"),
    ("llama", "vocab_size", 303, "vocab_size = 303: 2 tensors of the checkpoint have the shape of vocab_size = 307, as "
     "model.embed_tokens.weight [307, 64], not [303, 64]"),
    ("llama", "num_key_value_heads", 2, "num_key_value_heads = 2: 4 tensors of the checkpoint have the shape of "
     "num_key_value_heads = 1, as model.layers.0.self_attn.k_proj.weight [64, 64], not [128, 64]"),
    ("llama", "num_attention_heads", 4, "num_attention_heads = 4: 4 tensors of the checkpoint have the shape of "
     "num_attention_heads = 2, as model.layers.0.self_attn.q_proj.weight [128, 64], not [256, 64]"),
    ("qwen3_moe", "moe_intermediate_size", 64, "moe_intermediate_size = 64: 48 tensors of the checkpoint have the shape of "
     "moe_intermediate_size = 32, as model.layers.0.mlp.experts.0.gate_proj.weight [32, 64], not [64, 64]"),
    ("qwen3_moe", "num_experts", 16, "num_experts = 16: 2 tensors of the checkpoint have the shape of num_experts = 8, as "
     "model.layers.0.mlp.gate.weight [8, 64], not [16, 64]"),
    ("llama-fp8-block", "intermediate_size", 128, "intermediate_size = 128: 6 tensors of the checkpoint have the shape of "
     "intermediate_size = 208, as model.layers.0.mlp.gate_proj.weight [208, 128], not [128, 128]"),
    ("llama-nvfp4-modelopt", "hidden_size", 128, "hidden_size = 128: 35 tensors of the checkpoint have the shape of "
     "hidden_size = 64, as model.embed_tokens.weight [307, 64], not [307, 128]"),
    ("llama-int4-awq", "head_dim", 32, "head_dim = 32: 9 tensors of the checkpoint have the shape of head_dim = 64, as "
     "model.layers.0.self_attn.q_proj.qweight [128, 16], not [128, 8]"),
    ("qwen3_next", "linear_conv_kernel_dim", 8, "linear_conv_kernel_dim = 8: 2 tensors of the checkpoint have the shape of "
     "linear_conv_kernel_dim = 4, as model.layers.0.linear_attn.conv1d.weight [128, 1, 4], not [128, 1, 8]"),
    ("qwen3_5", "text.linear_conv_kernel_dim", 2, "linear_conv_kernel_dim = 2: 2 tensors of the checkpoint have the shape of "
     "linear_conv_kernel_dim = 4, as model.language_model.layers.0.linear_attn.conv1d.weight [128, 1, 4], not [128, 1, 2]"),
    ("qwen3_5", "text.linear_key_head_dim", 32, "linear_num_key_heads = 2: 4 tensors of the checkpoint have the shape of "
     "linear_num_key_heads = 1, or of linear_key_head_dim = 16, as model.language_model.layers.0.linear_attn.in_proj_qkv.weight "
     "[128, 64], not [192, 64]"),
]  # fmt: skip


@pytest.mark.parametrize(("fixture", "key", "value", "message"), CONTRADICTED)
def test_one_line_for_what_tensors_contradict(compiled, fixture, key, value, message):
    code, lines = compiled(fixture, {key: value})
    errors = [line for line in lines if "error[" in line]
    assert code == 4 and len(errors) == 1, lines
    assert re.fullmatch(rf"m/config\.json:\d+:\d+: error\[A0214\]: {re.escape(message)}", errors[0]), errors


def test_a_broken_tensor_is_no_broken_config(compiled, tmp_path):
    """One tensor of another shape is what is told, whatever value would explain it alone."""
    compiled("llama")
    path = tmp_path / "m" / "model.safetensors"
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header["model.layers.0.self_attn.k_proj.weight"]["shape"] = [32, 128]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    code, lines = compiled("llama")
    assert code == 4 and [x for x in lines if "error[" in x] == [
        "m/model.safetensors: error[A0602]: tensor model.layers.0.self_attn.k_proj.weight has shape [32, 128]: "
        "config.json asks for [64, 64]"]  # fmt: skip


def test_dtype_goes_before_its_older_name(compiled):
    words = ("--random-weights", "--dry-run", "--stop-after=build-graph", "-d", "g")
    for dtype, word in (("float16", "f16"), (None, "bf16")):
        assert compiled("llama", {"dtype": dtype, "torch_dtype": "bfloat16"}, None, *words)[0] == 0
        assert re.search(rf"embed_tokens\.weight.* {word} ", compiled.stdout), compiled.stdout[:2000]


# -W ------------------------------------------------------------------------------------------------------------


def test_unread_input_can_be_refused(compiled):
    odd, plain = {"color": 1, "sliding_window": 8}, ("--dry-run", "--stop-after=build-graph")
    assert compiled("llama", odd, None, *plain)[0] == 0
    code, lines = compiled("llama", odd, None, *plain, "-W", "error")
    assert code == 4 and sum("error[A02" in line for line in lines) == 2
    code, lines = compiled("llama", odd, None, *plain, "-Werror=a0207")
    assert code == 4 and any(line.endswith("error[A0207]: unknown keys are not used: color") for line in lines)
    assert any("note[A0213]" in line for line in lines)
    assert compiled("llama", {}, None, *plain, "--warn=error")[0] == 0
    assert (
        compiled("llama", {}, "[config]\nrope_theta = 5e5\n", *plain, "-Werror=A0215")[0] == 4
    )  # a code without an exit code


@pytest.mark.parametrize(("words", "message"), [
    (["-W", "all"], "atlasc: error[A0101]: -W all: expected error, or error=CODE as in error=A0207"),
    (["-W", "error=A9999"], "atlasc: error[A0101]: -W error=A9999: there is no such code: atlasc explain --list has all of them"),
    (["-W"], "atlasc: error[A0101]: --warn needs error|error=CODE"),
])  # fmt: skip
def test_what_w_takes(atlasc, words, message):
    done = atlasc("tests/fixtures/llama", *words)
    assert (done.returncode, done.stderr) == (2, message + "\n")


# [config] ----------------------------------------------------------------------------------------------------

YARN_TOML = """[config]
head_dim = 64
rope_scaling = { rope_type = "yarn", factor = 4.0, original_max_position_embeddings = 128 }
unset = ["rope_scaling.attn_factor"]
"""


def test_config_replaces_before_anything_is_read(compiled, tmp_path):
    bad = {"head_dim": "x", "rope_scaling": {"rope_type": "linear", "factor": 2.0, "attn_factor": 1.5}}
    code, lines = compiled("llama", bad, YARN_TOML)
    at = {k: line_of(tmp_path / "m", k) for k in ("head_dim", "rope_type", "factor", "attn_factor")}
    assert code == 0 and [line for line in lines if "A0215" in line] == [
        f'm/MODEL.toml:2:12: note[A0215]: config.head_dim = 64: config.json says "x" in line {at["head_dim"]}',
        f'm/MODEL.toml:3:30: note[A0215]: config.rope_scaling.rope_type = "yarn": config.json says "linear" in line {at["rope_type"]}',
        f"m/MODEL.toml:3:47: note[A0215]: config.rope_scaling.factor = 4.0: config.json says 2.0 in line {at['factor']}",
        "m/MODEL.toml:3:87: note[A0215]: config.rope_scaling.original_max_position_embeddings = 128: config.json does not have it",
        f"m/MODEL.toml:4:10: note[A0215]: config.unset: rope_scaling.attn_factor, of which config.json says 1.5 in line "
        f"{at['attn_factor']}"]  # fmt: skip


OVERRIDES = [
    ("llama", "[config]\nnum_key_valu_heads = 1\n",
     "m/MODEL.toml:2:1: error[A0307]: config.num_key_valu_heads: no family has such a key: did you mean num_key_value_heads?"),
    ("llama", "[config]\ncolor = 1\n", "m/MODEL.toml:2:1: error[A0307]: config.color: no family has such a key"),
    ("llama", "[config]\nunset = [\"color\"]\n", "m/MODEL.toml:2:10: error[A0307]: config.unset: config.json has no color"),
    ("llama", "[config]\nunset = 3\n", "m/MODEL.toml:2:9: error[A0303]: config.unset = 3: expected a list"),
    ("llama", "config = 3\n", "m/MODEL.toml:1:10: error[A0303]: config = 3: expected a table"),
    ("llama", "[config]\nhead_dim = 32\nunset = [\"head_dim\"]\n",
     "m/MODEL.toml:3:10: error[A0307]: config.unset: line 2 gives head_dim a value"),
    ("llama", "[config]\nhead_dim = 63\n", "m/MODEL.toml:2:12: error[A0205]: head_dim = 63: expected an even number, rope turns pairs"),
    ("llama", "[config]\nhead_dim = \"64\"\n",
     'm/MODEL.toml:2:12: error[A0203]: head_dim = "64": expected an integer from 1 to 4096'),
    ("llama", "[config.hidden_size]\na = 3\n", "m/MODEL.toml:1:9: error[A0307]: config.hidden_size is a table: config.json says 64"),
    ("llama", "[config]\nswiglu_limit = 7\n",
     "m/MODEL.toml:2:16: error[A0206]: swiglu_limit = 7: this feature is not implemented"),
    ("llama", "[config.rope_scaling]\nrope_type = \"yarn\"\nfactr = 4\n",
     "m/MODEL.toml:3:9: error[A0209]: rope_scaling.factr is unknown: did you mean factor?"),
    ("llama", "[config.text_config]\nhead_dim = 64\n",
     "m/MODEL.toml:2:1: error[A0307]: config.text_config.head_dim: config.json has no text_config: write config.head_dim"),
    ("qwen3_5", "[config]\nhead_dim = 32\n",
     "m/MODEL.toml:2:1: error[A0307]: config.head_dim: the language model's keys are in text_config: write "
     "config.text_config.head_dim"),
    ("llama", "[config]\nhead_dim = 32\n", "m/MODEL.toml:2:12: error[A0214]: head_dim = 32: 8 tensors of the checkpoint have the "
     "shape of head_dim = 64, as model.layers.0.self_attn.q_proj.weight [128, 64], not [64, 64]"),
]  # fmt: skip


# All errors of a file, of which there is one.
OVERRIDES_ONCE = [
    ("llama", "hidden_size.x = 3", "2:1: error[A0307]: config.hidden_size is a table: config.json says 64 in line 9"),
    ("llama", "text_cofig.head_dim = 3",
     "2:12: error[A0307]: config.text_cofig.head_dim: no family has such a key: did you mean text_config?"),
    ("llama", "text_config.head_dim = 64",
     "2:13: error[A0307]: config.text_config.head_dim: config.json has no text_config: write config.head_dim"),
    ("llama", 'rope_scaling.rope_type = "linear"\nrope_scaling.factor = 2.0\nunset = ["rope_scaling"]',
     "4:10: error[A0307]: config.unset: line 2 gives rope_scaling a value"),
    ("llama", '"rope_scaling.factor" = 2.0', "2:1: error[A0307]: config.rope_scaling.factor: quotes make it a single name, "
     "which config.json does not have: remove the quotes"),
    ("qwen3_5", "text_config.text_config.head_dim = 64",
     "2:25: error[A0307]: config.text_config.text_config.head_dim: no family has such a key"),
    ("llama", 'unset = [""]', "2:10: error[A0307]: config.unset: config.json has no "),
    ("llama", "per_layer_config.0.head_dim = 3",
     "2:1: error[A0206]: per_layer_config = {0 = {head_dim = 3}}: this feature is not implemented for llama: it is a key of "
     "step3p5"),
    ("llama", "[[config.rope_scaling]]\nfactor = 2.0", "2:10: error[A0209]: rope_scaling = [{factor = 2.0}]: expected a table"),
    ("qwen3_5", "vocab_size = 100", "2:1: error[A0307]: config.vocab_size: the language model's keys are in text_config: "
     "write config.text_config.vocab_size"),
]  # fmt: skip


@pytest.mark.parametrize(("fixture", "toml", "message"), OVERRIDES_ONCE)
def test_config_messages_once(compiled, fixture, toml, message):
    code, lines = compiled(fixture, None, f"[config]\n{toml}\n")
    assert code == 4 and [line for line in lines if "error[" in line] == [f"m/MODEL.toml:{message}"], lines


@pytest.mark.parametrize("toml", ['unset = ["transformers.js_config"]', '"transformers.js_config" = {}'])
def test_config_of_a_name_with_a_dot(compiled, toml):
    assert compiled("llama", {"transformers.js_config": {"dtype": "q4"}}, f"[config]\n{toml}\n")[0] == 0


@pytest.mark.parametrize(("fixture", "toml", "message"), OVERRIDES)
def test_config_messages(compiled, fixture, toml, message):
    code, lines = compiled(fixture, None, toml)
    assert code == 4 and any(line.startswith(message) for line in lines), lines


def test_config_of_a_nested_file(compiled, atlas, tmp_path):
    toml = "[config.text_config.rope_parameters]\nrope_theta = 5e6\n"
    code, lines = compiled("qwen3_5", None, toml, "-o", "p.bin")
    assert code == 0, lines
    info = json.loads(atlas("info", "p.bin", "--json", cwd=tmp_path).stdout)
    assert info["config"] == {"text_config.rope_parameters.rope_theta": "5e6"}


def test_a_plan_records_what_was_replaced_and_what_was_not_read(compiled, atlas, tmp_path):
    toml = '[config]\nrope_theta = 5e5\nunset = ["attention_bias"]\n'
    odd = {"color": 1, "shade": 2, "sliding_window": 8}
    assert compiled("llama", odd, toml, "-o", "a.bin")[0] == 0
    assert compiled("llama", odd, None, "-o", "b.bin")[0] == 0
    text = atlas("info", "a.bin", cwd=tmp_path).stdout
    assert text.endswith(
        "config       attention_bias = unset\nconfig       rope_theta = 5e5\n"
        "not read     A0207 = unknown keys are not used: color, shade\n"
        "not read     A0213 = keys that llama does not have are not used: sliding_window\n")  # fmt: skip
    info = json.loads(atlas("info", "a.bin", "--json", cwd=tmp_path).stdout)
    assert info["config"] == {"attention_bias": "unset", "rope_theta": "5e5"} and set(info["unread"]) == {
        "A0207",
        "A0213",
    }
    diff = atlas("diff", "a.bin", "b.bin", cwd=tmp_path)
    assert diff.returncode == 1 and re.search(r"^option +config\.rope_theta +5e5 -> none$", diff.stdout, re.M)
    compiled("llama", odd, None)  # the folder's MODEL.toml is gone
    again = atlas("verify", "a.bin", "--rebuild", "--checkpoint", "m", cwd=tmp_path)
    assert again.returncode == 0 and again.stdout.endswith("the rebuilt plan is equal\n"), again.stderr
    (tmp_path / "policy.toml").write_text("[plan]\nunread = false\noverrides = false\n")
    check = atlas("audit", "a.bin", "--check", "policy.toml", cwd=tmp_path)
    assert (check.returncode, check.stdout.splitlines()) == (1, [
        "policy.toml:2: plan.unread: note.A0207: unknown keys are not used: color, shade",
        "policy.toml:2: plan.unread: note.A0213: keys that llama does not have are not used: sliding_window",
        "policy.toml:3: plan.overrides: config.attention_bias: unset",
        "policy.toml:3: plan.overrides: config.rope_theta: 5e5", "4 violations"])  # fmt: skip
    assert compiled("llama", None, None, "-o", "c.bin")[0] == 0
    assert atlas("audit", "c.bin", "--check", "policy.toml", cwd=tmp_path).returncode == 0
