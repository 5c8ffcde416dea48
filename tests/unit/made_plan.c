#include "tests/unit/made_plan.h"
#include "compiler/pick/times.h"
#include "tests/unit/made_cubin.h"
#include "tests/unit/synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A small number that depends on weight and element alone, exact in bf16; norms are around 1. */
static float weight_value(const Weight *w, int index, int64_t i)
{
	uint64_t x = (uint64_t)index * 1000003 + (uint64_t)i;
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	float v = (float)((int64_t)(x >> 40) - (1 << 23)) / (float)(1 << 23);
	v = w->n_dims == 1 ? 1 + v / 4 : v / 4;
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	bits &= 0xffff0000u;
	memcpy(&v, &bits, sizeof bits);
	return v;
}

static void put_value(Dtype dtype, float v, uint8_t *to)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	uint16_t high = (uint16_t)(bits >> 16);
	if (dtype == DT_f16) { /* of a normal number */
		int exponent = (int)(bits >> 23 & 255) - 112;
		high = exponent < 1 ? 0 : (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
	}
	if (dtype == DT_f32)
		memcpy(to, &bits, 4);
	else
		memcpy(to, &high, 2);
}

static bool read_weight(void *ctx, int w, int64_t at, void *dst, size_t n)
{
	const MadePlan *m = ctx;
	const Graph *g = &m->artifact.graph;
	for (int i = 0; i < m->c.constants.n; i++)
		if (m->c.constants.at[i].weight == w) {
			memcpy(dst, (const uint8_t *)m->c.constants.at[i].bytes + at, n);
			return true;
		}
	int size = dtype_bytes(g->weights[w].dtype);
	if (!size) { /* two elements a byte: any are numbers */
		memset(dst, 0x21, n);
		return true;
	}
	for (size_t i = 0; i < n; i += (size_t)size)
		put_value(g->weights[w].dtype, weight_value(&g->weights[w], w, (at + (int64_t)i) / size), (uint8_t *)dst + i);
	return true;
}

/* Appends the kernel of a pick, with the cubin of that number; returns its index. */
static int add_kernel(MadePlan *m, const Target *target, TargetPlan *plan, const Pick *pick, int cubin)
{
	const KernelTemplate *t = &kernel_table[pick->template_index];
	made_cubin(m->cubins + cubin * MADE_CUBIN_BYTES, &(MadeCubin){.entry = t->name, .param_bytes = t->param_bytes,
		.registers = 32, .sm = target->cc_major * 10 + target->cc_minor});
	Kernel k = {.name = t->name, .defines = pick->defines, .cubin_offset = cubin * MADE_CUBIN_BYTES,
		.cubin_bytes = MADE_CUBIN_BYTES, .entry = t->name, .param_bytes = t->param_bytes,
		.smem_bytes = pick->smem_bytes, .registers = 32, .block = {pick->block[0], pick->block[1], pick->block[2]}};
	time_key(t, target, pick->defines, k.source_sha256);
	plan->kernels[plan->n_kernels] = k;
	return plan->n_kernels++;
}

static void make_kernels_up(MadePlan *m, TargetWork *w)
{
	int n = w->trials.n;
	w->plan.target = w->target->name;
	w->plan.cc_major = w->target->cc_major;
	w->plan.cc_minor = w->target->cc_minor;
	for (int i = 0; i < w->phases.n; i++)
		n += w->phases.at[i].picks.n;
	w->plan.kernels = ARENA_ARRAY(&m->c.arena, Kernel, n);
	m->cubins = calloc((size_t)n, MADE_CUBIN_BYTES);
	for (int i = 0; i < w->phases.n; i++)
		for (int k = 0; k < w->phases.at[i].picks.n; k++) {
			Pick *pick = &w->phases.at[i].picks.at[k];
			pick->kernel = add_kernel(m, w->target, &w->plan, pick, w->plan.n_kernels);
		}
	w->candidates.kernels = ARENA_ARRAY(&m->c.arena, Kernel, w->trials.n);
	for (int i = 0; i < w->trials.n; i++) {
		Pick *pick = &w->trials.at[i].pick;
		pick->kernel = add_kernel(m, w->target, &w->candidates, pick, w->plan.n_kernels + i);
	}
	m->blob = (PlanBlob){"cubins", m->cubins, (size_t)n * MADE_CUBIN_BYTES};
}

void make_plan(MadePlan *m, const char *model_type) { make_plan_of(m, model_type, 0, -1); }

void make_plan_of(MadePlan *m, const char *model_type, int pool_tokens, int stop_token)
{
	Options *o = &m->c.model.options;
	*m = (MadePlan){0};
	synthetic_model(&m->c, model_type);
	o->pool_tokens = pool_tokens;
	o->stop[0] = stop_token;
	o->n_stop = stop_token >= 0;
	make_plan_of_model(m);
}

void make_plan_of_model(MadePlan *m)
{
	Compile *c = &m->c;
	build_graph(c);
	fuse(c);
	pick_kernels(c);
	TargetWork *w = &c->work.at[0];
	make_kernels_up(m, w);
	plan_memory(c);
	schedule(c);
	if (c->diags.n_errors)
		abort();
	m->artifact = (Artifact){.graph = c->graph, .targets = &w->plan, .n_targets = 1,
		.ledger = ARENA_ARRAY(&c->arena, Slot *, 1), .n_ledger = ARENA_ARRAY(&c->arena, int, 1),
		.options = ARENA_NEW(&c->arena, Option), .n_options = 1};
	m->artifact.contracts = list_contracts(c, &m->artifact.n_contracts);
	m->artifact.candidates = &w->candidates;
	m->artifact.ledger[0] = w->ledger.at;
	m->artifact.n_ledger[0] = w->ledger.n;
	m->artifact.options[0] = (Option){"kv.page", arena_printf(&c->arena, "%d", c->graph.page)};
}

void write_made(MadePlan *m, bool embed)
{
	char why[256];
	m->parts = (PlanParts){&m->artifact, &m->blob, 1, embed, {m, read_weight}, m->keys, m->n_keys};
	if (!m->path[0]) {
		snprintf(m->path, sizeof m->path, "%s/made_plan.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
		close(mkstemp(m->path));
	}
	if (!artifact_write(m->path, &m->parts, why, sizeof why)) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
}

void write_made_shard(const MadePlan *m, const char *folder)
{
	char path[256];
	const Graph *g = &m->artifact.graph;
	for (int i = 0; i < g->n_weights; i++) {
		const Weight *w = &g->weights[i];
		if (!w->file)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, w->file);
		FILE *f = fopen(path, access(path, F_OK) == 0 ? "r+b" : "w+b");
		uint8_t *bytes = malloc((size_t)w->bytes);
		read_weight((void *)(uintptr_t)m, i, 0, bytes, (size_t)w->bytes);
		fseek(f, (long)w->file_offset, SEEK_SET);
		if (fwrite(bytes, 1, (size_t)w->bytes, f) != (size_t)w->bytes)
			abort();
		free(bytes);
		fclose(f);
	}
}

void free_made(MadePlan *m)
{
	if (m->path[0])
		unlink(m->path);
	free(m->cubins);
	synthetic_free(&m->c);
}
