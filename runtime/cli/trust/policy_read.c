/* policy_read.c - policy.toml: one table of keys, strict in every other respect.
 *
 * A mistake ends its line, not the reading, so that all are reported at once. Words are cut out of the file's own
 * text, in place: escapes only make them shorter.
 */
#include "artifacts/closest.h"
#include "artifacts/formats.h"
#include "runtime/cli/trust/policy.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const policy_role_names[POLICY_ROLES] = {"weight", "embedding", "norm", "bias", "scale", "activation"};

typedef enum KeyKind { NAMES, DTYPES, IDS, COUNT, FLAG, LAYERS } KeyKind;
typedef struct Key { const char *name; KeyKind kind; size_t at; } Key; /* at: of its field in Policy, LAYERS: unused */
#define IN(field) offsetof(Policy, field)
static const Key keys[] = {
	{"templates.required", NAMES, IN(required)}, {"templates.forbidden", NAMES, IN(forbidden)},
	{"dtypes.weight", DTYPES, IN(dtypes[R_WEIGHT])}, {"dtypes.embedding", DTYPES, IN(dtypes[R_EMBEDDING])},
	{"dtypes.norm", DTYPES, IN(dtypes[R_NORM])}, {"dtypes.bias", DTYPES, IN(dtypes[R_BIAS])},
	{"dtypes.scale", DTYPES, IN(dtypes[R_SCALE])}, {"dtypes.activation", DTYPES, IN(dtypes[R_ACTIVATION])},
	{"kv.dtype", DTYPES, IN(kv)}, {"kv.layers.layers", LAYERS, 0}, {"kv.layers.dtype", DTYPES, 0},
	{"launches.per_layer", COUNT, IN(per_layer)}, {"launches.prefill", COUNT, IN(prefill)},
	{"launches.decode", COUNT, IN(decode)}, {"plan.waivers", FLAG, IN(waivers)},
	{"plan.unread", FLAG, IN(unread)}, {"plan.overrides", FLAG, IN(overrides)},
	{"plan.ran", FLAG, IN(ran)},
	{"plan.random_weights", FLAG, IN(random_weights)},
	{"plan.certificate", FLAG, IN(certificate)}, {"plan.signature", FLAG, IN(signature)},
	{"plan.signers", IDS, IN(signers)},
};
enum { N_KEYS = sizeof keys / sizeof keys[0], KEY_BYTES = 80 };

typedef struct Reader {
	const Args *args;
	Policy *p;
	char *at;
	int line;
	bool failed;
	char section[KEY_BYTES]; /* "kv.layers"; "" at the top */
} Reader;

__attribute__((format(printf, 2, 3)))
static bool wrong(Reader *r, const char *fmt, ...)
{
	char text[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	cli_say_at(r->args, 0, r->p->path, r->line, 0, text);
	r->failed = true;
	return false;
}

static void skip_blank(Reader *r)
{
	while (*r->at == ' ' || *r->at == '\t')
		r->at++;
}

/* Blanks, comments and ends of lines. */
static void skip_lines(Reader *r)
{
	for (;; r->at++) {
		skip_blank(r);
		if (*r->at == '#')
			r->at += strcspn(r->at, "\n");
		if (*r->at == '\n')
			r->line++;
		else if (*r->at != '\r')
			return;
	}
}

static int name_length(const char *s)
{
	return (int)strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
}

/* "basic" with \" and \\ alone, or 'literal'; NULL after a mistake. */
static const char *read_string(Reader *r)
{
	char quote = *r->at, *word = r->at + 1, *to = word, *s = word;
	if (quote != '"' && quote != '\'')
		return wrong(r, "expected a string in quotes"), NULL;
	for (; *s && *s != '\n' && *s != quote; s++) {
		if (quote == '"' && *s == '\\') {
			s++;
			if (*s != '"' && *s != '\\')
				return wrong(r, "the escapes are \\\" and \\\\"), NULL;
		}
		*to++ = *s;
	}
	if (*s != quote)
		return wrong(r, "the string has no end"), NULL;
	*to = 0;
	r->at = s + 1;
	return word;
}

static bool is_dtype(Reader *r, const Key *k, const char *word)
{
	Dtype unused;
	const bool is_kv = strncmp(k->name, "kv.", 3) == 0; /* elsewhere "nvfp4" might mean MXFP4 too */
	if (dtype_from_name(word, &unused) || strcmp(word, "fp8") == 0 || (is_kv && cache_from_name(word, &unused)))
		return true;
	char known[128] = "";
	const char *names[DT_COUNT + 2] = {"fp8", is_kv ? "nvfp4" : "fp8"};
	for (int i = 0; i < DT_COUNT; i++) {
		names[i + 2] = dtype_name((Dtype)i);
		snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i + 2]);
	}
	const char *near = closest_name(word, names, DT_COUNT + 2);
	return wrong(r, "\"%s\" is not a dtype: expected one of %s, %s%s%s%s", word, known, is_kv ? "fp8, nvfp4" : "fp8",
		near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
}

static bool read_list(Reader *r, const Key *k, PolicyList *list)
{
	list->line = r->line;
	list->n = 0;
	if (*r->at != '[')
		return wrong(r, "%s: expected a list of strings", k->name);
	r->at++;
	for (;;) {
		skip_lines(r);
		if (*r->at == ']')
			break;
		const char *word = read_string(r);
		if (!word || (k->kind == DTYPES && !is_dtype(r, k, word)))
			return false;
		if (k->kind == IDS && (strlen(word) != 64 || strspn(word, "0123456789abcdef") != 64))
			return wrong(r, "%s: \"%s\": expected the id of a key, 64 hexadecimal digits", k->name, word);
		if (k->kind == NAMES && strchr(word, '*') != strrchr(word, '*'))
			return wrong(r, "%s: \"%s\": at most one *", k->name, word);
		if (list->n == POLICY_WORDS)
			return wrong(r, "%s: at most %d names", k->name, POLICY_WORDS);
		list->words[list->n++] = word;
		skip_lines(r);
		if (*r->at != ',' && *r->at != ']')
			return wrong(r, "%s: expected , or ] after \"%s\"", k->name, word);
		r->at += *r->at == ',';
	}
	r->at++;
	return list->n > 0 || wrong(r, "%s: the list is empty: leave the key out for no rule", k->name);
}

static bool read_count(Reader *r, const Key *k, PolicyNumber *n)
{
	char *end;
	errno = 0;
	long value = strtol(r->at, &end, 10);
	if (end == r->at || errno || value < 1 || value > INT_MAX || *end == '.' || *end == 'e')
		return wrong(r, "%s: expected a whole number from 1", k->name);
	*n = (PolicyNumber){(int)value, r->line};
	r->at = end;
	return true;
}

static bool read_flag(Reader *r, const Key *k, PolicyNumber *n)
{
	size_t length = (size_t)name_length(r->at);
	bool yes = length == 4 && strncmp(r->at, "true", 4) == 0, no = length == 5 && strncmp(r->at, "false", 5) == 0;
	if (!yes && !no)
		return wrong(r, "%s: expected true or false", k->name);
	*n = (PolicyNumber){yes, r->line};
	r->at += length;
	return true;
}

static bool read_layers(Reader *r, PolicyLayers *l)
{
	const char *word = read_string(r);
	char end;
	if (!word)
		return false;
	int n = sscanf(word, "%d-%d%c", &l->first, &l->last, &end);
	if (n == 1 && strspn(word, "0123456789") == strlen(word))
		l->last = l->first, n = 2;
	if (n != 2 || l->first < 0 || l->last < l->first)
		return wrong(r, "kv.layers.layers: \"%s\": expected \"first-last\"", word);
	return true;
}

static bool read_value(Reader *r, const Key *k)
{
	void *field = (char *)r->p + k->at;
	if (strncmp(k->name, "kv.layers.", 10) == 0) {
		PolicyLayers *l = &r->p->kv_layers[r->p->n_kv_layers - 1];
		if (k->kind == LAYERS ? l->first >= 0 : l->dtypes.line)
			return wrong(r, "%s: occurs twice", k->name);
		return k->kind == LAYERS ? read_layers(r, l) : read_list(r, k, &l->dtypes);
	}
	if (k->kind == NAMES || k->kind == DTYPES || k->kind == IDS) {
		PolicyList *list = field;
		return list->line ? wrong(r, "%s: occurs twice, first in line %d", k->name, list->line)
			: read_list(r, k, list);
	}
	PolicyNumber *n = field;
	if (n->line)
		return wrong(r, "%s: occurs twice, first in line %d", k->name, n->line);
	return k->kind == COUNT ? read_count(r, k, n) : read_flag(r, k, n);
}

static const Key *find_key(Reader *r, const char *name)
{
	const char *names[N_KEYS];
	for (int i = 0; i < N_KEYS; i++) {
		names[i] = keys[i].name;
		if (strcmp(names[i], name) == 0)
			return &keys[i];
	}
	const char *near = closest_name(name, names, N_KEYS);
	wrong(r, near ? "unknown key %s: did you mean %s?" : "unknown key %s%s", name, near ? near : "");
	return NULL;
}

static bool read_section(Reader *r)
{
	bool is_array = r->at[1] == '[';
	r->at += 1 + is_array;
	int n = name_length(r->at);
	snprintf(r->section, sizeof r->section, "%.*s", n, r->at);
	r->at += n;
	if (!n || strncmp(r->at, "]]", 1 + (size_t)is_array) != 0)
		return wrong(r, "expected a table such as [templates]");
	r->at += 1 + is_array;
	bool known = false;
	for (int i = 0; i < N_KEYS && !known; i++)
		known = strncmp(keys[i].name, r->section, (size_t)n) == 0 && keys[i].name[n] == '.';
	if (!known) {
		static const char *const tables[] = {"templates", "dtypes", "kv", "kv.layers", "launches", "plan"};
		const char *near = closest_name(r->section, tables, sizeof tables / sizeof tables[0]);
		return wrong(r, near ? "unknown table %s: did you mean %s?"
			: "unknown table %s: expected templates, dtypes, kv, launches or plan", r->section, near);
	}
	if (is_array != (strcmp(r->section, "kv.layers") == 0))
		return wrong(r, is_array ? "[[%s]]: expected [%s]" : "[%s]: expected [[%s]]", r->section, r->section);
	if (is_array && r->p->n_kv_layers == POLICY_KV_RULES)
		return wrong(r, "at most %d tables kv.layers", POLICY_KV_RULES);
	if (is_array)
		r->p->kv_layers[r->p->n_kv_layers++] = (PolicyLayers){.first = -1, .line = r->line};
	return true;
}

static bool read_entry(Reader *r)
{
	char name[2 * KEY_BYTES];
	int n = name_length(r->at);
	if (!n || n >= KEY_BYTES)
		return wrong(r, "expected a key or a table");
	snprintf(name, sizeof name, "%s%s%.*s", r->section, *r->section ? "." : "", n, r->at);
	r->at += n;
	skip_blank(r);
	if (*r->at != '=')
		return wrong(r, "expected = after %s", name);
	r->at++;
	skip_blank(r);
	const Key *k = find_key(r, name);
	if (k && strncmp(name, "kv.layers.", 10) == 0 && !r->p->n_kv_layers)
		return wrong(r, "%s: expected in a table [[kv.layers]]", name);
	return k && read_value(r, k);
}

int policy_read(const Args *args, const char *path, Policy *policy)
{
	size_t n;
	*policy = (Policy){.path = path};
	int code = cli_read_file(args, path, &policy->text, &n);
	if (code)
		return code;
	Reader r = {.args = args, .p = policy, .at = policy->text, .line = 1};
	if (strlen(policy->text) != n)
		wrong(&r, "a NUL byte");
	for (skip_lines(&r); *r.at; skip_lines(&r)) {
		bool good = *r.at == '[' ? read_section(&r) : read_entry(&r);
		skip_blank(&r);
		if (good && *r.at && !strchr("#\r\n", *r.at))
			wrong(&r, "expected the end of the line");
		r.at += strcspn(r.at, "\n");
	}
	for (int i = 0; i < policy->n_kv_layers; i++) {
		r.line = policy->kv_layers[i].line;
		if (policy->kv_layers[i].first < 0 || !policy->kv_layers[i].dtypes.line)
			wrong(&r, "kv.layers: layers and dtype must both be there");
	}
	return r.failed ? EXIT_BAD_INPUT : EXIT_OK;
}
