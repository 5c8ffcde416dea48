"""Raw writer of safetensors containers, sound ones and damaged ones.

The public `safetensors` library refuses to write most broken files, and a reader is only trustworthy when it
has been shown every one of them. So this module composes a container from its parts (length prefix, header
text, data) and lets a caller change each part before it goes to disk. Format: eight bytes little-endian length
N, N bytes of JSON (an object: name -> {dtype, shape, data_offsets}, and "__metadata__"), then the data;
offsets count from the end of the header. See https://github.com/huggingface/safetensors#format.

Also here: float32 -> BF16 / F16 / F32 bytes with round-to-nearest-even done in integers, so that files are the
same bytes whatever numpy made them.
"""

import json
import os
import re
import struct
from dataclasses import dataclass, field

import numpy as np

DTYPE_BYTES = {
    "BF16": 2,
    "F16": 2,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
}


def f32_to_bf16_bits(x):
    """Round float32 to BF16 bit patterns (uint16), nearest even. NaN stays NaN (quiet)."""
    x = np.ascontiguousarray(x, dtype="<f4")
    bits = x.view("<u4")
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(x), quiet, rounded).astype("<u2")


def bf16_bits_to_f32(bits):
    """Widen BF16 bit patterns (uint16) to float32; exact."""
    return (np.asarray(bits, dtype="<u2").astype("<u4") << np.uint32(16)).view("<f4")


def encode(x, dtype):
    """Encode a float32 (or integer) array as the little-endian bytes of a safetensors dtype."""
    if dtype == "BF16":
        return f32_to_bf16_bits(x).tobytes()
    numpy_name = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "|u1"}[dtype]
    return np.ascontiguousarray(x).astype(numpy_name).tobytes()


def decode(raw, dtype, shape):
    """The inverse of encode; floats come back as float32, those of a byte as their codes."""
    if dtype == "BF16":
        return bf16_bits_to_f32(np.frombuffer(raw, "<u2")).reshape(shape)
    numpy_name = {
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
        "I64": "<i8",
        "I32": "<i4",
        "U8": "|u1",
        "F8_E4M3": "|u1",
        "F8_E8M0": "|u1",
    }[dtype]
    x = np.frombuffer(raw, numpy_name).reshape(shape)
    return x.astype("<f4") if x.dtype.kind == "f" else x


@dataclass
class Tensor:
    """One tensor as it will lie in a file. `data` must have exactly prod(shape) * DTYPE_BYTES[dtype] bytes."""

    name: str
    dtype: str
    shape: tuple
    data: bytes


@dataclass
class Container:
    """A safetensors file in parts. The header is a list of pairs, so that a name can stand in it twice;
    a string "@text" in it stands for that JSON text.

    prefix    value of the length prefix; None = the true length of the header
    pad       byte used to fill the header to a multiple of eight (0x20 in sound files)
    raw_head  replaces the whole header text when not None
    """

    header: list = field(default_factory=list)
    data: bytes = b""
    prefix: int | None = None
    pad: int = 0x20
    align: int = 8
    raw_head: bytes | None = None

    @staticmethod
    def of(tensors, metadata=None):
        """A sound container of these tensors, in this order, without holes."""
        box = Container()
        if metadata is not None:
            box.header.append(("__metadata__", metadata))
        at, parts = 0, []
        for t in tensors:
            n = len(t.data)
            want = DTYPE_BYTES[t.dtype] * int(np.prod(t.shape, dtype=np.int64))
            if n != want:
                raise ValueError(f"{t.name}: {n} bytes of data for shape {t.shape} {t.dtype} ({want})")
            box.header.append((t.name, {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [at, at + n]}))
            parts.append(t.data)
            at += n
        box.data = b"".join(parts)
        return box

    def entry(self, name):
        """The header entry of a tensor, to be changed in place."""
        for key, value in self.header:
            if key == name:
                return value
        raise KeyError(name)

    def head(self):
        if self.raw_head is not None:
            return self.raw_head
        pairs = (json.dumps(k, ensure_ascii=False) + ":" + json.dumps(v, separators=(",", ":")) for k, v in self.header)
        text = re.sub(r'"@([^"]*)"', r"\1", "{" + ",".join(pairs) + "}").encode()
        return text + bytes([self.pad]) * (-(8 + len(text)) % self.align)

    def to_bytes(self):
        head = self.head()
        prefix = len(head) if self.prefix is None else self.prefix
        return struct.pack("<Q", prefix) + head + self.data


def write_safetensors(path, tensors, metadata=None):
    """Write a sound container; returns its size in bytes."""
    raw = Container.of(tensors, metadata).to_bytes()
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as f:
        f.write(raw)
    os.replace(temporary, path)
    return len(raw)


def read_safetensors(path):
    """Read a sound container: name -> (dtype, shape, bytes). For tests; trusts its input."""
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, e in header.items():
        a, b = e["data_offsets"]
        out[name] = (e["dtype"], tuple(e["shape"]), raw[8 + n + a : 8 + n + b])
    return out
