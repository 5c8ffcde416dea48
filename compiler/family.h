/* family.h - what a family is: what its class in transformers does and config.json does not say. */
#ifndef ATLASC_FAMILY_H
#define ATLASC_FAMILY_H

#include "compiler/ir.h"

/* traits: experts, one for all rows, Gated DeltaNet */
enum { FAMILY_EXPERTS = 1, FAMILY_SHARED = 2, FAMILY_DELTA = 4 };
typedef struct Family {
	const char *name;          /* folder in models/ */
	const char *model_types[4]; /* of config.json */
	const char *architectures[4];
	LayerSpec layer;           /* what its layers have whatever the keys say */
	bool is_grouped;           /* in_proj_qkvz and in_proj_ba, by key head, in place of in_proj_qkv, _z, _b and _a */
	int traits;
	const struct ConfigKey *keys; /* of config.json: config_keys.h */
} Family;
extern const Family family_table[];
extern const int n_family_table;
const Family *family_by_model_type(const char *model_type);

/* Config.layers, of Config.each; what differs by layer (mixer, window, kv, rotate) stays where it is. */
void lay_layers(Compile *c);
/* What layer l of the graph is; those after the last are the drafting head's. */
LayerSpec layer_spec(const Config *cf, int l);
/* Does a layer have it? */
bool any_delta(const Config *cf);

#endif
