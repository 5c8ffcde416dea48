"""The page of `atlas bench --html` in a real browser: width, contrast, plots, sorting, comparison, print."""

from __future__ import annotations

import io
import json
import re

import pypdf
import pytest

from checks import page_is_marked_up, page_is_sound


@pytest.fixture(scope="module")
def made(atlas, plan_of, tmp_path_factory):
    """A run and another of its plan, compared with two of a hundredth of its speed in all rows but the prompts."""
    folder = tmp_path_factory.mktemp("bench")
    words = ["bench", plan_of("llama-trained"), "--device", "cpu", "--tokens", 3, "-q", "--only", "p,t"]
    assert atlas(*words, "--json", folder / "old.json").returncode == 0
    old = json.loads((folder / "old.json").read_text())
    (folder / "also.json").write_text(json.dumps(old | {"date": "2026-01-01T00:00:00Z"}))
    for i in range(2):
        rows = [
            row | ({"tokens_s": row["tokens_s"] / (100 + i)} if "tokens_s" in row and row["kind"] == "decode" else {})
            for row in old["rows"]
        ]
        (folder / f"old{i}.json").write_text(json.dumps(old | {"rows": rows, "date": f"2026-01-01T00:00:0{i + 1}Z"}))
    sides = ["--compare", folder / "old0.json", "--compare", folder / "old1.json", "--also", folder / "also.json"]
    run = atlas(*words, *sides, "--html", folder / "b.html", "--json", folder / "b.json")
    assert run.returncode == 0, run.stderr
    return folder / "b.html", json.loads((folder / "b.json").read_text())


def test_nothing_is_cut_and_all_can_be_read(browser, made):
    page_is_sound(browser, made[0])


def test_markup_and_plots(browser, made):
    path, data = made
    page = browser.open(path)
    page_is_marked_up(page)
    axes = page.evaluate("[...document.querySelectorAll('svg text.axis')].map(t => t.textContent)")
    assert axes == ["tokens/s (log scale)", "sequences together (log scale)", "tokens/s", "prompt"]
    ticks = page.evaluate(
        "[...document.querySelector('figure svg').querySelectorAll('text.tick[text-anchor=end]')]"
        ".map(t => t.textContent)"
    )
    assert len(ticks) >= 3
    values = [float(t.replace(",", "")) for t in ticks]
    decode = [r["tokens_s"] for r in data["rows"] if r["kind"] == "decode" and "skipped" not in r]
    assert values[0] <= min(decode) and max(decode) <= values[-1]
    assert all(re.fullmatch("[125]0*", f"{v:.0f}") for v in values) and values == sorted(set(values))
    marks = page.evaluate("[...document.querySelectorAll('figure svg')][0].querySelectorAll('circle, path').length")
    assert marks == len(decode)
    for width in (1280, 360):  # no label lies on another, or leaves its plot
        page.resize(width)
        page.settle()
        boxes = page.evaluate(
            "[...document.querySelectorAll('figure > svg')].map(s => { const o = "
            "s.getBoundingClientRect(); return [[o.left, o.top, o.right, o.bottom], ...[...s"
            ".querySelectorAll('text')].map(t => { const r = t.getBoundingClientRect(); "
            "return [r.left, r.top, r.right, r.bottom]; })]; })"
        )
        for outer, *labels in boxes:
            for i, a in enumerate(labels):
                assert outer[0] - 1 <= a[0] and a[2] <= outer[2] + 1 and outer[1] - 1 <= a[1] and a[3] <= outer[3] + 1
                assert not any(
                    a[0] < b[2] and b[0] < a[2] and a[1] + 2 < b[3] and b[1] + 2 < a[3] for b in labels[:i]
                ), (width, labels)
    page.close()


def test_rows_without_scripts_sorting_and_ratios(browser, made):
    path, data = made
    page = browser.open(path, scripts=False)
    rows = page.evaluate("[...document.querySelectorAll('.rows tbody tr')].map(r => r.innerText)")
    assert [r.split()[0] for r in rows] == [r["name"] for r in data["rows"]]
    for text, row in zip(rows, data["rows"]):
        assert row.get("skipped", f"{row.get('ratio', 0):.3f}") in text
    page.close()
    page = browser.open(path)
    faster = page.evaluate("[...document.querySelectorAll('.rows .ok')].map(e => e.closest('tr').cells[0].textContent)")
    assert faster == [r["name"] for r in data["rows"] if r.get("verdict") == "faster"]
    page.evaluate("document.querySelectorAll('.rows thead button')[1].click()")
    speeds = page.evaluate(
        "[...document.querySelectorAll('.rows tbody tr')].map(r => parseFloat(r.cells[1].textContent))"
        ".filter(x => x === x)"
    )
    assert speeds == sorted(speeds, reverse=True) and len(speeds) > 2
    assert page.complaints() == []
    page.close()


def test_print(browser, made):
    path, data = made
    page = browser.open(path, dark=True)
    text = " ".join(p.extract_text() for p in pypdf.PdfReader(io.BytesIO(page.pdf())).pages)
    for row in data["rows"]:
        assert row["name"] in text
    assert data["date"] in text and "Compared with".upper() in text.upper()
    page.close()
