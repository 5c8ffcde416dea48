/* targets.c - see targets.h. A reader of files gets its bytes through a folder of links to a file in memory.
 */
#include "tests/fuzz/targets.h"
#include "artifacts/audit.h"
#include "artifacts/certificate.h"
#include "artifacts/diff.h"
#include "artifacts/reader.h"
#include "compiler/chat/template.h"
#include "compiler/ir.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"
#include "compiler/text/toml.h"
#include "compiler/tokenizer/read_tokenizer.h"
#include "runtime/plan_handle.h"
#include "runtime/grammar/match.h"
#include "runtime/serve/api.h"
#include "runtime/serve/http_read.h"
#include "runtime/serve/json_scan.h"
#include "runtime/serve/tool_formats.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files ------------------------------------------------------------ */

static char folder[] = "/tmp/fuzz-XXXXXX", config_link[64];
static int memory = -1;
static const char *const links[] = {"model.safetensors", "tokenizer.json", "file", "small/tokenizer_config.json"};
/* What lies beside small/tokenizer_config.json. */
static const char small_tokenizer[] = "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\","
	"\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
	"\"normalizer\":{\"type\":\"NFC\"},"
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}}";

static void remove_folder(void)
{
	char path[64];
	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, links[i]);
		unlink(path);
	}
	snprintf(path, sizeof path, "%s/small/tokenizer.json", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/small", folder);
	rmdir(path);
	rmdir(folder);
}

/* Makes the folder, and the bytes what its files hold. */
static void put_file(const uint8_t *bytes, size_t n)
{
	char path[64], to[64];
	if (memory < 0) {
		memory = memfd_create("fuzz", 0);
		if (memory < 0 || !mkdtemp(folder))
			bug("no scratch file");
		atexit(remove_folder);
		snprintf(to, sizeof to, "/proc/self/fd/%d", memory);
		snprintf(path, sizeof path, "%s/small", folder);
		if (mkdir(path, 0700) != 0)
			bug("no scratch folder");
		snprintf(path, sizeof path, "%s/small/tokenizer.json", folder);
		FILE *f = fopen(path, "w");
		if (!f || fputs(small_tokenizer, f) < 0 || fclose(f) != 0)
			bug("no scratch file");
		snprintf(config_link, sizeof config_link, "%s/file", folder);
		for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
			snprintf(path, sizeof path, "%s/%s", folder, links[i]);
			if (symlink(to, path) != 0)
				bug("no scratch file");
		}
	}
	if (ftruncate(memory, 0) != 0 || pwrite(memory, bytes, n, 0) != (ssize_t)n)
		bug("no scratch file");
}

static void *exact_copy(const uint8_t *bytes, size_t n) /* a sanitizer sees one byte too far */
{
	void *copy = malloc(n + !n);
	if (!copy)
		bug("no memory");
	memcpy(copy, bytes, n);
	return copy;
}

/* Ends a compile: refused means that there is an error. */
static bool finish(Compile *c, bool read)
{
	if (!read && !c->diags.n_errors)
		bug("refused without a word");
	arena_release(&c->scratch);
	arena_release(&c->arena);
	return read;
}

/* Texts ------------------------------------------------------------ */

static bool run_json(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	char *text = arena_strndup(&c.arena, (const char *)bytes, n);
	return finish(&c, json_parse(&c.arena, &c.scratch, &c.diags, &json_config_rules, "fuzz.json", text, n));
}

static bool run_toml(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	char *text = arena_alloc(&c.arena, n);
	memcpy(text, bytes, n);
	return finish(&c, toml_parse(&c.arena, &c.diags, "fuzz.toml", text, n));
}

/* Was the config read? Of one that was, the graph, if it is small. */
static bool read_model(Compile *c)
{
	const Config *cf = &c->model.config;
	read_config(c);
	const bool read = !c->diags.n_errors;
	if (read)
		read_options(c);
	if (!c->diags.n_errors && cf->n_layers <= 8 && cf->each.n_experts <= 8) {
		read_weights(c);
		c->model.n_tokens = cf->vocab;
		if (!c->diags.n_errors)
			build_graph(c);
		if (!c->diags.n_errors)
			check_graph(c);
	}
	return read;
}

static bool run_config(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena,
		.cmd = {.random_weights = true, .embed_weights = true, .tuning = "none", .targets = {"sm_90a"},
			.n_targets = 1}};
	put_file(bytes, n);
	c.cmd.model_dir = folder;
	c.cmd.config_file = config_link;
	return finish(&c, read_model(&c));
}

/* The fixture that the first line of a file names after a #; else llama. */
static void put_fixture(const uint8_t *bytes, size_t n, char *path, size_t path_bytes)
{
	static const char *const fixtures[] = {"llama", "qwen3_5_moe", "llama-nvfp4-modelopt", "qwen3"};
	const char *fixture = fixtures[0];
	for (size_t i = 1; i < sizeof fixtures / sizeof fixtures[0]; i++) {
		size_t len = strlen(fixtures[i]);
		if (n > len + 1 && bytes[0] == '#' && memcmp(bytes + 1, fixtures[i], len) == 0 && bytes[len + 1] == '\n')
			fixture = fixtures[i];
	}
	snprintf(path, path_bytes, "tests/fixtures/%s", fixture);
}

/* Facts of a family, for the config of a fixture, which may be of that family. */
static bool run_family(const uint8_t *bytes, size_t n)
{
	char path[128];
	put_fixture(bytes, n, path, sizeof path);
	Compile c = {.diags.arena = &c.arena,
		.cmd = {.model_dir = path, .random_weights = true, .embed_weights = true, .tuning = "none",
			.targets = {"sm_90a"}, .n_targets = 1}};
	put_file(bytes, n);
	c.cmd.family = config_link;
	return finish(&c, read_model(&c));
}

/* A MODEL.toml of a fixture. */
static bool run_model_toml(const uint8_t *bytes, size_t n)
{
	char path[128];
	put_fixture(bytes, n, path, sizeof path);
	Compile c = {.diags.arena = &c.arena,
		.cmd = {.model_dir = path, .embed_weights = true, .tuning = "none", .targets = {"sm_90a"}, .n_targets = 1}};
	put_file(bytes, n);
	c.cmd.model_toml = config_link;
	read_config(&c); /* with [config] laid over it, which may break it */
	read_options(&c);
	return finish(&c, !c.diags.n_errors);
}

/* Files of a checkpoint ------------------------------------------------------------ */

/* A whole file: prefix, header and data. */
static bool run_safetensors(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena, .cmd.model_dir = folder};
	int64_t total = 0;
	put_file(bytes, n);
	read_weights(&c);
	for (int i = 0; i < c.model.tensors.n; i++)
		total += c.model.tensors.at[i].bytes;
	if (total > (int64_t)n)
		bug("%lld bytes of tensors in %zu", (long long)total, n);
	return finish(&c, !c.diags.n_errors);
}

/* Encodes and decodes a text that has something of everything. */
static void use_tokenizer(const Tok *t)
{
	static const char sample[] = "<|begin_of_text|> the e\xCC\x81 wheel's 12345\r\n\n  water <unk></s>  "
		"\xF0\x9F\x91\x8D \xE6\xB0\xB4 \xEA\xB0\x80 \xFF\xE2\x82 word<\xEF\xBD\x9CUser\xEF\xBD\x9C>";
	int32_t ids[256];
	char text[64];
	int n = tok_encode(t, sample, sizeof sample - 1, true, true, ids, 248);
	if (n < 0)
		return;
	n = n < 248 ? n : 248;
	for (int i = 0; i < 8; i++)
		ids[n++] = i * 37;
	for (int skip = 0; skip < 2; skip++)
		if (tok_decode(t, ids, (size_t)n, skip, text, sizeof text) < 0)
			bug("decoding failed");
}

/* A tokenizer.json; what it compiles to must open. */
static bool run_tokenizer(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	TokenizerImage image;
	Tok tok;
	char why[200];
	put_file(bytes, n);
	bool read = read_tokenizer(&c.arena, &c.diags, folder, NULL, NULL, 2000, &image);
	if (read && tok_open(&tok, image.bytes, image.n_bytes, why, sizeof why) != 0)
		bug("%s", why);
	if (read)
		use_tokenizer(&tok);
	return finish(&c, read);
}

/* A tokenizer_config.json beside a sound tokenizer.json. */
static bool run_tokenizer_config(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	TokenizerImage image;
	Tok tok;
	char why[200], small[64];
	put_file(bytes, n);
	snprintf(small, sizeof small, "%s/small", folder);
	bool read = read_tokenizer(&c.arena, &c.diags, small, NULL, NULL, 2000, &image);
	if (read && tok_open(&tok, image.bytes, image.n_bytes, why, sizeof why) != 0)
		bug("%s", why);
	if (read)
		use_tokenizer(&tok);
	return finish(&c, read);
}

/* The section of a plan that a tokenizer is compiled to. */
static bool run_tokenizer_section(const uint8_t *bytes, size_t n)
{
	Tok tok;
	char why[200] = "";
	void *copy = exact_copy(bytes, n);
	bool read = tok_open(&tok, copy, n, why, sizeof why) == 0;
	if (read)
		use_tokenizer(&tok);
	else if (!why[0])
		bug("refused without a word");
	free(copy);
	return read;
}

/* Chat templates --------------------------------------------------- */

static const char chat_json[] =
	"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi \\u00e9\",\"n\":1.5,\"a\":[1,null]},"
	"{\"role\":\"assistant\",\"content\":null,"
	"\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":true}}}]}],"
	"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}";

/* Runs a program; spans are ascending, apart and inside. */
static void use_chat(const ChatProgram *p, const char *json, size_t n)
{
	const ChatLimits limits = {200000, 1 << 16, 1 << 22};
	ChatPrompt prompt;
	ChatFailure failure;
	if (chat_render(p, json, n, 0, limits, &prompt, &failure) != CHAT_OK) {
		if (!failure.text[0] && failure.fault != CHAT_RAISED)
			bug("a chat failed without a word");
		return;
	}
	for (size_t i = 0; i < prompt.n_spans; i++)
		if (prompt.spans[i].begin >= prompt.spans[i].end || prompt.spans[i].end > prompt.n ||
			(i && prompt.spans[i].begin <= prompt.spans[i - 1].end))
			bug("span %zu of a chat is misplaced", i);
	chat_prompt_free(&prompt);
}

/* A chat template; what it compiles to must open, and run to an end. */
static bool run_chat_template(const uint8_t *bytes, size_t n)
{
	Compile c = {.diags.arena = &c.arena};
	static const NamedText globals[] = {{"bos_token", "<s>"}};
	ChatImage image;
	ChatProgram program;
	char why[200] = "";
	if (utf8_bad((const char *)bytes, n) < n || memchr(bytes, 0, n)) /* whoever reads the file refuses it */
		return false;
	compile_template(&c.arena, &c.diags, "fuzz.jinja", (const char *)bytes, n, globals, 1, &image);
	void *copy = exact_copy(image.bytes, image.n);
	if (!chat_open(&program, copy, image.n, why, sizeof why))
		bug("a compiled template is refused: %s", why);
	const bool read = program.header->n_nodes > 0;
	if (read)
		use_chat(&program, chat_json, sizeof chat_json - 1);
	else if (!c.diags.n)
		bug("refused without a word");
	free(copy);
	arena_release(&c.scratch);
	arena_release(&c.arena);
	return read;
}

/* The section of a plan that a chat template is compiled to. */
static bool run_chat_program(const uint8_t *bytes, size_t n)
{
	ChatProgram program;
	char why[200] = "";
	void *copy = exact_copy(bytes, n);
	const bool read = chat_open(&program, copy, n, why, sizeof why);
	if (read && program.header->n_nodes)
		use_chat(&program, chat_json, sizeof chat_json - 1);
	else if (!read && !why[0])
		bug("refused without a word");
	free(copy);
	return read;
}

/* A conversation, for a template that writes all of it. */
static bool run_chat_json(const uint8_t *bytes, size_t n)
{
	static const char text[] = "{{ messages }}{{ tools | tojson(indent=2) }}{% for m in messages %}{{ m.role }}"
		"{{ m.content }}{{ (m.content | string).split() | join('|') | upper }}{% endfor %}{{ documents }}";
	Compile c = {.diags.arena = &c.arena};
	ChatImage image;
	ChatProgram program;
	ChatPrompt prompt;
	ChatFailure failure;
	char why[200];
	compile_template(&c.arena, &c.diags, "fuzz.jinja", text, sizeof text - 1, NULL, 0, &image);
	void *copy = exact_copy(bytes, n);
	if (!chat_open(&program, image.bytes, image.n, why, sizeof why))
		bug("a compiled template is refused: %s", why);
	use_chat(&program, copy, n);
	const ChatLimits limits = {200000, 1 << 16, 1 << 22};
	const bool read = chat_render(&program, copy, n, 0, limits, &prompt, &failure) != CHAT_BAD_INPUT;
	chat_prompt_free(&prompt);
	free(copy);
	arena_release(&c.arena);
	return read;
}

/* Plans ------------------------------------------------------------ */

/* A plan, whose hashes are not compared and whose version is this one. One that is accepted can be shown in every
 * way, and does not differ from itself. */
static bool run_plan(const uint8_t *bytes, size_t n)
{
	Artifact a;
	char why[256] = "";
	uint8_t *copy = exact_copy(bytes, n);
	if (n >= 12)
		memcpy(copy, PLAN_MAGIC, 8), copy[8] = PLAN_VERSION, copy[9] = copy[10] = copy[11] = 0;
	bool read = artifact_read_unsealed(copy, (int64_t)n, &a, why, sizeof why) == READ_OK;
	if (read) {
		const AuditOptions all = {.reasons = true};
		FILE *out = fopen("/dev/null", "w");
		PlanDiff *diff = diff_make(&a, &a);
		if (!out || !diff)
			bug("no memory");
		if (!diff_is_empty(diff)) {
			diff_text(diff, false, stderr);
			bug("a plan that differs from itself");
		}
		audit_text(&a, &all, out);
		audit_json(&a, &all, out);
		diff_free(diff);
		fclose(out);
		artifact_free(&a);
	} else if (!why[0]) {
		bug("refused without a word");
	}
	free(copy);
	return read;
}

/* msgpack-c makes a float a double and back: a signalling NaN comes out quiet. */
static bool has_nan(const msgpack_object *o)
{
	bool found = (o->type == MSGPACK_OBJECT_FLOAT32 || o->type == MSGPACK_OBJECT_FLOAT64) && o->via.f64 != o->via.f64;
	for (uint32_t i = 0; o->type == MSGPACK_OBJECT_ARRAY && i < o->via.array.size; i++)
		found |= has_nan(&o->via.array.ptr[i]);
	for (uint32_t i = 0; o->type == MSGPACK_OBJECT_MAP && i < o->via.map.size; i++)
		found |= has_nan(&o->via.map.ptr[i].val);
	return found;
}

/* Bytes that are accepted are what msgpack-c reads to the end and writes back the same. */
static bool run_msgpack(const uint8_t *bytes, size_t n)
{
	const char *what;
	size_t at = 0, used = 0;
	void *copy = exact_copy(bytes, n);
	bool read = msgpack_check(copy, n, &at, &what);
	if (at > n || read != !what)
		bug("%s at %zu of %zu", what ? what : "nothing", at, n);
	if (read) {
		msgpack_unpacked tree;
		msgpack_sbuffer out;
		msgpack_packer packer;
		msgpack_unpacked_init(&tree);
		msgpack_sbuffer_init(&out);
		msgpack_packer_init(&packer, &out, msgpack_sbuffer_write);
		if (msgpack_unpack_next(&tree, copy, n, &used) != MSGPACK_UNPACK_SUCCESS || used != n)
			bug("%zu bytes read of %zu", used, n);
		if (msgpack_pack_object(&packer, tree.data) != 0 || out.size != n ||
			(memcmp(out.data, copy, n) != 0 && !has_nan(&tree.data)))
			bug("it is not written back the same");
		msgpack_sbuffer_destroy(&out);
		msgpack_unpacked_destroy(&tree);
	}
	free(copy);
	return read;
}

/* A certificate of a plan, and its verdict. */
static bool run_certificate(const uint8_t *bytes, size_t n)
{
	Certificate c;
	char why[640] = "";
	void *copy = exact_copy(bytes, n);
	bool read = certificate_read(copy, n, &c, why, sizeof why);
	if (read && !certificate_holds(&c, why, sizeof why) && !why[0])
		bug("it does not hold, without a word");
	if (!read && !why[0])
		bug("refused without a word");
	certificate_free(&c);
	free(copy);
	return read;
}

/* Requests to atlas serve ------------------------------------------------------------ */

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* A stream of requests: how bytes are grouped changes nothing, and no byte is used twice or left out. */
static bool run_http(const uint8_t *bytes, size_t n)
{
	const HttpLimits limits = {1024, 2048};
	bool read = false;
	char *copy = exact_copy(bytes, n);
	for (size_t at = 0; at < n;) {
		HttpReader whole, pieces;
		http_start(&whole, limits);
		http_start(&pieces, limits);
		const size_t used = http_feed(&whole, copy + at, n - at);
		size_t by_piece = 0;
		while (at + by_piece < n && http_is_open(&pieces))
			by_piece += http_feed(&pieces, copy + at + by_piece, 1);
		const HttpRequest *a = &whole.request, *b = &pieces.request;
		if (whole.state != pieces.state || whole.status != pieces.status || used > n - at ||
			(whole.state != HTTP_BAD && used != by_piece))
			bug("whole: %d, %zu bytes; by pieces: %d, %zu bytes", whole.state, used, pieces.state, by_piece);
		if (whole.state == HTTP_BAD && !whole.why)
			bug("refused without a word");
		if (whole.state == HTTP_DONE && (!same(a->method, b->method) || !same(a->path, b->path) ||
				!same(a->host, b->host) || a->n_body != b->n_body || a->n_body > 2048 ||
				(a->n_body && memcmp(a->body, b->body, a->n_body) != 0)))
			bug("two requests of the same bytes");
		if (whole.state == HTTP_DONE && http_unescape((char *)whole.request.path) && !*whole.request.path)
			bug("a path lost its slash");
		read |= whole.state == HTTP_DONE;
		const bool ends = whole.state != HTTP_DONE;
		http_end(&whole);
		http_end(&pieces);
		if (ends)
			break;
		at += used;
	}
	free(copy);
	return read;
}

/* A plan that is its tokenizer alone. */
static const AtlasPlan *small_plan(void)
{
	static AtlasPlan plan;
	static Compile c;
	TokenizerImage image;
	char why[200], small[64];
	if (plan.has_tokenizer)
		return &plan;
	put_file((const uint8_t *)"{}", 2);
	snprintf(small, sizeof small, "%s/small", folder);
	c.diags.arena = &c.arena;
	if (!read_tokenizer(&c.arena, &c.diags, small, NULL, NULL, 2000, &image) ||
		tok_open(&plan.tokenizer, image.bytes, image.n_bytes, why, sizeof why) != 0)
		bug("no tokenizer");
	plan.has_tokenizer = true;
	return &plan;
}

static ApiReader *reader_of(uint8_t first)
{
	switch (first) {
	case ' ': return api_read_chat;
	case '\n': return api_read_messages;
	case '\r': return api_read_count;
	case '\t': return api_read_responses;
	default: return api_read_completions;
	}
}

/* A body of Completions; of another API where its first byte is a blank of some kind. */
static bool run_request(const uint8_t *bytes, size_t n)
{
	static const char *const names[] = {"tiny"};
	const AtlasPlanInfo info = {.vocab = 4, .max_context = 64, .slots = 4, .n_tokens = 4, .has_tokenizer = 1};
	const ApiLimits limits = {.plan = small_plan(), .info = &info, .names = names, .n_names = 1,
		.tools = tool_format_named("hermes"), .reasoning = reasoning_of("</think>", 8), .has_short_ids = true};
	ApiRequest r;
	ApiError e = {0};
	char *copy = exact_copy(bytes, n);
	const bool read = api_read_request(&limits, reader_of(n ? *bytes : '{'), copy, n, &r, &e);
	if (read == (e.status != 0) || (!read && !e.message[0]))
		bug("read %d, status %d, \"%s\"", read, e.status, e.message);
	if (!read && e.status >= 500)
		bug("a request is answered with %d: %s", e.status, e.message);
	for (int i = 0; read && i < r.n_prompts; i++)
		for (int k = 0; k < r.prompts[i].n; k++)
			if (r.prompts[i].n > info.max_context || r.prompts[i].tokens[k] < 0)
				bug("a prompt that no session takes");
	api_request_free(&r);
	free(copy);
	return read;
}

/* Answers ------------------------------------------------------------ */

typedef struct Pieces { FILE *out; int last; bool has_more; } Pieces; /* has_more: than text as it was */

static bool take_piece(void *ctx, const Piece *piece)
{
	Pieces *p = ctx;
	if (!piece->n)
		bug("a piece is empty");
	p->has_more |= piece->kind != PIECE_TEXT;
	if (piece->kind == PIECE_CALL) {
		if (!json_scan_whole(piece->arguments, piece->n_arguments) || piece->arguments[0] != '{')
			bug("arguments are no object: %.*s", (int)piece->n_arguments, piece->arguments);
		fprintf(p->out, "\1%d %.*s(%.*s)", piece->call, (int)piece->n, piece->bytes, (int)piece->n_arguments,
			piece->arguments);
	} else {
		if ((int)piece->kind != p->last)
			fprintf(p->out, "\1%d", (int)piece->kind);
		fwrite(piece->bytes, 1, piece->n, p->out);
	}
	p->last = piece->kind == PIECE_CALL ? -1 : (int)piece->kind;
	return true;
}

/* The pieces as one text, of pushes that end where `cut` says so. free(). */
static char *pieces_of(
	int setting, int format, const char *bytes, size_t n, size_t (*cut)(size_t at), size_t *n_text, bool *has_more)
{
	static const char *const formats[] = {"hermes", "qwen3_coder", "llama3_json", "mistral_calls", "glm45",
		"minimax_m2", "gemma4", "olmo3", "pythonic", "deepseek_v3", "deepseek_v32", "kimi_k2", "harmony"};
	enum { N_FORMATS = sizeof formats / sizeof formats[0] };
	const bool is_last = format % N_FORMATS == N_FORMATS - 1;
	const char *marks = is_last ? "<|channel|>analysis<|message|><|end|>" : "<think></think>";
	static const char tools_text[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":"
		"[\"integer\",\"null\",\"object\"]},\"b\":{\"$ref\":\"#/properties/a\"}},"
		"\"additionalProperties\":{\"type\":\"array\"}}}}]";
	json_t *tools = json_loads(tools_text, 0, NULL);
	char *text = NULL;
	Pieces all = {open_memstream(&text, n_text), -1, false};
	PieceParser *p = pieces_open(setting & 4 ? tool_format_named(formats[format % N_FORMATS]) : NULL, tools,
		setting & 8 ? reasoning_of(marks, strlen(marks)) : NULL, setting & 16);
	bool good = tools && p && all.out;
	for (size_t at = 0; good && at < n;) {
		const size_t k = cut(at) < n - at ? cut(at) : n - at;
		char *exact = exact_copy((const uint8_t *)bytes + at, k);
		good = pieces_push(p, exact, k, take_piece, &all);
		free(exact);
		at += k;
	}
	if (!good || !pieces_finish(p, take_piece, &all) || fclose(all.out) != 0)
		bug("no memory");
	pieces_close(p);
	json_decref(tools);
	*has_more = all.has_more;
	return text;
}

static size_t cut_nowhere(size_t at) { return SIZE_MAX - at; }
static size_t cut_everywhere(size_t at) { return 1 + (at & 0); }
static size_t cut_somewhere(size_t at) { return 1 + at * 2654435761u % 7; }

/* An answer after two bytes that set the parser: cuts change nothing, and text without calls is what it was. */
static bool run_pieces(const uint8_t *bytes, size_t n)
{
	size_t n_whole, n_each, n_some;
	bool has_more;
	if (n < 2)
		return false;
	const char *answer = (const char *)bytes + 2;
	char *whole = pieces_of(bytes[0], bytes[1], answer, n - 2, cut_nowhere, &n_whole, &has_more);
	char *each = pieces_of(bytes[0], bytes[1], answer, n - 2, cut_everywhere, &n_each, &has_more);
	char *some = pieces_of(bytes[0], bytes[1], answer, n - 2, cut_somewhere, &n_some, &has_more);
	if (n_whole != n_each || n_whole != n_some || memcmp(whole, each, n_whole) || memcmp(whole, some, n_whole))
		bug("the pieces depend on the cuts");
	if (!has_more && !(*bytes & 8) && n > 2 && (n_whole != n || memcmp(whole + 2, answer, n - 2) != 0))
		bug("the text is not what it was");
	free(whole);
	free(each);
	free(some);
	return has_more;
}

/* A byte of those that may come next, by a number. */
static int next_byte(const State *s, unsigned pick)
{
	int n = 0, found = -1;
	for (int turn = 0; turn < 2 && found < 0; turn++) {
		const unsigned wanted = n ? pick % (unsigned)n : 0;
		n = 0;
		for (int b = 0; b < 256; b++)
			if (s->bytes[b / 64] >> b % 64 & 1 && (unsigned)n++ == wanted && turn)
				found = b;
		if (n == 0)
			return -1;
	}
	return found;
}

/* A first byte of 'r' begins an expression, of 'c' choices, any other a schema. From every state that a text reaches
 * some text goes on, or it may end. */
static bool run_grammar(const uint8_t *bytes, size_t n)
{
	char *text = calloc(n + 1, 1);
	GrammarError e;
	Match m = {0};
	uint32_t state = 0;
	if (n > 1)
		memcpy(text, bytes + 1, n - 1);
	const int kind = n ? bytes[0] : 0;
	GrammarSource source = {.kind = kind == 'r' ? GRAMMAR_REGEX : kind == 'c' ? GRAMMAR_CHOICE : GRAMMAR_SCHEMA,
		.text = text, .tok = &small_plan()->tokenizer};
	source.json = kind == 'r' ? NULL : json_loads(text, JSON_DECODE_ANY, NULL);
	Grammar *g = kind == 'r' || source.json ? grammar_compile(&source, &e) : NULL;
	if (!g && (kind == 'r' || source.json) && !e.text[0])
		bug("refused without a word");
	if (g && !match_open(&m, g, g->root, &state) && !m.effort.why)
		bug("no first state");
	for (unsigned i = 0; g && i < 300 && !m.effort.why; i++) {
		const State s = m.states[state];
		const int byte = next_byte(&s, n ? bytes[i % n] + i / (unsigned)n * 7 : 0);
		if (state == 0 || (byte < 0 && !s.is_whole))
			bug("nothing can follow");
		if (byte < 0)
			break;
		state = match_step(&m, state, (uint8_t)byte);
		if (state == 0 && !m.effort.why)
			bug("a byte that may come does not");
	}
	if (g)
		match_close(&m);
	grammar_free(g);
	json_decref(source.json);
	free(text);
	return g != NULL;
}

const FuzzTarget fuzz_targets[] = {
	{"plan", run_plan}, {"msgpack", run_msgpack}, {"model-toml", run_model_toml}, {"family", run_family},
	{"config", run_config}, {"safetensors", run_safetensors}, {"tokenizer", run_tokenizer},
	{"tokenizer-config", run_tokenizer_config}, {"tokenizer-section", run_tokenizer_section},
	{"chat-template", run_chat_template}, {"chat-program", run_chat_program}, {"chat-json", run_chat_json},
	{"certificate", run_certificate}, {"json", run_json}, {"toml", run_toml}, {"http", run_http},
	{"request", run_request}, {"pieces", run_pieces},
	{"grammar", run_grammar},
};
const int n_fuzz_targets = sizeof fuzz_targets / sizeof fuzz_targets[0];

#ifdef FUZZ /* the target's name */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	for (int i = 0; i < n_fuzz_targets; i++)
		if (strcmp(fuzz_targets[i].name, FUZZ) == 0)
			fuzz_targets[i].run(bytes, n);
	return 0;
}
#endif
