/* certify.c - atlas verify --certify: the numerics certificate of a plan.
 *
 * A session of the GPU runs steps in every bucket of every phase, a few rows each, while measure.c looks at each
 * launch; then a prompt goes through the GPU and through the reference device, and their layers are compared. What came
 * of it is written next to the plan, with its verdict, in place of what was there: a certificate that does not hold is
 * better than one of yesterday.
 */
#include "runtime/cli/trust/certify.h"
#include "artifacts/op_table.h"
#include "runtime/cli/cli_trace.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/plan_handle.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 8, MOST_STEPS = 64, TRIES = 8 };

typedef struct Work {
	const Args *args;
	const AtlasPlan *plan;
	const Driver *driver;
	Tokens prompt;
	Certificate c;
	Dtype *coarsest; /* [n_layers + 1] */
	Trace got, want; /* of the prompt: by the GPU, by the reference device */
} Work;

static const Graph *graph_of(const Work *w) { return &w->plan->artifact.graph; }

static int short_of_memory(const Work *w) { return cli_say(w->args, EXIT_ENVIRONMENT, "no memory to measure with"); }

/* Ids without a meaning, the same ones for each plan of the vocabulary and page; some are in a second page. */
static int make_prompt(Work *w, const Tokens *tokens)
{
	const Graph *g = graph_of(w);
	if (g->max_context < FEW)
		return cli_say(w->args, EXIT_BAD_INPUT, "--certify needs a context of %d tokens, the plan has %d", FEW,
			g->max_context);
	const int most = CERT_TOKENS < g->max_context - 4 ? CERT_TOKENS : g->max_context - 4;
	int n = tokens->n ? tokens->n : g->page + FEW;
	if (tokens->n > most)
		cli_message(w->args, NULL, MESSAGE_NOTE, NULL, "the first %d tokens are read", most);
	n = n < most ? n : most;
	int code = cli_made_tokens(w->args, w->plan, n, &w->prompt);
	if (code)
		return code;
	if (tokens->n)
		memcpy(w->prompt.ids, tokens->ids, sizeof *w->prompt.ids * (size_t)n);
	w->c.n_tokens = n;
	memcpy(w->c.tokens, w->prompt.ids, sizeof *w->prompt.ids * (size_t)n);
	return 0;
}

/* Sessions ------------------------------------------------------------ */

static int open_gpu(const Work *w, const char *speculate, AtlasSession **session)
{
	Args args = *w->args;
	args.speculate = speculate;
	args.steps_ahead = 1;
	args.quiet = true;
	if (!w->driver)
		return cli_open_session(&args, w->plan, "cuda", NULL, session);
	Device *device;
	AtlasError error;
	const DeviceConfig config = {.artifact = &w->plan->artifact, .weights = w->plan->weights, .driver = w->driver,
		.steps_ahead = 1, .n_threads = 1};
	AtlasStatus s = cuda_open(&config, &device, &error);
	if (s == ATLAS_OK)
		s = session_open_on(w->plan, device, session, &error);
	if (s == ATLAS_OK)
		session_speculate(*session, cli_speculates(&args));
	return s == ATLAS_OK ? 0 : cli_fail(w->args, &error);
}

typedef struct Batch { int n, tokens, more, max_new, shift; } Batch; /* sequences; of the i-th: tokens + i % 3 * more of
																	  the prompt, from shift + i on */

/* Starts them, or as many as there is room for, and runs until all have ended. */
static AtlasStatus run_sequences(const Work *w, AtlasSession *session, const Batch *b)
{
	AtlasSampling greedy;
	atlas_sampling_init(w->plan, &greedy);
	greedy.temperature = 0;
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(session, &info);
	const int cap = graph_of(w)->slots * info.step_tokens;
	AtlasEvent *events = malloc(sizeof *events * (size_t)cap);
	AtlasStatus s = events ? ATLAS_OK : ATLAS_NO_MEMORY;
	int slot, made;
	for (int i = 0; i < b->n && s == ATLAS_OK; i++) {
		int want = b->tokens + i % 3 * b->more;
		want = want < w->prompt.n ? want : w->prompt.n;
		int from = (b->shift + i) % (w->prompt.n - want + 1);
		s = atlas_start(session, w->prompt.ids + from, want, &greedy, b->max_new, &slot);
		if (i > 0 && (s == ATLAS_NO_SLOT || s == ATLAS_NO_PAGES)) {
			s = ATLAS_OK;
			break;
		}
	}
	for (int i = 0; i < MOST_STEPS && s == ATLAS_OK && atlas_active(session) && !cli_interrupted(); i++)
		s = atlas_step(session, events, cap, &made);
	for (int i = 0; i < graph_of(w)->slots && s == ATLAS_OK; i++)
		atlas_cancel(session, i); /* of none: refused, which is as well */
	free(events);
	return s;
}

static bool is_measured(const Work *w, const Phase *p)
{
	char name[32];
	snprintf(name, sizeof name, "%s", PHASE_LABEL(p));
	for (int i = 0; i < w->c.n_ops; i++)
		if (strcmp(w->c.ops[i].phase, name) == 0)
			return true;
	return false;
}

static bool has_verify(const TargetPlan *t)
{
	for (int p = 0; p < t->n_phases; p++)
		if (t->phases[p].kind == VERIFY)
			return true;
	return false;
}

/* Steps in all buckets of prefill and decode, or in those that draft and verify. */
static AtlasStatus measure_buckets(Work *w, AtlasSession *session, Measure *m, bool drafts)
{
	Device *device = ranked_inner(session_device(session));
	const TargetPlan *target = cuda_target(device);
	AtlasStatus s = ATLAS_OK;
	for (int i = 0; i < target->n_phases && s == ATLAS_OK; i++) {
		const Phase *p = &target->phases[i];
		if (drafts ? p->kind != VERIFY : p->kind != PREFILL && p->kind != DECODE)
			continue;
		if (!w->args->quiet)
			cli_say(w->args, 0, "measuring %s", PHASE_LABEL(p));
		measure_bucket(m, i);
		s = ranked_measure(session_device(session), i);
		session_force_rows(session, p->each);
		/* two prompts share a chunk, which must not be too large for this bucket; the largest one takes any */
		const int whole = w->prompt.n, room = p->rows > 2 * FEW ? p->rows - FEW : p->rows;
		const bool is_largest = p->rows >= device->limits.prefill_rows;
		const int most = is_largest || room > whole ? whole : room;
		Batch b = {is_largest || room < p->rows ? 2 : 1, most, most > FEW ? FEW - most : 0, 1, 0};
		if (p->kind != PREFILL)
			b = (Batch){drafts ? p->rows / p->each : p->rows, whole, whole > 2 ? -1 : 0,
				drafts ? 6 : 3, 0};
		for (; b.shift < TRIES && s == ATLAS_OK && !is_measured(w, p); b.shift++) /* an answer may end at once */
			s = run_sequences(w, session, &b);
	}
	return s;
}

/* Ranks have one session, in which steps that draft come last. */
static int measure_launches(Work *w, bool drafts)
{
	AtlasSession *session = NULL;
	const bool may_draft = drafts || (w->args->seat && graph_of(w)->verify_rows);
	int code = open_gpu(w, may_draft ? drafter_of(graph_of(w)) : "off", &session);
	if (code)
		return code;
	session_speculate(session, drafts);
	Device *device = ranked_inner(session_device(session));
	Measure *m = measure_start(device, &w->plan->artifact, w->args->threads, &w->c, w->coarsest);
	const TargetPlan *target = m ? cuda_target(device) : NULL;
	AtlasStatus s = m ? measure_buckets(w, session, m, drafts) : ATLAS_NO_MEMORY;
	if (s == ATLAS_OK && w->args->seat && has_verify(target)) {
		session_speculate(session, true);
		s = measure_buckets(w, session, m, true);
		session_speculate(session, false);
	}
	s = s == ATLAS_OK ? ranked_measure(session_device(session), -1) : s;
	if (s != ATLAS_OK)
		code = m ? cli_fail_session(w->args, session, s) : short_of_memory(w);
	CudaView view;
	if (!code && cuda_view(device, &view)) {
		snprintf(w->c.target, sizeof w->c.target, "%s", target->target);
		snprintf(w->c.device, sizeof w->c.device, "%.90s", device->name);
		view.cu->DeviceGetAttribute(&w->c.cc_major, CU_ATTR_CC_MAJOR, view.device);
		view.cu->DeviceGetAttribute(&w->c.cc_minor, CU_ATTR_CC_MINOR, view.device);
		view.cu->DriverGetVersion(&w->c.driver);
	}
	measure_end(m);
	if (!code && !drafts) /* with graphs again */
		code = trace_prompt(w->args, w->plan, session, &w->prompt, true, NULL, &w->got);
	atlas_session_close(session);
	const int silent = code ? 0 : seen_certificate(w->args, &w->plan->artifact, &w->c);
	if (silent)
		code = cli_say(w->args, EXIT_ENVIRONMENT, "rank %d has not said what it has measured", silent);
	return !code && cli_interrupted() ? EXIT_INTERRUPTED : code;
}

/* Layers ------------------------------------------------------------ */

static int measure_layers(Work *w)
{
	const Graph *g = graph_of(w);
	const Trace *got = &w->got, *want = &w->want;
	AtlasSession *session = NULL;
	int code = cli_open_session(w->args, w->plan, "cpu", NULL, &session);
	if (!code)
		code = trace_prompt(w->args, w->plan, session, &w->prompt, true, &w->got, &w->want);
	atlas_session_close(session);
	double *cosines = code ? NULL : malloc(sizeof *cosines * (size_t)(got->rows + 1));
	w->c.layers = cosines ? calloc((size_t)g->n_layers + 1, sizeof *w->c.layers) : NULL;
	if (!code && !w->c.layers)
		code = short_of_memory(w);
	for (int l = 0; !code && l <= g->n_layers; l++) {
		size_t at = (size_t)l * (size_t)got->rows * (size_t)got->hidden_dim;
		Difference d = l == g->n_layers ? trace_compare(got->logits, want->logits, got->rows, got->vocab, cosines)
			: trace_compare(got->hidden + at, want->hidden + at, got->rows, got->hidden_dim, cosines);
		bool good = isfinite(d.cosine) && isfinite(d.median) && isfinite(d.rms) && isfinite(d.relative);
		w->c.layers[w->c.n_layers++] = good ? (CertLayer){w->coarsest[l], d.cosine, d.median, d.rms, d.relative}
			: (CertLayer){w->coarsest[l], -1, -1, 1e30, 1e30};
	}
	free(cosines);
	return code;
}

/* Results ------------------------------------------------------------ */

static bool add_phases(Work *w)
{
	for (int i = 0; i < w->c.n_ops; i++) {
		bool known = false;
		for (int k = 0; k < w->c.n_phases && !known; k++)
			known = strcmp(w->c.phases[k].name, w->c.ops[i].phase) == 0;
		CertPhase *grown = known ? NULL : realloc(w->c.phases, sizeof *grown * (size_t)(w->c.n_phases + 1));
		if (!known && !grown)
			return false;
		if (!known) {
			w->c.phases = grown;
			memcpy(grown[w->c.n_phases++].name, w->c.ops[i].phase, sizeof grown->name);
		}
	}
	return true;
}

static void print_table(const Certificate *c)
{
	printf("%-14s %-20s %-24s %-10s %-5s %6s %10s %10s %10s %8s\n", "phase", "op", "kernel", "result", "dtype",
		"times", "cosine", "rms", "max", "allowed");
	for (int i = 0; i < c->n_ops; i++) {
		const CertOp *o = &c->ops[i];
		printf("%-14s %-20s %-24s %-10s %-5s %6d %10.7f %10.3e %10.3e %8.1e\n", o->phase, op_table[o->op].name,
			o->kernel, o->result, dtype_name(o->stored), o->launches, o->cosine, o->rms, o->max, cert_op_limit(o));
	}
	printf("\n%-8s %-5s %11s %11s %10s %10s %10s\n", "layer", "dtype", "cosine", "median", "rms", "max", "allowed");
	for (int l = 0; l < c->n_layers; l++) {
		char name[16];
		snprintf(name, sizeof name, l == c->n_layers - 1 ? "logits" : "%d", l);
		printf("%-8s %-5s %11.8f %11.8f %10.3e %10.3e %10.7f\n", name, dtype_name(c->layers[l].dtype),
			c->layers[l].cosine, c->layers[l].median, c->layers[l].rms, c->layers[l].max, 1 - cert_layer_limit(c, l));
	}
}

static void write_text(const void *what, FILE *out) { fputs(what, out); }

static int write_certificate(Work *w, const PrivateKey *key)
{
	char *text = NULL, *path = certificate_path(w->args->plan), why[512];
	size_t n;
	if (!path || !certificate_print(&w->c, key, &text, &n)) {
		free(path);
		return short_of_memory(w);
	}
	if (w->args->json)
		fputs(text, stdout);
	else
		print_table(&w->c);
	int code = cli_write_file(w->args, path, write_text, text);
	if (!code && (!certificate_holds(&w->c, why, sizeof why) ||
			!certificate_is_whole(&w->c, &w->plan->artifact, why, sizeof why)))
		code = cli_say(w->args, EXIT_NEGATIVE, "not certified: %s", why);
	else if (!code)
		cli_say(w->args, 0, "certified: %s", path);
	free(text);
	free(path);
	return code;
}

/* Does something draft on the target that was measured? */
static bool has_drafts(const Work *w)
{
	const Artifact *a = &w->plan->artifact;
	for (int i = 0; i < a->n_targets; i++)
		if (strcmp(a->targets[i].target, w->c.target) == 0 && has_verify(&a->targets[i]))
			return true;
	return false;
}

int certify_plan(const Args *args, const AtlasPlan *plan, const Driver *driver, const Tokens *tokens)
{
	Work w = {.args = args, .plan = plan, .driver = driver};
	const Graph *g = graph_of(&w);
	PrivateKey key = {0};
	char why[256];
	if (args->key && !key_read_private(args->key, &key, why, sizeof why))
		return cli_say(args, EXIT_BAD_INPUT, "%s: %s", args->key, why);
	memcpy(w.c.root, plan->artifact.root, sizeof w.c.root);
	snprintf(w.c.atlas, sizeof w.c.atlas, "%s", atlas_version());
	w.coarsest = malloc(sizeof *w.coarsest * ((size_t)g->n_layers + 1));
	for (int l = 0; w.coarsest && l <= g->n_layers; l++)
		w.coarsest[l] = DT_f32;
	int code = w.coarsest ? make_prompt(&w, tokens) : short_of_memory(&w);
	if (!code)
		code = measure_launches(&w, false);
	if (!code && has_drafts(&w) && !args->seat)
		code = measure_launches(&w, true);
	if (!code)
		code = add_phases(&w) ? measure_layers(&w) : short_of_memory(&w);
	if (!code)
		code = write_certificate(&w, args->key ? &key : NULL);
	key_forget(&key);
	certificate_free(&w.c);
	trace_free(&w.got);
	trace_free(&w.want);
	free(w.coarsest);
	free(w.prompt.ids);
	return code;
}
