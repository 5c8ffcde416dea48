"""Whole folders against `AutoTokenizer`: which tokens are added, with which ids and flags, by which of the files."""

import time

import auto
import corpus
import folders
import pytest
from tokdump import Refused

transformers = pytest.importorskip("transformers")

ROWS = 100000
# A class for bytes with a vocabulary of characters, or the reverse: the file is taken as it stands.
LEFT = {"characters, qwen3 of None"}


@pytest.fixture(scope="module")
def lines():
    some = corpus.lines()
    return some[:200] + some[::100]


def around(contents):
    """Texts in which added tokens stand alone, twice, beside words, spaces and marks, cut off, in capitals."""
    return [
        text
        for c in contents
        for text in (
            c,
            c + c,
            f" {c} ",
            f"a{c}b",
            f"the {c}\n {c}",
            c[:-1],
            c.upper(),
            f"{c}the {c}12 34",
            f"e\u0323\u0301{c}é",
        )
    ]


def differ(folder, f, tokdump, lines):
    """What differs between the library and ours, as a text, or None; "refused" if both refuse."""
    f.write(folder)
    try:
        reference = auto.load(folder)
    except Exception as e:  # whatever the library raises is its way to refuse
        reference = e
    try:
        tokdump.compile(folder, ROWS)
    except Refused as e:
        return "refused" if isinstance(reference, Exception) else f"refused: {e.args[1]}"
    if isinstance(reference, Exception):
        return f"the library refuses: {reference}"
    texts = lines + around(f.contents())
    for special, parse in ((False, True), (True, True), (False, False)):
        expected = auto.encode(reference, texts, special, parse)
        got = tokdump.encode(folder, ROWS, texts, special, parse)
        for text, a, b in zip(texts, expected, got):
            if a != b:
                return f"{text!r}, special {special}, parsed {parse}: {a[:24]}, ours {b[:24]}"
    lists = expected[-200:] + [list(range(len(reference)))]
    for skip in (False, True):
        for ids, a, b in zip(lists, auto.decode(reference, lists, skip), tokdump.decode(folder, ROWS, lists, skip)):
            if a != b:
                return f"{ids[:24]}, skipped {skip}: {a[:60]}, ours {b[:60]}"
    return None


@pytest.mark.parametrize("name", folders.CASES)
def test_folder(name, tokdump, tmp_path, lines):
    found = differ(tmp_path, folders.CASES[name](), tokdump, lines)
    is_left = "is a class for" in tokdump.notes[-1]
    assert is_left == (name in LEFT)
    assert is_left or found is None


def random_folders(seeds, tokdump, tmp_path, lines):
    """Every one equal, or refused by both."""
    done = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = differ(folder, folders.random_folder(seed), tokdump, lines)
        if found == "refused" or "is a class for" in tokdump.notes[-1]:
            continue
        assert found is None, f"seed {seed}: {found}"
        done += 1
    return done


def test_random_folders(tokdump, tmp_path, lines):
    assert random_folders(range(40), tokdump, tmp_path, lines) > 25


@pytest.mark.long
def test_many_random_folders(tokdump, tmp_path, lines):
    assert random_folders(range(1000, 2000), tokdump, tmp_path, lines) > 700


def test_many_added_tokens_are_quick(tokdump, tmp_path):
    """A vocabulary that somebody has made larger: time goes with their number, not with its square."""
    f = folders.Folder()
    for i in range(36000):
        f.decoder[str(f.n + i)] = folders.token(f"<word number {i}>", normalized=True, special=i % 2 == 0)
    f.write(tmp_path)
    start = time.monotonic()
    assert tokdump.encode(tmp_path, ROWS, ["<word number 35999>a<word number 7>"])[0][::2] == [f.n + 35999, f.n + 7]
    assert time.monotonic() - start < 7  # 14 s when each is compared with all


def test_classes_are_known():
    """Every class of the library is implemented, refused by name, or takes tokenizer.json as it stands."""
    import importlib
    import inspect
    import pathlib
    import re

    source = (pathlib.Path(__file__).parents[2] / "compiler" / "tokenizer" / "tokenizer_class.c").read_text()
    known = set(re.findall(r'"(\w+(?:Tokenizer|TokenizerLegacy|Backend|Tokenizer2))"', source))
    root = pathlib.Path(transformers.__file__).parent
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase
    from transformers.tokenization_utils_tokenizers import TokenizersBackend

    missing = set()
    for path in sorted(root.glob("models/*/tokenization_*.py")):
        module = ".".join(("transformers", *path.relative_to(root).with_suffix("").parts))
        try:
            loaded = importlib.import_module(module)
        except Exception:  # one that needs a package which is not there
            continue
        for name, value in vars(loaded).items():
            if inspect.isclass(value) and issubclass(value, PreTrainedTokenizerBase) and value.__module__ == module:
                as_it_stands = issubclass(value, TokenizersBackend) and "__init__" not in vars(value)
                if not as_it_stands and name.removesuffix("Fast") not in known:
                    missing.add(name)
    assert not missing
