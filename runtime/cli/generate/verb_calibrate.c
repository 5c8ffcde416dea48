/* verb_calibrate.c - atlas calibrate: how large are the keys and values that a model makes of a text?
 *
 * The text is read in windows, each from position 0, on the reference device, which keeps keys and values in float32.
 * After each window the caches are looked through; at the end each kv head of each layer has a scale for its keys, one
 * for its values and one for its keys rotated (kv.rotate): the largest magnitude seen, over 448, the largest number of
 * e4m3. A head of zeros alone gets 1. The file is safetensors: M.k_scale, M.v_scale and M.rotated_k_scale F32 [kv
 * heads], M being "model.layers.N.self_attn" as the checkpoint's own tensors say it. kv.scales of MODEL.toml names such
 * a file. The same text, model and window give the same bytes.
 */
#include "artifacts/json_put.h"
#include "artifacts/rolling.h"
#include "runtime/cli/cli.h"
#include "runtime/cpu/ref_ops.h"
#include "runtime/plan_handle.h"
#include "runtime/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_SIDES = 3 };
static const char *const side_names[N_SIDES] = {"k", "v", "rotated_k"};

typedef struct Layer {
	char module[256]; /* "model.layers.0.self_attn" */
	const Tensor *kv; /* [PAGES, 2, NKV, PAGE, HDIM] */
	float *largest;   /* [N_SIDES, NKV] */
} Layer;

typedef struct Calibration {
	Layer *layers;
	int n_layers, n_heads;
	float *page;  /* of the largest cache */
	char *header; /* of the file */
} Calibration;

static int64_t page_elements(const Tensor *kv) { return kv->shape[1] * kv->shape[2] * kv->shape[3] * kv->shape[4]; }

/* The name under which the checkpoint has the layer's attention, from that of any of its weights. */
static void find_module(const Graph *g, int layer, char *module, size_t bytes)
{
	char part[48];
	snprintf(part, sizeof part, ".layers.%d.self_attn.", layer);
	snprintf(module, bytes, "model.layers.%d.self_attn", layer);
	for (int i = 0; i < g->n_weights; i++) {
		const char *at = g->weights[i].file ? strstr(g->weights[i].name, part) : NULL;
		if (at && (size_t)(at - g->weights[i].name) + strlen(part) < bytes) {
			snprintf(module, bytes, "%.*s", (int)((size_t)(at - g->weights[i].name) + strlen(part) - 1),
				g->weights[i].name);
			return;
		}
	}
}

static int find_layers(const Args *args, const Graph *g, Calibration *c)
{
	int64_t most = 0;
	c->layers = calloc((size_t)g->n_layers + 1, sizeof *c->layers);
	if (!c->layers)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for %d layers", g->n_layers);
	for (int i = 0; i < g->n_ops; i++) {
		const GraphOp *op = &g->ops[i];
		/* a drafting head, which is after the layers, keeps its cache in bf16 */
		if (op->kind != OP_kv_write || op->layer >= g->n_layers || c->n_layers == g->n_layers)
			continue;
		const Tensor *kv = &g->tensors[op->operands[op_operand(OP_kv_write, "kv")]];
		Layer *l = &c->layers[c->n_layers++];
		if (kv->dtype != DT_bf16)
			return cli_say(args, EXIT_BAD_INPUT, "%s is %s: scales are measured on a plan with a bf16 KV cache",
				kv->name, dtype_name(kv->dtype));
		if (op_is_rolling(g, i))
			return cli_say(args, EXIT_BAD_INPUT, "%s holds a window alone: scales are measured on a plan with "
				"kv.rolling = false, as atlasc calibrate makes it", kv->name);
		find_module(g, op->layer, l->module, sizeof l->module);
		l->kv = kv;
		l->largest = calloc((size_t)(N_SIDES * kv->shape[2]), sizeof *l->largest);
		if (!l->largest)
			return cli_say(args, EXIT_ENVIRONMENT, "no memory for %d layers", g->n_layers);
		most = page_elements(kv) > most ? page_elements(kv) : most;
	}
	c->page = malloc((size_t)most * sizeof *c->page + 1);
	return c->page ? 0 : cli_say(args, EXIT_ENVIRONMENT, "no memory for a page of %lld elements", (long long)most);
}

/* Runs of `head` elements, the first of largest[0]. False where one is no finite number. */
static bool see_largest(const float *x, int64_t n, int64_t head, float *largest)
{
	for (int64_t i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return false;
		largest[i / head] = fmaxf(largest[i / head], fabsf(x[i]));
	}
	return true;
}

static int look_through(const Args *args, Device *d, const Layer *l, float *page)
{
	const int64_t n = page_elements(l->kv), head = l->kv->shape[3] * l->kv->shape[4], hdim = l->kv->shape[4];
	for (int64_t p = 0; p < l->kv->shape[0]; p++) {
		if (d->ops->read(d, l->kv->name, p * n, n, page) != ATLAS_OK)
			return cli_fail(args, &d->error);
		bool is_finite = see_largest(page, n, head, l->largest);
		for (int64_t i = 0; i < n / 2; i += hdim)
			ref_rotate(page + i, (int)hdim);
		if (!is_finite || !see_largest(page, n / 2, head, l->largest + 2 * l->kv->shape[2]))
			return cli_say(args, EXIT_BAD_INPUT, "%s: keys or values are not finite numbers", l->module);
	}
	return 0;
}

static int go_on(void *ctx, int pos, const float *logits)
{
	(void)ctx;
	(void)pos;
	(void)logits;
	return cli_interrupted();
}

static int measure(const Args *args, AtlasSession *session, const AtlasPlanInfo *info, const Tokens *tokens,
	const Calibration *c)
{
	int window = args->window > 0 ? args->window : info->max_context;
	if (window > info->max_context)
		return cli_say(args, EXIT_USAGE, "--window %d: the plan's context holds %d", window, info->max_context);
	if (tokens->n == 0)
		return cli_say(args, EXIT_BAD_INPUT, "%s: no tokens", args->file);
	for (int at = 0; at < tokens->n; at += window) {
		int n = tokens->n - at < window ? tokens->n - at : window, code = 0;
		AtlasStatus status = atlas_score(session, tokens->ids + at, n, go_on, NULL);
		if (status == ATLAS_STOPPED)
			return EXIT_INTERRUPTED;
		if (status != ATLAS_OK)
			return cli_fail_session(args, session, status);
		for (int l = 0; l < c->n_layers && !code; l++)
			code = look_through(args, session_device(session), &c->layers[l], c->page);
		if (code)
			return code;
	}
	return 0;
}

/* The header of the file, NULL when there is no memory for it. */
static char *make_header(const Calibration *c)
{
	char *header = NULL;
	size_t n = 0, at = 0;
	FILE *text = open_memstream(&header, &n);
	if (!text)
		return NULL;
	for (int i = 0; i < N_SIDES * c->n_layers; i++) {
		const Layer *l = &c->layers[i / N_SIDES];
		char name[sizeof l->module + 16];
		size_t bytes = sizeof *l->largest * (size_t)l->kv->shape[2];
		snprintf(name, sizeof name, "%s.%s_scale", l->module, side_names[i % N_SIDES]);
		fputc(i ? ',' : '{', text);
		json_quoted(text, name);
		fprintf(text, ":{\"dtype\":\"F32\",\"shape\":[%" PRId64 "],\"data_offsets\":[%zu,%zu]}", l->kv->shape[2], at,
			at + bytes);
		at += bytes;
	}
	fputc('}', text);
	bool good = !ferror(text);
	if (fclose(text) == 0 && good)
		return header;
	free(header);
	return NULL;
}

static void write_scales(const void *what, FILE *file)
{
	const Calibration *c = what;
	uint64_t length = (strlen(c->header) + 7) / 8 * 8; /* little-endian like everything here */
	fwrite(&length, sizeof length, 1, file);
	fprintf(file, "%-*s", (int)length, c->header);
	for (int i = 0; i < N_SIDES * c->n_layers; i++) {
		const Layer *l = &c->layers[i / N_SIDES];
		for (int64_t h = 0; h < l->kv->shape[2]; h++) {
			float largest = l->largest[(i % N_SIDES) * l->kv->shape[2] + h], scale = largest > 0 ? largest / 448 : 1;
			fwrite(&scale, sizeof scale, 1, file);
		}
	}
}

int verb_calibrate(const Args *args)
{
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	AtlasPlanInfo info = {.struct_size = sizeof info};
	Tokens tokens = {0};
	Calibration c = {0};
	char *text = NULL;
	size_t n;
	if (!args->file)
		return cli_say(args, EXIT_USAGE, "name the text: -f FILE");
	if (!args->output || !*args->output)
		return cli_say(args, EXIT_USAGE, "name the file to write: -o FILE");
	cli_hold_signals();
	int code = cli_check_output(args, args->output);
	if (!code)
		code = cli_read_file(args, args->file, &text, &n);
	if (!code)
		code = cli_open_plan(args, args->plan, &plan);
	if (!code)
		code = find_layers(args, &plan->artifact.graph, &c);
	if (!code)
		code = cli_encode(args, plan, text, n, &tokens);
	if (!code)
		code = cli_open_session(args, plan, "cpu", NULL, &session);
	if (!code) {
		atlas_plan_info(plan, &info);
		code = measure(args, session, &info, &tokens, &c);
	}
	if (!code && !(c.header = make_header(&c)))
		code = cli_say(args, EXIT_ENVIRONMENT, "no memory to write %s", args->output);
	if (!code)
		code = cli_write_file(args, args->output, write_scales, &c);
	if (!code && !args->quiet)
		fprintf(stderr, "%s: scales of %d layers from %d tokens\n", args->output, c.n_layers, tokens.n);
	for (int l = 0; l < c.n_layers; l++)
		free(c.layers[l].largest);
	free(c.layers);
	free(c.page);
	free(c.header);
	free(text);
	free(tokens.ids);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return code;
}
