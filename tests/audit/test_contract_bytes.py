"""READS and WRITES of products of rows: where one tile is all of it, each operand's bytes, once."""

import json
import math

import pytest
from recheck import BITS, evaluate

SIZES = {
    "ROWS": 16,
    "OUTS": 16,
    "K": 256,
    "N": 64,
    "V": 64,
    "M": 64,
    "BLOCK_N": 1,
    "BLOCK_K": 16,
}  # a tile of every family
BITS_HERE = BITS | {"u4": 4, "f32z": 32}


@pytest.fixture(scope="module")
def products(atlasc):
    listed = json.loads(atlasc("kernels", "--json").stdout)["kernels"]
    return [k for k in listed if "/products/" in k["file"]]


def operand_bytes(field, env, types):
    bits = BITS_HERE[types.get(field["dtype"], field["dtype"])]
    items, depth = [""], 0
    for c in field["shape"]:
        depth += (c == "(") - (c == ")")
        items = [*items, ""] if c == "," and not depth else [*items[:-1], items[-1] + c]
    return math.prod(evaluate(i, env) for i in items) * bits // 8


@pytest.mark.parametrize("formula, role", [("reads", "in"), ("writes", "out")])
@pytest.mark.parametrize("has_optional", [0, 1])
def test_bytes_of_one_tile(products, formula, role, has_optional):
    families = {k["name"].split("_")[0] for k in products}
    assert len(products) >= 30 and families == {"gemm", "gemv", "mma", "stream", "wgmma"}
    for k in products:
        for choice in range(max(map(len, k["dtypes"].values()))):
            types = {var: allowed[choice % len(allowed)] for var, allowed in k["dtypes"].items()}
            env = dict.fromkeys(k["attrs"], 1) | SIZES | {"SMS": 132, "SMEM_MAX": 232448}
            env["ROWS"] = 1 if k["name"].startswith("stream_row_") else env["ROWS"]  # they serve one row
            env |= {name: max(values) for name, values in k["tunables"].items()}
            env |= {f["flag"]: has_optional for f in k["fields"] if f["flag"]}
            for var, dtype in types.items():
                env |= {f"{var}_BITS": BITS_HERE[dtype], f"{var}_BYTES": BITS_HERE[dtype] // 8}
            wanted = sum(
                operand_bytes(f, env, types)
                for f in k["fields"]
                if f["role"] == role and f["name"] != "step" and (not f["flag"] or has_optional)
            )
            assert evaluate(k[formula], env) == wanted, (k["name"], types, k[formula])
