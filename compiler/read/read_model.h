/* read_model.h - what the reading passes share among themselves. */
#ifndef ATLASC_READ_MODEL_H
#define ATLASC_READ_MODEL_H

#include "compiler/ir.h"
#include "compiler/read/config_keys.h"
#include "compiler/text/value.h"

/* The parts of reading config.json: what each of them has before it. */
typedef struct ConfigReading {
	Compile *c;
	Diags *d;
	Config *cf;
	const Family *family;    /* never NULL after read_config's own part */
	const Value *top, *text; /* config.json with [config] merged into it; its text_config, or the same */
	VEC(ConfigValue) values;
} ConfigReading;

/* A key of the language model; for keys that may be outside text_config the top level is asked as well. NULL when the
 * key is absent, or null. */
const Value *config_lookup(const ConfigReading *r, const char *key);
/* Writes down what the file said, or with v NULL what holds without it. */
void config_note(ConfigReading *r, const char *key, const Value *v, const char *default_text);

/* Puts a token id found at `at` into Config.eos, ascending and once. False when the list is full. */
bool add_eos(Config *cf, int id, Loc at);

/* Config.ropes, and max_position where yarn reaches further; needs Config.max_position. Records A0206 and A0209. */
void read_rope(ConfigReading *r);

/* What only some families' layers have, experts, Gated DeltaNet, windows, into Config.each and layers; needs n_layers.
 * Records A0202, A0203, A0205 and A0206. */
void read_layer_kinds(ConfigReading *r);

/* Lists with an entry a layer (read_layer_lists.c): those of MLPs, heads and activations, into Config.layers, where
 * windows are; and whether a list has as many entries as there are layers. Records A0202, A0203, A0205 and A0206. */
void read_layer_lists(ConfigReading *r);
bool layer_entries(ConfigReading *r, const char *name, const Value *v); /* false: it is no list */
/* rope_theta and partial_rotary_factor of the layers of a word, of lists or of one number for all: a table. A0209 */
const Value *rope_of_word(ConfigReading *r, const char *word);

/* Model.quant, from quantization_config of config.json (NULL = none) and hf_quant_config.json. Records A0202, A0203,
 * A0205, A0207 and A0208. */
void read_quant(Compile *c, const Value *config);

/* check_ids.c, a part of check_model: every setting that is a token id has a token; A0512. */
void check_ids(Compile *c);

/* generation_config.json, all but its token ids; NULL = there is none. Records A0203, A0206 and A0207. */
const Value *read_generation(Compile *c, Config *cf);
/* A key of that file, and the values by which it changes nothing in config.json, where it is not read. */
bool generation_key(const char *name, int *pass);

/* MODEL.toml parsed, once: Model.toml, and its text in Options. Records A0102, A0104, A0106 and A0301. */
void read_model_toml(Compile *c);
/* config.json with [config] of MODEL.toml merged into it; the tree itself where there is none. Records A0307 and notes
 * A0215; the rows for the plan are in Options.resolved. */
const Value *lay_config_over(Compile *c, const Value *config);

/* Is it one of the values (config_keys.h)? Null passes always. */
bool value_passes(const Value *v, int pass);

/* "color, depth_scale, ..." of keys, cut where a note would be a listing. text NULL = none. */
typedef struct NameList { const char *text; Loc at; bool is_cut; } NameList;
void name_in_list(Arena *a, NameList *list, const Value *member);

#endif
