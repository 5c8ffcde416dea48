/* rank_check.c - does a graph of several ranks compute what a graph of one does?
 *
 * Each tensor of rows is whole, a part of a sum, or cut by columns (ranks.h); how a weight is cut is in the plan.
 * The ops are walked in order, and each has a rule: how its operands may be, and how its results are then. So every
 * part of a sum reaches a sum before anything is computed of it that is not linear in it, a residual or a bias is added
 * once and not once a rank, columns meet the rows of weights that are theirs, and what is drawn is drawn of whole
 * logits. Ops without a rule of their own read and write whole tensors alone.
 */
#include "artifacts/ranks.h"
#include "artifacts/reader.h"

#include <stdlib.h>
#include <string.h>

#define REFUSE(...) why_not(why, READ_MALFORMED, __VA_ARGS__)

/* OWN: of a rank alone, its number or which of the chosen experts it has. */
typedef enum Form { UNKNOWN, ABSENT, WHOLE, PART, CUT, OWN } Form;

/* CUT: along which axis of a weight, of columns else; OWN: runs[0].n, how many experts. */
typedef struct Layout {
	Form form;
	int axis, n_runs;
	CutRun runs[PLAN_MAX_RUNS];
} Layout;

typedef struct Walk {
	const Graph *g;
	const Ranks *r;
	Layout *of; /* [n_tensors] */
	const GraphOp *op;
	const char *odd, *operand; /* what is wrong with the op, NULL = nothing yet; with which operand */
} Walk;

static const Layout whole = {.form = WHOLE}, part = {.form = PART};

static bool is_odd(Walk *w, const char *operand, const char *what)
{
	if (!w->odd) {
		w->odd = what;
		w->operand = operand;
	}
	return false;
}

static int tensor_of(const Walk *w, const char *name)
{
	const int k = op_operand(w->op->kind, name);
	return k < 0 ? -1 : w->op->operands[k];
}

static Layout get(const Walk *w, const char *name)
{
	const int t = tensor_of(w, name);
	return t < 0 ? (Layout){.form = ABSENT} : w->of[t];
}

static bool has_runs(const Layout *a, const Layout *b)
{
	bool same = a->n_runs == b->n_runs;
	for (int i = 0; i < a->n_runs && same; i++)
		same = a->runs[i].n == b->runs[i].n && a->runs[i].parts == b->runs[i].parts;
	return same;
}

static bool is_same(const Layout *a, const Layout *b)
{
	return a->form == b->form && (a->form != CUT || has_runs(a, b)) && (a->form != OWN || a->runs[0].n == b->runs[0].n);
}

/* What the op leaves there; of state and of results of other phases the same each time. */
static void put(Walk *w, const char *name, Layout l)
{
	const int t = tensor_of(w, name);
	if (t < 0)
		return;
	l.axis = 0;
	if (w->of[t].form == UNKNOWN)
		w->of[t] = l;
	else if (!is_same(&w->of[t], &l))
		is_odd(w, name, "is laid out in two ways");
}

static bool is_whole(Walk *w, const char *name)
{
	const Layout l = get(w, name);
	return l.form == WHOLE || l.form == ABSENT || is_odd(w, name, l.form == PART
		? "is a part of a sum, and is read as the sum" : l.form == CUT ? "is cut, and is read as a whole one"
		: "is not whole");
}

/* n / d elements of each run, on as many ranks: of heads, of blocks. False where a part is not a multiple of d. */
static bool divided(const Layout *a, int64_t d, Layout *out)
{
	*out = *a;
	for (int i = 0; i < a->n_runs; i++) {
		if (d < 1 || a->runs[i].n / a->runs[i].parts % d)
			return false;
		out->runs[i].n /= d;
	}
	return true;
}

static bool is_on_each(const Walk *w, const Layout *a)
{
	bool good = a->form == CUT;
	for (int i = 0; i < a->n_runs; i++)
		good &= a->runs[i].parts == w->r->n;
	return good;
}

/* A weight, or NULL, that is cut along that axis as `runs` are. */
static bool is_cut_as(Walk *w, const char *name, int axis, const Layout *runs)
{
	const Layout l = get(w, name);
	return l.form == ABSENT || (l.form == CUT && l.axis == axis && has_runs(&l, runs)) ||
		is_odd(w, name, "is not cut as what it belongs to");
}

/* Scales of blocks along the axis of a weight: cut as it is, or one block that is as long as the whole axis. */
static bool are_scales(Walk *w, const char *name, int axis, const Layout *weight, int block)
{
	const Layout l = get(w, name);
	Layout blocks;
	int64_t all = 0;
	if (l.form == ABSENT)
		return true;
	for (int i = 0; i < weight->n_runs; i++)
		all += weight->runs[i].n;
	if (l.form == WHOLE)
		return (w->g->tensors[tensor_of(w, name)].shape[axis] == 1 && all <= block) ||
			is_odd(w, name, "is whole, and its weight is cut");
	return (divided(weight, block, &blocks) && is_cut_as(w, name, axis, &blocks)) ||
		is_odd(w, name, "is cut within a block");
}

/* Products ------------------------------------------------------------------------------------------ */

static void rule_linear(Walk *w)
{
	const Layout x = get(w, "x"), m = get(w, "w");
	if (m.form != CUT) {
		if (is_whole(w, "x") && is_whole(w, "w") && is_whole(w, "w_scale") && is_whole(w, "w_row_scale") &&
			is_whole(w, "bias"))
			put(w, "y", whole);
	} else if (m.axis == 0) {
		if (is_whole(w, "x") && are_scales(w, "w_scale", 0, &m, w->op->attrs.block_n) &&
			is_cut_as(w, "w_row_scale", 0, &m) && is_cut_as(w, "bias", 0, &m))
			put(w, "y", m);
	} else if (x.form != CUT || !has_runs(&x, &m)) {
		is_odd(w, "x", "is not cut as the columns of w");
	} else if (!is_on_each(w, &m)) {
		is_odd(w, "w", "has columns that several ranks would add");
	} else if (get(w, "bias").form != ABSENT) {
		is_odd(w, "bias", "would be added once a rank");
	} else if (are_scales(w, "w_scale", 1, &m, w->op->attrs.block_k) && is_whole(w, "w_row_scale")) {
		put(w, "y", part);
	}
}

static void rule_own_experts(Walk *w)
{
	if (is_whole(w, "expert"))
		put(w, "own", (Layout){.form = OWN, .n_runs = 1, .runs = {{w->op->attrs.n_own, w->r->n}}});
}

static const char *const expert_weights[] = {"gate_up", "gate_up_scale", "gate_up_row_scale", "down", "down_scale",
	"down_row_scale"};
enum { N_EXPERT_WEIGHTS = sizeof expert_weights / sizeof expert_weights[0] };

/* Experts with biases have these in place of scales of rows. */
static const char *expert_weight(const Walk *w, int i)
{
	const char *name = expert_weights[i];
	return op_operand(w->op->kind, name) >= 0 ? name : i < 3 ? "gate_up_bias" : "down_bias";
}

/* Whole experts, as many on each rank: of the others' pairs each adds nothing. */
static void rule_whole_experts(Walk *w)
{
	const Layout own = get(w, "expert");
	Layout all = {.form = CUT, .n_runs = 1, .runs = {{own.runs[0].n * w->r->n, w->r->n}}};
	bool good = is_whole(w, "x") && is_whole(w, "share");
	for (int i = 0; i < N_EXPERT_WEIGHTS; i++)
		good = good && is_cut_as(w, expert_weight(w, i), 0, &all);
	if (good)
		put(w, "y", part);
}

static void rule_experts(Walk *w)
{
	const Layout up = get(w, "gate_up"), expert = get(w, "expert");
	const Attrs *a = &w->op->attrs;
	Layout down = up;
	down.n_runs = 1;
	if (expert.form == OWN) {
		rule_whole_experts(w);
		return;
	}
	bool good = is_whole(w, "x") && is_whole(w, "expert") && is_whole(w, "share");
	for (int i = 0; i < N_EXPERT_WEIGHTS && up.form != CUT; i++)
		good = good && is_whole(w, expert_weight(w, i));
	if (up.form != CUT) {
		if (good)
			put(w, "y", whole);
		return;
	}
	if (w->op->kind == OP_experts_clamped)
		is_odd(w, "down_bias", "would be added once a rank");
	else if (up.axis != 1 || up.n_runs != 2 || up.runs[0].n != up.runs[1].n || !is_on_each(w, &up))
		is_odd(w, "gate_up", "is not cut into equal rows of gate and of up");
	else if (good && are_scales(w, "gate_up_scale", 1, &up, a->block_n) && is_cut_as(w, "gate_up_row_scale", 1, &up) &&
		is_cut_as(w, "down", 2, &down) && are_scales(w, "down_scale", 2, &down, a->block_k) &&
		is_whole(w, "down_row_scale"))
		put(w, "y", part);
}

/* Rows ------------------------------------------------------------------------------------------------ */

/* What is linear in two: a part plus a whole one would be added once a rank. */
static void rule_add(Walk *w)
{
	const Layout x = get(w, "x"), y = get(w, "y");
	if ((x.form == PART) != (y.form == PART))
		is_odd(w, x.form == PART ? "y" : "x", "is whole, and would be added once a rank");
	else if (x.form == PART)
		put(w, "z", part);
	else if (is_whole(w, "x") && is_whole(w, "y"))
		put(w, "z", whole);
}

static void rule_scale(Walk *w)
{
	if (get(w, "x").form == OWN)
		is_odd(w, "x", "is not of rows");
	put(w, "y", get(w, "x"));
}

static void rule_glu(Walk *w)
{
	const Layout gate = get(w, "gate"), up = get(w, "up");
	if (gate.form == CUT && is_same(&gate, &up))
		put(w, "y", gate);
	else if (is_whole(w, "gate") && is_whole(w, "up"))
		put(w, "y", whole);
}

/* Each element for itself, but not as a sum: of a part of one it is another thing. */
static void rule_each(Walk *w)
{
	const Layout x = get(w, "x");
	if (x.form == CUT || is_whole(w, "x"))
		put(w, "y", x);
}

/* A gate of each part of a row, or one of all of it, by which a part of a sum may be multiplied as well. */
static void rule_gate(Walk *w)
{
	const Layout x = get(w, "x"), gate = get(w, "gate");
	bool fits = x.form == CUT && gate.form == CUT && x.n_runs == 1 && gate.n_runs == 1 &&
		x.runs[0].parts == gate.runs[0].parts && x.runs[0].n % gate.runs[0].n == 0;
	if (fits)
		put(w, "y", x);
	else if (is_whole(w, "gate") && (x.form == PART || is_whole(w, "x")))
		put(w, "y", x);
}

/* What is computed of each head alone, with a weight for all of them. */
static void rule_heads(Walk *w)
{
	const Layout x = get(w, "x"), z = get(w, "z");
	Layout heads;
	if (x.form == CUT && !divided(&x, w->op->attrs.head_dim, &heads))
		is_odd(w, "x", "is cut within a head");
	else if (z.form != ABSENT && !is_same(&x, &z))
		is_odd(w, "z", "is not laid out as x");
	else if ((x.form == CUT || is_whole(w, "x")) && is_whole(w, "w") && is_whole(w, "inv_freq") &&
		is_whole(w, "row_pos"))
		put(w, "y", x);
}

static void rule_mean_squares(Walk *w)
{
	const Layout x = get(w, "x");
	if (x.form != CUT || x.n_runs != 1)
		is_odd(w, "x", "is not cut");
	else
		put(w, "y", part);
}

static void rule_norm_mean(Walk *w)
{
	const Layout x = get(w, "x");
	if (x.form != CUT || x.n_runs != 1 || w->op->attrs.n_ranks != w->r->n)
		is_odd(w, "x", "is not cut, or RANKS is not their number");
	else if (is_whole(w, "m") && is_cut_as(w, "w", 0, &x))
		put(w, "y", x);
}

/* Attention and Gated DeltaNet --------------------------------------------------------------------- */

/* heads: of keys and values, and who has them. */
static void put_cache(Walk *w, const Layout *heads)
{
	put(w, "kv", *heads);
	if (tensor_of(w, "kv_block") >= 0)
		put(w, "kv_block", *heads);
	if (heads->form == CUT)
		is_cut_as(w, "kv_scale", 1, heads);
	else
		is_whole(w, "kv_scale");
}

static void rule_kv_write(Walk *w)
{
	const Layout k = get(w, "k"), v = get(w, "v");
	Layout heads = whole;
	if (!is_same(&k, &v) || (k.form == CUT && (k.n_runs != 1 || !divided(&k, w->op->attrs.head_dim, &heads))))
		is_odd(w, "v", "is not cut by heads as k is");
	else if (k.form == CUT || (is_whole(w, "k") && is_whole(w, "v")))
		put_cache(w, &heads);
}

static void rule_attention(Walk *w)
{
	const Attrs *a = &w->op->attrs;
	const Layout q = get(w, "q"), kv = get(w, "kv");
	Layout heads;
	if (q.form != CUT) {
		if (is_whole(w, "q") && is_whole(w, "kv") && is_whole(w, "sinks")) {
			put_cache(w, &whole);
			put(w, "o", whole);
		}
	} else if (q.n_runs != 1 || !is_on_each(w, &q) || !divided(&q, a->head_dim, &heads)) {
		is_odd(w, "q", "is not cut by heads");
	} else if (!is_cut_as(w, "sinks", 0, &heads)) {
		return;
	} else if (kv.form == WHOLE && a->n_kv_heads == 1) { /* one head, which all ranks have */
		put_cache(w, &whole);
		put(w, "o", q);
	} else if (kv.form != CUT || kv.n_runs != 1 || heads.runs[0].n % kv.runs[0].n ||
		(kv.runs[0].parts != w->r->n && a->n_kv_heads != 1)) {
		is_odd(w, "kv", "does not have the heads that q reads");
	} else {
		put_cache(w, &kv);
		put(w, "o", q);
	}
}

static void rule_conv(Walk *w)
{
	const Layout x = get(w, "x");
	if (x.form != CUT && (!is_whole(w, "x") || !is_whole(w, "w")))
		return;
	if (x.form == CUT && !is_cut_as(w, "w", 0, &x))
		return;
	put(w, "conv", x);
	put(w, "conv_later", x);
	put(w, "y", x);
}

static void rule_delta(Walk *w)
{
	const Attrs *a = &w->op->attrs;
	const int64_t n = w->r->n, keys = (int64_t)a->n_k_heads * a->k_dim * n, values = a->n_v_heads * n;
	const Layout x = get(w, "qkv"), la = get(w, "a"), lb = get(w, "b");
	Layout qkv = {.form = CUT, .n_runs = 3, .runs = {{keys, (int)n}, {keys, (int)n}, {values * a->v_dim, (int)n}}};
	Layout heads = {.form = CUT, .n_runs = 1, .runs = {{values, (int)n}}}, o = heads;
	o.runs[0].n *= a->v_dim;
	if (x.form != CUT) {
		if (!is_whole(w, "qkv") || !is_whole(w, "a") || !is_whole(w, "b") || !is_whole(w, "a_log") ||
			!is_whole(w, "dt_bias"))
			return;
		heads = o = whole;
	} else if (!is_same(&x, &qkv) || !is_same(&la, &heads) || !is_same(&lb, &heads)) {
		is_odd(w, "qkv", "is not cut by heads, or a and b are not");
		return;
	} else if (!is_cut_as(w, "a_log", 0, &heads) || !is_cut_as(w, "dt_bias", 0, &heads)) {
		return;
	}
	put(w, "delta", heads);
	put(w, "delta_later", heads);
	put(w, "o", o);
}

/* Collectives, and all others ------------------------------------------------------------------------- */

static void rule_sum(Walk *w)
{
	if (get(w, "part").form != PART)
		is_odd(w, "part", "is not a part of a sum: it would be added once a rank");
	else if (is_whole(w, "bias"))
		put(w, "z", whole);
}

static void rule_gather(Walk *w)
{
	const Layout x = get(w, "part");
	if (x.form != CUT || x.n_runs != 1 || !is_on_each(w, &x) || w->op->attrs.n_ranks != w->r->n)
		is_odd(w, "part", "is not cut in as many parts as there are ranks");
	else
		put(w, "z", whole);
}

static void rule_whole(Walk *w)
{
	const OpInfo *info = &op_table[w->op->kind];
	for (int i = 0; i < info->n_operands; i++) {
		const int t = w->op->operands[i];
		const bool is_state = t >= 0 && w->g->tensors[t].role == ROLE_STATE;
		if (info->operands[i].role == OPERAND_OUT || is_state)
			put(w, info->operands[i].name, whole);
		else if (!is_whole(w, info->operands[i].name))
			return;
	}
}

static void walk(Walk *w)
{
	switch (w->op->kind) {
	case OP_linear: rule_linear(w); break;
	case OP_own_experts: rule_own_experts(w); break;
	case OP_experts: case OP_experts_limited: case OP_experts_gelu: case OP_experts_clamped: rule_experts(w); break;
	case OP_add: rule_add(w); break;
	case OP_scale: rule_scale(w); break;
	case OP_swiglu: case OP_swiglu_limited: case OP_geglu: rule_glu(w); break;
	case OP_relu_squared: rule_each(w); break;
	case OP_sigmoid_gate: case OP_softplus_gate: rule_gate(w); break;
	case OP_head_norm: case OP_rope: case OP_gated_norm: rule_heads(w); break;
	case OP_mean_squares: rule_mean_squares(w); break;
	case OP_norm_mean: rule_norm_mean(w); break;
	case OP_kv_write: rule_kv_write(w); break;
	case OP_attention: rule_attention(w); break;
	case OP_causal_conv: case OP_conv_verify: rule_conv(w); break;
	case OP_delta_rule: case OP_delta_verify: rule_delta(w); break;
	case OP_zero_slots: is_whole(w, "acquire"); break; /* as much of the state as a rank has */
	case OP_sum_ranks: rule_sum(w); break;
	case OP_gather_ranks: rule_gather(w); break;
	default: rule_whole(w);
	}
}

/* How weights and what the host writes are laid out. */
static void start(Walk *w)
{
	for (int t = 0; t < w->g->n_tensors; t++) {
		const Tensor *x = &w->g->tensors[t];
		const Cut *c = ranks_cut(w->r, t);
		w->of[t].form = x->role == ROLE_ACTIVATION || x->role == ROLE_STATE ? UNKNOWN : WHOLE;
		if (strcmp(x->name, "rank") == 0)
			w->of[t].form = OWN;
		if (c)
			w->of[t] = (Layout){.form = CUT, .axis = c->axis, .n_runs = c->n_runs};
		for (int i = 0; c && i < c->n_runs; i++)
			w->of[t].runs[i] = c->runs[i];
	}
}

static bool check_schedule(const Graph *g, const Ranks *r, Why *why)
{
	int n = 0;
	for (int bit = 1; bit <= PHASE_ALL; bit <<= 1) {
		const RankPhase want = ranks_phase(g, r, bit);
		if (!want.n_collectives)
			continue;
		const RankPhase *have = n < r->n_phases ? &r->phases[n++] : NULL;
		if (!have || have->phase != bit || have->n_collectives != want.n_collectives ||
			have->row_bytes != want.row_bytes || memcmp(have->digest, want.digest, sizeof want.digest) != 0)
			return REFUSE("ranks: the schedule of collectives of phases %d is not that of the graph", bit);
	}
	return n == r->n_phases || REFUSE("ranks: %d schedules of collectives, %d phases have any", r->n_phases, n);
}

bool check_cuts(const Graph *g, const Ranks *r, Why *why)
{
	const int64_t most = (int64_t)1 << 40;
	if (r->n != 0 && r->n != 2 && r->n != 4 && r->n != PLAN_MAX_RANKS)
		return REFUSE("ranks: %d ranks: 2, 4 or 8 expected", r->n);
	if (!r->n && (r->n_cuts || r->n_phases))
		return REFUSE("ranks: cuts without ranks");
	for (int i = 0; i < r->n_cuts; i++) {
		const Cut *c = &r->cuts[i];
		int64_t own = 0, all = 0;
		if (c->tensor < 0 || c->tensor >= g->n_tensors || (i && c->tensor <= r->cuts[i - 1].tensor) ||
			g->tensors[c->tensor].role != ROLE_WEIGHT)
			return REFUSE("ranks: cut %d is of tensor %d of %d", i, c->tensor, g->n_tensors);
		const Tensor *t = &g->tensors[c->tensor];
		bool good = c->axis >= 0 && c->axis < t->n_dims && c->n_runs >= 1 && c->n_runs <= PLAN_MAX_RUNS;
		for (int k = 0; k < c->n_runs && good; k++) {
			const CutRun *run = &c->runs[k];
			const bool is_narrow = !dtype_bytes(t->dtype) && c->axis == t->n_dims - 1;
			good = run->n > 0 && run->n <= most && run->parts > 0 && run->parts <= r->n && r->n % run->parts == 0 &&
				run->n % run->parts == 0 && (!is_narrow || run->n / run->parts % 2 == 0);
			own += good ? run->n / run->parts : 0;
			all += good ? run->n : 0;
		}
		if (!good || own != t->shape[c->axis] || all == own)
			return REFUSE("tensor %s: its shape is not a rank's part of what is cut along axis %d", t->name, c->axis);
	}
	return true;
}

bool check_ranks(const Graph *g, const Ranks *r, Why *why)
{
	for (int i = 0; i < g->n_ops && !r->n; i++)
		if (op_table[g->ops[i].kind].traits & OP_RANKS)
			return REFUSE("graph op %d (%s): the plan has one rank", i, op_table[g->ops[i].kind].name);
	if (!r->n)
		return true;
	Walk w = {.g = g, .r = r, .of = calloc((size_t)g->n_tensors + 1, sizeof *w.of)};
	if (!w.of)
		return why_not(why, READ_NO_MEMORY, "no memory for %d tensors", g->n_tensors);
	start(&w);
	bool good = true;
	for (int i = 0; i < g->n_ops && good; i++) {
		w.op = &g->ops[i];
		walk(&w);
		const int t = w.odd ? tensor_of(&w, w.operand) : -1;
		good = !w.odd || REFUSE("graph op %d (%s) on %d ranks: %s (%s) %s", i, op_table[w.op->kind].name, r->n,
			w.operand, t < 0 ? "absent" : g->tensors[t].name, w.odd);
	}
	free(w.of);
	return good && check_schedule(g, r, why);
}
