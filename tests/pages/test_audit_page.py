"""The page of `atlas audit --html` in a real browser: width, contrast, sorting, filter, links, print, hostile plans."""

from __future__ import annotations

import io
import json
import re
import time

import msgpack
import plan_file
import pypdf
import pytest

from checks import page_is_marked_up, page_is_sound

PLANS = {
    "dense": ("llama-trained",),
    "experts": ("qwen3_5_moe",),
    "fp8": ("llama-fp8-block",),
    "two": ("llama", "--target", "sm_90a,sm_80"),
}


@pytest.fixture(scope="module")
def pages(atlas, small_plan_of, tmp_path_factory):
    """{name: (page, audit)}, made once each."""
    made, folder = {}, tmp_path_factory.mktemp("pages")

    def of(name):
        if name not in made:
            plan, path = small_plan_of(*PLANS[name]), folder / f"{name}.html"
            run = atlas("audit", plan, "--html", path)
            assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
            made[name] = path, json.loads(atlas("audit", plan, "--json").stdout), plan
        return made[name]

    return of


def names_of(audit):
    """Fragments of all launches, each of every layer: target/phase[rows]/layer/op."""
    for target in audit["targets"]:
        for phase in target["phases"]:
            for launch in phase["launches"]:
                first, last = launch["layers"]
                for layer in range(first, last + 1):
                    name = "start" if layer < 0 else "end" if layer >= audit["n_layers"] else layer
                    yield f"{target['target']}/{phase['phase']}[{phase['rows']}]/{name}/{launch['op']}"


ROWS = "[...document.querySelectorAll('.launches tbody tr:not(.group)')].filter(r => r.getClientRects().length)"


@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_cut_and_all_can_be_read(browser, pages, name):
    page_is_sound(browser, pages(name)[0])


def test_markup(browser, pages):
    page = browser.open(pages("experts")[0])
    page_is_marked_up(page)
    page.close()


@pytest.mark.parametrize("name", ["experts", "two"])
def test_all_of_the_audit_is_there_without_scripts(browser, pages, name):
    path, audit, _ = pages(name)
    page = browser.open(path, scripts=False)
    text = page.evaluate("document.body.textContent")
    shown = page.evaluate("document.body.innerText")
    assert audit["root"] in shown and "Certificate" in text
    ops = page.evaluate(ROWS + ".map(r => r.id)")
    wanted = list(names_of(audit))
    assert {re.sub(r"/\d+$", "", i) for i in ops} <= set(wanted)
    layers = {i for i in page.evaluate("[...document.querySelectorAll('a.at')].map(a => a.id)")}
    assert {w.rsplit("/", 1)[0] for w in wanted} <= layers  # every layer is named, though equal ones stand once
    for target in audit["targets"]:
        for phase in target["phases"]:
            for launch in phase["launches"]:
                assert launch["operands"] in text and launch["defines"] in text
                for c in launch["candidates"]:
                    assert c["reason"] in text and f"{c['template']} {c['tunables']}".strip() in text
    assert page.evaluate("document.querySelectorAll('button:not([hidden])').length") == 0  # nothing that does nothing
    assert page.evaluate("document.querySelector('#find').getClientRects().length") == 0
    page.close()


def test_numbers_are_those_of_the_json(browser, pages):
    path, audit, _ = pages("experts")
    page = browser.open(path, scripts=False)
    for phase in audit["targets"][0]["phases"]:
        us = sum(
            next(c["cost_us"] for c in x["candidates"] if c["verdict"] == "chosen")
            * (x["layers"][1] - x["layers"][0] + 1)
            for x in phase["launches"]
        )
        here = f"document.getElementById('sm_90a/{phase['phase']}[{phase['rows']}]')"
        said = page.evaluate(here + ".querySelector('p b').textContent")
        assert float(said.split()[0]) == pytest.approx(us, rel=1e-3)
        cells = page.evaluate(
            f"[...{here}.querySelectorAll('.launches tbody tr:not(.group)')].map(r => "
            "[...r.cells].map(c => c.textContent))"
        )
        assert sum(float(c[5]) for c in cells) == pytest.approx(us, rel=2e-3, abs=0.01)
        assert sum(float(c[6].split()[0]) for c in cells) == pytest.approx(100, abs=0.05 * len(cells))
        for table in range(3):
            shares = page.evaluate(
                f"[...{here}.querySelectorAll('.shares')[{table}].tBodies[0].rows].map(r => "
                "[r.cells[1].textContent, r.cells[2].textContent].map(parseFloat))"
            )
            for column in range(2 if any(x["read_bytes"] for x in phase["launches"]) else 1):
                assert sum(s[column] for s in shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.01)
    page.close()


def test_columns_are_sorted_by_mouse_and_keys(browser, pages):
    page = browser.open(pages("dense")[0])
    table = "document.querySelector('.phase .launches')"
    column = f"[...{table}.tHead.rows[0].cells]"
    rows = f"[...{table}.querySelectorAll('tbody tr:not(.group)')].filter(r => r.getClientRects().length)"
    before = page.evaluate(rows + ".map(r => r.id)")
    assert page.evaluate(column + ".map(h => h.getAttribute('aria-sort'))") == ["none"] * 18
    page.evaluate(column + "[5].querySelector('button').focus()")
    page.key("Enter", 13, "\r")
    assert page.evaluate(column + "[5].getAttribute('aria-sort')") == "descending"
    times = [float(t) for t in page.evaluate(rows + ".map(r => r.cells[5].textContent)")]
    assert times == sorted(times, reverse=True) and len(times) == len(before)
    page.key(" ", 32, " ")
    assert page.evaluate(column + "[5].getAttribute('aria-sort')") == "ascending"
    assert [float(t) for t in page.evaluate(rows + ".map(r => r.cells[5].textContent)")] == sorted(times)
    page.evaluate(column + "[11].querySelector('button').click()")  # grids by their blocks, not by their text
    grids = [eval(g.replace("×", "*")) for g in page.evaluate(rows + ".map(r => r.cells[11].textContent)")]
    assert grids == sorted(grids, reverse=True) and page.evaluate(column + "[5].getAttribute('aria-sort')") == "none"
    for _ in range(2):
        page.evaluate(column + "[11].querySelector('button').click()")
    assert page.evaluate(rows + ".map(r => r.id)") == before
    assert page.evaluate(f"{table}.querySelector('.group').getClientRects().length") > 0
    page.close()


def test_the_filter(browser, pages):
    path, audit, _ = pages("fp8")
    page = browser.open(path)
    everything = page.evaluate(ROWS + ".length")

    def filtered(words):
        page.evaluate(
            f"(() => {{ const f = document.getElementById('find'); f.value = {json.dumps(words)}; "
            "f.dispatchEvent(new Event('input')); })()"
        )
        return page.evaluate(ROWS + ".map(r => r.textContent)")

    rows = filtered("E4M3 128x128")
    assert 0 < len(rows) < everything and all("e4m3 128x128" in r for r in rows)
    assert page.evaluate("document.getElementById('found').textContent") == f"{len(rows)} of {everything}"
    hidden = page.evaluate("[...document.querySelectorAll('.phase')].filter(p => p.hidden).map(p => p.id)")
    assert "sm_90a/acquire[0]" in hidden and not any("decode" in h for h in hidden)
    assert filtered("no such thing") == []
    page.evaluate("document.querySelector('.launches thead button').click()")  # sorting hides nothing and shows nothing
    assert page.evaluate(ROWS + ".length") == 0
    page.evaluate("location.hash = '#sm_90a/decode[2]/0/norm_linear'")  # a link shows what the filter hid
    page.settle()
    assert page.evaluate("document.getElementById('find').value") == ""
    assert page.evaluate(ROWS + ".length") == everything
    page.close()


def test_links_survive_a_reload_and_going_back(browser, pages):
    path, audit, _ = pages("dense")
    top = "Math.round(document.getElementById('{}').getBoundingClientRect().top)"
    page = browser.open(path, fragment="#sm_90a/decode[2]/0/norm_swiglu")
    for _ in range(2):
        page.settle()
        assert 0 <= page.evaluate(top.format("sm_90a/decode[2]/0/norm_swiglu")) < 900
        assert page.evaluate("document.getElementById('sm_90a/decode[2]/0/norm_swiglu').matches(':target')")
        page.reload()
    page.evaluate("[...document.querySelectorAll('nav a')].find(a => a.textContent == 'prefill[64]').click()")
    page.settle()
    assert 0 <= page.evaluate(top.format("sm_90a/prefill[64]")) < 300
    assert page.evaluate("decodeURIComponent(location.hash)") == "#sm_90a/prefill[64]"
    page.evaluate("history.back()")
    time.sleep(0.3)
    page.settle()
    assert page.evaluate("decodeURIComponent(location.hash)") == "#sm_90a/decode[2]/0/norm_swiglu"
    assert 0 <= page.evaluate(top.format("sm_90a/decode[2]/0/norm_swiglu")) < 900
    last = audit["n_layers"] - 1  # of a layer that stands in a group with the first, the launch of the group
    page.evaluate(f"location.hash = '#sm_90a/decode[2]/{last}/attention_step'")
    page.settle()
    assert page.evaluate("document.querySelector('tr.at th').textContent") == "attention_step"
    link = page.evaluate(
        "(() => { const a = document.querySelector('.launches details a'); a.click(); return decodeURIComponent(a.hash.slice(1)); })()"
    )
    page.settle()
    assert page.evaluate(f"document.getElementById({json.dumps(link)}).open")  # a decision is unfolded
    assert page.complaints() == []
    page.close()


def test_the_theme_is_switched_and_kept(browser, pages):
    page = browser.open(pages("dense")[0], dark=False)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    for words, same in (("Theme: light", True), ("Theme: dark", False)):
        page.evaluate("document.getElementById('theme').click()")
        assert page.evaluate("document.getElementById('theme').textContent") == words
        assert (page.evaluate(ground) == light) == same
    page.reload()
    assert page.evaluate(ground) != light
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(ground) == light
    page.close()


@pytest.mark.parametrize("name", ["experts", "two"])
def test_print_holds_every_phase_launch_and_column(browser, pages, name):
    path, audit, _ = pages(name)
    page = browser.open(path, dark=True)
    ids = page.evaluate(ROWS + ".length")
    page.evaluate(
        "(() => { const f = document.getElementById('find'); f.value = 'zzz'; f.dispatchEvent(new Event('input')); })()"
    )  # what is filtered on the screen is printed all the same
    file = pypdf.PdfReader(io.BytesIO(page.pdf()))
    text = [p.extract_text() for p in file.pages]
    whole = re.sub(r"\s+", " ", " ".join(text))
    for target in audit["targets"]:
        for phase in target["phases"]:
            head = f"{phase['phase']}[{phase['rows']}] {target['target']}"
            assert head in whole, head
            assert sum(head in " ".join(t.split()[:8]) for t in text) == 1, head  # each begins a sheet
            for launch in phase["launches"]:
                assert launch["op"] in whole
    for column in ("Kernel", "Weights", "Cache", "Grid", "Block", "Regs", "From", "Order"):
        assert column in whole
    rows = sum(len(re.findall(r"(?:measured|model|pin)(?= |$)", re.sub(r"\s+", " ", t))) for t in text[1:])
    assert rows >= ids
    for p in file.pages:  # nothing is printed beyond the paper
        wide = float(p.mediabox.width)
        assert wide > float(p.mediabox.height)
        p.extract_text(visitor_text=lambda t, cm, tm, font, size: t.strip() and _inside(cm, tm, wide))
    page.close()


def _inside(cm, tm, wide):
    x = tm[4] * cm[0] + cm[4]
    assert -1 <= x <= wide + 1, x


def hostile(plan, to):
    """The plan with texts that try to leave their element, to run, to turn the line and to hide."""
    data = plan.read_bytes()
    sections = plan_file.take_apart(data)
    texts = [
        "</script><script>alert(1)</script>",
        '"><img src=x onerror=alert(2)>',
        "'; alert(3); //",
        "a\u202eb\u2066c\u200bd",
        "\x01\x1b[31m\x7f",
        "]]>*/-->",
        "&lt;b&gt; ${alert(4)}",
    ]
    options = msgpack.unpackb(sections["options"])
    options |= {f"note.{i}.{t}": t for i, t in enumerate(texts)} | {
        "target.sm_90a.ran_on": texts[0],
        "tuning.sm_90a.card": texts[1],
    }
    sections["options"] = msgpack.packb(dict(sorted(options.items())))
    to.write_bytes(plan_file.put_together(data[:12], sections))
    return texts


def test_hostile_texts_stay_text(atlas, browser, pages, tmp_path):
    plan = tmp_path / "hostile.bin"
    texts = hostile(pages("dense")[2], plan)
    run = atlas("audit", plan, "--html", tmp_path / "h.html")
    assert (run.returncode, run.stderr) == (0, "")
    page = browser.open(tmp_path / "h.html")
    assert page.complaints() == [] and page.events("Page.javascriptDialogOpening") == []
    assert page.evaluate("document.querySelectorAll('img, script').length") == 1
    notes = page.evaluate("[...document.querySelectorAll('.facts li')].map(l => l.textContent)")
    seen = [re.sub(r"[\x00-\x1f\x7f\u200b\u202e\u2066]", lambda m: f"\\u{ord(m[0]):04x}", t) for t in texts]
    assert [n.split(" = ", 1)[1] for n in notes] == seen
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", (tmp_path / "h.html").read_text())
    page.close()
    page_is_sound(browser, tmp_path / "h.html", widths=(360,))


def test_equal_plans_make_equal_bytes(atlas, pages, tmp_path):
    path, _, plan = pages("experts")
    other = tmp_path / "elsewhere.bin"
    other.write_bytes(plan.read_bytes())
    assert atlas("audit", other, "--html").stdout == path.read_text(encoding="utf-8")
    assert str(plan.parent) not in path.read_text(encoding="utf-8")


def test_a_large_plan_is_small_and_quick(atlas, atlasc, browser, repo, build_dir, tmp_path):
    """40 layers of a hybrid with experts, seven buckets: equal layers stand once, wherever they are."""
    plan = tmp_path / "large.bin"
    run = atlasc(
        repo / "tests/gpu/shapes/qwen3.6-35b-a3b-fp8.json",
        "--random-weights",
        "--weights",
        "ref",
        "-o",
        plan,
        "-q",
        "--cache-dir",
        build_dir / "kernel-cache",
    )
    assert run.returncode == 0, run.stderr
    start = time.monotonic()
    assert atlas("audit", plan, "--html", tmp_path / "large.html").returncode == 0
    assert time.monotonic() - start < 5
    assert (tmp_path / "large.html").stat().st_size < 3_000_000
    page = browser.open(tmp_path / "large.html")
    assert page.load_seconds < 5
    rows = page.evaluate(ROWS + ".length")
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    assert rows < 300 < len(list(names_of(audit))) and page.complaints() == []
    page.close()
