/* plan_edit.c - a plan with something changed, sealed again by the compiler's own writer.
 *
 *   plan_edit IN OUT EDIT...
 *
 *   PATH=VALUE      a number, text, or the name of a dtype, op, role, arena, phase or verdict; buf:NAME and kernel:NAME
 *                   are the index of that one; @PATH is the value that stands there
 *   PATH+=NUMBER    the number that stands there, more or less
 *   PATH~OLD~NEW    the text that stands there, with something else in the place of OLD
 *   PATH<>PATH      the two change places
 *   -PATH           the element of a list is taken out
 *   +PATH           it stands at the list's end once more
 *
 * A path goes from `graph`, `plan` (the first target's), `audit` (its ledger) or `contracts` through fields of plan.h:
 * plan/phases[decode:4]/launches[attention_step#1]/grid[1]. In brackets: an index; a name, text or enum of the element,
 * of an argument its operand; with `:N` one of its numbers besides; with `#N` the N-th such element, from 0 on.
 * Hashes are those of the new content: what refuses such a plan has understood it. Exit code 2: no such place.
 */
#include "artifacts/op_table.h"
#include "artifacts/schema.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Artifact plan;
static Weight *as_read; /* the weights before the edits: where their bytes are */
static int n_as_read;

_Noreturn static void stop(const char *what, const char *text)
{
	fprintf(stderr, "plan_edit: %s: %s\n", what, text);
	exit(2);
}

typedef struct Spot { /* what a path leads to */
	void *at;
	FieldKind kind;
	const Field *field;
	const Schema *list; /* of an element: its struct */
	void **base;        /* its list */
	int *n, index;
	const Phase *phase; /* met on the way */
	const Launch *launch;
} Spot;

static int int_of(const void *at)
{
	int v;
	memcpy(&v, at, sizeof v);
	return v;
}

static bool has_text(const Spot *s, const Schema *schema, const char *element, const char *word, size_t n)
{
	if (strcmp(schema->name, "Arg") == 0) {
		const char *name = op_table[s->launch->op].operands[((const Arg *)(const void *)element)->operand].name;
		return strlen(name) == n && memcmp(name, word, n) == 0;
	}
	for (int i = 0; i < schema->n_fields; i++) {
		const Field *f = &schema->fields[i];
		const char *text = NULL;
		if (f->kind == F_ENUM)
			text = enum_name((EnumKind)f->extra, int_of(element + f->offset));
		else if (f->kind == F_STR)
			memcpy(&text, element + f->offset, sizeof text);
		if (text && strlen(text) == n && memcmp(text, word, n) == 0)
			return true;
	}
	return false;
}

static bool has_number(const Schema *schema, const char *element, long v)
{
	for (int i = 0; i < schema->n_fields; i++)
		if (schema->fields[i].kind == F_INT && int_of(element + schema->fields[i].offset) == v)
			return true;
	return false;
}

static int find_element(const Spot *s, const Schema *schema, const char *list, int n, const char *word)
{
	size_t length = strcspn(word, ":#]"), digits = strspn(word, "0123456789");
	if (digits && word[digits] == ']')
		return atoi(word) < n ? atoi(word) : -1;
	const char *hash = memchr(word, '#', strcspn(word, "]")), *colon = memchr(word, ':', strcspn(word, "]"));
	int left = hash ? atoi(hash + 1) : 0;
	for (int i = 0; i < n; i++) {
		const char *e = list + (size_t)i * schema->bytes;
		if (has_text(s, schema, e, word, length) && (!colon || has_number(schema, e, atol(colon + 1))) && left-- == 0)
			return i;
	}
	return -1;
}

/* Into element [word] of a list. */
static void enter(Spot *s, const Schema *schema, void **base, int *n, const char **path)
{
	int i = **path == '[' ? find_element(s, schema, *base, *n, *path + 1) : -1;
	if (i < 0)
		stop("no such element", *path);
	*path = strchr(*path, ']') + 1;
	*s = (Spot){.at = (char *)*base + (size_t)i * schema->bytes, .kind = F_LIST, .list = schema, .base = base, .n = n,
		.index = i, .phase = s->phase, .launch = s->launch};
	if (strcmp(schema->name, "Phase") == 0)
		s->phase = s->at;
	if (strcmp(schema->name, "Launch") == 0)
		s->launch = s->at;
}

static void enter_attr(Spot *s, const char **path)
{
	for (int i = 0; i < n_attr_fields; i++) {
		size_t n = strlen(attr_fields[i].name);
		if (**path == '/' && strncmp(*path + 1, attr_fields[i].name, n) == 0 && !(*path)[1 + n]) {
			s->at = (char *)s->at + attr_fields[i].offset;
			s->kind = attr_fields[i].kind;
			*path += 1 + n;
			return;
		}
	}
	stop("no such attribute", *path);
}

static void enter_field(Spot *s, const Schema *schema, const char **path)
{
	char *base = s->at;
	const Field *f = schema->fields;
	size_t n = strcspn(*path, "/[");
	while (f < schema->fields + schema->n_fields && (strlen(f->name) != n || memcmp(f->name, *path, n) != 0))
		f++;
	if (f == schema->fields + schema->n_fields)
		stop("no such field", *path);
	*path += n;
	s->at = base + f->offset;
	s->field = f;
	s->kind = f->kind;
	s->list = NULL;
	if (f->kind == F_LIST) {
		enter(s, f->of, s->at, (int *)(void *)(base + f->count), path);
	} else if (f->kind == F_ATTRS) {
		enter_attr(s, path);
	} else if (**path == '[') { /* of numbers; operands by name */
		int i = f->kind == F_OPERANDS && (*path)[1] > '9' ? -1 : atoi(*path + 1);
		const GraphOp *op = (const GraphOp *)(const void *)base;
		for (int k = 0; i < 0 && k < op_table[op->kind].n_operands; k++)
			if (strncmp(op_table[op->kind].operands[k].name, *path + 1, strcspn(*path + 1, "]")) == 0)
				i = k;
		if (f->kind == F_INT_LIST) {
			s->base = s->at, s->n = (int *)(void *)(base + f->count), s->index = i;
			s->at = *(int **)s->at;
		}
		bool is_wide = f->kind == F_DIMS || f->kind == F_INT64S;
		s->kind = is_wide ? F_INT64 : F_INT;
		s->at = (char *)s->at + (size_t)i * (is_wide ? 8 : 4);
		*path = strchr(*path, ']') + 1;
	}
}

static Spot find(const char *text)
{
	Spot s = {.phase = NULL};
	const char *path = text;
	const struct { const char *name; const Schema *schema; void *at, **base; int *n; } roots[] = {
		{"graph", &graph_schema, &plan.graph, NULL, NULL}, {"plan", &target_plan_schema, &plan.targets[0], NULL, NULL},
		{"audit", &slot_schema, NULL, (void **)&plan.ledger[0], &plan.n_ledger[0]},
		{"contracts", &contract_schema, NULL, (void **)&plan.contracts, &plan.n_contracts}};
	for (int i = 0; i < 4; i++) {
		size_t n = strlen(roots[i].name);
		if (strncmp(path, roots[i].name, n) != 0 || (path[n] != '/' && path[n] != '['))
			continue;
		path += n;
		s.at = roots[i].at;
		s.list = roots[i].schema;
		if (!s.at)
			enter(&s, roots[i].schema, roots[i].base, roots[i].n, &path);
		while (*path) {
			if (*path++ != '/' || !s.list)
				stop("not a path", text);
			enter_field(&s, s.list, &path);
		}
		return s;
	}
	stop("no such section", text);
}

static size_t bytes_of(const Spot *s)
{
	return s->list ? s->list->bytes : s->kind == F_INT64 || s->kind == F_DOUBLE || s->kind == F_STR ||
		s->kind == F_STR_OPT ? 8 : s->kind == F_SHA ? 32 : 4;
}

static int64_t number_at(const Spot *s)
{
	int64_t v = 0;
	if (s->kind == F_INT64)
		memcpy(&v, s->at, 8);
	else
		v = int_of(s->at);
	return v;
}

static void put_number(const Spot *s, int64_t v)
{
	int narrow = (int)v;
	memcpy(s->at, s->kind == F_INT64 ? (void *)&v : (void *)&narrow, s->kind == F_INT64 ? 8 : 4);
}

static int64_t number_of(const Spot *s, const char *text)
{
	const Phase *p = s->phase;
	for (int i = 0; p && strncmp(text, "buf:", 4) == 0 && i < p->n_bufs; i++)
		if (strcmp(p->bufs[i].name, text + 4) == 0)
			return i;
	for (int i = 0; strncmp(text, "kernel:", 7) == 0 && i < plan.targets[0].n_kernels; i++)
		if (strcmp(plan.targets[0].kernels[i].name, text + 7) == 0)
			return i;
	char *end;
	int64_t v = strtoll(text, &end, 10);
	if (*end || !*text)
		stop("not a number, or no such name", text);
	return v;
}

static void set(const Spot *s, const char *value)
{
	if (s->kind == F_STR || s->kind == F_STR_OPT) {
		memcpy(s->at, &value, sizeof value);
	} else if (s->kind == F_ENUM) {
		int i = 0;
		while (strcmp(enum_name((EnumKind)s->field->extra, i), value) != 0)
			if (++i == enum_count((EnumKind)s->field->extra))
				stop("no such word", value);
		put_number(&(Spot){.at = s->at, .kind = F_INT}, i);
	} else if (s->kind == F_FLOAT) {
		float v = strtof(value, NULL);
		memcpy(s->at, &v, sizeof v);
	} else if (s->kind == F_INT || s->kind == F_INT64) {
		put_number(s, number_of(s, value));
	} else {
		stop("cannot be set", value);
	}
}

/* OLD~NEW, in the text that stands there. */
static void put_text(const char *path, char *change)
{
	Spot s = find(path);
	char *next = strchr(change, '~'), *old;
	if ((s.kind != F_STR && s.kind != F_STR_OPT) || !next)
		stop("no text", path);
	*next++ = 0;
	memcpy(&old, s.at, sizeof old);
	char *at = strstr(old, change);
	if (!at)
		stop("no such text", change);
	char *made = malloc(strlen(old) + strlen(next) + 1);
	sprintf(made, "%.*s%s%s", (int)(at - old), old, next, at + strlen(change));
	memcpy(s.at, &made, sizeof made);
}

static void edit(char *text)
{
	char *swap = strstr(text, "<>"), *wave = strchr(text, '~'), *equals = wave ? NULL : strchr(text, '=');
	if (*text == '-' || *text == '+') {
		Spot s = find(text + 1);
		if (!s.base)
			stop("no element of a list", text);
		size_t size = s.list ? s.list->bytes : sizeof(int), n = (size_t)*s.n;
		char *list = malloc((n + 1) * size);
		memcpy(list, *s.base, n * size);
		if (*text == '+')
			memcpy(list + n * size, s.at, size);
		else
			memmove(list + (size_t)s.index * size, list + ((size_t)s.index + 1) * size,
				(n - (size_t)s.index - 1) * size);
		*s.base = list;
		*s.n += *text == '+' ? 1 : -1;
	} else if (wave) {
		*wave = 0;
		put_text(text, wave + 1);
	} else if (swap) {
		*swap = 0;
		Spot a = find(text), b = find(swap + 2);
		char held[512];
		size_t n = bytes_of(&a);
		memcpy(held, a.at, n);
		memcpy(a.at, b.at, n);
		memcpy(b.at, held, n);
	} else if (equals && equals[1] == '@') {
		*equals = 0;
		Spot to = find(text), from = find(equals + 2);
		memcpy(to.at, from.at, bytes_of(&to));
	} else if (equals && equals > text && equals[-1] == '+') {
		equals[-1] = 0;
		Spot s = find(text);
		put_number(&s, number_at(&s) + strtoll(equals + 1, NULL, 10));
	} else if (equals) {
		*equals = 0;
		Spot s = find(text);
		set(&s, equals + 1);
	} else {
		stop("not an edit", text);
	}
}

static bool read_weight(void *ctx, int w, int64_t at, void *dst, size_t n)
{
	const Section *s = artifact_section(&plan, "weights");
	(void)ctx;
	memset(dst, 0x11, n);
	for (int i = 0; i < n_as_read; i++)
		if (strcmp(as_read[i].name, plan.graph.weights[w].name) == 0 && at + (int64_t)n <= as_read[i].bytes)
			memcpy(dst, plan.file + s->offset + as_read[i].offset + at, n);
	return true;
}

int main(int argc, char **argv)
{
	char why[512];
	FILE *f = argc > 2 ? fopen(argv[1], "rb") : NULL;
	if (!f)
		stop("usage", "plan_edit IN OUT EDIT...");
	fseek(f, 0, SEEK_END);
	const long n = ftell(f);
	uint8_t *bytes = malloc((size_t)n);
	rewind(f);
	if (fread(bytes, 1, (size_t)n, f) != (size_t)n || artifact_read(bytes, n, NULL, &plan, why, sizeof why) != READ_OK)
		stop(argv[1], why);
	fclose(f);
	n_as_read = plan.graph.n_weights;
	as_read = malloc(sizeof *as_read * (size_t)n_as_read);
	memcpy(as_read, plan.graph.weights, sizeof *as_read * (size_t)n_as_read);
	PlanBlob blobs[3];
	PlanParts parts = {.artifact = &plan, .blobs = blobs, .embed_weights = true, .weights = {NULL, read_weight}};
	static const char *const names[] = {"cubins", "tokenizer", "chat_template"};
	for (int i = 0; i < 3; i++) {
		const Section *s = artifact_section(&plan, names[i]);
		if (s)
			blobs[parts.n_blobs++] = (PlanBlob){names[i], bytes + s->offset, (size_t)s->bytes};
	}
	for (int i = 3; i < argc; i++)
		edit(argv[i]);
	if (!artifact_write(argv[2], &parts, why, sizeof why))
		stop(argv[2], why);
	return 0;
}
