"""What every page must pass in a browser: nothing is cut, every text can be read, nothing is loaded."""

from __future__ import annotations

# The contrast of every text that is seen, after WCAG 2.2: of its colour on the first opaque ground around it.
CONTRAST = """(() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const linear = c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const luminance = c => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2]);
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const bad = []; let n = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, s = getComputedStyle(e);
    if (!walk.currentNode.data.trim() || !e.getClientRects().length || s.visibility === 'hidden' ||
        ['SCRIPT', 'STYLE', 'TITLE', 'DESC', 'title', 'desc'].includes(e.tagName)) continue;
    const below = ground(e), color = over(parse(e.namespaceURI.endsWith('svg') ? s.fill : s.color), below);
    const [x, y] = [luminance(color), luminance(below)].sort((a, b) => b - a), ratio = (x + .05) / (y + .05);
    n++;
    if (ratio < 4.5) bad.push([walk.currentNode.data.trim().slice(0, 40), ratio.toFixed(2), s.color]);
  }
  return {n, bad: bad.slice(0, 10)};
})()"""

# Elements whose own text is cut at the window's edge although nothing around them scrolls, and the page's own width.
OVERFLOW = """(() => {
  const wide = document.documentElement.clientWidth, bad = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('.scroll') && !e.matches('.scroll') || e.closest('.skip, label, svg, [hidden]')) continue;
    const r = e.getBoundingClientRect();
    if (r.width && (r.right > wide + 1 || r.left < -1)) bad.push([e.tagName, e.className, r.left, r.right]);
  }
  return {page: document.documentElement.scrollWidth, window: wide, bad: bad.slice(0, 10)};
})()"""


def page_is_sound(browser, path, widths=(1280, 420, 360), fragment=""):
    for width in widths:
        for dark in (False, True):
            page = browser.open(path, width=width, dark=dark, fragment=fragment)
            page.evaluate("document.querySelectorAll('details').forEach((d, i) => { if (i < 40) d.open = true; })")
            page.settle()
            seen = page.evaluate(CONTRAST)
            assert seen["n"] > 50 and seen["bad"] == [], (width, dark, seen)
            size = page.evaluate(OVERFLOW)
            assert size["page"] <= size["window"] == width and size["bad"] == [], (width, dark, size)
            if width < 700:  # there nothing but a plain text may need to be scrolled sideways
                inner = page.evaluate(
                    "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > "
                    "e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
                )
                assert inner == [], (width, inner)
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(","))) < 120) == dark, ground
            assert page.complaints() == []
            page.emulate(dark=dark, media="print")
            page.settle()
            seen = page.evaluate(CONTRAST)
            assert seen["n"] > 50 and seen["bad"] == [], ("print", dark, seen)
            page.close()


def page_is_marked_up(page):
    """Landmarks, one h1, headings in order, headers with a scope, controls and pictures with a name."""
    assert page.evaluate("[...document.querySelectorAll('h1')].length") == 1
    for tag in ("header", "main", "footer"):
        assert page.evaluate(f"document.querySelectorAll('body > {tag}').length") == 1, tag
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => +h.tagName[1])")
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels
    assert page.evaluate("[...document.querySelectorAll('th')].filter(h => !h.scope).length") == 0
    assert page.evaluate("[...document.querySelectorAll('table')].filter(t => !t.caption).length") == 0
    assert page.evaluate("[...document.querySelectorAll('button')].filter(b => !b.hidden && !b.textContent)") == []
    fields = "[...document.querySelectorAll('input, textarea, select')]"
    assert page.evaluate(fields + ".filter(i => !i.labels.length).length") == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('svg:not([aria-hidden])')].filter(s => s.getAttribute('role') "
            "!== 'img' || !s.querySelector('title') || !s.querySelector('desc')).length"
        )
        == 0
    )
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map(a => decodeURIComponent(a.hash.slice(1)))")
    assert set(links) <= set(ids)
    # every control shows where the focus is
    page.key("Tab", 9)
    for _ in range(6):
        assert page.evaluate("document.activeElement.matches(':focus-visible')")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.key("Tab", 9)
