"""plan.bin by its specification (artifacts/plan.h, tree.h, sign.h), written apart from the C sources: sections, the hash
tree, signatures, and a file put together again after a change."""

from __future__ import annotations

import hashlib

import msgpack

ALIGN, LEAF = 4096, 1 << 20


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def leaves(data):
    return [sha(b"\0", data[i : i + LEAF]) for i in range(0, len(data), LEAF)]


def top(hashes):
    if not hashes:
        return sha(b"\0")
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << (len(hashes) - 1).bit_length() - 1
    return sha(b"\1", top(hashes[:k]), top(hashes[k:]))


def section_hash(name, length, top_hash):
    return sha(b"\2", name.encode(), b"\0", length.to_bytes(8, "little"), top_hash)


def weights_hash(graph, length):
    """Of section weights: by its weights' hashes, which stand in the graph."""
    held = [
        w
        for w in graph["weights"]
        if w["made"] == "no" and (w["file"] is None or length == graph["weight_arena_bytes"])
    ]
    return section_hash("weights", length, top([w["hash"] for w in sorted(held, key=lambda w: w["offset"])]))


def root_hash(head, manifest):
    return sha(b"\3", head[:16], manifest)


def manifest_of(data):
    return data[48 : 48 + int.from_bytes(data[12:16], "little")]


def entries(data):
    return msgpack.unpackb(manifest_of(data))["sections"]


def take_apart(data):
    """{name: bytes} in the file's order."""
    return {s["name"]: data[s["offset"] : s["offset"] + s["bytes"]] for s in entries(data)}


def signatures(data):
    """[(public key, signature)] at the file's end."""
    assert data[-8:] == b"ATLASSIG" and data[-12:-8] == bytes(4)
    n = int.from_bytes(data[-16:-12], "little")
    block = data[-16 - 96 * n : -16]
    return [(block[i : i + 32], block[i + 32 : i + 96]) for i in range(0, len(block), 96)]


def signed_message(root):
    return b"atlas.signature.1\0plan\0" + hashlib.sha256(root).digest()


def check(data, files=None):
    """Every hash of the file again, and of weights in the checkpoint's files where {name: bytes} are given."""
    sections, table = take_apart(data), {s["name"]: s for s in entries(data)}
    graph = msgpack.unpackb(sections["graph"])
    assert data[:8] == b"ATLASPLN" and data[16:48] == root_hash(data, manifest_of(data))
    for name, body in sections.items():
        expected = (
            weights_hash(graph, len(body)) if name == "weights" else section_hash(name, len(body), top(leaves(body)))
        )
        assert table[name]["hash"] == expected, name
    stored = [sections["leaves"][i : i + 32] for i in range(0, len(sections["leaves"]), 32)]
    for w in graph["weights"]:
        if w["made"] != "no":  # its bytes follow from the seed
            assert w["hash"] == bytes(32) and w["file"] is None, w["name"]
            continue
        n = -(-w["bytes"] // LEAF)
        mine, stored = stored[:n], stored[n:]
        assert w["hash"] == top(mine), w["name"]
        if w["file"] is None or len(sections["weights"]) == graph["weight_arena_bytes"]:
            assert leaves(sections["weights"][w["offset"] : w["offset"] + w["bytes"]]) == mine, w["name"]
        elif files:
            assert leaves(files[w["file"]][w["file_offset"] : w["file_offset"] + w["bytes"]]) == mine, w["name"]
    assert not stored
    end = max(s["offset"] + s["bytes"] for s in table.values())
    assert not any(data[end : len(data) - 16 - 96 * len(signatures(data))])


def put_together(magic, sections):
    """The file of these sections, unsigned, with all hashes right; those of weights are what the graph says."""
    graph = msgpack.unpackb(sections["graph"])
    table = [
        {
            "name": n,
            "offset": 0,
            "bytes": len(b),
            "hash": weights_hash(graph, len(b)) if n == "weights" else section_hash(n, len(b), top(leaves(b))),
        }
        for n, b in sections.items()
    ]
    at = 0
    for _ in range(3):  # offsets change the manifest's length, which changes offsets
        at = 48 + len(msgpack.packb({"sections": table}))
        for s in table:
            s["offset"] = at = -(-at // ALIGN) * ALIGN
            at += s["bytes"]
    manifest = msgpack.packb({"sections": table})
    head = magic + len(manifest).to_bytes(4, "little")
    out = bytearray(head + root_hash(head, manifest) + manifest)
    for s, b in zip(table, sections.values()):
        out += bytes(s["offset"] - len(out)) + b
    return bytes(out) + bytes(-len(out) % ALIGN) + bytes(8) + b"ATLASSIG"
