/* kernelgen.h - what libclang saw of a template, before it is believed.
 *
 *   read_template.c    file.cu -> RawTemplate: clauses, argument struct, kernels, sources, uses of names
 *   reach.c            the code that its kernel reaches, its hash and its names
 *   formulas.c         FORMULA and PARAM written out in the clauses and fields of a RawTemplate
 *   check_contract.c   RawTemplate -> KernelTemplate, or diagnostics
 *   write_table.c      KernelTemplates and their sources -> kernel_table.c
 *
 * Everything lives in one arena until the program ends.
 */
#ifndef ATLASC_KERNELGEN_H
#define ATLASC_KERNELGEN_H

#include "compiler/ir.h"

enum { MAX_PARTS = 4 };

typedef VEC(const char *) Names; /* each once */

typedef enum Word { /* of contract.cuh: once a contract, once or not at all, constants of the kernel, all others */
	KERNEL_, ARCH_, NUMERICS_, GRID_, BLOCK_, READS_, WRITES_, FLOPS_, SMEM_, PIECES_, RATE_, MATRIX_, EARLY_,
	DIM_, ATTR_INT_, ATTR_FLOAT_, DTYPES_, TUNE_, FLAG_,
	PARAM_, FORMULA_, ORDER_, REQUIRE_, PREFER_, PRUNE_, N_WORDS
} Word;
extern const char *const word_names[N_WORDS]; /* "KERNEL" */
Word find_word(const char *name);             /* N_WORDS = none */

typedef struct Clause { /* "dim;K", or what a field of Args is: "in;bf16;ROWS, K" */
	const char *word;              /* "DIM" */
	Word kind;                     /* N_WORDS = of a field */
	const char *parts[MAX_PARTS];  /* "K"; separated by ';' in the annotation */
	int n_parts;
	Loc at;
} Clause;

typedef struct RawFormula { /* FORMULA(name(int a), text) or PARAM */
	const char *name, *text; /* without other formulas in it */
	Names args;
	bool is_param;
	Loc at;
} RawFormula;

typedef struct RawField { /* a member of struct Args */
	const char *name;
	Clause clause;    /* word NULL = declared without a contract word */
	bool is_pointer;
	int offset;       /* bytes */
	bool is_used;     /* the kernel's code, or a function that it may call, mentions it */
	Loc at;
} RawField;

typedef struct RawKernel { /* a __global__ function with a body */
	const char *name;
	bool is_extern_c, is_void, takes_args; /* exactly one parameter, struct Args by value */
	Loc at;
} RawKernel;

typedef struct Token {
	const char *text;  /* "( " where a macro without parameters begins with a bracket */
	size_t at;         /* offset in its file */
	bool is_name;      /* an identifier */
	bool begins_line;  /* of the preprocessor: after a backslash a line goes on */
} Token;

typedef struct Source {
	const char *name, *path, *text; /* name = base name */
	size_t bytes;
	bool has_tokens;                /* read when a template first needs them */
	VEC(Token) tokens;
} Source;

typedef struct RawTemplate {
	const char *path, *name; /* as given; base name without .cu */
	VEC(Clause) clauses;     /* in order of the text, includes where they are */
	VEC(RawFormula) formulas;
	int n_args_structs;
	Loc args_at;
	int args_bytes;
	VEC(RawField) fields;
	VEC(RawKernel) kernels;
	Names used_names;             /* every name in code that the kernel may reach */
	VEC(int) sources;             /* indices in Gen.sources: the file itself, then what it includes, by name */
	uint8_t source_sha256[32], code_sha256[32]; /* of them all, without comments; of code that the kernel may reach */
} RawTemplate;

typedef struct Gen {
	Arena arena;
	Diags diags;
	const char *include_dir; /* kernels/templates: an include names its room, "shared/types.cuh" */
	VEC(Source) sources; /* of all templates, each file once */
	VEC(KernelTemplate) templates;
} Gen;

/* "products/gemv_norm.cu" of a file below the include folder, else its base name. */
const char *source_name(const Gen *g, const char *path);
/* Parses with libclang; false after an error of the file itself, when nothing is to be believed. */
bool read_template(Gen *g, const char *path, RawTemplate *out);
const char *libclang_text(Gen *g); /* libclang's version: "19.1.7" */
bool has_name(const Names *names, const char *name);
void add_name(Gen *g, Names *names, const char *name); /* "" is none */
bool is_identifier(const char *s);
void expand_formulas(Gen *g, RawTemplate *raw);
/* Diagnostics from number `first` on that are at another file, a fragment or header, also say of which template. */
void name_template(Gen *g, const RawTemplate *raw, int first);
/* Of the parsed file, once its fields, kernels and sources are known. */
struct CXTranslationUnitImpl;
void hash_reached(Gen *g, struct CXTranslationUnitImpl *unit, RawTemplate *raw);
/* Checks everything and, if nothing is wrong, appends a row to g->templates. */
void check_contract(Gen *g, const RawTemplate *raw);
/* Writes the table to a temporary name next to `path` and renames; sorts g->templates and g->sources by name. */
bool write_table(Gen *g, const char *path);

#endif
