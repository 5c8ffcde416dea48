"""config.json and generation_config.json: what is understood, and what every refusal says.

tests/mkckpt/recipes.toml has the broken files; here are the meanings of sound ones and the finer messages."""

import json
import shutil

import pytest

FIXTURE = "tests/fixtures/llama"
REMOVED = object()


@pytest.fixture
def read(repo, tmp_path, atlasc):
    """read(changes, generation, raw) -> (facts, lines of stderr). The fixture's config.json with `changes` laid
    over it; facts are the words of the printed model, "head_dim" -> "64"."""
    folder = tmp_path / "m"
    folder.mkdir()
    for file in (repo / FIXTURE).iterdir():
        if file.suffix in (".json", ".safetensors") and not file.name.startswith("golden"):
            shutil.copy(file, folder)

    def run(changes=None, generation=None, raw=None, nest=False):
        config = {**json.loads((repo / FIXTURE / "config.json").read_text()), **(changes or {})}
        config = {k: v for k, v in config.items() if v is not REMOVED}
        if nest:
            config = {"architectures": config.pop("architectures"), "model_type": "wrapper", "text_config": config}
        (folder / "config.json").write_text(raw or json.dumps(config, indent=2))
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps(generation))
        done = atlasc("m", "--dry-run", "-d", "c", "--stop-after=read-config", cwd=tmp_path)
        lines = [line for line in done.stdout.splitlines() if not line.startswith("key ")]
        words = [w for line in lines for w in line.split("  ")[1:] if w.strip()]
        facts = {}
        for w in words:
            key, _, value = w.strip().partition(" ")
            facts[key] = value
        facts["rope"] = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("rope ")), None)
        assert done.returncode in (0, 4), done.stderr
        return (facts if done.returncode == 0 else None), done.stderr.splitlines()

    return run


def test_plain(read):
    facts, _ = read()
    assert facts["hidden_dim"] == "64" and facts["n_layers"] == "2" and facts["vocab"] == "307"
    assert facts["rope"] == "default" and facts["theta"] == "10000" and facts["window"] == "0"


def test_rope_theta_default(read):
    assert read({"rope_theta": REMOVED})[0]["theta"] == "10000"


@pytest.mark.parametrize("spelling", [
    {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}},
    {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"rope_theta": REMOVED, "rope_parameters": {"rope_type": "linear", "rope_theta": 500000, "factor": 2}},
    {"rope_theta": 500000, "rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5},
     "rope_parameters": {"rope_type": "linear", "rope_theta": 500000.0, "factor": 2.0}},
])  # fmt: skip
@pytest.mark.parametrize("nest", [False, True])
def test_rope_spellings(read, spelling, nest):
    facts, lines = read(spelling, nest=nest)
    assert facts and facts["rope"] == "linear" and facts["theta"] == "500000" and facts["factor"] == "2", lines


def test_llama3(read):
    facts, _ = read({"rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192}})  # fmt: skip
    assert facts["rope"] == "llama3" and facts["factor"] == "32" and facts["low_freq"] == "1"
    assert facts["high_freq"] == "4" and facts["original_context"] == "8192" and facts["max_position"] == "512"


def test_yarn_defaults_and_reach(read):
    """beta 32 and 1, truncated; the context that yarn reaches is what the model is said to be trained for."""
    facts, _ = read({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}})
    assert facts["beta_fast"] == "32" and facts["beta_slow"] == "1" and facts["truncate"] == "1"
    assert facts["attention_factor"] == "0" and facts["mscale"] == "0" and facts["max_position"] == "2048"


def test_head_dim_is_independent(read):
    assert read({"head_dim": 128})[0]["head_dim"] == "128"
    assert read({"head_dim": REMOVED, "num_attention_heads": 4})[0]["head_dim"] == "16"


def test_kv_heads_default_to_heads(read):
    assert read({"num_key_value_heads": REMOVED})[0]["n_kv_heads"] == read()[0]["n_heads"]


def test_eos_is_a_union(read):
    facts, _ = read({"eos_token_id": [9, 2], "bos_token_id": 1}, {"eos_token_id": [7, 2]})
    assert facts["eos"] == "2 7 9" and facts["bos"] == "1"
    assert read({"eos_token_id": None}, {})[0]["eos"] == ""


def test_nested_text_config(read):
    facts, lines = read({"eos_token_id": 5}, {}, nest=True)
    assert facts["hidden_dim"] == "64" and facts["eos"] == "5", lines


WINDOWS = [
    ({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096}, "4096"),
    ({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}, "0"),
    ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 32, "use_sliding_window": False}, "0"),
    ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 32}, "0"),
    ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 32, "use_sliding_window": True,
      "max_window_layers": 1}, "32"),
    ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 32, "use_sliding_window": True,
      "max_window_layers": 2}, "0"),
    ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "sliding_window": 32, "use_sliding_window": True,
      "max_window_layers": 0, "layer_types": ["full_attention"] * 2}, "0"),
    ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "sliding_window": 32, "use_sliding_window": True,
      "layer_types": ["full_attention", "sliding_attention"]}, "32"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "window"), WINDOWS)
def test_windows(read, changes, window):
    facts, lines = read(changes)
    assert facts and facts["window"] == window, lines


@pytest.mark.parametrize("changes", [
    {"logit_scale": 1.0}, {"logit_scale": None}, {"final_logit_softcapping": None}, {"num_experts": 0},
    {"no_rope_layers": []}, {"use_qk_norm": False}, {"pruned_heads": {}}, {"partial_rotary_factor": 1.0},
    {"pretraining_tp": 4}, {"attention_dropout": 0.1}, {"pad_token_id": -1}, {"quantization_config": None}, {"auto_map": {}},
])  # fmt: skip
def test_values_that_change_nothing(read, changes):
    facts, lines = read(changes)
    assert facts and not any("unknown keys" in line for line in lines), lines


def test_unknown_keys_are_named_once(read):
    facts, lines = read({"color": "blue", "depth_scale": 3})
    assert facts
    assert [line for line in lines if "A0207" in line][0].endswith(
        "note[A0207]: unknown keys are not used: color, depth_scale"
    )


MESSAGES = [
    ({"logit_scale": 0.0625}, "error[A0206]: logit_scale = 0.0625: this feature is not implemented"),
    ({"final_logit_softcapping": 30.0}, "error[A0206]: final_logit_softcapping = 30.0: this feature is not implemented"),
    ({"embedding_multiplier": 12}, "error[A0206]: embedding_multiplier = 12: this feature is not implemented"),
    ({"no_rope_layers": [1, 0]}, "error[A0206]: no_rope_layers = [ 1, 0 ]: this feature is not implemented"),
    ({"num_experts": 8}, "error[A0206]: num_experts = 8: this feature is not implemented"),
    ({"partial_rotary_factor": 0.5}, "error[A0206]: partial_rotary_factor = 0.5: expected 1, partly turned heads are not implemented"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
     'error[A0209]: rope_scaling.rope_type = "dynamic": expected default, linear, llama3, yarn, longrope or proportional'),
    ({"rope_scaling": {"factor": 2.0}}, "error[A0209]: rope_scaling.rope_type is missing"),
    ({"rope_scaling": "linear"}, 'error[A0209]: rope_scaling = "linear": expected a table'),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "low_freq_factor": 1.0}},
     "error[A0209]: rope_scaling.low_freq_factor = 1.0: rope_type = linear does not use it"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "error[A0209]: rope_parameters.full_attention is unknown"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "beta_fast": 1, "beta_slow": 2}},
     "error[A0209]: beta_fast = 1: must not be below beta_slow = 2"),
    ({"head_dim": 63}, "error[A0205]: head_dim = 63: expected an even number, rope turns pairs"),
    ({"model_type": "llama", "architectures": ["Qwen2ForCausalLM"]},
     'error[A0204]: architectures = ["Qwen2ForCausalLM"]: expected LlamaForCausalLM'),
    ({"model_type": 7}, "error[A0203]: model_type = 7: expected a string"),
    ({"tie_word_embeddings": "yes"}, 'error[A0203]: tie_word_embeddings = "yes": expected true or false'),
    ({"attention_bias": 1}, "error[A0203]: attention_bias = 1: expected true or false"),
    ({"num_attention_heads": True}, "error[A0203]: num_attention_heads = true: expected an integer from 1 to 4096"),
    ({"vocab_size": 307.0}, "error[A0203]: vocab_size = 307.0: expected an integer from 1 to 1048576"),
    ({"bos_token_id": 307}, "error[A0210]: bos_token_id = 307: expected a token id from 0 to 306 (vocab_size = 307)"),
    ({"bos_token_id": [1]}, "error[A0210]: bos_token_id = [ 1 ]: expected a token id from 0 to 306 (vocab_size = 307)"),
    ({"eos_token_id": -1}, "error[A0210]: eos_token_id = -1: expected a token id from 0 to 306 (vocab_size = 307)"),
    ({"eos_token_id": list(range(17))}, "error[A0210]: more than 16 different eos_token_id"),
    ({"layer_types": ["sliding_attention"] * 2}, 'error[A0206]: layer_types = [ "sliding_attention", "sliding_atten...: '
     "this feature is not implemented for llama: it is a key of exaone4, gemma3, gemma4, gpt_oss, laguna, llama4, olmo3, qwen2, qwen3, qwen3_5, qwen3_5_moe, qwen3_next, smollm3 and step3p5"),
    ({"quantization_config": {"bits": 4}}, "error[A0208]: quantization_config: quant_method is missing: expected fp8, modelopt, compressed-tensors, awq, gptq or mxfp4"),
    ({"text_config": 3}, "error[A0203]: text_config = 3: expected a table"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), MESSAGES, ids=[m[1][6:50] for m in MESSAGES])
def test_message(read, changes, message):
    facts, lines = read(changes)
    assert facts is None
    assert any(line.startswith("m/config.json:") and message in line for line in lines), lines


GENERATION = [
    ({"num_beams": 4}, "error[A0206]: num_beams = 4: this feature is not implemented"),
    ({"suppress_tokens": [1]}, "error[A0206]: suppress_tokens = [1]: this feature is not implemented"),
    ({"do_sample": 1}, "error[A0203]: do_sample = 1: expected true or false"),
    ({"do_sample": True, "top_k": 1.5}, "error[A0203]: top_k = 1.5: expected an integer from 0 to 1048576"),
    ({"repetition_penalty": 0}, "error[A0203]: repetition_penalty = 0: expected a number from 0.001 to 100"),
]


@pytest.mark.parametrize(("generation", "message"), GENERATION)
def test_generation_message(read, generation, message):
    facts, lines = read(None, generation)
    assert facts is None
    assert any(line.startswith("m/generation_config.json:") and message in line for line in lines), lines


def test_tie_at_two_levels(read, repo):
    config = json.loads((repo / FIXTURE / "config.json").read_text())
    config["tie_word_embeddings"] = False
    wrapped = {"architectures": config["architectures"], "tie_word_embeddings": True, "text_config": config}
    facts, lines = read(raw=json.dumps(wrapped))
    assert facts is None and any(
        "error[A0205]: tie_word_embeddings = true: text_config in line 1 says false" in x for x in lines
    )
    wrapped["text_config"]["tie_word_embeddings"] = None
    assert "error[A0203]: tie_word_embeddings = null: expected true or false" in read(raw=json.dumps(wrapped))[1][0]
    del wrapped["text_config"]["tie_word_embeddings"]
    assert read(raw=json.dumps(wrapped))[0]["tied"] == "1"


def test_vocab_beside_text_config(read, repo):
    config = json.loads((repo / FIXTURE / "config.json").read_text())
    vocab = config.pop("vocab_size")
    facts, lines = read(
        raw=json.dumps({"architectures": config["architectures"], "vocab_size": vocab, "text_config": config})
    )
    assert facts and facts["vocab"] == str(vocab), lines


def test_boxed_and_bare_nonfinite(read, repo):
    config = json.loads((repo / FIXTURE / "config.json").read_text())
    text = json.dumps(config)[:-1] + ', "unused": {"__float__": "Infinity"}, "unused2": -Infinity}'
    assert read(raw=text)[0]
    boxed = json.dumps({**config, "rope_theta": {"__float__": "Infinity"}})
    _, lines = read(raw=boxed)
    assert any('rope_theta = {"__float__": "Infinity"}: expected a number above 0' in line for line in lines), lines
