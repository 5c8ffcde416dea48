/* read_tokenizer_steps.c - the chains of tokenizer.json: normalizer, pre_tokenizer, decoder.
 *
 * Chains may nest; they are flattened here. Normalizer and pre-tokenizer become steps for the
 * runtime. The decoder disappears: nearly all of what decoders do happens to one token at a
 * time, so it is done here, once, to every token of the vocabulary. What is left for the runtime
 * is how texts are joined (TokDecode) and how the start of the output differs.
 */
#include "compiler/tokenizer/tokenizer_json.h"

#include <assert.h>
#include <string.h>

enum { MAX_NESTING = 8, MAX_STEP_BYTES = 4096 };

#define NORMALIZERS "NFC, NFD, NFKC, NFKD, Replace, Prepend, Sequence"
#define PRE_TOKENIZERS "Split, ByteLevel, Digits, Metaspace, Sequence"
#define DECODERS "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence"

static bool refuse_type(Reader *r, Json at, Str type, const char *accepted)
{
	return reject(r, A0502, at, "type %s is not supported; accepted are %s", quoted(r, type), accepted);
}

static SpecStep *add_step(Reader *r, Json at, TokStepKind kind)
{
	if (r->spec->steps.n == TOK_MAX_STEPS) {
		reject(r, A0502, at, "more than %d steps", TOK_MAX_STEPS);
		return NULL;
	}
	SpecStep *s = vec_push(r->arena, &r->spec->steps);
	*s = (SpecStep){.kind = kind, .code = -1};
	return s;
}

static bool short_string(Reader *r, Json of, const char *key, Str *out)
{
	if (!get_string(r, of, key, out))
		return false;
	return out->n <= MAX_STEP_BYTES ||
		reject(r, A0502, child(r, of, key), "longer than %d bytes", MAX_STEP_BYTES);
}

/* {"String": ".."} or {"Regex": ".."}. */
static bool read_pattern(Reader *r, Json of, bool *regex, Str *text)
{
	Json at = child(r, of, "pattern");
	if (!json_is_object(at.v) || json_object_size(at.v) != 1)
		return reject(r, A0504, at, "expected an object with one key, String or Regex");
	if (!only_keys(r, at, "String Regex"))
		return false;
	*regex = json_object_get(at.v, "Regex") != NULL;
	if (!short_string(r, at, *regex ? "Regex" : "String", text))
		return false;
	return text->n || reject(r, A0502, at, "an empty pattern");
}

/* The same to a program. `literal` is set for strings. */
static bool read_program(Reader *r, Json of, int *code, Str *literal)
{
	bool regex;
	Str s;
	char why[160];
	if (!read_pattern(r, of, &regex, &s))
		return false;
	if (!regex) {
		*literal = s;
		*code = compile_literal(r->arena, r->spec, s);
		return true;
	}
	*code = compile_pattern(r->arena, r->spec, s, why, sizeof why);
	return *code >= 0 ||
		reject(r, A0502, child(r, of, "pattern"), "%s is not supported: %s", why, quoted(r, s));
}

/* Normalizer ------------------------------------------------------------------------------ */

static bool read_form(Reader *r, Json at, TokForm form)
{
	TokenizerSpec *spec = r->spec;
	if (!only_keys(r, at, "type"))
		return false;
	if (spec->form >= 0 && spec->form != (int)form)
		return reject(r, A0502, at, "two different Unicode normal forms in one normalizer");
	if (spec->form < 0) {
		spec->form = (int)form;
		spec->norm = ARENA_NEW(r->arena, NormTables);
		*spec->norm = unicode_normalisation(r->arena, form);
	}
	SpecStep *s = add_step(r, at, TOK_STEP_NORMALIZE);
	if (s)
		s->flags = form;
	return s != NULL;
}

static bool read_normalizers(Reader *r, Json at, int depth)
{
	static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
	static_assert(sizeof forms / sizeof *forms == TOK_FORM_COUNT, "one name a form");
	Str type;
	if (!get_string(r, at, "type", &type))
		return false;
	for (int f = 0; f < TOK_FORM_COUNT; f++)
		if (str_is(type, forms[f]))
			return read_form(r, at, (TokForm)f);
	if (str_is(type, "Sequence")) {
		Json list;
		bool ok = only_keys(r, at, "type normalizers") && get_array(r, at, "normalizers", &list);
		if (ok && depth == MAX_NESTING)
			ok = reject(r, A0502, at, "sequences nested more than %d deep", MAX_NESTING);
		for (size_t i = 0; ok && i < json_array_size(list.v); i++)
			ok = read_normalizers(r, element(r, list, i), depth + 1);
		return ok;
	}
	if (str_is(type, "Replace")) {
		int code;
		Str literal = {0}, content;
		if (!only_keys(r, at, "type pattern content") || !read_program(r, at, &code, &literal) ||
			!short_string(r, at, "content", &content))
			return false;
		SpecStep *s = add_step(r, at, TOK_STEP_REPLACE);
		if (s)
			*s = (SpecStep){s->kind, 0, code, content, literal};
		return s != NULL;
	}
	if (str_is(type, "Prepend")) {
		Str text;
		if (!only_keys(r, at, "type prepend") || !short_string(r, at, "prepend", &text))
			return false;
		SpecStep *s = add_step(r, at, TOK_STEP_PREPEND);
		if (s)
			s->string = text;
		return s != NULL;
	}
	return refuse_type(r, at, type, NORMALIZERS);
}

bool read_normalizer(Reader *r, Json at)
{
	bool ok = !at.v || read_normalizers(r, at, 0);
	r->spec->n_normalizers = r->spec->steps.n;
	return ok;
}

/* Pre-tokenizer --------------------------------------------------------------------------- */

static bool read_split(Reader *r, Json at)
{
	static const char *const behaviours[] = {"Isolated", "Removed", "MergedWithPrevious",
		"MergedWithNext", "Contiguous"};
	static_assert(sizeof behaviours / sizeof *behaviours == TOK_BEHAVIOUR_COUNT, "one name each");
	int code;
	bool invert;
	Str literal = {0}, behaviour;
	if (!only_keys(r, at, "type pattern behavior invert") || !read_program(r, at, &code, &literal) ||
		!get_string(r, at, "behavior", &behaviour) || !get_bool_or(r, at, "invert", false, &invert))
		return false;
	for (unsigned b = 0; b < TOK_BEHAVIOUR_COUNT; b++) {
		if (!str_is(behaviour, behaviours[b]))
			continue;
		SpecStep *s = add_step(r, at, TOK_STEP_SPLIT);
		if (s)
			*s = (SpecStep){s->kind, b | (invert ? TOK_SPLIT_INVERT : 0u), code, {0}, literal};
		return s != NULL;
	}
	return reject(r, A0502, child(r, at, "behavior"), "%s is not supported; accepted are Isolated, "
		"Removed, MergedWithPrevious, MergedWithNext, Contiguous", quoted(r, behaviour));
}

static bool read_byte_level(Reader *r, Json at)
{
	static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
		"\\s+(?!\\S)|\\s+";
	bool space, regex, trim;
	char why[160];
	if (!only_keys(r, at, "type add_prefix_space trim_offsets use_regex") ||
		!get_bool(r, at, "add_prefix_space", &space) || !get_bool_or(r, at, "use_regex", true, &regex) ||
		!get_bool_or(r, at, "trim_offsets", true, &trim))
		return false;
	r->spec->flags |= TOK_BYTE_LEVEL;
	if (space && !add_step(r, at, TOK_STEP_SPACE))
		return false;
	if (!regex)
		return true;
	SpecStep *s = add_step(r, at, TOK_STEP_SPLIT);
	if (!s)
		return false;
	s->flags = TOK_ISOLATED;
	s->code = compile_pattern(r->arena, r->spec, (Str){gpt2, sizeof gpt2 - 1}, why, sizeof why);
	if (s->code < 0)
		bug("the GPT-2 pattern does not compile: %s", why);
	return true;
}

static bool read_scheme(Reader *r, Json at, TokScheme *out)
{
	static const char *const schemes[] = {"always", "first", "never"};
	static_assert(sizeof schemes / sizeof *schemes == TOK_SCHEME_COUNT, "one name a scheme");
	Json named = child(r, at, "prepend_scheme");
	bool add;
	Str name;
	*out = TOK_PREPEND_ALWAYS;
	if (named.v) {
		if (!get_string(r, at, "prepend_scheme", &name))
			return false;
		unsigned s = 0;
		while (s < TOK_SCHEME_COUNT && !str_is(name, schemes[s]))
			s++;
		if (s == TOK_SCHEME_COUNT)
			return reject(r, A0502, named, "%s is not supported; accepted are always, first, never",
				quoted(r, name));
		*out = (TokScheme)s;
	}
	if (!get_bool_or(r, at, "add_prefix_space", true, &add))
		return false;
	if (!add && named.v && *out != TOK_PREPEND_NEVER)
		return reject(r, A0503, at, "add_prefix_space is false but prepend_scheme is not never");
	if (!add)
		*out = TOK_PREPEND_NEVER;
	return true;
}

static bool read_metaspace(Reader *r, Json at)
{
	Str mark;
	TokScheme scheme;
	bool split;
	if (!only_keys(r, at, "type replacement add_prefix_space prepend_scheme split str_rep") ||
		!get_point(r, at, "replacement", &mark) || !read_scheme(r, at, &scheme) ||
		!get_bool_or(r, at, "split", true, &split))
		return false;
	SpecStep *s = add_step(r, at, TOK_STEP_METASPACE);
	if (!s)
		return false;
	s->flags = scheme;
	s->string = mark;
	if (!split)
		return true;
	int code = compile_literal(r->arena, r->spec, mark);
	s = add_step(r, at, TOK_STEP_SPLIT);
	if (s)
		*s = (SpecStep){s->kind, TOK_WITH_NEXT, code, {0}, mark};
	return s != NULL;
}

static bool read_pre_tokenizers(Reader *r, Json at, int depth)
{
	Str type;
	if (!get_string(r, at, "type", &type))
		return false;
	if (r->spec->flags & TOK_BYTE_LEVEL)
		return reject(r, A0502, at, "a step after ByteLevel; ByteLevel must be the last");
	if (str_is(type, "Split"))
		return read_split(r, at);
	if (str_is(type, "ByteLevel"))
		return read_byte_level(r, at);
	if (str_is(type, "Metaspace"))
		return read_metaspace(r, at);
	if (str_is(type, "Digits")) {
		bool single;
		if (!only_keys(r, at, "type individual_digits") ||
			!get_bool(r, at, "individual_digits", &single))
			return false;
		SpecStep *s = add_step(r, at, TOK_STEP_SPLIT);
		if (!s)
			return false;
		s->flags = single ? TOK_ISOLATED : TOK_CONTIGUOUS;
		s->code = compile_numeric(r->arena, r->spec);
		return true;
	}
	if (str_is(type, "Sequence")) {
		Json list;
		bool ok = only_keys(r, at, "type pretokenizers") && get_array(r, at, "pretokenizers", &list);
		if (ok && depth == MAX_NESTING)
			ok = reject(r, A0502, at, "sequences nested more than %d deep", MAX_NESTING);
		for (size_t i = 0; ok && i < json_array_size(list.v); i++)
			ok = read_pre_tokenizers(r, element(r, list, i), depth + 1);
		return ok;
	}
	return refuse_type(r, at, type, PRE_TOKENIZERS);
}

bool read_pre_tokenizer(Reader *r, Json at)
{
	return !at.v || read_pre_tokenizers(r, at, 0);
}

/* Decoder --------------------------------------------------------------------------------- */

typedef struct DecoderState {
	bool fused, bytes, fallback; /* texts are joined; ByteLevel was met; ByteFallback was met */
} DecoderState;

int alphabet_byte(uint32_t cp)
{
	if ((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255))
		return (int)cp;
	if (cp < 256 || cp >= 256 + 68)
		return -1;
	cp -= 256; /* the 68 others in order: 0..32, 127..160, 173 */
	return (int)(cp < 33 ? cp : cp < 67 ? cp - 33 + 127 : 173);
}

/* Bytes of a text of the alphabet; the text itself if it has any other character. */
static Str alphabet_bytes(Arena *a, Str s)
{
	char *out = arena_alloc(a, s.n + 1);
	size_t n = 0;
	for (size_t i = 0; i < s.n;) {
		uint32_t cp;
		i += (size_t)utf8_next(s.at + i, &cp);
		int byte = alphabet_byte(cp);
		if (byte < 0)
			return s;
		out[n++] = (char)byte;
	}
	return (Str){out, n};
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void mark_byte_tokens(Reader *r)
{
	for (int id = 0; id < r->spec->n_ids; id++) {
		SpecToken *t = &r->spec->tokens[id];
		if (t->text.n != 6 || memcmp(t->text.at, "<0x", 3) || t->text.at[5] != '>')
			continue;
		int high = hex_digit(t->text.at[3]), low = hex_digit(t->text.at[4]);
		if (high < 0 || low < 0)
			continue;
		char *byte = arena_alloc(r->arena, 1);
		*byte = (char)(high * 16 + low);
		t->text = (Str){byte, 1};
		t->flags |= TOK_BYTE;
	}
	r->spec->decode = TOK_DECODE_FALLBACK;
}

/* Metaspace: spaces for the mark, but nothing for it in the first text. */
static void decode_metaspace(Reader *r, Str mark, TokScheme scheme)
{
	for (int id = 0; id < r->spec->n_ids; id++) {
		SpecToken *t = &r->spec->tokens[id];
		if (!t->text.at || !memmem(t->text.at, t->text.n, mark.at, mark.n))
			continue;
		if (scheme != TOK_PREPEND_NEVER)
			t->first = str_replace(r->arena, t->text, mark, (Str){"", 0});
		t->text = str_replace(r->arena, t->text, mark, (Str){" ", 1});
	}
}

static Str strip_text(Str s, Str point, int64_t start, int64_t stop)
{
	for (; start > 0 && s.n >= point.n && !memcmp(s.at, point.at, point.n); start--) {
		s.at += point.n;
		s.n -= point.n;
	}
	for (; stop > 0 && s.n >= point.n && !memcmp(s.at + s.n - point.n, point.at, point.n); stop--)
		s.n -= point.n;
	return s;
}

static bool read_strip(Reader *r, Json at, const DecoderState *state)
{
	TokenizerSpec *spec = r->spec;
	int64_t start, stop;
	Str point;
	if (!only_keys(r, at, "type content start stop") || !get_point(r, at, "content", &point) ||
		!get_count(r, at, "start", &start) || !get_count(r, at, "stop", &stop))
		return false;
	if (!state->fused) {
		for (int id = 0; id < spec->n_ids; id++) {
			SpecToken *t = &spec->tokens[id];
			if (t->text.at)
				t->text = strip_text(t->text, point, start, stop);
			if (t->first.at)
				t->first = strip_text(t->first, point, start, stop);
		}
		return true;
	}
	if (stop || start > INT32_MAX || spec->strip_count)
		return reject(r, A0502, at, "after Fuse only one Strip, with stop 0, is supported");
	spec->strip_count = (uint32_t)start;
	utf8_next(point.at, &spec->strip_point);
	return true;
}

static bool decode_each(Reader *r, Json at, Str type, DecoderState *state)
{
	TokenizerSpec *spec = r->spec;
	if (str_is(type, "ByteLevel")) {
		if (!only_keys(r, at, "type add_prefix_space trim_offsets use_regex"))
			return false;
		for (int id = 0; id < spec->n_ids; id++) {
			SpecToken *t = &spec->tokens[id];
			if (t->text.at)
				t->text = alphabet_bytes(r->arena, t->text);
			if (t->first.at)
				t->first = alphabet_bytes(r->arena, t->first);
		}
		state->fused = state->bytes = true;
		return true;
	}
	if (str_is(type, "Replace")) {
		bool regex;
		Str what, by;
		if (!only_keys(r, at, "type pattern content") || !read_pattern(r, at, &regex, &what) ||
			!short_string(r, at, "content", &by))
			return false;
		if (regex)
			return reject(r, A0502, at, "Replace of a Regex in a decoder; accepted is String");
		for (int id = 0; id < spec->n_ids; id++) {
			SpecToken *t = &spec->tokens[id];
			if (t->text.at)
				t->text = str_replace(r->arena, t->text, what, by);
			if (t->first.at)
				t->first = str_replace(r->arena, t->first, what, by);
		}
		return true;
	}
	Str mark;
	TokScheme scheme;
	if (!only_keys(r, at, "type replacement add_prefix_space prepend_scheme split str_rep") ||
		!get_point(r, at, "replacement", &mark) || !read_scheme(r, at, &scheme))
		return false;
	decode_metaspace(r, mark, scheme);
	return true;
}

static bool read_decoders(Reader *r, Json at, int depth, DecoderState *state)
{
	Str type;
	if (!get_string(r, at, "type", &type))
		return false;
	if (str_is(type, "Sequence")) {
		Json list;
		bool ok = only_keys(r, at, "type decoders") && get_array(r, at, "decoders", &list);
		if (ok && depth == MAX_NESTING)
			ok = reject(r, A0502, at, "sequences nested more than %d deep", MAX_NESTING);
		for (size_t i = 0; ok && i < json_array_size(list.v); i++)
			ok = read_decoders(r, element(r, list, i), depth + 1, state);
		return ok;
	}
	if (str_is(type, "Fuse")) {
		state->fused = true;
		return only_keys(r, at, "type");
	}
	if (str_is(type, "Strip")) {
		if (!state->fused && state->fallback)
			return reject(r, A0502, at, "Strip between ByteFallback and Fuse");
		return read_strip(r, at, state);
	}
	bool fallback = str_is(type, "ByteFallback");
	if (!fallback && !str_is(type, "ByteLevel") && !str_is(type, "Replace") && !str_is(type, "Metaspace"))
		return refuse_type(r, at, type, DECODERS);
	if (state->fused || state->fallback)
		return reject(r, A0502, at, "%s after ByteLevel, ByteFallback or Fuse", quoted(r, type));
	if (!fallback)
		return decode_each(r, at, type, state);
	state->fallback = true;
	mark_byte_tokens(r);
	return only_keys(r, at, "type");
}

bool read_decoder(Reader *r, Json at)
{
	DecoderState state = {0};
	r->spec->decode = at.v ? TOK_DECODE_BYTES : TOK_DECODE_SPACED;
	return !at.v || read_decoders(r, at, 0, &state);
}
