/* schema.h - what the files that compile JSON schemas share. */
#ifndef ATLAS_GRAMMAR_SCHEMA_H
#define ATLAS_GRAMMAR_SCHEMA_H

#include "runtime/grammar/nodes.h"

typedef struct Ref { /* a schema that has a rule: of a $ref, or made of several */
	json_t *schema;
	bool is_tight;
	uint32_t rule;
	char pointer[200];
} Ref;

typedef enum PairKind {
	PAIR_BOTH,  /* merged */
	PAIR_LATER, /* to be merged when it is compiled */
	PAIR_APART, /* true: no value is of both */
} PairKind;
typedef struct Pair { json_t *a, *b, *both; PairKind kind; } Pair;

typedef struct Schemas {
	Grammar *g;
	json_t *root;
	GrammarError *error;
	char pointer[200];    /* of what is compiled */
	size_t n_pointer;
	int depth;
	Ref *refs; uint32_t n_refs, refs_cap, n_done;
	Pair *pairs; uint32_t n_pairs, pairs_cap;
	uint32_t *pair_table, pair_slots; /* numbers + 1 */
	json_t *context;      /* of alternatives that come together: what else holds; NULL: nothing is known */
	json_t *made;         /* list: owns schemas that were made of others */
	bool joins_one_of;    /* oneOf counts as anyOf where several may match */
	int apart;            /* depth of a question whether schemas are apart */
	int in_not;           /* > 0: of what is not allowed, so it must not be taken too narrow */
	uint32_t any, separator, colon; /* nodes; `any` a rule */
	bool is_tight;        /* values are written in one way each: for items that must differ */
	struct Ways { uint32_t any, separator, colon; } ways[2]; /* by is_tight */
} Schemas;

/* Goes to the other way of writing; gives the one before. */
bool schema_tighten(Schemas *b, bool is_tight);

/* Fills the error, unless there is one, with `pointer` + "/" + key (NULL: nothing); returns NONE. */
uint32_t schema_refuse(Schemas *b, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool schema_failed(const Schemas *b);
/* Goes down to a member; schema_up with what it gave. */
size_t schema_down(Schemas *b, const char *key);
size_t schema_down_to(Schemas *b, const char *key, size_t index);
void schema_up(Schemas *b, size_t before);

bool schema_check(Schemas *b, json_t *schema); /* its keywords are supported, its types known */
uint32_t schema_node(Schemas *b, json_t *schema);            /* of any schema */
uint32_t schema_rule(Schemas *b, json_t *schema);            /* the same, compiled later */
uint32_t schema_object(Schemas *b, json_t *schema);          /* schema_object.c: type object */
uint32_t schema_array(Schemas *b, json_t *schema);
uint32_t form_node(Schemas *b, json_t *form);                /* form.c: of a form (grammar.h) */
/* schema_value.c: of a schema with const (values NULL) or enum */
uint32_t schema_enum(Schemas *b, json_t *schema, json_t *values);
bool schema_same(json_t *one, json_t *other); /* equal values: 1 and 1.0 are */

/* schema_merge.c. Schemas that are given back belong to `made` or to the source; NULL after a failure. */
/* Without $ref and allOf on its uppermost level. */
json_t *schema_resolve(Schemas *b, json_t *schema);
json_t *schema_both(Schemas *b, json_t *one, json_t *other); /* what both allow, resolved */
json_t *schema_keep(Schemas *b, json_t *made);               /* steals the reference */
json_t *schema_without(Schemas *b, json_t *schema, const char *key);
/* `schema`, which others were joined to, when unevaluatedProperties and unevaluatedItems of `given` hold of it. */
json_t *schema_closed(Schemas *b, json_t *schema, json_t *given);
/* What a schema says of the first items, and of those that follow; NULL: nothing. Keys: where it does. */
typedef struct Items { json_t *first, *rest; const char *first_key, *rest_key; } Items;
bool schema_items(Schemas *b, json_t *schema, Items *items);
json_t *schema_at(Schemas *b, const char *pointer);          /* "#/..." */
bool schemas_are_apart(Schemas *b, json_t *one, json_t *other); /* no value is of both; false: perhaps */
/* The schema that `schema`, of objects, has for a property that its `properties` does not name. */
json_t *schema_for_others(Schemas *b, json_t *schema, const char *key);

/* schema_not.c */
bool schema_takes(Schemas *b, json_t *schema, json_t *value); /* is the value of it? False after a failure, too */
bool schema_takes_all(Schemas *b, json_t *schema, const char *type); /* string, number or integer */
/* Schemas [list], of type object or array, which together have all values that `schema` does not allow, as far as they
 * can be written; `next_to` holds as well. NULL after a failure. */
json_t *schema_unlike(Schemas *b, json_t *schema, json_t *next_to, const char *type);
/* The same without if and dependencies: they become alternatives in allOf. */
bool schema_has_conditions(json_t *schema);
json_t *schema_without_conditions(Schemas *b, json_t *schema);
/* All strings that it allows, after the first quote. */
bool schema_strings(Schemas *b, json_t *schema, Lexeme *l);
typedef bool LanguageFn(Schemas *b, json_t *schema, Lexeme *l);
/* Takes from *l what `not` of the schema has; and all but what its anyOf and oneOf have. */
bool schema_without_not(Schemas *b, json_t *schema, LanguageFn *of, Lexeme *l);
bool schema_of_branches(Schemas *b, json_t *schema, LanguageFn *of, Lexeme *l);
const char *schema_type_of(json_t *value);
char *schema_scalar_text(json_t *value); /* as it is written; free() */

/* schema_string.c, schema_number.c: languages of the type's values; an empty lexeme: none. False after a failure. */
bool schema_is_plain_string(json_t *schema); /* with counts alone */
/* All but `not` and its counts, which *lo and *hi become. */
bool schema_uncounted(Schemas *b, json_t *schema, Lexeme *l, uint32_t *lo, uint32_t *hi);
uint32_t schema_string_node(Schemas *b, json_t *schema); /* strings, as a node */
bool schema_number(Schemas *b, json_t *schema, bool is_integer, Lexeme *l);
bool schema_pattern(Schemas *b, const char *key, const char *pattern, Search search, Lexeme *l);
/* The bytes of a string between the quotes and the closing one; free(). */
char *schema_quoted(const char *text, size_t n, size_t *n_quoted);

/* A count: a whole number of 0 or more; *value stays where there is none. */
bool schema_count(Schemas *b, json_t *schema, const char *key, uint32_t *value);
bool schema_allows(json_t *schema, const char *type); /* by `type` alone */

#endif
