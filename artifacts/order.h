/* order.h - the order in which a kernel adds up a row's sums, as its contract states it, and who must share one.
 *
 * The text of an order is what the contract's ORDER terms come to with the kernel's constants: "stream(8,64,2)
 * squares(0)". It is a value: two kernels with equal text that do one op on equal operands give a row the same bits,
 * whatever their buckets. "exact": there are no sums, so any two do.
 *
 * A plan with option numerics.invariant = "true" has equal orders within each set of phases: all buckets of prefill;
 * all of decode and verify. In a set, launch n of an op in a layer is paired with launch n of that op, or of the op of
 * a verify step that takes its place, in every other phase. Launches of layers are paired, or exact; before and after
 * the layers those are that all phases have. Drafts are free: what is drawn is the model's own token whatever they are.
 */
#ifndef ATLAS_ORDER_H
#define ATLAS_ORDER_H

#include "artifacts/expr.h"
#include "artifacts/plan.h"

enum { ORDER_BYTES = 256 }; /* of a text, with its zero */
#define ORDER_EXACT "exact"
#define ORDER_OPTION "numerics.invariant"

/* Appends a term with the values of its formulas, "(8,64)", to a text of ORDER_BYTES. False with a reason. */
bool order_append(char *text, const char *word, const char *formulas, const ExprEnv *env, char *why, size_t why_bytes);

/* Was the plan compiled with numerics.invariant = "true"? */
bool order_is_invariant(const Artifact *a);

typedef enum OrderSet { ORDER_PROMPTS, ORDER_ANSWERS, ORDER_SETS, ORDER_FREE = ORDER_SETS } OrderSet;
OrderSet order_set(PhaseKind p);
/* The phases that phase `p` shares its orders with, itself among them: "decode 1 to 32 and verify 3 to 96". "" where
 * the plan is not invariant, or p is free. */
enum { ORDER_SET_TEXT = 80 };
const char *order_set_text(const Artifact *a, const TargetPlan *t, PhaseKind p, char text[ORDER_SET_TEXT]);
/* The op of decode that an op of verify takes the place of; every other op itself. */
OpKind order_op(OpKind op);

#endif
