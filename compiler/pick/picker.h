/* picker.h - the choice of one kernel: what pick_kernels.c and pick_orders.c share. */
#ifndef ATLASC_PICKER_H
#define ATLASC_PICKER_H

#include "artifacts/op_table.h"
#include "artifacts/order.h"
#include "compiler/ir.h"

enum { WHY_BYTES = 256 };

typedef struct Picker {
	Compile *c;
	TargetWork *work;
	Lowered *low;
	LOp *op;
	bool is_wide; /* candidates that a contract does not prefer are admitted too */
	int ahead;    /* decisions that will be in the ledger before this one */
	VEC(const char *) refused; /* what was refused: equal layers and buckets are refused once */
	VEC(const char *) stated;    /* of each kernel that adds in another order: the same */
	const char *order;         /* the order that others are banned for; NULL = any will do */
	char why[WHY_BYTES];
} Picker;

typedef struct Admitted { /* an admissible candidate */
	Pick pick;
	const char *tunables;
	const char *order;
	const char *not_preferred; /* the first preference that is false; NULL = none */
	int n_not_preferred;       /* how many are, but for those that only prune */
	double model_us;
	const TunedTime *time; /* NULL = not measured */
	int candidate;         /* index in Decision.candidates */
} Admitted;

typedef struct Decision {
	VEC(Candidate) candidates;
	VEC(Admitted) admitted; /* those of a template are next to each other */
} Decision;

Decision consider_all(Picker *p);
/* --candidates: a trial of p->op with this kernel, once for each different kernel. */
void add_trial(Picker *p, const Pick *pick, const char *tunables);
/* The decision of the layer before for an equal op, if there is one: true, and p->op has its kernel. is_asked: whether
 * that is all that is to be found out. */
bool reuse(Picker *p, const char *operands, bool is_asked);
/* p->op has this kernel: the ledger's next entry. */
void settle(Picker *p, Decision *d, const Admitted *best, const char *operands);
void refuse(Picker *p, const Decision *d, const char *operands);
/* An op on its own. */
void decide(Picker *p);
const char *operands_text(Picker *p);
/* The rule of MODEL.toml but for which a candidate would have been admitted; NULL = there is none. */
const KernelRule *rule_to_blame(const Picker *p, const Decision *d);
/* "layer 3", "before the layers" */
const char *layer_text(Picker *p);

/* All phases of a set, op by op, each in one order. lows [n]. False: one has been refused. */
bool pick_in_one_order(Picker *p, Lowered *const *lows, int n);

#endif
