/* certificate.h - what a plan's kernels were measured to be worth on a GPU: PLAN.cert, next to the plan.
 *
 * One JSON object in one canonical form: keys in this order, a line for each element of a list, numbers as %.6g. A
 * reader prints what it read and compares the bytes.
 *
 *   atlas_certificate  version of this format: 2
 *   root               of the plan (artifacts/plan.h); a certificate says nothing of any other plan
 *   target, capability, device, driver, atlas   where and by what it was measured
 *   tokens             ids of the prompt that was read
 *   phases             "prefill[512]": buckets of which every launch was measured
 *   layers             output of each layer, and last the logits, for that prompt, against the reference device, which
 *                      starts each from what the GPU made of the layer before, so that errors do not add up:
 *                      cosine: of rows, the least; median: of rows; rms: root of mean squares of the error over that
 *                      of the reference; max: largest error over largest magnitude
 *   ops                every launch alone: its result against the reference function of its op, from the very same
 *                      inputs; one line for each phase, op, template and result, the worst of its launches
 *   certified          whether all figures are within their limits
 *   key, signature     Ed25519 of all bytes before `"key"`, in the domain "certificate" (artifacts/sign.h); "" = none
 *
 * Limits come from the dtype table (dtypes.h) alone, so a certificate cannot bring its own:
 *   ops      max <= tolerance, of codes twice that, since one that is a step off is as good; rms <= tolerance / 4. The
 *            tolerance is that of `dtype`, the least exact one among result and inputs; codes of inputs are exact.
 *            Integers that follow from integers must be equal: max is the share of those that are not. Those that
 *            compare floats (the likeliest token, an expert) may differ in ties: max is 0 up to one in eight, then 1
 *   layers   1 - median <= tolerance^2 / 2: the error of a layer is the tolerance at most. The tolerance is that of
 *            `dtype`, the least exact of the layer's results
 */
#ifndef ATLAS_CERTIFICATE_H
#define ATLAS_CERTIFICATE_H

#include "artifacts/plan.h"
#include "artifacts/sign.h"

#include <stdio.h>

enum { CERT_TEXT = 96, CERT_TOKENS = 96, CERT_MAX_BYTES = 4 << 20 };
#define CERT_DOMAIN "certificate"

typedef struct CertLayer { Dtype dtype; double cosine, median, rms, max; } CertLayer; /* the last one: logits */
typedef struct CertOp {
	char phase[32], kernel[CERT_TEXT], result[CERT_TEXT]; /* result: the operand */
	OpKind op;
	Dtype stored, dtype; /* of the result; whose tolerance holds */
	int launches, layer; /* layer: of the launch with the largest error, -1 and n_layers as in plans */
	int64_t values;
	double cosine, rms, max;
} CertOp;
typedef struct CertPhase { char name[32]; } CertPhase;

typedef struct Certificate { /* zeroed = empty; certificate_free */
	uint8_t root[32];
	char target[CERT_TEXT], device[CERT_TEXT], atlas[CERT_TEXT];
	int cc_major, cc_minor, driver;
	int32_t tokens[CERT_TOKENS]; int n_tokens;
	CertPhase *phases; int n_phases;
	CertLayer *layers; int n_layers;
	CertOp *ops; int n_ops;
	bool is_signed;
	uint8_t key[PUBLIC_KEY_BYTES], signature[SIGNATURE_BYTES];
} Certificate;

double cert_layer_limit(const Certificate *c, int layer); /* of 1 - median */
double cert_op_limit(const CertOp *op);                   /* of max; that of rms is tolerance / 4 */
/* Are all figures within their limits? Else `why` names the first that is not: layers of each phase before. */
bool certificate_holds(const Certificate *c, char *why, size_t why_bytes);

/* The text; signed when key is not NULL. *text is to be freed. False: no memory. */
bool certificate_print(const Certificate *c, const PrivateKey *key, char **text, size_t *n);
/* False with a sentence: not canonical, or a signature that does not hold. Figures are not judged. */
bool certificate_read(const char *text, size_t n, Certificate *c, char *why, size_t why_bytes);
void certificate_free(Certificate *c);

#endif
