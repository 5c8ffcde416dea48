"""The safetensors reader against the format's own library: what that refuses we refuse, and what we accept
means the same there. Damage is done to small sound containers, at random."""

import json
import pathlib
import random
import struct
import tempfile

import pytest
from readers import Reader, mutate

safetensors = pytest.importorskip("safetensors", reason="PyPI package safetensors is missing")

TYPES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
         "F8_E5M2": 1, "U16": 2, "U32": 4, "U64": 8}  # fmt: skip
TOKENS = [b'"F32"', b'"BF16"', b"0", b"1", b"-1", b"[", b"]", b",", b'"shape":[2,2]', b'"data_offsets":[0,4]', b"{", b"}",
          b'"a"', b" ", b"\0", b"\xff", b"18446744073709551615", b'"__metadata__":{"a":1},', b"4.0"]  # fmt: skip


def container(rng):
    """A sound file of up to five tensors, some of them empty or without dimensions."""
    header, data = {}, b""
    if rng.random() < 0.3:
        header["__metadata__"] = {"format": "pt"}
    for i in range(rng.randint(0, 5)):
        dtype = rng.choice(list(TYPES))
        shape = [rng.choice([0, 1, 2, 3, 5]) for _ in range(rng.randrange(4))]
        size = TYPES[dtype]
        for n in shape:
            size *= n
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += rng.randbytes(size)
    names = list(header)
    rng.shuffle(names)
    text = json.dumps({name: header[name] for name in names}).encode()
    return text + b" " * rng.choice([0, -len(text) % 8]), data


def damage(rng, header, data):
    kind = rng.randrange(6)
    if kind == 0:
        return struct.pack("<Q", len(header)) + header + data
    if kind == 1:
        data = data[:-1] if rng.random() < 0.5 else data + b"\0"
    elif kind == 2:
        n = rng.choice([0, 1, len(header) - 1, len(header) + 1, 2**64 - 1, 2**63, 100_000_001])
        return struct.pack("<Q", n) + header + data
    else:
        header = mutate(rng, header, TOKENS)
    return struct.pack("<Q", len(header)) + header + data


def oracle(path):
    """name -> (dtype, shape), or None when the library refuses the file."""
    try:
        with safetensors.safe_open(path, framework="numpy") as f:
            return {name: (f.get_slice(name).get_dtype(), f.get_slice(name).get_shape()) for name in f.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, OSError):
        return None


def test_damaged_containers(build_dir):
    rng = random.Random(40)
    accepted = refused = stricter = 0
    with tempfile.TemporaryDirectory() as top:
        folders = []
        for i in range(1500):
            folder = pathlib.Path(top) / str(i)
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(damage(rng, *container(rng)))
            folders.append(folder)
        for folder, got in zip(folders, Reader(build_dir, "weights").folders(folders), strict=True):
            path = folder / "model.safetensors"
            expected = oracle(path)
            if "error" in got:
                assert got["error"][3] in ("A0401", "A0402", "A0403", "A0404", "A0405") and got["error"][4]
                refused += 1
                stricter += expected is not None
                continue
            assert expected is not None, f"the library refuses {path.read_bytes()!r}"
            assert {n: (t[0], t[1]) for n, t in got["tensors"].items()} == expected
            size = path.stat().st_size
            assert (
                sum(t[3] for t in got["tensors"].values()) + 8 + struct.unpack("<Q", path.read_bytes()[:8])[0] == size
            )
            accepted += 1
    assert accepted > 300 and refused > 500
    assert stricter < 60  # repeated names, unknown keys of an entry
