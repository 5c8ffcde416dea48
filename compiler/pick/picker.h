/* picker.h - the choice of one kernel for every op.
 *
 *   bind_kernel.c    a candidate: which condition of its contract fails, or the launch that it is
 *   kernel_rules.c   pins and bans of MODEL.toml
 *   pick_kernels.c   all candidates of an op, the choice among them, the ledger
 *   pick_orders.c    the same for an op in all phases that share an order of sums
 *   refuse.c         ops without a kernel: one error for each kind of them
 *
 * What is known of a candidate is data; its texts are made for the ledger and for errors.
 */
#ifndef ATLASC_PICKER_H
#define ATLASC_PICKER_H

#include "artifacts/op_table.h"
#include "artifacts/order.h"
#include "compiler/ir.h"

enum { WHY_BYTES = 512, MAX_PHASES = (1 + PLAN_MAX_VERIFY) * MAX_BUCKETS /* of a set */ };

/* What is asked of a candidate, in this order. */
typedef enum ConditionKind {
	SERVES_TARGET, /* the target is of its architectures */
	TAKES_OPERAND, /* an operand that is there is one of its fields; index: of the op's operands */
	BINDS_FIELD,   /* the field's operand has its type and shape; index: of its fields */
	HOLDS,         /* a predicate; index: of its requires */
	FITS_DEVICE,   /* grid, block, shared memory, and the work's formulas */
	HAS_TILES,     /* tiles that the copy engine takes; index: of its maps */
	HAS_ORDER,     /* the formulas of its order of sums */
} ConditionKind;
typedef struct Condition { ConditionKind kind; int index; } Condition;

/* A predicate of a template of an op, whatever values the tunables have; ASK_AGAIN: it names one. */
typedef enum Held { NOT_ASKED, HELD, FAILED, ASK_AGAIN } Held;

typedef enum CostFrom { FROM_NOTHING, FROM_MODEL, FROM_TIMES, FROM_PIN } CostFrom;

/* A template with a value for each of its tunables, and what becomes of it. */
typedef struct Considered {
	int template_index, values[MAX_TUNABLES];
	bool is_folded;      /* it stands for all combinations of values, which fail for one reason */
	Verdict verdict;
	Condition failed;    /* of REJECTED: what */
	int not_preferred;   /* index in requires of the first preference that is false; -1 = none is */
	const char *order;   /* of its sums; "" where a condition failed */
	const KernelRule *rule; /* that pins or bans it; NULL = none */
	const char *note;    /* why else it is banned, or what of the choice is to be known; "" = nothing */
	double cost_us;      /* 0 = it was not compared */
	CostFrom cost_from;
} Considered;

typedef struct Admitted { /* one that no condition and no rule excludes */
	Pick pick;
	const char *order;
	bool is_preferred;     /* by all preferences of its contract */
	int n_not_preferred;   /* of them that are false, but for those that only prune */
	double model_us;
	const TunedTime *time; /* NULL = not measured */
	int candidate;         /* index in Decision.candidates */
} Admitted;

typedef struct Decision {
	VEC(Considered) candidates;
	VEC(Admitted) admitted; /* those of a template are next to each other */
} Decision;

typedef struct Place { const Lowered *low; int layer; } Place;

typedef struct Refusal { /* ops of one kind that have no kernel, for one reason */
	Code code;
	OpKind op;
	const char *key;        /* equal ones are one error */
	Loc at;
	const char *head, *tail; /* the message before and after where */
	bool is_of_set;         /* of a set of phases, which the message names: places have the first of them */
	VEC(Place) places;
} Refusal;

typedef struct Picker {
	Compile *c;
	TargetWork *work;
	Lowered *low;
	LOp *op;
	int ahead;             /* decisions that will be in the ledger before this one */
	VEC(Refusal) refused;
	VEC(const char *) noted; /* of each kernel that adds in another order than decode: once a phase */
	const char *order;     /* the order that others are banned for; NULL = any will do */
	Condition asked;       /* of the candidate at hand */
	Held *held;            /* [n_requires] of its template; NULL = ask */
	char *why;             /* [WHY_BYTES] receives the text of a failure; NULL = it is not needed */
} Picker;

/* bind_kernel.c --------------------------------------------------------------------------------------------- */

int combinations(const KernelTemplate *t); /* of its tunables' values */
/* Does p->op have this template with the combination of that number? Fills k, and a where all conditions hold. */
bool try_candidate(Picker *p, int template_index, int choice, Considered *k, Admitted *a);
bool fails_with_any_values(const Considered *k); /* of its template's tunables; false: perhaps */
/* "K % 8 == 0 is false: K = 100": of what failed, or of the preference that is false. */
const char *failure_text(Picker *p, const Considered *k, Arena *a);
Loc failure_place(const Considered *k); /* of what failed, in the template or a fragment that it includes */
const char *tunables_text(Arena *a, int template_index, const int *values); /* "WARPS=8 SPLITS=2" */
/* p->op has this kernel: the shapes that it decides. */
void settle_op(Picker *p, const Pick *pick);
/* --candidates: one trial for each different kernel. Equal constants mean equal shapes, grid and work. */
void add_trial(Picker *p, const Pick *pick);

/* kernel_rules.c --------------------------------------------------------------------------------------------- */

typedef enum RuleWord { NO_RULE, PINNED, EXCLUDED /* by a ban, or by a pin of another */ } RuleWord;
RuleWord rule_word(const Picker *p, const Considered *k, const KernelRule **by);
bool same_rules(const Compile *c, int layer_a, int layer_b);
/* The nth rule that excludes an otherwise admissible candidate; NULL = there is none. */
const KernelRule *rule_to_blame(const Decision *d, int nth);
const char *rule_place(const KernelRule *r); /* base name of its file */
void check_rules(Compile *c); /* one that decided nothing is an error */

/* pick_kernels.c --------------------------------------------------------------------------------------------- */

Decision consider_all(Picker *p);
/* The decision of the layer before for an equal op, if there is one: true, and p->op has its kernel. is_asked: whether
 * that is all that is to be found out. */
bool reuse(Picker *p, const char *operands, bool is_asked);
/* p->op has this kernel: the ledger's next entry. */
void settle(Picker *p, Decision *d, const Admitted *best, const char *operands);
void decide(Picker *p); /* an op on its own */
const char *operands_text(Picker *p);

/* pick_orders.c: all phases of a set, op by op, each in one order. lows [n]. */
void pick_in_one_order(Picker *p, Lowered *const *lows, int n);

/* refuse.c --------------------------------------------------------------------------------------------------- */

void refuse(Picker *p, const Decision *d, const char *operands); /* p->op has no admissible candidate */
/* An op of a set of phases has no common order: "decode 1 to 32", and the orders of each phase, a line each. */
void refuse_orders(Picker *p, const KernelRule *rule, const char *set, const char *orders);
void report_refusals(Picker *p);

#endif
