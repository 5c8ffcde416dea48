/* option_table.c - every key of MODEL.toml with its type, range and meaning, and what prints them. */
#include "compiler/read/option_table.h"
#include "artifacts/closest.h"
#include "artifacts/manual.h"
#include "artifacts/order.h"
#include "compiler/ir.h"
#include "compiler/read/read_model.h"

#include <stdio.h>
#include <string.h>

const OptionRow option_table[N_OPTIONS] = {
	[FAMILY] = {"model.family", T_WORD, 0, 0, false, "family of the model; must match config.json"
		},
	[SLOTS] = {"runtime.slots", T_INT, 1, PLAN_MAX_SLOTS, false, "sequences that can be active at once"},
	[MAX_CONTEXT] = {"runtime.max_context", T_INT, 1, MAX_POSITION, false,
		"tokens of one sequence, prompt included; the family's value is lowered for a model with less"},
	[KV_DTYPE] = {"kv.dtype", T_WORD, 0, 0, false, "format of the KV cache: bf16, fp8 (e4m3 with one scale per head) "
		"or nvfp4 (e2m1, with another scale per 16 elements)"},
	[KV_BF16_FIRST] = {"kv.bf16_first", T_INT, 0, PLAN_MAX_LAYERS, false, "keep the first N layers in bf16"},
	[KV_BF16_LAST] = {"kv.bf16_last", T_INT, 0, PLAN_MAX_LAYERS, false, "keep the last N layers in bf16"},
	[KV_ROTATE] = {"kv.rotate", T_BOOL, 0, 0, false, "true: in layers with an fp8 or nvfp4 cache, multiply queries and "
		"keys by a Hadamard matrix before keys are rounded. Attention scores do not change, and outliers of a key are "
		"spread over the whole head, which reduces the rounding error; heads of 80 or 96 elements are rotated as 64 "
		"and 16, or 64 and 32. false: no rotation"},
	[KV_SCALES] = {"kv.scales", T_WORD, 0, 0, false, "safetensors file of scales written by `atlasc calibrate`, "
		"relative to this file; \"\" = the checkpoint's scales, or 1 where it has none"},
	[KV_PAGE] = {"kv.page", T_INT, 8, 1024, false, "tokens of one KV page, a power of two"},
	[KV_POOL_TOKENS] = {"kv.pool_tokens", T_INT, 0, 1 << 30, false,
		"KV cache tokens shared by all sequences; 0 = slots * max_context"},
	[KV_ROLLING] = {"kv.rolling", T_BOOL, 0, 0, false, "true: layers with a window keep the keys and values that it "
		"holds, and those of one step, in pages of each slot that are written in turn; where that takes fewer pages, "
		"cache.snapshots counted, than all layers would have of the pool. false: they keep the whole context"},
	[CACHE_SNAPSHOTS] = {"cache.snapshots", T_INT, 0, 4096, false,
		"recurrent states (of Gated DeltaNet) and windows (of kv.rolling) kept after parts of prompts, from which "
		"prompts that begin alike go on; each takes the memory that a slot's states and windows take, on the device. "
		"0 = none: no prefix cache then"},
	[PREFILL_ROWS] = {"phases.prefill", T_BUCKETS, 1, 65536, false,
		"rows that prefill is compiled for, ascending; the family's list is cut to the tokens of all slots"},
	[PROMPT_GRID] = {"phases.grid", T_INT, 1, 65536, false,
		"prompts are cut into steps at multiples of this many positions, so that no cut depends on other prompts; a "
		"multiple of 64 for Gated DeltaNet, and at most the largest entry of phases.prefill. The family's default is "
		"lowered to that entry"},
	[DECODE_ROWS] = {"phases.decode", T_BUCKETS, 1, PLAN_MAX_SLOTS, false,
		"rows that decode is compiled for, ascending, the last at least slots; the family's list is cut or "
		"continued to end at slots"},
	[TEMPERATURE] = {"sampling.temperature", T_REAL, 0, 100, false, "0 = greedy: always the most probable token"},
	[TOP_K] = {"sampling.top_k", T_INT, 0, MAX_VOCAB, false, "sample from the k most probable tokens; 0 = all"},
	[TOP_P] = {"sampling.top_p", T_REAL, 0, 1, true, "sample from the most probable tokens whose probabilities sum to "
		"p"},
	[MIN_P] = {"sampling.min_p", T_REAL, 0, 1, false, "drop tokens less probable than min_p times the most probable "
		"one"},
	[REPETITION_PENALTY] = {"sampling.repetition_penalty", T_REAL, 1e-3, 100, false, "1 = none"},
	[MAX_NEW_TOKENS] = {"sampling.max_new_tokens", T_INT, 1, MAX_POSITION, false, "maximum number of tokens to generate"
		},
	[STOP] = {"sampling.stop", T_TOKENS, 0, MAX_VOCAB, false, "token ids that end a sequence, in addition to the "
		"model's own"},
	[IGNORE] = {"weights.ignore", T_NAMES, 0, 0, false, "tensors that may be unused; one * matches any text"},
	[QUANT] = {"quant", T_FORMATS, 0, 0, false, "[quant]: products to quantise now, MODULE = \"FORMAT\"; MODULE is a "
		"name, its first or last parts, or a pattern with *; the first line that matches decides; FORMAT is fp8-block "
		"(128 x 128; fewer rows if k or v, which are read with q, would begin inside a block), fp8-channel (by row), "
		"fp8-tensor, nvfp4, mxfp4; bf16: decoded, each element rounded to nearest; or keep: as in the checkpoint"},
	[KV_LAYERS] = {"kv.layers", T_RULES, 0, 0, false, "[[kv.layers]]: the format of some layers, overriding all other "
		"options; keys: layers (\"first-last\" or a list), dtype and, if it differs from kv.rotate, rotate"},
	[FP4] = {"kernels.fp4", T_CHOICE, 0, 0, false, "how long prompts multiply NVFP4 weights: weight_only (default): "
		"with activations in bf16; native: with activations in e2m1, on sm_120a and sm_121a only"},
	[FUSE] = {"kernels.fuse", T_CHOICE, 0, 0, false, "false: each operation of the graph gets its own launch, to "
		"check fused plans; true (default): one launch does several where a template can"},
	[PIN] = {"kernels.pin", T_RULES, 0, 0, false, "[[kernels.pin]]: use this template where the rule applies; keys: "
		"template, and to narrow it op, phase, layers (\"first-last\" or a list), tunables ({ NAME = value })"},
	[BAN] = {"kernels.ban", T_RULES, 0, 0, false, "[[kernels.ban]]: do not use this template where the rule applies; "
		"the same keys"},
	[SPECULATE_ROWS] = {"speculate.rows", T_COUNT, 1, PLAN_MAX_VERIFY, false, "tokens that a verify step reads for "
		"each sequence: the last one and the drafts; 1 leaves the draft head out and disables speculative decoding. "
		"Families with a draft head have a default; others need speculate.drafter = \"ngram\""},
	[SPECULATE_HEAD] = {"speculate.head", T_CHOICE, 0, 0, false, "format of a copy of the model's head that only "
		"drafts use for their logits: one of [quant]'s except bf16 and keep. The acceptance rate may change; the text "
		"of a prompt that runs alone does not"},
	[SPECULATE_VOCABULARY] = {"speculate.vocabulary", T_COUNT, 1, MAX_VOCAB, false, "draft only the first N token ids, "
		"by a copy of their rows of the head. Tokenizers number merges in the order in which they were learned, so "
		"frequent tokens come first"},
	[SPECULATE_VOCABULARY_FILE] = {"speculate.vocabulary_file", T_CHOICE, 0, 0, false, "draft only the token ids in "
		"this file: one per line, ascending; the path is relative to MODEL.toml"},
	[SPECULATE_LADDER] = {"speculate.ladder", T_PAIRS, 0, 0, false, "rows by load, in place of speculate.rows: "
		"[[1, 4], [4, 3], [16, 2]] reads 4 rows of a sequence that runs alone, 3 of each while 2 to 4 run, 2 while 5 "
		"to 16 run, and drafts nothing above. Slots ascend, rows descend"},
	[SPECULATE_DRAFTER] = {"speculate.drafter", T_CHOICE, 0, 0, false, "what drafts: mtp, the family's draft head "
		"(default where it has one); ngram, for any family: what followed the latest earlier occurrence of a text's "
		"last tokens, in prompt and answer (prompt lookup); needs speculate.rows or speculate.ladder"},
	[SPECULATE_NGRAM] = {"speculate.ngram", T_BUCKETS, 1, PLAN_MAX_NGRAM, false, "for drafter = \"ngram\": [least, "
		"most] tokens that must be equal; longer matches go first"},
	[STATE_DTYPE] = {"state.dtype", T_CHOICE, 0, 0, false, "(families with Gated DeltaNet) dtype of recurrent states "
		"and of their versions after each row of a verify step: f32 or bf16. Default: mamba_ssm_dtype of config.json, "
		"else f32. Sums are always f32; bf16 states are rounded after each token in decode, after each row in verify, "
		"and after every 64 tokens and at the end of a prompt in prefill"},
	[CONFIG] = {"config", T_KEYS, 0, 0, false, "[config]: values that replace those of config.json, by the same names, "
		"nested ones with dots or as tables: rope_scaling.factor = 4.0; unset = [\"NAME\"] removes keys. The file is "
		"not changed; a note names each value, and the plan records it"},
	[CARD] = {"target.card", T_CHOICE, 0, 0, false, "card whose built-in times choose the kernels; --card overrides "
		"it. `atlasc --list-targets` lists the cards. Default: the target's typical card, or the only one that was "
		"measured"},
	[INVARIANT] = {ORDER_OPTION, T_SWITCH, 0, 0, false, "true: choose kernels so that a sequence has the same bits "
		"alone or with others, with or without drafts: one order of sums for each op in all buckets of prefill, and "
		"one in all of decode and verify. What has none is refused. Default: false, the fastest kernel of each "
		"bucket"},
	[FP8_ROWS] = {"numerics.fp8_rows", T_COUNT, 1, 65536, false, "decode and verify steps of at least this many rows "
		"multiply FP8 weights as long prompts do, by rows rounded to e4m3, where the GPU can. Faster, less exact: the "
		"rows of such a step then depend on load. Default: rows stay bf16 in all of them"},
	[PARALLEL_RANKS] = {"parallel.ranks", T_COUNT, 1, PLAN_MAX_RANKS, false, "GPUs that run the plan together: 1 "
		"(default), 2, 4 or 8. Heads, the width of MLPs, experts and the vocabulary are divided among them; what "
		"cannot be divided evenly is refused"},
	[PARALLEL_EXPERTS] = {"parallel.experts", T_CHOICE, 0, 0, false, "for parallel.ranks: whole (default): each rank "
		"has as many whole experts; cut: each has a part of every expert's width, so the load is even"},
	[PARALLEL_NCCL] = {"parallel.nccl_above", T_COUNT, 0, 1 << 30, false, "for parallel.ranks: sums and gathers of "
		"parts of more bytes than this in a phase are NCCL's, whose order follows from their length; default: none; "
		"for ranks on several hosts 0"},
};

static const char *const type_names[] = {
	[T_INT] = "integer", [T_REAL] = "number", [T_BOOL] = "boolean",
	[T_WORD] = "word", [T_BUCKETS] = "integers", [T_TOKENS] = "token ids",
	[T_NAMES] = "strings", [T_FORMATS] = "words", [T_CHOICE] = "word",
	[T_RULES] = "tables", [T_COUNT] = "integer", [T_KEYS] = "values",
	[T_SWITCH] = "boolean", [T_PAIRS] = "pairs",
};

bool is_option_section(const char *name)
{
	size_t n = strlen(name);
	for (int k = 0; k < N_OPTIONS; k++)
		if (strncmp(option_table[k].key, name, n) == 0 && option_table[k].key[n] == '.')
			return true;
	return false;
}

static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

/* The section meant, for a name without a dot. */
static const char *suggest_section(Arena *a, const char *seen)
{
	const char *names[N_OPTIONS];
	for (int k = 0; k < N_OPTIONS; k++)
		names[k] = arena_strndup(a, option_table[k].key, strcspn(option_table[k].key, "."));
	return strchr(seen, '.') ? NULL : closest_name(seen, names, N_OPTIONS);
}

const char *suggest_option(Arena *a, const char *seen)
{
	const char *names[N_OPTIONS], *last = last_part(seen);
	for (int k = 0; k < N_OPTIONS; k++) {
		names[k] = option_table[k].key;
		if (strcmp(last_part(names[k]), last) == 0)
			return names[k];
	}
	const char *close = suggest_section(a, seen);
	if (close || (close = closest_name(seen, names, N_OPTIONS)))
		return close;
	for (int k = 0; k < N_OPTIONS; k++) { /* alike in the last part */
		const char *part = last_part(names[k]);
		if (closest_name(last, &part, 1))
			return names[k];
	}
	return NULL;
}

/* "1 to 1024"; "" where the type has none. */
static void print_range(const OptionRow *row, char *out, size_t n)
{
	*out = 0;
	if (row->type <= T_REAL || row->type == T_BUCKETS || row->type == T_COUNT)
		snprintf(out, n, "%s%.15g to %.15g", row->above ? "above " : "", row->lo, row->hi);
}

void print_option_table(void *file)
{
	FILE *f = file;
	for (int k = 0; k < N_OPTIONS; k++) {
		const OptionRow *row = &option_table[k];
		char range[64];
		print_range(row, range, sizeof range);
		fprintf(f, "%-28s %-10s %-18s %s\n", row->key, type_names[row->type], range, row->meaning);
	}
}

void print_option_page(FILE *f)
{
	for (int k = 0; k < N_OPTIONS; k++) {
		const OptionRow *row = &option_table[k];
		char range[64], tag[160];
		print_range(row, range, sizeof range);
		snprintf(tag, sizeof tag, "%s (%s%s%s)", row->key, type_names[row->type], *range ? " " : "", range);
		manual_item(f, tag, row->meaning);
	}
}
