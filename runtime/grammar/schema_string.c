/* schema_string.c - strings by pattern, format and length. */
#include "runtime/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#define OCTET "(25[0-5]|(2[0-4]|1[0-9]|[1-9]|)[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define H16 "[0-9a-fA-F]{1,4}"
#define LS32 "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6 "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 \
	"|((" H16 ":){0,1}" H16 ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32 \
	"|((" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 \
	"|((" H16 ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"
#define YEAR "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define DATE YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)" \
	"|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL ")*"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define TAIL "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:(//[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/" PCHAR "*)*|" \
	PCHAR "+)" TAIL

/* What is allowed is part of what the format's own specification allows, where that is without bound: dates leave out
 * 29 February and leap seconds, URIs hosts in brackets. */
static const struct { const char *name, *regex; } formats[] = {
	{"date", DATE},
	{"time", TIME},
	{"date-time", DATE "T" TIME},
	{"duration", "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T([0-9]+H([0-9]+M([0-9]+S)?)?|"
		"[0-9]+M([0-9]+S)?|[0-9]+S))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"},
	{"email", "[A-Za-z0-9_+-]{1,64}(\\.[A-Za-z0-9_+-]{1,64})*@" LABEL "(\\." LABEL ")+"},
	{"idn-email", "[A-Za-z0-9_+-]{1,64}(\\.[A-Za-z0-9_+-]{1,64})*@" LABEL "(\\." LABEL ")+"},
	{"hostname", HOST},
	{"idn-hostname", HOST},
	{"ipv4", IPV4},
	{"ipv6", IPV6},
	{"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
	{"uri", URI},
	{"iri", URI},
	{"uri-reference", "(" URI "|/?" PCHAR "*(/" PCHAR "*)*" TAIL ")"},
	{"iri-reference", "(" URI "|/?" PCHAR "*(/" PCHAR "*)*" TAIL ")"},
	{"uri-template", "[A-Za-z0-9._~:/?#@!$&()*+,;=-]*"},
	{"json-pointer", "(/([^~/\"\\\\\\x00-\\x1f]|~[01])*)*"},
	{"relative-json-pointer", "(0|[1-9][0-9]*)(#|(/([^~/\"\\\\\\x00-\\x1f]|~[01])*)*)"},
	{"regex", "[A-Za-z0-9 _.,:;=/-]*"},
};

static bool refuse_pattern(Schemas *b, const char *key)
{
	const Effort *e = &b->g->effort;
	char why[160];
	snprintf(why, sizeof why, "%s", e->why);
	if (e->at >= 0)
		snprintf(why, sizeof why, "%s, at byte %d", e->why, e->at);
	schema_refuse(b, key, "%s", why);
	return false;
}

bool schema_pattern(Schemas *b, const char *key, const char *pattern, Search search, Lexeme *l)
{
	return lexeme_of_regex(pattern, search, AS_JSON_STRING, l, &b->g->effort) || refuse_pattern(b, key);
}

/* Strings that all keywords so far allow; an empty lexeme says that none are left, where is_measured. */
typedef struct Strings { Lexeme l; bool is_measured; uint32_t lo, hi; } Strings;

/* Of *s what is in `more` too, which is given up. */
static bool narrow(Schemas *b, Strings *s, Lexeme *more)
{
	Lexeme both;
	if (!s->is_measured) {
		s->l = *more;
		s->is_measured = true;
		return true;
	}
	const bool ok = lexeme_combine(&s->l, more, BOTH, &both, &b->g->effort);
	lexeme_free(more);
	if (!ok)
		return false;
	lexeme_free(&s->l);
	s->l = both;
	return true;
}

static bool add_pattern(Schemas *b, json_t *pattern, Strings *s)
{
	Lexeme more = {0};
	uint32_t lo, hi;
	if (!json_is_string(pattern))
		return schema_refuse(b, "pattern", "a string is expected");
	if (!lexeme_of_pattern(json_string_value(pattern), &more, &lo, &hi, &b->g->effort))
		return refuse_pattern(b, "pattern");
	s->lo = lo > s->lo ? lo : s->lo;
	s->hi = hi < s->hi ? hi : s->hi;
	return narrow(b, s, &more);
}

/* The expression of a format; NULL: it says nothing. */
static const char *format_regex(json_t *format)
{
	const char *name = json_string_value(format);
	for (size_t i = 0; name && i < sizeof formats / sizeof formats[0]; i++)
		if (strcmp(formats[i].name, name) == 0)
			return formats[i].regex;
	return NULL;
}

static bool add_format(Schemas *b, json_t *format, Strings *s)
{
	const char *regex = format_regex(format);
	Lexeme more = {0};
	if (!json_is_string(format))
		return schema_refuse(b, "format", "a string is expected");
	if (regex && b->in_not)
		return schema_refuse(b, "format", "format is not supported in not, if and branches of oneOf that meet");
	return !regex || (schema_pattern(b, "format", regex, WHOLE, &more) && narrow(b, s, &more));
}

bool schema_is_plain_string(json_t *schema)
{
	json_t *formats_of = json_object_get(schema, "format");
	return !json_object_get(schema, "pattern") && !json_object_get(schema, "const") &&
		!json_object_get(schema, "enum") && !json_object_get(schema, "not") &&
		(!formats_of || (json_is_string(formats_of) && !format_regex(formats_of)));
}

/* const and enum, of names of properties. */
static bool add_values(Schemas *b, json_t *schema, Strings *s)
{
	json_t *value = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
	const size_t n = value ? 1 : json_array_size(values);
	char **texts = calloc(n + 1, sizeof *texts);
	size_t *n_bytes = calloc(n + 1, sizeof *n_bytes);
	uint32_t kept = 0;
	Lexeme more = {0};
	bool ok = texts && n_bytes;
	for (size_t i = 0; ok && i < n; i++) {
		json_t *one = value ? value : json_array_get(values, i);
		if (json_is_string(one))
			ok = (texts[kept] = schema_quoted(json_string_value(one), json_string_length(one), &n_bytes[kept])) != NULL;
		kept += json_is_string(one);
	}
	ok = ok && lexeme_of_texts((const char *const *)texts, n_bytes, kept, &more, &b->g->effort) && narrow(b, s, &more);
	for (uint32_t i = 0; texts && i < kept; i++)
		free(texts[i]);
	free(texts);
	free(n_bytes);
	return ok;
}

bool schema_uncounted(Schemas *b, json_t *schema, Lexeme *l, uint32_t *lo, uint32_t *hi)
{
	json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format"), *one;
	size_t i;
	Strings s = {.hi = ENDLESS};
	bool ok = schema_count(b, schema, "minLength", &s.lo) && schema_count(b, schema, "maxLength", &s.hi);
	if (json_object_get(schema, "const") || json_object_get(schema, "enum"))
		ok = ok && add_values(b, schema, &s);
	if (json_is_array(pattern)) /* of several schemas */
		json_array_foreach(pattern, i, one)
			ok = ok && add_pattern(b, one, &s);
	else if (pattern)
		ok = ok && add_pattern(b, pattern, &s);
	if (json_is_array(format))
		json_array_foreach(format, i, one)
			ok = ok && add_format(b, one, &s);
	else if (format)
		ok = ok && add_format(b, format, &s);
	*l = s.l;
	if (ok && !s.is_measured)
		ok = lexeme_copy(&b->g->string, l, &b->g->effort);
	*lo = s.lo;
	*hi = s.hi;
	if (!ok)
		lexeme_free(l);
	return ok;
}

static bool count(Schemas *b, Lexeme *l, uint32_t lo, uint32_t hi)
{
	Lexeme counted;
	if (lo == 0 && hi == ENDLESS)
		return true;
	const bool ok = lexeme_of_length(l, lo, hi, &counted, &b->g->effort);
	lexeme_free(l);
	*l = counted;
	return ok;
}

static bool schema_string(Schemas *b, json_t *schema, Lexeme *l)
{
	uint32_t lo, hi;
	return schema_uncounted(b, schema, l, &lo, &hi) && count(b, l, lo, hi) &&
		schema_without_not(b, schema, schema_strings, l);
}

uint32_t schema_string_node(Schemas *b, json_t *schema)
{
	enum { LONG = 48 }; /* characters */
	enum { FEW = 16000, MANY = 40000 }; /* states, of an automaton that counts by itself */
	Lexeme l = {0};
	uint32_t lo, hi;
	if (!schema_uncounted(b, schema, &l, &lo, &hi))
		return NONE;
	const uint32_t most = hi != ENDLESS ? hi : lo;
	const uint64_t states = (uint64_t)most * l.n_states;
	if ((states > FEW || most >= LONG) && !lexeme_is_empty(&l) && !json_object_get(schema, "not")) {
		if (!lexeme_count(&l, &b->g->string, &b->g->effort)) {
			lexeme_free(&l);
			return NONE;
		}
		if (l.least && lo <= l.least[1] && hi >= l.most[1]) /* no other text is there */
			return node_lexeme(b->g, &l);
		if (l.least && (!l.has_gaps || states > MANY))
			return node_counted(b->g, &l, lo, hi);
	}
	const bool ok = count(b, &l, lo, hi) && schema_without_not(b, schema, schema_strings, &l);
	const uint32_t node = ok ? node_lexeme(b->g, &l) : NONE;
	lexeme_free(&l);
	return node;
}

bool schema_strings(Schemas *b, json_t *schema, Lexeme *l)
{
	*l = (Lexeme){0};
	if (!(schema = schema_resolve(b, schema)))
		return false;
	if (json_is_true(schema))
		return lexeme_copy(&b->g->string, l, &b->g->effort);
	if (json_is_false(schema) || !schema_check(b, schema) || !schema_allows(schema, "string"))
		return !schema_failed(b);
	return schema_string(b, schema, l) && schema_of_branches(b, schema, schema_strings, l);
}
