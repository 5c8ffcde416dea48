"""The generator of checkpoints: every recipe builds, gives the bytes it always gave, and is what it claims to be.

The public `safetensors` and `tokenizers` libraries judge the sound recipes and most of the broken containers; where
a reader must be stricter than the library, the recipe is listed here with the reason.
"""

import json
import pathlib

import mkckpt
import numpy as np
import pytest
import tokfile
from container import Container, Tensor, bf16_bits_to_f32, decode, encode, f32_to_bf16_bits

HERE = pathlib.Path(__file__).resolve().parent
RECIPES = mkckpt.recipes()
DIGESTS = dict(line.split() for line in (HERE / "digests.txt").read_text().splitlines())

# What the `safetensors` library lets pass in a weight file and a compiler must not.
LIBRARY_IS_LENIENT = {
    "name-twice": "the later entry silently replaces the earlier one",
    "name-empty": "any string is a name to it",
    "name-control": "any string is a name to it",
    "name-path": "a sound container; the tensor that the model needs is missing",
    "name-long": "no limit on names",
    "shape-thousand": "no limit on dimensions",
    "shape-scalar": "a sound container with a tensor that no model knows",
}


def write(name, folder):
    try:
        mkckpt.make(name, folder)
    except OSError as e:
        pytest.skip(f"the file system refuses this recipe: {e}")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_bytes_never_change(name):
    assert mkckpt.digest(mkckpt.build(RECIPES[name])) == DIGESTS[name]


def test_every_verdict_is_complete():
    for name, knob in RECIPES.items():
        assert knob["expect"] in ("ok", "note", "refuse"), name
        assert (knob["expect"] == "ok") or knob["names"], f"{name}: says nothing about what must be named"
    assert len({DIGESTS[name] for name in RECIPES}) == len(RECIPES), "two recipes make the same checkpoint"


@pytest.mark.parametrize("name", [n for n, k in RECIPES.items() if k["expect"] != "refuse"])
def test_libraries_open_sound_recipes(name, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    tokenizers = pytest.importorskip("tokenizers")
    knob = RECIPES[name]
    write(name, tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
    found = {}
    for file in files:
        with safetensors.safe_open(tmp_path / file, "numpy") as f:
            for key in f.keys():
                view = f.get_slice(key)
                found[key] = (view.get_dtype(), tuple(view.get_shape()))
    wanted = {t.name: (t.dtype, tuple(t.shape)) for t in mkckpt.make_tensors(knob)}
    assert found == wanted
    if ["tokenizer.json", "absent"] not in knob["special"]:
        tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert tokenizer.get_vocab_size() <= knob["vocab"]


BROKEN = [n for n, k in RECIPES.items() if k["expect"] == "refuse" and k["topic"] == "container"]


@pytest.mark.parametrize("name", [n for n in BROKEN if n != "weights-absent"])
def test_library_refuses_broken_containers(name, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    write(name, tmp_path)
    try:
        with safetensors.safe_open(tmp_path / "model.safetensors", "numpy") as f:
            for key in f.keys():
                f.get_slice(key)
        accepted = True
    except (safetensors.SafetensorError, UnicodeDecodeError, OverflowError, OSError):
        accepted = False
    assert accepted == (name in LIBRARY_IS_LENIENT)


def test_a_damage_changes_only_what_it_says(tmp_path):
    sound = mkckpt.build(RECIPES["plain"]).files
    for name in ("range-hole", "name-twice", "truncated-one", "dtype-unknown", "config-duplicate-key"):
        broken = mkckpt.build(RECIPES[name]).files
        assert sum(broken[file] != sound[file] for file in sound) == 1, name


def test_bf16_rounding_is_to_nearest_even():
    bits = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F800000, 0xFF7FFFFF], "<u4")
    want = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0xFF80]
    assert f32_to_bf16_bits(bits.view("<f4")).tolist() == want
    assert f32_to_bf16_bits(np.array([0x7F800001], "<u4").view("<f4")).tolist() == [0x7FC0]
    every = np.arange(1 << 16, dtype="<u2")
    finite = ~np.isnan(bf16_bits_to_f32(every))
    assert np.array_equal(f32_to_bf16_bits(bf16_bits_to_f32(every))[finite], every[finite])


def test_noise_is_centred_and_of_unit_size():
    x = mkckpt.noise(1, "some.weight", 1 << 16).astype(np.float64)
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
    assert abs(np.corrcoef(x, mkckpt.noise(1, "other.weight", 1 << 16))[0, 1]) < 0.02
    assert np.array_equal(x[:100], mkckpt.noise(1, "some.weight", 100))


def test_container_refuses_data_of_the_wrong_size():
    with pytest.raises(ValueError, match="7 bytes"):
        Container.of([Tensor("w", "F32", (2,), bytes(7))])
    x = np.array([[1.5, -2.0]], "<f4")
    for dtype in ("BF16", "F16", "F32"):
        assert np.array_equal(decode(encode(x, dtype), dtype, (1, 2)), x)


@pytest.mark.parametrize("kind", tokfile.MAKERS)
def test_tokenizers_round_trip(kind):
    tokenizers = pytest.importorskip("tokenizers")
    made, _, ids = tokfile.make(kind, 40)
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(made))
    assert tokenizer.get_vocab_size() == tokfile.token_count(made)
    text = "In the beginning God created 1611 heavens,\n  and the caf\u00e9 \u65e5\u672c \U0001f600."
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert len(encoded.ids) < len(text.encode()), "the merges are used"
    assert (ids["bos"] == encoded.ids[0]) == (kind in ("llama3", "spm"))


def test_fixture_folders_are_their_recipes():
    for name, knob in RECIPES.items():
        if knob["topic"] == "fixture":
            for file, content in mkckpt.build(knob).files.items():
                assert (HERE.parent / "fixtures" / name / file).read_bytes() == content, f"{name}/{file}"
