/* tokenizer_class.c - what the class does that `AutoTokenizer` makes of a folder.
 *
 * The reference is transformers 5.17. Its TokenizersBackend (PreTrainedTokenizerFast, and any name that it does not
 * know) takes tokenizer.json unchanged. A class with a constructor of its own takes vocabulary, merges and
 * post_processor of it, and builds the rest itself; the parts of those classes are below as the JSON that
 * tokenizer.json would hold. Where the file says something else, a note says so: the class decides, for so the ids are
 * what the library gives.
 *
 * Which class: the library has one of its own for some values of model_type in config.json (Family.tokenizer). Some
 * hold whatever the files name; before the others a name that tokenizer_class has counts.
 * tokenizer_class is a key of tokenizer_config.json, or else of config.json; "Fast" at its end means nothing.
 *
 * One thing is done otherwise. A class for characters (Metaspace) cannot read a vocabulary of bytes (ByteLevel), nor
 * the reverse; folders that name such a class (deepseek-coder, DeepSeek-R1-Distill-Llama) are in a list of the library
 * by their names on the hub, and their tokenizer.json is taken unchanged. Here no name is needed: it is so for all.
 */
#include "compiler/read/family.h"
#include "compiler/tokenizer/tokenizer_config.h"

#include <string.h>

#define QWEN2_PATTERN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|" \
	" ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN3_5_PATTERN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}|" \
	" ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define BYTE_LEVEL(space, regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" space ",\"trim_offsets\":true," \
	"\"use_regex\":" regex "}"
#define BYTE_DECODER "\"decoder\":" BYTE_LEVEL("true", "true")
#define PLAIN_MODEL "\"model\":{\"unk_token\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false}"
#define MARK "\xE2\x96\x81"
#define MARK_DECODERS "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"}," \
	"{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

/* A key that is true, false, or as good as absent where `null` allows it. */
static bool read_switch(Diags *d, const Value *config, const char *key, bool absent, bool null, bool *out)
{
	const Value *v = value_get(config, key);
	*out = absent;
	if (!v || (null && v->kind == VALUE_NULL))
		return true;
	return want_bool(d, A0504, key, v, out);
}

/* more: parts besides, each followed by a comma. */
static const char *byte_parts(Arena *a, Diags *d, const Value *config, bool null, const char *more, const char *form,
	const char *pattern)
{
	bool space;
	if (!read_switch(d, config, "add_prefix_space", false, null, &space))
		return NULL;
	const char *bytes = pattern ? (space ? BYTE_LEVEL("true", "false") : BYTE_LEVEL("false", "false")) :
		(space ? BYTE_LEVEL("true", "true") : BYTE_LEVEL("false", "true"));
	if (pattern)
		bytes = arena_printf(a, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
			"{\"Regex\":\"%s\"},\"behavior\":\"Isolated\",\"invert\":false},%s]}", pattern, bytes);
	return arena_printf(a, "{%s\"normalizer\":%s,\"pre_tokenizer\":%s," BYTE_DECODER "," PLAIN_MODEL "}", more, form,
		bytes);
}

static const char *qwen2_parts(Arena *a, Diags *d, const Value *config)
{
	return byte_parts(a, d, config, true, "", "{\"type\":\"NFC\"}", QWEN2_PATTERN);
}

static const char *qwen3_5_parts(Arena *a, Diags *d, const Value *config)
{
	return byte_parts(a, d, config, true, "", "{\"type\":\"NFC\"}", QWEN3_5_PATTERN);
}

static const char *gpt2_parts(Arena *a, Diags *d, const Value *config)
{
	return byte_parts(a, d, config, false, "", "null", NULL);
}

static const char *gpt_neox_parts(Arena *a, Diags *d, const Value *config)
{
	return byte_parts(a, d, config, false, "\"post_processor\":null,", "{\"type\":\"NFC\"}", NULL);
}

static const char *llama_parts(Arena *a, Diags *d, const Value *config)
{
	bool space, legacy;
	if (!read_switch(d, config, "add_prefix_space", true, true, &space) ||
			!read_switch(d, config, "legacy", false, true, &legacy))
		return NULL;
	return arena_printf(a, "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
		"\",\"prepend_scheme\":\"%s\",\"split\":false},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" MARK_DECODERS
		"%s]},\"model\":{\"unk_token\":null,\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false}}",
		!space ? "never" : legacy ? "always" : "first",
		space ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static const char *gemma_parts(Arena *a, Diags *d, const Value *config)
{
	(void)d;
	(void)config;
	return arena_strdup(a, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK
		"\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
		"\"MergedWithPrevious\",\"invert\":false},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" MARK_DECODERS
		"]},\"model\":{\"unk_token\":null,\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false}}");
}

static const TokenizerClass classes[] = {
	{.name = "Qwen2Tokenizer", .unk = "<|endoftext|>", .eos = "<|endoftext|>", .pad = "<|endoftext|>", .readds = true,
		.keeps_pad = true, .parts = qwen2_parts},
	{.name = "Qwen3_5Tokenizer", .unk = "<|endoftext|>", .eos = "<|endoftext|>", .pad = "<|endoftext|>",
		.keeps_pad = true, .parts = qwen3_5_parts},
	{.name = "LlamaTokenizer", .unk = "<unk>", .bos = "<s>", .eos = "</s>", .parts = llama_parts},
	{.name = "GemmaTokenizer", .unk = "<unk>", .bos = "<bos>", .eos = "<eos>", .pad = "<pad>", .mask = "<mask>",
		.keeps_pad = true, .parts = gemma_parts},
	{.name = "GPT2Tokenizer", .unk = "<|endoftext|>", .bos = "<|endoftext|>", .eos = "<|endoftext|>",
		.keeps_pad = true, .parts = gpt2_parts},
	{.name = "GPTNeoXTokenizer", .unk = "<|endoftext|>", .bos = "<|endoftext|>", .eos = "<|endoftext|>",
		.pad = "<|padding|>", .keeps_pad = true, .parts = gpt_neox_parts},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

/* Classes of the library that build their parts as well, or read other files, and are not implemented here. */
static const char *const other_classes[] = {
	"AlbertTokenizer", "BarthezTokenizer", "BartphoTokenizer", "BertGenerationTokenizer", "BertJapaneseTokenizer",
	"BertTokenizer", "BertTokenizerLegacy", "BertweetTokenizer", "BigBirdTokenizer", "BioGptTokenizer",
	"BlenderbotSmallTokenizer", "BlenderbotTokenizer", "ByT5Tokenizer", "CLIPTokenizer", "CTRLTokenizer",
	"CamembertTokenizer", "CanineTokenizer", "ClvpTokenizer", "CodeGenTokenizer", "CodeLlamaTokenizer",
	"CohereTokenizer", "CpmAntTokenizer", "CpmTokenizer", "DPRContextEncoderTokenizer",
	"DPRQuestionEncoderTokenizer", "DPRReaderTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer", "DiaTokenizer",
	"DistilBertTokenizer", "EsmTokenizer", "EsmcTokenizer", "FSMTTokenizer", "FastSpeech2ConformerTokenizer",
	"FlaubertTokenizer", "FunnelTokenizer", "GPTNeoXJapaneseTokenizer", "GPTSw3Tokenizer",
	"HerbertTokenizer", "LasrTokenizer", "LayoutLMv2Tokenizer", "LayoutLMv3Tokenizer", "LayoutXLMTokenizer",
	"LukeTokenizer", "M2M100Tokenizer", "MBart50Tokenizer", "MBartTokenizer", "MLukeTokenizer", "MPNetTokenizer",
	"MarianTokenizer", "MarkupLMTokenizer", "MgpstrTokenizer", "MistralCommonBackend", "MistralCommonTokenizer",
	"MyT5Tokenizer", "NllbTokenizer", "NougatTokenizer", "OpenAIGPTTokenizer", "PLBartTokenizer",
	"PegasusTokenizer", "PerceiverTokenizer", "PhobertTokenizer", "ProphetNetTokenizer", "ReformerTokenizer",
	"RemBertTokenizer", "RoCBertTokenizer", "RoFormerTokenizer", "RobertaTokenizer", "SeamlessM4TTokenizer",
	"SentencePieceBackend", "Siglip2Tokenizer", "SiglipTokenizer", "Speech2TextTokenizer", "SpeechT5Tokenizer",
	"SplinterTokenizer", "T5Tokenizer", "TapasTokenizer", "Tipsv2Tokenizer", "UdopTokenizer", "VideoPrismTokenizer",
	"VitsTokenizer", "Wav2Vec2CTCTokenizer", "Wav2Vec2PhonemeCTCTokenizer", "WhisperTokenizer", "XGLMTokenizer",
	"XLMRobertaTokenizer", "XLMTokenizer", "XLNetTokenizer",
};

/* Is `name`, with or without "Fast" at its end, the class? */
static bool is_class(const char *name, const char *class)
{
	size_t n = strlen(class);
	return strncmp(name, class, n) == 0 && (!name[n] || strcmp(name + n, "Fast") == 0);
}

static const TokenizerClass *class_of(const char *name)
{
	for (int i = 0; name && i < N_CLASSES; i++)
		if (is_class(name, classes[i].name))
			return &classes[i];
	return NULL;
}

bool is_tokenizer_class(const char *name) { return class_of(name) != NULL; }

bool find_tokenizer_class(Diags *d, const Families *families, const Value *config, const Value *tokenizer_config,
	const TokenizerClass **out)
{
	const Value *named = value_get(tokenizer_config, "tokenizer_class"), *type = value_get(config, "model_type");
	if (!named || named->kind == VALUE_NULL)
		named = value_get(config, "tokenizer_class");
	const char *name = NULL;
	*out = NULL;
	if (named && named->kind != VALUE_NULL && !want_string(d, A0504, "tokenizer_class", named, &name))
		return false;
	const Family *own = families && type && type->kind == VALUE_STRING
		? family_by_model_type(families, type->string) : NULL;
	if (own && own->tokenizer && (!name || own->is_tokenizer_final)) {
		*out = class_of(own->tokenizer);
		return true;
	}
	if (!name)
		return true;
	*out = class_of(name);
	for (size_t i = 0; i < sizeof other_classes / sizeof *other_classes; i++)
		if (is_class(name, other_classes[i])) {
			const char *known = "PreTrainedTokenizerFast";
			for (int k = 0; k < N_CLASSES; k++)
				known = arena_printf(d->arena, "%s, %s", known, classes[k].name);
			return fail_at(d, A0507, named->at, "tokenizer_class = %s: this class builds parts of the tokenizer "
				"itself, which is not implemented; expected one of %s", value_text(d->arena, named), known);
		}
	return true;
}

/* Putting the parts in --------------------------------------------------------------------------------- */

/* Does a part somewhere have the type ByteLevel? */
static bool has_byte_level(const json_t *part)
{
	const char *key;
	json_t *v;
	size_t i;
	const char *type = json_string_value(json_object_get(part, "type"));
	if (type && strcmp(type, "ByteLevel") == 0)
		return true;
	json_object_foreach((json_t *)(uintptr_t)part, key, v)
		if ((json_is_object(v) || json_is_array(v)) && has_byte_level(v))
			return true;
	json_array_foreach((json_t *)(uintptr_t)part, i, v)
		if ((json_is_object(v) || json_is_array(v)) && has_byte_level(v))
			return true;
	return false;
}

/* Equal but for what changes no id and no text: offsets, options of ByteLevel as a decoder, defaults. */
static bool same_part(const json_t *a, const json_t *b, bool is_decoder)
{
	const char *key;
	json_t *v;
	size_t i;
	if (json_typeof(a) != json_typeof(b))
		return false;
	if (json_is_array(a)) {
		bool same = json_array_size(a) == json_array_size(b);
		json_array_foreach((json_t *)(uintptr_t)a, i, v)
			same = same && same_part(v, json_array_get(b, i), is_decoder);
		return same;
	}
	if (!json_is_object(a))
		return json_equal(a, b);
	const char *type = json_string_value(json_object_get(a, "type"));
	const bool bytes = is_decoder && type && strcmp(type, "ByteLevel") == 0;
	for (int turn = 0; turn < 2; turn++) {
		const json_t *x = turn ? b : a, *y = turn ? a : b;
		json_object_foreach((json_t *)(uintptr_t)x, key, v) {
			const json_t *other = json_object_get(y, key);
			if (strcmp(key, "trim_offsets") == 0 || (bytes && strcmp(key, "type") != 0))
				continue;
			if (!other ? !(json_is_false(v) || json_is_null(v)) : !same_part(v, other, is_decoder))
				return false;
		}
	}
	return true;
}

static void replace_part(json_t *root, const json_t *parts, const char *name, Arena *a, const char **differ)
{
	json_t *old = json_object_get(root, name), *new = json_object_get(parts, name);
	if (!new)
		return;
	json_t *null = old ? NULL : json_null();
	if (!same_part(old ? old : null, new, strcmp(name, "decoder") == 0))
		*differ = **differ ? arena_printf(a, "%s, %s", *differ, name) : name;
	json_object_set(root, name, new);
}

static void replace_flags(json_t *root, const json_t *parts, Arena *a, const char **differ)
{
	json_t *model = json_object_get(root, "model"), *v;
	const char *key;
	json_object_foreach(json_object_get(parts, "model"), key, v) {
		const json_t *old = json_object_get(model, key);
		const bool is_off = !old || json_is_null(old) || json_is_false(old);
		if (strcmp(key, "unk_token") != 0 && (is_off ? json_is_true(v) : !json_equal(old, v)))
			*differ = arena_printf(a, "%s%smodel.%s", *differ, **differ ? ", " : "", key);
		json_object_set(model, key, v);
	}
}

bool apply_tokenizer_class(Reader *r, TokenizerConfig *t, json_t *root)
{
	json_t *model = json_object_get(root, "model");
	if (!t->class || !json_is_object(model)) /* read_tokenizer says what a file without a model lacks */
		return true;
	const char *text = t->class->parts(r->arena, r->diags, t->top), *differ = "";
	if (!text)
		return false;
	json_error_t e;
	json_t *parts = json_loads(text, 0, &e);
	if (!parts)
		bug("%s: %s", t->class->name, e.text);
	const bool bytes = has_byte_level(json_object_get(root, "pre_tokenizer"));
	if (bytes != has_byte_level(json_object_get(parts, "pre_tokenizer"))) {
		note_at(r->diags, A0510, (Loc){r->file, 0, 0}, "%s is a class for %s, but the vocabulary is one of %s: "
			"tokenizer.json is used unchanged", t->class->name, bytes ? "characters" : "bytes",
			bytes ? "bytes" : "characters");
		t->class = NULL;
		json_decref(parts);
		return true;
	}
	replace_part(root, parts, "normalizer", r->arena, &differ);
	replace_part(root, parts, "pre_tokenizer", r->arena, &differ);
	replace_part(root, parts, "decoder", r->arena, &differ);
	replace_part(root, parts, "post_processor", r->arena, &differ);
	replace_flags(root, parts, r->arena, &differ);
	json_decref(parts);
	if (*differ)
		note_at(r->diags, A0510, (Loc){r->file, 0, 0}, "as in transformers, %s builds these parts itself, and those of "
			"the file are not used: %s", t->class->name, differ);
	return true;
}
