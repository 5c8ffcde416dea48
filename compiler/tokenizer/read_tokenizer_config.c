/* read_tokenizer_config.c - tokenizer_config.json, special_tokens_map.json and added_tokens.json.
 *
 * The reference is `AutoTokenizer.from_pretrained(folder)` of transformers 5.17. What it does with the keys, where a
 * tokenizer.json is there (its own rules for ids are in add_tokens.c):
 *
 *   added_tokens_decoder           tokens by number, the flags of each; where it is absent, and only then, the two old
 *                                  files are read, added_tokens.json for the same purpose
 *   bos_token .. mask_token        seven special tokens: a string, or an object with "__type": "AddedToken"; in
 *                                  special_tokens_map.json any object
 *   *_token                        a special token of any other name
 *   extra_special_tokens           a list of more of them, or an object of named ones
 *   additional_special_tokens      the same, where extra_special_tokens is absent (even null is there)
 *   model_specific_special_tokens  an object of named ones, where the two lines above gave none
 *   tokenizer_class                tokenizer_class.c, with add_prefix_space and legacy, which matter to some classes
 *   add_bos_token, add_eos_token   dropped: the post_processor of tokenizer.json decides
 *   clean_up_tokenization_spaces   dropped for BPE
 *   pretokenize_regex              dropped; reported where it is not the pattern that splits the text
 *   special_tokens_map.json        wins over tokenizer_config.json, except that lists are appended to its
 *                                  extra_special_tokens, and additional_special_tokens count where that is absent
 *
 * Everything else is in one of two tables: keys that change no id and no text with any value, and keys that would,
 * which pass only with the values that do not. A key in neither is named in a note: it may be of the second kind.
 */
#include "compiler/read/config_keys.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"
#include "compiler/tokenizer/tokenizer_config.h"

#include <string.h>

enum { MAX_EXTRA = 1 << 16 };

static const char *const names[NAMED_COUNT] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
	"cls_token", "mask_token"};

static const char *const keys_read[] = {"added_tokens_decoder", "additional_special_tokens", "auto_map",
	"chat_template", "extra_special_tokens", "model_specific_special_tokens", "padding_side", "tokenizer_class",
	"truncation_side"};

static const SpareKey keys_spare[] = {
	/* names, versions, defaults of calls that no one makes here, helpers of training */
	{"_commit_hash", FREE}, {"add_bos_token", FREE}, {"add_eos_token", FREE}, {"add_prefix_space", FREE},
	{"backend", FREE}, {"chat_template_file", FREE}, {"clean_up_tokenization_spaces", FREE}, {"device_map", FREE},
	{"do_lower_case", FREE}, {"errors", FREE}, {"from_slow", FREE}, {"image_processor_type", FREE}, {"is_local", FREE},
	{"legacy", FREE}, {"local_files_only", FREE}, {"max_len", FREE}, {"max_length", FREE}, {"merges_file", FREE},
	{"model_input_names", FREE}, {"model_max_length", FREE}, {"name_or_path", FREE}, {"pad_to_multiple_of", FREE},
	{"pad_token_type_id", FREE}, {"padding", FREE}, {"pretokenize_regex", FREE}, {"processor_class", FREE},
	{"response_schema", FREE},
	{"response_template", FREE}, {"return_token_type_ids", FREE}, {"sp_model_kwargs", FREE},
	{"spaces_between_special_tokens", FREE}, {"special_tokens_map_file", FREE}, {"stride", FREE},
	{"tokenizer_file", FREE}, {"tokenizer_type", FREE}, {"transformers_version", FREE}, {"truncation", FREE},
	{"truncation_strategy", FREE}, {"trust_remote_code", FREE}, {"unk_id", FREE}, {"use_default_system_prompt", FREE},
	{"use_fast", FREE}, {"verbose", FREE}, {"vocab_file", FREE}, {"vocab_size", FREE},
	/* other ids or texts */
	{"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", IS_FALSE},
	{"fast_tokenizer_files", IS_EMPTY}, {"fix_mistral_regex", IS_FALSE}, {"gguf_file", 0}, {"init_inputs", IS_EMPTY},
	{"post_processor", 0}, {"split_special_tokens", IS_FALSE}, {"tokenizer_object", 0}, {"tokenizer_padding", 0},
	{"tokenizer_truncation", 0},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef struct Reading {
	Arena *a;
	Diags *d;
	TokenizerConfig *t;
	DeclaredToken own[NAMED_COUNT]; /* the seven as their own keys say, whichever wins */
} Reading;

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);
	return n >= m && strcmp(s + n - m, tail) == 0;
}

static int name_index(const char *key)
{
	int i = 0;
	while (i < NAMED_COUNT && strcmp(key, names[i]) != 0)
		i++;
	return i;
}

/* Tokens ----------------------------------------------------------------------------------------------- */

/* The fields of an AddedToken. Those the library does not know it passes over. */
static bool read_fields(Reading *r, const char *name, const Value *v, DeclaredToken *t)
{
	static const struct { const char *key; uint32_t flag; } flags[] = {{"lstrip", TOK_ADDED_LSTRIP},
		{"rstrip", TOK_ADDED_RSTRIP}, {"single_word", TOK_ADDED_SINGLE_WORD}, {"special", TOK_ADDED_SPECIAL}};
	const Value *content = value_get(v, "content"), *normalized = value_get(v, "normalized");
	bool ok = true, on;
	*t = (DeclaredToken){.id = -1, .at = v->at};
	if (!content)
		return fail_at(r->d, A0504, v->at, "%s: content is missing", name);
	const char *text;
	if (!want_string(r->d, A0504, "content", content, &text))
		return false;
	t->content = (Str){text, (size_t)content->n};
	for (int i = 0; i < COUNT(flags); i++) {
		const Value *flag = value_get(v, flags[i].key);
		if (flag && !want_bool(r->d, A0504, flags[i].key, flag, &on))
			ok = false;
		else if (flag && on)
			t->flags |= flags[i].flag;
	}
	t->has_normalized = normalized != NULL;
	if (normalized)
		ok &= want_bool(r->d, A0504, "normalized", normalized, &t->normalized);
	return ok;
}

static bool is_typed(const Value *v)
{
	const Value *type = value_get(v, "__type");
	return type && type->kind == VALUE_STRING && strcmp(type->string, "AddedToken") == 0;
}

/* A special token: a string, or an AddedToken; with `any`, whose objects need not say that they are one. */
static bool read_special(Reading *r, const char *name, const Value *v, bool any, DeclaredToken *t)
{
	*t = (DeclaredToken){.id = -1, .at = v->at};
	if (v->kind == VALUE_STRING) {
		t->content = (Str){v->string, (size_t)v->n};
		t->flags = TOK_ADDED_SPECIAL;
		t->is_plain = true;
		return true;
	}
	if (v->kind == VALUE_TABLE && (any || is_typed(v))) {
		if (!read_fields(r, name, v, t))
			return false;
		t->is_late = !any;
		t->flags |= any ? TOK_ADDED_SPECIAL : 0;
		return true;
	}
	return fail_at(r->d, A0504, v->at, "%s = %s: expected a string or an object with \"__type\": \"AddedToken\"", name,
		value_text(r->d->arena, v));
}

static NamedToken *find_named(const TokenizerConfig *t, const char *key)
{
	for (int i = 0; i < t->named.n; i++)
		if (strcmp(t->named.at[i].key, key) == 0)
			return &t->named.at[i];
	return NULL;
}

/* token: NULL = null. The library keeps names of its own in two lists, objects and strings: the first one's order goes
 * before, the second one's values count. */
static void put_named(Reading *r, const char *key, int order, const DeclaredToken *token)
{
	NamedToken *n = find_named(r->t, key);
	if (order == NAMED_STANDARD)
		r->own[name_index(key)] = token ? *token : (DeclaredToken){0};
	if (!n) {
		n = vec_push(r->a, &r->t->named);
		*n = (NamedToken){.key = key, .order = order};
	}
	if (order < n->order || (order == NAMED_STRING && n->order == NAMED_OBJECT && !n->is_set)) {
		/* it goes to the end of the other list */
		const NamedToken moved = *n;
		const int at = (int)(n - r->t->named.at), behind = r->t->named.n - at - 1;
		memmove(n, n + 1, sizeof *n * (size_t)behind);
		n = &r->t->named.at[r->t->named.n - 1];
		*n = moved;
		n->order = order;
	}
	n->is_given = true;
	if (order < n->value_order)
		return;
	n->value_order = order;
	n->is_set = token != NULL;
	n->token = token ? *token : (DeclaredToken){.id = -1};
}

/* Named tokens of an object: extra_special_tokens and model_specific_special_tokens. */
static bool read_named_table(Reading *r, const Value *table)
{
	bool ok = true;
	for (const Value *v = table->first; v; v = v->next) {
		DeclaredToken token;
		if (read_special(r, v->key, v, false, &token))
			put_named(r, v->key, NAMED_STRING, &token);
		else
			ok = false;
	}
	return ok;
}

static bool read_list(Reading *r, const char *name, const Value *list)
{
	bool ok = true;
	int i = 0;
	if (list->n > MAX_EXTRA)
		return fail_at(r->d, A0504, list->at, "%s: more than %d tokens", name, MAX_EXTRA);
	for (const Value *v = list->first; v; v = v->next, i++) {
		DeclaredToken token;
		if (read_special(r, arena_printf(r->a, "%s[%d]", name, i), v, false, &token))
			*vec_push(r->a, &r->t->extra) = token;
		else
			ok = false;
	}
	return ok;
}

/* extra_special_tokens, or additional_special_tokens where that is absent. *is_named: they were an object's. */
static bool read_extra(Reading *r, const Value *v, const char *name, bool *is_named)
{
	*is_named = v->kind == VALUE_TABLE && !is_typed(v);
	if (v->kind == VALUE_NULL)
		return true;
	if (*is_named)
		return read_named_table(r, v);
	if (v->kind == VALUE_ARRAY)
		return read_list(r, name, v);
	return fail_at(r->d, A0504, v->at, "%s = %s: expected a list of tokens or an object of named ones", name,
		value_text(r->d->arena, v));
}

/* tokenizer_config.json ---------------------------------------------------------------------------------- */

static bool read_added_decoder(Reading *r, const Value *table)
{
	bool ok = true;
	if (!want_table(r->d, A0504, "added_tokens_decoder", table))
		return false;
	r->t->has_decoder = true;
	for (const Value *v = table->first; v; v = v->next) {
		const char *name = arena_printf(r->a, "added_tokens_decoder[\"%s\"]",
			clip_text(r->a, v->key, strlen(v->key), 24));
		DeclaredToken token;
		size_t digits = strspn(v->key, "0123456789");
		if (!digits || v->key[digits] || digits > 8) {
			ok = fail_at(r->d, A0504, v->at, "%s: expected the id as the key, up to eight digits", name);
			continue;
		}
		if (v->kind != VALUE_TABLE) {
			ok = fail_at(r->d, A0504, v->at, "%s = %s: expected an object", name, value_text(r->d->arena, v));
			continue;
		}
		ok &= read_fields(r, name, v, &token);
		token.id = strtol(v->key, NULL, 10);
		*vec_push(r->a, &r->t->decoder) = token;
	}
	return ok;
}

/* Names no token, whatever its value. */
static bool is_switch(const char *key)
{
	return strcmp(key, "add_bos_token") == 0 || strcmp(key, "add_eos_token") == 0;
}

static bool read_named(Reading *r, const Value *top)
{
	bool ok = true, named = false;
	const Value *extra = value_get(top, "extra_special_tokens");
	const Value *additional = value_get(top, "additional_special_tokens");
	const Value *specific = value_get(top, "model_specific_special_tokens");
	DeclaredToken token;
	for (const Value *v = top->first; v; v = v->next) {
		const bool standard = name_index(v->key) < NAMED_COUNT;
		if (!standard && v->kind == VALUE_NULL && ends_with(v->key, "_token") && !is_switch(v->key))
			put_named(r, v->key, NAMED_OBJECT, NULL); /* its place, if special_tokens_map.json gives it a value */
		if (!standard && (!ends_with(v->key, "_token") || is_switch(v->key) ||
				!(v->kind == VALUE_STRING || is_typed(v))))
			continue;
		named |= !standard && v->kind == VALUE_STRING;
		if (v->kind == VALUE_NULL)
			put_named(r, v->key, NAMED_STANDARD, NULL);
		else if (read_special(r, v->key, v, false, &token))
			put_named(r, v->key, standard ? NAMED_STANDARD : v->kind == VALUE_STRING ? NAMED_STRING : NAMED_OBJECT,
				&token);
		else
			ok = false;
	}
	if (extra || additional) {
		bool table;
		ok &= read_extra(r, extra ? extra : additional, extra ? "extra_special_tokens" : "additional_special_tokens",
			&table);
		named |= table && (extra ? extra : additional)->n > 0;
	}
	if (specific && specific->kind != VALUE_NULL && !named)
		ok &= want_table(r->d, A0504, "model_specific_special_tokens", specific) && read_named_table(r, specific);
	return ok;
}

/* Every key that is not read: harmless, refused, or named in one note. */
static bool check_spare_keys(Reading *r, const Value *top)
{
	NameList unknown = {0};
	bool ok = true;
	for (const Value *v = top->first; v; v = v->next) {
		bool known = name_index(v->key) < NAMED_COUNT || find_named(r->t, v->key) != NULL ||
			(v->kind == VALUE_NULL && ends_with(v->key, "_token"));
		for (int i = 0; i < COUNT(keys_read) && !known; i++)
			known = strcmp(v->key, keys_read[i]) == 0;
		for (int i = 0; i < COUNT(keys_spare) && !known; i++) {
			known = strcmp(v->key, keys_spare[i].name) == 0;
			if (known && !value_passes(v, keys_spare[i].pass))
				ok = fail_at(r->d, A0508, v->at, "%s = %s: this feature is not implemented", v->key,
					value_text(r->d->arena, v));
		}
		if (!known)
			name_in_list(r->d->arena, &unknown, v);
	}
	if (unknown.text)
		note_at(r->d, A0509, unknown.at, "unknown keys are not used: %s", unknown.text);
	return ok;
}

static bool check_side(Reading *r, const Value *top, const char *key)
{
	const Value *v = value_get(top, key);
	return !v || (v->kind == VALUE_STRING && (!strcmp(v->string, "left") || !strcmp(v->string, "right"))) ||
		fail_at(r->d, A0504, v->at, "%s = %s: expected \"left\" or \"right\"", key, value_text(r->d->arena, v));
}

/* auto_map: a list, or an object whose AutoTokenizer counts. */
static bool check_code(Reading *r, const Value *top)
{
	const Value *v = value_get(top, "auto_map");
	if (v && v->kind == VALUE_TABLE)
		v = value_get(v, "AutoTokenizer");
	return !v || value_passes(v, IS_EMPTY) ||
		fail_at(r->d, A0508, v->at, "auto_map names Python code of the checkpoint: it is never run");
}

/* The two old files ---------------------------------------------------------------------------------------- */

static const Value *read_file(Reading *r, const char *dir, const char *name, bool *ok)
{
	JsonRules rules = json_text_rules;
	rules.code = A0501;
	bool absent;
	Arena scratch = {0};
	const char *path = input_path(r->a, dir, name);
	const Value *v = json_read(r->a, &scratch, r->d, &rules, path, &absent);
	arena_release(&scratch);
	*ok &= v || absent;
	return v;
}

/* special_tokens_map.json. */
static bool read_map(Reading *r, const Value *map, bool has_extra)
{
	bool ok = true, table;
	DeclaredToken token;
	const Value *extra = value_get(map, "extra_special_tokens");
	for (const Value *v = map->first; v; v = v->next) {
		if (v == extra || strcmp(v->key, "additional_special_tokens") == 0)
			continue;
		if (name_index(v->key) == NAMED_COUNT && !ends_with(v->key, "_token"))
			ok = fail_at(r->d, A0504, v->at, "%s: expected the name of a special token, one that ends in _token",
				clip_text(r->d->arena, v->key, strlen(v->key), 48));
		else if (v->kind == VALUE_NULL && name_index(v->key) < NAMED_COUNT)
			put_named(r, v->key, NAMED_STANDARD, NULL);
		else if (v->kind != VALUE_NULL && read_special(r, v->key, v, true, &token))
			put_named(r, v->key, name_index(v->key) < NAMED_COUNT ? NAMED_STANDARD : NAMED_OBJECT, &token);
		else if (v->kind == VALUE_NULL) {
			if (find_named(r->t, v->key) && find_named(r->t, v->key)->order == NAMED_OBJECT)
				put_named(r, v->key, NAMED_OBJECT, NULL);
		}
		else
			ok = false;
	}
	for (const Value *v = extra && extra->kind == VALUE_ARRAY ? extra->first : NULL; v; v = v->next)
		if (value_get(v, "special"))
			ok = fail_at(r->d, A0504, v->at, "extra_special_tokens: an object that says whether it is special");
		else if (read_special(r, "extra_special_tokens", v, true, &token))
			*vec_push(r->a, &r->t->extra) = token;
		else
			ok = false;
	if (extra && extra->kind != VALUE_ARRAY)
		ok &= read_extra(r, extra, "extra_special_tokens", &table);
	const Value *additional = value_get(map, "additional_special_tokens");
	if (additional && !extra && !has_extra) {
		int first = r->t->extra.n;
		ok &= read_extra(r, additional, "additional_special_tokens", &table);
		for (int i = first; i < r->t->extra.n; i++)
			r->t->extra.at[i].is_late = true;
	}
	return ok;
}

static bool is_special(const Reading *r, Str content)
{
	for (int i = 0; i < NAMED_COUNT; i++)
		if (r->own[i].content.n && !r->own[i].is_late && str_same(r->own[i].content, content))
			return true;
	for (int i = 0; i < r->t->extra.n; i++)
		if (!r->t->extra.at[i].is_late && str_same(r->t->extra.at[i].content, content))
			return true;
	return false;
}

/* added_tokens.json: an object of ids by token. */
static bool read_added_file(Reading *r, const Value *top)
{
	bool ok = true;
	for (const Value *v = top->first; v; v = v->next) {
		DeclaredToken t = {.content = {v->key, strlen(v->key)}, .at = v->at};
		if (v->kind != VALUE_REAL || v->real < 0 || v->real >= TOK_MAX_IDS || v->real != (double)(int64_t)v->real) {
			ok = fail_at(r->d, A0504, v->at, "%s = %s: expected an id", clip_text(r->d->arena, v->key, strlen(v->key),
				48), value_text(r->d->arena, v));
			continue;
		}
		t.id = (int64_t)v->real;
		t.flags = is_special(r, t.content) ? TOK_ADDED_SPECIAL : 0;
		t.normalized = !t.flags;
		t.has_normalized = true;
		*vec_push(r->a, &r->t->decoder) = t;
	}
	return ok;
}

static void put_defaults(Reading *r)
{
	const TokenizerClass *class = r->t->class;
	if (!class)
		return;
	const char *const texts[NAMED_COUNT] = {[NAMED_BOS] = class->bos, [NAMED_EOS] = class->eos,
		[NAMED_UNK] = class->unk, [NAMED_PAD] = class->pad, [NAMED_MASK] = class->mask};
	for (int i = 0; i < NAMED_COUNT; i++) {
		DeclaredToken t = {.content = {texts[i], texts[i] ? strlen(texts[i]) : 0}, .flags = TOK_ADDED_SPECIAL,
			.is_plain = true, .id = -1, .at = {r->t->file, 0, 0}};
		if (texts[i] && !r->t->named.at[i].is_given)
			put_named(r, names[i], NAMED_STANDARD, &t);
	}
}

bool read_tokenizer_config(Arena *a, Diags *d, const char *model_dir, const char *config_json,
	const struct Families *families, TokenizerConfig *t)
{
	Reading r = {.a = a, .d = d, .t = t};
	bool ok = true, absent = true;
	*t = (TokenizerConfig){.file = input_path(a, model_dir, "tokenizer_config.json")};
	for (int i = 0; i < NAMED_COUNT; i++)
		*vec_push(a, &t->named) = (NamedToken){.key = names[i]};
	Arena scratch = {0};
	const Value *config = config_json ? json_read(a, &scratch, d, &json_config_rules, config_json, &absent) : NULL;
	arena_release(&scratch);
	ok &= !config_json || config || absent;
	t->top = read_file(&r, model_dir, "tokenizer_config.json", &ok);
	if (!ok)
		return false;
	if (t->top) {
		const Value *decoder = value_get(t->top, "added_tokens_decoder");
		ok &= read_named(&r, t->top);
		ok &= !decoder || read_added_decoder(&r, decoder);
		ok &= check_side(&r, t->top, "padding_side") & check_side(&r, t->top, "truncation_side") &
			check_code(&r, t->top) & check_spare_keys(&r, t->top);
	}
	if (!t->has_decoder && ok) {
		const Value *extra = value_get(t->top, "extra_special_tokens");
		extra = extra ? extra : value_get(t->top, "additional_special_tokens");
		const Value *map = read_file(&r, model_dir, "special_tokens_map.json", &ok);
		ok &= !map || read_map(&r, map, extra && extra->kind != VALUE_TABLE);
		const Value *added = read_file(&r, model_dir, "added_tokens.json", &ok);
		ok &= !added || read_added_file(&r, added);
	}
	ok &= find_tokenizer_class(d, families, config, t->top, &t->class);
	put_defaults(&r);
	return ok;
}
