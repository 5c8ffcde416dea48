/* diff.h - what differs between two plans, by meaning: names are compared with names, whatever the order in the files.
 *
 * Options, weights and sections are compared by name, targets by name, phases by kind and rows. Within a phase a slot
 * is (layer, op, the how many-th of that op in the layer): the launch that each plan has there is compared with the
 * other's in operands, template, tunables, constants, geometry, work, source and machine code. Each difference comes
 * with its reasons, which are read from the ledgers, and with predicted bytes and time on both sides. Offsets of
 * buffers are not compared, for they have no meaning; sizes of arenas are.
 */
#ifndef ATLAS_DIFF_H
#define ATLAS_DIFF_H

#include "artifacts/plan.h"

#include <stdio.h>

typedef struct PlanDiff PlanDiff;

/* NULL when there is no memory. The artifacts must outlive it. */
PlanDiff *diff_make(const Artifact *a, const Artifact *b);
void diff_free(PlanDiff *d);
bool diff_is_empty(const PlanDiff *d);
/* One line for each difference; launches and weights that differ alike in several layers once, weights one by one if
 * unfolded. No difference: one line that says so. False when there was no memory for all of them. */
bool diff_text(PlanDiff *d, bool unfolded, FILE *out);
/* One object, schema_version 1. */
void diff_json(const PlanDiff *d, FILE *out);

#endif
