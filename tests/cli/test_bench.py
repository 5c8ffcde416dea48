"""`atlas bench` on the reference device: which rows there are, JSON, the page, and what is refused."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as xml

import numpy as np
import pytest

ROWS = [f"pp{n}" for n in (512, 2048, 8192)] + [f"tg3@{c}x{b}" for c in (0, 4096, 16384) for b in (1, 2)]
NO_ROW = (
    "there is no such row. This plan has ppN, tg{0}@C and tg{0}@CxB: N and C tokens up to max_context 512, B "
    "sequences from 1 to 2"
)


@pytest.fixture(scope="module")
def plan(small_plan_of):
    return small_plan_of("llama")  # two slots of 512 tokens


@pytest.fixture(scope="module")
def found(atlas, plan, tmp_path_factory):
    """The text, the JSON and the page of one run."""
    folder = tmp_path_factory.mktemp("bench")
    run = atlas(
        "bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--json", folder / "b.json", "--html", folder / "b.html"
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout, json.loads((folder / "b.json").read_text()), (folder / "b.html").read_text()


def test_every_row_is_measured_or_says_why_not(found):
    _, data, _ = found
    rows = {row["name"]: row for row in data["rows"]}
    assert list(rows) == ROWS
    measured = {name for name, row in rows.items() if "skipped" not in row}
    assert measured == {"pp512", "tg3@0x1", "tg3@0x2"}
    assert rows["pp2048"]["skipped"] == "needs 2048 positions a sequence, runtime.max_context is 512"
    assert rows["tg3@4096x1"]["skipped"] == "needs 4121 positions a sequence, runtime.max_context is 512"
    for name in measured:
        row = rows[name]
        tokens = row["tokens"] if row["kind"] == "prefill" else row["batch"]
        assert row["tokens_s"] == pytest.approx(tokens / row["ms"] * 1e3, rel=1e-6)
        assert row["reps"] == 3 and 0 <= row["spread"] < 20
        assert not {"percent", "gbps", "nodes"} & set(row)  # nothing is claimed of a GPU that is not there


def test_a_pool_too_small_is_a_reason(atlas, small_plan_of):
    plan = small_plan_of("llama", max_context=64, pool_tokens=64)
    run = atlas("bench", plan, "--device", "cpu", "--tokens", 12, "-q", "--json", "-", "--only", "tg12@0")
    rows = {row["name"]: row for row in json.loads(run.stdout)["rows"]}
    assert "skipped" not in rows["tg12@0x1"]
    assert rows["tg12@0x2"]["skipped"] == "needs KV for 128 tokens, kv.pool_tokens is 64"


def test_steps_that_draft_and_verify(atlas, small_plan_of):
    """Beside plain decoding in the same process. Which drafts count may be prescribed; else none of random ones do."""
    plan = small_plan_of("qwen3_5", "--target", "none", rows=3)
    options = ("--device", "cpu", "--tokens", 8, "-q", "--json", "-", "--only", "tg8@0,sp8@0", "--speculate", "mtp")

    def rows(*more):
        run = atlas("bench", plan, *options, *more)
        assert run.returncode == 0, run.stderr
        return {row["name"]: row for row in json.loads(run.stdout)["rows"] if "skipped" not in row}

    drawn, all_of, half = rows(), rows("--acceptance", "1,1"), rows("--acceptance", "1,0.5")
    assert list(drawn) == ["tg8@0x1", "tg8@0x2", "sp8@0x1", "sp8@0x2"]
    for name in "sp8@0x1", "sp8@0x2":
        assert drawn[name]["kind"] == "speculate"
        assert drawn[name]["accepted"] < 0.3 and all_of[name]["accepted"] == 1 and 0.5 < half[name]["accepted"] < 1
        for told in drawn[name], all_of[name], half[name]:
            assert told["step_tokens"] == pytest.approx(1 + 2 * told["accepted"])
            tokens = told["batch"] * told["step_tokens"]
            assert told["tokens_s"] == pytest.approx(tokens / told["ms"] * 1e3, rel=1e-6)
    text = atlas(
        "bench",
        plan,
        "--device",
        "cpu",
        "--tokens",
        8,
        "-q",
        "--only",
        "sp8@0x1",
        "--speculate",
        "mtp",
        "--acceptance",
        "0.9",
    )
    assert (
        "drafts   sp rows: 3 rows of a sequence in a verify step; accepted 0.90 of draft 1 as prescribed, draft 2 as "
        "sampled"
    ) in text.stdout
    run = atlas("bench", plan, *options[:-2], "--only", "sp8@0x1")
    assert run.stderr.rstrip().endswith("; with --speculate mtp also sp8@CxB")
    for wrong in "0", "1.5", "0.5,", "a", "0.1,0.2,0.3,0.4":
        run = atlas("bench", plan, *options, "--acceptance", wrong)
        assert run.returncode == 2 and "expected one to three numbers above 0, at most 1" in run.stderr
    run = atlas("bench", plan, *options[:-2], "--acceptance", "0.9")
    assert (run.returncode, run.stderr) == (
        2,
        "atlas bench: error: --acceptance: no draft is made without --speculate mtp or ngram\n",
    )
    told = json.loads(
        atlas(
            "bench", plan, *options[:-4], "--only", "none", "--speculate", "mtp", "--acceptance", "0.9,0.5,0.1"
        ).stdout
    )
    assert told["acceptance"] == [0.9, 0.5]  # or a table of prescribed shares would read as one of drawn ones


def test_experts_that_steps_read_are_counted(atlas, small_plan_of):
    """One sequence chooses its own, two share some: as many as the reference device's routing chose, not the most."""
    plan = small_plan_of("qwen3_moe", "--target", "none", max_context=256)
    words = ("bench", plan, "--device", "cpu", "--tokens", 8, "-q", "--only", "tg8@0,pp40", "--temperature", "1")
    rows = {row["name"]: row for row in json.loads(atlas(*words, "--json", "-").stdout)["rows"]}
    assert rows["tg8@0x1"]["experts"] == 2 and rows["tg8@0x1"]["experts_counted"] == 2 * 4 * 2  # looks, steps, layers
    assert 2 < rows["tg8@0x2"]["experts"] < 4 and rows["tg8@0x2"]["experts_counted"] == 16
    assert (rows["pp40"]["experts"], rows["pp40"]["experts_counted"]) == (8, 0)
    text = atlas(*words).stdout
    assert "experts  2 of 8 for each row; " in text
    assert re.search(r"^tg8@0x1 .*   2\.0 experts a layer$", text, re.M)
    assert re.search(r"^pp40 .*   8\.0 experts a layer \(assumed\)$", text, re.M)
    plan = small_plan_of("qwen3_5_moe-trained", "--target", "none", rows=3, max_context=512)
    run = atlas(
        "bench", plan, "--device", "cpu", "--tokens", 8, "-q", "--json", "-", "--only", "sp8@0x2", "--speculate", "mtp"
    )
    row = json.loads(run.stdout)["rows"][0]
    assert row["experts_counted"] > 0 and row["experts"] > 2


def test_what_is_timed_of_a_start_without_a_gpu(atlas, small_plan_of):
    """Weights are not apart there: those of --random-weights --weights ref are made in it."""
    plan = small_plan_of("llama", "--target", "none")
    text = atlas("bench", plan, "--device", "cpu", "-q", "--only", "none").stdout
    assert re.search(r"^ +start to first token: [0-9.]+ ms$", text, re.M) and "without weights" not in text


def test_a_plan_without_a_head_drafts_nothing(atlas, plan):
    run = atlas("bench", plan, "--device", "cpu", "--speculate", "mtp", "-q", "--only", "sp128@0x1")
    assert run.returncode != 0 and "the plan has no head that drafts" in run.stderr


def test_json_holds_the_run(found, atlas, plan):
    _, data, _ = found
    info = json.loads(atlas("info", plan, "--json").stdout)
    assert (data["schema_version"], data["temperature"]) == (2, 0)
    assert {key: data[key] for key in ("root", "family", "n_layers", "hidden_dim", "vocab", "weight_bytes")} == {
        key: info[key] for key in ("root", "family", "n_layers", "hidden_dim", "vocab", "weight_bytes")
    }
    assert (data["device"], data["target"], data["phases"]) == ("cpu", "", [])
    assert data["no_bounds"] == "device cpu has no launches to time" and "bounds" not in data
    start = data["start"]
    assert set(start) == {"open_ms", "session_ms", "first_token_ms", "first_tokens"}
    assert start["first_tokens"] == 128 and all(value > 0 for value in start.values())


def test_text_is_the_same_run(found):
    text, data, _ = found
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert "bounds   none: device cpu has no launches to time" in text
    for row in data["rows"]:
        if "skipped" in row:
            assert lines[row["name"]].split(maxsplit=1)[1] == f"skipped: {row['skipped']}"
        else:
            assert float(lines[row["name"]].split()[1]) == pytest.approx(row["tokens_s"], abs=0.06)


def test_the_page_stands_alone(found):
    _, data, page = found
    root = xml.fromstring(page.removeprefix("<!DOCTYPE html>\n"))  # every tag closed, every text escaped
    assert not re.search(r"https?:|src=|url\(|@import|<link|style=", page)  # tests/pages has what a browser makes of it
    titles = [e.text for e in root.iter() if e.tag.endswith("title")]
    for shape in root.iter():  # nothing is drawn outside of its plot
        values = [float(shape.get(k)) for k in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width") if shape.get(k)]
        assert all(0 <= v <= 720 for v in values), shape.attrib
    for row in data["rows"]:
        assert "skipped" in row or any(t.startswith(f"{row['name']}: ") for t in titles)
    body = page[page.index("<body") : page.index("<script")]
    assert "roofline" not in "".join(titles) and 'class="dash' not in body  # there is none
    assert f"<code>{data['root']}</code>" in page and data["date"] in page
    assert (
        " of weights" in body and "0.00" not in body[: body.index(" of weights")]
    )  # in a unit that fits a small model
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", data["date"]) and data["driver"] == "" and "host" not in data
    command = re.search(r"<code>(atlas bench [^<]*)</code>", page)[1].split()
    assert "--tokens" in command and "b.html" in command and "/" not in "".join(command)  # it names no folder
    cells = ["".join(row.itertext()) for row in root.iter("tr")]
    for row in data["rows"]:
        assert any(c.startswith(row["name"]) for c in cells)
    colours = set(re.findall(r"var\((--[\w-]+)\)", page))
    sets = [set(re.findall(r"(--[\w-]+):", s)) for s in re.findall(r":root[^{]*\{([^}]*--ground[^}]*)\}", page)]
    assert sets == [colours] * 4  # light, the system's dark, the switch's, and paper have a value for each colour


def rows_of(atlas, plan, only, *more, tokens=3):
    """Names of the rows of a run, by their reasons for not being measured ("" = measured)."""
    run = atlas("bench", plan, "--device", "cpu", "--tokens", tokens, "-q", "--json", "-", "--only", only, *more)
    assert run.returncode == 0, run.stderr
    return {row["name"]: row.get("skipped", "") for row in json.loads(run.stdout)["rows"]}


def test_only_takes_starts_of_names(atlas, plan):
    assert list(rows_of(atlas, plan, "p,t")) == ROWS
    assert list(rows_of(atlas, plan, "pp2048,tg3@4096,tg3@16384x1,,")) == [
        "pp2048",
        "tg3@4096x1",
        "tg3@4096x2",
        "tg3@16384x1",
    ]  # no number is cut in two
    assert rows_of(atlas, plan, "none") == {}


def test_only_takes_any_row_by_its_name(atlas, plan):
    """In order, each once; what the plan has no room for says so."""
    rows = rows_of(atlas, plan, "tg3@33x2,pp51,tg3@7,tg3@0x1,pp51,tg3@0x4,tg3@9000x1,pp513,tg3@0x9999999")
    assert rows == {
        "pp51": "",
        "pp513": "needs 513 positions a sequence, runtime.max_context is 512",
        "tg3@0x1": "",
        "tg3@0x4": "needs 4 slots, runtime.slots is 2",
        "tg3@0x9999999": "needs 9999999 slots, runtime.slots is 2",
        "tg3@7x1": "",
        "tg3@7x2": "",
        "tg3@33x2": "",
        "tg3@9000x1": "needs 9025 positions a sequence, runtime.max_context is 512",
    }
    assert list(rows) == [
        "pp51",
        "pp513",
        "tg3@0x1",
        "tg3@0x4",
        "tg3@0x9999999",
        "tg3@7x1",
        "tg3@7x2",
        "tg3@33x2",
        "tg3@9000x1",
    ]


def test_rows_follow_slots_buckets_and_context(atlas, plan_of, repo, tmp_path):
    """Powers of two, buckets of decode and all slots; beyond 16384 where the context has room."""
    config = json.loads((repo / "tests/fixtures/llama/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1 << 17}))
    (tmp_path / "MODEL.toml").write_text(
        "[runtime]\nslots = 100\nmax_context = 65552\n[kv]\npage = 16\n"
        "pool_tokens = 65552\n[phases]\nprefill = [16]\ndecode = [24, 100]\n"
    )
    plan = plan_of(tmp_path, "--random-weights", "--target", "sm_80")
    rows = rows_of(atlas, plan, "tg30000", tokens=30000)  # longer than the context: none is run
    every = (1, 2, 4, 8, 16, 24, 32, 64, 100)
    assert list(rows) == [f"tg30000@{c}x{b}" for c in (0, 4096, 16384, 32768, 65536) for b in every if c * b <= 1 << 20]
    assert rows["tg30000@32768x24"] == "needs 122784 positions a sequence, runtime.max_context is 65552"


def test_answers_at_a_temperature(atlas, plan):
    run = atlas("bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x2", "--temperature", "0.8")
    assert "answers  sampled at temperature 0.8, each sequence with a different seed" in run.stdout
    run = atlas(
        "bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x2", "--temperature", "1", "--json", "-"
    )
    assert json.loads(run.stdout)["temperature"] == 1
    run = atlas("bench", plan, "--device", "cpu", "--temperature", "-1")
    assert (run.returncode, run.stderr) == (
        2,
        "atlas bench: error: --temperature -1: expected a number from 0 to 1000\n",
    )


@pytest.mark.parametrize("hashes", ["off", "lazy", "full"])
def test_no_token_stops_an_answer(atlas, plan_of, tmp_path, repo, hashes):
    """Where every token would end a sequence, rows are measured all the same."""
    config = json.loads((repo / "tests/fixtures/llama/config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"vocab_size": 4, "eos_token_id": [0, 1, 2, 3], "bos_token_id": 0})
    )
    (tmp_path / "MODEL.toml").write_text(
        "[runtime]\nslots = 1\nmax_context = 64\n[kv]\npage = 16\n[phases]\nprefill = [16]\ndecode = [1]\n"
    )
    plan = plan_of(tmp_path, "--random-weights", "--target", "sm_80")
    assert rows_of(atlas, plan, "tg3@0x1", "--verify", hashes) == {"tg3@0x1": ""}


def test_json_goes_to_stdout_where_no_file_is_named(atlas, plan):
    for words in (["--json"], ["--json", "-"], ["--json=-"], ["--json", "-q"]):
        run = atlas("bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x1", *words)
        assert json.loads(run.stdout)["rows"][0]["name"] == "tg3@0x1", run.stderr
    run = atlas("bench", plan, "--device", "cpu", "-q", "--only", "pp8192", "--html", "--reps", 3)
    assert run.stdout.startswith("<!DOCTYPE html>")


def test_refusals(atlas, plan, tmp_path):
    def refused(*words):
        run = atlas("bench", *words)
        assert run.stdout == ""
        return run.returncode, run.stderr.splitlines()

    cpu = (plan, "--device", "cpu", "-q")
    assert refused(*cpu, "--kernels", "--only", "pp512") == (
        2,
        ["atlas bench: error: --kernels: device cpu has no launches to time"],
    )
    for wrong, tokens in (
        ("tg128@5y", 128),
        ("pp512x2", 128),
        ("tg1", 128),
        ("tg64@0x1", 128),
        ("tg128@0x0", 128),
        ("tg128@0x12345678", 128),
        ("sp128@0x1", 128),
        ("t,x", 128),
        ("tg128@0x1,pp512", 8),
    ):
        word = "x" if wrong == "t,x" else wrong.split(",")[0]
        assert refused(*cpu, "--tokens", tokens, "--only", wrong) == (
            2,
            [f"atlas bench: error: --only {word}: {NO_ROW.format(tokens)}"],
        )
    assert refused(*cpu, "--json", "-", "--html", "-") == (
        2,
        ["atlas bench: error: --json - and --html - both write to stdout: give one of them a file"],
    )
    assert refused(*cpu, "--reps", "2") == (2, ["atlas bench: error: --reps 2: expected a whole number from 3 to 1000"])
    code, lines = refused(*cpu, "--only", "pp512", "--json", tmp_path / "no" / "b.json")
    assert code == 5 and lines == [
        f"atlas bench: error: {tmp_path}/no/b.json: cannot be written: No such file or directory"
    ]
    code, lines = refused(tmp_path / "none.bin", "--html", tmp_path)  # known before the plan is even opened
    assert code == 5 and lines == [f"atlas bench: error: {tmp_path}: not a regular file but a folder"]
    assert refused(tmp_path / "none.bin")[0] == 5


def test_a_run_is_compared_with_an_earlier_one(atlas, plan, tmp_path):
    """Ratios of rows of equal names, with what both spreads leave open, in text, JSON and page. One run is no verdict,
    not even on half the speed."""
    old = tmp_path / "old.json"
    words = ["bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "pp64,tg3@0x1"]
    assert atlas(*words, "--json", old).returncode == 0
    before = json.loads(old.read_text())
    for row in before["rows"]:
        row["tokens_s"] *= 2
    before |= {"device_name": "Some <card>", "driver": "1.2, CUDA 13.0", "root": "ab" * 32}
    before["rows"] = [r for r in before["rows"] if r["name"] != "pp64"]
    old.write_text(json.dumps(before))
    run = atlas(*words, "--compare", old, "--json", tmp_path / "new.json", "--html", tmp_path / "new.html", "--host")
    assert run.returncode == 0, run.stderr
    data, page = json.loads((tmp_path / "new.json").read_text()), (tmp_path / "new.html").read_text()
    assert data["compared_with"] == "ab" * 32 and data["host"]
    rows = {r["name"]: r for r in data["rows"]}
    then = {r["name"]: r for r in before["rows"]}
    assert "ratio" not in rows["pp64"]
    row = rows["tg3@0x1"]
    assert row["ratio"] == pytest.approx(row["tokens_s"] / then["tg3@0x1"]["tokens_s"], rel=1e-6)
    assert row["ratio_open"] == pytest.approx(row["ratio"] * (row["spread"] + then["tg3@0x1"]["spread"]) / 2, rel=1e-6)
    assert row["ratio_runs"] == [1, 1] and "verdict" not in row
    assert f"{row['ratio']:.3f} +- {row['ratio_open']:.3f} of before, within runs" in run.stdout
    assert f"before   plan {'ab' * 6}, llama, on Some <card>, " in run.stdout
    assert (
        "         1 run, and 1 now: +- is by repetitions within a run; another run may differ by more: no verdict\n"
        "         a verdict needs two runs on each side: --compare FILE --compare FILE --also FILE\n"
    ) in run.stdout
    assert f'<span class="same">{row["ratio"]:.3f}</span> &#177; {row["ratio_open"]:.3f}</td>' in page
    assert "A verdict needs two runs or more on each side." in page
    assert "Some &lt;card&gt;, driver 1.2, CUDA 13.0" in page and "another device" in page and data["host"] in page


def student_t(freedom, confidence):
    """The two-sided quantile, by integration of the density."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)

    def inside(t, n=20000):
        h = t / n
        ends = [(1 + (i * h) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(n + 1)]
        return 2 * scale * h / 3 * (ends[0] + ends[-1] + 4 * sum(ends[1::2]) + 2 * sum(ends[2:-1:2]))

    low, high = 0.0, 64.0
    for _ in range(40):
        t = (low + high) / 2
        low, high = (t, high) if inside(t) < confidence else (low, t)
    return low


@pytest.fixture(scope="module")
def runs_of(atlas, plan, tmp_path_factory):
    """runs_of(factors, root): files of one row, measured once, at these multiples of its speed."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x1", "--json", folder / "run.json"]
    assert atlas(*words).returncode == 0
    run = json.loads((folder / "run.json").read_text())

    def write(factors, **changes):
        files = []
        for i, factor in enumerate(factors):
            row = run["rows"][0] | {"tokens_s": run["rows"][0]["tokens_s"] * factor}
            files.append(folder / f"{len(list(folder.iterdir()))}.json")
            files[-1].write_text(json.dumps(run | {"rows": [row], "date": f"2026-01-01T00:00:{i:02}Z"} | changes))
        return files

    return write


def compared(atlas, plan, tmp_path, before, also):
    words = [w for f in before for w in ("--compare", f)] + [w for f in also for w in ("--also", f)]
    out, page = tmp_path / "now.json", tmp_path / "now.html"
    run = atlas(
        *["bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x1", "--json", out, "--html", page],
        *words,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(out.read_text())["rows"][0], run.stdout, page.read_text()


@pytest.mark.parametrize(
    "before, also",
    [
        ([1, 1.003], [1.002]),
        ([1, 1.003, 0.997], [1.002, 1.01, 0.999]),
        ([0.1, 0.1001, 0.0999], [1, 1]),
        ([20, 20.1, 19.9, 20.2], [1, 1.01]),
        ([1, 1.5], [1.001]),
        ([1 + i / 100 for i in range(16)], [1 + i / 90 for i in range(16)]),
    ],
)
def test_verdicts_are_by_the_spread_between_runs(atlas, plan, runs_of, tmp_path, before, also):
    """Against the formula in numpy and a quantile that is integrated here."""
    files = runs_of(before), runs_of([f * 0.9 for f in also])
    row, text, page = compared(atlas, plan, tmp_path, *files)
    then, now = ([json.loads(f.read_text())["rows"][0]["tokens_s"] for f in side] for side in files)
    a, b = np.log(then), np.log([*now, row["tokens_s"]])
    freedom = len(a) + len(b) - 2
    variance = (a.var() * len(a) + b.var() * len(b)) / freedom
    open_ = student_t(freedom, 0.99) * math.sqrt(variance * (1 / len(a) + 1 / len(b)))
    change = b.mean() - a.mean()
    verdict = "same" if abs(change) <= open_ else "faster" if change > 0 else "slower"
    assert row["ratio_runs"] == [len(a), len(b)]
    assert row["ratio"] == pytest.approx(math.exp(change), rel=1e-5)
    assert row["ratio_open"] == pytest.approx(row["ratio"] * math.expm1(open_), rel=1e-3, abs=1e-6)
    assert row["verdict"] == verdict
    assert f"{row['ratio']:.3f} +- {row['ratio_open']:.3f} of before: {verdict}\n" in text
    assert f"{len(a)} runs, and {len(b)} now: +- is an interval of 99 % confidence, by how the runs differ" in text
    style = {"same": "same", "faster": "ok", "slower": "bad"}[verdict]
    assert f'<span class="{style}">{row["ratio"]:.3f}</span> &#177; {row["ratio_open"]:.3f} {verdict}</td>' in page


@pytest.mark.parametrize("sides", [(2, 0), (1, 1), (1, 3)])
def test_one_run_on_a_side_is_no_verdict(atlas, plan, runs_of, tmp_path, sides):
    row, text, page = compared(
        atlas,
        plan,
        tmp_path,
        runs_of([10 + i / 7 for i in range(sides[0])]),
        runs_of([1 + i / 9 for i in range(sides[1])]),
    )
    assert row["ratio_runs"] == [sides[0], sides[1] + 1] and "verdict" not in row
    assert "of before, within runs\n" in text and "no verdict\n" in text
    assert 'class="ok"' not in page and 'class="bad"' not in page


def test_runs_that_cannot_be_compared(atlas, plan, runs_of, tmp_path):
    """Before anything is measured."""
    one, two = runs_of([1, 1.01])
    copy = tmp_path / "copy.json"
    copy.write_bytes(one.read_bytes())
    other = runs_of([1], root="ab" * 32)[0]
    card = runs_of([1], device_name="A card")[0]
    warm = runs_of([1], temperature=0.5)[0]
    root, device = (json.loads(one.read_text())[key] for key in ("root", "device_name"))
    words = ["bench", plan, "--device", "cpu", "--tokens", 3, "-q", "--only", "tg3@0x1"]
    for files, code, message in (
        (["--also", one], 2, "--also: nothing to compare with: --compare FILE"),
        (["--compare", one, "--compare", copy], 4, f"{copy}: the same run as {one}"),
        (["--compare", one, "--also", one], 4, f"{one}: the same run as {one}"),
        (["--compare", one, "--compare", other], 4, f"{other}: plan {'ab' * 6}: {one} has {root[:12]}"),
        (["--compare", one, "--compare", card], 4, f"{card}: on A card: {one} is on {device}"),
        (["--compare", warm], 4, f"{warm}: temperature 0.5: this run has 0"),
        (["--compare", one, "--also", other], 4, f"{other}: plan {'ab' * 6}: {plan} has {root[:12]}"),
        (["--compare", two, "--also", card], 4, f"{card}: on A card: {plan} is on {device}"),
    ):
        run = atlas(*words, *files)
        assert (run.returncode, run.stdout, run.stderr) == (code, "", f"atlas bench: error: {message}\n")


@pytest.mark.parametrize(
    "text,code,message",
    [
        ("{", 4, "FILE:1:1: error: "),
        ("[]", 4, "error: FILE: not a result of atlas bench --json: it has no root and rows"),
        ('{"root": "", "rows": []}', 8, "error: FILE: schema_version 0: this atlas reads 2"),
        (
            '{"root": "", "rows": [{"name": "x"}], "schema_version": 2}',
            4,
            "error: FILE: rows[0]: expected a name, and tokens_s above 0 or skipped",
        ),
    ],
)
def test_mistakes_in_an_earlier_result(atlas, plan, tmp_path, text, code, message):
    """Before anything is measured."""
    (tmp_path / "old.json").write_text(text)
    run = atlas("bench", plan, "--device", "cpu", "--compare", tmp_path / "old.json", "--json", tmp_path / "out.json")
    assert run.returncode == code and run.stdout == "" and not (tmp_path / "out.json").exists()
    assert run.stderr.startswith("atlas bench: " + message.replace("FILE", f"{tmp_path}/old.json")), run.stderr
