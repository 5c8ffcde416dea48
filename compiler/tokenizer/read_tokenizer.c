/* read_tokenizer.c - tokenizer.json and the files next to it, checked, to a TokenizerSpec.
 *
 * The reference for every meaning of tokenizer.json is the Python library `tokenizers`, with which models are
 * trained; where that library guesses, warns or renumbers, this reader refuses, because a wrong
 * id is silent. What it does not implement it names (A0502); what contradicts itself, too (A0503).
 * The reference for a folder as a whole is AutoTokenizer of transformers: read_tokenizer_config.c has the other files,
 * tokenizer_class.c the classes that build parts themselves, add_tokens.c the added tokens.
 */
#include "compiler/tokenizer/read_tokenizer.h"
#include "compiler/text/input.h"
#include "compiler/tokenizer/tokenizer_config.h"

#include <assert.h>
#include <string.h>

enum { MAX_NESTING = 8, MAX_TEMPLATE_IDS = 64 };

#define TOP_KEYS "version truncation padding added_tokens normalizer pre_tokenizer post_processor " \
	"decoder model"
#define MODEL_KEYS "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk " \
	"byte_fallback ignore_merges vocab merges"

/* Model: vocabulary ------------------------------------------------------------------------- */

static bool is_keyed(const Reader *r, Str name, Str *key)
{
	*key = name;
	if (!(r->spec->flags & TOK_BYTE_LEVEL))
		return name.n > 0;
	char *bytes = arena_alloc(r->arena, name.n + 1);
	size_t n = 0;
	for (size_t i = 0; i < name.n;) {
		uint32_t cp;
		i += (size_t)utf8_next(name.at + i, &cp);
		int byte = alphabet_byte(cp);
		if (byte < 0)
			return false;
		bytes[n++] = (char)byte;
	}
	*key = (Str){bytes, n};
	return n > 0;
}

static Json vocab_entry(Reader *r, const char *key)
{
	return (Json){NULL, arena_printf(r->arena, "model.vocab[%s]", quoted(r, (Str){key, strlen(key)}))};
}

/* One more than the largest id of the vocabulary below `rows`, so that a large embedding, or none to compare with,
 * costs nothing. */
static int ids_named(const Reader *r, int rows)
{
	json_int_t largest = 0;
	const char *key;
	json_t *v;
	json_object_foreach(r->vocab, key, v)
		if (json_integer_value(v) > largest && json_integer_value(v) < rows)
			largest = json_integer_value(v);
	return (int)largest + 1;
}

/* room: for ids of added tokens after those of the vocabulary. */
static bool read_vocab(Reader *r, int room, int rows)
{
	TokenizerSpec *spec = r->spec;
	const char *key;
	json_t *v;
	bool ok = true;
	const char *beyond = NULL; /* the first whose id has no row */
	int n_beyond = 0;
	spec->tokens = ARENA_ARRAY(r->arena, SpecToken, ids_named(r, rows) + room);
	json_object_foreach(r->vocab, key, v) {
		int id;
		Str name = {key, strlen(key)};
		if (!json_is_integer(v) || json_integer_value(v) < 0) {
			ok = reject(r, A0504, vocab_entry(r, key), "expected an id, an integer that is not negative");
			continue;
		}
		if (json_integer_value(v) >= rows) {
			beyond = n_beyond++ ? beyond : key;
			continue;
		}
		id = (int)json_integer_value(v);
		SpecToken *t = &spec->tokens[id];
		if (t->name.at)
			ok = reject(r, A0503, vocab_entry(r, key), "id %d belongs to %s, too", id, quoted(r, t->name));
		if (name.n > TOK_MAX_STRING)
			ok = reject(r, A0502, vocab_entry(r, key), "a token of %zu bytes; the limit is %d", name.n,
				TOK_MAX_STRING);
		t->name = t->text = name;
		t->flags = TOK_EXISTS;
		if (is_keyed(r, name, &t->key))
			t->flags |= TOK_KEYED;
		if (id >= spec->n_ids)
			spec->n_ids = id + 1;
	}
	if (beyond)
		ok = reject(r, A0503, vocab_entry(r, beyond), "id %lld is not below %d, the rows of the embedding%s",
			(long long)json_integer_value(json_object_get(r->vocab, beyond)), rows, n_beyond > 1
			? arena_printf(r->arena, ", nor %s %d other%s", n_beyond > 2 ? "are" : "is", n_beyond - 1,
				n_beyond > 2 ? "s" : "") : "");
	return ok;
}

/* Id of a token of the model's vocabulary by its name, or -1. */
static int vocab_id(const Reader *r, const char *name, size_t n)
{
	const json_t *v = json_object_getn(r->vocab, name, n);
	return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

/* The ids that single bytes become: at byte level, those of the alphabet; for byte fallback, those
 * of "<0x00>" to "<0xFF>". */
static void find_byte_ids(Reader *r)
{
	TokenizerSpec *spec = r->spec;
	if (spec->flags & TOK_BYTE_LEVEL) {
		for (int id = 0; id < spec->n_ids; id++) {
			const SpecToken *t = &spec->tokens[id];
			if (t->flags & TOK_KEYED && t->key.n == 1)
				spec->byte_ids[(unsigned char)*t->key.at] = (uint32_t)id + 1;
		}
		return;
	}
	for (int b = 0; b < 256; b++) {
		char name[8];
		snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
		spec->byte_ids[b] = (uint32_t)(vocab_id(r, name, 6) + 1);
	}
}

/* Model: merges ----------------------------------------------------------------------------- */

static Json merge_path(Reader *r, size_t i, json_t *v)
{
	return (Json){v, arena_printf(r->arena, "model.merges[%zu]", i)};
}

/* Both parts of a merge: a pair of strings, or one string with a single space inside. */
static bool merge_parts(Reader *r, size_t i, json_t *v, bool pairs, Str *left, Str *right)
{
	if (pairs) {
		const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
		if (json_array_size(v) != 2 || !json_is_string(a) || !json_is_string(b))
			return reject(r, A0504, merge_path(r, i, v), "expected a pair of strings, like the first merge");
		*left = (Str){json_string_value(a), json_string_length(a)};
		*right = (Str){json_string_value(b), json_string_length(b)};
		return true;
	}
	if (!json_is_string(v))
		return reject(r, A0504, merge_path(r, i, v), "expected a string, like the first merge");
	Str s = {json_string_value(v), json_string_length(v)};
	const char *space = memchr(s.at, ' ', s.n);
	if (!space || memchr(space + 1, ' ', (size_t)(s.at + s.n - space - 1)))
		return reject(r, A0503, merge_path(r, i, v), "%s: expected two tokens with one space between",
			quoted(r, s));
	*left = (Str){s.at, (size_t)(space - s.at)};
	*right = (Str){space + 1, s.n - left->n - 1};
	return true;
}

static bool resolve_merge(Reader *r, size_t i, json_t *v, Str left, Str right, TokMerge *out)
{
	char joined[2 * TOK_MAX_STRING];
	Str parts[3] = {left, right, {joined, left.n + right.n}};
	int ids[3];
	if (parts[2].n > TOK_MAX_STRING)
		return reject(r, A0502, merge_path(r, i, v), "makes a token of %zu bytes; the limit is %d",
			parts[2].n, TOK_MAX_STRING);
	memcpy(joined, left.at, left.n);
	memcpy(joined + left.n, right.at, right.n);
	for (int k = 0; k < 3; k++) {
		ids[k] = vocab_id(r, parts[k].at, parts[k].n);
		if (ids[k] < 0)
			return reject(r, A0503, merge_path(r, i, v), "%s is not a token of the vocabulary",
				quoted(r, parts[k]));
	}
	*out = (TokMerge){(uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)ids[2]};
	return true;
}

static bool read_merges(Reader *r, Json list)
{
	TokenizerSpec *spec = r->spec;
	size_t n = json_array_size(list.v), slots = 16;
	while (slots * 3 < n * 4 + 4)
		slots *= 2;
	spec->merge_slots = (uint32_t)slots;
	spec->merge_hash = ARENA_ARRAY(r->arena, uint32_t, slots);
	bool pairs = json_is_array(json_array_get(list.v, 0)), ok = true;
	for (size_t i = 0; i < n; i++) {
		Str left, right;
		TokMerge m;
		json_t *v = json_array_get(list.v, i);
		if (!pairs && json_is_string(v) && !strncmp(json_string_value(v), "#version", 8))
			continue;
		if (!merge_parts(r, i, v, pairs, &left, &right) || !resolve_merge(r, i, v, left, right, &m)) {
			ok = false;
			continue;
		}
		uint32_t slot = tok_hash_pair(m.left, m.right) & (spec->merge_slots - 1), other;
		while ((other = spec->merge_hash[slot]) != 0) {
			if (spec->merges.at[other - 1].left == m.left && spec->merges.at[other - 1].right == m.right)
				ok = reject(r, A0503, merge_path(r, i, v), "the same pair as the merge of rank %u",
					other - 1);
			slot = (slot + 1) & (spec->merge_slots - 1);
		}
		*vec_push(r->arena, &spec->merges) = m;
		spec->merge_hash[slot] = (uint32_t)spec->merges.n;
	}
	return ok;
}

/* An option that may only be absent, null or empty. */
static bool must_be_empty(Reader *r, Json model, const char *key)
{
	Json at = child(r, model, key);
	if (!at.v || (json_is_string(at.v) && !json_string_length(at.v)) ||
		(json_is_number(at.v) && json_number_value(at.v) == 0))
		return true;
	return reject(r, A0502, at, "not supported; accepted is null");
}

static bool read_model_flags(Reader *r, Json model)
{
	static const struct { const char *key; uint32_t flag; } flags[] = {
		{"fuse_unk", TOK_FUSE_UNK}, {"byte_fallback", TOK_BYTE_FALLBACK},
		{"ignore_merges", TOK_IGNORE_MERGES}};
	bool ok = true;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		bool on;
		ok &= get_bool_or(r, model, flags[i].key, false, &on);
		r->spec->flags |= on ? flags[i].flag : 0;
	}
	return ok & must_be_empty(r, model, "dropout") & must_be_empty(r, model, "continuing_subword_prefix") &
		must_be_empty(r, model, "end_of_word_suffix");
}

static bool read_unk(Reader *r, Json model)
{
	Str unk;
	Json at = child(r, model, "unk_token");
	r->spec->unk_id = -1;
	if (!at.v)
		return true;
	if (!get_string(r, model, "unk_token", &unk))
		return false;
	r->spec->unk_id = vocab_id(r, unk.at, unk.n);
	return r->spec->unk_id >= 0 ||
		reject(r, A0503, at, "%s is not a token of the vocabulary", quoted(r, unk));
}

/* At byte level every byte should have a token, or text is lost. */
static bool check_bytes(Reader *r)
{
	const TokenizerSpec *spec = r->spec;
	int missing = 0, first = -1;
	for (int b = 0; b < 256; b++)
		if (!spec->byte_ids[b]) {
			missing++;
			first = first < 0 ? b : first;
		}
	Json at = {NULL, "model.vocab"};
	if (!missing || !(spec->flags & (TOK_BYTE_LEVEL | TOK_BYTE_FALLBACK)))
		return true;
	if (spec->flags & TOK_BYTE_LEVEL && spec->flags & TOK_BYTE_FALLBACK)
		return reject(r, A0502, at, "byte_fallback in a byte-level vocabulary that lacks byte 0x%02X", first);
	if (missing == 256 && spec->flags & TOK_BYTE_LEVEL && spec->unk_id < 0)
		return reject(r, A0503, at, "no token for any of the 256 bytes: every text would be lost");
	note_at(r->diags, A0503, (Loc){r->file, 0, 0}, "model.vocab: no token for %d of the 256 bytes, the "
		"first is 0x%02X; they become %s", missing, (unsigned)first,
		spec->unk_id >= 0 ? "the unknown token" : "nothing");
	return true;
}

static bool read_model(Reader *r, Json model, int room, int rows)
{
	Json merges, vocab = child(r, model, "vocab");
	Str type;
	if (child(r, model, "type").v && !get_string(r, model, "type", &type))
		return false;
	if (child(r, model, "type").v && !str_is(type, "BPE"))
		return reject(r, A0502, child(r, model, "type"), "%s is not supported; accepted is BPE",
			quoted(r, type));
	if (!json_is_object(vocab.v))
		return reject(r, A0504, vocab, "expected an object of tokens and ids");
	r->vocab = vocab.v;
	bool ok = only_keys(r, model, MODEL_KEYS);
	ok &= read_model_flags(r, model);
	ok &= get_array(r, model, "merges", &merges);
	if (!read_vocab(r, room, rows) || !ok)
		return false;
	ok = read_unk(r, model);
	find_byte_ids(r);
	return ok & check_bytes(r) & read_merges(r, merges);
}

/* Post-processor ------------------------------------------------------------------------------ */

static bool push_special(Reader *r, Json specials, Json piece, bool behind)
{
	TokenizerSpec *spec = r->spec;
	Str name;
	Json ids;
	if (!get_string(r, piece, "id", &name))
		return false;
	Json token = {json_object_getn(specials.v, name.at, name.n),
		arena_printf(r->arena, "%s[%s]", specials.path, quoted(r, name))};
	if (!json_is_object(token.v))
		return reject(r, A0503, piece, "%s is not among special_tokens", quoted(r, name));
	if (!only_keys(r, token, "id ids tokens") || !get_array(r, token, "ids", &ids))
		return false;
	for (size_t i = 0; i < json_array_size(ids.v); i++) {
		Json at = element(r, ids, i);
		if (!json_is_integer(at.v) || json_integer_value(at.v) < 0 ||
			json_integer_value(at.v) >= spec->n_ids || !spec->tokens[json_integer_value(at.v)].name.at)
			return reject(r, A0503, at, "not the id of a token");
		if (spec->prefix.n + spec->suffix.n == MAX_TEMPLATE_IDS)
			return reject(r, A0502, at, "more than %d template ids", MAX_TEMPLATE_IDS);
		uint32_t id = (uint32_t)json_integer_value(at.v);
		if (behind)
			*vec_push(r->arena, &spec->suffix) = id;
		else
			*vec_push(r->arena, &spec->prefix) = id;
	}
	return true;
}

static bool read_template(Reader *r, Json at)
{
	TokenizerSpec *spec = r->spec;
	Json single, specials = child(r, at, "special_tokens");
	Str id;
	bool behind = false;
	if (!only_keys(r, at, "type single pair special_tokens") || !get_array(r, at, "single", &single))
		return false;
	if (spec->prefix.n || spec->suffix.n)
		return reject(r, A0502, at, "two templates that add tokens");
	for (size_t i = 0; i < json_array_size(single.v); i++) {
		Json piece = element(r, single, i), special = child(r, piece, "SpecialToken");
		Json sequence = child(r, piece, "Sequence");
		if (special.v) {
			if (!push_special(r, specials, special, behind))
				return false;
			continue;
		}
		if (!sequence.v)
			return reject(r, A0504, piece, "expected SpecialToken or Sequence");
		if (!get_string(r, sequence, "id", &id))
			return false;
		if (behind || !str_is(id, "A"))
			return reject(r, A0502, piece, "a single template other than one Sequence A");
		behind = true;
	}
	return behind || reject(r, A0502, single, "a single template without Sequence A");
}

static bool read_post_processor(Reader *r, Json at, int depth)
{
	Str type;
	Json list;
	if (!at.v)
		return true;
	if (!get_string(r, at, "type", &type))
		return false;
	if (str_is(type, "ByteLevel")) /* it moves offsets, which no one asks for here */
		return only_keys(r, at, "type add_prefix_space trim_offsets use_regex");
	if (str_is(type, "TemplateProcessing"))
		return read_template(r, at);
	if (!str_is(type, "Sequence"))
		return reject(r, A0502, at, "type %s is not supported; accepted are ByteLevel, "
			"TemplateProcessing, Sequence", quoted(r, type));
	if (!only_keys(r, at, "type processors") || !get_array(r, at, "processors", &list))
		return false;
	bool ok = depth < MAX_NESTING || reject(r, A0502, at, "sequences nested more than %d deep", MAX_NESTING);
	for (size_t i = 0; ok && i < json_array_size(list.v); i++)
		ok = read_post_processor(r, element(r, list, i), depth + 1);
	return ok;
}

/* Files --------------------------------------------------------------------------------------- */

static bool read_root(Reader *r, const TokenizerConfig *config, json_t *root, int rows)
{
	Json top = {root, ""}, file = {root, "top level"};
	Str version;
	if (!only_keys(r, file, TOP_KEYS))
		return false;
	if (!get_string(r, top, "version", &version))
		return false;
	if (!str_is(version, "1.0"))
		return reject(r, A0502, child(r, top, "version"), "%s is not supported; accepted is 1.0",
			quoted(r, version));
	static const char *const unused[] = {"truncation", "padding"};
	for (int i = 0; i < 2; i++)
		if (child(r, top, unused[i]).v)
			note_at(r->diags, A0502, (Loc){r->file, 0, 0}, "%s: not applied; text is never cut or filled",
				unused[i]);
	Json model = child(r, top, "model");
	if (!json_is_object(model.v))
		return reject(r, A0504, model, "expected an object");
	bool ok = read_normalizer(r, child(r, top, "normalizer"));
	ok &= read_pre_tokenizer(r, child(r, top, "pre_tokenizer"));
	if (!read_model(r, model, most_added(config, root), rows) || !ok)
		return false;
	ok = add_tokens(r, config, root, rows);
	ok &= read_decoder(r, child(r, top, "decoder"));
	return ok & read_post_processor(r, child(r, top, "post_processor"), 0);
}

/* The pad_token of a padding in tokenizer.json is a special token, where nothing else names one. */
static void take_padding(Reader *r, TokenizerConfig *t, const json_t *root)
{
	const json_t *pad = json_object_get(json_object_get(root, "padding"), "pad_token");
	NamedToken *n = &t->named.at[NAMED_PAD];
	if (!json_is_string(pad) || n->is_given || (t->class && t->class->keeps_pad))
		return;
	n->is_given = n->is_set = true;
	n->token = (DeclaredToken){.content = {json_string_value(pad), json_string_length(pad)},
		.flags = TOK_ADDED_SPECIAL, .is_plain = true, .id = -1, .at = {r->file, 0, 0}};
}

/* add_bos_token and add_eos_token: where there is a tokenizer.json, its post-processor counts (so does
 * transformers since 5.0), so that a contradiction is only worth a remark. */
static void compare_template(Reader *r, const TokenizerConfig *t, const char *key, int id, const uint32_t *ids, int n)
{
	const Value *v = value_get(t->top, key);
	bool does = false;
	if (!v || v->kind != VALUE_BOOL)
		return;
	for (int i = 0; i < n; i++)
		does |= (int)ids[i] == id;
	if (v->boolean != does)
		note_at(r->diags, A0503, v->at, "%s: %s, but the post_processor of tokenizer.json %s this token, and it "
			"decides", key, v->boolean ? "true" : "false", does ? "adds" : "does not add");
}

/* The first Regex of a Split somewhere in a pre_tokenizer, or NULL. */
static const char *split_pattern(const json_t *part)
{
	const json_t *list = json_object_get(part, "pretokenizers"), *v;
	const char *found = json_string_value(json_object_get(json_object_get(part, "pattern"), "Regex"));
	for (size_t i = 0; !found && (v = json_array_get(list, i)) != NULL; i++)
		found = split_pattern(v);
	return found;
}

/* pretokenize_regex, which transformers never reads: Qwen3.5 says there what its class should do. */
static void compare_pattern(Reader *r, const TokenizerConfig *t, const json_t *root)
{
	const Value *v = value_get(t->top, "pretokenize_regex");
	const char *pattern = split_pattern(json_object_get(root, "pre_tokenizer"));
	if (v && v->kind == VALUE_STRING && (!pattern || strcmp(pattern, v->string) != 0))
		note_at(r->diags, A0510, v->at, "pretokenize_regex is not used, as in transformers: text is split by what %s "
			"has", t->class ? t->class->name : "tokenizer.json");
}

/* The texts of the special tokens that have names. */
static void name_special(Arena *a, const TokenizerConfig *t, TokenizerImage *out)
{
	NamedText *list = ARENA_ARRAY(a, NamedText, t->named.n + 1);
	for (int i = 0; i < t->named.n; i++) {
		const NamedToken *n = &t->named.at[i];
		if (n->is_set)
			list[out->n_special++] = (NamedText){n->key, arena_strndup(a, n->token.content.at, n->token.content.n)};
	}
	out->special = list;
}

bool read_tokenizer(Arena *a, Diags *d, const char *model_dir, const char *config_json, const struct Families *families,
	int vocab_rows, TokenizerImage *out)
{
	TokenizerSpec spec = {.form = -1, .bos_id = -1, .eos_id = -1, .unk_id = -1};
	Reader r = {.arena = a, .diags = d, .spec = &spec, .file = input_path(a, model_dir, "tokenizer.json")};
	TokenizerConfig config;
	assert(vocab_rows > 0);
	if (vocab_rows > TOK_MAX_IDS)
		vocab_rows = TOK_MAX_IDS;
	json_t *root = load_json(&r);
	bool ok = read_tokenizer_config(a, d, model_dir, config_json, families, &config) && root;
	ok = ok && apply_tokenizer_class(&r, &config, root);
	if (ok) {
		compare_pattern(&r, &config, root);
		take_padding(&r, &config, root);
	}
	ok = ok && read_root(&r, &config, root, vocab_rows);
	if (ok && !spec.n_ids)
		ok = reject(&r, A0503, (Json){NULL, "model.vocab"}, "no tokens");
	if (ok) {
		compare_template(&r, &config, "add_bos_token", spec.bos_id, spec.prefix.at, spec.prefix.n);
		compare_template(&r, &config, "add_eos_token", spec.eos_id, spec.suffix.at, spec.suffix.n);
		*out = (TokenizerImage){.n_tokens = spec.n_ids < vocab_rows ? spec.n_ids : vocab_rows,
			.bos_id = spec.bos_id, .eos_id = spec.eos_id,
			.eos_at = config.named.at[NAMED_EOS].token.at};
		name_special(a, &config, out);
		out->has_token = ARENA_ARRAY(a, bool, out->n_tokens);
		for (int id = 0; id < out->n_tokens; id++)
			out->has_token[id] = spec.tokens[id].name.at != NULL;
		out->bytes = write_tokenizer(a, &spec, &out->n_bytes);
		if (!out->bytes)
			ok = reject(&r, A0502, (Json){NULL, "tokenizer.json"}, "compiles to more than %d bytes", TOK_MAX_BYTES);
	}
	json_decref(root);
	return ok;
}
