/* check_model.c - what must hold between the files once each of them has been read, and the print of it all.
 *
 * The invariants of Model (ir.h) are the readers' promise, so breaking one is a bug. Two things can only be seen here,
 * with all files read, and are the user's: an ignored tensor that does not exist, a model that never ends.
 */
#include "artifacts/closest.h"
#include "compiler/read/config_keys.h"
#include "compiler/read/read_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool name_matches(const char *pattern, const char *name)
{
	const char *star = strchr(pattern, '*');
	if (!star)
		return strcmp(pattern, name) == 0;
	size_t head = (size_t)(star - pattern), tail = strlen(star + 1), n = strlen(name);
	return n >= head + tail && memcmp(pattern, name, head) == 0 && strcmp(star + 1, name + n - tail) == 0;
}

static void check_layer(const LayerSpec *s)
{
	const int dims[] = {s->n_heads, s->n_kv_heads, s->head_dim, s->ffn_dim};
	for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
		if (dims[i] <= 0)
			bug("dim %zu of a layer is %d", i, dims[i]);
	if (s->n_heads % s->n_kv_heads || s->head_dim % 2)
		bug("%d heads on %d of %d elements", s->n_heads, s->n_kv_heads, s->head_dim);
}

static void check_config(const Config *cf)
{
	const int dims[] = {cf->hidden_dim, cf->n_layers, cf->vocab, cf->max_position};
	for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
		if (dims[i] <= 0)
			bug("dim %zu of the config is %d", i, dims[i]);
	for (int l = 0; l < cf->n_layers; l++)
		check_layer(&cf->layers[l]);
	for (int i = 0; i < cf->n_eos; i++)
		if (cf->eos[i] < 0 || cf->eos[i] >= cf->vocab || (i && cf->eos[i] <= cf->eos[i - 1]))
			bug("end token %d is %d", i, cf->eos[i]);
}

static void check_tensors(const Model *m)
{
	for (int i = 0; i < m->tensors.n; i++) {
		const StTensor *t = &m->tensors.at[i];
		int64_t n = 1;
		for (int d = 0; d < t->n_dims; d++)
			n *= t->shape[d];
		int64_t bytes = t->dtype < DT_COUNT ? dtype_span(t->dtype, n) : t->bytes;
		if (bytes != t->bytes || t->shard < 0 || t->shard >= m->shards.n || t->offset < 0 ||
				t->offset > m->shards.at[t->shard].bytes - t->bytes)
			bug("tensor %s lies at %" PRId64 ", %" PRId64 " bytes, of shard %d", t->name, t->offset, t->bytes,
				t->shard);
		if (i && strcmp(t[-1].name, t->name) >= 0)
			bug("tensors %s and %s are not in order", t[-1].name, t->name);
	}
}

/* transformers takes one list or the other by the length that each text has so far, though keys in its cache were
 * turned by the other; a plan has one of them. */
static void tell_longrope(Compile *c)
{
	const Rope *rope = &c->model.config.ropes[0];
	const int context = c->model.options.max_context;
	const bool is_short = context <= rope->original_context;
	if (rope->kind == ROPE_LONGROPE)
		note_at(&c->diags, A0217, rope->at, "%s holds for all positions, as runtime.max_context = %d is %s "
			"original_max_position_embeddings = %d", is_short ? "short_factor" : "long_factor", context,
			is_short ? "at most" : "above", rope->original_context);
}

/* What the class does from some position on, and no op does. */
static void check_late(Compile *c)
{
	const Config *cf = &c->model.config;
	const ConfigKey *key = key_of_field(cf->family, offsetof(Config, scales_from));
	if (key && cf->scales_late && c->model.options.max_context >= cf->scales_from)
		fail_at(&c->diags, A0218, c->model.options.at_max_context, "runtime.max_context = %d: from position %d on, %s, "
			"the class multiplies queries by the length, which is not implemented: at most %d",
			c->model.options.max_context, cf->scales_from - 1, key->name, cf->scales_from - 1);
}

static void check_ignored(Compile *c)
{
	const Model *m = &c->model;
	for (int i = 0; i < m->options.ignore_tensors.n; i++) {
		const NamePattern *p = &m->options.ignore_tensors.at[i];
		int hits = 0;
		for (int t = 0; t < m->tensors.n && !hits; t++)
			hits += name_matches(p->text, m->tensors.at[t].name);
		if (hits || !p->must_match)
			continue;
		const char **names = ARENA_ARRAY(&c->scratch, const char *, m->tensors.n + 1);
		for (int t = 0; t < m->tensors.n; t++)
			names[t] = m->tensors.at[t].name;
		const char *close = closest_name(p->text, names, m->tensors.n);
		fail_at(&c->diags, A0305, p->at, "weights.ignore: \"%s\" matches no tensor%s", p->text,
			did_you_mean(c->diags.arena, close));
	}
}

/* check_model - run after the reading passes, and only if none of them recorded an error. */
void check_model(Compile *c)
{
	const Config *cf = &c->model.config;
	check_config(cf);
	check_tensors(&c->model);
	tell_longrope(c);
	check_late(c);
	check_ids(c);
	if (!c->cmd.random_weights) /* which brings no tensors at all */
		check_ignored(c);
	if (cf->n_eos == 0 && c->model.options.n_stop == 0)
		note_at(&c->diags, A0210, cf->at_vocab, "no file names an end token: only sampling.max_new_tokens ends a text");
}

/* Print ------------------------------------------------------------------------------------------------ */

static void print_rope(FILE *f, int i, const Rope *r)
{
	static const char *const kinds[] = {
		[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn",
		[ROPE_LONGROPE] = "longrope", [ROPE_PROPORTIONAL] = "proportional",
	};
	fprintf(f, "rope       %s  theta %.17g  table %d  rotary_dim %d", kinds[r->kind], r->theta, i, r->rotary_dim);
	if (r->kind != ROPE_DEFAULT)
		fprintf(f, "  factor %.17g", r->factor);
	if (r->kind == ROPE_PROPORTIONAL)
		fprintf(f, "  pairs %d", r->n_turned);
	if (r->kind == ROPE_LLAMA3)
		fprintf(f, "  low_freq %.17g  high_freq %.17g  original_context %d", r->low_freq, r->high_freq,
			r->original_context);
	if (r->kind == ROPE_YARN)
		fprintf(f, "  beta_fast %.17g  beta_slow %.17g  mscale %.17g  mscale_all_dim %.17g  attention_factor %.17g  "
			"truncate %d  original_context %d", r->beta_fast, r->beta_slow, r->mscale, r->mscale_all_dim,
			r->attention_factor, r->truncate, r->original_context);
	if (r->kind == ROPE_LONGROPE) {
		fprintf(f, "  attention_factor %.17g  original_context %d  short", r->attention_factor, r->original_context);
		for (int k = 0; k < r->rotary_dim; k++)
			fprintf(f, "%s %g", k == r->rotary_dim / 2 ? "  long" : "", k < r->rotary_dim / 2 ? r->short_factor[k]
				: r->long_factor[k - r->rotary_dim / 2]);
	}
	fputc('\n', f);
}

/* Layers in order, equal neighbours as one. */
static void print_layers(const Config *cf, FILE *f)
{
	static const char *const qk_norms[] = {"", "  qk_norm head", "  qk_norm whole"};
	for (int l = 0, end; l < cf->n_layers; l = end) {
		const LayerSpec *s = &cf->layers[l];
		for (end = l + 1; end < cf->n_layers && memcmp(&cf->layers[end], s, sizeof *s) == 0;)
			end++;
		fprintf(f, "layers     %d-%d", l, end - 1);
		if (s->mixer == MIXER_DELTA)
			fprintf(f, "  delta  key heads %d of %d  value heads %d of %d  taps %d", s->n_k_heads, s->k_dim,
				s->n_v_heads, s->v_dim, s->n_taps);
		else
			fprintf(f, "  attention  n_heads %d  n_kv_heads %d  head_dim %d  rope %d  window %d%s%s%s%s", s->n_heads,
				s->n_kv_heads, s->head_dim, s->rope, s->window, qk_norms[s->qk_norm], s->has_gate ? "  gate" : "",
				s->qkv_bias ? "  qkv_bias" : "", s->o_bias ? "  o_bias" : "");
		fprintf(f, "  norms%s%s%s  ffn_dim %d%s", s->pre_norm ? " before" : "", s->post_norm ? " after" : "",
			s->norm_one ? " of 1 + w" : "", s->ffn_dim, s->mlp_bias ? "  mlp_bias" : "");
		if (s->n_experts)
			fprintf(f, "  n_experts %d  a row %d  norm_topk %d  shared %d%s", s->n_experts, s->n_active, s->norm_topk,
				s->shared_dim, s->shared_dim && !s->shared_gate ? " whole" : "");
		if (s->n_experts && s->router == ROUTER_SIGMOID)
			fprintf(f, "  by sigmoid  groups %d of %d  share_eps %g  share_scale %g", s->top_groups, s->n_groups,
				s->share_eps, s->share_scale);
		if (s->gate_limit > 0 || s->shared_limit > 0)
			fprintf(f, "  limits %g and %g", s->gate_limit, s->shared_limit);
		if (s->query_scale > 0 || s->head_gate)
			fprintf(f, "  query_scale %g  head_gate %d", s->query_scale, s->head_gate);
		if (s->v_norm || s->v_is_k || s->kv_back)
			fprintf(f, "  v%s%s  kv %d back", s->v_norm ? " normed" : "", s->v_is_k ? " is k" : "", s->kv_back);
		if (s->dense_dim || s->ple_dim)
			fprintf(f, "  dense_dim %d  ple_dim %d", s->dense_dim, s->ple_dim);
		fprintf(f, "  kv %s%s\n", dtype_name(s->kv), s->rotate ? " rotated" : "");
	}
}

static void print_config(Compile *c, FILE *f)
{
	const Model *m = &c->model;
	const Config *cf = &m->config;
	static const char *const acts[] = {"silu", "gelu_tanh", "gelu_tanh", "relu_squared"};
	fprintf(f, "config     %s  hidden_dim %d  n_layers %d  vocab %d  norm_eps %.17g  act %s  tied %d"
		"  max_position %d  mtp %d\n",
		cf->model_type, cf->hidden_dim, cf->n_layers, cf->vocab, cf->norm_eps,
		acts[cf->each.act], cf->tie_embeddings, cf->max_position,
		cf->n_mtp);
	print_layers(cf, f);
	for (int i = 0; i < cf->n_ropes; i++)
		print_rope(f, i, &cf->ropes[i]);
	for (int i = 0; i < cf->n_values; i++)
		fprintf(f, "key        %s = %s%s\n", cf->values[i].key, cf->values[i].text,
			!cf->values[i].is_default ? "" : !cf->values[i].from ? "  (default)"
			: arena_printf(&c->scratch, "  (%s)", cf->values[i].from));
	if (m->quant.name)
		fprintf(f, "quant      %s  targets %d  ignore %d\n", m->quant.name, m->quant.targets.n, m->quant.ignore.n);
	fprintf(f, "tokens     %d  bos %d  eos", m->n_tokens, cf->bos);
	for (int i = 0; i < cf->n_eos; i++)
		fprintf(f, " %d", cf->eos[i]);
	fprintf(f, "  tokenizer %zu bytes  chat_template %zu bytes\n", m->tokenizer_bytes,
		m->chat_template ? strlen(m->chat_template) : 0);
}

void print_model(Compile *c, void *file)
{
	FILE *f = file;
	const Model *m = &c->model;
	print_config(c, f);
	for (int i = 0; i < m->options.resolved.n; i++)
		fprintf(f, "option     %-28s %s\n", m->options.resolved.at[i].name, m->options.resolved.at[i].value);
	for (int i = 0; i < m->shards.n; i++)
		fprintf(f, "shard      %d  %s  %" PRId64 " bytes\n", i, m->shards.at[i].name, m->shards.at[i].bytes);
	for (int i = 0; i < m->tensors.n; i++) {
		const StTensor *t = &m->tensors.at[i];
		fprintf(f, "tensor     %s  %s [", t->name, t->dtype_text);
		for (int d = 0; d < t->n_dims; d++)
			fprintf(f, "%s%" PRId64, d ? "," : "", t->shape[d]);
		fprintf(f, "]  shard %d  at %" PRId64 "  bytes %" PRId64 "\n", t->shard, t->offset, t->bytes);
	}
}
