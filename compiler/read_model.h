/* read_model.h - what the reading passes share among themselves. */
#ifndef ATLASC_READ_MODEL_H
#define ATLASC_READ_MODEL_H

#include "compiler/ir.h"
#include "compiler/value.h"

/* Largest values a checkpoint may claim. Far beyond any model, and small enough that products of two fit
 * an int64 and every single one an int. */
enum { MAX_DIM = 1 << 20, MAX_VOCAB = 1 << 20, MAX_POSITION = 1 << 28 };

/* Puts a token id into Config.eos, ascending and once. False when the list is full. */
bool add_eos(Config *cf, int id);

/* Config.rope, and max_position where yarn reaches further, from the config `text` (its text_config when it has one);
 * needs Config.max_position. Records A0206 and A0209. */
void read_rope(Diags *d, const Value *text, Config *cf);

/* What only some families' layers have, from the config `text`; needs the family and Config.n_layers. is_layer_key: is
 * the key of that kind, for this family? Records A0202, A0203, A0205 and A0206. */
void read_layer_kinds(Diags *d, const Value *text, Config *cf);
bool is_layer_key(const Config *cf, const char *name);
/* Traits of the family that config.json names; 0 where it names none. */
int family_traits(const Config *cf);

/* Model.quant, from quantization_config of config.json (NULL = none) and hf_quant_config.json. Records A0202, A0203,
 * A0205, A0207 and A0208. */
void read_quant(Compile *c, const Value *config);

/* What a key means that is there but not used. Null passes always. */
enum { FREE = 1, IS_FALSE = 2, IS_ZERO = 4, IS_ONE = 8, IS_EMPTY = 16 };
typedef struct SpareKey {
	const char *name;
	int pass; /* FREE: any value, it changes no result. Else the values that change nothing */
} SpareKey;
bool value_passes(const Value *v, int pass);

#endif
