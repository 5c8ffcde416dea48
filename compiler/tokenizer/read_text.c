/* read_text.c - what turns text into tokens: the tokenizer and the chat template.
 *
 * The tokenizer is compiled by read_tokenizer.c, the template by template_*.c. Of these places, as in transformers,
 * the first that is there: additional_chat_templates/default.jinja, chat_template.jinja; chat_template of
 * tokenizer_config.json, a text, a list of {name, template} or an object of texts by name, of which "default" counts;
 * chat_template.json, which that library reads for processors. A folder additional_chat_templates with others alone
 * hides tokenizer_config.json's all the same. Templates of other names are reported, for no one asks for them here.
 *
 * The tokenizer's end token joins the others here, since no file is sure to name them all.
 */
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"
#include "compiler/tokenizer/read_tokenizer.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEMPLATE_BYTES = 1 << 20, MAX_TEMPLATES = 64 };

/* has_default: another one is used. */
static void tell_other(Compile *c, Loc at, const char *name, bool has_default)
{
	note_at(&c->diags, A0513, at, "chat template %s is not used; %s", clip_text(c->diags.arena, name, strlen(name), 48),
		has_default ? "\"default\" is" : "none is called \"default\"");
}

/* Does a list of {name, template} or an object have one called "default"? */
static bool has_default(const Value *v)
{
	bool found = false;
	for (const Value *e = v->first; e; e = e->next) {
		const Value *name = value_get(e, "name");
		found |= v->kind == VALUE_TABLE ? strcmp(e->key, "default") == 0 :
			name && name->kind == VALUE_STRING && strcmp(name->string, "default") == 0;
	}
	return found;
}

/* A template as a string, or the one called "default" of a list of {name, template} or of an object. */
static const char *pick_template(Compile *c, const Value *v)
{
	const char *text = NULL, *name;
	if (!v || v->kind == VALUE_NULL)
		return NULL;
	if (v->kind != VALUE_ARRAY && v->kind != VALUE_TABLE)
		return want_string(&c->diags, A0203, "chat_template", v, &text) ? text : NULL;
	for (const Value *e = v->first; e; e = e->next) {
		const Value *named = value_get(e, "name"), *body = v->kind == VALUE_TABLE ? e : value_get(e, "template");
		if (v->kind == VALUE_TABLE)
			name = e->key;
		else if (!named || !body) {
			fail_at(&c->diags, A0203, e->at, "chat_template: expected entries of name and template");
			continue;
		} else if (!want_string(&c->diags, A0203, "name", named, &name))
			continue;
		if (strcmp(name, "default") == 0)
			want_string(&c->diags, A0203, "template", body, &text);
		else
			tell_other(c, e->at, name, has_default(v));
	}
	return text;
}

/* A chat template and what a message about it calls its file. */
typedef struct Source { const char *text, *file; } Source;

static Source read_json_template(Compile *c, const char *name, Code code)
{
	JsonRules rules = json_text_rules;
	rules.code = code;
	const Value *v = json_read(&c->arena, &c->scratch, &c->diags, &rules,
		input_path(&c->arena, c->cmd.model_dir, name), &(bool){false});
	return (Source){pick_template(c, value_get(v, "chat_template")), arena_printf(&c->arena, "%s#chat_template",
		input_path(&c->scratch, c->cmd.model_dir, name))};
}

/* Ends of lines as Python reads them: "\r\n" and "\r" are "\n". */
static void one_line_end(char *text)
{
	char *out = text;
	for (const char *p = text; *p; p++)
		if (*p != '\r')
			*out++ = *p;
		else if (p[1] != '\n')
			*out++ = '\n';
	*out = 0;
}

/* Text NULL as well after having recorded an error. */
static Source read_jinja(Compile *c, const char *name)
{
	char *text;
	size_t n;
	const char *path = input_path(&c->arena, c->cmd.model_dir, name);
	if (!input_read(&c->arena, &c->diags, path, true, MAX_TEMPLATE_BYTES, &text, &n))
		return (Source){NULL, path};
	if (text && (utf8_bad(text, n) < n || strlen(text) < n)) {
		fail_at(&c->diags, A0203, (Loc){path, 0, 0}, "not a text in UTF-8");
		return (Source){NULL, path};
	}
	if (text)
		one_line_end(text);
	return (Source){text, path};
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Names without ".jinja" of the files in additional_chat_templates, sorted; returns how many. */
static int list_additional(Compile *c, const char **names)
{
	const char *path = input_path(&c->arena, c->cmd.model_dir, "additional_chat_templates");
	DIR *folder = opendir(path);
	int n = 0;
	for (struct dirent *e; folder && (e = readdir(folder)) != NULL && n < MAX_TEMPLATES;) {
		size_t length = strlen(e->d_name);
		if (length > 6 && strcmp(e->d_name + length - 6, ".jinja") == 0)
			names[n++] = arena_strndup(&c->arena, e->d_name, length - 6);
	}
	if (folder)
		closedir(folder);
	qsort(names, (size_t)n, sizeof *names, by_name);
	return n;
}

static Source read_chat_template(Compile *c)
{
	const char *names[MAX_TEMPLATES];
	Source source = read_jinja(c, "chat_template.jinja");
	const int n = list_additional(c, names);
	bool found = source.text != NULL;
	for (int i = 0; i < n; i++)
		found |= strcmp(names[i], "default") == 0;
	for (int i = 0; i < n; i++) {
		const char *name = arena_printf(&c->arena, "additional_chat_templates/%s.jinja", names[i]);
		if (strcmp(names[i], "default") == 0)
			source = read_jinja(c, name);
		else
			tell_other(c, (Loc){input_path(&c->arena, c->cmd.model_dir, name), 0, 0}, names[i], found);
	}
	if (source.text || n)
		return source;
	source = read_json_template(c, "tokenizer_config.json", A0501);
	return source.text ? source : read_json_template(c, "chat_template.json", A0201);
}

static void compile_chat(Compile *c, Source source, const TokenizerImage *tokenizer)
{
	ChatImage image;
	if (!source.text)
		return;
	compile_template(&c->arena, &c->diags, source.file, source.text, strlen(source.text), tokenizer->special,
		tokenizer->n_special, &image);
	c->model.chat_program = image.bytes;
	c->model.chat_program_bytes = image.n;
}

/* Is there a tokenizer to read? A checkpoint without one, such as random weights, compiles to a plan that takes
 * token ids; one with a tokenizer in another form is refused. */
static bool has_tokenizer(Compile *c)
{
	static const char *const others[] = {"tokenizer.model", "tokenizer.model.v3", "tekken.json", "tiktoken.model",
		"vocab.json"};
	const char *dir = c->cmd.model_dir;
	struct stat st;
	if (lstat(input_path(&c->scratch, dir, "tokenizer.json"), &st) == 0)
		return true;
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (lstat(input_path(&c->scratch, dir, others[i]), &st) == 0) {
			fail_at(&c->diags, A0505, (Loc){input_path(&c->arena, dir, others[i]), 0, 0},
				"a tokenizer without tokenizer.json: save it as tokenizer.json first");
			return false;
		}
	note_at(&c->diags, A0506, (Loc){dir, 0, 0}, "no tokenizer.json: the plan takes token ids only");
	return false;
}

/* The end token of the tokenizer lies after the rows. check_ids checks those of other files. */
static void tell_lost_end(Compile *c, int id, Loc at)
{
	const char *why = arena_printf(c->diags.arena, "eos_token has id %d, which is not a row of the vocabulary (%d)", id,
		c->model.config.vocab);
	if (c->model.config.n_eos + c->model.options.n_stop > 0)
		note_at(&c->diags, A0512, at, "%s: it ends no text", why);
	else
		fail_at(&c->diags, A0512, at, "%s, and no file names another: no text would end; name one in [sampling] stop "
			"of MODEL.toml", why);
}

/* read_text - tokenizer and chat template.
 *
 *   needs   config
 *   gives   Model.tokenizer, n_tokens, chat_template, chat_program; config.eos gains the tokenizer's end token,
 *           config.bos is the tokenizer's where config.json has none
 *   fails   A0102, A0203, A0210, A05xx
 */
void read_text(Compile *c)
{
	Model *m = &c->model;
	TokenizerImage image = {0};
	const Source chat = read_chat_template(c);
	m->n_tokens = m->config.vocab;
	m->chat_template = chat.text;
	if (m->config.vocab <= 0) /* read_config has said why; without it no id can be judged */
		return;
	if (!has_tokenizer(c)) {
		compile_chat(c, chat, &image);
		return;
	}
	const char *config = c->cmd.config_file;
	if (!config)
		config = input_path(&c->arena, c->cmd.model_dir, "config.json");
	if (!read_tokenizer(&c->arena, &c->diags, c->cmd.model_dir, config, &c->families, m->config.vocab, &image))
		return;
	m->tokenizer = image.bytes;
	m->tokenizer_bytes = image.n_bytes;
	m->n_tokens = image.n_tokens;
	m->has_token = image.has_token;
	compile_chat(c, chat, &image);
	const Loc at = image.eos_at;
	if (image.eos_id >= m->config.vocab)
		tell_lost_end(c, image.eos_id, at);
	else if (image.eos_id >= 0 && !add_eos(&m->config, image.eos_id, at))
		fail_at(&c->diags, A0210, at, "more than %d different end tokens", MAX_EOS);
	if (m->config.bos < 0 && image.bos_id < m->config.vocab)
		m->config.bos = image.bos_id;
}
