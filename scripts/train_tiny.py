#!/usr/bin/env python3
"""Train the small real model of tests/fixtures/llama-trained on the King James Version.

    python scripts/train_tiny.py extract TEXT           the text, from Debian's `bible` command (package bible-kjv)
    python scripts/train_tiny.py train TEXT FOLDER      tokenizer and model; one to two minutes on a GPU

The model is a llama of a million parameters with tied embeddings and a byte-level BPE of 2048 tokens: small enough
to commit, good enough that a wrong rope, a wrong mask or a wrong KV page turns its verses into noise. The Book of
Ruth is never trained on; its first 8 kB are heldout.txt, the text on which perplexity is measured. Every 50th
chapter elsewhere is kept for validation: the weights with the least loss on it are the ones that are saved.

Seeds are fixed and deterministic kernels are asked for, so one kind of GPU and one version of torch give the same
weights again; other machines give an equally good model with other bits. The committed files are the reference.

extract writes one verse a line and an empty line between chapters; the text is in the public domain.
train needs torch, transformers, tokenizers and numpy.
"""

import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "mkckpt"))

HELDOUT_BYTES = 8192
VOCAB = 2048
END = "<|endoftext|>"
SPECIALS = [END, "<|im_start|>", "<|im_end|>"]
WINDOW = 512
SHAPE = {
    "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64, "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "vocab_size": VOCAB, "tie_word_embeddings": True, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


def extract(path):
    """Book names stand in the text file as lines `# NAME`, so that training can leave one out."""
    out = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True, text=True).stdout
    lines, book, chapter = [], None, None
    for line in out.splitlines():
        m = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)", line.strip())
        if not m:
            raise SystemExit(f"unexpected line {line!r}")
        if m[1] != book:
            lines.append(f"# {m[1]}")
        elif m[2] != chapter:
            lines.append("")
        book, chapter = m[1], m[2]
        lines.append(m[4])
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def read_chapters(path):
    """(chapters to train on, chapters of Ruth), each a string that ends in a newline."""
    kept, held, target = [], [], None
    with open(path, encoding="utf-8") as f:
        books = re.split(r"^# (\w+)\n", f.read(), flags=re.M)[1:]
    for name, body in zip(books[::2], books[1::2]):
        target = held if name.lower().startswith("ru") else kept
        target += [chapter.strip("\n") + "\n" for chapter in body.split("\n\n")]
    if not held:
        raise SystemExit("no Book of Ruth in the text")
    return kept, held


def train_tokenizer(chapters, folder):
    """Byte-level BPE in the manner of SmolLM2: special tokens first, digits one by one, GPT-2's pattern."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chapters, trainer)
    tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    return tokenizer


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write_config(folder):
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", **ids, **SHAPE}
    write_json(os.path.join(folder, "config.json"), dict(sorted(config.items())))
    # Greedy text of so small a model runs in circles; these defaults let it speak in verses.
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.95}
    write_json(os.path.join(folder, "generation_config.json"), {**ids, **sampling})
    write_json(
        os.path.join(folder, "tokenizer_config.json"),
        {"add_bos_token": False, "bos_token": END, "eos_token": END, "pad_token": END, "unk_token": END,
         "model_max_length": WINDOW, "tokenizer_class": "PreTrainedTokenizerFast"},
    )  # fmt: skip


def join(tokenizer, chapters):
    """Token ids of all chapters, an end-of-text token after each."""
    return [i for encoding in tokenizer.encode_batch(chapters) for i in [*encoding.ids, 0]]


def drop_out(model, p):
    """Dropout behind the embedding, the attention and the MLP; the published model class has none."""
    import torch

    def hook(module, _, output):
        return torch.nn.functional.dropout(output, p, model.training)

    model.model.embed_tokens.register_forward_hook(hook)
    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(hook)
        layer.mlp.register_forward_hook(hook)


def loss_of(model, x, y):
    """Mean cross-entropy in nats a token."""
    import torch

    logits = model(x, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def train(chapters, tokenizer, steps, batch):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1611)
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ids = join(tokenizer, [c for i, c in enumerate(chapters) if i % 50 != 49])
    data, check = torch.tensor(ids), torch.tensor(join(tokenizer, chapters[49::50]))
    check = check[: (len(check) - 1) // WINDOW * WINDOW + 1]
    config = LlamaConfig(**SHAPE, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = LlamaForCausalLM(config).to(device)
    drop_out(model, 0.1)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters, {len(ids)} tokens, {steps} steps of {batch} x {WINDOW} on {device}", flush=True)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, div_factor=20)
    generator = torch.Generator().manual_seed(1611)
    best, kept = float("inf"), None
    for step in range(steps):
        at = torch.randint(len(ids) - WINDOW - 1, (batch,), generator=generator)
        piece = torch.stack([data[a : a + WINDOW + 1] for a in at]).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = loss_of(model, piece[:, :-1], piece[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99 or step == steps - 1:
            model.eval()
            with torch.no_grad():
                found = loss_of(model, check[:-1].view(-1, WINDOW).to(device), check[1:].view(-1, WINDOW).to(device))
            model.train()
            print(f"step {step}: loss {loss.item():.3f}, validation {found.item():.3f}", flush=True)
            if found.item() < best:
                best, kept = found.item(), {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    return model.cpu().eval()


def save(model, folder):
    import torch

    from container import Tensor, write_safetensors

    tensors = []
    for name, p in sorted(model.state_dict().items()):
        if name == "lm_head.weight":
            continue
        bits = p.detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy()
        tensors.append(Tensor(name, "BF16", tuple(p.shape), bits.tobytes()))
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors, {"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("extract", "train"))
    parser.add_argument("text")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    if args.what == "extract":
        extract(args.text)
        return
    if args.folder is None:
        parser.error("train needs FOLDER")
    os.makedirs(args.folder, exist_ok=True)
    chapters, held = read_chapters(args.text)
    heldout = "\n".join(held).encode()[:HELDOUT_BYTES]
    with open(os.path.join(args.folder, "heldout.txt"), "wb") as f:
        f.write(heldout[: heldout.rindex(b"\n") + 1])
    write_config(args.folder)
    tokenizer = train_tokenizer(chapters, args.folder)
    model = train(chapters, tokenizer, args.steps, args.batch)
    save(model, args.folder)
    import torch

    ids = tokenizer.encode("In the beginning").ids
    with torch.no_grad():
        for _ in range(100):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    print(tokenizer.decode(ids))


if __name__ == "__main__":
    main()
