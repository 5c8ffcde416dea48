"""What a config.json of a family says wrongly is refused with place and code, both sides named."""

import json
import pathlib
import shutil

import pytest

HERE = pathlib.Path(__file__).resolve().parent

# Fixture, changes of its config.json (text.KEY: of its text_config), code, what the message says.
MUTANTS = [
    ("seed_oss", {"residual_multiplier": 2}, "A0206", "residual_multiplier = 2: this feature is not implemented"),
    ("seed_oss", {"attention_out_bias": None}, "A0203", "attention_out_bias = null: expected true or false"),
    ("seed_oss", {"attention_out_bias": True}, "A0601",
     "tensor model.layers.0.self_attn.o_proj.bias is missing: seed_oss needs it with shape [64]"),
    ("seed_oss", {"attention_bias": False}, "A0604", "model.layers.0.self_attn.k_proj.bias"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "A0205", "no_rope_layers has 2 entries: num_hidden_layers = 3"),
    ("smollm3", {"no_rope_layers": [1, 2, 1]}, "A0203", "no_rope_layers[1] = 2: expected an integer from 0 to 1"),
    ("smollm3", {"no_rope_layer_interval": 0}, "A0203", "no_rope_layer_interval = 0: expected an integer from 1 to"),
    ("smollm3", {"use_sliding_window": True, "sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("smollm3", {"use_sliding_window": True, "sliding_window": -4}, "A0203", "sliding_window = -4: expected an integer from 1"),
    ("smollm3", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "A0205",
     'layer_types[1] = "sliding_attention": there is no window, as sliding_window = null'),
    ("smollm3", {"layer_types": ["full_attention"] * 2}, "A0205", "layer_types has 2 entries: num_hidden_layers = 3"),
    ("smollm3", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "A0206",
     'layer_types[1] = "chunked_attention": expected "full_attention" or "sliding_attention"'),
    ("phi3", {"rope_scaling.long_factor": [1.0] * 11}, "A0209",
     "rope_scaling.long_factor has 11 numbers: 24 of a head's elements are turned, in 12 pairs"),
    ("phi3", {"rope_scaling.short_factor": "absent"}, "A0209", "short_factor is missing: rope_type = longrope needs it"),
    ("phi3", {"rope_scaling.long_factor": [0.0] * 12}, "A0209", "rope_scaling.long_factor[0] = 0.0: expected a number above 0"),
    ("phi3", {"original_max_position_embeddings": "absent"}, "A0209", "original_max_position_embeddings is missing"),
    ("phi3", {"intermediate_size": 79}, "A0214", "intermediate_size = 79: 9 tensors of the checkpoint have the shape of intermediate_size = 80"),
    ("mixtral", {"num_local_experts": 5}, "A0214", "num_local_experts = 5: 2 tensors of the checkpoint have the shape of"),
    ("mixtral", {"num_local_experts": 1, "num_experts_per_tok": "absent"}, "A0205", "num_experts_per_tok = 2: num_local_experts = 1"),
    ("mixtral", {"num_experts": 5}, "A0205", "num_experts = 5: num_local_experts in line"),
    ("olmo3", {"rope_theta": 10000}, "A0209", "rope_theta = 10000: the class gives layers of sliding_attention 500000 all the same"),
    ("olmo3", {"rope_scaling": None, "rope_parameters": {"full_attention": {"rope_type": "default"}, "factor": 2.0}}, "A0209",
     "rope_parameters.factor: next to tables for kinds of layers it is of none"),
    ("olmo3", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "A0209",
     "rope_scaling: rope_parameters in line"),
    ("olmo3", {"sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("olmo3", {"layer_types": ["full_attention"]}, "A0205", "layer_types has 1 entry: num_hidden_layers = 3"),
    ("exaone4", {"sliding_window": None}, "A0205", "there is no window, as sliding_window = null"),
    ("exaone4", {"layer_types": None}, "A0203", 'sliding_window_pattern = "LG": expected an integer'),
    ("gemma3", {"hidden_activation": "silu"}, "A0206", 'hidden_activation = "silu": expected "gelu_pytorch_tanh", as gemma3 has it'),
    ("gemma3", {"query_pre_attn_scalar": 0}, "A0203", "query_pre_attn_scalar = 0: expected a number above 0"),
    ("gemma3", {"final_logit_softcapping": 0}, "A0203", "final_logit_softcapping = 0: expected a number above 0"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "A0206", "attn_logit_softcapping = 50.0: this feature is not implemented"),
    ("gemma3", {"use_bidirectional_attention": True}, "A0206", "use_bidirectional_attention = true: this feature"),
    ("gemma3", {"rope_local_base_freq": 0}, "A0209", "rope_local_base_freq = 0: expected a number above 0"),
    ("glm4_moe", {"n_group": 3}, "A0205", "n_group = 3: must divide the 8 experts"),
    ("glm4_moe", {"topk_group": 5}, "A0205", "topk_group = 5: n_group = 4"),
    ("glm4_moe", {"topk_group": 1}, "A0205", "topk_group = 1: groups of 2 experts are less than the 3 of a row"),
    ("glm4_moe", {"scoring_func": "softmax"}, "A0206", 'scoring_func = "softmax": expected "sigmoid", as glm4_moe has it'),
    ("glm4_moe", {"first_k_dense_replace": 0}, "A0601", "model.layers.0.mlp."),
    ("glm4_moe", {"first_k_dense_replace": -1}, "A0203", "first_k_dense_replace = -1: expected an integer from 0"),
    ("glm4_moe", {"routed_scaling_factor": 0}, "A0203", "routed_scaling_factor = 0: expected a number above 0"),
    ("glm4_moe", {"n_shared_experts": 2}, "A0602", "model.layers.1.mlp.shared_experts."),
    ("minimax_m2", {"rotary_dim": 64}, "A0205", "rotary_dim = 64: partial_rotary_factor = 0.5 in line"),
    ("minimax_m2", {"partial_rotary_factor": "absent", "rotary_dim": 64}, "A0205", "rotary_dim = 64: heads have 32 elements"),
    ("minimax_m2", {"use_routing_bias": False}, "A0206", "use_routing_bias = false: expected true, as minimax_m2 has it"),
    ("minimax_m2", {"shared_intermediate_size": 64}, "A0206", "shared_intermediate_size = 64: expected"),
    ("laguna", {"num_attention_heads_per_layer": [2, 4]}, "A0205",
     "num_attention_heads_per_layer has 2 entries: num_hidden_layers = 3"),
    ("laguna", {"num_attention_heads_per_layer": [2, 3, 4]}, "A0205",
     "num_attention_heads_per_layer[1] = 3: num_key_value_heads = 2 must divide it"),
    ("laguna", {"mlp_layer_types": ["dense", "sparse"]}, "A0205", "mlp_layer_types has 2 entries: num_hidden_layers = 3"),
    ("laguna", {"mlp_layer_types": ["dense", "sparse", "moe"]}, "A0206", 'mlp_layer_types[2] = "moe": expected "dense" or'),
    ("laguna", {"mlp_layer_types": "absent"}, "A0202", "mlp_layer_types is missing"),
    ("laguna", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "A0209",
     "rope_parameters.full_attention is missing: laguna states a table for each kind of layer"),
    ("laguna", {"gating": "per-element"}, "A0206", 'gating = "per-element": expected "per-head", as laguna has it'),
    ("laguna", {"moe_router_logit_softcapping": 30.0}, "A0206", "moe_router_logit_softcapping = 30.0: expected"),
    ("gemma4", {"hidden_activation": "silu"}, "A0206", 'hidden_activation = "silu": expected "gelu_pytorch_tanh", as gemma4'),
    ("gemma4", {"use_bidirectional_attention": "all"}, "A0206", 'use_bidirectional_attention = "all": expected "vision"'),
    ("gemma4", {"attention_bias": True}, "A0206", "attention_bias = true: expected false, as gemma4 has it"),
    ("gemma4", {"final_logit_softcapping": 0}, "A0203", "final_logit_softcapping = 0: expected a number above 0"),
    ("gemma4", {"global_head_dim": 63}, "A0205", "global_head_dim = 63: expected an even number, rope turns pairs"),
    ("gemma4", {"global_head_dim": "absent"}, "A0602", "model.layers.2.self_attn.q_proj.weight has shape [256, 64]"),
    ("gemma4", {"num_global_key_value_heads": 3}, "A0205", "num_global_key_value_heads = 3: must divide num_attention_heads"),
    ("gemma4", {"attention_k_eq_v": False}, "A0601", "tensor model.layers.2.self_attn.v_proj.weight is missing"),
    ("gemma4", {"rope_parameters": None}, "A0209", "rope_parameters.full_attention is missing: gemma4 states a table"),
    ("gemma4-ple", {"num_kv_shared_layers": 6}, "A0205", "num_kv_shared_layers = 6: num_hidden_layers = 6, and no layer"),
    ("gemma4-ple", {"num_kv_shared_layers": 4}, "A0205", "of the kind that layer 2 reads"),
    ("gemma4-ple", {"vocab_size_per_layer_input": 64}, "A0205", "vocab_size_per_layer_input = 64: vocab_size = 128"),
    ("gemma4-ple", {"use_double_wide_mlp": False}, "A0602", "model.layers.3.mlp."),
    ("gemma4-ple", {"hidden_size_per_layer_input": 0}, "A0604", "model.embed_tokens_per_layer.weight"),
    ("gemma4-moe", {"enable_moe_block": False}, "A0604", "model.layers.0.experts.down_proj"),
    ("gemma4-moe", {"moe_intermediate_size": None}, "A0202", "moe_intermediate_size is missing"),
    ("gemma4-moe", {"top_k_experts": None}, "A0202", "top_k_experts is missing"),
    ("gemma4-moe", {"top_k_experts": 9}, "A0205", "top_k_experts = 9: num_experts = 8"),
    ("gpt_oss", {"layer_types": ["sliding_attention", "full_attention"]}, "A0205",
     "layer_types has 2 entries: num_hidden_layers = 3"),
    ("gpt_oss", {"rope_scaling": None}, "A0209", "rope_scaling is missing: in that case the class of gpt_oss has another table"),
    ("gpt_oss", {"rope_scaling": "absent"}, "A0209", "rope_scaling is missing: in that case the class of gpt_oss has another table"),
    ("gpt_oss", {"rope_scaling": {}}, "A0209", "rope_scaling is missing: in that case the class of gpt_oss has another table"),
    ("gpt_oss", {"sliding_window": None}, "A0205", "there is no window, as sliding_window = null"),
    ("gpt_oss", {"attention_bias": False}, "A0604", "model.layers.0.self_attn.k_proj.bias"),
    ("gpt_oss", {"swiglu_limit": 0}, "A0203", "swiglu_limit = 0: expected a number above 0"),
    ("gpt_oss", {"hidden_act": "gelu"}, "A0206", 'hidden_act = "gelu": expected "silu"'),
    ("gpt_oss", {"num_local_experts": 2, "num_experts_per_tok": 3}, "A0205", "num_experts_per_tok = 3: num_local_experts = 2"),
    ("gpt_oss", {"num_local_experts": 9}, "A0214", "num_local_experts = 9: "),
    ("gpt_oss-mxfp4", {"quantization_config.bits": 8}, "A0208", "quantization_config.bits = 8: a setting of another quant_method"),
    ("laguna", {"sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("laguna", {"layer_types": ["full_attention"] * 2}, "A0205", "layer_types has 2 entries: num_hidden_layers = 3"),
    ("gemma3", {"sliding_window": -1}, "A0203", "sliding_window = -1: expected an integer from 1"),
    ("gemma3", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, "A0206",
     'layer_types[1] = "chunked_attention": expected "full_attention" or "sliding_attention"'),
    ("exaone4", {"layer_types": ["sliding_attention"]}, "A0205", "layer_types has 1 entry: num_hidden_layers = 2"),
    ("phi3", {"sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("step3p5", {"text.sliding_window": 0}, "A0203", "sliding_window = 0: expected an integer from 1"),
    ("step3p5", {"text.sliding_window": "absent"}, "A0205", "there is no window, as sliding_window = null"),
    ("step3p5", {"text.layer_types": ["full_attention"] * 3}, "A0205",
     "layer_types has 3 entries: num_hidden_layers = 4, and 1 layer after the last"),
    ("step3p5", {"text.layer_types": ["full_attention"] * 4 + ["linear_attention"]}, "A0206",
     'layer_types[4] = "linear_attention": expected "full_attention" or "sliding_attention"'),
    ("step3p5", {"text.rope_theta": [5e5, 1e4]}, "A0205", "rope_theta has 2 entries: num_hidden_layers = 4"),
    ("step3p5", {"text.rope_theta": [5e5, 1e4, 2e4, 5e5, 1e4]}, "A0209",
     "rope_theta[2] = 20000.0: rope_theta[1] = 10000.0, and all layers of sliding_attention turn by one table"),
    ("step3p5", {"text.rope_theta": [5e5, 0, 0, 5e5, 1e4]}, "A0209", "rope_theta = 0: expected a number above 0"),
    ("step3p5", {"text.partial_rotary_factors": [0.5, 1.5, 1.5, 0.5, 1.0]}, "A0209",
     "partial_rotary_factor = 1.5: expected a number above 0 up to 1"),
    ("step3p5", {"text.partial_rotary_factors": [0.5, 0.03, 0.03, 0.5, 1.0]}, "A0205",
     "partial_rotary_factor = 0.03: expected an even number of elements of head_dim = 32"),
    ("step3p5", {"text.rope_parameters": {"rope_type": "default"}}, "A0209",
     "rope_parameters.full_attention is missing: step3p5 reads a table for each kind of layer"),
    ("step3p5", {"text.yarn_only_types": ["sliding_attention"]}, "A0206",
     'expected "full_attention" alone, as step3p5 has it'),
    ("step3p5", {"text.use_rope_layers": [0, 1]}, "A0206", "expected [], as step3p5 has it"),
    ("step3p5", {"text.swiglu_limits": [0, 7]}, "A0205", "swiglu_limits has 2 entries: num_hidden_layers = 4"),
    ("step3p5", {"text.swiglu_limits_shared": [0, -7, 0, 0]}, "A0203", "swiglu_limits_shared[1] = -7: expected a number"),
    ("step3p5", {"text.moe_layers_enum": "1,2,x"}, "A0203", 'moe_layers_enum = "1,2,x": expected numbers of layers'),
    ("step3p5", {"text.moe_layers_enum": "1,2,9"}, "A0205", "moe_layers_enum names layer 9: there are 5"),
    ("step3p5", {"text.moe_layers_enum": [1, 2]}, "A0601", "tensor model.layers.3.mlp.gate_proj.weight is missing"),
    ("step3p5", {"text.moe_layers_enum": "absent"}, "A0601", "tensor model.layers.1.mlp.gate_proj.weight is missing"),
    ("step3p5", {"text.num_key_value_heads": 1}, "A0205", "num_attention_groups = 2: num_key_value_heads in line"),
    ("step3p5", {"text.num_local_experts": 4}, "A0205", "num_local_experts = 4: moe_num_experts in line"),
    ("step3p5", {"text.moe_num_experts": 5}, "A0214", "moe_num_experts = 5: 15 tensors of the checkpoint have the shape of"),
    ("step3p5", {"text.moe_router_activation": "softmax"}, "A0206", 'moe_router_activation = "softmax": expected "sigmoid"'),
    ("step3p5", {"text.use_moe_router_bias": False}, "A0206", "use_moe_router_bias = false: expected true, as step3p5"),
    ("step3p5", {"text.sink": True}, "A0206", "sink = true: expected false, as step3p5 has it"),
    ("step3p5", {"text.num_sliding_attention_heads": 3}, "A0205",
     "attention_other_setting.num_attention_heads = 4: num_sliding_attention_heads = 3"),
    ("step3p5", {"text.attention_other_setting.num_attention_heads": 3}, "A0205",
     "attention_other_setting.num_attention_heads = 3: num_attention_groups = 2 must divide it"),
    ("step3p5", {"text.attention_other_setting.head_dim": 64}, "A0206",
     "attention_other_setting.head_dim = 64: other layers have 32"),
    ("step3p5", {"text.attention_other_setting.attention_type": "full_attention"}, "A0206",
     'attention_other_setting.attention_type = "full_attention": expected "sliding_attention"'),
    ("step3p5", {"text.attention_other_setting.rope": 1}, "A0206", "attention_other_setting.rope = 1: this feature"),
    ("step3p5", {"text.per_layer_config": {"1": {"num_attention_heads": 2}}}, "A0205",
     "per_layer_config.1.num_attention_heads = 2: the layer has 4 heads by the other keys"),
    ("step3p5", {"text.per_layer_config": {"7": {}}}, "A0205", "per_layer_config.7: there are layers 0 to 3"),
    ("step3p5", {"text.per_layer_config": {"1": {"head_dim": 64}}}, "A0206", "per_layer_config.1.head_dim = 64: this feature"),
    ("qwen3_vl_moe", {"text.decoder_sparse_step": 2}, "A0206", "decoder_sparse_step = 2: expected 1, as qwen3_vl_moe has it"),
    ("qwen3_vl_moe", {"text.mlp_only_layers": [0]}, "A0206", "expected [], as qwen3_vl_moe has it"),
    ("qwen3_vl_moe", {"text.norm_topk_prob": False}, "A0206", "norm_topk_prob = false: expected true, as qwen3_vl_moe"),
    ("qwen3_vl_moe", {"text.num_experts": 5}, "A0214", "num_experts = 5: 6 tensors of the checkpoint have the shape of"),
    ("qwen3_vl_moe", {"text.num_local_experts": 7}, "A0205", "num_local_experts = 7: num_experts in line"),
    ("llama", {"no_rope_layers": [1, 0]}, "A0206", "not implemented for llama: it is a key of llama4 and smollm3"),
    ("llama4", {"text_config.attention_chunk_size": 0}, "A0203", "attention_chunk_size = 0: expected an integer from 1"),
    ("llama4", {"text_config.num_experts_per_tok": 2}, "A0205", "num_experts_per_tok = 2: a share of what an expert reads"),
    ("llama4", {"text_config.floor_scale": 256, "text_config.max_position_embeddings": 8192}, "A0218", "from position 255 on, floor_scale"),
    ("llama4", {"text_config.moe_layers": [4]}, "A0205", "moe_layers names layer 4: there are 4"),
    ("llama4", {"text_config.interleave_moe_layer_step": 0}, "A0203", "interleave_moe_layer_step = 0: expected an integer from 1"),
    ("arcee", {"hidden_act": "silu"}, "A0206", "hidden_act"),
    ("qwen3_vl", {"text.sliding_window": 64}, "A0206", "sliding_window = 64: this feature is not implemented for qwen3_vl"),
]  # fmt: skip


def folder_of(name):
    return HERE / name if (HERE / name).is_dir() else HERE.parent / "fixtures" / name


def changed(name, changes):
    config = json.loads((folder_of(name) / "config.json").read_text())
    for key, value in changes.items():
        *path, last = key.split(".")
        of = config
        for table in path:
            of = of["text_config" if table == "text" else table]
        if value == "absent":
            del of[last]
        else:
            of[last] = value
    return config


@pytest.mark.parametrize(
    ("name", "changes", "code", "says"), MUTANTS, ids=[f"{m[0]}-{'-'.join(m[1])}-{i}" for i, m in enumerate(MUTANTS)]
)
def test_mutant(atlasc, tmp_path, name, changes, code, says):
    for file in folder_of(name).glob("*.safetensors"):
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").write_text(json.dumps(changed(name, changes), indent=1))
    done = atlasc(tmp_path, "--target", "none", "--dry-run")
    assert done.returncode == 4
    assert any(f"error[{code}]: " in line and says in line for line in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("glm4_moe", "model.layers.1.mlp.gate.e_score_correction_bias"),
        ("minimax_m2", "model.layers.0.block_sparse_moe.e_score_correction_bias"),
        ("laguna", "model.layers.1.mlp.experts.e_score_correction_bias"),
        ("laguna", "model.layers.0.self_attn.g_proj.weight"),
        ("step3p5", "model.layers.1.moe.router_bias"),
        ("step3p5", "model.layers.1.moe.up_proj.weight"),
        ("step3p5", "model.layers.2.moe.down_proj.weight"),
        ("step3p5", "model.layers.0.self_attn.g_proj.weight"),
        ("qwen3_vl_moe", "model.language_model.layers.0.mlp.experts.gate_up_proj"),
        ("phi3", "model.layers.0.self_attn.qkv_proj.weight"),
        ("gemma3", "model.layers.0.pre_feedforward_layernorm.weight"),
        ("gemma4", "model.layers.0.layer_scalar"),
        ("gpt_oss", "model.layers.0.self_attn.sinks"),
        ("gpt_oss", "model.layers.1.mlp.router.bias"),
        ("gpt_oss", "model.layers.1.mlp.experts.gate_up_proj"),
        ("gpt_oss", "model.layers.1.mlp.experts.down_proj_bias"),
    ],
)
def test_a_tensor_is_missing(atlasc, tmp_path, name, tensor):
    """A router without its bias would choose others; whatever is missing, or has another name, is named with what needs
    it."""
    shutil.copy(HERE / name / "config.json", tmp_path)
    raw = (HERE / name / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size]
    assert header.count(f'"{tensor}"'.encode()) == 1
    renamed = header.replace(tensor.encode(), tensor.encode()[:-1] + b"_")
    (tmp_path / "model.safetensors").write_bytes(raw[:8] + renamed + raw[8 + size :])
    done = atlasc(tmp_path, "--target", "none", "--dry-run")
    assert done.returncode == 4
    assert any(f"error[A0601]: tensor {tensor} is missing: {name}" in line for line in done.stderr.splitlines()), (
        done.stderr
    )


GPT_OSS = "model.layers.0.mlp.experts."
STORED = [  # fixture, tensor, its header's shape and dtype and others in their place, code, what the message says
    ("gpt_oss", "gate_up_proj_bias", "[8,64]", "[64,8]", "A0602", "has shape [64, 8]: config.json asks for [8, 64]"),
    ("gpt_oss", "gate_up_proj", "[8,64,64]", "[8,128,32]", "A0602", "has shape [8, 128, 32]: config.json asks for [8, 64, 64]"),
    ("gpt_oss", "down_proj", "[8,32,64]", "[8,64,32]", "A0602", "has shape [8, 64, 32]: config.json asks for [8, 32, 64]"),
    ("gpt_oss-mxfp4", "gate_up_proj_scales", "[8,64,2]", "[8,32,4]", "A0602", "has shape [8, 32, 4]: config.json asks for [8, 64, 2]"),
    ("gpt_oss-mxfp4", "down_proj_blocks", "[8,64,1,16]", "[8,64,16]", "A0602", "has shape [8, 64, 16]: config.json asks for [8, 64, 1, 16]"),
    ("gpt_oss-mxfp4", "down_proj_scales", '"U8"', '"I8"', "A0603", "has dtype I8: expected U8 or F8_E8M0 for MXFP4"),
    ("gpt_oss-mxfp4", "gate_up_proj_scales", "gate_up_proj_scales", "gate_up_proj_scalez", "A0601",
     "is missing: model.layers.0.mlp.experts.gate_up_proj_blocks is there"),
    ("gpt_oss-mxfp4", "down_proj_blocks", "down_proj_blocks", "down_proj_blockz", "A0601",
     "is missing: model.layers.0.mlp.experts.down_proj_scales is there"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tensor", "there", "instead", "code", "says"), STORED)
def test_experts_that_do_not_fit(atlasc, tmp_path, name, tensor, there, instead, code, says):
    """Blocks and scales belong together, and a transposed tensor is not taken for another of as many elements."""
    shutil.copy(HERE / name / "config.json", tmp_path)
    raw = (HERE / name / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].decode()
    at = header.index(f'"{GPT_OSS}{tensor}"')
    end = header.index("}", at)
    entry = header[at:end]
    assert entry.count(there) == 1, entry
    header = header[:at] + entry.replace(there, instead) + header[end:]
    header = header.rstrip().ljust(size + 8)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode() + raw[8 + size :])
    done = atlasc(tmp_path, "--target", "none", "--dry-run")
    assert done.returncode == 4
    line = f"error[{code}]: tensor {GPT_OSS}{tensor} {says}"
    assert any(line in seen for seen in done.stderr.splitlines()), done.stderr
