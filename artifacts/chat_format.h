/* chat_format.h - the compiled form of a chat template: section "chat_program" of a plan.
 *
 *   ChatHeader
 *   ChatNode   nodes[n_nodes]      the program as a tree: children come before their parent
 *   uint32_t   kids[n_kids]        indices of nodes
 *   ChatScope  scopes[n_scopes]
 *   ChatLoad   loads[n_loads]      what a scope does to its variables when it begins
 *   ChatFunc   funcs[n_funcs]      0 is the template itself, the others are its macros
 *   ChatParam  params[n_params]
 *   ChatGlobal globals[n_globals]  bos_token and its like
 *   char       text[n_text]        UTF-8, all strings
 *
 * Numbers are little-endian. A checkpoint whose template cannot be compiled has a header with n_nodes = 0, and `text`
 * says why. Variables are slots of a function's activation; an access names how many functions out it lies. The rules
 * of scopes are those of jinja2: compiler/chat/template_scope.c knows them, the interpreter obeys.
 */
#ifndef ATLAS_CHAT_FORMAT_H
#define ATLAS_CHAT_FORMAT_H

#include <stdint.h>

enum {
	CHAT_MAGIC = 0x54414843, /* "CHAT" */
	CHAT_VERSION = 1,
	CHAT_MAX_TREE = 200,     /* nodes on a path from a root to a leaf */
	CHAT_MAX_NEST = 16,      /* functions inside functions */
	CHAT_MAX_COUNT = 1 << 20, /* entries of every table, */
	CHAT_MAX_TEXT = 1 << 22  /* but bytes of text */
};
#define CHAT_NONE UINT32_MAX

typedef struct ChatText { uint32_t at, n; } ChatText; /* bytes of `text` */

typedef enum ChatKind {
	/* Expressions */
	CHAT_NONE_VALUE,  /* none */
	CHAT_ABSENT,      /* nothing given: a bound of a slice, the else of an inline if, a part of a statement */
	CHAT_BOOL,        /* op 0, 1 */
	CHAT_INT,         /* a, b: low and high half of an int64 */
	CHAT_FLOAT,       /* a, b: of a double */
	CHAT_STRING,      /* name */
	CHAT_SLOT,        /* name; a = functions out, b = slot */
	CHAT_ATTR,        /* kid 0 . name */
	CHAT_ITEM,        /* kid 0 [kid 1] */
	CHAT_SLICE,       /* kid 0 [kid 1 : kid 2 : kid 3] */
	CHAT_CALL,        /* kid 0 (kids 1..): positional arguments, then KEYWORDs */
	CHAT_KEYWORD,     /* name = kid 0; an argument */
	CHAT_FILTER,      /* op: ChatFilter; kid 0 | filter(kids 1..) */
	CHAT_TEST,        /* op: ChatTest; kid 0 is test(kids 1..) */
	CHAT_BINARY,      /* op: ChatBinary */
	CHAT_NOT, CHAT_NEGATE, CHAT_PLUS, /* kid 0 */
	CHAT_AND, CHAT_OR, /* kid 0, kid 1 */
	CHAT_COND,        /* kid 0 = test, kid 1 = then, kid 2 = else or ABSENT */
	CHAT_COMPARE,     /* kid 0, then OPERANDs */
	CHAT_OPERAND,     /* op: ChatCompare; kid 0 */
	CHAT_CONCAT,      /* kids, joined as texts: a ~ b */
	CHAT_LIST, CHAT_TUPLE, /* kids */
	CHAT_DICT,        /* kids: key, value, ... */
	CHAT_CAPTURED,    /* the text of the block around, in the filter of a block */
	/* Targets of assignments */
	CHAT_TO_SLOT,     /* b = slot, of this function */
	CHAT_TO_TUPLE,    /* kids: targets */
	CHAT_TO_FIELD,    /* kid 0: a SLOT that holds a namespace; name */
	/* Statements */
	CHAT_SEQUENCE,    /* kids */
	CHAT_TEXT,        /* name */
	CHAT_OUTPUT,      /* kid 0 */
	CHAT_IF,          /* kids: test, body, test, body, ..., else or ABSENT */
	CHAT_FOR,         /* kids: target, iterable, test's target or ABSENT, test or ABSENT, body, else or ABSENT;
						 a, b, c = scopes of body, test and else; op 0; slot of `loop` is d */
	CHAT_SET,         /* kid 0 = target, kid 1 = value */
	CHAT_SET_BLOCK,   /* kid 0 = target, kid 1 = filter of CAPTURED, kid 2 = body; a = scope */
	CHAT_FILTER_BLOCK, /* kid 0 = filter of CAPTURED, kid 1 = body; a = scope */
	CHAT_SCOPED,      /* kid 0 = body; a = scope: {% generation %} */
	CHAT_WITH,        /* kids: target, value, ..., body; a = scope */
	CHAT_MACRO,       /* a = function, kid 0 = target */
	CHAT_BREAK, CHAT_CONTINUE,
	CHAT_KIND_COUNT
} ChatKind;

typedef struct ChatNode {
	uint8_t kind, op;
	uint16_t zero;
	uint32_t line;      /* of the template, from 1 */
	uint32_t kid, n_kids; /* of `kids` */
	ChatText name;
	uint32_t a, b, c, d;
} ChatNode;

typedef enum ChatBinary { CHAT_ADD, CHAT_SUB, CHAT_MUL, CHAT_DIV, CHAT_FLOORDIV, CHAT_MOD, CHAT_POW, CHAT_BINARY_COUNT }
	ChatBinary;
typedef enum ChatCompare { CHAT_EQ, CHAT_NE, CHAT_LT, CHAT_LE, CHAT_GT, CHAT_GE, CHAT_IN, CHAT_NOT_IN,
	CHAT_COMPARE_COUNT } ChatCompare;

/* X(name in the program, name in a template, most arguments besides the value, their names in order). A row's number is
 * what a program has: new rows come last, here and below. */
#define CHAT_FILTERS(X) \
	X(ABS, "abs", 0, "") X(CAPITALIZE, "capitalize", 0, "") X(COUNT, "count", 0, "") \
	X(D, "d", 2, "default_value boolean") \
	X(DEFAULT, "default", 2, "default_value boolean") X(DICTSORT, "dictsort", 3, "case_sensitive by reverse") \
	X(FIRST, "first", 0, "") X(FLOAT, "float", 1, "default") X(FROM_JSON, "from_json", 0, "") \
	X(INDENT, "indent", 3, "width first blank") X(INT, "int", 2, "default base") X(ITEMS, "items", 0, "") \
	X(JOIN, "join", 2, "d attribute") X(LAST, "last", 0, "") X(LENGTH, "length", 0, "") X(LIST, "list", 0, "") \
	X(LOWER, "lower", 0, "") X(MAP, "map", 8, "") X(MAX, "max", 2, "case_sensitive attribute") \
	X(MIN, "min", 2, "case_sensitive attribute") X(REJECT, "reject", 8, "") X(REJECTATTR, "rejectattr", 8, "") \
	X(REPLACE, "replace", 3, "old new count") X(REVERSE, "reverse", 0, "") X(SAFE, "safe", 0, "") \
	X(SELECT, "select", 8, "") X(SELECTATTR, "selectattr", 8, "") \
	X(SORT, "sort", 3, "reverse case_sensitive attribute") \
	X(STRING, "string", 0, "") X(SUM, "sum", 2, "attribute start") \
	X(TOJSON, "tojson", 4, "ensure_ascii indent separators sort_keys") X(TRIM, "trim", 1, "chars") \
	X(UNIQUE, "unique", 2, "case_sensitive attribute") X(UPPER, "upper", 0, "") \
	X(FROMJSON, "fromjson", 0, "") X(ROUND, "round", 2, "precision method") X(TITLE, "title", 0, "")

#define CHAT_TESTS(X) \
	X(BOOLEAN, "boolean", 0) X(CALLABLE, "callable", 0) X(DEFINED, "defined", 0) X(DIVISIBLEBY, "divisibleby", 1) \
	X(EQ, "eq", 1) X(EQUALTO, "equalto", 1) X(EQUALS, "==", 1) X(EVEN, "even", 0) X(FALSE, "false", 0) \
	X(FLOAT, "float", 0) X(GE, "ge", 1) X(GE_SIGN, ">=", 1) X(GREATERTHAN, "greaterthan", 1) X(GT, "gt", 1) \
	X(GT_SIGN, ">", 1) X(IN, "in", 1) X(INTEGER, "integer", 0) X(ITERABLE, "iterable", 0) X(LE, "le", 1) \
	X(LE_SIGN, "<=", 1) X(LESSTHAN, "lessthan", 1) X(LOWER, "lower", 0) X(LT, "lt", 1) X(LT_SIGN, "<", 1) \
	X(MAPPING, "mapping", 0) X(NE, "ne", 1) X(NE_SIGN, "!=", 1) X(NONE, "none", 0) X(NUMBER, "number", 0) \
	X(ODD, "odd", 0) \
	X(SAMEAS, "sameas", 1) X(SEQUENCE, "sequence", 0) X(STRING, "string", 0) X(TRUE, "true", 0) \
	X(UNDEFINED, "undefined", 0) X(UPPER, "upper", 0)

/* Methods that can be called. */
#define CHAT_METHODS(X) \
	X(CAPITALIZE, "capitalize") X(COUNT, "count") X(ENDSWITH, "endswith") X(FIND, "find") X(GET, "get") \
	X(INDEX, "index") \
	X(ISALPHA, "isalpha") X(ISDIGIT, "isdigit") X(ITEMS, "items") X(JOIN, "join") X(KEYS, "keys") X(LOWER, "lower") \
	X(LSTRIP, "lstrip") X(REMOVEPREFIX, "removeprefix") X(REMOVESUFFIX, "removesuffix") X(REPLACE, "replace") \
	X(RFIND, "rfind") X(RSPLIT, "rsplit") X(RSTRIP, "rstrip") X(SPLIT, "split") X(SPLITLINES, "splitlines") \
	X(STARTSWITH, "startswith") X(STRIP, "strip") X(TITLE, "title") X(UPPER, "upper") X(VALUES, "values") \
	X(FORMAT, "format")

#define CHAT_GLOBAL_FUNCS(X) \
	X(DICT, "dict") X(NAMESPACE, "namespace") X(RAISE, "raise_exception") X(RANGE, "range") X(STRFTIME, "strftime_now")

typedef enum ChatFilter {
#define CHAT_ROW(name, ...) CHAT_F_##name,
	CHAT_FILTERS(CHAT_ROW)
#undef CHAT_ROW
	CHAT_FILTER_COUNT
} ChatFilter;
typedef enum ChatTest {
#define CHAT_ROW(name, ...) CHAT_T_##name,
	CHAT_TESTS(CHAT_ROW)
#undef CHAT_ROW
	CHAT_TEST_COUNT
} ChatTest;
typedef enum ChatMethod {
#define CHAT_ROW(name, ...) CHAT_M_##name,
	CHAT_METHODS(CHAT_ROW)
#undef CHAT_ROW
	CHAT_METHOD_COUNT
} ChatMethod;
typedef enum ChatGlobalFunc {
#define CHAT_ROW(name, ...) CHAT_G_##name,
	CHAT_GLOBAL_FUNCS(CHAT_ROW)
#undef CHAT_ROW
	CHAT_GLOBAL_FUNC_COUNT
} ChatGlobalFunc;

typedef struct ChatScope { uint32_t load, n_loads; } ChatScope;

typedef enum ChatLoadKind {
	CHAT_LOAD_UNDEFINED, /* the slot is empty */
	CHAT_LOAD_RESOLVE,   /* what the caller of the template gave by that name, else a global */
	CHAT_LOAD_ALIAS,     /* the value of another slot: a functions out, slot b */
	CHAT_LOAD_COUNT
} ChatLoadKind;
typedef struct ChatLoad { uint32_t kind, slot; ChatText name; uint32_t a, b; } ChatLoad;

typedef struct ChatFunc {
	ChatText name;
	uint32_t outer;   /* the function around it, with a lower index; 0 for 0 */
	uint32_t n_slots, scope, body;
	uint32_t param, n_params;
} ChatFunc;
typedef struct ChatParam { ChatText name; uint32_t slot, init; /* node, CHAT_NONE = none */ } ChatParam;
typedef struct ChatGlobal { ChatText name, value; } ChatGlobal;

typedef struct ChatHeader {
	uint32_t magic, version;
	uint32_t n_bytes; /* of all */
	uint32_t n_nodes, n_kids, n_scopes, n_loads, n_funcs, n_params, n_globals, n_text;
} ChatHeader;

#endif
