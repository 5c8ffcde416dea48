/* audit_html.c - the audit as one page: the JSON of audit.c with a script that shows it.
 *
 * The page loads nothing and sends nothing. In the JSON every < is an escape, so that no name from a checkpoint can end
 * the element that holds it, and the script puts text into nodes only as text.
 */
#include "artifacts/audit.h"

#include <stdlib.h>

static const char head[] =
	"<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>atlas audit</title>\n"
	"<style>body{font:14px system-ui,sans-serif;margin:1.5em;color:#222}table{border-collapse:collapse;margin:.5em 0}"
	"td,th{padding:.15em .6em;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}"
	"td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
	"#map span{display:inline-block;min-width:2.2em;margin:1px;padding:.2em .3em;text-align:center;background:#def;"
	"cursor:pointer}#map span.on{background:#36c;color:#fff}small{color:#777}input,select{font:inherit;padding:.2em}"
	"details{max-width:70em}code{font-size:12px}</style>\n"
	"<h1>atlas audit</h1><p id=\"what\"></p><p><select id=\"target\"></select> <select id=\"phase\"></select> "
	"<input id=\"find\" size=\"40\" placeholder=\"search op, template, operand, reason\"></p>"
	"<div id=\"map\" title=\"layers: equal ones in one box\"></div><div id=\"rows\"></div>\n"
	"<script type=\"application/json\" id=\"audit\">";

static const char tail[] =
	"</script><script>\n"
	"const A = JSON.parse(document.getElementById('audit').textContent), $ = id => document.getElementById(id);\n"
	"const el = (tag, text, cls) => { const e = document.createElement(tag); e.textContent = text ?? '';\n"
	"  if (cls) e.className = cls; return e; };\n"
	"const name = l => l[0] < 0 ? 'start' : l[0] >= A.n_layers ? 'end' :\n"
	"  l[0] == l[1] ? '' + l[0] : l[0] + '-' + l[1];\n"
	"const chosen = x => x.candidates.find(c => c.verdict == 'chosen');\n"
	"let layer = null;\n"
	"function fill(box, items) { box.replaceChildren(...items.map((t, i) => { const o = el('option', t); o.value = i;"
	" return o; })); }\n"
	"function phases() { return A.targets[$('target').value].phases; }\n"
	"function show() {\n"
	"  const p = phases()[$('phase').value], words = $('find').value.toLowerCase().split(/\\s+/).filter(w => w);\n"
	"  const boxes = [...new Set(p.launches.map(x => name(x.layers)))];\n"
	"  $('map').replaceChildren(...boxes.map(b => { const s = el('span', b, b == layer ? 'on' : '');\n"
	"    s.onclick = () => { layer = b == layer ? null : b; show(); }; return s; }));\n"
	"  const table = el('table'), top = table.insertRow();\n"
	"  for (const [t, n] of [['layers'], ['op'], ['template'], ['from'], ['us', 1], ['us of all layers', 1],\n"
	"    ['MB read', 1], ['MB written', 1], ['MFLOP', 1], ['grid'], ['registers', 1]])\n"
	"    top.append(el('th', t, n ? 'n' : ''));\n"
	"  let us = 0, bytes = 0, launches = 0;\n"
	"  for (const x of p.launches) {\n"
	"    const c = chosen(x), n = x.layers[1] - x.layers[0] + 1;\n"
	"    us += c.cost_us * n; bytes += (x.read_bytes + x.write_bytes) * n; launches += n;\n"
	"    if (layer !== null && name(x.layers) != layer) continue;\n"
	"    const text = JSON.stringify(x).toLowerCase();\n"
	"    if (!words.every(w => text.includes(w))) continue;\n"
	"    const r = table.insertRow();\n"
	"    r.append(el('td', name(x.layers)), el('td', x.op));\n"
	"    const cell = el('td'), d = el('details'), s = el('summary', x.template + ' ' + c.tunables);\n"
	"    d.append(s, el('div', x.operands), el('code', x.defines));\n"
	"    for (const k of x.candidates) if (k !== c || k.reason) d.append(el('div',\n"
	"      k.verdict + ' ' + k.template + ' ' + k.tunables +\n"
	"      (k.reason ? ': ' + k.reason + (k.at ? ' (' + k.at + ')' : '') :\n"
	"        ', ' + k.cost_us.toFixed(2) + ' us (' + k.cost_from + ')')));\n"
	"    cell.append(d); r.append(cell, el('td', c.cost_from));\n"
	"    for (const v of [c.cost_us, c.cost_us * n, x.read_bytes / 1e6, x.write_bytes / 1e6, x.flops / 1e6])\n"
	"      r.append(el('td', v.toFixed(3), 'n'));\n"
	"    r.append(el('td', x.grid.join('x')), el('td', x.registers, 'n'));\n"
	"  }\n"
	"  $('rows').replaceChildren(el('p', launches + ' launches, ' + (bytes / 1e6).toFixed(3) + ' MB, ' +\n"
	"    us.toFixed(2) +\n"
	"    ' us by the ledger'), table);\n"
	"}\n"
	"function target() { fill($('phase'), phases().map(p => p.phase + '[' + p.rows + ']')); layer = null; show(); }\n"
	"$('what').textContent = A.family + ', ' + A.n_layers + ' layers, root ' + A.root;\n"
	"fill($('target'), A.targets.map(t => t.target));\n"
	"$('target').onchange = target; $('phase').onchange = () => { layer = null; show(); }; $('find').oninput = show;\n"
	"if (A.targets.length) target();\n"
	"</script></html>\n";

bool audit_html(const Artifact *a, FILE *out)
{
	char *text = NULL;
	size_t n = 0;
	AuditOptions all = {0};
	FILE *json = open_memstream(&text, &n);
	if (!json)
		return false;
	audit_json(a, &all, json);
	bool good = !ferror(json);
	good = fclose(json) == 0 && good;
	if (good) {
		fputs(head, out);
		for (size_t i = 0; i < n; i++)
			if (text[i] == '<')
				fputs("\\u003c", out);
			else
				fputc(text[i], out);
		fputs(tail, out);
	}
	free(text);
	return good;
}
