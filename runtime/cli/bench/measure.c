/* measure.c - each launch of a step compared with the reference function of its op.
 *
 * The step halts before and after every launch. Before it, all operands are copied to the host; after it, those
 * that it writes are copied again. The reference function gets the operands as they were before, so its result is what
 * an exact kernel would have left from the very same inputs, and errors of launches before do not count. Of rows and
 * outs only those in use are computed and compared. Weights are converted as the reference reads them, all else before;
 * their copies are kept from launch to launch as far as the host has room.
 */
#include "artifacts/expr.h"
#include "artifacts/numbers.h"
#include "artifacts/parallel.h"
#include "artifacts/peers.h"
#include "artifacts/ranks.h"
#include "artifacts/schema.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/cpu/pool.h"
#include "runtime/cpu/ref_ops.h"
#include "runtime/meet/rank_parts.h"
#include "runtime/ranks/cuda_peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	ENOUGH = 256, /* elements for a mean to mean something */
	MOST_TIES = 8 /* one choice in this number may be another one */
};

typedef struct Held { /* an operand of the launch that is under way */
	const Buf *buf;      /* NULL = absent */
	const char *dims;    /* its shape in ops.h */
	uint8_t *before;     /* its bytes; of what only this launch uses they are zeros */
	void *values, *want; /* as the reference reads and leaves them: f32 or i32 [n]; of weights NULL */
	int64_t shape[PLAN_MAX_DIMS], n;
	bool is_own;         /* serves the launch alone, or is read by the host alone: not compared */
	bool is_kept;        /* `before` is one of Measure's copies */
} Held;

typedef struct Copy { int64_t offset, bytes; uint8_t *data; } Copy; /* of a part of the weight arena */

struct Measure {
	Device *device;
	const Artifact *artifact;
	Certificate *c;
	Dtype *coarsest;
	Pool *pool;
	Held held[PLAN_MAX_OPERANDS];
	int rows, outs; /* in use */
	int phase;      /* that is measured, with what goes before its steps */
	bool has_acquired;
	Copy *copies;   /* [n_copies] */
	int n_copies;
};

static AtlasStatus no_memory(Measure *m)
{
	return error_set(&m->device->error, ATLAS_NO_MEMORY, "no memory for the operands of a launch");
}

static void let_go(Measure *m)
{
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++) {
		Held *h = &m->held[i];
		if (h->want != h->values)
			free(h->want);
		free(h->values);
		if (!h->is_kept)
			free(h->before);
		*h = (Held){0};
	}
}

/* Operands ------------------------------------------------------------ */

/* Dim i of a shape in ops.h: 'R' for ROWS, 'O' for OUTS, '*' for an expression of them, else 0. */
static char counts(const char *list, int i)
{
	char item[96] = "";
	while (i-- >= 0)
		if (!expr_next(&list, item, sizeof item))
			return 0;
	if (strcmp(item, "ROWS") == 0 || strcmp(item, "OUTS") == 0)
		return *item;
	return strstr(item, "ROWS") || strstr(item, "OUTS") ? '*' : 0;
}

/* Has each dim that follows from rows or outs only their number? Else all of the bucket is computed. */
static bool can_be_cut(OpKind op)
{
	for (int k = 0; k < op_table[op].n_operands; k++)
		for (int i = 0; i < PLAN_MAX_DIMS; i++)
			if (counts(operand_shape(op, k), i) == '*')
				return false;
	return true;
}

/* The used part of an array of the buffer's shape, as f32 or i32. */
static void *take_values(const Held *h, const uint8_t *bytes)
{
	const Buf *b = h->buf;
	float *to = malloc((size_t)h->n * 4 + 4);
	int last = b->n_dims - 1;
	bool is_across = last == 1 && h->shape[1] != b->shape[1]; /* rows that lie side by side */
	int64_t lines = is_across ? h->shape[0] : 1, width = h->n / lines;
	for (int64_t r = 0; to && r < lines; r++) {
		int64_t from = is_across ? r * b->shape[1] : 0;
		if (b->dtype == DT_i32)
			memcpy(to + r * width, bytes + 4 * from, (size_t)width * 4);
		else
			numbers_convert(b->dtype, bytes, from, width, to + r * width);
	}
	return to;
}

/* The copy of those weights that an earlier launch has made; NULL = none has, or there was no room for it. */
static uint8_t *copy_of(const Measure *m, const Buf *b)
{
	for (int i = 0; i < m->n_copies; i++)
		if (m->copies[i].offset == b->offset && m->copies[i].bytes == b->bytes)
			return m->copies[i].data;
	return NULL;
}

/* Keeps what h has read for launches to come, while that leaves the host as much memory again. */
static void keep_copy(Measure *m, Held *h)
{
	const int64_t left = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
	Copy *grown = left > h->buf->bytes ? realloc(m->copies, sizeof *grown * (size_t)(m->n_copies + 1)) : NULL;
	if (!grown)
		return;
	m->copies = grown;
	m->copies[m->n_copies++] = (Copy){h->buf->offset, h->buf->bytes, h->before};
	h->is_kept = true;
}

static AtlasStatus hold(Measure *m, const Phase *p, const Launch *l, const Arg *a)
{
	Held *h = &m->held[a->operand];
	const OperandInfo *o = &op_table[l->op].operands[a->operand];
	const bool is_cut = can_be_cut(l->op);
	h->buf = &p->bufs[a->buf];
	h->dims = operand_shape(l->op, a->operand);
	/* on several ranks a draw reads gathered logits, and nothing the best of a rank's own, of which the last part ends
	 * where the ids of all ranks would */
	const bool is_unread = m->artifact->ranks.n && strncmp(o->name, "best", 4) == 0;
	h->is_own = h->buf->arena == ARENA_RING || o->of >= OF_own || is_unread;
	h->n = 1;
	for (int i = 0; i < h->buf->n_dims; i++) {
		char count = is_cut ? counts(h->dims, i) : 0;
		h->shape[i] = count == 'R' ? m->rows : count == 'O' ? m->outs : h->buf->shape[i];
		h->n *= h->shape[i];
	}
	const bool is_weight = h->buf->arena == ARENA_WEIGHTS;
	h->before = is_weight ? copy_of(m, h->buf) : NULL;
	h->is_kept = h->before;
	if (!h->is_kept) {
		h->before = is_weight && h->buf->bytes > 1 << 21 ? parallel_memory(h->buf->bytes)
			: calloc(1, (size_t)h->buf->bytes + 1);
		if (!h->before)
			return no_memory(m);
		AtlasStatus s = h->is_own ? ATLAS_OK : cuda_read_bytes(m->device, h->buf, h->before);
		if (s != ATLAS_OK)
			return s;
		if (is_weight)
			keep_copy(m, h);
	}
	if (is_weight || h->n == 0)
		return ATLAS_OK;
	h->values = h->want = take_values(h, h->before);
	if (h->values && operand_is_written(o->role)) {
		h->want = malloc((size_t)h->n * 4 + 4);
		if (h->want)
			memcpy(h->want, h->values, (size_t)h->n * 4);
	}
	return h->want ? ATLAS_OK : no_memory(m);
}

/* An attribute has one value in a layer, and any graph op of the layer has it; but for those whose value the ledger
 * has, which are the op's own. */
static Attrs attrs_of(const Measure *m, const Launch *l)
{
	const Graph *g = &m->artifact->graph;
	const ptrdiff_t target = cuda_target(m->device) - m->artifact->targets;
	Attrs a = {0};
	for (int k = 0; k < n_attr_fields; k++) {
		const AttrField *f = &attr_fields[k];
		const size_t n = strlen(f->label);
		for (int i = 0; i < g->n_ops; i++)
			if (g->ops[i].layer == l->layer && op_has_attr(g->ops[i].kind, f->label))
				memcpy((char *)&a + f->offset, (const char *)&g->ops[i].attrs + f->offset, 4);
		for (const char *at = m->artifact->ledger[target][l->slot].attrs; *at; at += strcspn(at, " "), at += *at == ' ')
			if (f->kind == F_INT && strncmp(at, f->label, n) == 0 && at[n] == '=')
				*(int *)(void *)((char *)&a + f->offset) = atoi(at + n + 1);
	}
	return a;
}

/* The reference ------------------------------------------------------------ */

typedef struct Job { const RefCall *call; char *scratch; size_t piece; } Job;

static void run_part(void *ctx, int part, int parts)
{
	const Job *job = ctx;
	RefCall c = *job->call;
	c.part = part;
	c.parts = parts;
	c.scratch = job->scratch + (size_t)part * job->piece;
	ref_op(&c);
}

typedef struct Inner { Pool *pool; bool failed; } Inner;

/* A graph op, of all threads where it has parts. */
static bool run_threads(Pool *pool, const RefCall *call)
{
	const bool has_parts = op_table[call->op].traits & OP_PARTS;
	Job job = {call, NULL, (ref_scratch_bytes(call) + 63) / 64 * 64};
	job.scratch = aligned_alloc(64, job.piece * (size_t)(has_parts ? pool_threads(pool) : 1) + 64);
	if (job.scratch && has_parts)
		pool_run(pool, run_part, &job);
	else if (job.scratch)
		run_part(&job, 0, 1);
	const bool ran = job.scratch;
	free(job.scratch);
	return ran;
}

static void run_inner(void *ctx, const RefCall *call)
{
	Inner *inner = ctx;
	inner->failed |= !run_threads(inner->pool, call);
}

/* What NCCL has made of all ranks' parts is given to the reference too, and not judged: the others' are not there. */
static AtlasStatus take_from_nccl(Measure *m, const Launch *l)
{
	Held *made = &m->held[op_operand(l->op, l->op == OP_gather_nccl ? "all" : "sum")];
	Held *peers = &m->held[op_operand(l->op, "peers")];
	((int32_t *)peers->want)[PEER_RANKS] = ranks_of(&m->artifact->ranks);
	const AtlasStatus s = cuda_read_bytes(m->device, made->buf, made->before);
	void *values = s == ATLAS_OK ? take_values(made, made->before) : NULL;
	if (!values)
		return s == ATLAS_OK ? no_memory(m) : s;
	memcpy(made->want, values, (size_t)made->n * 4);
	free(values);
	made->is_own = true;
	return ATLAS_OK;
}

/* Operands of a collective that other ranks have. */
static AtlasStatus take_parts(Measure *m, const Phase *p, const Launch *l, RankParts *parts)
{
	*parts = (RankParts){.n = 0};
	if (!m->artifact->ranks.n || op_operand(l->op, "peers") < 0)
		return ATLAS_OK;
	if (is_by_nccl(l->op))
		return take_from_nccl(m, l);
	const Held *part = &m->held[op_operand(l->op, "part")];
	return rank_parts(m->device, p, l, part->want, part->n, parts);
}

/* Fills `want` of what the launch writes. False: no memory. */
static bool run_reference(Measure *m, const Launch *l, const RankParts *parts)
{
	Inner inner = {m->pool, false};
	RefCall call = {.op = l->op, .attrs = attrs_of(m, l), .inner = run_inner, .inner_ctx = &inner,
		.ranks = parts->of, .n_ranks = parts->n};
	for (int i = 0; i < op_table[l->op].n_operands; i++) {
		const Held *h = &m->held[i];
		if (!h->buf)
			continue;
		RefOperand *o = &call.operand[i];
		*o = (RefOperand){h->want ? h->want : h->before, h->want && h->buf->dtype != DT_i32 ? DT_f32 : h->buf->dtype,
			h->buf->n_dims, {0}, h->buf->dtype == DT_bf16};
		memcpy(o->shape, h->shape, sizeof o->shape);
	}
	return run_threads(m->pool, &call) && !inner.failed;
}

/* Comparing ------------------------------------------------------------ */

typedef struct Figures { double cosine, rms, max; int64_t values; } Figures;

static bool is_in_use(const Measure *m, const Held *h, int64_t i)
{
	char count = counts(h->dims, 0);
	int64_t row = i / (h->n / h->shape[0]);
	return count == 'R' ? row < m->rows : count == 'O' ? row < m->outs : true;
}

/* Element i is what it was for both, or unknown. */
static bool is_left(const Held *h, const OperandInfo *o, const uint32_t *got, int64_t i)
{
	const uint32_t before = ((const uint32_t *)h->values)[i], want = ((const uint32_t *)h->want)[i];
	return want == before && (got[i] == before || o->role == OPERAND_OUT);
}

/* Choices, or what follows from integers (max: the share that is not equal). differs [rows] is set where one is not. */
static Figures compare_integers(const Measure *m, const Held *h, const OperandInfo *o, const int32_t *got,
	bool is_choice, bool *differs)
{
	const int32_t *want = h->want;
	int64_t n = 0, off = 0;
	for (int64_t i = 0; i < h->n; i++) {
		if (is_left(h, o, (const uint32_t *)got, i) || !is_in_use(m, h, i))
			continue;
		n++;
		off += got[i] != want[i];
		if (got[i] != want[i] && counts(h->dims, 0))
			differs[i / (h->n / h->shape[0])] = true;
	}
	double max = n ? (double)off / (double)n : 0;
	if (is_choice)
		max = off <= 1 || off * MOST_TIES <= n ? 0 : 1;
	return (Figures){1, 0, max, n};
}

/* skip [rows]: rows of another choice. */
static Figures compare_floats(const Measure *m, const Held *h, const OperandInfo *o, const float *got, const bool *skip)
{
	const float *want = h->want;
	double largest = 0, worst = 0, error = 0, dot = 0, a = 0, b = 0;
	int64_t n = 0;
	for (int64_t i = 0; i < h->n; i++) {
		if (is_left(h, o, (const uint32_t *)(const void *)got, i) || !is_in_use(m, h, i) ||
			(counts(h->dims, 0) && skip[i / (h->n / h->shape[0])]) || (isnan(got[i]) && isnan(want[i])))
			continue;
		double x = got[i], y = want[i], e = got[i] == want[i] ? 0 : fabs(x - y);
		n++;
		worst = isfinite(e) ? fmax(worst, e) : INFINITY;
		if (!isfinite(x) || !isfinite(y))
			continue;
		largest = fmax(largest, fabs(y));
		error += e * e;
		dot += x * y;
		a += x * x;
		b += y * y;
	}
	double scale = n < ENOUGH ? fmax(largest, 1) : largest;
	return (Figures){a > 0 && b > 0 ? dot / sqrt(a * b) : 1, n < ENOUGH || error == 0 ? 0 : sqrt(error / b),
		worst == 0 ? 0 : worst / scale, n};
}

/* Whose tolerance holds: a result is no better than what it is made from. */
static Dtype judged_as(const Measure *m, const OpInfo *op, Dtype result)
{
	Dtype d = result;
	for (int i = 0; i < op->n_operands && result != DT_i32; i++) {
		Dtype in = m->held[i].buf ? m->held[i].buf->dtype : DT_i32;
		bool is_code = in == DT_e4m3 || in == DT_e2m1 || in == DT_e8m0;
		if (op->operands[i].role == OPERAND_IN && !is_code && dtype_tolerance(in) > dtype_tolerance(d))
			d = in;
	}
	return d;
}

static CertOp *find_op(Certificate *c, const char *phase, const Launch *l, const char *kernel, const char *result)
{
	for (int i = 0; i < c->n_ops; i++)
		if (c->ops[i].op == l->op && strcmp(c->ops[i].phase, phase) == 0 && strcmp(c->ops[i].kernel, kernel) == 0 &&
			strcmp(c->ops[i].result, result) == 0)
			return &c->ops[i];
	CertOp *grown = realloc(c->ops, sizeof *grown * (size_t)(c->n_ops + 1));
	if (!grown)
		return NULL;
	c->ops = grown;
	CertOp *o = &grown[c->n_ops++];
	*o = (CertOp){.op = l->op, .cosine = 1, .layer = l->layer};
	snprintf(o->phase, sizeof o->phase, "%s", phase);
	snprintf(o->kernel, sizeof o->kernel, "%s", kernel);
	snprintf(o->result, sizeof o->result, "%s", result);
	return o;
}

static bool note(Measure *m, const Phase *p, const Launch *l, int operand, const Figures *f)
{
	const OpInfo *info = &op_table[l->op];
	const char *kernel = cuda_target(m->device)->kernels[l->kernel].name;
	const Dtype stored = m->held[operand].buf->dtype;
	char phase[32];
	snprintf(phase, sizeof phase, "%s", PHASE_LABEL(p));
	CertOp *o = find_op(m->c, phase, l, kernel, info->operands[operand].name);
	if (!o)
		return false;
	o->stored = stored;
	o->dtype = judged_as(m, info, stored);
	o->launches++;
	o->values += f->values;
	o->cosine = fmin(o->cosine, f->cosine);
	o->rms = fmax(o->rms, isfinite(f->rms) ? f->rms : 1e30);
	const double max = isfinite(f->max) ? f->max : 1e30, limit = fmax(cert_op_limit(o), 1e-30);
	const bool was_good = o->max <= limit;
	if (max > o->max && was_good) /* of launches out of tolerance, the first counts */
		o->layer = l->layer;
	o->max = fmax(o->max, max);
	const int n_layers = m->artifact->graph.n_layers;
	Dtype *coarsest = &m->coarsest[l->layer < 0 ? 0 : l->layer < n_layers ? l->layer : n_layers];
	if (p->kind == PREFILL && o->dtype != DT_i32 && dtype_tolerance(o->dtype) > dtype_tolerance(*coarsest))
		*coarsest = o->dtype;
	return true;
}

bool measure_add(Certificate *c, const CertOp *x)
{
	const Launch l = {.op = x->op, .layer = x->layer};
	CertOp *o = find_op(c, x->phase, &l, x->kernel, x->result);
	if (!o)
		return false;
	o->stored = x->stored;
	o->dtype = x->dtype;
	o->launches += x->launches;
	o->values += x->values;
	o->cosine = fmin(o->cosine, x->cosine);
	o->rms = fmax(o->rms, x->rms);
	o->layer = x->max > o->max ? x->layer : o->layer;
	o->max = fmax(o->max, x->max);
	return true;
}

static AtlasStatus judge_launch(Measure *m, const Phase *p, const Launch *l)
{
	const OpInfo *op = &op_table[l->op];
	void *got[PLAN_MAX_OPERANDS] = {0};
	bool *differs = calloc((size_t)p->rows + (size_t)p->outs + 1, 1), has_floats = false;
	RankParts parts;
	AtlasStatus s = take_parts(m, p, l, &parts);
	s = s == ATLAS_OK && !(differs && run_reference(m, l, &parts)) ? no_memory(m) : s;
	rank_parts_free(&parts);
	for (int i = 0; i < op->n_operands && s == ATLAS_OK; i++) {
		Held *h = &m->held[i];
		has_floats |= h->buf && h->buf->dtype != DT_i32;
		if (!h->buf || h->is_own || !operand_is_written(op->operands[i].role))
			continue;
		s = cuda_read_bytes(m->device, h->buf, h->before);
		if (s == ATLAS_OK && !(got[i] = take_values(h, h->before)))
			s = no_memory(m);
	}
	for (int pass = 0; pass < 2; pass++) /* choices first: floats of rows with another one are not compared */
		for (int i = 0; i < op->n_operands && s == ATLAS_OK; i++) {
			const Held *h = &m->held[i];
			const bool is_int = h->buf && h->buf->dtype == DT_i32;
			if (!got[i] || is_int != (pass == 0))
				continue;
			bool is_scores = strcmp(op->operands[i].name, "logits") == 0;
			static const bool none[1 << 17];
			Figures f = is_int ? compare_integers(m, h, &op->operands[i], got[i], has_floats, differs)
				: compare_floats(m, h, &op->operands[i], got[i], is_scores ? none : differs);
			if (!note(m, p, l, i, &f))
				s = no_memory(m);
		}
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		free(got[i]);
	free(differs);
	return s;
}

/* Halts ------------------------------------------------------------ */

/* Steps that only lead to those of the bucket are not measured again and again. */
static bool is_wanted(const Measure *m, const Phase *p)
{
	return p->kind == ACQUIRE ? !m->has_acquired : p->kind == DRAFT || p == &cuda_target(m->device)->phases[m->phase];
}

static AtlasStatus look(void *ctx, const Phase *p, const Launch *l, const int32_t *step, bool is_after)
{
	Measure *m = ctx;
	AtlasStatus s = ATLAS_OK;
	if (!is_wanted(m, p))
		return s;
	if (!is_after) {
		m->rows = step[0];
		m->outs = step[1];
	}
	for (int i = 0; i < l->n_args && !is_after && s == ATLAS_OK; i++)
		if (l->args[i].buf >= 0)
			s = hold(m, p, l, &l->args[i]);
	bool is_empty = false; /* no outs in this step */
	for (int i = 0; i < PLAN_MAX_OPERANDS; i++)
		is_empty |= m->held[i].buf && m->held[i].n == 0;
	if (is_after && !is_empty)
		s = judge_launch(m, p, l);
	if (is_after || s != ATLAS_OK)
		let_go(m);
	return s;
}

Measure *measure_start(Device *device, const Artifact *artifact, int threads, Certificate *c, Dtype *coarsest)
{
	Measure *m = calloc(1, sizeof *m);
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	if (!m)
		return NULL;
	*m = (Measure){.device = device, .artifact = artifact, .c = c, .coarsest = coarsest};
	m->pool = pool_open(threads > 0 ? threads : processors < 1 ? 1 : processors > 64 ? 64 : (int)processors);
	if (!m->pool) {
		free(m);
		return NULL;
	}
	return m;
}

void measure_bucket(Measure *m, int phase)
{
	m->phase = phase;
	m->has_acquired = m->c->n_ops > 0;
	cuda_halt(m->device, phase < 0 ? NULL : look, m, phase);
}

void measure_end(Measure *m)
{
	if (!m)
		return;
	cuda_halt(m->device, NULL, NULL, -1);
	let_go(m);
	for (int i = 0; i < m->n_copies; i++)
		free(m->copies[i].data);
	free(m->copies);
	pool_close(m->pool);
	free(m);
}
