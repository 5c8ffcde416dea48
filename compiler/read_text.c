/* read_text.c - what turns text into tokens: the tokenizer and the chat template.
 *
 * The tokenizer is compiled by read_tokenizer.c. The template is carried as it is; it stands in one of three
 * places, and as in the library that defines them the file of its own goes before the configuration of the
 * tokenizer, which goes before the file of processors. The tokenizer's end token joins the others here,
 * since no file is sure to name them all.
 */
#include <string.h>
#include <sys/stat.h>

#include "compiler/input.h"
#include "compiler/json.h"
#include "compiler/read_model.h"
#include "compiler/read_tokenizer.h"

enum { MAX_TEMPLATE_BYTES = 1 << 20 };

/* A template as a string, or the one called "default" of a list of {name, template}. */
static const char *pick_template(Compile *c, const Value *v)
{
	const char *text = NULL, *name;
	if (!v || v->kind == VALUE_NULL)
		return NULL;
	if (v->kind != VALUE_ARRAY)
		return want_string(&c->diags, A0203, "chat_template", v, &text) ? text : NULL;
	for (const Value *e = v->first; e; e = e->next) {
		const Value *named = value_get(e, "name"), *body = value_get(e, "template");
		if (!named || !body)
			fail_at(&c->diags, A0203, e->at, "chat_template: expected entries of name and template");
		else if (want_string(&c->diags, A0203, "name", named, &name) && strcmp(name, "default") == 0)
			want_string(&c->diags, A0203, "template", body, &text);
	}
	return text;
}

static const char *read_json_template(Compile *c, const char *name)
{
	bool absent;
	const Value *v = json_read(&c->arena, &c->scratch, &c->diags, &json_text_rules,
		input_path(&c->arena, c->cmd.model_dir, name), &absent);
	return pick_template(c, value_get(v, "chat_template"));
}

static const char *read_chat_template(Compile *c)
{
	char *text;
	size_t n;
	const char *path = input_path(&c->arena, c->cmd.model_dir, "chat_template.jinja");
	if (!input_read(&c->arena, &c->diags, path, true, MAX_TEMPLATE_BYTES, &text, &n))
		return NULL;
	if (text && (utf8_bad(text, n) < n || strlen(text) < n)) {
		fail_at(&c->diags, A0203, (Loc){path, 0, 0}, "not a text in UTF-8");
		return NULL;
	}
	if (!text)
		text = (char *)read_json_template(c, "tokenizer_config.json");
	return text ? text : read_json_template(c, "chat_template.json");
}

/* Is there a tokenizer to read? A checkpoint without one, such as random weights, compiles to a plan that takes
 * token ids; one with a tokenizer in another form is refused. */
static bool has_tokenizer(Compile *c)
{
	static const char *const others[] = {"tokenizer.model", "tekken.json", "vocab.json"};
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

/* read_text - tokenizer and chat template.
 *
 *   needs   config
 *   gives   Model.tokenizer, n_tokens, chat_template; config.eos gains the tokenizer's end token, config.bos is
 *           the tokenizer's where config.json has none
 *   fails   A0102, A0203, A0210, A05xx
 */
void read_text(Compile *c)
{
	Model *m = &c->model;
	TokenizerImage image;
	m->n_tokens = m->config.vocab;
	m->chat_template = read_chat_template(c);
	if (m->config.vocab <= 0) /* read_config has said why; without it no id can be judged */
		return;
	if (!has_tokenizer(c))
		return;
	if (!read_tokenizer(&c->arena, &c->diags, c->cmd.model_dir, m->config.vocab, &image))
		return;
	m->tokenizer = image.bytes;
	m->tokenizer_bytes = image.n_bytes;
	m->n_tokens = image.n_tokens;
	if (image.eos_id >= 0 && !add_eos(&m->config, image.eos_id))
		fail_at(&c->diags, A0210, (Loc){input_path(&c->arena, c->cmd.model_dir, "tokenizer_config.json"), 0, 0},
			"more than %d different end tokens", MAX_EOS);
	if (m->config.bos < 0)
		m->config.bos = image.bos_id;
}
