"""kernelgen refuses every kind of bad template with an exact message, and writes the same table every time.

Bad templates are made from plain.cu, which is right, by replacing one piece of its text. A message starts with the
position of the offence: line numbers below are found from a piece of the offending line, so that they are
computed from the text and not copied from kernelgen's answer.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import atlasc_texts
import pytest

HERE = pathlib.Path(__file__).resolve().parent
GOOD = (HERE / "plain.cu").read_text()


@pytest.fixture(scope="session")
def kernelgen(build_dir, repo):
    path = build_dir / "kernelgen"
    assert path.exists(), f"{path} is missing: run make"

    def run(*args: object) -> subprocess.CompletedProcess:
        return subprocess.run(
            [path, *map(str, args)], cwd=repo, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def variant(tmp_path: pathlib.Path, *changes: tuple[str, str], name: str = "plain.cu") -> pathlib.Path:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in plain.cu"
        text = text.replace(old, new)
    shutil.copy(HERE / "plain_types.cuh", tmp_path)
    (tmp_path / name).write_text(text)
    return tmp_path / name


def place(path: pathlib.Path, piece: str) -> str:
    """FILE:LINE:COL of the first line that holds `piece`, at its first column that is not blank."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if piece in line:
            return f"{path}:{number}:{len(line) - len(line.lstrip()) + 1}"
    raise AssertionError(f"{piece!r} is nowhere in {path}")


FLOPS = "FLOPS(2 * ROWS * N * K)\n"
WAITS = [
    ("\tif (t >= a.step[0])\n", "\tinputs_ready();\n\tif (t >= a.step[0])\n"),
    ("// A function template", "__device__ void inputs_ready();\n\n// A function template"),
]

# (what, changes, [(piece of the offending line, code, message)], exit code)
REFUSALS = [
    (
        "no kernel clause",
        [("KERNEL(plain, norm_linear)\n", "\n")],
        [(None, "A0902", "no contract: expected KERNEL(plain, OPERATION)")],
    ),
    (
        "another kernel name",
        [("KERNEL(plain,", "KERNEL(plane,")],
        [("KERNEL(", "A0902", "kernel plane is in a file named plain: the names must be equal")],
    ),
    (
        "unknown operation",
        [("norm_linear)", "norm_liner)")],
        [("KERNEL(", "A0902", "norm_liner is not an operation: did you mean norm_linear?")],
    ),
    (
        "two contracts",
        [("ARCH(80, 90a)", "ARCH(80, 90a)\nKERNEL(plain, add)")],
        [("KERNEL(plain, add)", "A0906", "KERNEL occurs twice, first at line 8")],
    ),
    (
        "two grids",
        [("BLOCK(32", "GRID(1, 1, 1)\nBLOCK(32")],
        [("GRID(1", "A0906", "GRID occurs twice, first at line 21")],
    ),
    *(
        (f"no {word}", [(line, "")], [("KERNEL(", "A0902", f"{word} is missing")])
        for word, line in [
            ("ARCH", "ARCH(80, 90a)\n"),
            ("NUMERICS", "NUMERICS(f32_accumulate, batch_invariant)\n"),
            ("ORDER", "ORDER(chain)\n"),
            ("GRID", "GRID(ceil_div(N, 32 * WARPS), ROWS, 1)\n"),
            ("BLOCK", "BLOCK(32 * WARPS)\n"),
            ("READS", "READS(N * K * WT_BYTES + ROWS * K * 2)\n"),
            ("WRITES", "WRITES(ROWS * N * 2)\n"),
            ("FLOPS", "FLOPS(2 * ROWS * N * K)\n"),
        ]
    ),
    (
        "an order without a word",
        [("ORDER(chain)", "ORDER(2 * K)")],
        [("ORDER(", "A0902", "ORDER(2 * K): expected a word, then formulas"), ("KERNEL(", "A0902", "ORDER is missing")],
    ),
    (
        "an order by an unknown name",
        [("ORDER(chain)", "ORDER(chain, min(K, 64), WARP)")],
        [("ORDER(", "A0904", "ORDER: unknown name WARP: did you mean WARPS?: WARP")],
    ),
    (
        "a preference by an unknown name",
        [("ORDER(chain)", "ORDER(chain)\nPREFER(ROW == 1)")],
        [("PREFER(", "A0904", "PREFER: unknown name ROW: did you mean ROWS?: ROW == 1")],
    ),
    (
        "a pruning by an unknown name",
        [("ORDER(chain)", "ORDER(chain)\nPRUNE(ROW == 1)")],
        [("PRUNE(", "A0904", "PRUNE: unknown name ROW: did you mean ROWS?: ROW == 1")],
    ),
    (
        "a formula of an unknown name",
        [(FLOPS, "constexpr int lane = 32;\nFORMULA(warps(int n), n * lane)\n" + FLOPS)],
        [("FORMULA(", "A0904", "FORMULA warps: unknown name lane: n * lane")],
    ),
    (
        "a formula of a name that C++ does not know either",
        [(FLOPS, "FORMULA(warps(int n), n * SMS)\n" + FLOPS)],
        [
            ("FORMULA(", "A0901", "no return statement in constexpr function"),
            ("FORMULA(", "A0901", "use of undeclared identifier 'SMS'"),
        ],
    ),
    (
        "a formula that is none",
        [(FLOPS, "FORMULA(warps(int n), n << 5)\n" + FLOPS)],
        [("FORMULA(", "A0904", "FORMULA warps: column 4: expected a value, found '<': n << 5")],
    ),
    (
        "a parameter that is no whole number",
        [(FLOPS, "FORMULA(warps(long n), n * 32)\n" + FLOPS)],
        [("FORMULA(", "A0902", "FORMULA(warps(long n), ...): expected NAME(int A, ...)")],
    ),
    (
        "a formula with the name of a function",
        [(FLOPS, "FORMULA(align(int n, int m), n * m)\n" + FLOPS)],
        [("FORMULA(", "A0906", "FORMULA align: formulas have a function of that name")],
    ),
    (
        "a formula called with other values",
        [("SMEM(32 * WARPS * 4)", "FORMULA(bytes(int n, int m), n * m * 4)\nSMEM(bytes(max(32, K)))")],
        [("SMEM(", "A0901", "no matching function for call to 'bytes'")],
    ),
    (
        "a formula called with other values where code has no copy",
        [(FLOPS, "FORMULA(ops(int n, int m), 2 * n * m)\nFLOPS(ops(ROWS * N, K, 1))\n")],
        [("FLOPS(", "A0904", "FLOPS: ops takes 2 values, found 3")],
    ),
    (
        "a formula before it is there",
        [(FLOPS, "FORMULA(ops(int n), twice(n))\nFORMULA(twice(int n), 2 * n)\n" + FLOPS)],
        [("FORMULA(ops", "A0901", "use of undeclared identifier 'twice'")],
    ),
    (
        "a parameter of the family that is not defined",
        [(FLOPS, "PARAM(RESIDUAL, 0, 1)\n" + FLOPS)],
        [
            (
                "PARAM(",
                "A0902",
                "PARAM RESIDUAL: expected #define RESIDUAL before this file is included, as one of 0, 1: found RESIDUAL",
            )
        ],
    ),
    (
        "a parameter of the family that is something else",
        [(FLOPS, "#define RESIDUAL 3\nPARAM(RESIDUAL, 0, 1)\n" + FLOPS)],
        [
            (
                "PARAM(",
                "A0902",
                "PARAM RESIDUAL: expected #define RESIDUAL before this file is included, as one of 0, 1: found 3",
            )
        ],
    ),
    (
        "shared memory that is not what the code says",
        [
            (
                "// A function template",
                'static_assert(dynamic_smem() == 32 * WARPS * 2, "two bytes a thread");\n// A function template',
            )
        ],
        [
            (
                "static_assert",
                "A0901",
                "static assertion failed due to requirement 'dynamic_smem() == 32 * WARPS * 2': two bytes a thread",
            )
        ],
    ),
    (
        "bad arch",
        [("ARCH(80, 90a)", "ARCH(80, sm_90)")],
        [("ARCH(", "A0902", "ARCH sm_90: expected a number such as 80 or 90a")],
    ),
    ("arch twice", [("ARCH(80, 90a)", "ARCH(80, 80)")], [("ARCH(", "A0906", "ARCH names 80 twice")]),
    (
        "bad numerics",
        [("NUMERICS(f32_accumulate, ", "NUMERICS(32 bits, ")],
        [("NUMERICS(", "A0902", "NUMERICS 32 bits: expected exact, f32, f32_accumulate or batch_invariant")],
    ),
    (
        "an unknown matrix instruction",
        [("ARCH(80, 90a)", "ARCH(80, 90a)\nMATRIX(umma)")],
        [("MATRIX(", "A0902", "MATRIX umma: expected mma, wgmma or wgmma_fp8")],
    ),
    (
        "wgmma where there is none",
        [("ARCH(80, 90a)", "ARCH(80, 90a)\nMATRIX(wgmma)")],
        [("MATRIX(", "A0902", "MATRIX wgmma: sm_90a alone has it, and ARCH names 80")],
    ),
    (
        "two matrix instructions",
        [("ARCH(80, 90a)", "ARCH(90a)\nMATRIX(wgmma)\nMATRIX(mma)")],
        [("MATRIX(mma)", "A0906", "MATRIX occurs twice, first at line 10")],
    ),
    (
        "no argument struct",
        [("struct Args {", "struct Arguments {"), ("plain(const Args a)", "plain(const Arguments a)")],
        [
            ("KERNEL(", "A0902", "struct Args is missing"),
            (
                'extern "C"',
                "A0902",
                'kernel plain does not take exactly one Args: expected extern "C" __global__ void plain(const Args a)',
            ),
        ],
    ),
    (
        "no kernel",
        [('extern "C" __global__ void', 'extern "C" void')],
        [("KERNEL(", "A0902", 'no kernel: expected extern "C" __global__ void plain(const Args a)')],
    ),
    (
        "another symbol",
        [("plain(const Args a)", "plane(const Args a)")],
        [('extern "C"', "A0902", "kernel plane: the only kernel of a file has its name, plain")],
    ),
    (
        "C++ linkage",
        [('extern "C" __global__', "__global__")],
        [
            (
                "__launch_bounds__",
                "A0902",
                'kernel plain is not extern "C": expected extern "C" __global__ void plain(const Args a)',
            )
        ],
    ),
    (
        "two parameters",
        [("plain(const Args a)", "plain(const Args a, int b)")],
        [
            (
                'extern "C"',
                "A0902",
                'kernel plain does not take exactly one Args: expected extern "C" __global__ void plain(const Args a)',
            )
        ],
    ),
    (
        "pointer to arguments",
        [
            ("plain(const Args a)", "plain(const Args *p)"),
            ("\textern __shared__", "\tconst Args a = *p;\n\textern __shared__"),
        ],
        [
            (
                'extern "C"',
                "A0902",
                'kernel plain does not take exactly one Args: expected extern "C" __global__ void plain(const Args a)',
            )
        ],
    ),
    (
        "a result",
        [
            ("void __launch_bounds__(32 * WARPS)", "int __launch_bounds__(32 * WARPS)"),
            ("\t\treturn;\n\tfloat square", "\t\treturn 0;\n\tfloat square"),
            ("\t\treturn;\n\tfloat y", "\t\treturn 0;\n\tfloat y"),
        ],
        [
            (
                'extern "C"',
                "A0902",
                'kernel plain returns a value: expected extern "C" __global__ void plain(const Args a)',
            )
        ],
    ),
    (
        "no operand of the op",
        [('IN(WT, w, "N, K")', 'IN(WT, weight, "N, K")'), ("a.w[", "a.weight[")],
        [
            ("struct Args", "A0903", 'operand w of norm_linear is missing: expected IN(..., w, "N, K")'),
            ("weight,", "A0903", "weight is not an operand of norm_linear"),
        ],
    ),
    ("role", [("OUT(bf16, y", "INOUT(bf16, y")], [("INOUT(bf16", "A0903", "y of norm_linear is OUT: found INOUT")]),
    (
        "an optional output",
        [
            ("OUT(bf16, y,", "IN_IF(OTHER, bf16, y,"),
            ("FLAG(BIAS)", "FLAG(BIAS)\nFLAG(OTHER)"),
            ("\ta.y[t * N + n] = to_bf16(y)", "\t(bf16 &)a.y[t * N + n] = to_bf16(y)"),
        ],
        [("IN_IF(OTHER", "A0903", "y of norm_linear is OUT: found IN_IF")],
    ),
    (
        "optional but always there",
        [("IN(WT, norm,", "IN_IF(OTHER, WT, norm,"), ("FLAG(BIAS)", "FLAG(BIAS)\nFLAG(OTHER)")],
        [("IN_IF(OTHER", "A0903", "norm of norm_linear is always there: expected IN, found IN_IF")],
    ),
    (
        "an input that is written",
        [("IN(WT, norm,", "INOUT_IF(OTHER, WT, norm,"), ("FLAG(BIAS)", "FLAG(BIAS)\nFLAG(OTHER)")],
        [("INOUT_IF(OTHER", "A0903", "norm of norm_linear is IN: found INOUT_IF")],
    ),
    (
        "no flag of that name",
        [("IN_IF(BIAS,", "IN_IF(BIASED,")],
        [
            ("FLAG(", "A0905", "flag BIAS belongs to no argument"),
            ("IN_IF(", "A0903", "bias: no FLAG(BIASED) is declared"),
        ],
    ),
    (
        "a field without contract",
        [('\tIN(i32, step, "4");', '\tint n;\n\tIN(i32, step, "4");')],
        [("int n;", "A0903", "n has no contract: expected IN, IN_IF, INOUT, INOUT_IF or OUT")],
    ),
    (
        "an array in place of a pointer",
        [('IN(i32, step, "4")', 'IN(i32, step[4], "4")'), ("a.step[0])", "*a.step[0])")],
        [("step[4]", "A0903", "step is not a pointer")],
    ),
    (
        "a field twice",
        [('\tIN(i32, step, "4");', '\tIN(i32, step, "4");\n\tIN(i32, step, "4") ;')],
        [('"4") ;', "A0901", "duplicate member 'step'")],
    ),
    (
        "a map of no argument",
        [
            ("\tOUT(bf16, y", "\tTENSOR_MAP(weight, w_map, 64, 64);\n\tOUT(bf16, y"),
            ("a.step[0])", "a.step[0] + a.w_map.opaque[0])"),
        ],
        [("w_map,", "A0903", "tensor map w_map: weight is not an argument")],
    ),
    (
        "a map of what may be absent",
        [
            ("\tOUT(bf16, y", "\tTENSOR_MAP(bias, b_map, 64, 64);\n\tOUT(bf16, y"),
            ("a.step[0])", "a.step[0] + a.b_map.opaque[0])"),
        ],
        [("b_map,", "A0903", "tensor map b_map: bias may be absent")],
    ),
    (
        "an unused map",
        [("\tOUT(bf16, y", "\tTENSOR_MAP(w, w_map, 64, 64);\n\tOUT(bf16, y")],
        [("w_map,", "A0905", "tensor map w_map is never used in the code")],
    ),
    (
        "a map's box of an unknown name",
        [
            ("\tOUT(bf16, y", "\tTENSOR_MAP(w, w_map, BN, 64);\n\tOUT(bf16, y"),
            ("a.step[0])", "a.step[0] + a.w_map.opaque[0])"),
        ],
        [("w_map,", "A0904", "box of w_map: unknown name BN: did you mean N?: BN")],
    ),
    (
        "four maps",
        [
            ("\tOUT(bf16, y", "".join(f"\tTENSOR_MAP(w, w{i}, 64, 64);\n" for i in range(4)) + "\tOUT(bf16, y"),
            ("a.step[0])", "a.step[0] + " + " + ".join(f"a.w{i}.opaque[0]" for i in range(4)) + ")"),
        ],
        [("w3,", "A0903", "struct Args has more than 3 tensor maps")],
    ),
    ("a dim twice", [("DIM(N, 960)", "DIM(N, 960)\nDIM(N,  960)")], [("DIM(N,  960)", "A0901", "redefinition of 'N'")]),
    (
        "unused argument",
        [("if (t >= a.step[0])", "if (t >= ROWS)")],
        [("step,", "A0905", "argument step is never used in the code")],
    ),
    (
        "argument used only in a cast to void",
        [("if (t >= a.step[0])", "(void)a.step;\n\tif (t >= sizeof a.step)")],
        [("step,", "A0905", "argument step is never used in the code")],
    ),
    (
        "argument used only by a function that the kernel does not call",
        [("float y = bias_of(a, n);", "float y = 0.0f;")],
        [("bias,", "A0905", "argument bias is never used in the code")],
    ),
    (
        "attribute used only by a function that the kernel does not call",
        [
            (" + NORM_ONE)", ")"),
            ("// A function template", "__device__ int one() { return NORM_ONE; }\n// A function template"),
        ],
        [("ATTR_INT(", "A0905", "attribute NORM_ONE is never used")],
    ),
    (
        "unknown dim in a formula",
        [("FLOPS(2 * ROWS * N * K)", "FLOPS(2 * ROW * N * K)")],
        [("FLOPS(", "A0904", "FLOPS: unknown name ROW: did you mean ROWS?: 2 * ROW * N * K")],
    ),
    (
        "unknown dim in a predicate",
        [("|| ROWS == 1)", "|| ROWS == COLUMNS)")],
        [("REQUIRE(", "A0904", "REQUIRE: unknown name COLUMNS: K % 8 == 0 || ROWS == COLUMNS")],
    ),
    (
        "unknown dim in a shape",
        [('IN(WT, w, "N, K")', 'IN(WT, w, "N, QQQ")')],
        [
            ("w,", "A0904", "shape of w: unknown name QQQ: QQQ"),
            ("w,", "A0903", "dim 1 of w is K of norm_linear, which is K in x: found QQQ"),
        ],
    ),
    (
        "unknown names in pieces and rate",
        [("FLOPS(", "PIECES(TILES)\nRATE(PERCENT)\nFLOPS(")],
        [
            ("PIECES(", "A0904", "PIECES: unknown name TILES: TILES"),
            ("RATE(", "A0904", "RATE: unknown name PERCENT: PERCENT"),
        ],
    ),
    (
        "a rate twice",
        [("FLOPS(", "RATE(50)\nRATE(60)\nFLOPS(")],
        [("RATE(60)", "A0906", "RATE occurs twice, first at line 26")],
    ),
    (
        "a float in a formula",
        [("SMEM(32 * WARPS * 4)", "SMEM(32 * WARPS * EPS)")],
        [("SMEM(", "A0904", "SMEM: EPS is a float attribute: formulas use integers only: 32 * WARPS * EPS")],
    ),
    (
        "a dtype in a formula",
        [("N * K * WT_BYTES", "N * K * WT")],
        [("READS(", "A0904", "READS: WT is a dtype variable: formulas use integers only: N * K * WT + ROWS * K * 2")],
    ),
    (
        "a formula that is none",
        [("BLOCK(32 * WARPS)", "BLOCK(32 * WARPS, 1)")],
        [("BLOCK(", "A0904", "BLOCK: column 11: expected an operator or the end, found ',': 32 * WARPS, 1")],
    ),
    (
        "a function that is none",
        [("GRID(ceil_div(", "GRID(div_up(")],
        [
            (
                "GRID(",
                "A0904",
                "GRID: column 1: unknown function div_up: expected ceil_div, min, max or align: div_up(N, 32 * WARPS)",
            )
        ],
    ),
    (
        "a dim that cannot be bound",
        [("DIM(N, 960)", "DIM(N, 960)\nDIM(EXTRA, 4)")],
        [("DIM(EXTRA", "A0904", "dim EXTRA is not a whole dimension of any required operand, so it cannot be bound")],
    ),
    (
        "dims swapped",
        [('IN(WT, w, "N, K")', 'IN(WT, w, "K, N")')],
        [
            ("w,", "A0903", "dim 1 of w is K of norm_linear, which is K in x: found N"),
            ("bias,", "A0903", "dim 0 of bias is N of norm_linear, which is K in w: found N"),
            ("OUT(bf16", "A0903", "dim 1 of y is N of norm_linear, which is K in w: found N"),
        ],
    ),
    (
        "rank",
        [('IN(WT, norm, "K")', 'IN(WT, norm, "1, K")')],
        [("norm,", "A0903", 'norm has 2 dims, "1, K": norm_linear gives it 1, "K"')],
    ),
    (
        "a number of the op",
        [('IN(i32, step, "4")', 'IN(i32, step, "8")')],
        [("step,", "A0903", "dim 0 of step is 4 of norm_linear: expected that or a dim, found 8")],
    ),
    (
        "unknown dtype",
        [('IN(i32, step, "4")', 'IN(i64, step, "4")'), ("struct Args {", "typedef long i64;\nstruct Args {")],
        [("step,", "A0903", "step: i64 is neither a dtype nor a DTYPES variable")],
    ),
    (
        "unknown dtype of a variable",
        [("DTYPES(WT, bf16, f32)", "DTYPES(WT, bf16, f8)")],
        [("DTYPES(", "A0903", "f8 is not a dtype: expected one of artifacts/dtypes.h")],
    ),
    (
        "dtype twice",
        [("DTYPES(WT, bf16, f32)", "DTYPES(WT, bf16, f32, bf16)")],
        [("DTYPES(", "A0906", "dtype variable WT allows bf16 twice")],
    ),
    (
        "unused dtype variable",
        [("TUNE(WARPS, 4, 8)", "TUNE(WARPS, 4, 8)\nDTYPES(OT, bf16)")],
        [("DTYPES(OT", "A0905", "dtype variable OT belongs to no argument")],
    ),
    (
        "a name twice",
        [("TUNE(WARPS, 4, 8)", "TUNE(WARPS, 4, 8)\nTUNE(SMS, 2, 4)")],
        [("TUNE(SMS", "A0906", "tunable SMS is declared twice, first at line 8 as a size")],
    ),
    (
        "an attribute of another op",
        [("TUNE(WARPS, 4, 8)", "TUNE(WARPS, 4, 8)\nATTR_INT(HDIM, 64)")],
        [
            (
                "ATTR_INT(HDIM",
                "A0903",
                "HDIM is not an attribute of norm_linear, which has: EPS NORM_ONE BLOCK_N BLOCK_K",
            ),
            ("ATTR_INT(HDIM", "A0905", "attribute HDIM is never used"),
        ],
    ),
    (
        "an attribute of another type",
        [("ATTR_INT(NORM_ONE, 0)", "ATTR_FLOAT(NORM_ONE, 0)")],
        [("NORM_ONE, 0", "A0903", "attribute NORM_ONE is an int: expected ATTR_INT")],
    ),
    (
        "an attribute that is not declared",
        [("ATTR_INT(NORM_ONE, 0)\n", ""), (" + NORM_ONE)", ")")],
        [("KERNEL(", "A0903", "attribute NORM_ONE of norm_linear is not declared")],
    ),
    (
        "an attribute that is not used",
        [(" + NORM_ONE)", ")")],
        [("ATTR_INT(", "A0905", "attribute NORM_ONE is never used")],
    ),
    (
        "a tunable value twice",
        [("TUNE(WARPS, 4, 8)", "TUNE(WARPS, 4, 8, 4)")],
        [("TUNE(", "A0906", "tunable WARPS lists 4 twice")],
    ),
    (
        "a tunable value that is no number",
        [("TUNE(WARPS, 4, 8)", "TUNE(WARPS, 4, 2 * 4)")],
        [("TUNE(", "A0902", "tunable WARPS: 2 * 4 is not a whole number")],
    ),
    (
        "a flag of two arguments",
        [("IN(WT, norm,", "IN_IF(BIAS, WT, norm,")],
        [
            ("norm,", "A0903", "norm of norm_linear is always there: expected IN, found IN_IF"),
            ("bias,", "A0906", "flag BIAS belongs to two arguments"),
        ],
    ),
    (
        "early operands of code that does not wait",
        [(FLOPS, FLOPS + "EARLY(x)\n")],
        [("EARLY(", "A0905", "EARLY: the code never calls inputs_ready")],
    ),
    (
        "an early operand that is none",
        [(FLOPS, FLOPS + "EARLY(x, z)\n"), *WAITS],
        [("EARLY(", "A0903", "EARLY: z is not an argument")],
    ),
    (
        "an early operand that is written alone",
        [(FLOPS, FLOPS + "EARLY(y)\n"), *WAITS],
        [("EARLY(", "A0903", "EARLY: y is OUT: nothing of it is there to read")],
    ),
    (
        "an early operand twice",
        [(FLOPS, FLOPS + "EARLY(x, x)\n"), *WAITS],
        [("EARLY(", "A0906", "EARLY names x twice")],
    ),
    (
        "early operands in two places",
        [(FLOPS, FLOPS + "EARLY(x)\nEARLY( w)\n"), *WAITS],
        [("EARLY( w", "A0906", "EARLY occurs twice, first at line 27")],
    ),
]


@pytest.mark.parametrize("what, changes, expected", REFUSALS, ids=[r[0] for r in REFUSALS])
def test_refusal(kernelgen, tmp_path, what, changes, expected):
    path = variant(tmp_path, *changes)
    out = tmp_path / "out.c"
    out.write_text("the table of an earlier run")
    done = kernelgen("-o", out, path)
    messages = []
    for piece, code, text in expected:
        at = place(path, piece) if piece else f"{path}:1:1"
        messages.append((at.rsplit(":", 1)[0], f"error[{code}]: {text}"))
    seen = []
    for line in done.stderr.splitlines():
        at, text = line.split(": ", 1)
        seen.append((at.rsplit(":", 1)[0], text))
    assert sorted(seen) == sorted(messages), what
    assert done.returncode == (4 if any("A0901" in text for _, text in messages) else 3)
    assert not out.exists(), "a table is left after a refusal"


SCALES = ("FLAG(BIAS)", "FLAG(BIAS)\nFLAG(SCALED)\nATTR_INT(BLOCK_N, 128)\nATTR_INT(BLOCK_K, 128)")
SCALE = (
    "\tIN_IF(BIAS, ",
    '\tIN_IF(SCALED, f32, w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)");\n\tIN_IF(BIAS, ',
)
USE = (
    "float y = bias_of(a, n);",
    "float y = bias_of(a, n) + (SCALED ? a.w_scale[n / BLOCK_N * ((K + BLOCK_K - 1) / BLOCK_K)] : 0.0f);",
)


def test_optional_operands_may_be_left_out(kernelgen, tmp_path):
    """Neither do the attributes of their shapes need a declaration then; once the operand is taken, they do."""
    bare = variant(
        tmp_path,
        ("FLAG(BIAS)\n", ""),
        ('\tIN_IF(BIAS, WT, bias, "N");\n', ""),
        ("if constexpr (BIAS)\n\t\treturn to_float(a.bias[n]);\n", ""),
    )
    out = tmp_path / "out.c"
    done = kernelgen("-o", out, bare)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"bias"' not in out.read_text() and '"w_scale"' not in out.read_text()
    done = kernelgen("-o", out, variant(tmp_path, SCALES, SCALE, USE))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"' in out.read_text() and '"BLOCK_K"' in out.read_text()
    path = variant(
        tmp_path,
        (SCALES[0], SCALES[1].replace("\nATTR_INT(BLOCK_K, 128)", "")),
        SCALE,
        (USE[0], "float y = bias_of(a, n) + (SCALED ? a.w_scale[0] : 0.0f);"),
    )
    done = kernelgen("-o", out, path)
    assert f"{place(path, 'KERNEL(')}: error[A0903]: attribute BLOCK_K of norm_linear is not declared\n" in done.stderr
    assert done.returncode == 3
    path = variant(tmp_path, SCALES, (SCALE[0], SCALE[1].replace("ceil_div(K, BLOCK_K)", "ceil_div(K, 128)")), USE)
    done = kernelgen("-o", out, path)
    assert done.stderr == (
        f"{place(path, 'IN_IF(SCALED')}: error[A0903]: dim 1 of w_scale is "
        "ceil_div(K, BLOCK_K) of norm_linear: expected that or a dim, found ceil_div(K, 128)\n"
    )


def test_early_operands(kernelgen, tmp_path):
    """They are marked in the table, the others are not."""
    out = tmp_path / "out.c"
    done = kernelgen("-o", out, variant(tmp_path, (FLOPS, FLOPS + "EARLY(norm, bias)\n"), *WAITS))
    assert (done.returncode, done.stderr) == (0, "")
    fields = re.findall(r'\{"(\w+)", OPERAND_.*, (true|false)\}', out.read_text())
    assert fields == [
        ("step", "false"),
        ("x", "false"),
        ("norm", "true"),
        ("w", "false"),
        ("bias", "true"),
        ("y", "false"),
    ]


def test_sizes_of_a_dtype_variable(kernelgen, tmp_path):
    """Bits always; bytes only where each type it may stand for has a whole number of them."""
    out = tmp_path / "out.c"
    done = kernelgen("-o", out, variant(tmp_path, ("N * K * WT_BYTES", "N * K * WT_BITS / 8")))
    assert (done.returncode, done.stderr) == (0, "")
    path = variant(tmp_path, ("DTYPES(WT, bf16, f32)", "DTYPES(WT, bf16, e2m1)"))
    done = kernelgen("-o", out, path)
    assert (
        f"{place(path, 'READS(')}: error[A0904]: READS: unknown name WT_BYTES: did you mean WT_BITS?: "
        "N * K * WT_BYTES + ROWS * K * 2\n"
    ) in done.stderr


def test_columns(kernelgen, tmp_path):
    """Columns are those of the contract word, two words on one line included."""
    path = variant(tmp_path, ("READS(N * K * WT_BYTES + ROWS * K * 2)\nWRITES(ROWS * N * 2)", "READS(N) WRITES(M)"))
    done = kernelgen("-o", tmp_path / "out.c", path)
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("READS"))
    assert (
        done.stderr == f"{path}:{line}:10: error[A0904]: WRITES: unknown name M: did you mean K?: M\n"
        or done.stderr == f"{path}:{line}:10: error[A0904]: WRITES: unknown name M: did you mean N?: M\n"
    )


def test_place_in_an_include(kernelgen, tmp_path):
    """A clause of an include is reported where it stands in the include."""
    path = variant(tmp_path, ('#include "plain_types.cuh"', '#include "plain_types.cuh"\n#include "clause.cuh"'))
    (tmp_path / "clause.cuh").write_text("// head\n\n  REQUIRE(MISSING % 2 == 0)\n")
    done = kernelgen("-o", tmp_path / "out.c", path)
    assert done.stderr == (
        f"{tmp_path}/clause.cuh:3:3: error[A0904]: REQUIRE: unknown name MISSING: MISSING % 2 == 0 (template plain)\n"
    )
    assert done.returncode == 3


FRAGMENT = """// what both share
PARAM(MATRICES, 1, 2)
FORMULA(twice(int n), 2 * n)
FORMULA(bytes(int n, int m), twice(n + m) * max(n, 4))
DIM(ROWS, 1)
DIM(K, 576)
DIM(N, 960)
DTYPES(WT, bf16, f32)
ATTR_FLOAT(EPS, 1e-5f)
ATTR_INT(NORM_ONE, 0)
#if MATRICES == 1
FLAG(BIAS)
FORMULA(biases(), BIAS)
#else
FLAG(BIAS)
FORMULA(biases(), 2 * BIAS)
#endif
TUNE(WARPS, 4, 8)
REQUIRE(K % twice(4) == 0)
SMEM(bytes(WARPS, K - 1))
FLOPS(twice(ROWS * N * K) * MATRICES + biases() - twice(N))
"""


def test_fragment(kernelgen, tmp_path):
    """Two templates, one fragment: formulas and parameters are written out, and places are those of the fragment."""
    start, end = GOOD.index("DIM(ROWS"), GOOD.index("struct Args")
    rest = (
        "ORDER(chain)\nGRID(ceil_div(N, 32 * WARPS), ROWS, 1)\nBLOCK(32 * WARPS)\nREADS(N * K)\nWRITES(ROWS * N * 2)\n"
    )
    paths = []
    for name, matrices in (("one", 1), ("two", 2)):
        text = GOOD[:start] + f'#define MATRICES {matrices}\n#include "fragment.cuh"\n' + rest + GOOD[end:]
        paths.append(tmp_path / f"{name}.cu")
        paths[-1].write_text(text.replace("KERNEL(plain", f"KERNEL({name}").replace("plain(const", f"{name}(const"))
    shutil.copy(HERE / "plain_types.cuh", tmp_path)
    (tmp_path / "fragment.cuh").write_text(FRAGMENT)
    out = tmp_path / "out.c"
    done = kernelgen("-o", out, *paths)
    assert (done.returncode, done.stderr) == (0, "")
    table = out.read_text()
    assert re.findall(r'\{("K %.*?)\},', table) == [f'"K % (2 * 4) == 0", "{tmp_path}/fragment.cuh", 19, 0, 0'] * 2
    assert re.findall(r'\.smem = "(.*?)"', table) == ["(2 * (WARPS + (K - 1))) * max(WARPS, 4)"] * 2
    assert re.findall(r'\.flops = "(.*?)"', table) == [
        "(2 * (ROWS * N * K)) * 1 + BIAS - (2 * N)",
        "(2 * (ROWS * N * K)) * 2 + (2 * BIAS) - (2 * N)",
    ]
    (tmp_path / "fragment.cuh").write_text(FRAGMENT.replace("K % twice(4)", "QQ % twice(4)"))
    done = kernelgen("-o", out, *paths)
    assert done.stderr.splitlines() == [
        f"{tmp_path}/fragment.cuh:19:1: error[A0904]: REQUIRE: unknown name QQ: QQ % (2 * 4) == 0 (template {name})"
        for name in ("one", "two")
    ]


def test_code_of_a_fragment(kernelgen, tmp_path):
    """What a kernel reaches is its code: of a contract, in a fragment or not, nothing; of formulas those that code calls."""
    start, end = GOOD.index("DIM(ROWS"), GOOD.index("struct Args")
    rest = (
        "ORDER(chain)\nGRID(ceil_div(N, 32 * WARPS), ROWS, 1)\nBLOCK(32 * WARPS)\nREADS(N * K)\nWRITES(ROWS * N * 2)\n"
    )
    apart = GOOD[:start] + '#define MATRICES 1\n#include "fragment.cuh"\n' + rest + GOOD[end:]
    called = ("float sum = 0.0f;", "float sum = twice(0);")
    shutil.copy(HERE / "plain_types.cuh", tmp_path)

    def code(text: str, fragment: str = FRAGMENT) -> str:
        (tmp_path / "plain.cu").write_text(text)
        (tmp_path / "fragment.cuh").write_text(fragment)
        done = kernelgen("-o", tmp_path / "out.c", tmp_path / "plain.cu")
        assert (done.returncode, done.stderr) == (0, "")
        return re.search(r"\.code_sha256 = \{([^}]*)\}", (tmp_path / "out.c").read_text())[1]

    other_formula = FRAGMENT.replace("twice(int n), 2 * n", "twice(int n), n * 2")
    other_words = FRAGMENT.replace("2 * BIAS", "3 * BIAS").replace("REQUIRE(K", "REQUIRE(N")
    plain = code(GOOD)
    assert code(apart) == plain == code(apart, other_formula) == code(apart, other_words)
    calls = code(apart.replace(*called))
    assert calls != plain
    assert calls == code(apart.replace(*called), other_words)
    assert calls != code(apart.replace(*called), other_formula)
    assert code(apart, FRAGMENT.replace("#else\n", "#define BIAS_OF(a, n) bias_of(a, n + 1)\n#else\n")) == plain


def test_missing_include(kernelgen, tmp_path):
    path = variant(tmp_path, ('"plain_types.cuh"', '"no_such.cuh"'))
    done = kernelgen("-o", tmp_path / "out.c", path)
    assert done.stderr.splitlines()[0] == f"{path}:6:10: error[A0901]: 'no_such.cuh' file not found"
    assert done.returncode == 4


def test_syntax_error(kernelgen, tmp_path):
    path = variant(tmp_path, ("float square = 0.0f;", "float square = 0.0f"))
    done = kernelgen("-o", tmp_path / "out.c", path)
    number = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "float square" in text)
    assert done.stderr.splitlines()[0].startswith(f"{path}:{number}:")
    assert "error[A0901]: expected ';' at end of declaration" in done.stderr
    assert done.returncode == 4


def test_all_offences_at_once(kernelgen, tmp_path):
    """One run names the offences of every file."""
    first = tmp_path / "first"
    second = tmp_path / "second"
    first.mkdir(), second.mkdir()
    a = variant(first, ("ARCH(80, 90a)\n", ""), ("FLOPS(2 *", "FLOPS(Q *"))
    b = variant(second, ("KERNEL(plain, norm_linear)\n", "\n"), name="other.cu")
    done = kernelgen("-o", tmp_path / "out.c", a, b)
    assert [line.split(" ")[0] for line in done.stderr.splitlines()] == [
        place(a, "KERNEL(") + ":",
        place(a, "FLOPS(") + ":",
        f"{b}:1:1:",
    ]


def test_two_kernels_of_one_name(kernelgen, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    a, b = variant(first), variant(second)
    done = kernelgen("-o", tmp_path / "out.c", a, b)
    assert done.stderr == f"{place(b, 'KERNEL(')}: error[A0906]: kernel plain is defined in {a} too\n"
    assert done.returncode == 3


def test_two_files_of_one_name(kernelgen, tmp_path):
    """Includes are known to NVRTC by base name, so two different ones of one name are refused."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    a = variant(first)
    b = variant(
        second, ("KERNEL(plain,", "KERNEL(other,"), ("plain(const Args a)", "other(const Args a)"), name="other.cu"
    )
    (second / "plain_types.cuh").write_text((HERE / "plain_types.cuh").read_text() + "// more\n")
    done = kernelgen("-o", tmp_path / "out.c", a, b)
    assert done.stderr == (
        f"{second}/plain_types.cuh:1:1: error[A0906]: a file of this name is also at {first}/plain_types.cuh "
        "(template other)\n"
    )


def test_usage(kernelgen, tmp_path):
    for args in ([], ["-o"], ["-x", "y", "z.cu"], [HERE / "plain.cu"]):
        done = kernelgen(*args)
        assert done.returncode == 2
        assert done.stderr == "usage: kernelgen -o OUT.c [-I DIR] FILE.cu...\n"
    done = kernelgen("-o", tmp_path / "out.c", tmp_path / "absent.cu")
    assert done.returncode == 4
    assert str(tmp_path / "absent.cu") in done.stderr
    done = kernelgen("-o", tmp_path / "no" / "such" / "out.c", HERE / "plain.cu")
    assert done.returncode == 5
    assert done.stderr == f"{tmp_path}/no/such/out.c: error[A0103]: No such file or directory\n"


def code_of(text):
    """Each token after a blank, or after a line's end where the preprocessor needs one."""
    text = re.sub(
        r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|//[^\n]*|/\*.*?\*/""", lambda m: m[1] or " ", text, flags=re.S
    )
    token = r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\.?\d(?:[eEpP][+-]|[\w.])*|\w+|\.\.\.|<<=|>>=|->\*|::|->|\+\+|--|&&
        |\|\||<<|>>|[-+*/%&|^<>=!]=|\#\#|\S)"""
    out, out_ends_directive = "", False
    for line in text.replace("\\\n", " ").split("\n"):
        tokens = re.findall(token, line, re.X)
        if tokens:
            out += ("\n" if tokens[0] == "#" or out_ends_directive else " ") + " ".join(tokens)
            out_ends_directive = tokens[0] == "#"
    return out


def test_hash_is_of_the_code(kernelgen, tmp_path):
    """Comments and the place of line ends are nothing to it, every token is."""
    hashes = []
    for i, change in enumerate(
        [
            ("// what ", "// a longer word on what "),
            ("DIM(ROWS", "\n\t /* rows */  DIM(ROWS"),
            ("sum / K + EPS", "sum / K + (EPS)"),
        ]
    ):
        folder = tmp_path / str(i)
        folder.mkdir()
        done = kernelgen("-o", folder / "t.c", variant(folder, change, name="plain.cu"))
        assert (done.returncode, done.stderr) == (0, "")
        hashes.append(re.search(r"\.source_sha256 = \{([^}]*)\}", (folder / "t.c").read_text())[1])
    assert hashes[0] == hashes[1] != hashes[2]


def test_table_is_reproducible(kernelgen, tmp_path):
    """Same bytes whatever the order of the files; the C compiler takes it; sources arrive unchanged."""
    other = variant(
        tmp_path,
        ("KERNEL(plain,", "KERNEL(another,"),
        ("plain(const Args a)", "another(const Args a)"),
        ("// what ", '// "quotes" \\ ??= \t\x07 \u00e9 what '),
        name="another.cu",
    )
    tables = []
    for i, files in enumerate([(HERE / "plain.cu", other), (other, HERE / "plain.cu")]):
        done = kernelgen("-o", tmp_path / f"{i}.c", *files)
        assert (done.returncode, done.stderr) == (0, "")
        tables.append((tmp_path / f"{i}.c").read_bytes())
    assert tables[0] == tables[1]
    (tmp_path / "main.c").write_text("""
#include "compiler/ir.h"
#include <stdio.h>
int main(void)
{
	for (int i = 0; i < n_kernel_table; i++) {
		printf("%s %s", kernel_table[i].name, kernel_table[i].sources[0]);
		for (int j = 0; j < 32; j++)
			printf("%s%02x", j ? "" : " ", kernel_table[i].source_sha256[j]);
		putchar('\\n');
	}
	for (int i = 0; i < n_template_sources; i++)
		printf("%s\\n%s%c", template_sources[i].name, template_sources[i].text, 0);
	return 0;
}
""")
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            HERE.parent.parent,
            "-o",
            tmp_path / "show",
            tmp_path / "main.c",
            tmp_path / "0.c",
        ],
        check=True,
    )
    shown = subprocess.run([tmp_path / "show"], check=True, capture_output=True).stdout.decode()
    head, rest = shown.split("shared/contract.cuh\n", 1)
    sources = dict(
        text.split("\n", 1) for text in (head.split("\n", 2)[2] + "shared/contract.cuh\n" + rest).split("\0") if text
    )
    templates = HERE.parent.parent / "kernels" / "templates"
    assert sources == {
        "another.cu": other.read_text(),
        "shared/contract.cuh": (templates / "shared/contract.cuh").read_text(),
        "plain.cu": GOOD,
        "plain_types.cuh": (HERE / "plain_types.cuh").read_text(),
    }
    # The hash, computed again: itself, then its includes by name, each as name, 0, code, 0.
    import hashlib

    for line, names in zip(head.splitlines()[:2], (["another.cu"], ["plain.cu"])):
        digest = hashlib.sha256()
        for name in names + ["plain_types.cuh", "shared/contract.cuh"]:
            digest.update(name.encode() + b"\0" + code_of(sources[name]).encode() + b"\0")
        assert line == f"{names[0][:-3]} {names[0]} {digest.hexdigest()}"


def test_no_card_is_in_a_contract(atlasc, repo):
    """How many multiprocessors a card has, or half of them, is SMS in contracts: no count of compiler/pick/targets.c."""
    rows = re.findall(r'\{"sm_\w+", +\d+, \d, \w+, +(\d+),', (repo / "compiler" / "pick" / "targets.c").read_text())
    assert len(rows) == 6
    counts = {int(n) for n in rows if int(n) > 100}  # 48 of a small one is a number of columns too
    counts |= {n // 2 for n in counts}
    found = []
    for kernel in json.loads(atlasc("kernels", "--json").stdout)["kernels"]:
        formulas = [r["text"] for r in kernel["requires"]] + [*kernel["grid"], kernel["block"], kernel["pieces"]]
        found += [(kernel["name"], f) for f in formulas if counts & {int(n) for n in re.findall(r"\b\d+\b", f)}]
    assert found == []


def test_kernels_command(atlasc, repo):
    """`atlasc kernels` names every template of the folder, as text and as JSON."""
    names = sorted(path.stem for path in (repo / "kernels" / "templates").rglob("*.cu"))
    done = atlasc("kernels", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["schema_version"] == 1
    assert [k["name"] for k in data["kernels"]] == names
    text = atlasc("kernels")
    assert text.returncode == 0
    heads = [line.split(":")[0] for line in text.stdout.splitlines() if not line.startswith(" ")]
    assert heads == names
    for kernel in data["kernels"]:
        lines = (repo / kernel["file"]).read_text().splitlines()
        assert lines[kernel["line"] - 1].startswith(f"KERNEL({kernel['name']}, {kernel['op']})")
        for require in kernel["requires"]:
            clause = atlasc_texts.clause_at(require["file"], require["line"])
            word = "PRUNE(" if require["is_pruning"] else "PREFER(" if require["is_preference"] else "REQUIRE("
            assert clause.startswith(word)
            assert atlasc_texts.clause_states(clause, require["text"]), (clause, require["text"])
        stated = re.findall(r"^ORDER\(([a-z]\w*)", (repo / kernel["file"]).read_text(), re.M)
        orders = [order["name"] for order in kernel["orders"]]
        assert orders and set(stated) <= set(orders)  # a fragment may state more
        for field in kernel["fields"]:
            line = (repo / field["file"]).read_text().splitlines()[field["line"] - 1]
            assert re.search(rf"\b{field['name']}[,)]", line)
        places = sorted(
            [(f["offset"], 8, 8) for f in kernel["fields"]] + [(m["offset"], 128, 64) for m in kernel["maps"]]
        )
        end = 0
        for offset, size, alignment in places:  # no gaps but those of alignment
            assert offset == -(-end // alignment) * alignment
            end = offset + size
        assert kernel["param_bytes"] == (-(-end // 64) * 64 if kernel["maps"] else end)
        assert "sm_80" in kernel["targets"] if "80" in kernel["archs"] else True
