/* reader.h - between the files of the reader: plan_read.c (file), msgpack_check.c (bytes), decode.c (structs),
 * plan_check.c with the other *_check.c (meaning), seal.c (hash tree, signatures).
 */
#ifndef ATLAS_READER_H
#define ATLAS_READER_H

#include "artifacts/op_table.h"
#include "artifacts/schema.h"
#include "artifacts/why.h"

typedef struct Why { /* the first failure, one sentence */
	ReadStatus status;
	char *text;
	size_t bytes;
} Why;
/* Records and returns false. */
#define why_not(w, said, ...) ((w)->status = (said), say_why((w)->text, (w)->bytes, __VA_ARGS__))

static inline uint64_t big_endian(const uint8_t *p, int n)
{
	uint64_t v = 0;
	for (int i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static inline uint32_t little_endian(const uint8_t *p) /* of 4 bytes */
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* A walk over one section's MessagePack, already validated by msgpack_check. With memory NULL nothing is stored:
 * `used` then says how much memory a second walk over the same bytes takes. */
typedef struct Decoder {
	const uint8_t *at, *end, *start;
	uint8_t *memory;
	size_t used;
	const char *section; /* name, for messages */
	Why *why;
} Decoder;

/* Each reads one value; false when it is not of the schema. dst NULL = measure. */
bool decode_struct(Decoder *d, const Schema *schema, void *dst);
bool decode_list(Decoder *d, const Schema *schema, void **list, int *n); /* array of maps */
bool decode_options(Decoder *d, Option **list, int *n);                  /* map of strings, keys ascending */
bool decode_key(Decoder *d, const char *key); /* a map of one entry, up to its value */
void *decode_take(Decoder *d, size_t bytes);  /* zeroed, aligned to 16; NULL when measuring */

/* Everything but file and sections is checked: counts, indices, offsets, shapes, launches, lifetimes. */
bool check_artifact(const Artifact *a, Why *why);
bool check_hazards(const Phase *p, Why *why); /* of a phase that is otherwise in order */
/* Of a target plan whose indices are all in range; are_trials: of its candidates. */
bool check_contracts(const Artifact *a, const TargetPlan *t, const Slot *ledger, bool are_trials, Why *why);
bool check_orders(const Artifact *a, const TargetPlan *t, const Slot *ledger, Why *why); /* after check_contracts */
bool check_uses(const Artifact *a, const TargetPlan *t, Why *why);
bool check_meaning(const Artifact *a, const TargetPlan *t, Why *why); /* of a plan that is otherwise in order */
/* Facts that are stated twice, of a graph and of targets that are in order (twice_check.c lists all of them). */
bool check_graph_twice(const Artifact *a, Why *why);
bool check_ledger_layers(const Artifact *a, int target, Why *why);
/* rank_check.c: cuts of a graph whose shapes are not looked at yet; then, of one that is otherwise in order, that it
 * computes on all ranks what it should. */
bool check_cuts(const Graph *g, const Ranks *r, Why *why);
bool check_ranks(const Graph *g, const Ranks *r, Why *why);
bool op_has_meaning(OpKind op); /* does check_meaning know it? */
void weights_by_offset(const Graph *g, int *order); /* [n_weights] their indices */
/* Do the tensors fit the op's row in ops.h? shapes [n_operands]; n_dims 0 = absent. `what` names the op in
 * messages. constants may be NULL (attributes unknown). */
typedef struct OpShapes {
	OpKind op;
	const Attrs *attrs;
	int64_t rows, outs;  /* value of ROWS and OUTS in the shapes: DIM_ROWS, DIM_OUTS or the bucket */
	const int64_t *shape[PLAN_MAX_OPERANDS];
	int n_dims[PLAN_MAX_OPERANDS];
} OpShapes;
bool check_op_shapes(const Graph *g, const OpShapes *s, const char *what, Why *why);

/* The block of signatures at the end of the file. Of find_signatures, a->file must be as long as header and end. */
bool find_signatures(Artifact *a, Why *why);
/* Each holds for a->root and its own key, and one key is trusted. trust may be NULL. */
bool check_signatures(const Artifact *a, const PlanTrust *trust, Why *why);
/* Section leaves has those of all weights, and their hashes make those of the weights and of section weights. */
bool check_leaves(Artifact *a, bool check_hashes, Why *why);

/* artifact_read, with the choice not to compare hashes: for tests of the checks after them. */
ReadStatus artifact_read_unsealed(const uint8_t *file, int64_t bytes, Artifact *out, char *why,
	size_t why_bytes);

#endif
