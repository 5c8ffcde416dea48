/* candidates.c - --candidates: the kernels that were considered, each as a phase of one launch, for `atlas tune`.
 *
 * A trial needs nothing of the plan's memory: its buffers lie one after the other in arenas of its own, weights and
 * state apart from the rest, since what a step finds cold in a cache are those two.
 */
#include "artifacts/op_table.h"
#include "compiler/ir.h"

#include <string.h>

static ArenaKind trial_arena(Role role)
{
	return role == ROLE_WEIGHT ? ARENA_WEIGHTS : role == ROLE_STATE ? ARENA_STATE : ARENA_SCRATCH;
}

static Buf trial_buf(OpKind op, int operand, const LTensor *x, int64_t *at)
{
	Buf b = {.name = op_table[op].operands[operand].name, .arena = trial_arena(x->role), .dtype = x->dtype,
		.n_dims = x->n_dims, .tensor = -1};
	int64_t n = 1;
	for (int d = 0; d < x->n_dims; d++) {
		b.shape[d] = x->shape[d];
		n *= x->shape[d];
	}
	b.bytes = dtype_span(x->dtype, n);
	b.offset = at[b.arena];
	at[b.arena] += (b.bytes + PLAN_BUF_ALIGN - 1) / PLAN_BUF_ALIGN * PLAN_BUF_ALIGN;
	return b;
}

static Phase trial_phase(Compile *c, const TargetWork *work, const Trial *t, int64_t *at)
{
	int n = op_table[t->op].n_operands, bufs[PLAN_MAX_OPERANDS];
	Phase p = {.kind = t->phase, .rows = t->rows, .outs = t->outs, .each = t->each,
		.bufs = ARENA_ARRAY(&c->arena, Buf, n),
		.n_launches = 1, .launches = ARENA_ARRAY(&c->arena, Launch, 1)};
	for (int k = 0; k < n; k++) {
		bufs[k] = t->operands[k].n_dims ? p.n_bufs : -1;
		if (bufs[k] >= 0)
			p.bufs[p.n_bufs++] = trial_buf(t->op, k, &t->operands[k], at);
	}
	p.launches[0] = launch_of(c, work->target, t->op, &t->pick, bufs);
	p.launches[0].layer = t->layer;
	for (int i = 0; i < p.launches[0].n_args; i++) { /* as in a step: schedule.c */
		Arg *a = &p.launches[0].args[i];
		a->early = a->early && p.bufs[a->buf].arena != ARENA_WEIGHTS;
	}
	return p;
}

void lay_out_trials(Compile *c, TargetWork *work)
{
	TargetPlan *plan = &work->candidates;
	plan->target = work->target->name;
	plan->cc_major = work->target->cc_major;
	plan->cc_minor = work->target->cc_minor;
	plan->smem_block_bytes = work->target->smem_block_bytes;
	plan->n_sms = work->target->n_sms;
	plan->phases = ARENA_ARRAY(&c->arena, Phase, plan->n_kernels);
	plan->n_phases = plan->n_kernels;
	for (int i = 0; i < work->trials.n; i++) {
		const Trial *t = &work->trials.at[i];
		int64_t at[ARENA_COUNT] = {0};
		if (t->pick.kernel < 0)
			continue;
		plan->phases[t->pick.kernel] = trial_phase(c, work, t, at);
		for (int a = 0; a < ARENA_COUNT; a++)
			if (at[a] > plan->arena_bytes[a])
				plan->arena_bytes[a] = at[a];
	}
}
