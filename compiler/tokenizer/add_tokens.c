/* add_tokens.c - the added tokens that a folder has in effect, with their ids and flags.
 *
 * They are those of `AutoTokenizer.from_pretrained(folder)` of transformers 5.17. It adds tokens one by one:
 *
 *   1. those of tokenizer.json, in its order; not if a class builds the tokenizer (tokenizer_class.c), which takes
 *      vocabulary and merges of that file only
 *   2. those of added_tokens_decoder, ascending by the number given there; where that is absent, those of
 *      added_tokens.json together with tokenizer.json's, which win where both have a number
 *   3. of the special tokens, bos, eos, unk, sep, pad, cls, mask, those of other names, then the list of extra
 *      ones, each whose text is not a token of 1 or 2 yet
 *   4. for Qwen2Tokenizer all special tokens of 3 once more, without flags
 *
 * A token that the vocabulary or an earlier step has keeps its id. A new one gets the next: one after the largest id
 * of an added token, or as many as the vocabulary has tokens, if that is more. The numbers that the files give only
 * order them; where they say another id than the one it is, a note does (A0510). In tokenizer.json, which that library
 * renumbers too, it is an error: the file contradicts itself.
 *
 * Added again with other flags, a token has the new flags. What was special once is always left out of decoded text.
 * A token of 2 that a special token of 3 names is special. An empty text is no token.
 *
 * An added token may be after the rows of the embedding, as a [PAD] does if it was not resized: no text
 * that is generated has it, and in a prompt the runtime refuses it. A note names those (A0511).
 */
#include "compiler/tokenizer/tokenizer_config.h"

#include <string.h>

enum { MAX_ADDED_BYTES = 1024 };

typedef struct Adding {
	Reader *r;
	const TokenizerConfig *t;
	int rows, n_vocab;
	int last;              /* largest id of an added token, -1 = none */
	json_t *by_content, *by_matched[2]; /* indices of spec->added; by_matched[normalized] */
	int n_beyond, beyond;  /* tokens after the rows, and the first of them as an index of spec->added */
	int n_moved;           /* tokens with another id than the files say, the report of the first, and its place */
	const char *moved;
	Loc at_moved;
} Adding;

typedef struct Token { /* to be added */
	SpecAdded added;
	int64_t id;  /* that the file says, -1 = none */
	Json at;     /* of tokenizer.json; path NULL = `loc` is its place */
	Loc loc;
} Token;

static bool refuse(Adding *a, Code code, const Token *t, const char *text)
{
	return t->at.path ? reject(a->r, code, t->at, "%s", text) :
		fail_at(a->r->diags, code, t->loc, "%s: %s", quoted(a->r, t->added.content), text);
}

/* The token as its bytes are in normalised text. */
static bool normalize(Adding *a, Token *t)
{
	Arena *arena = a->r->arena;
	const TokenizerSpec *spec = a->r->spec;
	Str s = t->added.content;
	for (int i = 0; t->added.normalized && i < spec->n_normalizers; i++) {
		const SpecStep *step = &spec->steps.at[i];
		if (step->kind == TOK_STEP_PREPEND) {
			char *joined = arena_alloc(arena, step->string.n + s.n + 1);
			memcpy(joined, step->string.at, step->string.n);
			memcpy(joined + step->string.n, s.at, s.n);
			s = (Str){joined, step->string.n + s.n};
		} else if (step->kind == TOK_STEP_REPLACE && step->literal.at) {
			s = str_replace(arena, s, step->literal, step->string);
		} else if (step->kind == TOK_STEP_REPLACE) {
			return refuse(a, A0502, t, "a normalized token together with a normalizer that has a Regex");
		} else {
			s.at = unicode_normalised(arena, spec->norm, s.at, s.n, &s.n);
		}
	}
	t->added.matched = s;
	return s.n ? true : refuse(a, A0503, t, "its normalized form is empty");
}

/* The index that a text has in one of the maps, or -1. */
static int index_of(const json_t *map, Str text)
{
	const json_t *v = json_object_getn(map, text.at, text.n);
	return v ? (int)json_integer_value(v) : -1;
}

static SpecAdded *find_added(const Adding *a, Str content)
{
	const int i = index_of(a->by_content, content);
	return i < 0 ? NULL : &a->r->spec->added.at[i];
}

/* The id of an added token or of one of the vocabulary, or -1. */
static int known_id(const Adding *a, Str content)
{
	const SpecAdded *t = find_added(a, content);
	if (t)
		return (int)t->id;
	const json_t *v = memchr(content.at, 0, content.n) ? NULL :
		json_object_getn(a->r->vocab, content.at, content.n);
	return json_is_integer(v) ? (int)json_integer_value(v) : -1;
}

static bool check_said_id(Adding *a, const Token *t, int known, int id)
{
	const char *name = quoted(a->r, t->added.content);
	if (t->id < 0 || t->id == id)
		return true;
	if (!t->at.path) {
		if (a->n_moved++ == 0) {
			a->moved = arena_printf(a->r->arena, "%s gets id %d, as in transformers, although its entry says %lld: it "
				"is %s",
				name, id, (long long)t->id, known >= 0 ? "a token already" : "the next one");
			a->at_moved = t->loc;
		}
		return true;
	}
	if (known >= 0)
		return reject(a->r, A0503, t->at, "%s has id %lld here and %d in the vocabulary", name, (long long)t->id, id);
	return reject(a->r, A0503, t->at, "%s has id %lld; expected %d, the next free one", name, (long long)t->id, id);
}

static bool add(Adding *a, Token *t)
{
	Reader *r = a->r;
	TokenizerSpec *spec = r->spec;
	const Str content = t->added.content;
	if (content.n > MAX_ADDED_BYTES)
		return refuse(a, A0503, t, arena_printf(r->arena, "%zu bytes; expected at most %d", content.n,
			MAX_ADDED_BYTES));
	if (!content.n)
		return true;
	if (!normalize(a, t))
		return false;
	const int known = known_id(a, content), id = known >= 0 ? known : a->last >= a->n_vocab ? a->last + 1 : a->n_vocab;
	if (!check_said_id(a, t, known, id))
		return false;
	SpecToken *token = &spec->tokens[id];
	if (known < 0 && token->name.at)
		return refuse(a, A0503, t, arena_printf(r->arena, "gets id %d, which belongs to %s, too", id,
			quoted(r, token->name)));
	SpecAdded *old = find_added(a, content);
	json_t *by_matched = a->by_matched[t->added.normalized];
	const int same = index_of(by_matched, t->added.matched), at = old ? (int)(old - spec->added.at) : spec->added.n;
	if (same >= 0 && same != at)
		return refuse(a, A0503, t, arena_printf(r->arena, "is %s in normalised text, as another added token is",
			quoted(r, t->added.matched)));
	if (old)
		json_object_deln(a->by_matched[old->normalized], old->matched.at, old->matched.n);
	json_object_setn_new_nocheck(by_matched, t->added.matched.at, t->added.matched.n, json_integer(at));
	json_object_setn_new_nocheck(a->by_content, content.at, content.n, json_integer(at));
	t->added.id = (uint32_t)id;
	if (old) {
		t->added.flags |= old->flags & TOK_ADDED_SPECIAL;
		*old = t->added;
	} else {
		*vec_push(r->arena, &spec->added) = t->added;
		if (id >= a->rows && a->n_beyond++ == 0)
			a->beyond = spec->added.n - 1;
	}
	if (!old || t->added.normalized) /* decoded text keeps the normalised form once there was one */
		token->name = token->text = t->added.matched;
	token->flags |= TOK_EXISTS;
	a->last = id > a->last ? id : a->last;
	spec->n_ids = id >= spec->n_ids ? id + 1 : spec->n_ids;
	return true;
}

/* tokenizer.json ------------------------------------------------------------------------------------------- */

static bool read_fields(Reader *r, Json at, Token *t)
{
	static const struct { const char *key; uint32_t flag; } flags[] = {
		{"lstrip", TOK_ADDED_LSTRIP}, {"rstrip", TOK_ADDED_RSTRIP},
		{"single_word", TOK_ADDED_SINGLE_WORD}, {"special", TOK_ADDED_SPECIAL}};
	bool ok = only_keys(r, at, "id content single_word lstrip rstrip normalized special");
	Json id = child(r, at, "id");
	*t = (Token){.at = at, .id = json_integer_value(id.v)};
	if (!json_is_integer(id.v) || t->id < 0)
		ok = reject(r, A0504, id, "expected an id, an integer that is not negative");
	ok &= get_bool(r, at, "normalized", &t->added.normalized);
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		bool on;
		ok &= get_bool(r, at, flags[i].key, &on);
		t->added.flags |= on ? flags[i].flag : 0;
	}
	if (!get_string(r, at, "content", &t->added.content))
		return false;
	if (!t->added.content.n)
		return reject(r, A0503, child(r, at, "content"), "0 bytes; expected 1 to %d", MAX_ADDED_BYTES);
	return ok;
}

/* The tokens of tokenizer.json; without `add_them` they are only read. */
static bool read_file(Adding *a, json_t *root, Token *tokens, int *n, bool add_them)
{
	Json list = child(a->r, (Json){root, ""}, "added_tokens");
	bool ok = true;
	*n = 0;
	if (!list.v)
		return true;
	if (!get_array(a->r, (Json){root, ""}, "added_tokens", &list))
		return false;
	for (size_t i = 0; i < json_array_size(list.v); i++) {
		Token *t = &tokens[*n];
		if (!read_fields(a->r, element(a->r, list, i), t)) {
			ok = false;
			continue;
		}
		++*n;
		if (add_them && find_added(a, t->added.content))
			ok = reject(a->r, A0503, t->at, "%s is added twice", quoted(a->r, t->added.content));
		else if (add_them)
			ok &= add(a, t);
	}
	return ok;
}

/* The other files ------------------------------------------------------------------------------------------ */

static Token declared(const DeclaredToken *d)
{
	Token t = {.added = {.content = d->content, .flags = d->flags}, .id = d->id, .loc = d->at};
	t.added.normalized = d->has_normalized ? d->normalized : !(d->flags & TOK_ADDED_SPECIAL);
	return t;
}

/* A special token of step 3 that names it? */
static bool is_named(const TokenizerConfig *c, Str content)
{
	for (int i = 0; i < c->named.n; i++)
		if (c->named.at[i].is_set && str_same(c->named.at[i].token.content, content))
			return true;
	return false;
}

/* Step 2: the list, ascending by number; of two with one number the later. */
static int collect(Adding *a, const Token *file, int n_file, Token *list)
{
	const TokenizerConfig *c = a->t;
	int n = 0;
	for (int i = 0; i < c->decoder.n + (c->has_decoder ? 0 : n_file); i++) {
		Token t;
		if (i < c->decoder.n) {
			DeclaredToken d = c->decoder.at[i];
			d.flags |= is_named(c, d.content) ? TOK_ADDED_SPECIAL : 0;
			t = declared(&d);
		} else {
			t = file[i - c->decoder.n];
			t.added.flags |= is_named(c, t.added.content) ? TOK_ADDED_SPECIAL : 0;
		}
		int k = n;
		while (k > 0 && list[k - 1].id > t.id)
			k--;
		if (k > 0 && list[k - 1].id == t.id) {
			list[k - 1] = t;
			continue;
		}
		memmove(&list[k + 1], &list[k], sizeof *list * (size_t)(n - k));
		list[k] = t;
		n++;
	}
	return n;
}

/* The same value in the eyes of the library, where a string is never an object. */
static bool same_declared(const DeclaredToken *a, const DeclaredToken *b)
{
	const Token x = declared(a), y = declared(b);
	return a->is_plain == b->is_plain && str_same(a->content, b->content) && a->flags == b->flags &&
		x.added.normalized == y.added.normalized;
}

/* The last token of that text among those of step 2, with those that another one of their number has displaced. */
static const DeclaredToken *last_declared(const TokenizerConfig *c, Str content)
{
	for (int i = c->decoder.n - 1; i >= 0; i--)
		if (str_same(c->decoder.at[i].content, content))
			return &c->decoder.at[i];
	return NULL;
}

/* Step 3, where the seven have the flags that step 2 gives their texts; `again`: step 4. Of equal values the first is
 * added. */
static bool add_specials(Adding *a, bool again)
{
	const TokenizerConfig *c = a->t;
	bool ok = true;
	DeclaredToken *list = ARENA_ARRAY(a->r->arena, DeclaredToken, c->named.n + c->extra.n + 1);
	int n = 0, n_new = 0;
	for (int order = NAMED_STANDARD; order <= NAMED_STRING; order++)
		for (int i = 0; i < c->named.n; i++)
			if (c->named.at[i].is_set && c->named.at[i].order == order) {
				const DeclaredToken *of = order == NAMED_STANDARD ?
					last_declared(c, c->named.at[i].token.content) : NULL;
				list[n] = of ? *of : c->named.at[i].token;
				list[n++].id = -1;
			}
	for (int i = 0; i < c->extra.n; i++)
		list[n++] = c->extra.at[i];
	for (int i = 0; i < n && !again; i++) { /* which were no tokens before */
		bool is_new = !find_added(a, list[i].content);
		for (int k = 0; k < n_new; k++)
			is_new = is_new && !same_declared(&list[i], &list[k]);
		if (is_new)
			list[n_new++] = list[i];
	}
	for (int i = 0; i < (again ? n : n_new); i++) {
		if (again)
			list[i].flags = TOK_ADDED_SPECIAL;
		else if (is_named(c, list[i].content))
			list[i].flags |= TOK_ADDED_SPECIAL;
		list[i].has_normalized = list[i].has_normalized && !again;
		Token t = declared(&list[i]);
		ok &= add(a, &t);
	}
	return ok;
}

/* Decoding leaves out the tokens whose name, as normalised, is that of a special one. */
static void mark_special(const Adding *a)
{
	TokenizerSpec *spec = a->r->spec;
	for (int i = 0; i < spec->added.n; i++) {
		SpecToken *token = &spec->tokens[spec->added.at[i].id];
		const SpecAdded *of = find_added(a, token->name);
		if (of && of->flags & TOK_ADDED_SPECIAL)
			token->flags |= TOK_SPECIAL;
	}
}

/* Tokens of tokenizer.json that its class does not take, since tokenizer_config.json has a list without them. */
static void tell_left(Adding *a, const Token *file, int n_file)
{
	int left = 0, first = -1;
	for (int i = 0; i < n_file; i++)
		if (known_id(a, file[i].added.content) < 0 && left++ == 0)
			first = i;
	if (left)
		note_at(a->r->diags, A0510, (Loc){a->r->file, 0, 0}, "%d entries of added_tokens are missing in "
			"added_tokens_decoder of tokenizer_config.json and are ignored, as in transformers with %s; the first is "
			"%s", left, a->t->class->name, quoted(a->r, file[first].added.content));
}

static int id_of(const Adding *a, const NamedToken *n)
{
	return n->is_set && n->token.content.n ? known_id(a, n->token.content) : -1;
}

int most_added(const TokenizerConfig *t, const json_t *root)
{
	return (int)json_array_size(json_object_get(root, "added_tokens")) + t->decoder.n + t->named.n + t->extra.n;
}

static bool add_all(Reader *r, const TokenizerConfig *t, json_t *root, int rows, json_t *maps[3])
{
	Adding a = {.r = r, .t = t, .rows = rows, .n_vocab = (int)json_object_size(r->vocab), .last = -1,
		.by_content = maps[0], .by_matched = {maps[1], maps[2]}};
	const int most = most_added(t, root);
	Token *file = ARENA_ARRAY(r->arena, Token, most + 1), *list = ARENA_ARRAY(r->arena, Token, most + 1);
	int n_file, n = 0;
	if (!read_file(&a, root, file, &n_file, !t->class))
		return false;
	for (int i = 0; i < n_file; i++) { /* from here on one of many files, whose numbers only order */
		file[i].at = (Json){NULL, NULL};
		file[i].loc = (Loc){r->file, 0, 0};
	}
	n = collect(&a, file, n_file, list);
	bool ok = true;
	for (int i = 0; i < n; i++)
		ok &= add(&a, &list[i]);
	ok = ok && add_specials(&a, false) && (!t->class || !t->class->readds || add_specials(&a, true));
	if (a.n_moved == 1)
		note_at(r->diags, A0510, a.at_moved, "%s", a.moved);
	else if (a.n_moved)
		note_at(r->diags, A0510, a.at_moved, "%s; %d more get another id than their entry says",
			a.moved, a.n_moved - 1);
	if (ok && t->class)
		tell_left(&a, file, n_file);
	mark_special(&a);
	r->spec->bos_id = id_of(&a, &t->named.at[NAMED_BOS]);
	r->spec->eos_id = id_of(&a, &t->named.at[NAMED_EOS]);
	if (ok && a.n_beyond)
		note_at(r->diags, A0511, (Loc){r->file, 0, 0}, "%d added token%s no row of the vocabulary (%d), the first is "
			"%s with id %d: never generated, and an error in a prompt", a.n_beyond, a.n_beyond == 1 ? " has" : "s have",
			rows, quoted(r, r->spec->added.at[a.beyond].content), (int)r->spec->added.at[a.beyond].id);
	return ok;
}

bool add_tokens(Reader *r, const TokenizerConfig *t, json_t *root, int rows)
{
	json_t *maps[3] = {json_object(), json_object(), json_object()};
	const bool ok = add_all(r, t, root, rows, maps);
	for (int i = 0; i < 3; i++)
		json_decref(maps[i]);
	return ok;
}
