"""CONTRIBUTING.md is true: the files that it lists for a chore exist, and a small chore of most kinds, done in a clean
clone with those files alone, has its effect. Not done: a weight format (kernels, a writer) and a target."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import pytest
from clean_clone import clean_clone, make, tracked

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
ARTICLE = re.compile(r"^\*\*(?:An? )?([^*]+?)\.\*\* (.*?)(?=\n\n)", re.M | re.S)
CHORES = dict(ARTICLE.findall((REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")))
VERB = """/* verb_greet.c - atlas greet: a sample. */
#include "runtime/cli/cli.h"

int verb_greet(const Args *args)
{
	return puts(args->plan) < 0;
}
"""
CHECK = '#!/bin/bash\n# A sample.\n[ -d "$1" ]\n'

# Chore: {file: [(what is there, what goes before it)]} or {new file: its text, or the file that it is a copy of and what
# is replaced in it}.
SAMPLES = {
    "graph op": {  # from the graph to a GPU
        "artifacts/ops.h": [
            (
                "OP(sample, OP_GRAPH",
                'OP(bound, OP_GRAPH, "BOUND", "y = BOUND tanh(x / BOUND)",\n'
                '\tIN(floats, x, "ROWS, N"), OUT(floats, y, "ROWS, N"))\n',
            )
        ],
        "artifacts/attrs.h": [("ATTR(BLOCK_N,", 'ATTR(BOUND, bound, float, "most that bound leaves of a value")\n')],
        "runtime/cpu/ref_ops.c": [
            (
                "void ref_swiglu(",
                "void ref_bound(const RefCall *c)\n{\n"
                '\tfor (int64_t i = 0; i < ref_dim(c, "x", 0) * ref_dim(c, "x", 1); i++)\n'
                '\t\tref_floats(c, "y")[i] = c->attrs.bound * tanhf(ref_floats(c, "x")[i] / c->attrs.bound);\n}\n\n',
            )
        ],
        "models/decoder/decoder.c": [
            ("\treturn d_after(c, d, l, x, y, NAME_MLP_POST_NORM,", "\ty = bounded(c, l, y);\n"),
            (
                "int d_mlp(Compile *c,",
                "static int bounded(Compile *c, int l, int x)\n{\n"
                '\tint y = d_act(c, l, "bounded", DT_bf16, c->model.config.hidden_dim);\n'
                "\tg_op(c, OP_bound, l, BOTH, &(Attrs){.bound = 40}, (int[]){x, y});\n\treturn y;\n}\n\n",
            ),
        ],
        "kernels/templates/plain/plain_bound.cu": (
            "kernels/templates/plain/plain_soft_cap.cu",
            [
                ("KERNEL(plain_soft_cap, soft_cap)", "KERNEL(plain_bound, bound)"),
                (" plain_soft_cap(", " plain_bound("),
                ("ATTR_FLOAT(CAP,", "ATTR_FLOAT(BOUND,"),
                (
                    "float(CAP) * tanhf(to_f32(a.x[row + n]) / float(CAP))",
                    "float(BOUND) * tanhf(to_f32(a.x[row + n]) / float(BOUND))",
                ),
            ],
        ),
    },
    "kernel template": {
        "kernels/templates/rows/gate_again.cu": (
            "kernels/templates/rows/gate_rows.cu",
            [("KERNEL(gate_rows,", "KERNEL(gate_again,"), ("(256) gate_rows(", "(256) gate_again(")],
        )
    },
    "model family": {
        "models/sample.toml": (
            "models/llama.toml",
            [('name = "llama"', 'name = "sample"'), ('["llama"]', '["sample"]'), ('["Llama', '["Sample')],
        )
    },
    "verb of atlas": {
        "runtime/cli/inspect/verb_greet.c": VERB,
        "runtime/cli/cli.h": [("VerbFn verb_run,", "VerbFn verb_greet;\n")],
        "runtime/cli/atlas_main.c": [('\t{"diff", "compare two', '\t{"greet", "a sample", verb_greet, NULL, 1},\n')],
        "runtime/cli/cli_options.c": [
            ("\tCOMPUTES = RUN", "\tGREET = 1 << 30,\n"),
            ('\t{"sign", SIGN}', '\t{"greet", GREET},\n'),
        ],
    },
    "option of atlas": {
        "runtime/cli/cli.h": [("\tbool all, sbom, ", "\tbool loudly;\n")],
        "runtime/cli/cli_options.c": [
            ('\t{"--all", 0, DIFF,', '\t{"--loudly", 0, GREET, NULL, "a sample", FLAG, FIELD(loudly), 0, 0},\n')
        ],
    },
    "option of atlasc": {
        "compiler/commands/command_line.c": [
            ("\tF_OUTPUT, F_MODEL,", "\tF_SAMPLE,\n"),
            ("\t[F_OUTPUT] = {", '\t[F_SAMPLE] = {"--sample", 0, NULL, "a sample"},\n'),
            ("\tcase F_HASH:", "\tcase F_SAMPLE: cmd->sample = true; break;\n"),
        ],
        "compiler/ir.h": [("\tbool hash_files; ", "\tbool sample;\n")],
    },
    "API of atlas serve": {
        "runtime/serve/apis.c": [
            (
                '\t{\n\t\t.path = "/v1/messages"',
                '\t{.path = "/v1/sample", .read = api_read_completions, .put_error = api_put_error, .prompt = "prompt",\n'
                '\t\t.answer_id = "sample-", .whole = completions_whole},\n',
            )
        ],
        "runtime/serve/routes.c": [
            ('\t{"POST", "/v1/messages", false', '\t{"POST", "/v1/sample", false, generation_start, NULL},\n')
        ],
        "runtime/serve/request.c": [("\t/* Responses */", '\t{"sample", COMPLETIONS, IGNORED, "", ""},\n')],
    },
    "key of MODEL.toml": {
        "compiler/read/option_table.h": [("\tN_OPTIONS,", "\tSAMPLE,\n")],
        "compiler/read/option_table.c": [
            ("\t[STATE_DTYPE] = {", '\t[SAMPLE] = {"runtime.sample", T_COUNT, 1, 9, false, "a sample"},\n')
        ],
        "compiler/read/read_options.c": [
            ("\tconst Value *v = chosen(r, STATE_DTYPE);", "\t(void)chosen(r, SAMPLE);\n")
        ],
    },
    "diagnostic": {
        "compiler/codes.h": [("/* A02xx config.json", 'CODE(A0199, EXIT_USAGE, "sample", "A sample.", "Nothing.")\n')]
    },
    "check of the tree": {"scripts/check_sample.sh": CHECK},
    "section of the plan": {
        "artifacts/plan_write.c": [
            (
                '\tpack_one(add_piece(w, "provenance")',
                '\tpack_one(add_piece(w, "sample"), &origin_schema, a->origins, a->n_origins, true);\n',
            )
        ],
        "artifacts/plan_read.c": [('\t\t"tokenizer", "chat_template", ', '\t\t"sample",\n')],
    },
}


def named(chore: str) -> set[str]:
    """The files that a chore's article names, with the folder NAME.cu or a copy of a named file would be in."""
    return set(re.findall(r"`([\w./-]+/[\w./-]*)`", CHORES[chore]))


def test_every_kind_of_chore_has_its_article():
    assert list(CHORES) == [
        "graph op",
        "kernel template",
        "model family",
        "verb of atlas",
        "API of atlas serve",
        "option of atlas",
        "option of atlasc",
        "key of MODEL.toml",
        "format of tool calls",
        "diagnostic",
        "weight format",
        "check of the tree",
        "section of the plan",
        "target or card",
    ]
    assert all(len(named(chore)) >= 1 for chore in CHORES)


@pytest.mark.parametrize("chore", CHORES)
def test_its_files_exist(repo, chore):
    for name in named(chore):
        if "NAME" not in name:
            assert (repo / name).exists(), f"{chore}: {name} does not exist"


@pytest.mark.parametrize("chore", SAMPLES)
def test_the_sample_needs_no_other_file(chore):
    """A new file is beside one that is named, or is what NAME means."""
    for file in SAMPLES[chore]:
        folder = file.rpartition("/")[0] + "/"
        patterns = [re.escape(name).replace("NAME", r"\w+").replace("ROOM", r"\w+") for name in named(chore)]
        patterns += [re.escape(name) + "[^/]+" for name in named(chore) if name.endswith("/")]
        is_named = any(re.fullmatch(pattern, file) for pattern in patterns)
        is_new = not (REPO / file).exists() and (any(name.startswith(folder) for name in named(chore)))
        assert is_named or is_new, f"CONTRIBUTING.md does not name {file} for: {chore}"


def test_modules_of_tests_have_names_of_their_own(repo):
    """Of two with one name, pytest collects the first alone."""
    names = [name.rsplit("/", 1)[1] for name in tracked(repo) if re.fullmatch(r"tests/.*/test_\w+\.py", name)]
    if not names:
        pytest.skip("not a git checkout")
    assert sorted(names) == sorted(set(names))


def test_every_folder_of_tests_has_a_row(repo):
    rows = re.findall(r"^\| (\w+) \|", (repo / "tests/README.md").read_text(encoding="utf-8"), re.M)
    folders = {name.split("/")[1] for name in tracked(repo) if re.match(r"tests/\w+/.", name)}
    if not folders:
        pytest.skip("not a git checkout")
    assert set(rows) - {"folder"} == folders and rows[1:] == sorted(rows[1:])


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


@pytest.fixture(scope="module")
def changed(repo, tmp_path_factory) -> pathlib.Path:
    """A clean clone with all samples, built."""
    folder = clean_clone(repo, tmp_path_factory.mktemp("chores") / "tree")
    for files in SAMPLES.values():
        for name, what in files.items():
            file = folder / name
            file.parent.mkdir(exist_ok=True)
            if isinstance(what, list):
                text = file.read_text(encoding="utf-8")
                for anchor, new in what:
                    text = replaced(text, anchor, new + anchor)
            elif isinstance(what, tuple):
                text = (folder / what[0]).read_text(encoding="utf-8")
                for old, new in what[1]:
                    text = replaced(text, old, new)
            else:
                text = what
            file.write_text(text, encoding="utf-8")
    (folder / "scripts/check_sample.sh").chmod(0o755)
    got = make(folder, "deps", f"VENV={repo}/build/venv")
    assert got.returncode == 0, got.stderr
    got = make(folder, f"VENV={repo}/build/venv", timeout=1800)
    assert got.returncode == 0, got.stdout + got.stderr
    return folder


@pytest.mark.long
def test_samples_work(changed):
    def said(*words: str, code: int = 0) -> str:
        got = subprocess.run(words, cwd=changed, text=True, capture_output=True, check=False, timeout=600)
        assert got.returncode == code, got.stdout + got.stderr
        return got.stdout

    assert len(SAMPLES["graph op"]) <= 5
    assert "y = BOUND tanh(x / BOUND)" in said("build/atlasc", "--list-ops")
    llama = ("build/atlasc", "tests/fixtures/llama-trained", "--target", "sm_90a", "--stop-after", "pick-kernels")
    assert said(*llama, "-d", "g").count(" bound ") == 4  # of as many layers
    assert "plain_bound " in said(*llama, "-d", "k")
    kernels = json.loads(said("build/atlasc", "kernels", "--json"))["kernels"]
    assert "gate_again" in [kernel["name"] for kernel in kernels]
    assert "--sample " in said("build/atlasc", "--help")
    assert "runtime.sample" in said("build/atlasc", "--help-model")
    assert "A sample." in said("build/atlasc", "explain", "A0199")
    assert "--loudly" in said("build/atlas", "greet", "--help") and "  greet " in said("build/atlas", "--help")
    assert (changed / "build/share/man/man1/atlas-greet.1").stat().st_size > 0
    assert "check check_sample                     1 passed" in said("tests/run", "--only", "checks", code=1)
    model = changed / "of-the-sample"
    shutil.copytree(changed / "tests/fixtures/llama-trained", model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "sample", "architectures": ["SampleForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (model / "MODEL.toml").write_text("[runtime]\nsample = 3\n", encoding="utf-8")
    said("build/atlasc", str(model), "--target", "none", "--sample", "-o", "plan.bin")
    assert b"\xa6sample" in (changed / "plan.bin").read_bytes()
    text = said("build/atlas", "run", "plan.bin", "-p", "In the beginning", "-n", "8", "-q")
    said("build/atlasc", "tests/fixtures/llama-trained", "--target", "none", "-o", "llama.bin")
    assert text == said("build/atlas", "run", "llama.bin", "-p", "In the beginning", "-n", "8", "-q") != ""
