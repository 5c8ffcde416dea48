/* read_quant.c - what the files say about how the weights of products are stored.
 *
 * Six writers are known, each with its own words for the same few formats (products.c has the formats themselves):
 *
 *   fp8                 quantization_config of config.json: weight_block_size, modules_to_not_convert
 *   modelopt            quantization_config, hf_quant_config.json or both: quant_algo, ignore or exclude_modules
 *   compressed-tensors  quantization_config: format, config_groups with targets, ignore
 *   awq                 quantization_config: bits, group_size, version, modules_to_not_convert
 *   gptq                quantization_config: bits, group_size, checkpoint_format
 *   mxfp4               quantization_config: modules_to_not_convert; it quantises experts alone
 *
 * None of them decides what a module holds: its tensors do. From here come the size of FP8 blocks and of INT4's groups
 * and which tool's INT4 it is, which no tensor says, and the lists, which are compared with the tensors afterwards.
 * What would change the result in a way that is not implemented is refused by its name.
 *
 * A list entry is a module's name, the first or last names of one ("model.layers.0", "q_proj"), a pattern with stars,
 * or, after "re:", the start of a Python regular expression's match. The last is rewritten for the C library, as far
 * as both read the same things the same way; the rest is refused.
 */
#include "artifacts/numbers.h"
#include "compiler/read/quant_lists.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATTERN = 512, MAX_PATTERNS = 4096, MAX_LAYERS = 1 << 17, MAX_REGEX = 64 };

/* Keys ------------------------------------------------------------------------------------------------------------
 *
 * What a writer reads of quantization_config, or of hf_quant_config.json. In another's settings it is an error, unless
 * it says nothing there. A key in no row is reported. */
enum { BY_FP8 = 1, BY_MODELOPT = 2, BY_CT = 4, BY_AWQ = 8, BY_GPTQ = 16, BY_MXFP4 = 32, BY_INT4 = BY_AWQ | BY_GPTQ };

static const struct { const char *name; int readers, pass /* of values elsewhere: read_model.h */; } quant_keys[] = {
	{"quant_method", BY_FP8 | BY_MODELOPT | BY_CT | BY_INT4 | BY_MXFP4, 0}, {"quant_algo", BY_MODELOPT, 0},
	{"fmt", BY_FP8, 0}, {"weight_block_size", BY_FP8, 0}, {"modules_to_convert", BY_FP8, IS_EMPTY},
	{"ignored_layers", BY_FP8, IS_EMPTY}, {"scale_fmt", BY_FP8, 0},
	{"modules_to_not_convert", BY_FP8 | BY_INT4 | BY_MXFP4, IS_EMPTY},
	{"ignore", BY_MODELOPT | BY_CT, IS_EMPTY}, {"exclude_modules", BY_MODELOPT, IS_EMPTY},
	{"config_groups", BY_MODELOPT | BY_CT, IS_EMPTY}, {"kv_cache_scheme", BY_MODELOPT | BY_CT, 0},
	{"kv_cache_quant_algo", BY_MODELOPT, 0}, {"quantized_layers", BY_MODELOPT, IS_EMPTY},
	{"has_zero_point", BY_MODELOPT, IS_FALSE}, {"pre_quant_scale", BY_MODELOPT, IS_FALSE},
	{"group_size", BY_MODELOPT | BY_INT4, 0}, {"format", BY_CT | BY_GPTQ, 0}, {"quantization_status", BY_CT, 0},
	{"sparsity_config", BY_CT, IS_EMPTY}, {"moe_sparsity_config", BY_CT, IS_EMPTY},
	{"transform_config", BY_CT, IS_EMPTY}, {"bits", BY_INT4, 0}, {"zero_point", BY_AWQ, IS_FALSE},
	{"checkpoint_format", BY_GPTQ, 0},
	{"lm_head", BY_INT4, IS_FALSE}, {"desc_act", BY_INT4, IS_FALSE}, {"dynamic", BY_GPTQ, IS_EMPTY},
	{"modules_in_block_to_quantize", BY_GPTQ, IS_EMPTY},
	/* how the weights came about, how other programs shall run them, what is done to activations */
	{"activation_scheme", BY_FP8, FREE}, {"version", BY_AWQ, FREE}, {"dequantize", 0, FREE}, {"producer", 0, FREE},
	{"global_compression_ratio", 0, FREE}, {"sym", 0, FREE}, {"static_groups", 0, FREE}, {"true_sequential", 0, FREE},
	{"act_group_aware", 0, FREE}, {"damp_percent", 0, FREE}, {"damp_auto_increment", 0, FREE}, {"mse", 0, FREE},
	{"pack_dtype", 0, FREE}, {"meta", 0, FREE}, {"quantizer", 0, FREE}, {"model_name_or_path", 0, FREE},
	{"model_file_base_name", 0, FREE}, {"tokenizer", 0, FREE}, {"dataset", 0, FREE}, {"batch_size", 0, FREE},
	{"block_name_to_quantize", 0, FREE}, {"module_name_preceding_first_block", 0, FREE}, {"model_seqlen", 0, FREE},
	{"pad_token_id", 0, FREE}, {"cache_block_outputs", 0, FREE}, {"max_input_length", 0, FREE},
	{"use_cuda_fp16", 0, FREE}, {"use_exllama", 0, FREE}, {"disable_exllama", 0, FREE}, {"exllama_config", 0, FREE},
	{"backend", 0, FREE}, {"do_fuse", 0, FREE}, {"modules_to_fuse", 0, FREE}, {"fuse_max_seq_len", 0, FREE},
	{"provider", 0, FREE}, {"autoround_version", 0, FREE}, {"data_type", 0, FREE}, {"amp", 0, FREE},
	{"to_quant_block_names", 0, FREE}, {"enable_quanted_input", 0, FREE}, {"static_attention_granularity", 0, FREE},
	{"static_kv_granularity", 0, FREE},
};

typedef struct Reading {
	Compile *c;
	Diags *d;
	Quant *q;
	int n_regex;
	bool is_modelopt; /* whose groups leave out how scales are shared */
} Reading;

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *text_of(const Reading *r, const Value *v) { return value_text(r->d->arena, v); }

/* Member of a table that is there and not null, or NULL. */
static const Value *get(const Value *t, const char *key)
{
	const Value *v = value_get(t, key);
	return v && v->kind != VALUE_NULL ? v : NULL;
}

static bool is_one_of(const char *text, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, list[i]) == 0)
			return true;
	return false;
}

static const char *list_text(Arena *a, const char *const *list, int n)
{
	const char *text = "";
	for (int i = 0; i < n; i++)
		text = arena_printf(a, "%s%s%s", text, i == 0 ? "" : i + 1 < n ? ", " : " or ", list[i]);
	return text;
}

/* A string that must be one of a list; NULL after having said that it is not. */
static const char *want_word(Reading *r, const char *name, const Value *v, const char *const *list, int n)
{
	const char *word;
	if (!want_string(r->d, A0203, name, v, &word))
		return NULL;
	if (is_one_of(word, list, n))
		return word;
	fail_at(r->d, A0208, v->at, "%s = %s: expected %s", name, text_of(r, v), list_text(r->d->arena, list, n));
	return NULL;
}

/* Patterns ----------------------------------------------------------------------------------------- */

/* Does `text` match a pattern in which a star stands for any characters? */
static bool matches_stars(const char *pattern, const char *text)
{
	const char *star = NULL, *retry = NULL;
	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			retry = text;
		} else if (*pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++retry;
		} else {
			return false;
		}
	}
	return pattern[strspn(pattern, "*")] == 0;
}

/* The names from its start on, or up to its end. k: length of names. */
static bool has_names(const char *module, const char *names, size_t k)
{
	if (strncmp(module, names, k) == 0 && (module[k] == '.' || module[k] == 0))
		return k > 0;
	const size_t n = strlen(module);
	return k > 0 && k < n && module[n - k - 1] == '.' && memcmp(module + n - k, names, k) == 0;
}

int quant_matches(const QuantPattern *p, const char *const *modules, int n, bool *is_named)
{
	int hits = 0;
	regex_t regex;
	const size_t length = strlen(p->text), head = strcspn(p->text, "*"); /* what has no star before it */
	if (p->regex && regcomp(&regex, p->regex, REG_EXTENDED | REG_NOSUB) != 0)
		bug("%s was read and no longer is", p->text);
	for (int i = 0; i < n; i++) {
		bool hit = p->regex ? regexec(&regex, modules[i], 0, NULL, 0) == 0
			: head == length ? has_names(modules[i], p->text, length)
			: strncmp(modules[i], p->text, head) == 0 && matches_stars(p->text + head, modules[i] + head);
		hits += hit;
		if (is_named)
			is_named[i] |= hit;
	}
	if (p->regex)
		regfree(&regex);
	return hits;
}

typedef struct Rewriting { const char *from; char *to; } Rewriting;

static void put(Rewriting *w, const char *text)
{
	while (*text)
		*w->to++ = *text++;
}

/* "\x" outside of brackets. */
static bool put_escape(Rewriting *w)
{
	const char c = *++w->from;
	if (c == 'd')
		put(w, "[0-9]");
	else if (c == 'w')
		put(w, "[[:alnum:]_]");
	else if (c == '^' || c == '\\')
		put(w, c == '^' ? "\\^" : "\\\\");
	else if (ispunct((unsigned char)c))
		put(w, (const char[]){'[', c, ']', 0});
	else
		return false;
	w->from++;
	return true;
}

/* "[...]" with letters, digits, ranges and escaped signs in it. */
static bool put_brackets(Rewriting *w)
{
	*w->to++ = *w->from++;
	if (*w->from == '^')
		*w->to++ = *w->from++;
	for (; *w->from && *w->from != ']'; w->from++) {
		const char c = *w->from == '\\' ? *++w->from : *w->from;
		bool is_escaped = w->from[-1] == '\\';
		if (is_escaped && c == 'd')
			put(w, "0-9");
		else if (is_escaped && c == 'w')
			put(w, "[:alnum:]_");
		else if (c && (strchr("._/", c) || (!is_escaped && (isalnum((unsigned char)c) || c == '-'))))
			*w->to++ = c;
		else
			return false;
	}
	if (*w->from != ']' || w->to[-1] == '[' || w->to[-1] == '^')
		return false;
	*w->to++ = *w->from++;
	return true;
}

/* The extended regular expression that says the same about a whole module name, or false. `to` has room for seven
 * times the text and ten. */
static bool rewrite_regex(const char *from, char *to)
{
	Rewriting w = {from, to};
	int depth = 0;
	put(&w, "^(");
	while (*w.from) {
		bool is_repeat = strchr("*+?", *w.from) != NULL;
		if (*w.from == '\\') {
			if (!put_escape(&w))
				return false;
		} else if (*w.from == '[') {
			if (!put_brackets(&w))
				return false;
		} else if (strncmp(w.from, "(?:", 3) == 0) {
			put(&w, "(");
			w.from += 3;
			depth++;
		} else if (strchr("{}", *w.from) || strncmp(w.from, "(?", 2) == 0) {
			return false;
		} else {
			depth += (*w.from == '(') - (*w.from == ')');
			if (depth < 0)
				return false;
			*w.to++ = *w.from++;
			w.from += is_repeat && *w.from == '?'; /* lazily or not: the same names match */
			if (is_repeat && *w.from && strchr("*+?", *w.from))
				return false;
		}
	}
	put(&w, ")");
	*w.to = 0;
	return depth == 0;
}

static bool add_pattern(Reading *r, const char *name, const char *text, Loc at, QuantPattern *p)
{
	*p = (QuantPattern){.text = arena_strdup(&r->c->arena, text), .at = at};
	const size_t n = strlen(text);
	if (n == 0 || n > MAX_PATTERN)
		return fail_at(r->d, A0203, at, "%s: %zu characters: expected 1 to %d", name, n, MAX_PATTERN);
	if (strncmp(text, "re:", 3) != 0)
		return true;
	char *rewritten = arena_alloc(&r->c->arena, 7 * n + 10);
	regex_t regex;
	if (++r->n_regex > MAX_REGEX)
		return fail_at(r->d, A0203, at, "%s: more than %d regular expressions", name, MAX_REGEX);
	if (rewrite_regex(text + 3, rewritten) && regcomp(&regex, rewritten, REG_EXTENDED | REG_NOSUB) == 0) {
		regfree(&regex);
		p->regex = rewritten;
		return true;
	}
	return fail_at(r->d, A0208, at, "%s = %s: expected a regular expression of letters, dots, groups, alternatives, "
		"sets and * + ?", name, clip_text(r->d->arena, text, n, 80));
}

static void add_target(Reading *r, const QuantTarget *target, QuantPattern modules)
{
	QuantTarget *t = vec_push(&r->c->arena, &r->q->targets);
	*t = *target;
	t->modules = modules;
}

/* A list of patterns: of targets with their format, or, `target` NULL, of modules that are left alone. */
static void add_patterns(Reading *r, const char *name, const Value *list, const QuantTarget *target)
{
	Quant *q = r->q;
	if (!list || !want_array(r->d, A0203, name, list))
		return;
	for (const Value *v = list->first; v; v = v->next) {
		const char *text;
		if (!want_string(r->d, A0203, name, v, &text))
			continue;
		if (q->ignore.n + q->targets.n == MAX_PATTERNS) {
			fail_at(r->d, A0203, v->at, "%s: more than %d patterns", name, MAX_PATTERNS);
			return;
		}
		QuantPattern p;
		bool is_class = target && strcmp(text, "Linear") == 0; /* all products, in the words of PyTorch */
		if (!add_pattern(r, name, is_class ? "*" : text, v->at, &p))
			continue;
		const int before = q->targets.n;
		if (target)
			add_target(r, target, p);
		else
			*vec_push(&r->c->arena, &q->ignore) = p;
		if (q->targets.n > before)
			q->targets.at[before].is_class = is_class;
	}
}

static void add_all(Reading *r, const QuantTarget *target)
{
	add_target(r, target, (QuantPattern){.text = "*", .at = r->q->at});
}

/* Members that are none of `known`, in one note. */
static void note_unknown(Reading *r, const char *where, const Value *table, const char *const *known, int n)
{
	for (const Value *v = table->first; v; v = v->next)
		if (!is_one_of(v->key, known, n)) {
			note_at(r->d, A0207, v->at, "unknown keys are not used: %s.%s", where,
				clip_text(r->d->arena, v->key, strlen(v->key), 48));
			return;
		}
}

/* Every member has a rule: quant_keys. */
static void check_quant_keys(Reading *r, const char *where, const Value *table, int reader)
{
	const Value *unknown = NULL;
	for (const Value *v = table->first; v; v = v->next) {
		int k = 0;
		while (k < COUNT(quant_keys) && strcmp(quant_keys[k].name, v->key) != 0)
			k++;
		if (k == COUNT(quant_keys))
			unknown = unknown ? unknown : v;
		else if (!(quant_keys[k].readers & reader) && !value_passes(v, quant_keys[k].pass))
			fail_at(r->d, A0208, v->at, "%s.%s = %s: a setting of another quant_method: it means nothing here", where,
				v->key, text_of(r, v));
	}
	if (unknown)
		note_at(r->d, A0207, unknown->at, "unknown keys are not used: %s.%s", where,
			clip_text(r->d->arena, unknown->key, strlen(unknown->key), 48));
}

/* What is said of keys and values is advice: MODEL.toml decides, which is read later. */
static void see_kv(Reading *r, const char *name, const Value *v)
{
	if (!v || r->q->kv)
		return;
	r->q->kv = arena_printf(&r->c->arena, "%s = %s", name, v->kind == VALUE_TABLE ? "{...}" : text_of(r, v));
	r->q->at_kv = v->at;
}

static bool read_block(Reading *r, const char *name, const Value *v, int block[2])
{
	if (!want_array(r->d, A0203, name, v))
		return false;
	if (v->n != 2)
		return fail_at(r->d, A0203, v->at, "%s = %s: expected two sizes", name, text_of(r, v));
	return want_int(r->d, A0203, name, v->first, 1, MAX_DIM, &block[0]) &&
		want_int(r->d, A0203, name, v->first->next, 1, MAX_DIM, &block[1]);
}

/* The writers --------------------------------------------------------------------------------- */

static void read_fp8(Reading *r, const Value *q)
{
	static const char *const formats[] = {"e4m3", "float8_e4m3fn"};
	static const char *const schemes[] = {"dynamic", "static"};
	static const char *const scales[] = {"float", "ue8m0"};
	static const struct { const char *key; const char *const *words; int n; } words[] = {
		{"fmt", formats, COUNT(formats)}, {"activation_scheme", schemes, COUNT(schemes)},
		{"scale_fmt", scales, COUNT(scales)}};
	const Value *size = value_get(q, "weight_block_size"), *only = get(q, "modules_to_convert");
	int block[2] = {FP8_BLOCK, FP8_BLOCK}; /* where nothing is said; null says that there are none */
	r->q->name = "fp8";
	for (int i = 0; i < COUNT(words); i++)
		if (get(q, words[i].key))
			want_word(r, arena_printf(r->d->arena, "quantization_config.%s", words[i].key), get(q, words[i].key),
				words[i].words, words[i].n);
	if (size && size->kind == VALUE_NULL)
		block[0] = block[1] = 0;
	else if (size && !read_block(r, "quantization_config.weight_block_size", size, block))
		return;
	const QuantTarget target = {.format = block[0] ? FORMAT_FP8_BLOCK : FORMAT_FP8_TENSOR, .block_n = block[0],
		.block_k = block[1]};
	if (only && !value_passes(only, IS_EMPTY))
		add_patterns(r, "quantization_config.modules_to_convert", only, &target);
	else
		add_all(r, &target);
	add_patterns(r, "quantization_config.modules_to_not_convert", get(q, "modules_to_not_convert"), NULL);
	add_patterns(r, "quantization_config.ignored_layers", get(q, "ignored_layers"), NULL);
	check_quant_keys(r, "quantization_config", q, BY_FP8);
}

/* Names of modules in blocks, in lists of lists. */
static void add_in_blocks(Reading *r, const char *name, const Value *lists, const QuantTarget *target)
{
	if (!want_array(r->d, A0203, name, lists))
		return;
	for (const Value *v = lists->first; v; v = v->next)
		add_patterns(r, name, v, target);
}

/* bits and group_size, of AWQ and GPTQ, which have classes with defaults of their own. */
static void read_int4(Reading *r, const Value *q, int reader)
{
	static const char *const name = "quantization_config.group_size";
	const Value *bits = get(q, "bits"), *size = get(q, "group_size"), *order = get(q, "desc_act");
	const Value *head = get(q, "lm_head"), *only = get(q, "modules_in_block_to_quantize");
	int n, group = 128;
	bool is_out_of_order = false;
	if (!bits && reader == BY_GPTQ)
		fail_at(r->d, A0202, q->at, "quantization_config.bits is missing");
	if (bits && want_int(r->d, A0203, "quantization_config.bits", bits, 1, 16, &n) && n != 4)
		fail_at(r->d, A0208, bits->at, "quantization_config.bits = %d: expected 4", n);
	if (size && want_int(r->d, A0203, name, size, -1, MAX_DIM, &group) && group != -1 && group != 32 && group != 64 &&
			group != 128)
		fail_at(r->d, A0208, size->at, "%s = %d: expected 32, 64, 128 or -1, a whole row", name, group);
	if (order)
		want_bool(r->d, A0203, "quantization_config.desc_act", order, &is_out_of_order);
	if (head)
		want_bool(r->d, A0203, "quantization_config.lm_head", head, &r->q->has_head);
	const QuantTarget target = {.format = FORMAT_INT4, .block_n = 1, .block_k = group > 0 ? group : 0,
		.has_zeros = true, .has_index = is_out_of_order && reader == BY_GPTQ};
	if (only && !value_passes(only, IS_EMPTY))
		add_in_blocks(r, "quantization_config.modules_in_block_to_quantize", only, &target);
	else
		add_all(r, &target);
	add_patterns(r, "quantization_config.modules_to_not_convert", get(q, "modules_to_not_convert"), NULL);
	check_quant_keys(r, "quantization_config", q, reader);
}

static void read_awq(Reading *r, const Value *q)
{
	static const char *const versions[] = {"gemm", "GEMM"};
	r->q->name = "awq";
	if (get(q, "version"))
		want_word(r, "quantization_config.version", get(q, "version"), versions, COUNT(versions));
	if (get(q, "zero_point") && value_passes(get(q, "zero_point"), IS_FALSE))
		fail_at(r->d, A0208, get(q, "zero_point")->at, "quantization_config.zero_point = false: expected true");
	read_int4(r, q, BY_AWQ);
}

static void read_gptq(Reading *r, const Value *q)
{
	static const char *const formats[] = {"gptq", "gptq_v2"};
	static const char *const words[] = {"checkpoint_format", "format"}; /* the second in newer files; equal */
	r->q->name = "gptq";
	r->q->is_less_one = true;
	for (int i = 0; i < COUNT(words); i++) {
		const char *name = arena_printf(r->d->arena, "quantization_config.%s", words[i]);
		const char *word = get(q, words[i]) ? want_word(r, name, get(q, words[i]), formats, COUNT(formats)) : NULL;
		r->q->is_less_one &= !word || strcmp(word, "gptq") == 0;
	}
	const Value *dynamic = get(q, "dynamic");
	for (const Value *v = dynamic && want_table(r->d, A0203, "quantization_config.dynamic", dynamic) ? dynamic->first
			: NULL; v; v = v->next) {
		QuantPattern pattern; /* "-:" and a regular expression leave modules alone */
		if (strncmp(v->key, "-:", 2) != 0)
			fail_at(r->d, A0208, dynamic->at, "quantization_config.dynamic: what it says of single modules is not "
				"implemented");
		else if (r->q->ignore.n < MAX_PATTERNS && add_pattern(r, "quantization_config.dynamic",
				arena_printf(r->d->arena, "re:%s", v->key + 2), v->at, &pattern))
			*vec_push(&r->c->arena, &r->q->ignore) = pattern;
	}
	read_int4(r, q, BY_GPTQ);
}

/* A pattern of its list names modules with all that is in them. */
static void read_mxfp4(Reading *r, const Value *q)
{
	static const char *const name = "quantization_config.modules_to_not_convert";
	const Value *list = get(q, "modules_to_not_convert");
	QuantPattern p;
	r->q->name = "mxfp4";
	add_target(r, &(QuantTarget){.format = FORMAT_MXFP4}, (QuantPattern){.text = "*.experts.*", .at = r->q->at});
	for (const Value *v = list && want_array(r->d, A0203, name, list) ? list->first : NULL; v; v = v->next) {
		const char *text;
		if (want_string(r->d, A0203, name, v, &text) && r->q->ignore.n < MAX_PATTERNS && add_pattern(r, name,
				strchr(text, '*') ? arena_printf(r->d->arena, "%s*", text) : text, v->at, &p))
			*vec_push(&r->c->arena, &r->q->ignore) = p;
	}
	check_quant_keys(r, "quantization_config", q, BY_MXFP4);
}

static const char *const modelopt_algos[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_NVFP4",
	"mxfp4", "MIXED_PRECISION"};

/* What one of them stores; FORMAT_PLAIN = that is said of each module. */
static WeightFormat format_of(const char *algo)
{
	static const WeightFormat formats[] = {FORMAT_FP8_TENSOR, FORMAT_FP8_CHANNEL, FORMAT_NVFP4, FORMAT_NVFP4,
		FORMAT_MXFP4};
	for (int i = 0; i < COUNT(formats) && algo; i++)
		if (strcmp(modelopt_algos[i], algo) == 0)
			return formats[i];
	return FORMAT_PLAIN;
}

static void read_group_size(Reading *r, const char *name, const Value *v, const char *algo)
{
	const int group = format_of(algo) == FORMAT_MXFP4 ? MXFP4_GROUP : NVFP4_GROUP;
	int n;
	if (v && want_int(r->d, A0203, name, v, 1, MAX_DIM, &n) && n != group)
		fail_at(r->d, A0208, v->at, "%s = %d: expected %d", name, n, group);
}

static int by_module(const void *x, const void *y)
{
	return strcmp(((const QuantTarget *)x)->modules.text, ((const QuantTarget *)y)->modules.text);
}

/* MIXED_PRECISION: each quantised module by its name. Where both files have the list it is the same one. */
static void read_layers(Reading *r, const char *where, const Value *layers)
{
	const char *name = arena_printf(r->d->arena, "%s.quantized_layers", where);
	const int n_before = r->q->layers.n;
	if (!want_table(r->d, A0203, name, layers))
		return;
	for (const Value *v = layers->first; v; v = v->next) {
		const char *key = arena_printf(r->d->arena, "%s.%s", name, clip_text(r->d->arena, v->key, strlen(v->key), 80));
		const Value *algo = get(v, "quant_algo");
		const char *word = NULL;
		QuantPattern p;
		if (!want_table(r->d, A0203, key, v))
			continue;
		if (algo && !(word = want_word(r, arena_printf(r->d->arena, "%s.quant_algo", key), algo, modelopt_algos,
				COUNT(modelopt_algos) - 1)))
			continue;
		read_group_size(r, arena_printf(r->d->arena, "%s.group_size", key), get(v, "group_size"), word);
		if (!add_pattern(r, key, v->key, v->at, &p))
			continue;
		const QuantTarget target = {.modules = p, .format = format_of(word)};
		const QuantTarget *stated = n_before
			? bsearch(&target, r->q->layers.at, (size_t)n_before, sizeof target, by_module) : NULL;
		if (n_before && (!stated || stated->format != target.format))
			fail_at(r->d, A0205, v->at, "%s: config.json in line %d says %s", key, stated ? stated->modules.at.line
				: r->q->at.line, stated ? "otherwise" : "nothing of it");
		else if (p.regex || strchr(p.text, '*'))
			add_target(r, &target, p);
		else if (!n_before && r->q->layers.n == MAX_LAYERS)
			fail_at(r->d, A0203, v->at, "%s: more than %d modules", name, MAX_LAYERS);
		else if (!n_before)
			*vec_push(&r->c->arena, &r->q->layers) = target;
		if (r->d->n_errors > DIAG_MAX)
			return;
	}
	if (r->q->layers.n > n_before)
		qsort(r->q->layers.at, (size_t)r->q->layers.n, sizeof r->q->layers.at[0], by_module);
}

static bool read_stored(Reading *r, const char *name, const Value *w, QuantTarget *target);

/* Groups of modules with what is stored of each: what MIXED_PRECISION says where there is no list of modules. */
static void read_groups(Reading *r, const char *where, const Value *groups)
{
	const char *all = arena_printf(r->d->arena, "%s.config_groups", where);
	if (!want_table(r->d, A0203, all, groups))
		return;
	for (const Value *g = groups->first; g; g = g->next) {
		const char *name = arena_printf(r->d->arena, "%s.%s", all, clip_text(r->d->arena, g->key, strlen(g->key), 40));
		QuantTarget target = {.format = FORMAT_PLAIN};
		if (!want_table(r->d, A0203, name, g))
			continue;
		if (!get(g, "weights"))
			fail_at(r->d, A0202, g->at, "%s.weights is missing", name);
		else if (!get(g, "targets"))
			fail_at(r->d, A0202, g->at, "%s.targets is missing", name);
		else if (read_stored(r, arena_printf(r->d->arena, "%s.weights", name), get(g, "weights"), &target))
			add_patterns(r, arena_printf(r->d->arena, "%s.targets", name), get(g, "targets"), &target);
	}
}

/* The same facts are in both files under other names. */
static void see_modelopt_kv(Reading *r, const char *where, const Value *q)
{
	see_kv(r, arena_printf(r->d->arena, "%s.kv_cache_quant_algo", where), get(q, "kv_cache_quant_algo"));
	see_kv(r, arena_printf(r->d->arena, "%s.kv_cache_scheme", where), get(q, "kv_cache_scheme"));
}

static void read_modelopt(Reading *r, const char *where, const Value *q)
{
	const Value *algo = get(q, "quant_algo"), *layers = get(q, "quantized_layers"), *groups = get(q, "config_groups");
	static const char *const refused[] = {"pre_quant_scale", "has_zero_point"};
	const char *name = arena_printf(r->d->arena, "%s.quant_algo", where);
	if (!algo && value_get(q, "quant_algo") && (get(q, "kv_cache_quant_algo") || get(q, "kv_cache_scheme"))) {
		see_modelopt_kv(r, where, q); /* the cache alone is quantised */
		check_quant_keys(r, where, q, BY_MODELOPT);
		return;
	}
	if (!algo) {
		fail_at(r->d, A0202, q->at, "%s is missing", name);
		return;
	}
	const char *word = want_word(r, name, algo, modelopt_algos, COUNT(modelopt_algos));
	if (!word)
		return;
	if (r->q->name && strcmp(r->q->name, word) != 0)
		fail_at(r->d, A0205, algo->at, "%s = %s: config.json in line %d says %s", name, word, r->q->at.line,
			r->q->name);
	r->q->name = word;
	r->is_modelopt = true;
	for (int i = 0; i < COUNT(refused); i++)
		if (get(q, refused[i]) && !value_passes(get(q, refused[i]), IS_FALSE))
			fail_at(r->d, A0208, get(q, refused[i])->at, "%s.%s: %s are not implemented", where, refused[i],
				i ? "zero points of these formats" : "scales of what the products read");
	read_group_size(r, arena_printf(r->d->arena, "%s.group_size", where), get(q, "group_size"), word);
	const QuantTarget all = {.format = format_of(word)};
	if (layers && !value_passes(layers, IS_EMPTY))
		read_layers(r, where, layers);
	else if (all.format == FORMAT_PLAIN && groups && !value_passes(groups, IS_EMPTY) &&
			r->q->layers.n + r->q->targets.n == 0)
		read_groups(r, where, groups);
	else if (r->q->layers.n + r->q->targets.n == 0)
		add_all(r, &all);
	add_patterns(r, arena_printf(r->d->arena, "%s.ignore", where), get(q, "ignore"), NULL);
	add_patterns(r, arena_printf(r->d->arena, "%s.exclude_modules", where), get(q, "exclude_modules"), NULL);
	see_modelopt_kv(r, where, q);
	check_quant_keys(r, where, q, BY_MODELOPT);
}

/* weights of a config group: what is stored. */
static bool read_stored(Reading *r, const char *name, const Value *w, QuantTarget *target)
{
	const Value *type = get(w, "type"), *strategy = get(w, "strategy"), *shape = get(w, "block_structure");
	static const char *const keys[] = {"num_bits", "type", "strategy", "group_size", "symmetric", "dynamic", "actorder",
		"block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "is_mse"};
	int bits = 0, group = 0, block[2] = {0, 0};
	const char *is_type = "int", *is_strategy = "tensor";
	if (!want_table(r->d, A0203, name, w))
		return false;
	note_unknown(r, name, w, keys, COUNT(keys));
	if (get(w, "dynamic") && !value_passes(get(w, "dynamic"), IS_FALSE))
		return fail_at(r->d, A0208, get(w, "dynamic")->at, "%s.dynamic = %s: weights that are not stored quantized are "
			"not read", name, text_of(r, get(w, "dynamic")));
	if (get(w, "num_bits") && !want_int(r->d, A0203, arena_printf(r->d->arena, "%s.num_bits", name),
			get(w, "num_bits"), 1, 16, &bits))
		return false;
	if ((type && !want_string(r->d, A0203, arena_printf(r->d->arena, "%s.type", name), type, &is_type)) ||
			(strategy && !want_string(r->d, A0203, arena_printf(r->d->arena, "%s.strategy", name), strategy,
				&is_strategy)))
		return false;
	if (get(w, "group_size") && !want_int(r->d, A0203, arena_printf(r->d->arena, "%s.group_size", name),
			get(w, "group_size"), -1, MAX_DIM, &group))
		return false;
	if (r->is_modelopt && !strategy) /* by tensor, or by groups of one with a second scale */
		is_strategy = group == NVFP4_GROUP ? "tensor_group" : group ? "group" : "tensor";
	static const struct { const char *type; int bits, group /* 0 = any */; const char *strategy; WeightFormat format; }
		known[] = {{"float", 8, 0, "tensor", FORMAT_FP8_TENSOR}, {"float", 8, 0, "channel", FORMAT_FP8_CHANNEL},
		{"float", 8, 0, "block", FORMAT_FP8_BLOCK}, {"float", 4, NVFP4_GROUP, "tensor_group", FORMAT_NVFP4},
		{"float", 4, MXFP4_GROUP, "group", FORMAT_MXFP4}, {"int", 4, 0, "channel", FORMAT_INT4},
		{"int", 4, 32, "group", FORMAT_INT4}, {"int", 4, 64, "group", FORMAT_INT4},
		{"int", 4, 128, "group", FORMAT_INT4}};
	for (int i = 0; i < COUNT(known); i++)
		if (strcmp(is_type, known[i].type) == 0 && bits == known[i].bits &&
				(!known[i].group || group == known[i].group) && strcmp(is_strategy, known[i].strategy) == 0)
			target->format = known[i].format;
	if (target->format == FORMAT_PLAIN)
		return fail_at(r->d, A0208, w->at, "%s: %d bits of type %s by %s, group size %d: expected 8 bits of type float "
			"by tensor, channel or block, 4 by tensor_group of %d, 4 by group of %d, or 4 bits of type int by channel "
			"or by group of 32, 64 or 128", name, bits, clip_text(r->d->arena, is_type, strlen(is_type), 20),
			clip_text(r->d->arena, is_strategy, strlen(is_strategy), 20), group, NVFP4_GROUP, MXFP4_GROUP);
	if (target->format == FORMAT_INT4) {
		const Value *order = get(w, "actorder");
		target->block_n = 1;
		target->block_k = strcmp(is_strategy, "group") == 0 ? group : 0;
		target->has_zeros = get(w, "symmetric") && value_passes(get(w, "symmetric"), IS_FALSE);
		target->has_index = order && order->kind == VALUE_STRING && strcmp(order->string, "group") == 0;
		return true;
	}
	if (get(w, "symmetric") && value_passes(get(w, "symmetric"), IS_FALSE))
		return fail_at(r->d, A0208, get(w, "symmetric")->at, "%s.symmetric = false: zero points are not implemented",
			name);
	if (target->format == FORMAT_FP8_BLOCK && shape &&
			!read_block(r, arena_printf(r->d->arena, "%s.block_structure", name), shape, block))
		return false;
	target->block_n = block[0];
	target->block_k = block[1];
	return true;
}

/* Of a config group. Scales of activations are not used, those of outputs neither: products.c. */
static void check_group(Reading *r, const char *name, const Value *group, const char *const *formats, int n_formats)
{
	static const char *const keys[] = {"weights", "targets", "input_activations", "output_activations", "format"};
	note_unknown(r, name, group, keys, COUNT(keys));
	if (get(group, "format"))
		want_word(r, arena_printf(r->d->arena, "%s.format", name), get(group, "format"), formats, n_formats);
}

static bool is_dense(const Value *sparsity)
{
	const Value *format = value_get(sparsity, "format");
	return value_passes(sparsity, IS_EMPTY) || (format && format->kind == VALUE_STRING &&
		strcmp(format->string, "dense") == 0);
}

static void read_compressed(Reading *r, const Value *q)
{
	static const char *const formats[] = {"float-quantized", "naive-quantized", "nvfp4-pack-quantized",
		"mxfp4-pack-quantized", "pack-quantized", "mixed-precision"};
	static const char *const stages[] = {"compressed", "frozen"};
	static const char *const empty[] = {"sparsity_config", "moe_sparsity_config", "transform_config"};
	const Value *format = get(q, "format"), *groups = get(q, "config_groups"), *stage = get(q, "quantization_status");
	r->q->name = "compressed-tensors";
	if (format)
		want_word(r, "quantization_config.format", format, formats, COUNT(formats));
	if (stage)
		want_word(r, "quantization_config.quantization_status", stage, stages, COUNT(stages));
	for (int i = 0; i < COUNT(empty); i++)
		if (get(q, empty[i]) && !is_dense(get(q, empty[i])))
			fail_at(r->d, A0208, get(q, empty[i])->at, "quantization_config.%s: this feature is not implemented",
				empty[i]);
	if (!groups) {
		fail_at(r->d, A0202, q->at, "quantization_config.config_groups is missing");
		return;
	}
	for (const Value *g = groups->kind == VALUE_TABLE ? groups->first : NULL; g; g = g->next)
		if (g->kind == VALUE_TABLE)
			check_group(r, arena_printf(r->d->arena, "quantization_config.config_groups.%s",
				clip_text(r->d->arena, g->key, strlen(g->key), 40)), g, formats, COUNT(formats));
	read_groups(r, "quantization_config", groups);
	add_patterns(r, "quantization_config.ignore", get(q, "ignore"), NULL);
	see_kv(r, "quantization_config.kv_cache_scheme", get(q, "kv_cache_scheme"));
	check_quant_keys(r, "quantization_config", q, BY_CT);
}

/* What hf_quant_config.json holds: under "quantization", or by itself as some exports copy it. */
static const Value *modelopt_part(const Value *table)
{
	const Value *inner = get(table, "quantization");
	return inner ? inner : get(table, "quant_algo") ? table : NULL;
}

/* The method of quantization_config, or NULL after having said what is wrong. ModelOpt's may leave its name out. */
static const char *read_method(Reading *r, const Value *config)
{
	static const char *const methods[] = {"fp8", "modelopt", "compressed-tensors", "awq", "gptq", "mxfp4"};
	const Value *v = get(config, "quant_method"), *producer = get(get(config, "producer"), "name");
	if (v)
		return want_word(r, "quantization_config.quant_method", v, methods, COUNT(methods));
	if (modelopt_part(config) && (!producer || (producer->kind == VALUE_STRING &&
			strcmp(producer->string, "modelopt") == 0)))
		return "modelopt";
	fail_at(r->d, A0208, config->at, "quantization_config: quant_method is missing: expected %s",
		list_text(r->d->arena, methods, COUNT(methods)));
	return NULL;
}

void read_quant(Compile *c, const Value *config)
{
	Reading r = {.c = c, .d = &c->diags, .q = &c->model.quant};
	const char *method = NULL;
	bool absent;
	if (config && want_table(r.d, A0203, "quantization_config", config)) {
		r.q->at = config->at;
		method = read_method(&r, config);
		if (!method)
			return;
		if (strcmp(method, "fp8") == 0)
			read_fp8(&r, config);
		else if (strcmp(method, "awq") == 0)
			read_awq(&r, config);
		else if (strcmp(method, "gptq") == 0)
			read_gptq(&r, config);
		else if (strcmp(method, "mxfp4") == 0)
			read_mxfp4(&r, config);
		else if (strcmp(method, "modelopt") != 0)
			read_compressed(&r, config);
		else if (get(config, "quantization") && want_table(r.d, A0203, "quantization_config.quantization",
				get(config, "quantization")))
			read_modelopt(&r, "quantization_config.quantization", get(config, "quantization"));
		else
			read_modelopt(&r, "quantization_config", config);
	}
	const Value *file = json_read(&c->arena, &c->scratch, r.d, &json_config_rules,
		input_path(&c->arena, c->cmd.model_dir, "hf_quant_config.json"), &absent);
	const Value *inner = file ? modelopt_part(file) : NULL;
	if (file && !inner)
		fail_at(r.d, A0202, file->at, "quantization is missing");
	else if (file && method && strcmp(method, "modelopt") != 0)
		fail_at(r.d, A0205, file->at, "hf_quant_config.json is there: config.json in line %d says %s", r.q->at.line,
			method);
	else if (file && want_table(r.d, A0203, "quantization", inner)) {
		r.q->at = r.q->at.file ? r.q->at : inner->at;
		read_modelopt(&r, inner == file ? "hf_quant_config" : "quantization", inner);
	}
}
