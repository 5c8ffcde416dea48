/* json.c - JSON with places.
 *
 * jansson judges and decodes, but it forgets where a value was. So the text is scanned first, in one loop
 * without recursion, which notes the place of every value in the order of the text; afterwards jansson's
 * tree, which keeps that order because a repeated name is refused, is copied in lockstep with the notes.
 * On a text that is not JSON the scan is merely harmless: what is wrong with it is for jansson to say.
 *
 * The scan is also where hostile texts end: depth and number of values are bounded before jansson, which
 * recurses and takes a hundred bytes a value, sees anything.
 */
#include "compiler/text/json.h"
#include "compiler/text/input.h"

#include <jansson.h>
#include <string.h>

const JsonRules json_config_rules = {A0201, 16 << 20, JSON_MAX_DEPTH, 1 << 18, true, false};
const JsonRules json_text_rules = {A0201, 16 << 20, JSON_MAX_DEPTH, 1 << 18, true, true};

typedef struct Mark { /* a value seen by the scan */
	size_t begin, end;
	int line, col;
	const char *nonfinite; /* the token that was there, now blanked to 0 */
} Mark;

typedef struct Scan {
	const JsonRules *rules;
	Arena *scratch;
	Diags *diags;
	const char *file;
	char *text;
	size_t n, at;
	int line, col;
	bool in_object[JSON_MAX_DEPTH + 1], key_next;
	int open[JSON_MAX_DEPTH + 1]; /* marks of the containers around */
	int depth;
	VEC(Mark) marks;
} Scan;

static void step(Scan *s)
{
	unsigned char ch = (unsigned char)s->text[s->at++];
	if (ch == '\n') {
		s->line++;
		s->col = 1;
	} else if ((ch & 0xC0) != 0x80) {
		s->col++;
	}
}

static bool is_blank(char ch) { return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r'; }

static bool add_mark(Scan *s)
{
	if (s->marks.n == s->rules->max_values)
		return fail_at(s->diags, s->rules->code, (Loc){s->file, s->line, s->col},
			"more than %d values: refused before reading on", s->rules->max_values);
	*vec_push(s->scratch, &s->marks) = (Mark){s->at, s->at, s->line, s->col, NULL};
	return true;
}

static void scan_string(Scan *s)
{
	step(s);
	while (s->at < s->n && s->text[s->at] != '"') {
		if (s->text[s->at] == '\\' && s->at + 1 < s->n)
			step(s);
		step(s);
	}
	if (s->at < s->n)
		step(s);
}

/* A number, true, false, null, or one of the three words that JSON does not have. */
static void scan_word(Scan *s)
{
	static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
	size_t begin = s->at;
	while (s->at < s->n && !is_blank(s->text[s->at]) && !strchr(",:]}[{\"", s->text[s->at]))
		step(s);
	Mark *m = &s->marks.at[s->marks.n - 1];
	for (int i = 0; s->rules->nonfinite && i < 3; i++) {
		size_t len = strlen(words[i]);
		if (s->at - begin == len && memcmp(s->text + begin, words[i], len) == 0) {
			m->nonfinite = words[i];
			memset(s->text + begin, ' ', len);
			s->text[begin] = '0';
		}
	}
}

static bool scan_value(Scan *s, char ch)
{
	if (!add_mark(s))
		return false;
	int mark = s->marks.n - 1;
	if (ch == '{' || ch == '[') {
		if (s->depth == s->rules->max_depth)
			return fail_at(s->diags, s->rules->code, (Loc){s->file, s->line, s->col},
				"nested deeper than %d levels", s->rules->max_depth);
		s->depth++;
		s->open[s->depth] = mark;
		s->in_object[s->depth] = s->key_next = ch == '{';
		step(s);
		return true;
	}
	if (ch == '"')
		scan_string(s);
	else
		scan_word(s);
	s->marks.at[mark].end = s->at;
	return true;
}

/* Notes every value. False when a limit is passed. */
static bool scan(Scan *s)
{
	while (s->at < s->n) {
		char ch = s->text[s->at];
		if (ch == '}' || ch == ']') {
			step(s);
			if (s->depth > 0) {
				s->marks.at[s->open[s->depth]].end = s->at;
				s->depth--;
			}
			s->key_next = false;
		} else if (ch == ',' || ch == ':' || is_blank(ch)) {
			if (ch == ',')
				s->key_next = s->depth > 0 && s->in_object[s->depth];
			step(s);
		} else if (ch == '"' && s->key_next) {
			scan_string(s);
			s->key_next = false;
		} else if (!scan_value(s, ch)) {
			return false;
		}
	}
	return true;
}

/* Copying jansson's tree --------------------------------------------------------------------- */

typedef struct Copy {
	Arena *arena;
	const Scan *scan;
	int next; /* mark of the value to come */
} Copy;

/* {"__float__": "Infinity"}: how newer libraries write what JSON cannot */
static bool is_boxed_nonfinite(json_t *j)
{
	json_t *word = json_object_size(j) == 1 ? json_object_get(j, "__float__") : NULL;
	const char *text = word ? json_string_value(word) : NULL;
	return text && (strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0);
}

/* Recursion is as deep as the scan allowed. */
static Value *copy_value(Copy *copy, json_t *j)
{
	if (copy->next >= copy->scan->marks.n)
		bug("%s: more JSON values than were noted", copy->scan->file);
	const Mark *m = &copy->scan->marks.at[copy->next++];
	Value *v = ARENA_NEW(copy->arena, Value), **tail = &v->first;
	v->at = v->key_at = (Loc){copy->scan->file, m->line, m->col};
	v->source = copy->scan->text + m->begin;
	v->source_bytes = (int)(m->end - m->begin);
	if (m->nonfinite) {
		v->kind = VALUE_NONFINITE;
		return v;
	}
	const char *key;
	json_t *member;
	size_t index;
	switch (json_typeof(j)) {
	case JSON_NULL: v->kind = VALUE_NULL; break;
	case JSON_TRUE:
	case JSON_FALSE: v->kind = VALUE_BOOL; v->boolean = json_is_true(j); break;
	case JSON_INTEGER: v->kind = VALUE_INT; v->integer = json_integer_value(j); break;
	case JSON_REAL: v->kind = VALUE_REAL; v->real = json_real_value(j); break;
	case JSON_STRING:
		v->kind = VALUE_STRING;
		v->n = (int)json_string_length(j);
		v->string = arena_strndup(copy->arena, json_string_value(j), (size_t)v->n);
		break;
	case JSON_ARRAY:
		v->kind = VALUE_ARRAY;
		json_array_foreach(j, index, member) {
			*tail = copy_value(copy, member);
			tail = &(*tail)->next;
			v->n++;
		}
		break;
	case JSON_OBJECT:
		if (copy->scan->rules->nonfinite && is_boxed_nonfinite(j)) {
			v->kind = VALUE_NONFINITE;
			copy->next++;
			break;
		}
		v->kind = VALUE_TABLE;
		json_object_foreach(j, key, member) {
			*tail = copy_value(copy, member);
			(*tail)->key = arena_strdup(copy->arena, key);
			tail = &(*tail)->next;
			v->n++;
		}
		break;
	}
	return v;
}

/* The place of byte `offset`, in lines and columns. */
static Loc place_in(const char *file, const char *text, size_t n, size_t offset)
{
	Loc at = {file, 1, 1};
	for (size_t i = 0; i < n && i < offset; i++) {
		if (text[i] == '\n') {
			at.line++;
			at.col = 1;
		} else if (((unsigned char)text[i] & 0xC0) != 0x80) {
			at.col++;
		}
	}
	return at;
}

static Loc place_of(const Scan *s, size_t offset) { return place_in(s->file, s->text, s->n, offset); }

bool json_check_text(Diags *d, Code code, const char *file, const char *text, size_t n)
{
	const size_t bad = utf8_bad(text, n);
	const char *nul = memchr(text, 0, n);
	if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
		return fail_at(d, code, (Loc){file, 1, 1}, "starts with a byte-order mark: save the file without it");
	if (n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
		return fail_at(d, code, (Loc){file, 1, 1}, "UTF-16 or UTF-32, by its byte-order mark: save the file as UTF-8");
	if (nul && (size_t)(nul - text) < bad) /* as in UTF-16 without a mark, which may be no UTF-8 further on */
		return fail_at(d, code, place_in(file, text, n, (size_t)(nul - text)), "NUL byte at offset %zu",
			(size_t)(nul - text));
	return bad == n || fail_at(d, code, place_in(file, text, n, bad), "not UTF-8: byte 0x%02x at offset %zu",
		(unsigned char)text[bad], bad);
}

/* "key = " when the value that begins at `offset` is a member, else "". */
static const char *member_name(const Scan *s, size_t offset)
{
	size_t i = offset, end;
	while (i > 0 && is_blank(s->text[i - 1]))
		i--;
	if (i == 0 || s->text[i - 1] != ':')
		return "";
	for (i--; i > 0 && is_blank(s->text[i - 1]);)
		i--;
	end = i ? i - 1 : 0;
	if (!end || s->text[end] != '"')
		return "";
	for (i = end; i > 0 && s->text[i - 1] != '"';)
		i--;
	return arena_printf(s->diags->arena, "%s = ", clip_text(s->diags->arena, s->text + i, end - i, 64));
}

/* jansson says what it stumbled over and how many bytes it had read by then. */
static bool fail_syntax(const Scan *s, const json_error_t *e)
{
	size_t end = e->position > 0 ? (size_t)e->position : 0, begin = end;
	if (end > s->n)
		end = begin = s->n;
	switch (json_error_code(e)) {
	case json_error_end_of_input_expected:
		return fail_at(s->diags, s->rules->code, place_of(s, end ? end - 1 : 0),
			"text after the end of the object (byte %zu)", end);
	case json_error_duplicate_key:
		for (begin = end ? end - 1 : 0; begin > 0 && s->text[begin - 1] != '"';)
			begin--;
		return fail_at(s->diags, s->rules->code, place_of(s, begin ? begin - 1 : 0), "the key %s occurs twice",
			clip_text(s->diags->arena, s->text + begin, end - begin - (end > begin), 80));
	case json_error_numeric_overflow:
		while (begin > 0 && !strchr(",:[ \t\r\n", s->text[begin - 1]))
			begin--;
		return fail_at(s->diags, s->rules->code, place_of(s, begin), "%s%s: beyond the range of 64 bits",
			member_name(s, begin), clip_text(s->diags->arena, s->text + begin, end - begin, 48));
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return fail_at(s->diags, s->rules->code, place_of(s, end ? end - 1 : 0), "a text with \\u0000 in it (byte %zu)",
			end);
	default:
		return fail_at(s->diags, s->rules->code, place_of(s, end ? end - 1 : 0), "not valid JSON: %s (byte %zu)",
			clip_text(s->diags->arena, e->text, utf8_bad(e->text, strlen(e->text)), JSON_ERROR_TEXT_LENGTH), end);
	}
}

/* The top level must be an object; said before jansson would say something about brackets. */
static bool check_top(const Scan *s)
{
	if (s->marks.n == 0)
		return fail_at(s->diags, s->rules->code, (Loc){s->file, 1, 1}, "end of file: expected an object");
	const Mark *m = &s->marks.at[0];
	char first = s->text[m->begin];
	return first == '{' || fail_at(s->diags, s->rules->code, (Loc){s->file, m->line, m->col},
		"%s: expected an object", first == '[' ? "a list" : first == '"' ? "a string" : "a single value");
}

const Value *json_parse(Arena *a, Arena *scratch, Diags *d, const JsonRules *rules, const char *file,
	char *text, size_t n)
{
	Scan s = {.rules = rules, .scratch = scratch, .diags = d, .file = file, .text = text, .n = n,
		.line = 1, .col = 1};
	if (n >= INT32_MAX) {
		fail_at(d, rules->code, (Loc){file, 0, 0}, "%zu bytes of JSON", n);
		return NULL;
	}
	if (!json_check_text(d, rules->code, file, text, n))
		return NULL;
	if (!scan(&s) || !check_top(&s))
		return NULL;
	json_error_t error;
	size_t flags = JSON_REJECT_DUPLICATES | (rules->no_integers ? JSON_DECODE_INT_AS_REAL : 0);
	json_t *tree = json_loadb(s.text, s.n, flags, &error);
	for (int i = 0; i < s.marks.n; i++) /* the words come back, for messages */
		if (s.marks.at[i].nonfinite)
			memcpy(s.text + s.marks.at[i].begin, s.marks.at[i].nonfinite, s.marks.at[i].end - s.marks.at[i].begin);
	if (!tree) {
		fail_syntax(&s, &error);
		return NULL;
	}
	Copy copy = {a, &s, 0};
	const Value *v = copy_value(&copy, tree);
	if (copy.next != s.marks.n)
		bug("%s: %d JSON values, %d noted", file, copy.next, s.marks.n);
	json_decref(tree);
	return v;
}

const Value *json_read(Arena *a, Arena *scratch, Diags *d, const JsonRules *rules, const char *path, bool *absent)
{
	char *text;
	size_t n;
	bool ok = input_read(a, d, path, absent != NULL, rules->max_bytes, &text, &n);
	if (absent)
		*absent = ok && !text;
	return text ? json_parse(a, scratch, d, rules, path, text, n) : NULL;
}
