"""What a config.json means, against the classes of transformers that read the same file.

For each family a full config: each key taken away in turn, and each set to null. What atlasc then computes with is what
the class has, or atlasc refuses. Which layers look back through a window is decided by the modeling code, not by the
config class: its lines about that are part of the test.
"""

import inspect
import itertools
import json
import logging
import pathlib
import random
import re

import pytest

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers = pytest.importorskip("transformers")
from transformers import AutoConfig  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

BASE = {
    "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 16,
    "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu", "intermediate_size": 96,
    "tie_word_embeddings": True, "bos_token_id": 5, "eos_token_id": [7, 9], "initializer_range": 0.02, "use_cache": True,
    "attention_dropout": 0.0, "rope_theta": 5000.0, "torch_dtype": "bfloat16", "pad_token_id": 3,
}  # fmt: skip
WINDOWS = {"use_sliding_window": True, "sliding_window": 600, "max_window_layers": 3}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "output_router_logits": False,
           "router_aux_loss_coef": 0.001}  # fmt: skip
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24,
         "linear_conv_kernel_dim": 3, "full_attention_interval": 2, "attention_bias": False, "partial_rotary_factor": 0.5,
         "layer_types": ["linear_attention", "full_attention"] * 4}  # fmt: skip
SHARED = {"shared_expert_intermediate_size": 48}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "attention_factor": 1.25, "beta_fast": 30.0,
        "beta_slow": 2.0, "truncate": False}  # fmt: skip
FAMILIES = {
    "llama": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128}}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 600}),
    "olmo2": ("Olmo2ForCausalLM", {"attention_bias": True}),
    "qwen2": ("Qwen2ForCausalLM", WINDOWS | {"rope_scaling": YARN}),
    "qwen3": ("Qwen3ForCausalLM", WINDOWS | {"attention_bias": True, "layer_types": ["full_attention", "sliding_attention"] * 4}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", EXPERTS | WINDOWS | {"norm_topk_prob": True, "decoder_sparse_step": 1,
                                                            "mlp_only_layers": [], "attention_bias": True}),
    "qwen3_next": ("Qwen3NextForCausalLM", EXPERTS | SHARED | DELTA | {"norm_topk_prob": True, "decoder_sparse_step": 1,
                                                                      "mlp_only_layers": []}),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", DELTA | {"rope_parameters": YARN | {"rope_theta": 7000.0, "mrope_section": [2, 1, 1],
                                                                              "mrope_interleaved": True}}),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", EXPERTS | SHARED | DELTA),
}  # fmt: skip
NESTED = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}


def full(model_type):
    """A config in which every key says something else than its default."""
    text_type = NESTED.get(model_type, model_type)
    architecture, own = FAMILIES[text_type]
    text = BASE | {"model_type": text_type} | own
    if "rope_parameters" in own:
        del text["rope_theta"]
    if model_type == text_type:
        return {"architectures": [architecture]} | text
    architecture = architecture.replace("CausalLM", "ConditionalGeneration")
    outer = {
        "architectures": [architecture],
        "model_type": model_type,
        "tie_word_embeddings": text["tie_word_embeddings"],
    }
    return outer | {"text_config": text}


def text_of(config):
    return config.get("text_config", config)


@pytest.fixture
def seen(atlasc, tmp_path):
    """seen(config) -> (facts or None, lines of stderr)"""

    def run(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        done = atlasc(tmp_path, "--stop-after=read-config", "-d", "c")
        if done.returncode:
            assert done.returncode == 4, done.stderr
            return None, done.stderr.splitlines()
        facts = dict(re.findall(r"^key +(\S+) = (.*?)(?:  \(.*\))?$", done.stdout, re.M))
        facts |= {"window": 0, "windowed": [], "layers": None}
        mixers = ""
        for m in re.finditer(r"^layers +(\d+)-(\d+)  (\w+)(.*)$", done.stdout, re.M):
            layers = range(int(m[1]), int(m[2]) + 1)
            mixers += m[3][0] * len(layers)
            if window := re.search(r"  window ([1-9]\d*)", m[4]):
                facts["window"] = int(window[1])
                facts["windowed"] += layers
        rope = re.search(r"^rope +(\S+)(.*)$", done.stdout, re.M)
        facts["rope"] = {"rope_type": rope[1]} | {k: float(v) for k, v in re.findall(r"  (\w+) (\S+)", rope[2])}
        facts["rotary"] = int(facts["rope"].pop("rotary_dim"))
        facts["layers"] = mixers if "d" in mixers else None
        tokens = re.search(r"^tokens .* bos (-?\d+)  eos([ \d]*)  tokenizer", done.stdout, re.M)
        facts["bos"], facts["eos"] = int(tokens[1]), [int(x) for x in tokens[2].split()]
        return facts, done.stderr.splitlines()

    return run


def theirs(config, tmp_path):
    """The config object as transformers reads the file, its text part; None where it refuses."""
    folder = tmp_path / "theirs"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    try:
        whole = AutoConfig.from_pretrained(folder)
    except Exception:  # whatever it raises, it reads no such file
        return None, None
    return whole, whole.get_text_config()


def windows_of(model_type, c):
    """What the modeling code does with the config: (window, layers)."""
    everywhere = list(range(c.num_hidden_layers))
    if model_type in ("mistral", "qwen3_moe"):
        return (c.sliding_window or 0, everywhere if c.sliding_window else [])
    if model_type in ("qwen2", "qwen3"):
        layers = [i for i, kind in enumerate(c.layer_types) if kind == "sliding_attention"]
        return (c.sliding_window or 0 if layers else 0, layers if c.sliding_window else [])
    return 0, []


def compare(model_type, facts, whole, c):
    fields = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
              "max_position_embeddings", "rms_norm_eps"]  # fmt: skip
    fields += [k for k in ("attention_bias", "mlp_bias", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
                           "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads",
                           "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim") if k in facts]  # fmt: skip
    fields += ["intermediate_size"] if "num_experts" not in facts else []
    fields += ["norm_topk_prob"] if model_type == "qwen3_moe" else []
    for k in fields:
        assert json.loads(facts[k]) == getattr(c, k), k
    head_dim = getattr(c, "head_dim", c.hidden_size // c.num_attention_heads)
    assert json.loads(facts["head_dim"]) == head_dim
    assert c.hidden_act == "silu"
    if model_type == "qwen3_next":
        assert c.norm_topk_prob is True
    if hasattr(c, "decoder_sparse_step"):
        assert c.decoder_sparse_step == 1 and c.mlp_only_layers == []
    assert json.loads(facts["tie_word_embeddings"]) == whole.tie_word_embeddings
    assert (facts["window"], facts["windowed"]) == windows_of(model_type, c)
    if facts["layers"]:
        assert facts["layers"] == "".join("d" if kind == "linear_attention" else "a" for kind in c.layer_types)
        assert facts["rotary"] == int(head_dim * c.rope_parameters.get("partial_rotary_factor", 1.0))
    rope = c.rope_parameters
    assert facts["rope"]["rope_type"] == rope["rope_type"] and facts["rope"]["theta"] == rope["rope_theta"]
    ours = {"factor": "factor", "low_freq": "low_freq_factor", "high_freq": "high_freq_factor",
            "original_context": "original_max_position_embeddings", "beta_fast": "beta_fast", "beta_slow": "beta_slow",
            "attention_factor": "attention_factor", "truncate": "truncate"}  # fmt: skip
    absent = {"beta_fast": 32, "beta_slow": 1, "attention_factor": 0, "truncate": True}
    for k, name in ours.items():
        if k in facts["rope"]:
            there = rope.get(name)
            assert facts["rope"][k] == (absent[k] if there is None and k in absent else there), k
    ids = c.eos_token_id if isinstance(c.eos_token_id, list) else [] if c.eos_token_id is None else [c.eos_token_id]
    assert facts["eos"] == sorted(i for i in ids if i < c.vocab_size)  # a default may lie past a smaller vocabulary
    assert facts["bos"] == (-1 if c.bos_token_id is None else c.bos_token_id)


def check(config, seen, tmp_path):
    """Is what atlasc makes of it what the class does? Gives the codes of a refusal."""
    facts, lines = seen(config)
    whole, c = theirs(config, tmp_path)
    codes = {m[1] for line in lines if (m := re.search(r": error\[(A\d+)\]: ", line))}
    if facts is None:
        assert codes and codes <= {"A0202", "A0203", "A0205", "A0206", "A0209", "A0210"}, lines
        return codes
    if c is None:
        return {"theirs"}
    compare(text_of(config)["model_type"], facts, whole, c)
    return set()


TYPES = [*FAMILIES, *NESTED]
OF_NO_RESULT = {"initializer_range", "use_cache", "attention_dropout", "torch_dtype", "pad_token_id", "output_router_logits",
                "router_aux_loss_coef"}  # fmt: skip


@pytest.mark.parametrize("model_type", TYPES)
def test_full(seen, tmp_path, model_type):
    assert check(full(model_type), seen, tmp_path) == set()


@pytest.mark.parametrize("model_type", TYPES)
def test_each_key_absent(seen, tmp_path, model_type):
    """Sizes are asked for by name; everything else is what the class takes."""
    sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings",
             "intermediate_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
             "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
             "linear_value_head_dim", "linear_conv_kernel_dim", "model_type"}  # fmt: skip
    if "moe" in model_type or "next" in model_type:
        sizes -= {"intermediate_size"}
    for key in text_of(full(model_type)):
        config = full(model_type)
        text = text_of(config)
        del text[key]
        if key == "model_type" and "text_config" not in config:
            continue  # transformers has no class then
        if key == "model_type" or key == "architectures":
            assert seen(config)[0] is None, key
            continue
        codes = check(config, seen, tmp_path)
        if (model_type, key) == ("qwen3", "use_sliding_window"):  # transformers has no number for its mask then
            assert codes == {"A0205"}
            continue
        assert codes == ({"A0202"} if key in sizes else set()), key
        if key in sizes:
            assert any(f"error[A0202]: {key} is missing" in line for line in seen(config)[1])


@pytest.mark.parametrize("model_type", TYPES)
def test_each_key_null(seen, tmp_path, model_type):
    for key in set(text_of(full(model_type))) - {"model_type", "architectures"}:
        config = full(model_type)
        text_of(config)[key] = None
        codes = check(config, seen, tmp_path)
        if codes == {"theirs"}:  # a type of theirs that no result depends on
            assert key in OF_NO_RESULT or (key == "intermediate_size" and "moe_intermediate_size" in text_of(config)), (
                key
            )


@pytest.mark.parametrize("model_type", TYPES)
def test_each_rope_key(seen, tmp_path, model_type):
    place = next((k for k in ("rope_scaling", "rope_parameters") if k in text_of(full(model_type))), None)
    for key in text_of(full(model_type)).get(place, ()):
        for value in ("absent", None):
            config = full(model_type)
            rope = text_of(config)[place] = dict(text_of(config)[place])
            rope[key] = value
            if value == "absent":
                del rope[key]
            check(config, seen, tmp_path)


def test_qwen3_without_head_dim(seen):
    config = full("qwen3")
    del config["head_dim"]
    assert seen(config)[0]["head_dim"] == "128"


FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "families"
# Of rope, which is compared apart, and what makes the checkpoint's files one.
KEPT = {"model_type", "architectures", "vocab_size", "rope_parameters", "rope_scaling", "partial_rotary_factor", "layer_types",
        "original_max_position_embeddings", "sliding_window", "vocab_size_per_layer_input"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(p.parent.name for p in FIXTURES.glob("*/config.json")))
def test_defaults_of_families(atlasc, tmp_path, name):
    """A config.json of what has no default: for every other key holds what the class has, and by which bases rope turns."""
    whole = json.loads((FIXTURES / name / "config.json").read_text())
    text, kept = text_of(whole), set(KEPT)
    everything = {k: 64 if "experts" in k and "tok" not in k else v for k, v in text.items()}
    everything |= {"hidden_size": 2048, "num_attention_heads": 64}  # which all defaults divide
    if "layer_types" in text:
        everything["layer_types"] = text["layer_types"][: text["num_hidden_layers"]]
    for _ in range(20):
        for key in everything:
            text.pop(key, None)
        text |= {k: v for k, v in everything.items() if k in kept}
        (tmp_path / "config.json").write_text(json.dumps(whole))
        done = atlasc(tmp_path, "--stop-after=read-config", "-d", "c")
        missing = set(re.findall(r"error\[A0202\]: (\w+) is missing", done.stderr))
        if not missing:
            break
        aliases = {"n_routed_experts": "moe_num_experts"}
        kept |= {k if k in everything else aliases[k] for k in missing}
    assert done.returncode == 0, done.stderr
    _, c = theirs(whole, tmp_path)
    c.allow_global_per_layer_attribute_access = True  # head_dim of Gemma-4: that of layers with a window
    said = re.findall(r"^key +(\S+) = (.*?)  \((.*)\)$", done.stdout, re.M)
    assert len(said) >= 3, done.stdout
    for key, value, source in said:
        if hasattr(c, key) and (source == "default" or getattr(c, key) is not None):  # else its modeling code divides
            assert json.loads(value) == getattr(c, key), key
    rope = c.rope_parameters
    tables = [rope] if "rope_theta" in rope else [rope[k] for k in ("full_attention", "sliding_attention") if k in rope]
    ours = [float(x) for x in re.findall(r"^rope .*?  theta (\S+)", done.stdout, re.M)]
    assert ours[: len(tables)] == [t["rope_theta"] for t in tables]


SOURCES = {  # what the modeling code says of windows; it cannot be imported without torch, so it is read
    "mistral": ['sliding_window=getattr(self.config, "sliding_window", None),',
                "create_causal_mask if self.config.sliding_window is None else create_sliding_window_causal_mask"],
    "qwen3_moe": ['self.sliding_window = getattr(config, "sliding_window", None)',
                  "create_causal_mask if self.config.sliding_window is None else create_sliding_window_causal_mask"],
    "qwen2": ['self.sliding_window = config.sliding_window if self.layer_type == "sliding_attention" else None'],
    "qwen3": ['self.sliding_window = config.sliding_window if self.layer_type == "sliding_attention" else None'],
    "llama": [], "olmo2": [], "qwen3_next": [], "qwen3_5": [], "qwen3_5_moe": [],
}  # fmt: skip


@pytest.mark.parametrize("model_type", SOURCES)
def test_windows_are_those_of_the_modeling_code(model_type):
    folder = pathlib.Path(inspect.getfile(transformers)).parent / "models" / model_type
    text = (folder / f"modeling_{model_type}.py").read_text(encoding="utf-8")
    assert all(line in text for line in SOURCES[model_type])
    if not SOURCES[model_type]:
        assert "sliding_window" not in text


NUMBERS, FIRSTS, FLAGS = ("absent", None, 8, 600), ("absent", 0, 3, 8, 28), ("absent", True, False)
LISTS = ("absent", None, ["full_attention"] * 8, ["full_attention", "sliding_attention"] * 4)


def window_cases(model_type):
    keys = {"sliding_window": NUMBERS, "max_window_layers": FIRSTS, "use_sliding_window": FLAGS, "layer_types": LISTS}
    for values in itertools.product(*keys.values()):
        config = {k: v for k, v in full(model_type).items() if k not in keys}
        yield config | {k: v for k, v in zip(keys, values, strict=True) if v != "absent"}


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe"])
def test_windows(seen, tmp_path, model_type):
    """A sample of what the four keys can say together; `long` has all of it."""
    for config in random.Random(7).sample(list(window_cases(model_type)), 24):
        check(config, seen, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe"])
def test_windows_all(seen, tmp_path, model_type):
    accepted = 0
    for config in window_cases(model_type):
        accepted += check(config, seen, tmp_path) == set()
    assert accepted >= 20


@pytest.mark.long
@pytest.mark.parametrize("model_type", TYPES)
def test_each_pair_absent(seen, tmp_path, model_type):
    for a, b in itertools.combinations(set(text_of(full(model_type))) - {"model_type", "architectures"}, 2):
        config = full(model_type)
        text = text_of(config)
        del text[a], text[b]
        check(config, seen, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("model_type", TYPES)
def test_many_values(seen, tmp_path, model_type):
    """Values of the right and of the wrong type in each key: what is accepted is what the class has."""
    values = [0, 1, 2, 4, -1, 16, 64, 0.5, 1e-6, True, False, "silu", "x", [], [1], {}, None]
    for key in set(text_of(full(model_type))) - {"model_type", "architectures", "rope_scaling", "rope_parameters"}:
        for value in values:
            config = full(model_type)
            text_of(config)[key] = value
            check(config, seen, tmp_path)


# Keys of other families ------------------------------------------------------------------------------------

# Decoders of transformers: every key of these classes that no family of ours has must be known.
OTHERS = """afmoe apertus arcee aria_text axk1 axk2 bamba bitnet cohere cohere2 cohere2_moe cwm deepseek_v2
deepseek_v3 deepseek_v32 deepseek_v4 diffllama doge dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_h1
falcon_mamba flex_olmo gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4 glm4_moe
glm4_moe_lite glm5_next_text glm_moe_dsa gpt_neox gpt_oss granite granite_swa granitemoe granitemoe_swa
granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 inkling_text jais2 jamba
jetmoe kimi_linear laguna lfm2 lfm2_moe llama4_text longcat_flash mamba2 mellum mimo_v2_flash minicpm3 minimax
minimax_m2 minimax_m3_vl_text ministral ministral3 mistral4 mixtral nanochat nemotron nemotron_h olmo olmo2 olmo3
olmo_hybrid olmoe persimmon phi phi3 phimoe qwen2_moe qwen3_vl_moe_text qwen3_vl_text qwen4_exp qwen4_exp_text
recurrent_gemma seed_oss smollm3 solar_open stablelm starcoder2 step3p5 vaultgemma youtu zamba2 zaya""".split()
NO_RESULT = """attention_dropout aux_loss_coef bos_token_id eod_token_id eos_token_id embd_pdrop embedding_dropout
hidden_dropout initializer_range input_jitter_noise intermediate_size max_window_layers moe_shared_expert_overlap
num_logits_to_keep output_router_logits pad_token_id pretraining_tp rescale_prenorm_residual resid_pdrop
residual_dropout rope_parameters router_aux_loss_coef router_jitter_noise sep_token_id time_step_floor time_step_max
time_step_min use_associative_scan use_cache use_mamba_kernels use_mambapy use_mem_eff_path z_loss_coefficient
image_token_id video_token_id vision_config vision_start_token_id vision_end_token_id text_config
original_max_position_embeddings partial_rotary_factor rope_theta num_local_experts embedding_initializer_range
linear_a_log_max linear_a_log_min linear_dt_init_floor linear_dt_max linear_dt_min seed w_init_variance_scale classifier_dropout
rope_scaling time_step_init_scheme time_step_scale""".split()


def foreign_keys():
    import dataclasses  # noqa: PLC0415

    base = {f.name for f in dataclasses.fields(transformers.PreTrainedConfig)} | {"per_layer_config"}
    names = {f.name for t in OTHERS for f in dataclasses.fields(CONFIG_MAPPING[t])} - base
    own = set(full("qwen3_moe")) | {f.name for f in dataclasses.fields(CONFIG_MAPPING["qwen3_moe"])}
    return sorted(names - own - set(NO_RESULT) - {"use_qk_norm"})  # which qwen3_moe always does


def test_keys_of_other_decoders_are_refused(seen):
    """Whatever changes what another family computes is an error here, unless its value changes nothing."""
    names = foreign_keys()
    assert len(names) > 180
    missed = []
    for name in [*names, "scoring_func", "routed_scaling_factor", "n_group", "topk_group", "swiglu_limit", "mlp_layer_types",
                 "per_layer_config", "attention_out_bias"]:  # fmt: skip
        odd = {"is_moe": True}.get(name, 3)
        _, lines = seen(full("qwen3_moe") | {name: odd})
        if not any(
            re.search(rf"error\[A0206\]: {name} = \S+: this feature is not implemented", line) for line in lines
        ):
            missed.append(name)
    assert missed == []
