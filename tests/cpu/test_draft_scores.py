"""[speculate] head, vocabulary and vocabulary_file: drafts are scored by a copy of rows of the head, texts are the same.

The fixture's head is trained (tests/fixtures/qwen3_5_moe-trained). What drafts read is held against the rows of lm_head
in its file, and codes against ml_dtypes.
"""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from test_requant import round_trip
from test_speculate import FIXTURES, PENALTIES, PROMPTS, SAMPLED, TRAINED, answers, mkckpt, spec_run  # noqa: F401

from container import decode, read_safetensors  # in the folder of mkckpt

VOCAB, IDS = 512, sorted({3 * i * i % 509 for i in range(300)} | {0, 1, 2, 511})
SOME = {
    "fp8-block": 'head = "fp8-block"',
    "200": "vocabulary = 200",
    "listed": 'vocabulary_file = "ids.txt"',
    "nvfp4 of 300": 'vocabulary = 300\nhead = "nvfp4"',
    "fp8-channel, listed": 'head = "fp8-channel"\nvocabulary_file = "ids.txt"',
}


def write_toml(folder, lines, rows=3, more="", listed=IDS):
    """MODEL.toml with these lines under [speculate], and beside it the list."""
    (folder / "ids.txt").write_text("".join(f"{i}\n" for i in listed))
    rows = f"rows = {rows}\n" if rows else ""
    (folder / "m.toml").write_text(
        f"[runtime]\nslots = 4\nmax_context = 96\n[kv]\npage = 16\n[phases]\nprefill = [64]\n"
        f"decode = [4]\n{more}[speculate]\n{rows}{lines}\n"
    )
    return folder / "m.toml"


@pytest.fixture
def plan(atlasc, tmp_path):
    def made(lines, *options, checkpoint=TRAINED, **changes):
        out = tmp_path / "p.bin"
        toml = write_toml(tmp_path, lines, **changes)
        run = atlasc(checkpoint, "--target", "none", "--model", toml, "-o", out, *options)
        assert run.returncode == 0, run.stderr
        return out

    return made


@pytest.mark.parametrize("options", [[], SAMPLED + PENALTIES], ids=["greedy", "sampled"])
def test_texts_are_equal(plan, answers, capsys, options):  # noqa: F811
    plain, _ = answers(plan(""), PROMPTS, "-n", 60, "--speculate", "off", *options)
    shares = {}
    for name, lines in {"all": "", **SOME}.items():
        got, told = answers(plan(lines), PROMPTS, "-n", 60, *options)
        assert got == plain, name
        assert 0 < told["accepted"] < told["drafts"]
        shares[name] = told["accepted"] / told["drafts"]
    with capsys.disabled():
        print("\naccepted:", ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    assert abs(shares["fp8-block"] - shares["all"]) < 0.05, "so little does e4m3 change"
    assert shares["200"] < shares["all"] and shares["listed"] < shares["all"]


@pytest.mark.parametrize("rows", [2, 4])
def test_sequences_come_and_go(plan, spec_run, rows):  # noqa: F811
    told = spec_run(
        "soak", plan(SOME["fp8-channel, listed"], rows=rows, more="[sampling]\nstop = [14, 261]\n"), 150, rows
    )
    assert told["several"] > 5 and 0 < told["accepted"] < told["drafts"] and told["allocations"] <= 0, told


def scores(spec_run, path):  # noqa: F811
    return spec_run("drafts", path, *load_file(TRAINED / "mtp.safetensors")["p0.input_ids"])


@pytest.mark.parametrize("name", SOME)
def test_scores_are_those_of_the_rows(plan, spec_run, name):  # noqa: F811
    """The first draft's: the hidden row behind it is found from all scores and the head's rows, by least squares."""
    dtype, shape, raw = read_safetensors(TRAINED / "model.safetensors")["lm_head.weight"]
    head = decode(raw, dtype, shape).astype(np.float64)
    full = scores(spec_run, plan(""))
    hidden = np.linalg.lstsq(head, np.array(full["logits"][0]), rcond=None)[0]
    got = scores(spec_run, plan(SOME[name]))
    ids = IDS if "listed" in name else list(range(int(name.split()[-1]) if name[-1] == "0" else VOCAB))
    kind = name.split(",")[0].split()[0]
    rows = head[ids].astype(np.float32)
    if kind in ("fp8-block", "fp8-channel", "nvfp4"):
        rows = round_trip(rows, kind, 128)
        assert not np.array_equal(rows, head[ids])
    want = rows.astype(np.float64) @ hidden
    assert [len(row) for row in got["logits"]] == [len(ids)] * 2
    assert np.max(np.abs(got["logits"][0] - want)) < 1e-5 * np.max(np.abs(want))
    assert got["next"] == full["next"] and got["drafts"][0] == ids[int(np.argmax(want))]


# heads that know nothing are hardly ever right; texts are those of plain decoding all the same
FORMS = {"tied": {"tied": True, "missing": ["lm_head.weight"]}} | {
    form: {} for form in ("fp8-block", "fp8-tensor", "fp8-channel", "nvfp4", "mxfp4")
}
WRITERS = {"fp8-block": "fp8", "fp8-channel": "ct"}


def write_form(folder, form):
    """A checkpoint with a tied head, or one in a format."""
    knob = {**mkckpt.recipes()["mtp-of-next"], "hidden": 128, "layers": 2, **FORMS[form]}
    if form != "tied":
        knob["quant"] = {
            "writer": WRITERS.get(form, "modelopt"),
            "formats": {"lm_head": form},
            "ignore": [],
            "block": [64, 64],
        }
    mkckpt.build(knob).write(folder)
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_the_head(atlas, atlasc, plan, spec_run, answers, tmp_path, form):  # noqa: F811
    """The first rows of whatever it is: their scores are the first of all. 100 ends within a block of 64."""
    checkpoint = write_form(tmp_path / "m", form)
    full, few = (spec_run("drafts", plan(lines, checkpoint=checkpoint), 5, 9, 20) for lines in ("", "vocabulary = 100"))
    assert full["next"] == few["next"] and len(few["logits"][0]) == 100
    assert few["logits"][0] == full["logits"][0][:100]
    for lines in ("vocabulary = 100", 'head = "fp8-tensor"\nvocabulary = 70', 'vocabulary_file = "ids.txt"'):
        if form != "tied" and lines != "vocabulary = 100":
            told = refusal(atlasc, tmp_path, lines, checkpoint=checkpoint, listed=range(1, 90, 4))
            key = lines.split()[0]
            assert f"error[A0304]: speculate.{key}: lm_head is " in told and " in the checkpoint, and only " in told
            assert told.count("error[") == 1
            continue
        path = plan(lines, checkpoint=checkpoint, listed=range(1, 90, 4))
        plain, got = (
            answers(path, ["abc def", "x"], "-n", 20, *SAMPLED, *how)[0] for how in (["--speculate", "off"], [])
        )
        assert got == plain


@pytest.mark.parametrize(
    "lines, key, at", [("vocabulary = 64", "vocabulary", "11:14"), ('head = "nvfp4"', "head", "11:8")]
)
def test_a_head_in_int4(atlasc, tmp_path, lines, key, at):
    """Where it is to be cut it is refused with the line that asks for it, as a copy in codes is."""
    quant = {"writer": "ct", "formats": {"lm_head": "int4"}, "group": 64}
    mkckpt.build({**mkckpt.recipes()["mtp-of-next"], "hidden": 128, "layers": 2, "quant": quant}).write(tmp_path / "m")
    told = refusal(atlasc, tmp_path, lines, checkpoint=tmp_path / "m")
    assert f"m.toml:{at}: error[A0304]: speculate.{key}: lm_head is INT4 in the checkpoint" in told
    assert told.count("error[") == 1, "the head's other tensors are none that nobody uses"


def test_what_a_plan_records(plan, atlas, atlasc, tmp_path):
    path = plan('vocabulary_file = "ids.txt"\nhead = "fp8-block"')
    sbom = json.loads(atlas("info", path, "--sbom").stdout)
    digest = hashlib.sha256((tmp_path / "ids.txt").read_bytes()).hexdigest()
    assert digest in json.dumps(sbom) and "ids.txt" in json.dumps(sbom)
    again = tmp_path / "again.bin"
    path.rename(again)
    plan(f'vocabulary_file = "{tmp_path}/ids.txt"\nhead = "fp8-block"')
    assert path.read_bytes() == again.read_bytes(), "where the list lies is no input"
    run = atlas("diff", again, plan("vocabulary = 200"))
    assert run.returncode == 1
    for text in "speculate.vocabulary", "speculate.vocabulary_file", "speculate.head", "atlas.lm_head.draft.codes":
        assert text in run.stdout, run.stdout


def test_all_ids_are_the_head_itself(plan):
    assert abs(plan(f"vocabulary = {VOCAB}").stat().st_size - plan("").stat().st_size) < 4096, "no copy"


@pytest.mark.parametrize(
    "lines", ["vocabulary = 100", 'vocabulary_file = "ids.txt"', 'head = "nvfp4"\nvocabulary = 90']
)
def test_random_weights(plan, atlas, lines):
    """Of a head that they are to make up for the option alone."""
    path = plan(lines, "--random-weights", checkpoint=TRAINED / "config.json", rows=0)
    words = ["--tokens", "1,2,3", "-n", 12, "--temperature", 1, "--seed", 3, "--device", "cpu", "--json", "-q"]
    plain, got = (json.loads(atlas("run", path, *words, "--speculate", how).stdout) for how in ("off", "mtp"))
    assert got["results"] == plain["results"] and got["speculate"]["drafts"] > 0


def test_first_rows_by_reference(plan, answers):  # noqa: F811
    """They are a range of the checkpoint's file."""
    got = answers(plan("vocabulary = 200", "--weights", "ref"), PROMPTS, "-n", 20, "--weights", TRAINED)[0]
    assert got == answers(plan(""), PROMPTS, "-n", 20)[0]


def test_calibrate_drafts_nothing(atlasc, tmp_path):
    shutil.copytree(TRAINED, tmp_path / "m")
    made = []
    for lines in "", 'head = "fp8-block"\nvocabulary_file = "ids.txt"':
        write_toml(tmp_path / "m", lines).rename(tmp_path / "m" / "MODEL.toml")
        made.append(tmp_path / f"{len(made)}.safetensors")
        run = atlasc("calibrate", tmp_path / "m", "--text", TRAINED / "heldout.txt", "-o", made[-1])
        assert run.returncode == 0, run.stderr
    assert made[0].read_bytes() == made[1].read_bytes()


# -- what is refused -----------------------------------------------------------------------------------------------


def refusal(atlasc, folder, lines, *options, checkpoint=TRAINED, **changes):
    run = atlasc(
        checkpoint,
        "--target",
        "none",
        "--model",
        write_toml(folder, lines, **changes),
        "--dry-run",
        *options,
        cwd=folder,
    )
    assert run.returncode == 4, run.stderr
    return run.stderr


@pytest.mark.parametrize(
    "lines, message",
    [
        ("vocabulary = 0", "error[A0303]: speculate.vocabulary = 0: expected an integer from 1 to "),
        ("vocabulary = -5", "error[A0303]: speculate.vocabulary = -5: expected an integer from 1 to "),
        ("vocabulary = 513", "error[A0304]: speculate.vocabulary = 513: vocab_size = 512 ("),
        ('vocabulary = "all"', 'error[A0303]: speculate.vocabulary = "all": expected an integer'),
        (
            'head = "int8"',
            'error[A0303]: speculate.head = "int8": expected fp8-block, fp8-channel, fp8-tensor, nvfp4 or mxfp4',
        ),
        ('head = "keep"', 'error[A0303]: speculate.head = "keep": expected fp8-block'),
        ("head = 8", "error[A0303]: speculate.head = 8: expected a string"),
        ('vocabulary_file = "none.txt"', "error[A0102]: speculate.vocabulary_file: there is no file "),
        ('vocabulary_file = ""', 'error[A0303]: speculate.vocabulary_file = "": expected the name of a file'),
        (
            'vocabulary = 5\nvocabulary_file = "ids.txt"',
            "error[A0304]: speculate.vocabulary_file and speculate.vocabulary (",
        ),
        ("vocabulry = 5", "error[A0302]: unknown key speculate.vocabulry: did you mean speculate.vocabulary?"),
    ],
)
def test_values_that_cannot_be(atlasc, tmp_path, lines, message):
    assert message in refusal(atlasc, tmp_path, lines)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1\n2\n2\n", "list.txt:3:1: error[A0306]: 2 after 2: expected ascending ids, each once"),
        ("7\n3\n", "list.txt:2:1: error[A0306]: 3 after 7: expected ascending ids, each once"),
        ("7\n512\n", "list.txt:2:1: error[A0306]: 512: the model has token ids 0 to 511"),
        ("7\n-3\n", 'list.txt:2:1: error[A0306]: "-3": expected a token id'),
        ("7\n\n9\n", 'list.txt:2:1: error[A0306]: "": expected a token id'),
        ("7 9\n", 'list.txt:1:1: error[A0306]: "7 9": expected a token id'),
        ("99999999999999999999\n", 'list.txt:1:1: error[A0306]: "99999999999999999999": expected a token id'),
        ("", "list.txt: error[A0306]: there is not a token id in it"),
    ],
)
def test_lists_that_are_none(atlasc, tmp_path, text, message):
    (tmp_path / "list.txt").write_text(text)
    assert message in refusal(atlasc, tmp_path, 'vocabulary_file = "list.txt"')


LINES = {
    "head": ('head = "fp8-block"', 'speculate.head = "fp8-block"'),
    "vocabulary": ("vocabulary = 64", None),
    "vocabulary_file": ('vocabulary_file = "ids.txt"', 'speculate.vocabulary_file = "ids.txt"'),
}


@pytest.mark.parametrize("key", LINES)
def test_where_no_head_drafts(atlasc, tmp_path, key):
    lines, text = LINES[key]
    text = text or "speculate.vocabulary = 64"
    assert f"error[A0304]: {text}: llama has no drafting head; the families" in refusal(
        atlasc, tmp_path, lines, checkpoint=FIXTURES / "llama", rows=0
    )
    assert f"error[A0304]: {text}: the checkpoint has no head to draft with: no tensor mtp.*" in refusal(
        atlasc, tmp_path, lines, checkpoint=FIXTURES / "qwen3_5_moe", rows=0
    )
    assert f"error[A0304]: {text}: speculate.rows = 1 (" in refusal(atlasc, tmp_path, lines, rows=1)


def test_by_reference(atlasc, tmp_path):
    """Only what stands together in the checkpoint's files."""
    told = refusal(atlasc, tmp_path, 'head = "nvfp4"', "--weights", "ref")
    assert 'error[A0304]: speculate.head = "nvfp4": --weights ref uses the checkpoint' in told
    told = refusal(atlasc, tmp_path, 'vocabulary_file = "ids.txt"', "--weights", "ref")
    assert "error[A0304]: speculate.vocabulary_file: with --weights ref the weights are those" in told
