"""`AutoTokenizer` of transformers, without torch and without a network: what a folder as a whole means."""

import logging
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
logging.disable(logging.WARNING)


def load(folder):
    """The tokenizer of a folder; one without config.json is of no particular model."""
    from transformers import AutoTokenizer, PreTrainedConfig

    config = None if (folder / "config.json").exists() else PreTrainedConfig()
    return AutoTokenizer.from_pretrained(str(folder), config=config, local_files_only=True)


def encode(tokenizer, texts, add_special=False, parse_special=True):
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = not parse_special
    return [e.ids for e in backend.encode_batch_fast(texts, add_special_tokens=add_special)]


def decode(tokenizer, lists, skip_special=False):
    return [tokenizer.decode(ids, skip_special_tokens=skip_special).encode() for ids in lists]
