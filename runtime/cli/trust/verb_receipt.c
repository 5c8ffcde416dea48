/* verb_receipt.c - atlas receipt: what the GPU ran, compared with what the plan lists.
 *
 * Every bucket is filled and run for some steps. All nodes of all graphs are read back from the driver as the session
 * opens, and CUPTI lists each kernel that ran, in the order in which they started. The receipt compares both with
 * the plan's launches: name, grid, block, shared memory, registers, order. Without CUPTI only the graphs are known, and
 * the receipt says so.
 */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/plan_handle.h"

#include <stdlib.h>
#include <string.h>

typedef struct Receipt {
	const Args *args;
	AtlasPlan *plan;
	AtlasSession *session;
	Watch watch;
	Listener listener;
	bool is_heard;      /* CUPTI listens */
	char no_cupti[256]; /* why not */
	char device[256];
	Match match;
	bool is_equal;
} Receipt;

static int64_t steps_of(const Watch *w, int phase)
{
	int64_t steps = 0;
	for (int i = 0; i < w->n_log; i++)
		steps += w->log[i].phase == phase ? w->log[i].steps : 0;
	return steps;
}

static void put_triple(FILE *out, const char *name, const int *v)
{
	fprintf(out, "\"%s\": [%d, %d, %d], ", name, v[0], v[1], v[2]);
}

static void put_phase(const Receipt *r, int phase, FILE *out)
{
	const TargetPlan *t = r->watch.plan;
	const Phase *p = &t->phases[phase];
	fprintf(out, "{\"phase\": \"%s\", \"rows\": %d, \"outs\": %d, \"each\": %d, \"steps\": %lld, \"launches\": [",
		phase_name(p->kind), p->rows, p->outs, p->each, (long long)steps_of(&r->watch, phase));
	for (int i = 0; i < p->n_launches; i++) {
		const Kernel *k = &t->kernels[p->launches[i].kernel];
		fputs(i ? ",\n   {\"kernel\": " : "\n   {\"kernel\": ", out);
		json_quoted(out, k->entry);
		fputs(", ", out);
		put_triple(out, "grid", p->launches[i].grid);
		put_triple(out, "block", k->block);
		fprintf(out, "\"smem\": %d, \"registers\": %d}", k->smem_bytes, k->registers);
	}
	fputs("]}", out);
}

static void put_document(const Receipt *r, FILE *out)
{
	const Match *m = &r->match;
	fputs("{\"schema_version\": 1, \"atlas\": ", out);
	json_quoted(out, atlas_version());
	fputs(",\n \"plan\": ", out);
	json_hash(out, r->plan->artifact.root);
	fputs(", \"target\": ", out);
	json_quoted(out, r->watch.plan->target);
	fputs(",\n \"device\": ", out);
	json_quoted(out, r->device);
	if (r->is_heard)
		fprintf(out, ",\n \"observed_by\": \"cupti %u\"", r->listener.version);
	else
		fputs(",\n \"observed_by\": null", out);
	fprintf(out, ",\n \"graphs\": {\"nodes\": %lld, \"different\": %lld, \"first_difference\": ",
		(long long)r->watch.n_nodes, (long long)r->watch.n_bad);
	cli_json_or_null(out, r->watch.first_bad);
	fputc('}', out);
	fputs(",\n ", out);
	seen_put_launches(m, r->is_heard, out);
	seen_put_ranks(r->args, &r->plan->artifact, out);
	fprintf(out, ",\n \"equal\": %s,\n \"phases\": [", r->is_equal ? "true" : "false");
	for (int p = 0, n = 0; p < r->watch.plan->n_phases; p++)
		if (r->watch.plan->phases[p].kind != PROBE) {
			fputs(n++ ? ",\n  " : "\n  ", out);
			put_phase(r, p, out);
		}
	fputc(']', out);
}

typedef struct Document { char *text; size_t n; uint8_t sha256[32]; } Document;

/* The last member is the hash of all bytes before its comma. */
static bool make_document(const Receipt *r, Document *d)
{
	FILE *f = open_memstream(&d->text, &d->n);
	if (!f)
		return false;
	put_document(r, f);
	if (fflush(f) != 0)
		return fclose(f), false;
	sha256_of(d->text, d->n, d->sha256);
	fputs(",\n \"sha256\": ", f);
	json_hash(f, d->sha256);
	fputs("}\n", f);
	return fclose(f) == 0;
}

static void write_document(const void *document, FILE *out)
{
	const Document *d = document;
	fwrite(d->text, 1, d->n, out);
}

static void print_hash(const char *what, const uint8_t *hash)
{
	fputs(what, stdout);
	hex_put(stdout, hash, 32);
	putchar('\n');
}

static void print_text(const Receipt *r, const Document *d)
{
	const TargetPlan *t = r->watch.plan;
	for (int p = 0; p < t->n_phases; p++)
		if (t->phases[p].kind != PROBE)
			printf("%-18s %5d launches %8lld steps\n", PHASE_LABEL(&t->phases[p]), t->phases[p].n_launches,
				(long long)steps_of(&r->watch, p));
	printf("graphs            %lld nodes, %lld different\n", (long long)r->watch.n_nodes, (long long)r->watch.n_bad);
	if (r->is_heard)
		printf("launches          %lld planned, %lld observed by CUPTI, %lld out of place\n",
			(long long)r->match.planned, (long long)r->match.observed, (long long)r->match.out_of_place);
	else
		printf("launches          %lld planned, not observed: %s\n", (long long)r->match.planned, r->no_cupti);
	if (r->is_heard && r->match.nccl_planned)
		printf("kernels of NCCL   %lld planned, %lld observed\n", (long long)r->match.nccl_planned,
			(long long)r->match.nccl_observed);
	seen_print(r->args, &r->plan->artifact, &r->match, false);
	print_hash("planned           ", r->match.planned_sha256);
	if (r->is_heard)
		print_hash("observed          ", r->match.observed_sha256);
	if (r->args->output)
		print_hash("receipt           ", d->sha256);
	if (r->is_equal)
		puts(r->is_heard ? "executed = planned" : "the graphs match the plan");
	if (r->watch.first_bad[0])
		printf("different in a %s\n", r->watch.first_bad);
	if (r->match.first_difference[0])
		printf("different in what ran: %s\n", r->match.first_difference);
	seen_print(r->args, &r->plan->artifact, &r->match, true);
}

/* CUPTI first, for it reports only graphs that are made while it listens. */
static int run(Receipt *r)
{
	const Args *args = r->args;
	r->is_heard = listener_start(&r->listener, args->cupti, r->no_cupti, sizeof r->no_cupti);
	if (!r->is_heard && args->cupti)
		return cli_say(args, EXIT_ENVIRONMENT, "%s", r->no_cupti);
	int code = receipt_open(args, r->plan, &r->watch, &r->session);
	if (code)
		return code;
	AtlasSessionInfo info = {.struct_size = sizeof info};
	atlas_session_info(r->session, &info);
	snprintf(r->device, sizeof r->device, "%s", info.device_name);
	code = receipt_run_buckets(args, r->session, &r->plan->artifact.graph, r->watch.plan,
		args->steps > 0 ? args->steps : 8, NULL, NULL);
	atlas_session_close(r->session); /* steps that were in flight are done */
	r->session = NULL;
	if (r->watch.n_bad && code != EXIT_INTERRUPTED) /* a wrong kernel may well end in a fault: it is known already */
		code = 0;
	if (!code && r->is_heard && !listener_stop(&r->listener, r->no_cupti, sizeof r->no_cupti))
		return cli_say(args, EXIT_ENVIRONMENT, "%s", r->no_cupti);
	return code;
}

static int judge(Receipt *r)
{
	if (r->watch.is_short_of_memory || !receipt_match(&r->watch, r->listener.ran, r->listener.n, &r->match))
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the steps that ran");
	if (!r->is_heard)
		r->match.first_difference[0] = 0;
	const int silent = seen_all(r->args, &r->plan->artifact);
	if (silent)
		return cli_say(r->args, EXIT_ENVIRONMENT, "rank %d has not said what it ran", silent);
	r->is_equal = !r->watch.first_bad[0] && !r->match.first_difference[0] &&
		!seen_differs(r->args, &r->plan->artifact, &r->match);
	Document d = {0};
	int code = make_document(r, &d) ? 0 : cli_say(r->args, EXIT_ENVIRONMENT, "no memory for the receipt");
	if (!code && r->args->output)
		code = cli_write_file(r->args, r->args->output, write_document, &d);
	if (!code && r->args->json)
		code = cli_write_file(r->args, NULL, write_document, &d);
	else if (!code)
		print_text(r, &d);
	free(d.text);
	return code ? code : r->is_equal ? EXIT_OK : EXIT_NEGATIVE;
}

int verb_receipt(const Args *args)
{
	Receipt r = {.args = args};
	cli_hold_signals();
	int code = args->output ? cli_check_output(args, args->output) : 0;
	if (!code)
		code = cli_open_plan(args, args->plan, &r.plan);
	if (!code)
		code = run(&r);
	if (!code)
		code = judge(&r);
	atlas_session_close(r.session);
	watch_end(&r.watch);
	listener_free(&r.listener);
	atlas_plan_close(r.plan);
	return code;
}
