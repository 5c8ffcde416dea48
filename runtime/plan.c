/* plan.c - open a plan: map the file, let the reader check it, find where each weight's bytes lie.
 *
 * Everything here works without a GPU. Weights come from the plan itself or, when it was written by reference, from
 * the checkpoint's files, which are opened by base name in one folder. Both are compared with the same leaves.
 */
#include "artifacts/memory.h"
#include "artifacts/op_table.h"
#include "artifacts/random_weights.h"
#include "artifacts/sign.h"
#include "runtime/device.h"
#include "runtime/plan_handle.h"
#include "runtime/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static AtlasStatus read_status(ReadStatus s)
{
	switch (s) {
	case READ_OK: return ATLAS_OK;
	case READ_NOT_A_PLAN: return ATLAS_NOT_A_PLAN;
	case READ_VERSION: return ATLAS_PLAN_VERSION;
	case READ_INTEGRITY: return ATLAS_INTEGRITY;
	case READ_NO_MEMORY: return ATLAS_NO_MEMORY;
	case READ_UNSIGNED: return ATLAS_UNSIGNED;
	case READ_UNTRUSTED: return ATLAS_UNTRUSTED;
	default: return ATLAS_MALFORMED;
	}
}

static AtlasStatus open_reference(AtlasPlan *p, int folder, const char *name, const PlanFile **out,
	AtlasError *error)
{
	for (int i = 1; i < p->files.n; i++)
		if (strcmp(p->files.list[i].name, name) == 0) {
			*out = &p->files.list[i];
			return ATLAS_OK;
		}
	PlanFile *f = &p->files.list[p->files.n];
	AtlasStatus s = plan_file_open(folder, name, false, f, error);
	if (s != ATLAS_OK)
		return s;
	f->name = name;
	p->files.n++;
	*out = f;
	return ATLAS_OK;
}

static AtlasStatus bind_references(AtlasPlan *p, int folder, AtlasError *error)
{
	const Graph *g = &p->artifact.graph;
	for (int i = 0; i < g->n_weights; i++) {
		const Weight *w = &g->weights[i];
		const PlanFile *f;
		if (!w->file)
			continue;
		AtlasStatus s = open_reference(p, folder, w->file, &f, error);
		if (s != ATLAS_OK)
			return s;
		if (w->bytes > f->n || w->file_offset > f->n - w->bytes)
			return error_set(error, ATLAS_INTEGRITY, "%.200s: too short for %.200s: not the file that was compiled",
				w->file, w->name);
		p->weights[i] = f->bytes + w->file_offset;
	}
	return ATLAS_OK;
}

static AtlasStatus bind_weights(AtlasPlan *p, const AtlasPlanOptions *o, AtlasError *error)
{
	const Graph *g = &p->artifact.graph;
	const Section *section = artifact_section(&p->artifact, "weights");
	for (int i = 0; i < g->n_weights; i++) {
		p->makes_weights |= g->weights[i].made != MADE_NO;
		if (artifact_holds_weight(&p->artifact, i))
			p->weights[i] = p->artifact.file + section->offset + g->weights[i].offset;
		else
			p->by_reference |= g->weights[i].file != NULL;
	}
	random_seed(&p->artifact, &p->seed);
	if (!p->by_reference || !o->weights_dir) /* without its files a plan can be looked at, but not run */
		return ATLAS_OK;
	int folder = open(o->weights_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return error_set(error, ATLAS_IO, "%.300s: %s", o->weights_dir, strerror(errno));
	AtlasStatus s = bind_references(p, folder, error);
	close(folder);
	if (s == ATLAS_IO) { /* the plan knows no folder */
		const AtlasError of_file = *error;
		error_set(error, s, "%.200s/%.280s", o->weights_dir, of_file.text);
	}
	return s;
}

static AtlasStatus open_tokenizer(AtlasPlan *p, AtlasError *error)
{
	char why[256] = "";
	const Section *section = artifact_section(&p->artifact, "tokenizer");
	if (!section)
		return ATLAS_OK;
	if (tok_open(&p->tokenizer, p->artifact.file + section->offset, (size_t)section->bytes, why, sizeof why))
		return error_set(error, ATLAS_MALFORMED, "section tokenizer: %s", why);
	if (tok_n_vocab_ids(&p->tokenizer) > p->artifact.graph.vocab) /* added tokens may lie after: check_tokens */
		return error_set(error, ATLAS_MALFORMED, "section tokenizer: %d ids, the vocabulary has %d",
			tok_n_vocab_ids(&p->tokenizer), p->artifact.graph.vocab);
	p->has_tokenizer = 1;
	return ATLAS_OK;
}

static AtlasStatus open_chat(AtlasPlan *p, AtlasError *error)
{
	char why[256] = "";
	const Section *section = artifact_section(&p->artifact, "chat_program");
	if (!section)
		return ATLAS_OK;
	if (!chat_open(&p->chat, p->artifact.file + section->offset, (size_t)section->bytes, why, sizeof why))
		return error_set(error, ATLAS_MALFORMED, "section chat_program: %s", why);
	p->has_chat = p->chat.header->n_nodes > 0;
	return ATLAS_OK;
}

void plan_no_chat(const AtlasPlan *p, char *why, size_t why_bytes)
{
	const ChatHeader *h = p->chat.header;
	if (p->has_chat)
		snprintf(why, why_bytes, "%s", "");
	else if (h)
		snprintf(why, why_bytes, "the chat template is not compiled: %.*s", h->n_text < 400 ? (int)h->n_text : 400,
			p->chat.text);
	else
		snprintf(why, why_bytes, "%s", artifact_section(&p->artifact, "chat_template") ?
			"the plan was made by an atlasc that compiled no chat templates" : "the checkpoint has no chat template");
}

/* Is there a target that needs no more? Without any, only the reference device runs the plan. */
static bool is_within(const Artifact *a, int64_t budget, char *why, size_t why_bytes)
{
	char largest[160], sizes[2][32];
	int64_t least = INT64_MAX;
	for (int i = 0; i < a->n_targets; i++) {
		MemoryItem items[MEMORY_MAX_ITEMS];
		const MemoryLoad load = memory_load(&a->targets[i]);
		int n = memory_items(&a->graph, &a->targets[i], &load, items);
		int64_t need = memory_on_device(items, n);
		if (need >= least)
			continue;
		least = need;
		snprintf(why, why_bytes, "%s needed on %s, the budget is %s; the largest: %s",
			memory_text(need, sizes[0]), a->targets[i].target, memory_text(budget, sizes[1]),
			memory_largest(items, n, largest, sizeof largest));
	}
	return budget == 0 || a->n_targets == 0 || least <= budget;
}

/* What the file itself says, but for the bytes of weights. */
static AtlasStatus read_plan(AtlasPlan *p, const AtlasPlanOptions *o, AtlasError *error)
{
	char why[sizeof error->text];
	const PlanTrust trust = {o->trust, o->n_trust};
	const PlanFile *f = &p->files.list[0];
	ReadStatus read = artifact_read(f->bytes, f->n, o->n_trust ? &trust : NULL, &p->artifact, why, sizeof why);
	if (read == READ_OK && !is_within(&p->artifact, o->memory_budget, why, sizeof why))
		return error_set(error, ATLAS_DEVICE_MEMORY, "%s", why);
	if (read != READ_OK)
		return error_set(error, read_status(read), "%s", why);
	const AtlasStatus s = open_tokenizer(p, error);
	return s == ATLAS_OK ? open_chat(p, error) : s;
}

/* The weight that ops read stop tokens of; -1 = there is none. */
static int weight_of_stops(const Graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		const int k = op_operand(g->ops[i].kind, "stop_tokens"), t = k < 0 ? -1 : g->ops[i].operands[k];
		if (t >= 0)
			return g->tensors[t].weight;
	}
	return -1;
}

static bool copy_bytes(const void *files, const void *from, void *to, size_t n)
{
	return plan_files_copy(files, from, to, n);
}

AtlasStatus plan_unchanged(const AtlasPlan *p, AtlasError *error)
{
	const PlanFile *f = plan_files_changed(&p->files);
	return f ? error_set(error, ATLAS_INTEGRITY, "%.200s was written to, or cut, after it was opened", f->name ? f->name
		: "the plan's file") : ATLAS_OK;
}

bool plan_compares(const AtlasPlan *p)
{
	return p->verify == ATLAS_VERIFY_LAZY || (p->verify == ATLAS_VERIFY_FULL && plan_files_doubtful(&p->files));
}

AtlasStatus plan_check_weights(const AtlasPlan *p, AtlasError *error)
{
	char why[sizeof error->text];
	const int stops = p->no_stops ? weight_of_stops(&p->artifact.graph) : -1;
	if (stops >= 0)
		p->weights[stops] = NULL; /* not looked at: no hash is of these bytes */
	ReadStatus read = artifact_check_weights(&p->artifact, p->weights, copy_bytes, &p->files, why, sizeof why);
	if (stops >= 0)
		p->weights[stops] = p->no_stops;
	return read == READ_OK ? ATLAS_OK : error_set(error, read_status(read), "%s", why);
}

bool plan_ignore_stops(AtlasPlan *p)
{
	const int w = weight_of_stops(&p->artifact.graph);
	const size_t bytes = w < 0 ? 0 : (size_t)p->artifact.graph.weights[w].bytes;
	if (w < 0 || p->no_stops)
		return true;
	p->no_stops = malloc(bytes);
	if (!p->no_stops)
		return false;
	memset(p->no_stops, 0xff, bytes); /* -1: an id that no token has */
	p->weights[w] = p->no_stops;
	return true;
}

static AtlasStatus open_plan(AtlasPlan *p, const char *path, const AtlasPlanOptions *o, AtlasError *error)
{
	AtlasError inside = {0};
	p->files.list = calloc(1, sizeof *p->files.list);
	if (!p->files.list)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the plan's handle");
	AtlasStatus s = plan_file_open(AT_FDCWD, path, true, &p->files.list[0], error);
	if (s != ATLAS_OK)
		return s;
	p->files.n = 1;
	s = read_plan(p, o, &inside);
	if (s != ATLAS_OK)
		return error_set(error, s, "%.200s: %.300s", path, inside.text);
	const Artifact *a = &p->artifact;
	PlanFile *all = realloc(p->files.list, ((size_t)a->graph.n_weights + 1) * sizeof *all);
	p->files.list = all ? all : p->files.list;
	p->weights = calloc((size_t)a->graph.n_weights + 1, sizeof *p->weights);
	p->targets = calloc((size_t)a->n_targets + 1, sizeof *p->targets);
	if (!p->weights || !all || !p->targets)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %d weights", a->graph.n_weights);
	for (int i = 0; i < a->n_targets; i++)
		p->targets[i] = a->targets[i].target;
	p->verify = (AtlasVerify)o->verify;
	s = bind_weights(p, o, error);
	if (s != ATLAS_OK || o->verify != ATLAS_VERIFY_FULL)
		return s;
	s = plan_check_weights(p, &inside);
	s = s == ATLAS_OK ? plan_unchanged(p, &inside) : s;
	return s == ATLAS_OK ? s : error_set(error, s, "%.200s: %.300s", path, inside.text);
}

AtlasStatus atlas_plan_open(const char *path, const AtlasPlanOptions *options, AtlasPlan **plan,
	AtlasError *error)
{
	AtlasPlanOptions o = {.struct_size = sizeof o};
	if (plan)
		*plan = NULL;
	if (!plan || !path)
		return error_set(error, ATLAS_ARGUMENT, "path and plan must not be NULL");
	if (options && options->struct_size < sizeof options->struct_size)
		return error_set(error, ATLAS_ARGUMENT, "options.struct_size is not set");
	if (options)
		memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
	if (o.verify < ATLAS_VERIFY_FULL || o.verify > ATLAS_VERIFY_OFF)
		return error_set(error, ATLAS_ARGUMENT, "verify = %d: full, lazy or off expected", o.verify);
	if (o.n_trust < 0 || (o.n_trust > 0 && !o.trust))
		return error_set(error, ATLAS_ARGUMENT, "n_trust = %d: no such number of keys", o.n_trust);
	AtlasPlan *p = calloc(1, sizeof *p);
	if (!p)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for the plan's handle");
	AtlasStatus s = open_plan(p, path, &o, error);
	if (s != ATLAS_OK)
		atlas_plan_close(p);
	else
		*plan = p;
	return s;
}

void atlas_plan_close(AtlasPlan *plan)
{
	if (!plan)
		return;
	free(plan->no_stops);
	free(plan->weights);
	free(plan->targets);
	artifact_free(&plan->artifact);
	for (int i = 0; i < plan->files.n; i++)
		plan_file_close(&plan->files.list[i]);
	free(plan->files.list);
	free(plan);
}

int plan_drawable(const AtlasPlan *p)
{
	const Graph *g = &p->artifact.graph;
	for (int i = 0; i < g->n_ops; i++)
		if (g->ops[i].kind == OP_sample)
			return g->ops[i].attrs.n_valid;
	return g->vocab;
}

AtlasStatus atlas_plan_info(const AtlasPlan *plan, AtlasPlanInfo *info)
{
	if (!plan || !info)
		return ATLAS_ARGUMENT;
	const Artifact *a = &plan->artifact;
	const Graph *g = &a->graph;
	const Section *chat = artifact_section(a, "chat_template");
	AtlasPlanInfo all = {
		.struct_size = info->struct_size, .family = g->family, .n_targets = a->n_targets,
		.targets = plan->targets, .n_layers = g->n_layers, .vocab = g->vocab,
		.hidden_dim = g->hidden_dim, .slots = g->slots, .max_context = g->max_context, .page = g->page,
		.pages = g->pages, .bos_token = g->bos_token, .n_stop_tokens = g->n_stop_tokens,
		.stop_tokens = g->stop_tokens, .max_new_tokens = g->max_new_tokens,
		.weight_bytes = g->weight_arena_bytes, .root_hash = a->root,
		.has_tokenizer = plan->has_tokenizer,
		.chat_template = chat ? (const char *)a->file + chat->offset : NULL,
		.chat_template_bytes = chat ? (size_t)chat->bytes : 0,
		.weights_by_reference = plan->by_reference, .verify_rows = g->verify_rows,
		.n_signatures = a->n_signatures, .prompt_grid = g->prompt_grid,
		.keeps_prefixes = !session_against_prefixes(plan), .weights_made = plan->makes_weights,
		.weights_seed = plan->seed, .n_drawable = plan_drawable(plan),
		.has_chat = plan->has_chat, .drafter = head_drafts(g) ? ATLAS_SPECULATE_MTP : g->ngram_max
			? ATLAS_SPECULATE_NGRAM : ATLAS_SPECULATE_OFF,
		.n_tokens = plan->has_tokenizer ? tok_n_tokens(&plan->tokenizer, g->vocab) : 0};
	if (info->struct_size < sizeof info->struct_size)
		return ATLAS_ARGUMENT;
	memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
	return ATLAS_OK;
}

AtlasStatus atlas_plan_signature(const AtlasPlan *plan, int i, uint8_t key[32], uint8_t id[32])
{
	if (!plan || i < 0 || i >= plan->artifact.n_signatures)
		return ATLAS_ARGUMENT;
	const uint8_t *public_key = plan->artifact.signatures[i].public_key;
	if (key)
		memcpy(key, public_key, PUBLIC_KEY_BYTES);
	if (id)
		key_id(public_key, id);
	return ATLAS_OK;
}

AtlasStatus atlas_read_key(const char *path, uint8_t key[32], AtlasError *error)
{
	char why[256] = "";
	if (!path || !key)
		return error_set(error, ATLAS_ARGUMENT, "path and key must not be NULL");
	return key_read_public(path, key, why, sizeof why) ? ATLAS_OK
		: error_set(error, ATLAS_KEY, "%.200s: %.250s", path, why);
}

void atlas_sampling_init(const AtlasPlan *plan, AtlasSampling *sampling)
{
	if (!sampling)
		return;
	*sampling = (AtlasSampling){.struct_size = sizeof *sampling, .top_p = 1, .repetition_penalty = 1};
	if (!plan)
		return;
	const Graph *g = &plan->artifact.graph;
	sampling->temperature = g->temperature;
	sampling->top_p = g->top_p;
	sampling->min_p = g->min_p;
	sampling->repetition_penalty = g->repetition_penalty;
	sampling->top_k = g->top_k;
}
