/* kernel_rules.c - what pins and bans of MODEL.toml say of a candidate. */
#include "compiler/text/input.h"
#include "compiler/pick/picker.h"

#include <string.h>

static bool rule_applies(const Picker *p, const KernelRule *r)
{
	bool in_layers = p->op->layer >= r->layer_first && p->op->layer <= r->layer_last;
	return in_layers && p->low->kind != PROBE && (!r->op || strcmp(r->op, op_table[p->op->kind].name) == 0) &&
		(!r->phase || strcmp(r->phase, phase_name(p->low->kind)) == 0);
}

static bool rule_names(const KernelRule *r, const Considered *k)
{
	const KernelTemplate *t = &kernel_table[k->template_index];
	if (strcmp(r->template_name, t->name) != 0)
		return false;
	for (int i = 0; i < r->n_tunables; i++)
		for (int n = 0; n < t->n_tunables; n++)
			if (strcmp(t->tunables[n].name, r->tunables[i].name) == 0 && k->values[n] != r->tunables[i].value)
				return false;
	return true;
}

/* Is the template of a pin one for this op? Else the pin is not about it. */
static bool does_op(const KernelRule *r, OpKind op)
{
	for (int i = 0; i < n_kernel_table; i++)
		if (strcmp(kernel_table[i].name, r->template_name) == 0)
			return kernel_table[i].op == op;
	return false;
}

RuleWord rule_word(const Picker *p, const Considered *k, const KernelRule **by)
{
	RuleWord word = NO_RULE;
	for (int i = 0; i < p->c->model.options.rules.n; i++) {
		KernelRule *r = &p->c->model.options.rules.at[i];
		if (!rule_applies(p, r))
			continue;
		const bool named = rule_names(r, k);
		if (r->is_pin ? !does_op(r, p->op->kind) : !named)
			continue;
		r->was_met = true;
		*by = r;
		if (!r->is_pin || !named)
			return EXCLUDED;
		word = PINNED;
	}
	return word;
}

bool same_rules(const Compile *c, int layer_a, int layer_b)
{
	for (int i = 0; i < c->model.options.rules.n; i++) {
		const KernelRule *r = &c->model.options.rules.at[i];
		bool a = layer_a >= r->layer_first && layer_a <= r->layer_last;
		bool b = layer_b >= r->layer_first && layer_b <= r->layer_last;
		if (a != b)
			return false;
	}
	return true;
}

/* By a rule; else its note says by what. */
static bool is_excluded(const Considered *k) { return k->verdict == BANNED && !*k->note; }

const KernelRule *rule_to_blame(const Decision *d, int nth)
{
	for (int i = 0; i < d->candidates.n; i++) {
		const Considered *k = &d->candidates.at[i];
		bool is_new = is_excluded(k);
		for (int b = 0; b < i && is_new; b++)
			is_new = !is_excluded(&d->candidates.at[b]) || d->candidates.at[b].rule != k->rule;
		if (is_new && nth-- == 0)
			return k->rule;
	}
	return NULL;
}

const char *rule_place(const KernelRule *r) { return input_name(r->at.file, "MODEL.toml"); }

const char *rule_tunables(Arena *a, const KernelRule *r)
{
	const char *text = "";
	for (int i = 0; i < r->n_tunables; i++)
		text = arena_printf(a, "%s%s%s=%d", text, i ? " " : "", r->tunables[i].name, r->tunables[i].value);
	return text;
}

/* A rule that decided nothing says something else than its writer meant. */
void check_rules(Compile *c)
{
	for (int i = 0; i < c->model.options.rules.n; i++) {
		const KernelRule *r = &c->model.options.rules.at[i];
		const char *layers = r->layer_first < 0 ? "" : arena_printf(&c->scratch, " of layers %d to %d",
			r->layer_first, r->layer_last);
		if (!r->was_met)
			fail_at(&c->diags, A0702, r->at, "kernels.%s: no op%s%s%s is one for %s%s%s", r->is_pin ? "pin" : "ban",
				layers, r->phase ? " in phase " : "", r->phase ? r->phase : "", r->template_name,
				r->n_tunables ? " with " : "", rule_tunables(&c->scratch, r));
	}
}
