"""Which edits of templates void which kernels' times: code_sha256, over the code that a kernel reaches.

Each edit is made on a copy of kernels/templates; kernelgen reads some of the templates there, whose hashes are
compared with those of the unchanged copy. Which of them an edit concerns is written by hand, from reading the code.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

READ = [
    "delta_chunks",
    "gate_rows",
    "gemv_norm",
    "gemv_swiglu",
    "sample",
    "stream_norm",
    "sum_experts",
    "wgmma_linear",
    "zero_slots",
]
NOBODY: set[str] = set()
HELPER = "\n__device__ __forceinline__ float three_times(float x) { return 3.0f * x; }\n"
USED = "\tif (mine)\n\t\tstore(a.y"

# (what, [(file, text, its replacement)], templates whose code is another one)
EDITS = [
    ("a comment at the end of a shared header", [("shared/types.cuh", None, "// more\n/* and\n more */\n")], NOBODY),
    (
        "comments within a kernel",
        [("products/gemv_norm.cu", "const Args a)\n{", "const Args a) // here\n{ /* it */\n// begins")],
        NOBODY,
    ),
    (
        "blanks and line ends",
        [
            (
                "products/gemv_norm.cu",
                "\tconst float sum = gemv_mine(acc);\n",
                "    const  float\n\t\tsum =\tgemv_mine( acc )\n;\n\n",
            )
        ],
        NOBODY,
    ),
    (
        "contract lines elsewhere",
        [
            ("products/gemv_contract.cuh", "REQUIRE(n_rows() <= 8)\n", ""),
            ("products/gemv_contract.cuh", "ORDER(gemv)\n", "ORDER(gemv)\nREQUIRE(n_rows() <= 8)\n"),
        ],
        NOBODY,
    ),
    (
        "contract lines in another order",
        [("products/gemv_contract.cuh", "DIM(K, 2048) DIM(N, 8192)\n", "DIM(N, 8192)\n\nDIM(K, 2048)\n")],
        NOBODY,
    ),
    (
        "contract lines in a file of their own",
        [
            ("products/gemv_contract.cuh", "DIM(K, 2048) DIM(N, 8192)\n", '#include "dims.cuh"\n'),
            ("dims.cuh", None, "DIM(K, 2048)\nDIM(N, 8192)\n"),
        ],
        NOBODY,
    ),
    ("the example of a dim", [("products/gemv_contract.cuh", "DIM(K, 2048) DIM(N", "DIM(K, 4096) DIM(N")], NOBODY),
    (
        "one more value of a tunable",
        [("products/gemv_contract.cuh", "TUNE(WARPS, 4, 8)", "TUNE(WARPS, 8, 4, 16)")],
        NOBODY,
    ),
    (
        "formulas, whose values count by themselves",
        [
            ("products/gemv_contract.cuh", "BLOCK(32 * WARPS)", "BLOCK(64 * WARPS / 2)"),
            ("slots/zero_slots.cu", "FLOPS(0)", "FLOPS(1)"),
        ],
        NOBODY,
    ),
    ("an operand's shape", [("products/operands.cuh", 'OUT(bf16, y, "ROWS, N")', 'OUT(bf16, y, "ROWS,N")')], NOBODY),
    (
        "a new contract word",
        [
            (
                "shared/contract.cuh",
                '#define RATE(...) CONTRACT("rate;" #__VA_ARGS__);\n',
                '#define RATE(...) CONTRACT("rate;" #__VA_ARGS__);\n#define SAYS(...) CONTRACT("says;" #__VA_ARGS__);\n',
            ),
            ("shared/contract.cuh", "#define RATE(...)\n", "#define RATE(...)\n#define SAYS(...)\n"),
            ("products/gemv_contract.cuh", "ARCH(80)\n", "ARCH(80)\nSAYS(K, N)\n"),
        ],
        NOBODY,
    ),
    (
        "what kernelgen alone reads",
        [
            (
                "shared/contract.cuh",
                "#define __launch_bounds__(...) ",
                "void __new_builtin();\n#define __launch_bounds__(...) ",
            )
        ],
        NOBODY,
    ),
    ("an assertion", [("products/gemv_contract.cuh", "above 8 rows", "with more than 8 rows")], NOBODY),
    ("a helper that nothing uses", [("shared/types.cuh", None, HELPER)], NOBODY),
    (
        "a template, a constant, a macro and a type that nothing uses",
        [
            (
                "shared/types.cuh",
                None,
                "template <class T> struct Unused { T t; };\nconstexpr int UNUSED = 4;\n#define UNUSED_TOO 5\n",
            )
        ],
        NOBODY,
    ),
    (
        "a method that nothing uses",
        [
            (
                "sampling/draw.cuh",
                "\tconst i32 *table;\n",
                "\tconst i32 *table;\n\t__device__ int spare() const { return 1; }\n",
            )
        ],
        NOBODY,
    ),
    (
        "a helper in another header",
        [
            (
                "shared/activation.cuh",
                "__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }\n",
                "",
            ),
            (
                "shared/types.cuh",
                None,
                "__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }\n",
            ),
        ],
        NOBODY,
    ),
    (
        "the kernel itself",
        [("products/gemv_norm.cu", "\tlet_next_start();\n", "\tlet_next_start();\n\t__syncthreads();\n")],
        {"gemv_norm"},
    ),
    (
        "its bounds",
        [("products/gemv_norm.cu", "__launch_bounds__(32 * WARPS)", "__launch_bounds__(256)")],
        {"gemv_norm"},
    ),
    (
        "the type of an argument",
        [("slots/zero_slots.cu", 'IN(i32, acquire, "SLOTS")', 'IN(f32, acquire, "SLOTS")')],
        {"zero_slots"},
    ),
    (
        "a helper that is used from now on",
        [
            ("shared/types.cuh", None, HELPER),
            ("products/gemv_norm.cu", USED, USED.replace("mine)", "three_times(1.0f) > 0.0f)")),
        ],
        {"gemv_norm"},
    ),
    (
        "a helper of two templates",
        [("shared/activation.cuh", "return __fdividef(1.0f, 1.0f + __expf(-x))", "return 1.0f / (1.0f + __expf(-x))")],
        {"gate_rows", "delta_chunks"},
    ),
    (
        "how a helper is inlined",
        [
            (
                "shared/activation.cuh",
                "__device__ __forceinline__ float sigmoid",
                "__device__ __noinline__ float sigmoid",
            )
        ],
        {"gate_rows", "delta_chunks"},
    ),
    (
        "a helper of a helper",
        [("shared/types.cuh", "__forceinline__ uint4 load_once", "__noinline__ uint4 load_once")],
        {"gemv_norm", "gemv_swiglu"},
    ),
    (
        "how numbers of a type are read, where a contract or the code has that type",
        [
            (
                "shared/types.cuh",
                "__device__ __forceinline__ float e4m3_to_f32(",
                "__device__ __noinline__ float e4m3_to_f32(",
            )
        ],
        {"stream_norm"},
    ),
    (
        "an overload for a type",
        [("shared/u4.cuh", "__device__ __forceinline__ float to_f32(", "__device__ __noinline__ float to_f32(")],
        {"stream_norm"},
    ),
    ("a constant of a shared header", [("sampling/draw.cuh", "LIGHT = 16", "LIGHT = 8")], {"sample"}),
    (
        "a constant of a branch that libclang skips",
        [("delta/delta_chunks.cuh", "is_team = TEAM > 1;", "is_team = TEAM > 2;")],
        {"delta_chunks"},
    ),
    (
        "the condition of a branch",
        [("sampling/draw.cuh", "#if __CUDA_ARCH__ >= 900 && CLUSTER", "#if CLUSTER")],
        {"sample"},
    ),
    (
        "a line of a branch within a function",
        [("shared/types.cuh", '"griddepcontrol.wait;" ::: "memory"', '"griddepcontrol.wait;"')],
        {
            "delta_chunks",
            "gate_rows",
            "gemv_norm",
            "gemv_swiglu",
            "sample",
            "stream_norm",
            "sum_experts",
            "wgmma_linear",
        },
    ),
    (
        "a macro",
        [("products/wgmma.cuh", '#define WGMMA_4(j) "+f"(c[j][0])', '#define WGMMA_4(j) "+f"(c[j][0] )')],
        NOBODY,
    ),
    (
        "the text of a macro",
        [("products/wgmma.cuh", '#define WGMMA_4(j) "+f"(c[j][0])', '#define WGMMA_4(j) "+f"((c[j][0]))')],
        {"wgmma_linear"},
    ),
    (
        "a macro by which NVRTC reads a kernel",
        [
            (
                "shared/contract.cuh",
                "#define DYNAMIC_SMEM(name) extern __shared__ uint4 name[]",
                "#define DYNAMIC_SMEM(name) extern __shared__ __align__(128) uint4 name[]",
            )
        ],
        {"delta_chunks", "gemv_norm", "gemv_swiglu", "stream_norm", "wgmma_linear"},
    ),
    (
        "a macro by which NVRTC reads arguments",
        [
            (
                "shared/contract.cuh",
                "#define OUT(type, name, shape) type *name\n",
                "#define OUT(type, name, shape) type *__restrict__ name\n",
            )
        ],
        set(READ) - {"sample", "zero_slots"},
    ),
    (
        "a method",
        [("sampling/draw.cuh", "int low = 0, high = N_VALID;", "int low = 0, high = N_VALID + 0;")],
        {"sample"},
    ),
    (
        "what an operator does",
        [("sampling/draw.cuh", "\t\t\treturn table[v];\n", "\t\t\treturn table[v] + 0;\n")],
        {"sample"},
    ),
]


@pytest.fixture(scope="module")
def hashes(build_dir, repo):
    """hashes(folder): code_sha256 of the templates READ there, by name, as kernelgen writes them; or source_sha256, by
    which compiled kernels are kept."""

    def of(folder: pathlib.Path, which: str = "code") -> dict[str, str]:
        files = [path for path in sorted(folder.rglob("*.cu")) if path.stem in READ]
        done = subprocess.run(
            [build_dir / "kernelgen", "-o", folder / "table.c", "-I", folder, *files],
            cwd=repo,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        table = (folder / "table.c").read_text()
        found = re.findall(rf'\.name = "(\w+)", \.file.*?\.{which}_sha256 = \{{([^}}]*)\}}', table, re.S)
        return {name: "".join(re.findall(r"0x(\w\w)", digits)) for name, digits in found}

    return of


@pytest.fixture(scope="module")
def unchanged(hashes, repo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unchanged") / "templates"
    shutil.copytree(repo / "kernels/templates", folder)
    found = hashes(folder)
    assert sorted(found) == sorted(READ) and len(set(found.values())) == len(READ)
    return found


@pytest.mark.parametrize("what, changes, concerned", EDITS, ids=[e[0] for e in EDITS])
def test_edit(hashes, unchanged, repo, tmp_path, what, changes, concerned):
    folder = tmp_path / "templates"
    shutil.copytree(repo / "kernels/templates", folder)
    for name, old, new in changes:
        path = folder / name
        text = path.read_text() if path.exists() else ""
        assert old is None or text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        path.write_text(text + new if old is None else text.replace(old, new))
    now = hashes(folder)
    assert {name for name in READ if now[name] != unchanged[name]} == concerned, what


# All are valid where AS(1) follows: with parameters it is (1), without them a cast of a cast.
WITH_PARAMETERS = [
    "#define AS(i32) (i32)",
    "#define\tAS( i32 )  (i32) // more",
    "# /**/ define AS(i32/* */) \\\n\t(i32)",
]
WITHOUT = ["#define AS (i32) (i32)", "#define AS\t( i32 )(i32)", "#define AS/**/(i32) /* more */ (i32)"]


@pytest.mark.parametrize("which", ["code", "source"])
@pytest.mark.parametrize("condition", ["", "#ifndef AS\n"], ids=["alone", "in a branch"])
def test_a_macro_with_parameters_and_one_whose_text_begins_with_a_bracket(hashes, repo, tmp_path, condition, which):
    found = []
    for i, define in enumerate(WITH_PARAMETERS + WITHOUT):
        folder = tmp_path / str(i)
        shutil.copytree(repo / "kernels/templates", folder)
        path = folder / "slots/zero_slots.cu"
        head, kernel = path.read_text().split('extern "C"')
        macro = f"{condition}{define}\n" + ("#endif\n" if condition else "")
        body = kernel.replace("\n{\n", "\n{\n\tif (AS(1) > 2)\n\t\treturn;\n", 1)
        path.write_text(f'{head}{macro}extern "C"{body}')
        found.append(hashes(folder, which)["zero_slots"])
    n = len(WITH_PARAMETERS)
    assert len(set(found[:n])) == 1 and len(set(found[n:])) == 1 and found[0] != found[n]


def test_files_and_their_order_do_not_count(hashes, unchanged, repo, tmp_path):
    """A header under another name, its first two functions the other way round."""
    folder = tmp_path / "templates"
    shutil.copytree(repo / "kernels/templates", folder)
    head, *functions = (folder / "shared/activation.cuh").read_text().split("__device__")
    (folder / "shared/activation.cuh").unlink()
    (folder / "gates.cuh").write_text("\n__device__".join([head, *functions[1::-1], *functions[2:]]))
    for path in folder.rglob("*.cu*"):
        path.write_text(path.read_text().replace('"shared/activation.cuh"', '"gates.cuh"'))
    assert hashes(folder) == unchanged


def test_built_in_hashes(unchanged, atlasc, repo):
    """What is built into atlasc is the hash of the templates as they are, wherever kernelgen read them."""
    import json

    listed = json.loads(atlasc("kernels", "--json").stdout)["kernels"]
    assert {k["name"]: k["code_sha256"] for k in listed if k["name"] in READ} == unchanged
