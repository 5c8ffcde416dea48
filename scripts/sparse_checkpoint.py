"""A checkpoint of Qwen3.6-35B-A3B's layout, FP8 in blocks, at full size: to see how long a compile takes.

    python scripts/sparse_checkpoint.py CONFIG DIR
    time build/atlasc DIR --weights ref -o plan.bin --cache-dir CACHE

CONFIG is a config.json of that family (tests/gpu/shapes). Weights are the holes of a sparse file, experts one by one;
block scales are 1. The layout is mkckpt's.
"""
import json
import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "mkckpt"))
import mkckpt  # noqa: E402

BLOCK = 128
PLAIN = ("embed_tokens", "lm_head", "norm", "mlp.gate.", "shared_expert_gate", "conv1d", "A_log", "dt_bias",
         "in_proj_a", "in_proj_b", "mtp.fc")


def recipe(text):
    """What mkckpt calls the shape."""
    delta = dict(k_heads=text["linear_num_key_heads"], v_heads=text["linear_num_value_heads"],
                 k_dim=text["linear_key_head_dim"], v_dim=text["linear_value_head_dim"],
                 conv=text["linear_conv_kernel_dim"], interval=text["full_attention_interval"],
                 mtp=text.get("mtp_num_hidden_layers", 0))
    moe = dict(experts=text["num_experts"], intermediate=text["moe_intermediate_size"],
               shared=text["shared_expert_intermediate_size"], fused=False)
    return dict(family="qwen3_5_moe", prefix="model.language_model.", hidden=text["hidden_size"],
                layers=text["num_hidden_layers"], vocab=text["vocab_size"], head_dim=text["head_dim"],
                heads=text["num_attention_heads"], kv_heads=text["num_key_value_heads"], delta=delta, moe=moe)


def main():
    source, folder = map(pathlib.Path, sys.argv[1:])
    config = json.loads(source.read_text(encoding="utf-8"))
    os.makedirs(folder, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    entries, scales, end = {}, [], 0

    def add(name, dtype, shape, size):
        nonlocal end
        begin = end
        for n in shape:
            size *= n
        end += size
        entries[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[begin, end])
        return begin, end

    for name, shape, *_ in mkckpt.tensor_plan(recipe(config["text_config"])):
        if len(shape) != 2 or any(part in name for part in PLAIN):
            add(name, "BF16", shape, 2)
            continue
        add(name, "F8_E4M3", shape, 1)
        scales.append(add(f"{name}_scale_inv", "BF16", [-(-n // BLOCK) for n in shape], 2))
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        data = f.tell()
        f.truncate(data + end)
        for begin, behind in scales:
            f.seek(data + begin)
            f.write(b"\x80\x3f" * ((behind - begin) // 2))


if __name__ == "__main__":
    main()
