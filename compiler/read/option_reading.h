/* option_reading.h - reading MODEL.toml: what read_options.c and its parts share. */
#ifndef ATLASC_OPTION_READING_H
#define ATLASC_OPTION_READING_H

#include "compiler/read/option_table.h"
#include "compiler/read/read_model.h"

typedef struct OptionReading {
	Compile *c;
	Diags *d;
	Options *o;
	const Family *family;
	const Value *base[N_OPTIONS], *user[N_OPTIONS]; /* the family's file, the user's */
} OptionReading;

static inline const Value *option_chosen(const OptionReading *r, int k) { return r->user[k] ? r->user[k] : r->base[k]; }

/* read_options.c: false after A0303 */
bool option_int(OptionReading *r, int k, int *out);
/* A format of [quant] that has codes; false, and FORMAT_PLAIN: the word is none. */
bool option_format(const char *word, WeightFormat *format);
/* May weights be made that the checkpoint does not have? If not, A0304: `name` asks for some. */
bool option_may_be_made(const OptionReading *r);
bool option_by_reference(OptionReading *r, const char *name, const Value *v);
/* A path in MODEL.toml starts at the folder of that file. */
const char *option_path(OptionReading *r, const Value *v, const char *name);

/* read_speculate.c: [speculate]; needs Options.slots */
void read_speculate(OptionReading *r);

#endif
