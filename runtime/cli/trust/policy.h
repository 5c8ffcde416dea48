/* policy.h - rules that a deployment has for its plans, and what in a plan breaks them.
 *
 * A policy is a TOML file; each key is one rule, and an absent key is no rule. Lists hold names, in templates with at
 * most one * for any text. Arrays may go over lines; dates, floats and inline tables are not read.
 *
 *	[templates]
 *	required = ["stream_*"]       # each is met by a launch of every target
 *	forbidden = ["gemv_*"]        # none is, in any phase
 *	[dtypes]                      # what tensors of a role may be: weight (of products), embedding, norm, bias,
 *	weight = ["e4m3", "bf16"]     # scale, activation
 *	activation = ["bf16"]
 *	[kv]
 *	dtype = ["bf16", "fp8"]       # of layers that no [[kv.layers]] names; as MODEL.toml names formats, or as dtypes
 *	[[kv.layers]]
 *	layers = "2-61"
 *	dtype = ["nvfp4"]
 *	[launches]                    # most of a layer
 *	per_layer = 12                # in any phase; prefill and decode are rules of their own
 *	decode = 7
 *	[plan]
 *	waivers = false               # no pins and no bans of MODEL.toml
 *	unread = false                # nothing in the checkpoint's files that the compiler did not read
 *	overrides = false             # no value of config.json replaced by [config] of MODEL.toml
 *	ran = true                    # on hardware, a plan for each target: none is "compiled, never run" (atlas info)
 *	random_weights = false        # they are of a checkpoint: not made up, in the plan or when it is opened
 *	certificate = true            # PLAN.cert is there and holds
 *	signature = true              # there is one, by whatever key: --trust says whose plans are opened at all
 *	signers = ["06e3fd..."]       # one of these has signed it: key ids, 64 hexadecimal digits (atlas info shows them)
 */
#ifndef ATLAS_POLICY_H
#define ATLAS_POLICY_H

#include "artifacts/plan.h"
#include "runtime/cli/cli.h"

enum { POLICY_WORDS = 64, POLICY_KV_RULES = 64, VIOLATION_TEXT = 256 };

typedef enum PolicyRole { R_WEIGHT, R_EMBEDDING, R_NORM, R_BIAS, R_SCALE, R_ACTIVATION, POLICY_ROLES } PolicyRole;
extern const char *const policy_role_names[POLICY_ROLES];

typedef struct PolicyList { const char *words[POLICY_WORDS]; int n, line; } PolicyList; /* line 0 = no such rule */
typedef struct PolicyNumber { int value, line; } PolicyNumber; /* of a flag 0 or 1 */
typedef struct PolicyLayers { int first, last, line; PolicyList dtypes; } PolicyLayers;

typedef struct Policy {
	const char *path;
	char *text; /* the file, which all words point into; owned */
	PolicyList required, forbidden, dtypes[POLICY_ROLES], kv, signers;
	PolicyLayers kv_layers[POLICY_KV_RULES]; int n_kv_layers;
	PolicyNumber per_layer, prefill, decode, waivers, unread, overrides, ran,
		random_weights, certificate, signature;
} Policy;

/* 0, or the exit code after every mistake of the file was printed with its line. Then free(policy->text). */
int policy_read(const Args *args, const char *path, Policy *policy);

typedef struct Violation {
	const char *rule; /* "templates.forbidden" */
	int line;         /* of the rule in the policy */
	char where[64];   /* "sm_90a/decode[2]/layers 0-31"; "" = the whole plan */
	char text[VIOLATION_TEXT];
} Violation;
typedef struct Violations { Violation *at; int n, cap; bool is_short_of_memory; } Violations; /* free(at) */

/* Adds everything in the plan that breaks the policy, in the order of the rules above. uncertified: why its certificate
 * does not hold; NULL = it does. */
void policy_check(const Policy *policy, const Artifact *a, const char *uncertified, Violations *out);

/* One line each and a sum; one JSON object, schema_version 1; one SARIF 2.1.0 log. */
void policy_text(const Policy *policy, const Violations *v, FILE *out);
void policy_json(const Policy *policy, const Violations *v, FILE *out);
void policy_sarif(const Policy *policy, const Violations *v, FILE *out);

#endif
