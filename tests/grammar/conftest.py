"""Vocabularies of the fixtures, compiled once a session, each with a probe and with llguidance's tokenizer."""

import json
import pathlib

import subprocess

import llguidance
import pytest
import tokenizers
from probe import Probe
from transformers.convert_slow_tokenizer import bytes_to_unicode

TOKENIZERS = pathlib.Path(__file__).parent.parent / "fixtures" / "tokenizers"


class Vocabulary:
    def __init__(self, build_dir, folder, image):
        text = (folder / "tokenizer.json").read_text()
        tokenizer = tokenizers.Tokenizer.from_str(text)
        self.n_ids = tokenizer.get_vocab_size() + 7  # columns of the scores that have no token
        added = json.loads(text)["added_tokens"]
        self.end = [t["id"] for t in added if t["special"]][-1]
        self.left_out = [t["id"] for t in added if t["id"] != self.end]
        self.silent = set(self.left_out)
        self.tokenizer = tokenizer
        units = bytes_to_unicode()
        self.of_bytes = {char: byte for byte, char in units.items()}
        self.probe = Probe(build_dir / "tests" / "grammar_probe", image, self.n_ids, self.end)
        self.peer = llguidance.LLTokenizer(text, n_vocab=self.n_ids, eos_token=self.end)

    def bytes(self, token):
        """What a token of a text is."""
        return bytes(self.of_bytes[c] for c in self.tokenizer.id_to_token(int(token)))

    def of_one_byte(self, byte):
        return self.tokenizer.token_to_id(next(c for c, b in self.of_bytes.items() if b == byte))

    def text(self, token):
        return self.tokenizer.id_to_token(int(token)) or ""


@pytest.fixture(scope="session", params=["llama3", "deepseek"])
def vocabulary(request, build_dir, tmp_path_factory):
    folder = TOKENIZERS / request.param
    image = tmp_path_factory.mktemp("tok") / "image"
    n = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    subprocess.run([build_dir / "tests" / "tokdump", folder, str(n), image], check=True, stdout=subprocess.DEVNULL)
    v = Vocabulary(build_dir, folder, image)
    yield v
    v.probe.close()
