/* certify.h - atlas verify --certify: every launch of a plan against the reference function of its op. */
#ifndef ATLAS_CERTIFY_H
#define ATLAS_CERTIFY_H

#include "artifacts/certificate.h"
#include "runtime/cli/cli.h"
#include "runtime/cuda.h"

/* measure.c: looks at each launch of a GPU ------------------------------------------------------------ */

typedef struct Measure Measure;
/* Figures go into c->ops. coarsest [n_layers + 1]: the least exact dtype that launches of a layer are judged by, in
 * prefill. NULL: no memory. */
Measure *measure_start(Device *device, const Artifact *artifact, int threads, Certificate *c, Dtype *coarsest);
/* From now on the device's steps are looked at, and run in the bucket of that phase where they fit it; -1: no more. */
void measure_bucket(Measure *m, int phase);
/* Figures of another rank's launches into c->ops: of each the worse one. False: no memory. */
bool measure_add(Certificate *c, const CertOp *of_rank);
void measure_end(Measure *m); /* NULL is fine. The device must still be open */

/* certify.c ---------------------------------------------------------------------------------------------- */

/* The whole of it after opening the plan, on that driver (NULL = the system's); returns the exit code. tokens: the
 * prompt; n 0 = made-up ids. */
int certify_plan(const Args *args, const AtlasPlan *plan, const Driver *driver, const Tokens *tokens);

/* certificate_of.c: the certificate next to a plan ------------------------------------------------------- */

/* PLAN.cert, read, of this plan and within its limits; for capability major.minor unless major is 0; by a key of
 * args->trust if there is one. 0, or EXIT_INTEGRITY and why not. */
int certificate_demand(const Args *args, const Artifact *a, int major, int minor, char *why, size_t why_bytes);
/* --require-certified: the same, with a message. session NULL: the GPU is not known yet. */
int certificate_required(const Args *args, const AtlasPlan *plan, AtlasSession *session);
/* Was every phase of the target, and every layer, measured? Else `why` names one. */
bool certificate_is_whole(const Certificate *c, const Artifact *a, char *why, size_t why_bytes);
char *certificate_path(const char *plan); /* PLAN.cert; to be freed, NULL: no memory */

#endif
