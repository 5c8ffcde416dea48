#include "tests/unit/bench_call.h"
#include "runtime/cli/bench/bench.h"
#include "runtime/session.h"

#include <stdlib.h>

static char *printed(const Bench *b, void (*print)(const Bench *b, FILE *out))
{
	char *text;
	size_t n;
	FILE *out = open_memstream(&text, &n);
	print(b, out);
	fclose(out);
	return text;
}

static void take_kinds(const Bench *b, BenchSeen *seen)
{
	seen->n_phases = b->n_phases;
	for (int i = 0; i < b->n_kernels; i++) {
		const BenchKernel *k = &b->kernels[i];
		int launch = (int)(k->launch - k->phase->launches);
		seen->kinds[seen->n++] = (BenchKind){k->phase->kind, k->phase->rows, launch, k->count, k->time.us,
			k->bytes, k->flops, k->bound_us, k->lost_us};
	}
}

int bench_call_kernels(AtlasPlan *plan, AtlasSession *session, BenchSeen *seen)
{
	Args args = {.verb = "bench", .plan = "plan.bin", .quiet = true, .bench_kernels = true};
	Bench b = {.args = &args, .plan = plan, .session = session, .info = {.struct_size = sizeof b.info},
		.device = {.struct_size = sizeof b.device}, .graph = &plan->artifact.graph, .target = plan->artifact.targets};
	AtlasError error = {0};
	*seen = (BenchSeen){.n = 0};
	atlas_plan_info(plan, &b.info);
	atlas_session_info(session, &b.device);
	b.n_events = b.info.slots;
	b.events = calloc((size_t)b.n_events, sizeof *b.events);
	b.tokens = calloc((size_t)b.info.max_context, sizeof *b.tokens);
	if (timer_open(session_device(session), &b.timer, &error) != ATLAS_OK ||
		timer_bounds(b.timer, &b.bounds) != ATLAS_OK)
		return cli_fail(&args, b.timer ? timer_error(b.timer) : &error);
	int code = bench_run_kernels(&b);
	bench_settle_kernels(&b);
	take_kinds(&b, seen);
	seen->text = printed(&b, bench_print_text);
	seen->json = printed(&b, bench_print_json);
	seen->html = printed(&b, bench_print_html);
	timer_close(b.timer);
	free(b.kernels);
	free(b.phases);
	free(b.events);
	free(b.tokens);
	return code;
}

char *bench_call_page(double percent)
{
	Args args = {.verb = "bench", .plan = "plan.bin"};
	const uint8_t root[32] = {0xab};
	BenchRow row = {.kind = ROW_DECODE, .name = "tg128@0x1", .tokens = 128, .batch = 1, .reps = 3, .ms = 2,
		.tokens_s = 500, .percent = percent, .bound = percent > 0 ? BOUND_READ : BOUND_NONE};
	Bench b = {.args = &args, .info = {.family = "llama", .root_hash = root}, .device = {.device_name = "Card",
		.target = "sm_90a"}, .rows = &row, .n_rows = 1, .cold = {.open = 1, .session = 1, .first_token = 1}};
	return printed(&b, bench_print_html);
}

void bench_call_work(const AtlasPlan *plan, int phase, int launch, int rows, int outs, double positions, double history,
	double experts, double *bytes, double *flops)
{
	const Phase *p = &plan->artifact.targets[0].phases[phase];
	Work w = launch_work(p, &p->launches[launch], &(StepUse){rows, outs, positions, history, experts,
		p->kind == PREFILL ? 1 : rows});
	*bytes = w.bytes;
	*flops = w.flops;
}

const char *bench_call_other_card(const AtlasPlan *plan, const char *target, const char *gpu)
{
	return cli_other_card(plan, target, gpu);
}

int bench_call_experts(AtlasPlan *plan, AtlasSession *session, int batch, BenchExperts *out)
{
	char only[32];
	snprintf(only, sizeof only, "tg4@0x%d", batch);
	Args args = {.verb = "bench", .plan = "plan.bin", .quiet = true, .only = only, .bench_tokens = 4};
	Bench b = {.args = &args, .plan = plan, .session = session, .info = {.struct_size = sizeof b.info},
		.device = {.struct_size = sizeof b.device}, .graph = &plan->artifact.graph};
	atlas_plan_info(plan, &b.info);
	atlas_session_info(session, &b.device);
	b.target = b.device.target[0] ? plan->artifact.targets : NULL;
	b.n_events = b.info.slots;
	b.events = calloc((size_t)b.n_events, sizeof *b.events);
	b.tokens = calloc((size_t)b.info.max_context, sizeof *b.tokens);
	int code = bench_list_rows(&b);
	code = code ? code : bench_run_rows(&b);
	if (!code && b.n_rows == 1 && !b.rows[0].skipped[0])
		*out = (BenchExperts){b.rows[0].experts.distinct[0], b.rows[0].a_layer, b.rows[0].bytes,
			b.rows[0].experts.layers[0]};
	else if (b.n_rows == 1)
		fprintf(stderr, "%s\n", b.rows[0].skipped);
	free(b.rows);
	free(b.events);
	free(b.tokens);
	return code;
}
