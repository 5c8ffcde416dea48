#!/usr/bin/env python3
"""Checkpoints of other sizes and patterns than those beside this file, against transformers in float32.

    tests/families/other_sizes.py --build-dir build [NAME...]

Needs torch and transformers. Each row of SIZES changes the config.json of a folder beside this file; of the random
weights that result, the logits of prompts that end around the window, and 30 greedy tokens, are compared. Exit 1: a
logit is off by more than 1e-4, a token differs that is no near tie, or atlasc refuses.
"""

import argparse
import copy
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from flip_keys import Judge, reference, run, text_of
from make_goldens import saved
from safetensors.torch import save_file

TOLERANCE, TIE, TOKENS = 1e-4, 1e-3, 30
S, F, C = "sliding_attention", "full_attention", "chunked_attention"
YARN = {"rope_type": "yarn", "rope_theta": 3e4, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 2e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}
HEADS = {"num_attention_heads": 6, "num_key_value_heads": 3}
WIDE = {"hidden_size": 96, "intermediate_size": 72, "num_attention_heads": 3, "num_key_value_heads": 3}


def drop(*keys):
    return {key: "absent" for key in keys}


OLD_ROPE = drop("rope_theta", "rope_scaling", "partial_rotary_factor")

SIZES = {
    "gpt_oss": [
        HEADS | {"sliding_window": 5, "num_hidden_layers": 4, "layer_types": [F, S, F, S]},
        {"attention_bias": False, "tie_word_embeddings": True, "head_dim": 64, "num_experts_per_tok": 1},
        {
            "hidden_size": 96,
            "intermediate_size": 96,
            "num_local_experts": 5,
            "num_experts_per_tok": 5,
            "sliding_window": 1,
        },
        OLD_ROPE | {"rope_parameters": LLAMA3, "swiglu_limit": 0.7, "layer_types": [F, F, S]},
        drop("layer_types") | {"num_hidden_layers": 5, "sliding_window": 7},
    ],
    "gpt_oss-mxfp4": [
        {"hidden_size": 96, "intermediate_size": 64, "num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 64},
        HEADS | {"hidden_size": 160, "intermediate_size": 96, "sliding_window": 11},
    ],
    "gemma4": [
        HEADS | {"num_global_key_value_heads": 2, "sliding_window": 5, "final_logit_softcapping": None},
        {"attention_k_eq_v": False, "tie_word_embeddings": False, "sliding_window": 9},
        {"num_global_key_value_heads": None, "global_head_dim": 32, "attention_k_eq_v": True},
        {
            "head_dim": 64,
            "global_head_dim": 128,
            "hidden_size": 96,
            "layer_types": [F, S, F, S, F],
            "sliding_window": 3,
        },
        {"num_hidden_layers": 7, "layer_types": [S, S, S, S, S, F, F], "num_kv_shared_layers": 0},
    ],
    "gemma4-moe": [
        HEADS | {"num_experts": 5, "top_k_experts": 4, "moe_intermediate_size": 40, "sliding_window": 6},
        {"num_experts": 12, "top_k_experts": 1, "tie_word_embeddings": False, "final_logit_softcapping": 3.0},
    ],
    "gemma4-ple": [
        {"num_kv_shared_layers": 1, "use_double_wide_mlp": False, "hidden_size_per_layer_input": 16},
        {"num_kv_shared_layers": 0, "sliding_window": 5, "num_key_value_heads": 2},
        {"use_double_wide_mlp": False, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    ],
    "gemma3": [
        HEADS | {"hidden_size": 96, "query_pre_attn_scalar": 40, "sliding_window": 6},
        {"tie_word_embeddings": False, "attention_bias": True, "final_logit_softcapping": 4.0, "sliding_window": 3},
        {"num_hidden_layers": 4, "layer_types": [F, S, S, F], "sliding_window": 1},
    ],
    "glm4_moe": [
        HEADS | {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "routed_scaling_factor": 0.7},
        {"attention_bias": False, "use_qk_norm": False, "first_k_dense_replace": 0, "n_shared_experts": 2},
        {"use_qk_norm": True, "first_k_dense_replace": 2, "norm_topk_prob": False, "tie_word_embeddings": True},
        {"partial_rotary_factor": 1.0, "hidden_size": 96, "moe_intermediate_size": 24},
    ],
    "minimax_m2": [
        HEADS | {"num_experts_per_tok": 1, "num_local_experts": 6},
        {"rotary_dim": 8, "partial_rotary_factor": 0.25, "tie_word_embeddings": True, "hidden_size": 96},
        {"num_experts_per_tok": 5, "head_dim": 64, "intermediate_size": 40},
    ],
    "laguna": [
        {"sliding_window": 5, "num_experts_per_tok": 1, "tie_word_embeddings": True},
        {"moe_routed_scaling_factor": 0.4, "sliding_window": 3, "shared_expert_intermediate_size": 56},
        {"hidden_size": 96, "num_key_value_heads": 1},
    ],
    "step3p5": [
        {"sliding_window": 5, "moe_top_k": 3, "moe_router_scaling_factor": 1.5},
        {
            "num_attention_heads": 4,
            "attention_other_setting": {
                "attention_type": S,
                "num_attention_heads": 2,
                "num_attention_groups": 2,
                "head_dim": 32,
            },
            "sliding_window": 3,
        },
        {"moe_layers_enum": "2,3", "share_expert_dim": 40, "swiglu_limits": [0.0, 0.2, 0.3, 0.0, 0.0]},
    ],
    "llama4": [
        {"attention_chunk_size": 5, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1},
        {"use_qk_norm": False, "no_rope_layers": [0, 1, 1, 1], "num_key_value_heads": 4},
        {"no_rope_layers": [1, 1, 1, 1], "num_local_experts": 3, "head_dim": 64},
        {"attention_bias": True, "tie_word_embeddings": True},
        {"moe_layers": [0, 3], "attn_temperature_tuning": False, "attention_chunk_size": 16},
    ],
    "glm4": [
        HEADS | {"attention_bias": False},
        {"partial_rotary_factor": 1.0, "tie_word_embeddings": True},
        {"partial_rotary_factor": 0.25, "hidden_size": 96, "head_dim": 64},
    ],
    "ernie4_5": [
        HEADS | {"use_bias": False, "tie_word_embeddings": False},
        OLD_ROPE | {"rope_parameters": YARN, "head_dim": 64},
        OLD_ROPE | {"rope_parameters": LINEAR, "num_key_value_heads": 1},
    ],
    "arcee": [
        WIDE | {"attention_bias": True, "mlp_bias": True},
        {"tie_word_embeddings": True, "head_dim": 64},
        OLD_ROPE | {"rope_parameters": YARN},
        OLD_ROPE | {"rope_parameters": LLAMA3, "num_key_value_heads": 1},
    ],
    "phi3": [
        WIDE | {"sliding_window": 5},
        {"tie_word_embeddings": True, "sliding_window": None},
        {"original_max_position_embeddings": 8, "num_key_value_heads": 1, "sliding_window": 9},
    ],
    "phi3-long": [
        {"original_max_position_embeddings": 128, "max_position_embeddings": 256},
        {"tie_word_embeddings": False, "original_max_position_embeddings": 8},
        {"num_key_value_heads": 2, "sliding_window": 7},
    ],
    "exaone4": [
        HEADS | {"sliding_window": 5, "layer_types": [F, S]},
        {"sliding_window": None, "layer_types": [F, F], "tie_word_embeddings": True},
        {"sliding_window": 9, "num_hidden_layers": 5, "layer_types": [S, S, F, S, F]},
    ],
    "olmo2": [
        WIDE | {"attention_bias": True},
        {"tie_word_embeddings": True, "num_key_value_heads": 1},
        OLD_ROPE | {"rope_parameters": YARN},
    ],
    "olmo3": [
        {"sliding_window": 5, "attention_bias": True},
        {"tie_word_embeddings": True, "sliding_window": 3, "num_key_value_heads": 1},
    ],
    "seed_oss": [
        HEADS | {"attention_bias": False},
        {"attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        OLD_ROPE | {"rope_parameters": LINEAR},
    ],
    "smollm3": [
        {"num_hidden_layers": 5, "no_rope_layers": [0, 1, 1, 0, 1], "tie_word_embeddings": False},
        WIDE | {"attention_bias": True, "mlp_bias": True},
        OLD_ROPE | {"rope_parameters": YARN},
        drop("no_rope_layers") | {"num_hidden_layers": 9, "no_rope_layer_interval": 3},
        {"use_sliding_window": True, "sliding_window": 5, "layer_types": [S, F, S]},
    ],
    "mixtral": [
        {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 6},
        {"num_key_value_heads": 1, "tie_word_embeddings": True, "num_experts_per_tok": 1},
        {"head_dim": 64},
    ],
    "qwen3_vl": [HEADS | {"attention_bias": True}, {"hidden_size": 96, "head_dim": 64}],
    "qwen3_vl_moe": [
        {"num_experts": 5, "num_experts_per_tok": 4},
        {"moe_intermediate_size": 40, "num_key_value_heads": 1},
    ],
}


def greedy(model, ids):
    """Tokens up to the first near tie."""
    got = []
    with torch.no_grad():
        while len(got) < TOKENS:
            row = model(torch.cat([ids, torch.tensor([got], dtype=torch.long)], 1), use_cache=False).logits[0, -1]
            top = row.topk(2)
            if float(top.values[0] - top.values[1]) < TIE * float(row.abs().max()):
                break
            got.append(int(top.indices[0]))
    return got


class Sized(Judge):
    def __init__(self, build_dir, name, work, changes, seed):
        super().__init__(build_dir, name, work)
        text = text_of(self.raw)
        for key, value in changes.items():
            if value == "absent":
                text.pop(key, None)
            else:
                text[key] = copy.deepcopy(value)
        if "tie_word_embeddings" in changes and "tie_word_embeddings" in self.raw:
            self.raw["tie_word_embeddings"] = changes["tie_word_embeddings"]
        if text.get("eos_token_id") is not None:
            text["eos_token_id"] = 2
        self.of = seed

    def say(self):
        text = text_of(self.raw)
        model, packed = self.model_of(self.raw, self.of)
        window = text.get("attention_chunk_size", text.get("sliding_window")) or 8
        lengths = sorted({n for n in (window - 1, window, window + 1, 2 * window + 3) if n > 0} | {19})
        # of longrope's two lists a plan has that of its context, and transformers that of the text
        original = text.get("original_max_position_embeddings") if "short_factor" in json.dumps(self.raw) else None
        context = 128
        if original and lengths[-1] + TOKENS <= original:
            context = original
        elif original:
            lengths = [n for n in lengths if n > original]
        g = torch.Generator().manual_seed(self.of)
        self.ids = torch.randint(3, text["vocab_size"] - 2, (1, lengths[-1]), generator=g)
        save_file(saved(model, packed), self.work / "model.safetensors", {"format": "pt"})
        worst, n_same = 0.0, 0
        for n in lengths:
            want = reference(model, self.ids[:, :n])
            got, lines, _ = self.atlas(self.raw, n, context)
            if got is None:
                return False, lines[0]
            worst = max(worst, float(np.max(np.abs(got - want)) / max(1, np.max(np.abs(want)))))
        want = greedy(model, self.ids)
        ids = ",".join(map(str, self.ids[0].tolist()))
        told = run(self.build_dir / "atlas", "run", self.work / "p.bin", "--tokens", ids, "-n", TOKENS, "--device", "cpu",
                   "--temperature", "0", "--json", "--threads", "1")  # fmt: skip
        got = json.loads(told.stdout)["results"][0]["tokens"] if told.returncode == 0 else []
        ends = [i + 1 for i, t in enumerate(want) if t == 2]
        want = want[: ends[0]] if ends else want
        n_same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        good = worst < TOLERANCE and n_same == len(want)
        return (
            good,
            f"prompts {lengths} error {worst:.1e}, {n_same} of {len(want)} tokens{'' if told.returncode == 0 else told.stderr[-200:]}",
        )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--build-dir", default="build", type=pathlib.Path)
    p.add_argument("--seeds", default=1, type=int)
    args = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    bad = 0
    for name in args.names or SIZES:
        for number, changes in enumerate(SIZES[name]):
            for seed in range(1, 1 + args.seeds):
                with tempfile.TemporaryDirectory() as work:
                    try:
                        good, told = Sized(args.build_dir.resolve(), name, pathlib.Path(work), changes, seed).say()
                    except Exception as error:  # noqa: BLE001  of transformers
                        good, told = False, f"{type(error).__name__}: {str(error)[:200]}"
                bad += not good
                print(f"{name:14} {number} {told}{'' if good else '   <-- ' + json.dumps(changes)}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
