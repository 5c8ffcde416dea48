/* session_request.c - what a sequence is started with: checked, completed by the model's own, queued. */
#include "artifacts/hash.h"
#include "runtime/session_handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

AtlasStatus session_check_tokens(AtlasSession *s, const int32_t *tokens, int n)
{
	const Graph *g = s->graph;
	if (n < 1)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: at least one is needed", n);
	if (n > g->max_context)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: the context holds %d", n, g->max_context);
	for (int i = 0; i < n; i++)
		if (tokens[i] < 0 || tokens[i] >= g->vocab)
			return error_set(&s->error, ATLAS_TOKEN, "token %d is %d: the vocabulary has %d", i, tokens[i],
				g->vocab);
	return ATLAS_OK;
}

static AtlasStatus check_sampling(AtlasSession *s, const AtlasSampling *a)
{
	const struct { const char *name; float value; bool good; } rows[] = {
		{"temperature", a->temperature, a->temperature >= 0},
		{"top_p", a->top_p, a->top_p > 0 && a->top_p <= 1},
		{"min_p", a->min_p, a->min_p >= 0 && a->min_p <= 1},
		{"repetition_penalty", a->repetition_penalty, a->repetition_penalty >= 1e-3f && a->repetition_penalty <= 1e3f},
		{"presence_penalty", a->presence_penalty, fabsf(a->presence_penalty) <= 1e3f},
		{"frequency_penalty", a->frequency_penalty, fabsf(a->frequency_penalty) <= 1e3f},
		{"top_k", (float)a->top_k, a->top_k >= 0}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (!rows[i].good || !isfinite(rows[i].value))
			return error_set(&s->error, ATLAS_ARGUMENT, "%s = %g is out of range", rows[i].name,
				(double)rows[i].value);
	return ATLAS_OK;
}

static AtlasStatus check_stop_tokens(AtlasSession *s, const AtlasRequest *r)
{
	if (r->n_stop_tokens < 0 || r->n_stop_tokens > ATLAS_MAX_STOP_TOKENS)
		return error_set(&s->error, ATLAS_ARGUMENT, "n_stop_tokens = %d: 0 to %d expected", r->n_stop_tokens,
			ATLAS_MAX_STOP_TOKENS);
	if (r->n_stop_tokens && !r->stop_tokens)
		return error_set(&s->error, ATLAS_ARGUMENT, "stop_tokens is NULL, n_stop_tokens = %d", r->n_stop_tokens);
	for (int i = 0; i < r->n_stop_tokens; i++)
		if (r->stop_tokens[i] < 0 || r->stop_tokens[i] >= s->graph->vocab)
			return error_set(&s->error, ATLAS_TOKEN, "stop_tokens[%d] = %d: the vocabulary has %d", i,
				r->stop_tokens[i], s->graph->vocab);
	return ATLAS_OK;
}

static AtlasStatus check_bias(AtlasSession *s, const AtlasRequest *r)
{
	if (r->n_bias < 0 || r->n_bias > ATLAS_MAX_BIAS)
		return error_set(&s->error, ATLAS_ARGUMENT, "n_bias = %d: 0 to %d expected", r->n_bias, ATLAS_MAX_BIAS);
	if (r->n_bias && !r->bias)
		return error_set(&s->error, ATLAS_ARGUMENT, "bias is NULL, n_bias = %d", r->n_bias);
	for (int i = 0; i < r->n_bias; i++) {
		const AtlasBias b = r->bias[i];
		if (b.token < 0 || b.token >= s->graph->vocab)
			return error_set(&s->error, ATLAS_TOKEN, "bias[%d].token = %d: the vocabulary has %d", i, b.token,
				s->graph->vocab);
		if (!(fabsf(b.value) <= 100) && b.value != -INFINITY)
			return error_set(&s->error, ATLAS_ARGUMENT, "bias[%d].value = %g: -100 to 100 or -infinity expected", i,
				(double)b.value);
		for (int k = 0; k < i; k++)
			if (r->bias[k].token == b.token)
				return error_set(&s->error, ATLAS_ARGUMENT, "bias[%d].token = %d: bias[%d] has this token already", i,
					b.token, k);
	}
	return ATLAS_OK;
}

static AtlasStatus check_numbers(AtlasSession *s, const AtlasRequest *r)
{
	const struct { const char *name; int value, least, most; } rows[] = {
		{"max_new", r->max_new, 1, INT32_MAX}, {"min_new", r->min_new, 0, INT32_MAX},
		{"ignore_stops", r->ignore_stops, 0, 1}, {"top_logprobs", r->top_logprobs, 0, ATLAS_MAX_TOP},
		{"steps_ahead", r->steps_ahead, 0, INT32_MAX}, {"pages_as_needed", r->pages_as_needed, 0, 1},
		{"masked", r->masked, 0, 1},
		{"prefix_use", r->prefix_use, ATLAS_PREFIX_BOTH, ATLAS_PREFIX_NONE}, {"n_tail", r->n_tail, 0, INT32_MAX}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (rows[i].value >= rows[i].least && rows[i].value <= rows[i].most)
			continue;
		if (rows[i].most == INT32_MAX)
			return error_set(&s->error, ATLAS_ARGUMENT, "%s = %d: %s%d%s expected", rows[i].name, rows[i].value,
				rows[i].least ? "at least " : "", rows[i].least, rows[i].least ? "" : " or more");
		return error_set(&s->error, ATLAS_ARGUMENT, "%s = %d: %d to %d expected", rows[i].name, rows[i].value,
			rows[i].least, rows[i].most);
	}
	return ATLAS_OK;
}

/* All but tokens and sampling, which follow. */
static AtlasStatus check_request(AtlasSession *s, const AtlasRequest *r)
{
	AtlasStatus status = check_numbers(s, r);
	status = status == ATLAS_OK ? check_stop_tokens(s, r) : status;
	status = status == ATLAS_OK ? check_bias(s, r) : status;
	return status == ATLAS_OK ? session_check_tokens(s, r->tokens, r->n_tokens) : status;
}

/* What a request says of single tokens: each token has one rule of the slot (ops.h). */
typedef struct Rules {
	int32_t words[PLAN_RULES][PLAN_RULE_WORDS]; /* token, bits of what its score gains, not drawn below, is an end */
	int n; /* tokens, some of which may not fit */
} Rules;

/* The token's rule, which may be new; the last one when there are too many. */
static int32_t *rule_of(Rules *rules, int32_t token)
{
	int i = 0;
	while (i < rules->n && i < PLAN_RULES && rules->words[i][0] != token)
		i++;
	if (i == PLAN_RULES) {
		rules->n++;
		return rules->words[i - 1];
	}
	if (i == rules->n)
		memcpy(rules->words[rules->n++], (int32_t[PLAN_RULE_WORDS]){token}, sizeof rules->words[0]);
	return rules->words[i];
}

static AtlasStatus make_rules(AtlasSession *s, const AtlasRequest *r, Rules *rules)
{
	const Graph *g = s->graph;
	const int32_t before = r->min_new < INT32_MAX - r->n_tokens ? r->n_tokens + r->min_new : INT32_MAX;
	rules->n = 0;
	for (int i = 0; i < r->n_bias; i++)
		if (r->bias[i].value != 0)
			memcpy(rule_of(rules, r->bias[i].token) + 1, &r->bias[i].value, sizeof(float));
	for (int i = 0; i < r->n_stop_tokens; i++) {
		int32_t *w = rule_of(rules, r->stop_tokens[i]);
		w[2] = r->min_new ? before : 0;
		w[3] = 1;
	}
	for (int i = 0; i < g->n_stop_tokens && r->min_new && !r->ignore_stops; i++)
		if (g->stop_tokens[i] >= 0) /* -1 = none */
			rule_of(rules, g->stop_tokens[i])[2] = before;
	if (rules->n > PLAN_RULES)
		return error_set(&s->error, ATLAS_ARGUMENT, "bias, stop_tokens and the model's stop tokens, which min_new "
			"names, are more than %d tokens", PLAN_RULES);
	return ATLAS_OK;
}

AtlasStatus session_queue(AtlasSession *s, const SlotClaim *claim, const int32_t *tokens, int n, int *slot)
{
	int32_t *copy = malloc(sizeof *copy * (size_t)n);
	const AtlasStatus status = copy ? session_acquire(s, claim, slot)
		: error_set(&s->error, ATLAS_NO_MEMORY, "no memory for %d tokens", n);
	if (status != ATLAS_OK) {
		free(copy);
		return status;
	}
	memcpy(copy, tokens, sizeof *copy * (size_t)n);
	Sequence *q = &s->slots[*slot];
	q->state = WAITING;
	q->ticket = s->next_ticket++;
	q->tokens = copy;
	q->n = n;
	return ATLAS_OK;
}

static void put_salt(const AtlasSession *s, const AtlasRequest *r, uint8_t *salt) /* which is zeroed */
{
	if (s->prefix && r->cache_salt && *r->cache_salt)
		sha256_of(r->cache_salt, strlen(r->cache_salt), salt);
}

/* A slot for the request, whose prompt waits to be read. */
static AtlasStatus queue(AtlasSession *s, const AtlasRequest *r, const AtlasSampling *sampling, int *slot)
{
	const int max_context = s->graph->max_context, n = r->n_tokens;
	/* The last token of an answer is never read, so it needs no position. */
	int max_new = r->max_new;
	if (max_new > max_context - n + 1)
		max_new = max_context - n + 1;
	Rules rules;
	AtlasStatus status = make_rules(s, r, &rules);
	status = status == ATLAS_OK && r->top_logprobs ? session_open_tops(s) : status;
	if (status != ATLAS_OK)
		return status;
	uint8_t salt[PREFIX_SALT_BYTES] = {0};
	put_salt(s, r, salt);
	SlotClaim claim = {.positions = n + max_new - 1, .sampling = sampling, .ignores_stops = r->ignore_stops,
		.as_needed = r->pages_as_needed, .prompt = n, .is_masked = r->masked, .rules = rules.words[0],
		.n_rules = rules.n, .salt = salt, .tokens = r->tokens,
		.uses_prefix = s->prefix && !(r->prefix_use & ATLAS_PREFIX_WRITE),
		.leaves_prefix = s->prefix && !(r->prefix_use & ATLAS_PREFIX_READ), .n_tail = r->n_tail};
	status = session_queue(s, &claim, r->tokens, n, slot);
	if (status != ATLAS_OK)
		return status;
	if (s->ngrams && s->step_tokens > 1)
		ngrams_start(&s->ngrams[*slot], r->tokens, n);
	Sequence *q = &s->slots[*slot];
	q->max_new = max_new;
	q->steps_ahead = r->top_logprobs || r->masked ? 1 : r->steps_ahead; /* a step's logits stay until the next one */
	q->n_top = r->top_logprobs;
	q->masks_after = s->step_tokens > 1 ? r->masks_after : NULL;
	q->masks_ctx = r->masks_ctx;
	return ATLAS_OK;
}

/* A request of which all members are known and the arrays that must be there are. */
static AtlasStatus start(AtlasSession *s, const AtlasRequest *r, int *slot)
{
	AtlasSampling a;
	const AtlasSampling *given = r->sampling;
	AtlasStatus status = ATLAS_OK;
	atlas_sampling_init(s->plan, &a);
	if (given && given->struct_size < sizeof given->struct_size)
		status = error_set(&s->error, ATLAS_ARGUMENT, "sampling.struct_size is not set");
	else if (given)
		memcpy(&a, given, given->struct_size < sizeof a ? given->struct_size : sizeof a);
	status = status == ATLAS_OK ? check_request(s, r) : status;
	status = status == ATLAS_OK ? check_sampling(s, &a) : status;
	return status == ATLAS_OK ? queue(s, r, &a, slot) : status;
}

AtlasStatus atlas_request_start(AtlasSession *session, const AtlasRequest *request, int *slot)
{
	AtlasRequest r = {0};
	AtlasStatus s = session_check(session);
	if (s != ATLAS_OK)
		return s;
	if (!request || !slot)
		return error_set(&session->error, ATLAS_ARGUMENT, "request and slot must not be NULL");
	if (request->struct_size < sizeof request->struct_size)
		return error_set(&session->error, ATLAS_ARGUMENT, "request.struct_size is not set");
	memcpy(&r, request, request->struct_size < sizeof r ? request->struct_size : sizeof r);
	if (!r.tokens)
		return error_set(&session->error, ATLAS_ARGUMENT, "request.tokens must not be NULL");
	return start(session, &r, slot);
}

int atlas_kept_tokens(const AtlasSession *session, const AtlasRequest *request)
{
	AtlasRequest r = {0};
	uint8_t salt[PREFIX_SALT_BYTES] = {0};
	int node, known;
	if (!session || !session->prefix || !request || request->struct_size < sizeof request->struct_size)
		return 0;
	memcpy(&r, request, request->struct_size < sizeof r ? request->struct_size : sizeof r);
	if (!r.tokens || r.n_tokens < 1 || r.prefix_use & ATLAS_PREFIX_WRITE)
		return 0;
	put_salt(session, &r, salt);
	return session_find_prefix(session, salt, r.tokens, r.n_tokens, &node, &known) * session->graph->page;
}

AtlasStatus atlas_start(AtlasSession *session, const int32_t *tokens, int n, const AtlasSampling *sampling,
	int max_new, int *slot)
{
	AtlasStatus s = session_check(session);
	if (s != ATLAS_OK)
		return s;
	if (!tokens || !slot)
		return error_set(&session->error, ATLAS_ARGUMENT, "tokens and slot must not be NULL");
	return start(session, &(AtlasRequest){.tokens = tokens, .n_tokens = n, .sampling = sampling, .max_new = max_new},
		slot);
}
