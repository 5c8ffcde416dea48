/* read_quant.c - what the files say about how the weights of products are stored.
 *
 * Five writers are known, each with its own words for the same few formats (products.c has the formats themselves):
 *
 *   fp8                 quantization_config of config.json: weight_block_size, modules_to_not_convert
 *   modelopt            quantization_config, hf_quant_config.json or both: quant_algo, ignore or exclude_modules
 *   compressed-tensors  quantization_config: format, config_groups with targets, ignore
 *   awq                 quantization_config: bits, group_size, version, modules_to_not_convert
 *   gptq                quantization_config: bits, group_size, checkpoint_format
 *
 * None of them decides what a module holds: its tensors do. From here come the size of FP8 blocks and of INT4's groups
 * and which tool's INT4 it is, which no tensor says, and the lists, which are compared with the tensors afterwards.
 * What would change the result in a way that is not implemented is refused by its name.
 *
 * A list entry is a module's name, the first or last names of one ("model.layers.0", "q_proj"), a pattern with stars,
 * or, behind "re:", the start of a Python regular expression's match. The last is rewritten for the C library, as far
 * as both read the same things the same way; the rest is refused.
 */
#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "artifacts/numbers.h"
#include "compiler/input.h"
#include "compiler/json.h"
#include "compiler/read_model.h"

enum { MAX_PATTERN = 512, MAX_PATTERNS = 4096, MAX_REGEX = 64 };

typedef struct Reading {
	Compile *c;
	Diags *d;
	Quant *q;
	int n_regex;
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

/* The names from its start on, or up to its end. */
static bool has_names(const char *module, const char *names)
{
	size_t n = strlen(module), k = strlen(names);
	if (k > n || k == 0)
		return false;
	return (strncmp(module, names, k) == 0 && (module[k] == '.' || module[k] == 0))
		|| (strcmp(module + n - k, names) == 0 && (n == k || module[n - k - 1] == '.'));
}

int quant_matches(const QuantPattern *p, const char *const *modules, int n, bool *is_named)
{
	int hits = 0;
	regex_t regex;
	if (p->regex && regcomp(&regex, p->regex, REG_EXTENDED | REG_NOSUB) != 0)
		bug("%s was read and no longer is", p->text);
	for (int i = 0; i < n; i++) {
		bool hit = p->regex ? regexec(&regex, modules[i], 0, NULL, 0) == 0
			: strchr(p->text, '*') ? matches_stars(p->text, modules[i]) : has_names(modules[i], p->text);
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
		if (target)
			*vec_push(&r->c->arena, &q->targets) = (QuantTarget){p, target->format, target->block_n, target->block_k};
		else
			*vec_push(&r->c->arena, &q->ignore) = p;
	}
}

static void add_all(Reading *r, WeightFormat format, const int block[2])
{
	*vec_push(&r->c->arena, &r->q->targets) = (QuantTarget){{.text = "*", .at = r->q->at}, format, block[0], block[1]};
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
	return want_int(r->d, A0203, name, v->first, 1, MAX_DIM, &block[0])
		&& want_int(r->d, A0203, name, v->first->next, 1, MAX_DIM, &block[1]);
}

/* The writers --------------------------------------------------------------------------------- */

static void read_fp8(Reading *r, const Value *q)
{
	static const char *const keys[] = {"quant_method", "fmt", "activation_scheme", "weight_block_size",
		"modules_to_not_convert", "modules_to_convert", "ignored_layers", "scale_fmt", "dequantize"};
	static const char *const formats[] = {"e4m3", "float8_e4m3fn"};
	static const char *const schemes[] = {"dynamic", "static"};
	int block[2] = {0, 0};
	r->q->name = "fp8";
	if (get(q, "fmt"))
		want_word(r, "quantization_config.fmt", get(q, "fmt"), formats, COUNT(formats));
	if (get(q, "activation_scheme"))
		want_word(r, "quantization_config.activation_scheme", get(q, "activation_scheme"), schemes, COUNT(schemes));
	if (get(q, "weight_block_size")
			&& !read_block(r, "quantization_config.weight_block_size", get(q, "weight_block_size"), block))
		return;
	add_all(r, block[0] ? FORMAT_FP8_BLOCK : FORMAT_FP8_TENSOR, block);
	add_patterns(r, "quantization_config.modules_to_not_convert", get(q, "modules_to_not_convert"), NULL);
	add_patterns(r, "quantization_config.ignored_layers", get(q, "ignored_layers"), NULL);
	note_unknown(r, "quantization_config", q, keys, COUNT(keys));
}

/* bits and group_size, of AWQ and GPTQ. Most of what else their files hold tells how the weights came about. */
static void read_int4(Reading *r, const Value *q)
{
	static const char *const keys[] = {"quant_method", "bits", "group_size", "zero_point", "version",
		"checkpoint_format", "format", "modules_to_not_convert", "lm_head", "sym", "desc_act", "dynamic",
		"static_groups", "true_sequential", "damp_percent", "damp_auto_increment", "mse", "pack_dtype", "meta",
		"model_name_or_path", "model_file_base_name", "tokenizer", "dataset", "batch_size", "block_name_to_quantize",
		"module_name_preceding_first_block", "modules_in_block_to_quantize", "model_seqlen", "pad_token_id",
		"cache_block_outputs", "max_input_length", "use_cuda_fp16", "use_exllama", "exllama_config", "backend",
		"do_fuse", "modules_to_fuse", "fuse_max_seq_len", "provider", "autoround_version", "data_type", "amp",
		"to_quant_block_names", "enable_quanted_input", "static_attention_granularity", "static_kv_granularity"};
	static const char *const name = "quantization_config.group_size";
	const Value *bits = get(q, "bits"), *size = get(q, "group_size");
	int n, group = 0;
	if (!bits || !size) {
		fail_at(r->d, A0202, q->at, "quantization_config.%s is missing", bits ? "group_size" : "bits");
		return;
	}
	if (want_int(r->d, A0203, "quantization_config.bits", bits, 1, 16, &n) && n != 4)
		fail_at(r->d, A0208, bits->at, "quantization_config.bits = %d: expected 4", n);
	if (want_int(r->d, A0203, name, size, -1, MAX_DIM, &group) && group != -1 && group != 32 && group != 64
			&& group != 128)
		fail_at(r->d, A0208, size->at, "%s = %d: expected 32, 64, 128 or -1, a whole row", name, group);
	add_all(r, FORMAT_INT4, (const int[2]){1, group > 0 ? group : 0});
	add_patterns(r, "quantization_config.modules_to_not_convert", get(q, "modules_to_not_convert"), NULL);
	note_unknown(r, "quantization_config", q, keys, COUNT(keys));
}

static void read_awq(Reading *r, const Value *q)
{
	static const char *const versions[] = {"gemm", "GEMM"};
	r->q->name = "awq";
	if (get(q, "version"))
		want_word(r, "quantization_config.version", get(q, "version"), versions, COUNT(versions));
	if (get(q, "zero_point") && value_passes(get(q, "zero_point"), IS_FALSE))
		fail_at(r->d, A0208, get(q, "zero_point")->at, "quantization_config.zero_point = false: expected true");
	read_int4(r, q);
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
	if (get(q, "dynamic") && !value_passes(get(q, "dynamic"), IS_EMPTY))
		fail_at(r->d, A0208, get(q, "dynamic")->at, "quantization_config.dynamic: what it says of single modules is "
			"not implemented");
	read_int4(r, q);
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

/* MIXED_PRECISION: each quantised module by its name. */
static void read_layers(Reading *r, const char *where, const Value *layers)
{
	const char *name = arena_printf(r->d->arena, "%s.quantized_layers", where);
	if (!want_table(r->d, A0203, name, layers))
		return;
	for (const Value *v = layers->first; v; v = v->next) {
		const char *key = arena_printf(r->d->arena, "%s.%s", name, clip_text(r->d->arena, v->key, strlen(v->key), 80));
		const Value *algo = get(v, "quant_algo");
		const char *word = NULL;
		QuantPattern p;
		if (!want_table(r->d, A0203, key, v))
			continue;
		if (algo)
			word = want_word(r, arena_printf(r->d->arena, "%s.quant_algo", key), algo, modelopt_algos,
				COUNT(modelopt_algos) - 1);
		read_group_size(r, arena_printf(r->d->arena, "%s.group_size", key), get(v, "group_size"), word);
		if (r->q->targets.n < MAX_PATTERNS && add_pattern(r, key, v->key, v->at, &p))
			*vec_push(&r->c->arena, &r->q->targets) = (QuantTarget){p, format_of(word), 0, 0};
	}
}

/* The same facts stand in both files under other names. */
static void read_modelopt(Reading *r, const char *where, const Value *q)
{
	static const char *const keys[] = {"quant_method", "quant_algo", "ignore", "exclude_modules", "config_groups",
		"kv_cache_scheme", "kv_cache_quant_algo", "group_size", "producer", "quantized_layers", "has_zero_point",
		"pre_quant_scale"};
	const Value *algo = get(q, "quant_algo"), *layers = get(q, "quantized_layers");
	const char *name = arena_printf(r->d->arena, "%s.quant_algo", where);
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
	if (get(q, "pre_quant_scale") && !value_passes(get(q, "pre_quant_scale"), IS_FALSE))
		fail_at(r->d, A0208, get(q, "pre_quant_scale")->at, "%s.pre_quant_scale: scales of what the products read are "
			"not implemented", where);
	read_group_size(r, arena_printf(r->d->arena, "%s.group_size", where), get(q, "group_size"), word);
	if (layers)
		read_layers(r, where, layers);
	else if (r->q->targets.n == 0)
		add_all(r, format_of(word), (const int[2]){0, 0});
	add_patterns(r, arena_printf(r->d->arena, "%s.ignore", where), get(q, "ignore"), NULL);
	add_patterns(r, arena_printf(r->d->arena, "%s.exclude_modules", where), get(q, "exclude_modules"), NULL);
	see_kv(r, arena_printf(r->d->arena, "%s.kv_cache_quant_algo", where), get(q, "kv_cache_quant_algo"));
	see_kv(r, arena_printf(r->d->arena, "%s.kv_cache_scheme", where), get(q, "kv_cache_scheme"));
	note_unknown(r, where, q, keys, COUNT(keys));
}

/* weights of a config group: what is stored. */
static bool read_stored(Reading *r, const char *name, const Value *w, QuantTarget *target)
{
	const Value *type = get(w, "type"), *strategy = get(w, "strategy"), *shape = get(w, "block_structure");
	int bits = 0, group = 0, block[2] = {0, 0};
	const char *is_type = "int", *is_strategy = "tensor";
	if (!want_table(r->d, A0203, name, w))
		return false;
	if (get(w, "num_bits") && !want_int(r->d, A0203, arena_printf(r->d->arena, "%s.num_bits", name),
			get(w, "num_bits"), 1, 16, &bits))
		return false;
	if ((type && !want_string(r->d, A0203, arena_printf(r->d->arena, "%s.type", name), type, &is_type))
			|| (strategy && !want_string(r->d, A0203, arena_printf(r->d->arena, "%s.strategy", name), strategy,
				&is_strategy)))
		return false;
	if (get(w, "group_size") && !want_int(r->d, A0203, arena_printf(r->d->arena, "%s.group_size", name),
			get(w, "group_size"), -1, MAX_DIM, &group))
		return false;
	static const struct { const char *type; int bits, group /* 0 = any */; const char *strategy; WeightFormat format; }
		known[] = {{"float", 8, 0, "tensor", FORMAT_FP8_TENSOR}, {"float", 8, 0, "channel", FORMAT_FP8_CHANNEL},
		{"float", 8, 0, "block", FORMAT_FP8_BLOCK}, {"float", 4, NVFP4_GROUP, "tensor_group", FORMAT_NVFP4},
		{"float", 4, MXFP4_GROUP, "group", FORMAT_MXFP4}, {"int", 4, 0, "channel", FORMAT_INT4},
		{"int", 4, 32, "group", FORMAT_INT4}, {"int", 4, 64, "group", FORMAT_INT4},
		{"int", 4, 128, "group", FORMAT_INT4}};
	for (int i = 0; i < COUNT(known); i++)
		if (strcmp(is_type, known[i].type) == 0 && bits == known[i].bits && (!known[i].group || group == known[i].group)
				&& strcmp(is_strategy, known[i].strategy) == 0)
			target->format = known[i].format;
	if (target->format == FORMAT_PLAIN)
		return fail_at(r->d, A0208, w->at, "%s: %d bits of type %s by %s, group size %d: expected 8 bits of type float "
			"by tensor, channel or block, 4 by tensor_group of %d, 4 by group of %d, or 4 bits of type int by channel "
			"or by group of 32, 64 or 128", name, bits, clip_text(r->d->arena, is_type, strlen(is_type), 20),
			clip_text(r->d->arena, is_strategy, strlen(is_strategy), 20), group, NVFP4_GROUP, MXFP4_GROUP);
	if (target->format == FORMAT_INT4) {
		target->block_k = strcmp(is_strategy, "group") == 0 ? group : 0;
		return true;
	}
	if (get(w, "symmetric") && value_passes(get(w, "symmetric"), IS_FALSE))
		return fail_at(r->d, A0208, get(w, "symmetric")->at, "%s.symmetric = false: zero points are not implemented",
			name);
	if (target->format == FORMAT_FP8_BLOCK && shape
			&& !read_block(r, arena_printf(r->d->arena, "%s.block_structure", name), shape, block))
		return false;
	target->block_n = block[0];
	target->block_k = block[1];
	return true;
}

static void read_compressed(Reading *r, const Value *q)
{
	static const char *const keys[] = {"quant_method", "format", "config_groups", "ignore", "kv_cache_scheme",
		"quantization_status", "global_compression_ratio", "sparsity_config", "moe_sparsity_config",
		"transform_config", "version"};
	static const char *const formats[] = {"float-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
		"pack-quantized", "mixed-precision"};
	static const char *const empty[] = {"sparsity_config", "moe_sparsity_config", "transform_config"};
	const Value *format = get(q, "format"), *groups = get(q, "config_groups");
	r->q->name = "compressed-tensors";
	if (format)
		want_word(r, "quantization_config.format", format, formats, COUNT(formats));
	for (int i = 0; i < COUNT(empty); i++)
		if (get(q, empty[i]) && !value_passes(get(q, empty[i]), IS_EMPTY))
			fail_at(r->d, A0208, get(q, empty[i])->at, "quantization_config.%s: what it asks for is not implemented",
				empty[i]);
	if (!groups) {
		fail_at(r->d, A0202, q->at, "quantization_config.config_groups is missing");
		return;
	}
	if (!want_table(r->d, A0203, "quantization_config.config_groups", groups))
		return;
	for (const Value *g = groups->first; g; g = g->next) {
		const char *name = arena_printf(r->d->arena, "quantization_config.config_groups.%s",
			clip_text(r->d->arena, g->key, strlen(g->key), 40));
		QuantTarget target = {.format = FORMAT_PLAIN};
		if (!want_table(r->d, A0203, name, g))
			continue;
		if (get(g, "format"))
			want_word(r, arena_printf(r->d->arena, "%s.format", name), get(g, "format"), formats, COUNT(formats));
		if (!get(g, "weights"))
			fail_at(r->d, A0202, g->at, "%s.weights is missing", name);
		else if (read_stored(r, arena_printf(r->d->arena, "%s.weights", name), get(g, "weights"), &target))
			add_patterns(r, arena_printf(r->d->arena, "%s.targets", name), get(g, "targets"), &target);
	}
	add_patterns(r, "quantization_config.ignore", get(q, "ignore"), NULL);
	see_kv(r, "quantization_config.kv_cache_scheme", get(q, "kv_cache_scheme"));
	note_unknown(r, "quantization_config", q, keys, COUNT(keys));
}

void read_quant(Compile *c, const Value *config)
{
	static const char *const methods[] = {"fp8", "modelopt", "compressed-tensors", "awq", "gptq"};
	Reading r = {c, &c->diags, &c->model.quant, 0};
	const char *method = NULL;
	bool absent;
	if (config && want_table(r.d, A0203, "quantization_config", config)) {
		const Value *v = get(config, "quant_method");
		r.q->at = config->at;
		if (v)
			method = want_word(&r, "quantization_config.quant_method", v, methods, COUNT(methods));
		else
			fail_at(r.d, A0208, config->at, "quantization_config: quant_method is missing: expected %s",
				list_text(r.d->arena, methods, COUNT(methods)));
		if (!method)
			return;
		if (strcmp(method, "fp8") == 0)
			read_fp8(&r, config);
		else if (strcmp(method, "awq") == 0)
			read_awq(&r, config);
		else if (strcmp(method, "gptq") == 0)
			read_gptq(&r, config);
		else if (strcmp(method, "modelopt") == 0)
			read_modelopt(&r, "quantization_config", config);
		else
			read_compressed(&r, config);
	}
	const Value *file = json_read(&c->arena, &c->scratch, r.d, &json_config_rules,
		input_path(&c->arena, c->cmd.model_dir, "hf_quant_config.json"), &absent);
	const Value *inner = file ? get(file, "quantization") : NULL;
	if (file && !inner)
		fail_at(r.d, A0202, file->at, "quantization is missing");
	else if (file && method && strcmp(method, "modelopt") != 0)
		fail_at(r.d, A0205, file->at, "hf_quant_config.json is there: config.json in line %d says %s", r.q->at.line,
			method);
	else if (file && want_table(r.d, A0203, "quantization", inner)) {
		r.q->at = r.q->at.file ? r.q->at : inner->at;
		read_modelopt(&r, "quantization", inner);
	}
}
