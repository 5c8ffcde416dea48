/* order.c - the text of an order, and the sets of phases that share one. */
#include "artifacts/order.h"
#include "artifacts/op_table.h"

#include <stdio.h>
#include <string.h>

static bool append(char *text, const char *more, char *why, size_t why_bytes)
{
	const size_t n = strlen(text), m = strlen(more);
	if (n + m >= ORDER_BYTES) {
		snprintf(why, why_bytes, "an order takes more than %d bytes", ORDER_BYTES);
		return false;
	}
	memcpy(text + n, more, m + 1);
	return true;
}

bool order_append(char *text, const char *word, const char *formulas, const ExprEnv *env, char *why, size_t why_bytes)
{
	if ((*text && !append(text, " ", why, why_bytes)) || !append(text, word, why, why_bytes))
		return false;
	char item[ORDER_BYTES], number[32];
	const char *between = "(";
	for (const char *list = formulas; expr_next(&list, item, sizeof item); between = ",") {
		int64_t value;
		if (!expr_eval(item, env, &value, why, why_bytes))
			return false;
		snprintf(number, sizeof number, "%s%lld", between, (long long)value);
		if (!append(text, number, why, why_bytes))
			return false;
	}
	return !*formulas || append(text, ")", why, why_bytes);
}

OrderSet order_set(PhaseKind p)
{
	return p == PREFILL ? ORDER_PROMPTS : p == DECODE || p == VERIFY ? ORDER_ANSWERS : ORDER_FREE;
}

bool order_is_invariant(const Artifact *a)
{
	const char *asked = artifact_option(a, ORDER_OPTION);
	return asked && strcmp(asked, "true") == 0;
}

const char *order_set_text(const Artifact *a, const TargetPlan *t, PhaseKind p, char text[ORDER_SET_TEXT])
{
	const bool is_shared = order_is_invariant(a) && order_set(p) != ORDER_FREE;
	int n = 0;
	text[0] = 0;
	for (int i = 0, end; is_shared && i < t->n_phases && n < ORDER_SET_TEXT; i = end) {
		const PhaseKind kind = t->phases[i].kind;
		int least = t->phases[i].rows, most = least;
		for (end = i; end < t->n_phases && t->phases[end].kind == kind; end++) {
			least = t->phases[end].rows < least ? t->phases[end].rows : least;
			most = t->phases[end].rows > most ? t->phases[end].rows : most;
		}
		if (order_set(kind) != order_set(p))
			continue;
		n += snprintf(text + n, (size_t)(ORDER_SET_TEXT - n), "%s%s %d", n ? " and " : "", phase_name(kind), least);
		if (most > least && n < ORDER_SET_TEXT)
			n += snprintf(text + n, (size_t)(ORDER_SET_TEXT - n), " to %d", most);
	}
	return text;
}

OpKind order_op(OpKind op)
{
	switch (op) {
	case OP_attention_verify: return OP_attention_step;
	case OP_delta_verify_step: return OP_delta_step;
	case OP_draw_best: return OP_sample_best;
	default: return op;
	}
}
