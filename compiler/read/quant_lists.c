/* quant_lists.c - what lists say of modules: those of the files, and [quant] of MODEL.toml.
 *
 * A text model's modules have other names in other wrappings of it: "model.layers.0..." by itself,
 * "model.language_model.layers.0..." with a vision tower, "language_model.model.layers.0..." as older versions and
 * other loaders say. A list is written for one of them and read for any. So is the head, "lm_head".
 *
 * Of the files' targets one that names a module by itself counts before a pattern, and a pattern before "Linear".
 */
#include "compiler/read/quant_lists.h"
#include "compiler/read/family.h"
#include "compiler/text/value.h"

#include <stdlib.h>
#include <string.h>

enum { N_FORMS = 3, MAX_FORM_BYTES = 32 };

/* The names of a module in the wrappings, its own first. How many. */
static int forms_of(Arena *a, const char *module, const char *forms[N_FORMS])
{
	static const char *const roots[N_FORMS] = {"model.language_model.", "language_model.model.", "model."};
	int n = 0;
	forms[n++] = module;
	for (int i = 0; i < N_FORMS; i++) {
		const size_t k = strlen(roots[i]);
		if (strncmp(module, roots[i], k) != 0)
			continue;
		for (int j = 0; j < N_FORMS; j++)
			if (j != i)
				forms[n++] = arena_printf(a, "%s%s", roots[j], module + k);
		return n;
	}
	if (strcmp(module, "lm_head") == 0)
		forms[n++] = "language_model.lm_head";
	return n;
}

/* The names of n modules in all wrappings. */
typedef struct Forms { const char **names; int *owner; bool *is_named; int n; } Forms;

static Forms all_forms(Arena *a, const char *const *modules, int n)
{
	Forms f = {.names = ARENA_ARRAY(a, const char *, N_FORMS * n + 1), .owner = ARENA_ARRAY(a, int, N_FORMS * n + 1),
		.is_named = ARENA_ARRAY(a, bool, N_FORMS * n + 1)};
	for (int i = 0; i < n; i++)
		for (int more = forms_of(a, modules[i], f.names + f.n); more > 0; more--)
			f.owner[f.n++] = i;
	return f;
}

/* Sets hit [of the modules] where the pattern names one in any wrapping. */
static int match(const QuantPattern *p, Forms *f, bool *hit)
{
	memset(f->is_named, 0, sizeof *f->is_named * (size_t)f->n);
	const int n = quant_matches(p, f->names, f->n, f->is_named);
	for (int i = 0; i < f->n && n; i++)
		hit[f->owner[i]] |= f->is_named[i];
	return n;
}

QuantRule *quant_rule_of(Compile *c, const char *module)
{
	QuantRule *first = NULL;
	Forms f = all_forms(&c->scratch, &module, c->model.options.quant.n ? 1 : 0);
	for (int i = 0; i < c->model.options.quant.n; i++) {
		QuantRule *rule = &c->model.options.quant.at[i];
		bool hit = false;
		match(&rule->modules, &f, &hit);
		if (!hit)
			continue;
		rule->was_met = true;
		rule->decides |= !first;
		first = first ? first : rule;
	}
	return first;
}

/* Targets of single modules ------------------------------------------------------------------------------------- */

static int by_name(const void *x, const void *y)
{
	return strcmp(((const QuantTarget *)x)->modules.text, ((const QuantTarget *)y)->modules.text);
}

/* The one that names the module, or a part of the model that it is in; NULL = there is none. */
static QuantTarget *find_layer(Quant *q, const char *module)
{
	char name[1024 + MAX_FORM_BYTES];
	size_t n = strlen(module);
	if (!q->layers.n || n >= sizeof name)
		return NULL;
	memcpy(name, module, n + 1);
	for (char *dot = name + n; dot; dot = strrchr(name, '.')) {
		*dot = 0;
		const QuantTarget key = {.modules = {.text = name}};
		QuantTarget *found = bsearch(&key, q->layers.at, (size_t)q->layers.n, sizeof key, by_name);
		if (found)
			return found;
	}
	return NULL;
}

/* What the files say -------------------------------------------------------------------------------------------- */

/* A layer's router is no Linear of PyTorch: writers leave it alone without a word, unless a list names it. */
static bool is_router(const char *module)
{
	const size_t n = strlen(module), k = strlen(".mlp.gate");
	return n > k && strcmp(module + n - k, ".mlp.gate") == 0;
}

/* Targets of the modules; ignored [n] are left out. modules: NULL = also of routers. */
static void find_targets(Compile *c, const char *const *modules, Forms *f, int n, const bool *ignored, Stated *stated)
{
	Quant *q = &c->model.quant;
	bool *hit = ARENA_ARRAY(&c->scratch, bool, n + 1);
	for (int i = 0; i < f->n; i++) {
		QuantTarget *layer = ignored[f->owner[i]] || stated[f->owner[i]].target ? NULL : find_layer(q, f->names[i]);
		if (layer)
			layer->was_met = true;
		stated[f->owner[i]].target = layer ? layer : stated[f->owner[i]].target;
	}
	for (int pass = 0; pass < 2; pass++)
		for (int k = 0; k < q->targets.n; k++) {
			if (q->targets.at[k].is_class != (pass == 1))
				continue;
			memset(hit, 0, sizeof *hit * (size_t)n);
			match(&q->targets.at[k].modules, f, hit);
			const bool is_all = q->targets.at[k].is_class || strcmp(q->targets.at[k].modules.text, "*") == 0;
			for (int i = 0; i < n; i++)
				if (hit[i] && !ignored[i] && !stated[i].target && !(is_all && modules && is_router(modules[i])))
					stated[i].target = &q->targets.at[k];
		}
}

/* Do they so without a word? */
static bool writers_leave_head(const Quant *q)
{
	return q->name && !q->has_head && (strcmp(q->name, "fp8") == 0 || strcmp(q->name, "awq") == 0 ||
		strcmp(q->name, "gptq") == 0);
}

void quant_stated(Compile *c, const char *const *modules, int n, Stated *stated)
{
	const Quant *q = &c->model.quant;
	const char *head = c->model.config.family->names[NAME_HEAD];
	Forms f = all_forms(&c->scratch, modules, n);
	bool *ignored = ARENA_ARRAY(&c->scratch, bool, n + 1);
	memset(stated, 0, sizeof *stated * (size_t)n);
	for (int i = 0; i < q->ignore.n; i++)
		match(&q->ignore.at[i], &f, ignored);
	for (int i = 0; i < n; i++)
		ignored[i] |= writers_leave_head(q) && strcmp(modules[i], head) == 0;
	find_targets(c, modules, &f, n, ignored, stated);
	for (int i = 0; i < n; i++)
		stated[i].is_ignored = ignored[i];
}

const QuantTarget *quant_target_of(Compile *c, const char *module)
{
	Stated stated = {NULL, false};
	Forms f = all_forms(&c->scratch, &module, 1);
	find_targets(c, NULL, &f, 1, (const bool[]){false}, &stated);
	return stated.target;
}

/* Afterwards ------------------------------------------------------------------------------------------------------ */

/* "a.b.c" and "a.b" and "a" of each tensor "a.b.c.weight", and the head, which may be tied. */
static const char **all_modules(Compile *c, int *n)
{
	VEC(const char *) names = {0};
	*vec_push(&c->scratch, &names) = c->model.config.family->names[NAME_HEAD];
	for (int i = 0; i < c->model.tensors.n; i++) {
		char *name = arena_strdup(&c->scratch, c->model.tensors.at[i].name), *dot;
		while ((dot = strrchr(name, '.'))) {
			*dot = 0;
			bool is_known = false; /* tensors are sorted: a name that was seen is among the last */
			for (int k = names.n - 1; k >= 0 && k >= names.n - 8 && !is_known; k--)
				is_known = strcmp(names.at[k], name) == 0;
			if (is_known)
				break;
			*vec_push(&c->scratch, &names) = arena_strdup(&c->scratch, name);
		}
	}
	*n = names.n;
	return names.at;
}

static void check_ignored_modules(Compile *c)
{
	const Quant *q = &c->model.quant;
	const QuantPattern *idle = NULL;
	int n, n_idle = 0;
	const char **names = all_modules(c, &n);
	Forms f = all_forms(&c->scratch, names, n);
	bool *hit = ARENA_ARRAY(&c->scratch, bool, n + 1);
	for (int i = 0; i < q->ignore.n; i++)
		if (!match(&q->ignore.at[i], &f, hit))
			idle = n_idle++ ? idle : &q->ignore.at[i];
	const char *text = idle ? clip_text(c->diags.arena, idle->text, strlen(idle->text), 80) : "";
	if (n_idle && n_idle == q->ignore.n)
		fail_at(&c->diags, A0609, idle->at, "\"%s\"%s: no module of the checkpoint has such a name, and the list "
			"names no other", text, n_idle > 1 ? arena_printf(c->diags.arena, " and %d more", n_idle - 1) : "");
	else if (n_idle)
		note_at(&c->diags, A0608, idle->at, "\"%s\"%s: no module of the checkpoint has such a name", text,
			n_idle > 1 ? arena_printf(c->diags.arena, " and %d more", n_idle - 1) : "");
}

/* One note for all modules that are (or are not) quantised against the lists. */
static void note_unlisted(Compile *c, const bool *is_listed, bool is_quantised, Loc at)
{
	const Module *first = NULL;
	int n = 0;
	for (int i = 0; i < c->modules.n; i++) {
		const Module *m = &c->modules.at[i];
		bool by_itself = !is_quantised && writers_leave_head(&c->model.quant) &&
			strcmp(m->name, c->model.config.family->names[NAME_HEAD]) == 0;
		if ((m->format != FORMAT_PLAIN) == is_quantised && is_listed[i] != is_quantised && !by_itself)
			first = n++ ? first : m;
	}
	if (n)
		note_at(&c->diags, A0608, at, "%s%s quantized, and the lists of quantized modules say otherwise: the tensors "
			"decide", first->name,
			n > 1 ? arena_printf(&c->scratch, " and %d others are%s", n - 1, is_quantised ? "" : " not")
			: is_quantised ? " is" : " is not");
}

/* With --random-weights the lists are all there is: what they say must have become something. */
static void check_all_made(Compile *c)
{
	const Quant *q = &c->model.quant;
	const QuantTarget *idle = NULL, *first = q->layers.n ? q->layers.at : q->targets.at;
	int n_idle = 0;
	for (int i = 0; i < q->layers.n; i++)
		if (!q->layers.at[i].was_met)
			idle = n_idle++ ? idle : &q->layers.at[i];
	if (q->layers.n + q->targets.n && !c->made.n && !c->model.options.quant.n)
		fail_at(&c->diags, A0611, first->modules.at, "\"%s\"%s: none of the model's products is quantized according to "
			"the files, and --random-weights has no tensors to see it from",
			clip_text(c->diags.arena, first->modules.text, strlen(first->modules.text), 80),
			q->layers.n + q->targets.n > 1 ? arena_printf(c->diags.arena, " and %d more",
			q->layers.n + q->targets.n - 1) : "");
	else if (q->name && !(q->layers.n + q->targets.n) && !q->kv && !c->model.options.quant.n)
		fail_at(&c->diags, A0611, q->at, "%s: no list names a quantized module, and --random-weights has no tensors "
			"that could show it", q->name);
	else if (n_idle)
		note_at(&c->diags, A0608, idle->modules.at, "\"%s\"%s: no product of the model has such a name",
			clip_text(c->diags.arena, idle->modules.text, strlen(idle->modules.text), 80),
			n_idle > 1 ? arena_printf(c->diags.arena, " and %d more", n_idle - 1) : "");
}

void check_quant_lists(Compile *c)
{
	const Quant *q = &c->model.quant;
	const int n = c->modules.n;
	if (c->cmd.random_weights) {
		check_all_made(c);
		return;
	}
	const char **names = ARENA_ARRAY(&c->scratch, const char *, n + 1);
	bool *is_listed = ARENA_ARRAY(&c->scratch, bool, n + 1);
	Stated *stated = ARENA_ARRAY(&c->scratch, Stated, n + 1);
	for (int i = 0; i < n; i++)
		names[i] = c->modules.at[i].name;
	quant_stated(c, names, n, stated);
	for (int i = 0; i < n; i++)
		is_listed[i] = stated[i].target != NULL;
	Loc at = q->at.file ? q->at : (Loc){c->model.config.at_hidden_dim.file, 0, 0};
	note_unlisted(c, is_listed, true, at);
	note_unlisted(c, is_listed, false, at);
	if (q->ignore.n)
		check_ignored_modules(c);
}

void check_quant_rules(Compile *c)
{
	for (int i = 0; i < c->model.options.quant.n; i++) {
		const QuantRule *rule = &c->model.options.quant.at[i];
		if (!rule->was_met)
			fail_at(&c->diags, A0305, rule->modules.at, "quant.\"%s\": the model has no such product",
				rule->modules.text);
		else if (!rule->decides)
			fail_at(&c->diags, A0305, rule->modules.at, "quant.\"%s\": earlier lines decide on every product that it "
				"names: the first that fits counts", rule->modules.text);
		if (rule->n_in_parts)
			fail_at(&c->diags, A0206, rule->modules.at, "quant.\"%s\": %s%s: these are parts of larger tensors, and "
				"only whole tensors can be quantized here; another line may keep them", rule->modules.text,
				rule->in_parts, rule->n_in_parts > 1
				? arena_printf(&c->scratch, " and %d more", rule->n_in_parts - 1) : "");
		if (rule->n_decoded)
			note_at(&c->diags, A0612, rule->modules.at, "quant.\"%s\": %s%s decoded to bf16", rule->modules.text,
				rule->decoded, rule->n_decoded > 1
				? arena_printf(&c->scratch, " and %d more are", rule->n_decoded - 1) : " is");
	}
}
