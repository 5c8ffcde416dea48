"""Steps that read fewer drafts where more sequences run, and drafts by n-grams: on the reference device a text is that
of plain decoding, whatever is drafted and however many rows a step has. The programs are `atlas run` and
build/tests/spec_run; what a step should read is worked out here."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
from test_speculate import FIXTURES, PENALTIES, PROMPTS, SAMPLED, TRAINED, answers, spec_run  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))

import mkckpt  # noqa: E402

LADDER = [[1, 4], [2, 3], [3, 2], [4, 1]]
AGAIN = [
    "In the beginning God created the heaven and the earth. And in the beginning God created the",
    "And God said, Let there be light: and God said, Let there be",
    "one two three four one two three four one two three",
    "Blessed",
    "the the the the the the",
]


@pytest.fixture(scope="module")
def plan_with(plan_of, tmp_path_factory):
    """A plan of a checkpoint for the reference device, by a [speculate] table."""
    folder = tmp_path_factory.mktemp("ladder")
    made = {}

    def plan(checkpoint, speculate, *, slots=4, max_context=96, more="", kv=""):
        source = FIXTURES / checkpoint
        key = (checkpoint, speculate, slots, max_context, more, kv)
        if key not in made:
            if not source.exists():
                source = folder / checkpoint
                source.exists() or mkckpt.make(checkpoint, source)
            toml = folder / f"{len(made)}.toml"
            toml.write_text(
                f"[runtime]\nslots = {slots}\nmax_context = {max_context}\n[kv]\npage = 16\n{kv}\n"
                f"[phases]\nprefill = [64]\ndecode = [{slots}]\n[speculate]\n{speculate}\n{more}"
            )
            made[key] = plan_of(source, "--target", "none", "--model", toml)
        return made[key]

    return plan


NGRAM = 'drafter = "ngram"\nrows = 4'
NGRAM_LADDER = 'drafter = "ngram"\nngram = [1, 3]\nladder = [[1, 4], [3, 2]]'
HEAD_LADDER = "ladder = [[1, 4], [2, 3], [3, 2]]"
DRAFTERS = [
    (TRAINED.name, HEAD_LADDER),
    (TRAINED.name, NGRAM),
    (TRAINED.name, NGRAM_LADDER),
    ("llama-trained", NGRAM),
    ("llama-trained", NGRAM_LADDER),
]


@pytest.mark.parametrize("checkpoint, speculate", DRAFTERS)
@pytest.mark.parametrize(
    "options", [[], SAMPLED, PENALTIES, SAMPLED + PENALTIES], ids=["greedy", "sampled", "penalties", "both"]
)
def test_text_is_that_of_plain_decoding(plan_with, answers, checkpoint, speculate, options):  # noqa: F811
    """Five prompts in four slots, tokens and log probabilities."""
    plan = plan_with(checkpoint, speculate)
    plain, none = answers(plan, AGAIN, "-n", 50, "--speculate", "off", *options)
    got, told = answers(plan, AGAIN, "-n", 50, *options)
    assert got == plain and none is None
    assert told["rows"] == 4 and (options != [] or 0 < told["accepted"] <= told["drafts"])


@pytest.mark.parametrize(
    "checkpoint", ["qwen2", "qwen3", "mistral", "qwen3_moe", "qwen3_next", "qwen3_5", "llama-fp8-block"]
)
def test_every_family_drafts_by_ngrams(plan_with, answers, checkpoint):  # noqa: F811
    """Also those with a head, which is left out then."""
    plan = plan_with(checkpoint, NGRAM, max_context=64)
    prompts = ["a b c a b c a b", "x", "some text some text some"]
    for options in [], SAMPLED:
        plain, _ = answers(plan, prompts, "-n", 30, "--speculate", "off", *options)
        assert answers(plan, prompts, "-n", 30, *options)[0] == plain


@pytest.mark.parametrize("dtype", ["fp8", "nvfp4"])
def test_caches_in_codes(plan_with, answers, dtype):  # noqa: F811
    """What a refused draft left in a cache is written over, its block scales too."""
    for checkpoint, speculate in DRAFTERS[0], DRAFTERS[4]:
        plan = plan_with(checkpoint, speculate, kv=f'dtype = "{dtype}"')
        plain, _ = answers(plan, AGAIN, "-n", 40, "--speculate", "off")
        assert answers(plan, AGAIN, "-n", 40)[0] == plain


def ladder_rows(ladder, running):
    return next((rows for slots, rows in ladder if running <= slots), 1)


def test_rows_follow_the_sequences_that_run(plan_with, spec_run):  # noqa: F811
    """They join in mid-text and leave one by one: each step reads as many rows of each as its rung says."""
    told = spec_run("rungs", plan_with(TRAINED.name, HEAD_LADDER), *range(40, 60))
    assert {running for running, _, _ in told["steps"]} == {1, 2, 3, 4}
    for running, rows, phase in told["steps"]:
        assert (phase, rows) == ("verify", running * ladder_rows(LADDER, running)), told["steps"]
    assert 0 < told["accepted"] < told["drafts"]
    counted = sum(running * (ladder_rows(LADDER, running) - 1) for running, _, _ in told["steps"])
    assert told["drafts"] == counted


def test_steps_without_a_match_read_one_row(plan_with, spec_run):  # noqa: F811
    """With n-grams a step has the rows of its rung or, where no text has a draft, one of each sequence."""
    ladder = [[1, 4], [3, 2], [4, 1]]
    told = spec_run("rungs", plan_with(TRAINED.name, NGRAM_LADDER), *range(40, 60))
    seen = set()
    for running, rows, phase in told["steps"]:
        assert phase == "verify" and rows in (running, running * ladder_rows(ladder, running)), told["steps"]
        seen.add((running, rows // running))
    assert seen >= {(1, 4), (2, 2), (3, 2), (4, 1)} and {(1, 1), (2, 1)} & seen, seen
    assert 0 < told["accepted"] < told["drafts"]


@pytest.mark.parametrize("checkpoint, speculate", DRAFTERS)
def test_sequences_come_and_go(plan_with, spec_run, checkpoint, speculate):  # noqa: F811
    """Random prompts, lengths, sampling and cancellations, stop tokens within drafts, contexts that end within a step:
    each text is compared with plain decoding of it alone. No step allocates."""
    stop = "[14, 261]" if speculate == HEAD_LADDER else "[14]"  # later, so that texts come to repeat themselves
    plan = plan_with(checkpoint, speculate, more=f"[sampling]\nstop = {stop}\n")
    told = spec_run("soak", plan, 500, 3)
    assert told["cancelled"] > 5 and told["full"] > 10 and told["several"] > 10 and told["stopped"] > 5, told
    assert 0 < told["accepted"] <= told["drafts"]
    assert told["allocations"] <= 0


@pytest.mark.parametrize("checkpoint, speculate", DRAFTERS)
def test_sequences_in_a_tight_pool(plan_with, spec_run, checkpoint, speculate):  # noqa: F811
    """Pages as needed: some texts are set aside and come back, with what they hold for drafts."""
    plan = plan_with(checkpoint, speculate, kv="pool_tokens = 128")
    told = spec_run("tight", plan, 500, 5)
    assert told["set_aside"] > 0 and told["full"] > 10 and 0 < told["accepted"] <= told["drafts"], told


@pytest.mark.parametrize("checkpoint, speculate", [DRAFTERS[0], DRAFTERS[1], DRAFTERS[3]])
def test_ends_within_a_step(plan_with, answers, checkpoint, speculate):  # noqa: F811
    """Answers of every length, and contexts that end wherever a step is."""
    plan = plan_with(checkpoint, speculate)
    for n in range(1, 8):
        plain, _ = answers(plan, AGAIN[:3], "-n", n, "--speculate", "off")
        assert answers(plan, AGAIN[:3], "-n", n)[0] == plain
        assert [len(a["tokens"]) for a in plain] == [n, n, n]
    for context in range(70, 74):
        plan = plan_with(checkpoint, speculate, max_context=context)
        plain, _ = answers(plan, AGAIN, "-n", 80, "--speculate", "off")
        assert answers(plan, AGAIN, "-n", 80)[0] == plain
        assert "length" in {a["finish"] for a in plain}


@pytest.mark.parametrize("checkpoint, speculate", [DRAFTERS[0], DRAFTERS[2], DRAFTERS[4]])
def test_stop_texts_within_a_step(plan_with, answers, checkpoint, speculate):  # noqa: F811
    plan = plan_with(checkpoint, speculate)
    for text in ["the", ", and"]:
        short, _ = answers(plan, AGAIN, "-n", 40, "--speculate", "off", "--stop", text)
        assert answers(plan, AGAIN, "-n", 40, "--stop", text)[0] == short


def test_prescribed_acceptance(plan_with, atlas, tmp_path):
    """atlas bench on texts without any repetition: drafts count as prescribed, and each rung has its rows."""
    for checkpoint, speculate, how in (
        ("llama-trained", NGRAM_LADDER, "ngram"),
        (TRAINED.name, HEAD_LADDER, "mtp"),
    ):
        run = atlas(
            "bench", plan_with(checkpoint, speculate, max_context=512), "--device", "cpu", "--tokens", 48, "--only",
            "sp48@8x1,sp48@8x3,sp48@8x4", "--speculate", how, "--acceptance", "0.8,0.6,0.5", "--json", tmp_path / "b.json",
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        rows = json.loads((tmp_path / "b.json").read_text())["rows"]
        one, three, four = (row["step_tokens"] for row in rows)
        assert 1.8 < one < 3.2 and 1.55 < three < 2 and four == 1, rows


# -- MODEL.toml, and what is told --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "checkpoint, speculate, place, message",
    [
        (TRAINED.name, "ladder = 3", "2:10", "A0303]: speculate.ladder = 3: expected a list"),
        (TRAINED.name, "ladder = []", "2:10", "A0303]: speculate.ladder = []: expected 1 to 4 pairs"),
        (TRAINED.name, "ladder = [[1, 4], [2]]", "2:19", "A0303]: speculate.ladder[1] = [2]: expected [slots, rows]"),
        (
            TRAINED.name,
            "ladder = [[0, 4]]",
            "2:12",
            "A0303]: speculate.ladder[0][0] = 0: expected an integer from 1 to ",
        ),
        (
            TRAINED.name,
            "ladder = [[1, 1]]",
            "2:15",
            "A0303]: speculate.ladder[0][1] = 1: expected an integer from 2 to 4",
        ),
        (
            TRAINED.name,
            "ladder = [[1, 5]]",
            "2:15",
            "A0303]: speculate.ladder[0][1] = 5: expected an integer from 2 to 4",
        ),
        (
            TRAINED.name,
            "ladder = [[4, 4], [2, 3]]",
            "2:20",
            "A0303]: speculate.ladder[1][0] = 2 after 4: expected ascending slots",
        ),
        (
            TRAINED.name,
            "ladder = [[1, 3], [2, 3]]",
            "2:23",
            "A0303]: speculate.ladder[1][1] = 3 after 3: expected fewer rows for more slots",
        ),
        (
            TRAINED.name,
            "rows = 3\nladder = [[1, 3]]",
            "3:10",
            "A0304]: speculate.ladder and speculate.rows (",
        ),
        (TRAINED.name, 'drafter = "eagle"', "2:11", 'A0303]: speculate.drafter = "eagle": expected "mtp" or "ngram"'),
        ("llama", 'drafter = "eagle"', "2:11", 'A0303]: speculate.drafter = "eagle": expected "mtp" or "ngram"'),
        ("llama", "drafter = 3", "2:11", "A0303]: speculate.drafter = 3: expected a string"),
        (
            TRAINED.name,
            'drafter = "n-gram"\nngram = [2, 3]',
            "2:11",
            'A0303]: speculate.drafter = "n-gram": expected "mtp" or "ngram"',
        ),
        (
            "llama",
            'drafter = "mtp"',
            "2:11",
            'A0304]: speculate.drafter = "mtp": llama has no drafting head; the families that have one are ',
        ),
        ("llama", "ladder = [[1, 3]]", "2:10", "A0304]: speculate.ladder = [[1, 3]]: llama has no drafting head; "),
        (
            "llama",
            'drafter = "ngram"',
            "2:11",
            'A0304]: speculate.drafter = "ngram": expected speculate.rows of at least 2, or speculate.ladder, ',
        ),
        (
            "llama",
            'drafter = "ngram"\nrows = 3\nngram = [3, 2]',
            "4:13",
            "A0303]: speculate.ngram[1] = 2: expected an integer from 3 to 8",
        ),
        (
            "llama",
            'drafter = "ngram"\nrows = 3\nngram = [3]',
            "4:9",
            "A0303]: speculate.ngram = [3]: expected [least, most]",
        ),
        (
            TRAINED.name,
            "ngram = [2, 3]",
            "2:9",
            'A0304]: speculate.ngram = [2, 3]: only speculate.drafter = "ngram" looks for n-grams',
        ),
        (
            TRAINED.name,
            'drafter = "ngram"\nvocabulary = 100',
            "3:14",
            'A0304]: speculate.vocabulary = 100: with speculate.drafter = "ngram" (',
        ),
    ],
)
def test_options_that_cannot_be(atlasc, tmp_path, checkpoint, speculate, place, message):
    toml = tmp_path / "m.toml"
    toml.write_text(f"[speculate]\n{speculate}\n")
    run = atlasc(FIXTURES / checkpoint, "--target", "none", "--model", toml, "--dry-run")
    assert run.returncode == 4 and f"{toml}:{place}: error[{message}" in run.stderr, run.stderr
    assert run.stderr.count("error[") == 1, run.stderr


def test_the_defaults_ask_for_nothing(atlasc, tmp_path):
    """A MODEL.toml may be a copy of models/defaults.toml."""
    toml = tmp_path / "m.toml"
    text = (FIXTURES.parents[1] / "models" / "defaults.toml").read_text()
    toml.write_text(text.replace("max_context = 4096", "max_context = 256"))
    run = atlasc(FIXTURES / "llama", "--target", "none", "--model", toml, "--dry-run")
    assert run.returncode == 0, run.stderr


def test_info_tells_the_ladder(plan_with, atlas):
    cases = [
        (
            (TRAINED.name, HEAD_LADDER),
            ("mtp", LADDER, [0, 0]),
            "up to 3 for each token, by the model's head: verify steps of 4 rows a slot; 3 from 2 slots on, 2 from 3 slots "
            "on, 1 from 4 slots on, which drafts nothing",
            "[[1, 4], [2, 3], [3, 2], [4, 1]]",
        ),
        (
            ("llama-trained", NGRAM),
            ("ngram", [[4, 4]], [2, 4]),
            "up to 3 for each token, by n-grams of 2 to 4 tokens: verify steps of 4 rows a slot",
            None,
        ),
    ]
    for words, (drafter, ladder, ngram), line, option in cases:
        plan = plan_with(*words)
        told = json.loads(atlas("info", plan, "--json").stdout)
        assert (told["drafter"], told["ladder"], told["ngram"], told["verify_rows"]) == (drafter, ladder, ngram, 4)
        assert f"drafts       {line}\n" in atlas("info", plan).stdout
        audited = atlas("audit", plan, "--json")
        assert audited.returncode == 0, audited.stderr
        options = json.loads(audited.stdout).get("options", {})
        if options and option:
            assert options["speculate.ladder"] == option


def test_rungs_beyond_the_slots_are_cut(plan_with, atlas):
    plan = plan_with(TRAINED.name, "ladder = [[2, 4], [16, 3], [64, 2]]", slots=4)
    assert json.loads(atlas("info", plan, "--json").stdout)["ladder"] == [[2, 4], [4, 3]]


@pytest.mark.parametrize(
    "verb",
    [
        ["run", "--tokens", "1,2", "--device", "cpu"],
        ["bench", "--device", "cpu"],
        ["serve", "--device", "cpu"],
        ["receipt"],
    ],
)
def test_a_drafter_that_the_plan_has_not(plan_with, atlas, verb):
    """Every verb that opens a session takes the word as it is said."""
    for words, how, message in [
        (("llama-trained", NGRAM), "mtp", "speculate = mtp: the plan drafts by n-grams, as [speculate] drafter"),
        ((TRAINED.name, HEAD_LADDER), "ngram", "speculate = ngram: the plan has no steps for it; [speculate] drafter"),
    ]:
        run = atlas(verb[0], plan_with(*words), *verb[1:], "--speculate", how, timeout=60)
        assert run.returncode == 4 and f"error[UNSUPPORTED]: {message}" in run.stderr, run.stderr


@pytest.mark.parametrize("checkpoint, speculate", [DRAFTERS[0], DRAFTERS[2], DRAFTERS[4]])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("invariant", [False, True])
def test_gpus_have_kernels_for_all_rungs(atlasc, tmp_path, checkpoint, speculate, target, invariant):
    toml = tmp_path / "m.toml"
    toml.write_text(
        f"[runtime]\nslots = 4\n[speculate]\n{speculate}\n[numerics]\ninvariant = {'true' if invariant else 'false'}\n"
    )
    run = atlasc(FIXTURES / checkpoint, "--target", target, "--model", toml, "--stop-after", "pick-kernels")
    assert run.returncode == 0, run.stderr


def test_a_ladder_without_a_common_order_is_refused(atlasc, tmp_path):
    """Bans leave steps of several rows of a slot no kernel that adds as those of one do."""
    toml = tmp_path / "m.toml"
    toml.write_text(
        "[runtime]\nslots = 4\n[numerics]\ninvariant = true\n[speculate]\nladder = [[1, 4], [3, 2]]\n"
        '[[kernels.pin]]\ntemplate = "attn_step"\ntunables = { SPLITS = 1, RUN = 0 }\n'
        '[[kernels.pin]]\ntemplate = "attn_verify"\ntunables = { SPLITS = 2, RUN = 0 }\n'
    )
    run = atlasc(TRAINED, "--target", "sm_90a", "--model", toml, "--stop-after", "pick-kernels")
    assert run.returncode == 3 and "error[A0731]: numerics.invariant: " in run.stderr, run.stderr
    assert "verify 4 to 8" in run.stderr or "verify 4" in run.stderr, run.stderr
    assert (
        "[speculate] ladder: a plan with invariant never takes a number of drafted rows that changes a row's order by load"
    ) in run.stderr
