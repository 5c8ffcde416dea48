"""The KV cache: which format each layer gets, where its scales come from, and what is refused.

kvdump prints the caches of a checkpoint's graph, with the scales that go into the plan.
"""

import re
import struct
import subprocess
import sys
import pathlib

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mkckpt"))

import mkckpt  # noqa: E402

ATTN = "model.layers.{}.self_attn"
ROTATED = '[kv]\ndtype = "fp8"\n'
PLAIN = ROTATED + "rotate = false\n"
PAIRS = [
    ("k_proj.k_scale", "v_proj.v_scale"),
    ("k_scale", "v_scale"),
    ("attn.k_scale", "attn.v_scale"),
    ("k_proj.output_scale", "v_proj.output_scale"),
    ("qkv_proj.k_scale", "qkv_proj.v_scale"),
]


@pytest.fixture
def caches(build_dir, tmp_path):
    """caches(toml, names -> shape, values) -> ({layer: (dtype, run, keys, values)}, stderr, exit code)."""

    def run(toml, extra=None, values=(), **knobs):
        knob = {**mkckpt.DEFAULTS, "heads": 4, "kv_heads": 2, **knobs, "extra": extra or {}, "values": list(values)}
        folder = tmp_path / "m"
        mkckpt.build(knob).write(folder)
        (folder / "MODEL.toml").write_text(toml)
        done = subprocess.run([build_dir / "tests" / "kvdump", folder], capture_output=True, text=True, timeout=60)
        found = {}
        for line in done.stdout.splitlines():
            head, _, scales = line.partition(":")
            layer, dtype, *rest = head.split()
            length = [n for n in rest if n.isdigit()]
            dtype += " rotated" if "rotated" in rest else ""
            sides = [[float(x) for x in side.split()] for side in scales.split("|")] if scales.strip() else []
            found[int(layer)] = (dtype, int(length[0]) if length else 0, *sides)
        return found, done.stderr, done.returncode

    return run


def formats(found):
    return [found[layer][0] for layer in sorted(found)]


@pytest.mark.parametrize(
    ("toml", "want"),
    [
        ("", "bf16 bf16 bf16 bf16"),
        ('[kv]\ndtype = "fp8"\n', "e4m3 e4m3 e4m3 e4m3"),
        ('[kv]\ndtype = "nvfp4"\nbf16_first = 1\nbf16_last = 2\n', "bf16 e2m1 bf16 bf16"),
        ('[kv]\ndtype = "nvfp4"\nbf16_first = 4\n', "bf16 bf16 bf16 bf16"),
        (
            '[kv]\ndtype = "fp8"\nbf16_first = 1\n[[kv.layers]]\nlayers = "0-1"\ndtype = "nvfp4"\n',
            "e2m1 e2m1 e4m3 e4m3",
        ),
        (
            '[[kv.layers]]\nlayers = [1, 3]\ndtype = "fp8"\n[[kv.layers]]\nlayers = "2"\ndtype = "nvfp4"\n',
            "bf16 e4m3 e2m1 e4m3",
        ),
    ],
)
def test_every_layer_has_a_format(caches, toml, want):
    found, err, code = caches(toml, layers=4)
    assert code == 0 and [f.removesuffix(" rotated") for f in formats(found)] == want.split(), err
    assert {run for dtype, run, *_ in found.values() if dtype == "e2m1"} <= {16}


@pytest.mark.parametrize(
    ("toml", "want"),
    [
        ('[kv]\ndtype = "fp8"\n', "e4m3 rotated, e4m3 rotated, e4m3 rotated, e4m3 rotated"),
        ('[kv]\ndtype = "fp8"\nrotate = true\n', "e4m3 rotated, e4m3 rotated, e4m3 rotated, e4m3 rotated"),
        ("[kv]\nrotate = true\n", "bf16, bf16, bf16, bf16"),
        ('[kv]\ndtype = "fp8"\nrotate = false\n', "e4m3, e4m3, e4m3, e4m3"),
        ('[kv]\ndtype = "nvfp4"\nrotate = true\nbf16_first = 1\n', "bf16, e2m1 rotated, e2m1 rotated, e2m1 rotated"),
        (
            '[kv]\ndtype = "fp8"\nrotate = true\n[[kv.layers]]\nlayers = [0]\ndtype = "nvfp4"\n[[kv.layers]]\nlayers = [2]\n'
            'dtype = "fp8"\nrotate = false\n',
            "e2m1 rotated, e4m3 rotated, e4m3, e4m3 rotated",
        ),
        (
            '[kv]\nrotate = false\n[[kv.layers]]\nlayers = "1-2"\ndtype = "fp8"\nrotate = true\n',
            "bf16, e4m3 rotated, e4m3 rotated, bf16",
        ),
    ],
)
def test_which_layers_are_rotated(caches, toml, want):
    found, err, code = caches(toml, layers=4)
    assert code == 0 and formats(found) == want.split(", "), err


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[kv]\ndtype = "fp8"\nrotate = 1\n', "error[A0303]: kv.rotate = 1: expected true or false"),
        ('[kv]\ndtype = "fp8"\nrotate = "true"\n', 'error[A0303]: kv.rotate = "true": expected true or false'),
        (
            '[[kv.layers]]\nlayers = "1"\ndtype = "fp8"\nrotate = 0\n',
            "error[A0303]: kv.layers.rotate = 0: expected true or",
        ),
        (
            '[[kv.layers]]\nlayers = "1"\ndtype = "fp8"\nrotat = true\n',
            "error[A0302]: unknown key kv.layers.rotat: did you mean rotate?",
        ),
        (
            '[[kv.layers]]\nlayers = "1"\ndtype = "bf16"\nrotate = true\n',
            'error[A0304]: kv.layers.rotate = true: dtype = "bf16", only keys that become codes are rotated',
        ),
        ('[kv]\ndtype = "fp4"\n', 'error[A0303]: kv.dtype = "fp4": expected "bf16", "fp8" or "nvfp4"'),
        ("[kv]\ndtype = 8\n", "error[A0303]: kv.dtype = 8: expected a string"),
        ("[kv]\nbf16_first = 3\n", "error[A0304]: kv.bf16_first = 3: the model has 2 layers"),
        ("[kv]\nbf16_last = -1\n", "error[A0303]: kv.bf16_last = -1: expected an integer from 0 to 1024"),
        ('[[kv.layers]]\nlayers = "1-2"\ndtype = "fp8"\n', 'error[A0305]: layers = "1-2": the model has layers 0 to 1'),
        ('[[kv.layers]]\nlayers = "1"\n', "error[A0303]: kv.layers: dtype is missing"),
        ('[[kv.layers]]\ndtype = "fp8"\n', "error[A0303]: kv.layers: layers is missing"),
        (
            '[[kv.layers]]\nlayers = "1"\ndtyp = "fp8"\n',
            "error[A0302]: unknown key kv.layers.dtyp: did you mean dtype?",
        ),
        (
            '[[kv.layers]]\nlayers = "1"\ndtype = "int8"\n',
            'error[A0303]: kv.layers.dtype = "int8": expected "bf16", "fp8" or "nvfp4"',
        ),
        (
            '[[kv.layers]]\nlayers = "0-1"\ndtype = "fp8"\n[[kv.layers]]\nlayers = [1]\ndtype = "bf16"\n',
            "error[A0303]: kv.layers: layer 1 occurs twice",
        ),
        ('[kv]\ndtype = "fp8"\nscales = "absent.safetensors"\n', "error[A0102]: kv.scales: there is no file "),
    ],
)
def test_wrong_options_are_refused(caches, toml, message):
    found, err, code = caches(toml)
    assert code != 0 and message in err, err


def test_runs_must_fill_a_head(caches):
    _, err, code = caches('[kv]\ndtype = "nvfp4"\n', head_dim=72)
    assert code != 0 and re.search(
        r'A0304\]: kv.dtype = "nvfp4": head_dim = 72 \(.*config.json:\d+\) is not a multiple of 16 elements,', err
    ), err


@pytest.mark.parametrize("heads", [[], [1], [2], [2, 1, 1]])
@pytest.mark.parametrize(("key", "value"), PAIRS)
def test_scales_under_every_name(caches, key, value, heads):
    """One for all heads or one each, in any of the shapes that writers give them."""
    names = {f"{ATTN.format(layer)}.{side}": heads for layer in range(2) for side in (key, value)}
    each = 2 in heads
    values = [
        [f"{ATTN.format(0)}.{key}", "all", 0.25],
        [f"{ATTN.format(0)}.{value}", "all", 0.125],
        [f"{ATTN.format(1)}.{key}", "all", 2],
        [f"{ATTN.format(1)}.{value}", "all", 3],
    ]
    if each:
        values += [[f"{ATTN.format(1)}.{value}", 1, 5]]
    found, err, code = caches(PLAIN, names, values)
    assert code == 0 and "A0610" not in err and "A0607" not in err, err
    assert found == {0: ("e4m3", 0, [0.25, 0.25], [0.125, 0.125]), 1: ("e4m3", 0, [2, 2], [3, 5 if each else 3])}


def test_one_scale_for_both(caches):
    names = {f"{ATTN.format(layer)}.kv_scale": [] for layer in range(2)}
    found, err, code = caches('[kv]\ndtype = "nvfp4"\nrotate = false\n', names, [["*.kv_scale", "all", 0.5]])
    assert code == 0 and "A06" not in err, err
    assert found == {layer: ("e2m1", 16, [0.5, 0.5], [0.5, 0.5]) for layer in range(2)}


def test_one_side_serves_the_other_and_is_told(caches):
    names = {f"{ATTN.format(0)}.k_scale": [2]}
    found, err, code = caches(PLAIN + "bf16_last = 1\n", names, [["*.k_scale", 0, 0.5], ["*.k_scale", 1, 4]])
    assert code == 0 and found[0] == ("e4m3", 0, [0.5, 4], [0.5, 4]), err
    assert f"note[A0610]: {ATTN.format(0)}.k_scale: used for keys and values: the other scale is missing" in err


def test_without_scales_it_is_one_and_told(caches):
    found, err, code = caches(PLAIN)
    assert code == 0 and found[1] == ("e4m3", 0, [1, 1], [1, 1]), err
    assert (
        f"note[A0610]: {ATTN.format(0)} and 1 more: there are no scales of keys and values, 1 is used; "
        "`atlasc calibrate` measures them"
    ) in err


def test_scales_of_layers_in_bf16_are_told(caches):
    names = {f"{ATTN.format(layer)}.{side}_scale": [] for layer in range(2) for side in "kvq"}
    found, err, code = caches(PLAIN + "bf16_last = 1\n", names, [["*_scale", "all", 1]])
    assert code == 0 and formats(found) == ["e4m3", "bf16"], err
    assert "note[A0607]: model.layers.0.self_attn.q_scale and 3 more are not used: keys and values of these" in err
    found, err, code = caches("", names, [["*_scale", "all", 1]])
    assert code == 0 and "and 5 more are not used: keys and values are kept in bf16" in err, err


@pytest.mark.parametrize(
    ("shape", "values", "code", "message"),
    [
        ([3], [], "A0602", "has shape [3]: expected one element, or 2, one for each key and value head"),
        ([2, 2], [], "A0602", "has shape [2, 2]: expected one element, or 2, one for each key and value head"),
        ([], [["*.k_scale", "all", 0]], "A0606", "element 0 of 1 is 0: expected a positive number"),
        ([2], [["*.k_scale", 1, -1]], "A0606", "element 1 of 2 is -1: expected a positive number"),
        ([2], [["*.k_scale", 1, "inf"]], "A0606", "element 1 of 2 is inf: expected a positive number"),
        ([], [["*.k_scale", "all", "nan"]], "A0606", "element 0 of 1 is nan: expected a positive number"),
    ],
)
def test_wrong_scales_are_refused(caches, shape, values, code, message):
    first = [["*.?_scale", "all", 1]]
    names = {f"{ATTN.format(1)}.k_scale": shape, f"{ATTN.format(1)}.v_scale": []}
    _, err, done = caches(PLAIN, names, first + values)
    assert done != 0, err
    text = err.replace("-nan", "nan")
    assert f"error[{code}]: tensor {ATTN.format(1)}.k_scale" in text and message in text, err


def test_two_scales_that_differ_are_refused(caches):
    names = {f"{ATTN.format(0)}.{n}": [] for n in ("k_scale", "k_proj.k_scale", "v_scale")}
    same = [["*.?_scale", "all", 1]]
    found, err, code = caches(PLAIN + "bf16_last = 1\n", names, same)
    assert code == 0, err
    _, err, code = caches(PLAIN + "bf16_last = 1\n", names, same + [["*k_proj.k_scale", "all", 2]])
    assert (
        code != 0
        and (
            f"error[A0604]: {ATTN.format(0)}.k_proj.k_scale and {ATTN.format(0)}.k_scale differ: both would "
            "be the scale of the layer's keys"
        )
        in err
    ), err


def test_scales_of_rotated_keys(caches):
    """They go before those of keys as they were; without them these serve, which is told."""
    names = {f"{ATTN.format(layer)}.{side}_scale": [] for layer in range(2) for side in ("k", "v", "rotated_k")}
    values = [["*.k_scale", "all", 0.25], ["*.v_scale", "all", 0.5], ["*.rotated_k_scale", "all", 0.125]]
    found, err, code = caches(ROTATED, names, values)
    assert code == 0 and "A06" not in err, err
    assert found == {layer: ("e4m3 rotated", 0, [0.125, 0.125], [0.5, 0.5]) for layer in range(2)}
    plain = {name: shape for name, shape in names.items() if "rotated" not in name}
    found, err, code = caches(ROTATED, plain, values[:2])
    assert code == 0 and found[0] == ("e4m3 rotated", 0, [0.25, 0.25], [0.5, 0.5]), err
    assert (
        f"note[A0610]: {ATTN.format(0)}.k_scale and 1 more: measured before keys are rotated, used for rotated ones; "
        "`atlasc calibrate` measures these"
    ) in err


def test_scales_of_rotated_keys_serve_no_others(caches):
    """A file of atlasc calibrate has both; keys that stay as they are do not read those of rotated ones."""
    names = {f"{ATTN.format(layer)}.{side}_scale": [] for layer in range(2) for side in ("k", "v", "rotated_k")}
    values = [["*.k_scale", "all", 0.25], ["*.v_scale", "all", 0.5], ["*.rotated_k_scale", "all", 0.125]]
    found, err, code = caches(PLAIN, names, values)
    assert code == 0 and found[0] == ("e4m3", 0, [0.25, 0.25], [0.5, 0.5]) and "A06" not in err, err
    for layer in range(2):
        del names[f"{ATTN.format(layer)}.k_scale"]
    found, err, code = caches(PLAIN, names, values[1:])
    assert code == 0 and found[0] == ("e4m3", 0, [0.5, 0.5], [0.5, 0.5]), err
    assert f"note[A0610]: {ATTN.format(0)}.v_scale" in err, err
    found, err, code = caches(ROTATED + "bf16_last = 1\n", names, values[1:])
    assert code == 0 and formats(found) == ["e4m3 rotated", "bf16"], err
    assert f"note[A0607]: {ATTN.format(1)}.rotated_k_scale and 1 more are not used" in err, err


@pytest.mark.parametrize("toml", ["", '[kv]\ndtype = "fp8"\n'])
def test_an_unknown_name_is_refused_with_what_was_expected(caches, toml):
    _, err, code = caches(toml, {f"{ATTN.format(0)}.k_cache_scale": []}, [["*_scale", "all", 1]])
    assert code != 0
    assert (
        f"error[A0604]: tensor {ATTN.format(0)}.k_cache_scale [] is not used by llama: list it under [weights] ignore "
        "if that is meant; scales are expected as self_attn.k_proj.k_scale, k_scale, attn.k_scale, "
        "k_proj.output_scale, qkv_proj.k_scale or kv_scale for keys, and in the same form for values"
    ) in err, err


# The file of kv.scales ------------------------------------------------------------------------------------------


def write_scales(path, tensors):
    """name -> float32 array, as safetensors."""
    head, data = "", b""
    for name, a in tensors.items():
        raw = np.asarray(a, "<f4").tobytes()
        head += (
            f'{", " if head else ""}"{name}": {{"dtype": "F32", "shape": {list(np.shape(a))}, '
            f'"data_offsets": [{len(data)}, {len(data) + len(raw)}]}}'
        )
        data += raw
    head = "{" + head + "}"
    path.write_bytes(struct.pack("<Q", len(head)) + head.encode() + data)


def test_the_file_goes_before_the_checkpoint(caches, tmp_path):
    (tmp_path / "m").mkdir()
    write_scales(
        tmp_path / "m" / "s.safetensors",
        {f"{ATTN.format(layer)}.{side}_scale": [layer + 1, layer + 2] for layer in range(2) for side in "kv"},
    )
    found, err, code = caches(
        PLAIN + 'scales = "s.safetensors"\n', {f"{ATTN.format(0)}.kv_scale": []}, [["*_scale", "all", 9]]
    )
    assert code == 0 and found == {layer: ("e4m3", 0, *[[layer + 1, layer + 2]] * 2) for layer in range(2)}, err
    assert f"note[A0607]: {ATTN.format(0)}.kv_scale is not used: kv.scales names a file" in err


def test_the_file_holds_scales_and_nothing_else(caches, tmp_path):
    (tmp_path / "m").mkdir()
    path = tmp_path / "s.safetensors"
    write_scales(path, {f"{ATTN.format(7)}.k_scale": [1], "lm_head.weight": [1], f"{ATTN.format(0)}.key_scale": [1]})
    _, err, code = caches(f'[kv]\ndtype = "fp8"\nscales = "{path}"\n')
    assert code != 0
    assert "error[A0604]: tensor lm_head.weight is not a scale of keys or values" in err, err
    assert (
        f"error[A0604]: tensor {ATTN.format(0)}.key_scale is not a scale of keys or values; scales are expected" in err
    )
    assert f"error[A0604]: tensor {ATTN.format(7)}.k_scale: the model has layers 0 to 1" in err
    path.write_bytes(b"1234")
    _, err, code = caches(f'[kv]\ndtype = "fp8"\nscales = "{path}"\n')
    assert code != 0 and "error[A0401]: 4 bytes" in err, err
