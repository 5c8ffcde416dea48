/* schema.h - the MessagePack form of plan.h's structs, once, for the writer and the reader.
 *
 * A struct is a map with exactly these keys in exactly this order. Values by kind:
 *
 *   INT INT64   integer                         STR        string
 *   FLOAT       float 32                        STR_OPT    string, or nil for NULL
 *   DOUBLE      float 64                        SHA        bin of 32 bytes
 *   ENUM        string, the name of the value   INTS       array of `extra` integers (int[extra])
 *   DIMS        array of n_dims integers        INT64S     array of `extra` integers (int64_t[extra])
 *   INT_LIST    array of any number of integers LIST       array of maps, by the schema `of`
 *   OPERANDS    array of as many integers as the op (field "kind") has operands; the rest is -1 in memory
 *   ATTRS       map of the attributes that the op lists, by field name, in the order of attrs.h
 *
 * DIMS, INT_LIST and LIST carry their length themselves: the count's own field has no key.
 */
#ifndef ATLAS_SCHEMA_H
#define ATLAS_SCHEMA_H

#include "artifacts/plan.h"

typedef enum FieldKind {
	F_INT, F_INT64, F_FLOAT, F_DOUBLE, F_STR, F_STR_OPT, F_SHA, F_ENUM, F_DIMS, F_INTS, F_INT64S,
	F_INT_LIST, F_LIST, F_OPERANDS, F_ATTRS
} FieldKind;

typedef enum EnumKind { E_DTYPE, E_OP, E_ROLE, E_ARENA, E_PHASE, E_VERDICT, E_MADE, E_KINDS } EnumKind;

struct Schema;
typedef struct Field {
	const char *name;
	FieldKind kind;
	size_t offset;  /* of the field in its struct */
	size_t count;   /* DIMS, INT_LIST, LIST: offset of the int that holds the length */
	int extra;      /* ENUM: EnumKind; INTS, INT64S: length */
	const struct Schema *of; /* LIST */
} Field;

typedef struct Schema {
	const char *name; /* "Weight", for messages */
	size_t bytes;     /* of the struct */
	int n_fields;
	const Field *fields;
} Schema;

extern const Schema graph_schema, ranks_schema, target_plan_schema, slot_schema, contract_schema, origin_schema,
	section_schema;

/* Values of an enum: its number of values, and the name of one (0 <= value < count). */
int enum_count(EnumKind kind);
const char *enum_name(EnumKind kind, int value);

/* Attributes as fields: a row for each of attrs.h, kind F_INT or F_FLOAT, offset inside Attrs. `label` is the
 * upper-case name that ops list. */
typedef struct AttrField { const char *label, *name; FieldKind kind; size_t offset; } AttrField;
extern const AttrField attr_fields[];
extern const int n_attr_fields;

#endif
