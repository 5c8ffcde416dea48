/* audit_page.c - a plan as one page: what an auditor asks first, then every phase with its launches, then every
 * decision with its candidates.
 *
 * Layers of a phase whose launches are equal are listed once, neighbours or not: a group, named by all of its layers.
 * Fragments name things as atlas audit --why does, after the target: #sm_90a/decode[2], .../0, .../0/norm_linear, and
 * .../0/linear_residual/2 for the second such launch of a layer. Each layer of a group has its fragment.
 */
#include "runtime/cli/page/audit_page.h"
#include "artifacts/audit.h"
#include "artifacts/formats.h"
#include "artifacts/op_table.h"
#include "artifacts/order.h"
#include "artifacts/sign.h"
#include "runtime/atlas.h"
#include "runtime/cli/page/page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct LayerRun { int first, n, layer, group; } LayerRun; /* launches [first, first + n) of a layer */

typedef struct PageWork { double us, bytes; } PageWork;

typedef struct View { /* of one phase */
	const Artifact *a;
	const TargetPlan *t;
	const Slot *ledger;
	const Phase *p;
	LayerRun *runs; int n_runs, n_groups;
	PageWork all;
} View;

/* Groups -------------------------------------------------------------------------------------------------------- */

static bool same_launches(const Phase *p, const LayerRun *a, const LayerRun *b)
{
	if (a->n != b->n)
		return false;
	for (int i = 0; i < a->n; i++) {
		const Launch *x = &p->launches[a->first + i], *y = &p->launches[b->first + i];
		if (x->op != y->op || x->kernel != y->kernel || memcmp(x->grid, y->grid, sizeof x->grid) != 0)
			return false;
	}
	return true;
}

static bool is_inside(const View *v, int layer) { return layer >= 0 && layer < v->a->graph.n_layers; }

static void find_groups(View *v)
{
	const Phase *p = v->p;
	for (int i = 0; i < p->n_launches;) {
		LayerRun *r = &v->runs[v->n_runs];
		*r = (LayerRun){i, 0, p->launches[i].layer, v->n_groups};
		while (i < p->n_launches && p->launches[i].layer == r->layer) {
			r->n++;
			i++;
		}
		for (int k = 0; is_inside(v, r->layer) && k < v->n_runs; k++)
			if (is_inside(v, v->runs[k].layer) && same_launches(p, &v->runs[k], r)) {
				r->group = v->runs[k].group;
				break;
			}
		v->n_groups += r->group == v->n_groups;
		v->n_runs++;
	}
}

static PageWork work_of(const View *v, const Launch *l)
{
	return (PageWork){audit_chosen(&v->ledger[l->slot])->cost_us, (double)l->read_bytes + (double)l->write_bytes};
}

static void add(PageWork *sum, PageWork w)
{
	sum->us += w.us;
	sum->bytes += w.bytes;
}

static double part(double of, double all) { return all > 0 ? of / all : 0; }

/* Names --------------------------------------------------------------------------------------------------------- */

static void put_layer(const View *v, int layer, FILE *out)
{
	if (is_inside(v, layer))
		fprintf(out, "%d", layer);
	else
		fputs(layer < 0 ? "start" : "end", out);
}

static void put_phase_id(const View *v, FILE *out)
{
	page_put_id(out, v->t->target);
	fprintf(out, "/%s", PHASE_LABEL(v->p));
}

/* Where a phase comes back to a layer, "end.2" is its second run there. */
static void put_layer_id(const View *v, const LayerRun *r, FILE *out)
{
	int before = 0;
	for (const LayerRun *x = v->runs; x < r; x++)
		before += x->layer == r->layer;
	put_phase_id(v, out);
	fputc('/', out);
	put_layer(v, r->layer, out);
	if (before)
		fprintf(out, ".%d", before + 1);
}

static void put_launch_id(const View *v, const LayerRun *r, int k, FILE *out)
{
	int before = 0;
	const OpKind op = v->p->launches[r->first + k].op;
	for (int i = 0; i < k; i++)
		before += v->p->launches[r->first + i].op == op;
	put_layer_id(v, r, out);
	fprintf(out, "/%s", op_table[op].name);
	if (before)
		fprintf(out, "/%d", before + 1);
}

/* "0-2, 4-6"; brief: "0-2 …" of several runs. */
static void put_layers(const View *v, int group, bool is_brief, FILE *out)
{
	int first = -2, last = -2, n = 0;
	for (int i = 0; i <= v->n_runs; i++) {
		const LayerRun *r = i < v->n_runs ? &v->runs[i] : NULL;
		if (r && r->group != group)
			continue;
		if (r && n && r->layer == last + 1) {
			last++;
			continue;
		}
		if (n && last > first)
			fprintf(out, "-%d", last);
		if (r && n && is_brief) {
			fputs(" &#8230;", out);
			return;
		}
		if (!r)
			return;
		fputs(n++ ? ", " : "", out);
		put_layer(v, r->layer, out);
		first = last = r->layer;
	}
}

static int count_layers(const View *v, int group)
{
	int n = 0;
	for (int i = 0; i < v->n_runs; i++)
		n += v->runs[i].group == group;
	return n;
}

static const LayerRun *first_of(const View *v, int group)
{
	for (int i = 0; i < v->n_runs; i++)
		if (v->runs[i].group == group)
			return &v->runs[i];
	return NULL;
}

/* "0-2 ... x30", a link to the group. */
static void put_brief(const View *v, int group, FILE *out)
{
	const int n = count_layers(v, group);
	fputs("<a href=\"#", out);
	put_layer_id(v, first_of(v, group), out);
	fputs("\">", out);
	put_layers(v, group, true, out);
	fputs("</a>", out);
	if (n > 1)
		fprintf(out, " <span class=\"dim\">&#215;%d</span>", n);
}

static void put_number(FILE *out, double x) { fprintf(out, "%.*f", x < 10 ? 3 : x < 1000 ? 2 : 1, x); }

/* Shares -------------------------------------------------------------------------------------------------------- */

enum { BY_OP, BY_TEMPLATE, BY_LAYERS, BY_COUNT };
typedef struct Share { const char *name; int group; PageWork w; } Share;

static int by_time(const void *x, const void *y)
{
	const Share *a = x, *b = y;
	const bool is_less = a->w.us < b->w.us || (a->w.us == b->w.us && a->group > b->group);
	return is_less ? 1 : -1;
}

static void put_shares(const View *v, int by, Share *rows, FILE *out)
{
	static const char *const heads[BY_COUNT] = {"Op", "Template", "Layers"};
	int n = 0;
	for (int i = 0; i < v->n_runs; i++)
		for (int k = 0; k < v->runs[i].n; k++) {
			const Launch *l = &v->p->launches[v->runs[i].first + k];
			const char *name = by == BY_OP ? op_table[l->op].name : v->t->kernels[l->kernel].name;
			int at = 0;
			while (at < n && (by == BY_LAYERS ? rows[at].group != v->runs[i].group : strcmp(rows[at].name, name) != 0))
				at++;
			if (at == n)
				rows[n++] = (Share){name, by == BY_LAYERS ? v->runs[i].group : n, {0, 0}};
			add(&rows[at].w, work_of(v, l));
		}
	qsort(rows, (size_t)n, sizeof *rows, by_time);
	fprintf(out, "<table class=\"shares\"><caption>By %s</caption><thead><tr><th scope=\"col\">%s</th>"
		"<th scope=\"col\" class=\"n\">Time</th><th scope=\"col\" class=\"n\">Bytes</th></tr></thead><tbody>\n",
		by == BY_OP ? "kind of op" : by == BY_TEMPLATE ? "template" : "layers", heads[by]);
	for (int i = 0; i < n; i++) {
		fputs("<tr><th scope=\"row\">", out);
		if (by == BY_LAYERS)
			put_brief(v, rows[i].group, out);
		else
			page_put(out, rows[i].name);
		fputs("</th><td class=\"n\">", out);
		page_share(out, part(rows[i].w.us, v->all.us), false);
		fputs("</td><td class=\"n\">", out);
		page_share(out, part(rows[i].w.bytes, v->all.bytes), true);
		fputs("</td></tr>\n", out);
	}
	fputs("</tbody></table>\n", out);
}

/* Decisions ----------------------------------------------------------------------------------------------------- */

static void put_candidate(const Artifact *a, const Candidate *c, FILE *out)
{
	const char *at = audit_place(a, c);
	fprintf(out, "<li><b class=\"v%d\">%s</b> ", (int)c->verdict, verdict_name(c->verdict));
	page_put(out, c->kernel);
	fputs(c->tunables[0] ? " " : "", out);
	page_put(out, c->tunables);
	if (c->verdict == CHOSEN || !c->reason[0] || c->verdict == PRUNED) {
		fprintf(out, ", %.2f \302\265s (", c->cost_us);
		page_put(out, c->cost_from);
		fputc(')', out);
	}
	if (c->reason[0]) {
		fputs(": ", out);
		page_put(out, c->reason);
	}
	if (*at) {
		fputs(" (", out);
		page_put(out, at);
		fputc(')', out);
	}
	fputs("</li>\n", out);
}

static bool same_candidate(const Candidate *a, const Candidate *b)
{
	return a->verdict == b->verdict && a->cost_us == b->cost_us && strcmp(a->kernel, b->kernel) == 0 &&
		strcmp(a->tunables, b->tunables) == 0 && strcmp(a->reason, b->reason) == 0 &&
		strcmp(a->cost_from, b->cost_from) == 0;
}

/* The first decision of the ledger that says the same of the same operands of the same phase: it alone is printed. */
static int first_equal(const Slot *ledger, int index)
{
	const Slot *s = &ledger[index];
	for (int i = 0; i < index; i++) {
		const Slot *x = &ledger[i];
		bool same = x->op == s->op && x->phase == s->phase && x->rows == s->rows && x->each == s->each &&
			x->n_candidates == s->n_candidates && strcmp(x->operands, s->operands) == 0 &&
			strcmp(x->attrs, s->attrs) == 0;
		for (int k = 0; same && k < s->n_candidates; k++)
			same = same_candidate(&x->candidates[k], &s->candidates[k]);
		if (same)
			return i;
	}
	return index;
}

static void put_decision(const Artifact *a, const TargetPlan *t, const Slot *s, int index, FILE *out)
{
	const Candidate *c = audit_chosen(s);
	fputs("<details id=\"", out);
	page_put_id(out, t->target);
	fprintf(out, "/decision/%d\"><summary>%s, ", index, LEDGER_LABEL(s));
	if (s->layer_first < 0 || s->layer_first >= a->graph.n_layers)
		fputs(s->layer_first < 0 ? "start" : "end", out);
	else
		fprintf(out, "layers from %d", s->layer_first);
	fprintf(out, ", %s: <b>", op_table[s->op].name);
	page_put(out, c ? c->kernel : "");
	fprintf(out, "</b> of %d candidates</summary>\n<p>", s->n_candidates);
	page_put(out, s->operands);
	fputs("</p><ol>\n", out);
	for (int pass = 0; pass < 2; pass++) /* the chosen one first */
		for (int i = 0; i < s->n_candidates; i++)
			if ((s->candidates[i].verdict == CHOSEN) == (pass == 0))
				put_candidate(a, &s->candidates[i], out);
	fputs("</ol></details>\n", out);
}

/* Launches ------------------------------------------------------------------------------------------------------ */

static const struct { const char *head; bool is_number; } columns[] = {{"Layers", false}, {"Op", false},
	{"Kernel", false}, {"Weights", false}, {"Cache", false}, {"Time \302\265s", true}, {"Share", true},
	{"One \302\265s", true}, {"Reads MB", true}, {"Writes MB", true}, {"MFLOP", true}, {"Grid", true}, {"Block", true},
	{"Smem B", true}, {"Regs", true}, {"Spills B", true}, {"From", false}, {"Order", false}};
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

static void open_cell(FILE *out, int column)
{
	fprintf(out, "<td%s data-l=\"%s\">", columns[column].is_number ? " class=\"n\"" : "", columns[column].head);
}

static void put_details(const View *v, const Launch *l, FILE *out)
{
	const Slot *s = &v->ledger[l->slot];
	const Kernel *k = &v->t->kernels[l->kernel];
	const Candidate *c = audit_chosen(s);
	fputs("<details><summary>", out);
	page_put(out, k->name);
	if (c->tunables[0]) {
		fputs(" <span class=\"dim\">", out);
		page_put(out, c->tunables);
		fputs("</span>", out);
	}
	fprintf(out, "</summary><dl><dt>Computes</dt><dd>");
	page_put(out, op_meanings[l->op]);
	fputs("</dd><dt>Operands</dt><dd>", out);
	page_put(out, s->operands);
	fputs("</dd><dt>Attributes</dt><dd>", out);
	page_put(out, s->attrs[0] ? s->attrs : "none");
	fputs("</dd><dt>Constants</dt><dd>", out);
	page_put(out, k->defines);
	fprintf(out, "</dd><dt>Work</dt><dd>reads %" PRId64 " bytes, writes %" PRId64 ", %" PRId64 " operations</dd>"
		"<dt>Decision</dt><dd><a href=\"#", l->read_bytes, l->write_bytes, l->flops);
	page_put_id(out, v->t->target);
	fprintf(out, "/decision/%d\">chosen of %d candidates</a></dd></dl></details>", first_equal(v->ledger, l->slot),
		s->n_candidates);
}

static void put_launch(const View *v, int group, const LayerRun *r, int k, FILE *out)
{
	const Launch *l = &v->p->launches[r->first + k];
	const Kernel *kernel = &v->t->kernels[l->kernel];
	const Candidate *c = audit_chosen(&v->ledger[l->slot]);
	const char *cache = launch_cache(v->p, l);
	char weights[AUDIT_WEIGHTS];
	double us = 0;
	for (int i = 0; i < v->n_runs; i++)
		us += v->runs[i].group == group ? work_of(v, &v->p->launches[v->runs[i].first + k]).us : 0;
	fputs("<tr id=\"", out);
	put_launch_id(v, r, k, out);
	fputs("\">", out);
	open_cell(out, 0);
	put_brief(v, group, out);
	fputs("</td><th scope=\"row\" data-l=\"Op\"><a href=\"#", out);
	put_launch_id(v, r, k, out);
	fprintf(out, "\">%s</a></th>", op_table[l->op].name);
	open_cell(out, 2);
	put_details(v, l, out);
	fputs("</td>", out);
	open_cell(out, 3);
	audit_weights(v->p, l, v->ledger, weights);
	page_put(out, weights);
	fputs("</td>", out);
	open_cell(out, 4);
	page_put(out, *cache ? cache : "-");
	fputs("</td>", out);
	open_cell(out, 5);
	put_number(out, us);
	fputs("</td>", out);
	open_cell(out, 6);
	page_share(out, part(us, v->all.us), false);
	fputs("</td>", out);
	const double values[] = {c->cost_us, (double)l->read_bytes / 1e6, (double)l->write_bytes / 1e6,
		(double)l->flops / 1e6};
	for (int i = 0; i < 4; i++) {
		open_cell(out, 7 + i);
		put_number(out, values[i]);
		fputs("</td>", out);
	}
	fprintf(out, "<td class=\"n\" data-l=\"Grid\" data-v=\"%.0f\">%d&#215;%d&#215;%d</td>",
		(double)l->grid[0] * l->grid[1] * l->grid[2], l->grid[0], l->grid[1], l->grid[2]);
	const int whole[] = {kernel->block[0] * kernel->block[1] * kernel->block[2],
		kernel->smem_bytes + kernel->static_smem_bytes, kernel->registers, kernel->spill_bytes};
	for (int i = 0; i < 4; i++) {
		open_cell(out, 12 + i);
		fprintf(out, "%s%d%s</td>", i == 3 && whole[i] ? "<b class=\"warn\">" : "", whole[i],
			i == 3 && whole[i] ? "</b>" : "");
	}
	open_cell(out, 16);
	page_put(out, c->cost_from);
	fputs("</td>", out);
	open_cell(out, 17);
	page_put(out, c->order);
	fputs("</td></tr>\n", out);
}

static void put_group(const View *v, int group, FILE *out)
{
	const LayerRun *r = first_of(v, group);
	const int n = count_layers(v, group);
	PageWork sum = {0, 0};
	for (int i = 0; i < v->n_runs; i++)
		for (int k = 0; v->runs[i].group == group && k < r->n; k++)
			add(&sum, work_of(v, &v->p->launches[v->runs[i].first + k]));
	fprintf(out, "<tbody><tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%d\">", N_COLUMNS);
	for (int i = 0; i < v->n_runs; i++)
		if (v->runs[i].group == group) {
			fputs("<a class=\"at\" id=\"", out);
			put_layer_id(v, &v->runs[i], out);
			fputs("\"></a>", out);
		}
	fputs("<a href=\"#", out);
	put_layer_id(v, r, out);
	fputs(is_inside(v, r->layer) ? n > 1 ? "\">Layers " : "\">Layer " : r->layer < 0 ? "\">Before the layers"
		: "\">After the layers", out);
	if (is_inside(v, r->layer))
		put_layers(v, group, false, out);
	fputs("</a> <span class=\"dim\">", out);
	if (n > 1)
		fprintf(out, "%d equal layers of ", n);
	fprintf(out, "%d launch%s, ", r->n, r->n == 1 ? "" : "es");
	put_number(out, sum.us);
	fprintf(out, " \302\265s, %.1f %% of the phase</span></th></tr>\n", 100 * part(sum.us, v->all.us));
	for (int k = 0; k < r->n; k++)
		put_launch(v, group, r, k, out);
	fputs("</tbody>\n", out);
}

static bool put_phase(View *v, FILE *out)
{
	const Phase *p = v->p;
	Share *rows = calloc((size_t)p->n_launches + 1, sizeof *rows);
	v->runs = calloc((size_t)p->n_launches + 1, sizeof *v->runs);
	const bool good = rows && v->runs;
	if (good) {
		find_groups(v);
		for (int i = 0; i < p->n_launches; i++)
			add(&v->all, work_of(v, &p->launches[i]));
		fputs("<section class=\"phase\" id=\"", out);
		put_phase_id(v, out);
		fputs("\">\n<h3><a href=\"#", out);
		put_phase_id(v, out);
		fprintf(out, "\">%s</a> <span class=\"dim\">", PHASE_LABEL(p));
		page_put(out, v->t->target);
		fprintf(out, "</span></h3>\n<p>%d launches, <b>", p->n_launches);
		put_number(out, v->all.us);
		fputs(" \302\265s</b> expected, ", out);
		page_bytes(out, v->all.bytes);
		fprintf(out, " read and written; %d row%s, logits of at most %d.", p->rows, p->rows == 1 ? "" : "s", p->outs);
		char set[ORDER_SET_TEXT];
		if (*order_set_text(v->a, v->t, p->kind, set))
			fprintf(out, " Orders are equal in %s.", set);
		fputs("</p>\n<div class=\"sums\">\n", out);
		for (int by = 0; by < BY_COUNT; by++)
			put_shares(v, by, rows, out);
		fputs("</div>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Launches of ", out);
		fprintf(out, "%s\"><table class=\"launches cards sorts\"><caption>Launches of %s, in order</caption>"
			"<thead><tr>", PHASE_LABEL(p), PHASE_LABEL(p));
		for (int i = 0; i < N_COLUMNS; i++)
			fprintf(out, "<th scope=\"col\"%s>%s</th>", columns[i].is_number ? " class=\"n\"" : "", columns[i].head);
		fputs("</tr></thead>\n", out);
		for (int g = 0; g < v->n_groups; g++)
			put_group(v, g, out);
		fputs("</table></div>\n</section>\n", out);
	}
	free(rows);
	free(v->runs);
	return good;
}

/* What an auditor asks first ------------------------------------------------------------------------------------ */

static void put_seals(const Artifact *a, CertificateState certificate, const char *why, FILE *out)
{
	page_fact(out, "Signatures");
	for (int i = 0; i < a->n_signatures; i++) {
		uint8_t id[KEY_ID_BYTES];
		key_id(a->signatures[i].public_key, id);
		fputs(i ? "<br/>" : "<span class=\"ok\">by key</span> ", out);
		page_hash(out, id);
	}
	if (!a->n_signatures)
		fputs("<span class=\"warn\">none</span>", out);
	page_fact_end(out);
	page_fact(out, "Certificate");
	if (certificate == CERTIFICATE_HOLDS) {
		fputs("<span class=\"ok\">holds</span>", out);
	} else if (certificate == CERTIFICATE_NONE) {
		fputs("<span class=\"warn\">none next to the plan</span>", out);
	} else {
		fputs("<span class=\"bad\">does not hold</span>: ", out);
		page_put(out, why);
	}
	page_fact_end(out);
}

static void put_targets(const Artifact *a, FILE *out)
{
	page_fact(out, "Targets");
	if (!a->n_targets)
		fputs("none: for the reference device", out);
	for (int i = 0; i < a->n_targets; i++) {
		const char *target = a->targets[i].target, *ran = artifact_option_of(a, "target", target, ".ran_on");
		const char *card = artifact_option_of(a, "tuning", target, ".card");
		const bool never = !ran || strcmp(ran, PLAN_NEVER_RAN) == 0;
		fputs(i ? "<br/><b>" : "<b>", out);
		page_put(out, target);
		fputs(never ? "</b> <span class=\"warn\">" : "</b> plans ran on ", out);
		page_put(out, ran ? ran : "not recorded where plans ran");
		fputs(never ? "</span>" : "", out);
		fputs(card ? "; times of " : "; times by a model of its typical card", out);
		page_put(out, card ? card : "");
		fprintf(out, "; %d kernels", a->targets[i].n_kernels);
	}
	page_fact_end(out);
}

static void put_weights(const Artifact *a, FILE *out)
{
	ProductCount products[MAX_PRODUCTS];
	const int n = graph_products(&a->graph, products);
	const char *seed = artifact_option(a, "weights.random_seed");
	page_fact(out, "Weights");
	page_bytes(out, (double)a->graph.weight_arena_bytes);
	if (seed) {
		fputs(" <span class=\"warn\">random, seed ", out);
		page_put(out, seed);
		fputs("</span>", out);
	}
	page_fact_end(out);
	page_fact(out, "Products");
	for (int i = 0; i < n; i++) {
		char text[FORMAT_TEXT];
		const char *name = format_names[products[i].format.name];
		fprintf(out, "%s%d %s", i ? ", " : "", products[i].n, format_text(&products[i].format, text));
		if (strcmp(name, text) != 0)
			fprintf(out, " <span class=\"dim\">%s</span>", name);
	}
	fputs(n ? "" : "none", out);
	page_fact_end(out);
	page_fact(out, "Caches");
	print_caches(&a->graph, out);
	page_fact_end(out);
}

/* Which phases give a row the same bits. */
static void put_orders(const Artifact *a, FILE *out)
{
	char set[ORDER_SET_TEXT];
	int n = 0;
	page_fact(out, "Orders of sums");
	for (int i = 0; i < a->n_targets; i++)
		for (int p = PREFILL; p <= DECODE; p++)
			if (*order_set_text(a, &a->targets[i], (PhaseKind)p, set))
				fprintf(out, "%sequal in %s", n++ ? "<br/>" : "", set);
	fputs(n ? "" : "of each bucket its own", out);
	page_fact_end(out);
}

static void put_memory(const Artifact *a, FILE *out)
{
	page_fact(out, "Memory");
	fputs("weights ", out);
	page_bytes(out, (double)a->graph.weight_arena_bytes);
	for (int i = 0; i < a->n_targets; i++) {
		fputs(i ? "<br/>" : "; ", out);
		if (a->n_targets > 1) {
			page_put(out, a->targets[i].target);
			fputs(": ", out);
		}
		fputs("state ", out);
		page_bytes(out, (double)a->targets[i].arena_bytes[ARENA_STATE]);
		fputs(", scratch ", out);
		page_bytes(out, (double)a->targets[i].arena_bytes[ARENA_SCRATCH]);
	}
	page_fact_end(out);
}

/* Options that change or excuse something: what MODEL.toml forces, replaces or leaves unread. */
static void put_notes(const Artifact *a, FILE *out)
{
	static const struct { const char *begin, *word; } kinds[] = {{"kernels.pin.", "pinned"}, {"kernels.ban.", "banned"},
		{"config.", "config.json replaced"}, {"note.", "not read"}};
	int n = 0;
	page_fact(out, "Notes and waivers");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		for (int i = 0; i < a->n_options; i++) {
			const Option *o = &a->options[i];
			if (strncmp(o->name, kinds[k].begin, strlen(kinds[k].begin)) != 0)
				continue;
			fprintf(out, "%s<li><span class=\"warn\">%s</span> ", n++ ? "" : "<ul>", kinds[k].word);
			page_put(out, o->name + strlen(kinds[k].begin));
			fputs(" = ", out);
			page_put(out, o->value);
			fputs("</li>", out);
		}
	fputs(n ? "</ul>" : "none: no pins, no bans, nothing of config.json replaced or unread", out);
	page_fact_end(out);
}

static void put_steps(const Artifact *a, FILE *out)
{
	double most = 0;
	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			fputs("<section id=\"steps\"><h2>Expected steps</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
				"aria-label=\"Expected steps\"><table class=\"steps cards sorts\"><caption>A step of each phase, by "
				"the times that its kernels were chosen by</caption><thead><tr><th scope=\"col\">Phase</th>"
				"<th scope=\"col\">Target</th><th scope=\"col\" class=\"n\">Launches</th>"
				"<th scope=\"col\" class=\"n\">Bytes MB</th><th scope=\"col\" class=\"n\">Time \302\265s</th>"
				"<th scope=\"col\" class=\"n\">Of the longest</th></tr></thead><tbody>\n", out);
		for (int i = 0; i < a->n_targets; i++)
			for (int k = 0; k < a->targets[i].n_phases; k++) {
				View v = {.a = a, .t = &a->targets[i], .ledger = a->ledger[i], .p = &a->targets[i].phases[k]};
				for (int l = 0; l < v.p->n_launches; l++)
					add(&v.all, work_of(&v, &v.p->launches[l]));
				most = v.p->kind != PROBE && v.all.us > most ? v.all.us : most;
				if (!pass || v.p->kind == PROBE)
					continue;
				fputs("<tr><th scope=\"row\" data-l=\"Phase\"><a href=\"#", out);
				put_phase_id(&v, out);
				fprintf(out, "\">%s</a></th><td data-l=\"Target\">", PHASE_LABEL(v.p));
				page_put(out, v.t->target);
				fprintf(out, "</td><td class=\"n\" data-l=\"Launches\">%d</td><td class=\"n\" data-l=\"Bytes MB\">",
					v.p->n_launches);
				put_number(out, v.all.bytes / 1e6);
				fputs("</td><td class=\"n\" data-l=\"Time \302\265s\">", out);
				put_number(out, v.all.us);
				fputs("</td><td class=\"n\" data-l=\"Of the longest\">", out);
				page_share(out, part(v.all.us, most), false);
				fputs("</td></tr>\n", out);
			}
	}
	fputs("</tbody></table></div></section>\n", out);
}

static void put_plan(const Artifact *a, CertificateState certificate, const char *why, FILE *out)
{
	const Graph *g = &a->graph;
	fputs("<section id=\"plan\"><h2>Plan</h2>\n<dl class=\"facts\">\n", out);
	page_fact(out, "Model");
	page_put(out, g->family);
	fprintf(out, ", %d layers, hidden_dim %d, vocab %d", g->n_layers, g->hidden_dim, g->vocab);
	page_fact_end(out);
	page_fact(out, "Root hash");
	page_hash(out, a->root);
	page_fact_end(out);
	put_seals(a, certificate, why, out);
	put_targets(a, out);
	put_weights(a, out);
	put_orders(a, out);
	put_memory(a, out);
	put_notes(a, out);
	fputs("</dl></section>\n", out);
}

static void put_links(const Artifact *a, FILE *out)
{
	fputs("<nav aria-label=\"Phases\"><a href=\"#plan\">plan</a>\n", out);
	for (int i = 0; i < a->n_targets; i++) {
		fputs(a->n_targets > 1 ? "<span class=\"dim\">" : "", out);
		page_put(out, a->n_targets > 1 ? a->targets[i].target : "");
		fputs(a->n_targets > 1 ? "</span>\n" : "", out);
		for (int k = 0; k < a->targets[i].n_phases; k++) {
			const View v = {.t = &a->targets[i], .p = &a->targets[i].phases[k]};
			fputs("<a href=\"#", out);
			put_phase_id(&v, out);
			fprintf(out, "\">%s</a>\n", PHASE_LABEL(v.p));
		}
	}
	fputs("<a href=\"#decisions\">decisions</a>\n<span class=\"find\" hidden=\"hidden\">"
		"<label for=\"find\">Filter launches by words</label>"
		" <input id=\"find\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\" "
		"placeholder=\"Filter launches\"/> <output for=\"find\" id=\"found\"></output></span></nav>\n", out);
}

bool audit_page(const Artifact *a, CertificateState certificate, const char *why, FILE *out)
{
	bool good = true;
	char title[128], footer[96];
	snprintf(title, sizeof title, "atlas audit: %.60s, %d layers", a->graph.family, a->graph.n_layers);
	snprintf(footer, sizeof footer, "Made by atlas audit --html, atlas %s. 1 MB is 10^6 bytes.", atlas_version());
	page_open(out, title, NULL);
	fputs("<main id=\"main\">\n", out);
	put_plan(a, certificate, why, out);
	if (a->n_targets) {
		put_steps(a, out);
		put_links(a, out);
	}
	for (int i = 0; good && i < a->n_targets; i++)
		for (int k = 0; good && k < a->targets[i].n_phases; k++) {
			View v = {.a = a, .t = &a->targets[i], .ledger = a->ledger[i], .p = &a->targets[i].phases[k]};
			good = put_phase(&v, out);
		}
	if (a->n_targets)
		fputs("<section id=\"decisions\"><h2>Decisions</h2>\n<p>Each with every candidate: the chosen one, slower ones "
			"with their time, and the others with the reason.</p>\n", out);
	for (int i = 0; i < a->n_targets; i++)
		for (int k = 0; k < a->n_ledger[i]; k++)
			if (first_equal(a->ledger[i], k) == k)
				put_decision(a, &a->targets[i], &a->ledger[i][k], k, out);
	fputs(a->n_targets ? "</section>\n</main>\n" : "</main>\n", out);
	page_close(out, footer, NULL);
	return good;
}
