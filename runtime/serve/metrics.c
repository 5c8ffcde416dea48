/* metrics.c - see metrics.h. Names are those that vLLM gives the same quantities, with the prefix atlas_. */
#include "runtime/serve/metrics.h"
#include "artifacts/audit.h"
#include "artifacts/hash.h"

#include <string.h>

static const double bounds[METRICS_BOUNDS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05,
	0.075, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120};
static const char *const finish_names[FINISHES] = {"stop", "length", "error"};
static const char *const cancel_names[CANCELS] = {"client", "slow_client", "wait", "drain"};

void histogram_add(Histogram *h, double seconds)
{
	int i = 0;
	while (i < METRICS_BOUNDS && seconds > bounds[i])
		i++;
	h->counts[i]++;
	h->sum += seconds;
}

/* A step cannot be faster than that but where launches overlap. Drafts are part of the step that verifies them. */
static double expected_seconds(const Artifact *a, int target, const Phase *p)
{
	const TargetPlan *t = &a->targets[target];
	const double us = audit_expected_us(a->ledger[target], p);
	for (int i = 0; i < t->n_phases && p->kind == VERIFY; i++)
		if (t->phases[i].kind == DRAFT && t->phases[i].each == p->each && t->phases[i].rows * p->each == p->rows)
			return us * 1e-6 + expected_seconds(a, target, &t->phases[i]);
	return us * 1e-6;
}

/* Its place in m->steps; n_steps = it is none of them. */
static int find_step(const Metrics *m, const char *phase, int rows, int each)
{
	int i = 0;
	while (i < m->n_steps &&
		(m->steps[i].rows != rows || m->steps[i].each != each || strcmp(m->steps[i].phase, phase) != 0))
		i++;
	return i;
}

static void add_step(Metrics *m, const char *phase, int rows, int each, double expected_s)
{
	if (m->n_steps < METRICS_BUCKETS)
		m->steps[m->n_steps++] = (StepBucket){phase, rows, each, expected_s, {{0}, 0}};
}

void metrics_start(Metrics *m, const AtlasPlan *plan, const char *target)
{
	const Artifact *a = &plan->artifact;
	m->n_steps = 0;
	for (int t = 0; t < a->n_targets; t++)
		for (int i = 0; target && strcmp(a->targets[t].target, target) == 0 && i < a->targets[t].n_phases; i++) {
			const Phase *p = &a->targets[t].phases[i];
			if (p->kind == PREFILL || p->kind == DECODE || p->kind == VERIFY)
				add_step(m, phase_name(p->kind), p->rows, p->each, expected_seconds(a, t, p));
			if (p->kind == PREFILL && m->session.mixed)
				add_step(m, "mixed", p->rows, p->each, expected_seconds(a, t, p));
		}
}

void metrics_step(Metrics *m, double seconds)
{
	const AtlasSessionInfo *s = &m->session;
	const int i = find_step(m, s->step_phase, s->step_bucket, s->step_each);
	if (i == m->n_steps) /* of the reference device, for which none is compiled */
		add_step(m, s->step_phase, s->step_bucket, s->step_each, 0);
	if (i < m->n_steps)
		histogram_add(&m->steps[i].seconds, seconds);
}

/* A client may send any name: a limited number is kept apart, and none that could break the text. */
void metrics_answer(Metrics *m, const char *route, int status)
{
	const char *path = route ? strchr(route, '/') : NULL;
	int r = 0;
	while (r < m->n_routes && !(path && strcmp(m->routes[r], path) == 0))
		r++;
	m->requests[r][status / 100 % 6]++;
}

void metrics_unknown(Metrics *m, const char *name)
{
	static const char others[] = "(others)";
	const bool is_plain =
		*name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == strlen(name);
	int i = 0;
	if (!is_plain)
		name = others;
	while (i < m->n_unknown && strcmp(m->unknown[i].name, name) != 0)
		i++;
	if (i == METRICS_UNKNOWN)
		i--;
	else if (i == m->n_unknown)
		snprintf(m->unknown[m->n_unknown++].name, sizeof m->unknown[0].name, "%s",
			i < METRICS_UNKNOWN - 1 ? name : others);
	m->unknown[i].n++;
}

/* Text ------------------------------------------------------------ */

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP atlas_%s %s\n# TYPE atlas_%s %s\n", name, help, name, type);
}

static void one(FILE *out, const char *name, const char *type, const char *help, int64_t value)
{
	head(out, name, type, help);
	fprintf(out, "atlas_%s %lld\n", name, (long long)value);
}

/* labels: "a=\"b\"," or "". */
static void rows(FILE *out, const char *name, const char *labels, const Histogram *h)
{
	int64_t n = 0;
	for (int i = 0; i < METRICS_BOUNDS; i++) {
		n += h->counts[i];
		fprintf(out, "atlas_%s_bucket{%sle=\"%g\"} %lld\n", name, labels, bounds[i], (long long)n);
	}
	n += h->counts[METRICS_BOUNDS];
	const int width = *labels ? (int)strlen(labels) - 1 : 0; /* without the comma */
	fprintf(out, "atlas_%s_bucket{%sle=\"+Inf\"} %lld\n", name, labels, (long long)n);
	fprintf(out, "atlas_%s_sum%s%.*s%s %.9g\n", name, width ? "{" : "", width, labels, width ? "}" : "", h->sum);
	fprintf(
		out, "atlas_%s_count%s%.*s%s %lld\n", name, width ? "{" : "", width, labels, width ? "}" : "", (long long)n);
}

static void histogram(FILE *out, const char *name, const char *help, const Histogram *h)
{
	head(out, name, "histogram", help);
	rows(out, name, "", h);
}

/* Of steps that verify, slots and rows of each, as the plan names the phase: verify[4x3]. */
static const char *step_labels(const StepBucket *b, char text[64])
{
	if (b->each)
		snprintf(text, 64, "phase=\"%s\",bucket=\"%dx%d\",", b->phase, b->rows / b->each, b->each);
	else
		snprintf(text, 64, "phase=\"%s\",bucket=\"%d\",", b->phase, b->rows);
	return text;
}

static void put_steps(const Metrics *m, FILE *out)
{
	char labels[64];
	head(out, "step_seconds", "histogram",
		"Time from one step's tokens to the next step's, by phase and compiled bucket.");
	for (int i = 0; i < m->n_steps; i++)
		rows(out, "step_seconds", step_labels(&m->steps[i], labels), &m->steps[i].seconds);
	head(out, "step_expected_seconds", "gauge", "What the plan's ledger expects of a step of that bucket.");
	for (int i = 0; i < m->n_steps; i++)
		if (m->steps[i].expected_s > 0)
			fprintf(out, "atlas_step_expected_seconds{%.*s} %.9g\n", (int)strlen(step_labels(&m->steps[i], labels)) - 1,
				labels, m->steps[i].expected_s);
	head(out, "step_host_seconds", "histogram", "Of a step, by thread: the engine's own work, without waiting for the "
		"device; processor time of the loop since the step before.");
	rows(out, "step_host_seconds", "thread=\"engine\",", &m->host_engine);
	rows(out, "step_host_seconds", "thread=\"loop\",", &m->host_loop);
}

void metrics_put(const Metrics *m, const AtlasPlan *plan, const AtlasPlanInfo *info, const char *target, FILE *out)
{
	head(out, "plan_info", "gauge", "The plan that is served.");
	fputs("atlas_plan_info{root=\"", out);
	hex_put(out, info->root_hash, 32);
	fprintf(out, "\",family=\"%s\",target=\"%s\"} 1\n", plan->artifact.graph.family, target ? target : "");
	one(out, "requests_running", "gauge", "Sequences that have a slot.", m->running);
	one(out, "requests_waiting", "gauge", "Sequences that wait for a slot.", m->waiting);
	one(out, "slots_total", "gauge", "Slots of the plan.", info->slots);
	one(out, "slots_used", "gauge", "Slots that hold a sequence.", info->slots - m->session.free_slots);
	one(out, "kv_pages_total", "gauge", "KV pages of the plan.", info->pages);
	one(out, "kv_pages_used", "gauge", "KV pages that are taken.", info->pages - m->session.free_pages);
	head(out, "kv_cache_usage_perc", "gauge", "Share of the KV pages that is taken, 0 to 1.");
	fprintf(out, "atlas_kv_cache_usage_perc %.6g\n",
		info->pages ? (double)(info->pages - m->session.free_pages) / info->pages : 0);
	one(out, "prompt_tokens_total", "counter", "Tokens of prompts.", m->prompt_tokens);
	one(out, "generation_tokens_total", "counter", "Tokens of answers.", m->generation_tokens);
	one(out, "requests_aside", "gauge", "Sequences whose text waits for KV pages.", m->session.aside);
	one(out, "preemptions_total", "counter", "Times that a sequence began to wait so.", m->session.set_aside);
	one(out, "prefix_cache_queries_total", "counter", "Tokens of prompts that were looked for in the prefix cache.",
		m->session.prefix_queries);
	one(out, "prefix_cache_hits_total", "counter", "Tokens of prompts that were found there.", m->session.prefix_hits);
	one(out, "prefix_cache_evicted_total", "counter", "KV pages of prefixes that were given away.",
		m->session.prefix_evicted);
	one(out, "prefix_cache_pages", "gauge", "KV pages that hold prefixes, read by a sequence or not.",
		m->session.prefix_pages);
	one(out, "prefix_cache_snapshots", "gauge", "Snapshots of recurrent states that prompts may go on from.",
		m->session.snapshots_used);
	one(out, "drafts_total", "counter", "Drafted tokens.", m->session.drafts);
	one(out, "accepted_total", "counter", "Drafted tokens that were the model's own.", m->session.accepted_drafts);
	one(out, "shed_total", "counter", "Requests that were refused because the queue was full or the wait too long.",
		m->shed);
	head(out, "http_requests_total", "counter", "Answers by route and class of their status.");
	for (int r = 0; r <= m->n_routes; r++)
		for (int i = 2; i < 6; i++)
			if (m->requests[r][i])
				fprintf(out, "atlas_http_requests_total{route=\"%s\",status=\"%dxx\"} %lld\n",
					r < m->n_routes ? m->routes[r] : "(others)", i, (long long)m->requests[r][i]);
	head(out, "request_success_total", "counter", "Answers that ended, by how.");
	for (int i = 0; i < FINISHES; i++)
		fprintf(out, "atlas_request_success_total{finished_reason=\"%s\"} %lld\n", finish_names[i],
			(long long)m->finished[i]);
	head(out, "cancelled_total", "counter", "Requests that ended early, by why.");
	for (int i = 0; i < CANCELS; i++)
		fprintf(out, "atlas_cancelled_total{why=\"%s\"} %lld\n", cancel_names[i], (long long)m->cancelled[i]);
	head(out, "unknown_field_total", "counter", "Fields of requests that were ignored without being known.");
	for (int i = 0; i < m->n_unknown; i++)
		fprintf(out, "atlas_unknown_field_total{name=\"%s\"} %lld\n", m->unknown[i].name, (long long)m->unknown[i].n);
	histogram(out, "time_to_first_token_seconds", "From the whole request to its first token.", &m->first_token);
	histogram(out, "inter_token_latency_seconds", "Between two tokens of an answer.", &m->gap);
	histogram(out, "e2e_request_latency_seconds", "From the whole request to the end of its answer.", &m->whole);
	histogram(out, "request_queue_seconds", "Of waiting for a slot.", &m->queue);
	put_steps(m, out);
}
