"""Vocabularies of the fixtures, compiled once a session, each with a probe and with llguidance's tokenizer."""

import json
import pathlib

import llguidance
import pytest
import tokenizers
from probe import Probe

TOKENIZERS = pathlib.Path(__file__).parent.parent / "fixtures" / "tokenizers"


class Vocabulary:
    def __init__(self, build_dir, folder, image):
        text = (folder / "tokenizer.json").read_text()
        tokenizer = tokenizers.Tokenizer.from_str(text)
        self.n_ids = tokenizer.get_vocab_size() + 7  # columns of the scores that have no token
        special = [t["id"] for t in json.loads(text)["added_tokens"] if t["special"]]
        self.end = special[-1]
        self.special = set(special)
        self.tokenizer = tokenizer
        self.probe = Probe(build_dir / "tests" / "grammar_probe", image, self.n_ids, self.end)
        self.peer = llguidance.LLTokenizer(text, n_vocab=self.n_ids, eos_token=self.end)


@pytest.fixture(scope="session", params=["llama3", "deepseek"])
def vocabulary(request, build_dir, tmp_path_factory):
    import subprocess

    folder = TOKENIZERS / request.param
    image = tmp_path_factory.mktemp("tok") / "image"
    n = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    subprocess.run([build_dir / "tests" / "tokdump", folder, str(n), image], check=True, stdout=subprocess.DEVNULL)
    v = Vocabulary(build_dir, folder, image)
    yield v
    v.probe.close()
