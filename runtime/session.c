/* session.c - a session's life, and what its next step is.
 *
 * A step is either one chunk of waiting prompts, first come first served and several in one chunk
 * (session_prompts.c), or one token for every running sequence (session_flight.c). Prompts go first; with max_gap the
 * two take turns, and a chunk has as many cells of the grid as that allows. Or a chunk has a row for each running
 * sequence as well: a mixed step.
 * Lengths, last tokens and random state live on the device; the host keeps what it must to stop in time.
 */
#include "artifacts/order.h"
#include "artifacts/random_weights.h"
#include "artifacts/ranks.h"
#include "artifacts/seconds.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session_handle.h"

#include <stdlib.h>
#include <string.h>

/* Does a GPU run the plan with these ranks? */
static AtlasStatus check_ranks_of(const AtlasPlan *plan, const RankSeat *seat, AtlasError *error)
{
	const int has = seat ? group_ranks(seat->group) : 1, needs = ranks_of(&plan->artifact.ranks);
	if (has == needs)
		return ATLAS_OK;
	if (seat)
		return error_set(error, ATLAS_UNSUPPORTED, "the plan is for %d GPU%s, and %d are named", needs,
			needs > 1 ? "s" : "", has);
	return error_set(error, ATLAS_UNSUPPORTED, "the plan is for %d GPUs, which atlas run, chat, serve, bench, dump, "
		"verify, receipt and memory take as --ranks %d or --devices N,N; device cpu runs all its ranks", needs, needs);
}

/* Texts of the slots, where the host drafts. False: there is no memory. */
static bool open_ngrams(AtlasSession *s)
{
	const Graph *g = s->graph;
	if (!g->ngram_max)
		return true;
	s->ngrams = calloc((size_t)g->slots, sizeof *s->ngrams);
	for (int i = 0; s->ngrams && i < g->slots; i++)
		if (!ngrams_open(&s->ngrams[i], g->ngram_min, g->ngram_max, g->max_context + 1)) /* the last one is not read */
			return false;
	return s->ngrams;
}

AtlasStatus session_open_on(const AtlasPlan *plan, Device *device, AtlasSession **session, AtlasError *error)
{
	const Graph *g = &plan->artifact.graph;
	AtlasSession *s = calloc(1, sizeof *s);
	*session = NULL;
	if (s) {
		s->slots = calloc((size_t)g->slots, sizeof *s->slots);
		s->page_table = calloc((size_t)g->slots * (size_t)g->max_pages, sizeof *s->page_table);
		s->free_pages = calloc((size_t)g->pages, sizeof *s->free_pages);
		s->flight.slots = calloc((size_t)g->slots, sizeof *s->flight.slots);
		s->reused = calloc((size_t)g->slots, sizeof *s->reused);
		s->graph = g;
	}
	if (!s || !s->slots || !s->page_table || !s->free_pages || !s->flight.slots || !s->reused || !open_ngrams(s)) {
		device->ops->close(device);
		if (s) {
			s->device = NULL;
			atlas_session_close(s);
		}
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %d slots and %d pages", g->slots, g->pages);
	}
	s->plan = plan;
	s->device = device;
	s->step_tokens = 1;
	s->grow = 256;
	for (int i = 0; i < g->slots; i++)
		s->slots[i].pages = s->page_table + (size_t)i * (size_t)g->max_pages;
	const size_t drafts = g->verify_rows ? (size_t)g->verify_rows - 1 : 0;
	s->words = drafts ? calloc(drafts * ((size_t)mask_words(g) + (size_t)g->slots), sizeof *s->words) : NULL;
	s->n_free_pages = g->pages;
	for (int i = 0; i < g->pages; i++)
		s->free_pages[i] = g->pages - 1 - i; /* page 0 goes first */
	*session = s;
	return ATLAS_OK;
}

/* What the options say of drafts fits the plan. */
static AtlasStatus check_speculate(const AtlasPlan *plan, int speculate, AtlasError *error)
{
	const Graph *g = &plan->artifact.graph;
	if (speculate < ATLAS_SPECULATE_AUTO || speculate > ATLAS_SPECULATE_NGRAM)
		return error_set(error, ATLAS_ARGUMENT, "speculate = %d: auto, off, mtp or ngram expected", speculate);
	uint64_t seed;
	if (speculate == ATLAS_SPECULATE_NGRAM && !g->ngram_max)
		return error_set(error, ATLAS_UNSUPPORTED, "speculate = ngram: the plan has no steps for it; [speculate] "
			"drafter = \"ngram\" in MODEL.toml compiles them in");
	if (speculate == ATLAS_SPECULATE_MTP && g->ngram_max)
		return error_set(error, ATLAS_UNSUPPORTED, "speculate = mtp: the plan drafts by n-grams, as [speculate] "
			"drafter = \"ngram\" in MODEL.toml asks for");
	if (speculate == ATLAS_SPECULATE_MTP && !g->verify_rows)
		return error_set(error, ATLAS_UNSUPPORTED, "speculate = mtp: the plan has no head that drafts; %s",
			random_seed(&plan->artifact, &seed) ? "of random weights one is made where [speculate] in MODEL.toml asks "
			"for it, as rows = 3 does, and config.json has one" : "it is compiled in from a checkpoint with tensors "
			"mtp.*, unless [speculate] rows = 1 leaves it out");
	return ATLAS_OK;
}

/* What keeps mixed steps out, or NULL. */
static const char *against_mixed(const AtlasSession *s)
{
	if (order_is_invariant(&s->plan->artifact))
		return "the plan has [numerics] invariant = true, and its prompts and answers have kernels of two orders";
	if (s->step_tokens > 1)
		return "a row that is mixed in has no drafts; speculate = off goes with it";
	if (!session_has_room(s, 1))
		return "the largest prefill bucket has no row for an answer besides prompt_grid rows of a prompt";
	return NULL;
}

AtlasStatus session_mix(AtlasSession *session, int mixed, AtlasError *error)
{
	const char *against = against_mixed(session);
	if (mixed == ATLAS_MIXED_ON && against)
		return error_set(error, ATLAS_UNSUPPORTED, "mixed = on: %s", against);
	session->mixes = !against && (mixed == ATLAS_MIXED_ON || (mixed == ATLAS_MIXED_AUTO && session->max_gap > 0));
	return ATLAS_OK;
}

static AtlasStatus begin_prefixes(AtlasSession *s, int prefix_cache, AtlasError *error)
{
	const char *against = session_against_prefixes(s->plan);
	const char *invariant = artifact_option(&s->plan->artifact, ORDER_OPTION);
	if (prefix_cache == ATLAS_PREFIX_ON && against)
		return error_set(error, ATLAS_UNSUPPORTED, "prefix_cache = on: %s", against);
	const bool is_exact = strcmp(s->device->ops->kind, "cpu") == 0 || (invariant && strcmp(invariant, "true") == 0);
	if (against || prefix_cache == ATLAS_PREFIX_OFF || (prefix_cache == ATLAS_PREFIX_AUTO && !is_exact))
		return ATLAS_OK;
	return session_keep_prefixes(s, error);
}

void session_speculate(AtlasSession *session, bool on)
{
	session->step_tokens = on && session->graph->verify_rows ? session->graph->verify_rows : 1;
}

void session_force_rows(AtlasSession *session, int each) { session->forced_rows = each; }

void session_grow_by(AtlasSession *session, int positions) { session->grow = positions; }

void session_max_gap(AtlasSession *session, int rows, int each)
{
	session->max_gap = rows;
	session->max_gap_each = each;
}

void session_prescribe(AtlasSession *session, const double *shares)
{
	for (int i = 0; i < PLAN_MAX_VERIFY - 1; i++)
		session->shares[i] = (int32_t)(shares[i] * (1 << 16) + 0.5);
}

/* The GPU of this process, of one rank or of several. Weights of parts are compared before they are taken apart. */
static AtlasStatus open_gpu(const AtlasPlan *plan, const AtlasSessionOptions *o, const DeviceWatch *watch,
	const RankSeat *seat, Device **device, AtlasError *error)
{
	const bool compares = plan_compares(plan);
	DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .files = &plan->files,
		.index = o->device_index, .steps_ahead = o->steps_ahead, .started = o->started,
		.compares_weights = compares && !seat, .unhashed = plan->no_stops, .seed = plan->seed, .watch = watch,
		.ranks = seat ? seat->group : NULL, .shares_card = seat && seat->shares_card,
		.nccl = seat ? seat->nccl : NULL};
	RandomTables random;
	if (plan->makes_weights) {
		random_tables(&random);
		config.random = &random;
	}
	AtlasStatus s = compares && seat ? plan_check_weights(plan, error) : ATLAS_OK;
	s = s == ATLAS_OK ? cuda_open(&config, device, error) : s;
	if (s != ATLAS_OK && seat && error) {
		group_fail(seat->group, error);
		s = group_check(seat->group, error);
	}
	return s;
}

static AtlasStatus open_reference(const AtlasPlan *plan, const AtlasSessionOptions *o, Device **device,
	AtlasError *error)
{
	const DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .files = &plan->files,
		.n_threads = o->n_threads, .seed = plan->seed};
	DeviceConfig made = config;
	RandomTables random;
	if (plan->makes_weights) {
		random_tables(&random);
		made.random = &random;
	}
	const AtlasStatus s = plan_compares(plan) ? plan_check_weights(plan, error) : ATLAS_OK; /* they stay mapped */
	return s == ATLAS_OK ? cpu_open(&made, device, error) : s;
}

AtlasStatus session_follow(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	const RankSeat *seat, AtlasError *error)
{
	Device *device = NULL;
	AtlasStatus s = check_ranks_of(plan, seat, error);
	s = s == ATLAS_OK ? open_gpu(plan, options, watch, seat, &device, error) : s;
	return s == ATLAS_OK ? ranked_follow(device, seat->group, &plan->artifact, seat->hooks, error) : s;
}

AtlasStatus session_open_watched(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	const RankSeat *seat, AtlasSession **session, AtlasError *error)
{
	AtlasSessionOptions o = {.struct_size = sizeof o};
	Device *device = NULL;
	*session = NULL;
	if (options && options->struct_size < sizeof options->struct_size)
		return error_set(error, ATLAS_ARGUMENT, "options.struct_size is not set");
	if (options)
		memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
	if (o.steps_ahead < 0)
		return error_set(error, ATLAS_ARGUMENT, "steps_ahead = %d: 0 or more expected", o.steps_ahead);
	if (o.max_gap < 0)
		return error_set(error, ATLAS_ARGUMENT, "max_gap = %d: 0 or more rows expected", o.max_gap);
	if (o.mixed < ATLAS_MIXED_AUTO || o.mixed > ATLAS_MIXED_ON)
		return error_set(error, ATLAS_ARGUMENT, "mixed = %d: auto, off or on expected", o.mixed);
	if (o.prefix_cache < ATLAS_PREFIX_AUTO || o.prefix_cache > ATLAS_PREFIX_ON)
		return error_set(error, ATLAS_ARGUMENT, "prefix_cache = %d: auto, off or on expected", o.prefix_cache);
	if (o.max_gap_each < 0)
		return error_set(error, ATLAS_ARGUMENT, "max_gap_each = %d: 0 or more rows expected", o.max_gap_each);
	const char *name = o.device ? o.device : "auto";
	bool is_auto = strcmp(name, "auto") == 0;
	if (!is_auto && strcmp(name, "cuda") != 0 && strcmp(name, "cpu") != 0)
		return error_set(error, ATLAS_ARGUMENT, "device \"%.80s\": auto, cuda or cpu expected", name);
	if (plan->by_reference && plan->files.n == 1)
		return error_set(error, ATLAS_ARGUMENT,
			"weights_dir is not given: this plan refers to the files of its checkpoint");
	const bool is_cpu = strcmp(name, "cpu") == 0;
	AtlasStatus s = is_cpu ? ATLAS_OK : check_ranks_of(plan, seat, error);
	s = s == ATLAS_OK ? check_speculate(plan, o.speculate, error) : s;
	if (s != ATLAS_OK)
		return s;
	s = is_cpu ? ATLAS_NO_DEVICE : open_gpu(plan, &o, watch, seat, &device, error);
	bool has_no_gpu = s == ATLAS_NO_DRIVER || s == ATLAS_NO_DEVICE;
	if (has_no_gpu && (is_cpu || (is_auto && !seat))) {
		if (error)
			*error = (AtlasError){.status = ATLAS_OK}; /* the GPU's absence is no failure here */
		s = open_reference(plan, &o, &device, error);
	}
	if (s == ATLAS_OK && seat && !is_cpu)
		s = ranked_open(device, seat->group, &plan->artifact, &device, error);
	s = s == ATLAS_OK ? session_open_on(plan, device, session, error) : s;
	s = s == ATLAS_OK ? plan_unchanged(plan, error) : s; /* what was compared is what was loaded */
	if (s == ATLAS_OK) {
		session_speculate(*session, o.speculate != ATLAS_SPECULATE_OFF);
		session_max_gap(*session, o.max_gap, o.max_gap_each);
		s = session_mix(*session, o.mixed, error);
		s = s == ATLAS_OK ? begin_prefixes(*session, o.prefix_cache, error) : s;
	}
	if (s == ATLAS_OK)
		return s;
	atlas_session_close(*session);
	*session = NULL;
	return s;
}

AtlasStatus atlas_session_open(const AtlasPlan *plan, const AtlasSessionOptions *options,
	AtlasSession **session, AtlasError *error)
{
	if (session)
		*session = NULL;
	if (!plan || !session)
		return error_set(error, ATLAS_ARGUMENT, "plan and session must not be NULL");
	return session_open_watched(plan, options, NULL, NULL, session, error);
}

void atlas_session_close(AtlasSession *session)
{
	if (!session)
		return;
	if (session->device)
		session->device->ops->close(session->device);
	for (int i = 0; session->slots && i < session->graph->slots; i++)
		session_free_slot(session, i);
	for (int i = 0; session->ngrams && i < session->graph->slots; i++)
		ngrams_close(&session->ngrams[i]);
	free(session->ngrams);
	free(session->slots);
	free(session->page_table);
	free(session->free_pages);
	free(session->flight.slots);
	free(session->reused);
	free(session->words);
	prefix_close(session->prefix);
	session_free_tops(session);
	free(session);
}

const char *atlas_session_error(const AtlasSession *session) { return session ? session->error.text : ""; }
Device *session_device(AtlasSession *session) { return session->device; }

int atlas_active(const AtlasSession *session)
{
	int n = 0;
	for (int i = 0; session && i < session->graph->slots; i++)
		n += session->slots[i].state != FREE;
	return n;
}

AtlasStatus atlas_session_info(const AtlasSession *session, AtlasSessionInfo *info)
{
	if (!session || !info)
		return ATLAS_ARGUMENT;
	static const Prefix none;
	const Device *d = session->device;
	const Prefix *x = session->prefix ? session->prefix : &none;
	const int score = d->limits.prefill_outs, slots = session->graph->slots;
	AtlasSessionInfo all = {
		.struct_size = info->struct_size, .device = d->ops->kind, .device_name = d->name,
		.target = d->target, .device_bytes = d->bytes, .free_slots = slots - atlas_active(session),
		.free_pages = session_available(session), .prefill_rows = d->limits.prefill_rows,
		.score_rows = score < d->limits.prefill_rows ? score : d->limits.prefill_rows,
		.context_seconds = d->times.context, .memory_seconds = d->times.memory,
		.kernels_seconds = d->times.kernels, .graphs_seconds = d->times.graphs,
		.weights_seconds = d->times.weights, .step_tokens = session->step_tokens,
		.drafts = session->n_drafts, .accepted_drafts = session->n_accepted,
		.pages = session->graph->pages, .page_tokens = session->graph->page,
		.aside_bytes = session->n_aside * d->page_bytes, .set_aside = session->n_set_aside,
		.step_phase = !session->last.rows ? NULL : session->was_mixed ? "mixed" : phase_name(session->last.phase),
		.step_rows = session->last.rows, .step_bucket = session->last_bucket, .device_seconds = d->waited,
		.step_each = session->last.each, .mixed = session_mixes(session),
		.prefix_cache = session->prefix != NULL, .prefix_queries = session->n_queried, .prefix_hits = session->n_hit,
		.prefix_pages = x->n, .prefix_evicted = x->n_evicted, .snapshots = x->n_snapshots,
		.snapshots_used = prefix_snapshots_used(x)};
	for (int i = 0; i < slots; i++)
		all.aside += session->slots[i].is_aside;
	if (info->struct_size < sizeof info->struct_size)
		return ATLAS_ARGUMENT;
	memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
	return ATLAS_OK;
}

int atlas_reused_tokens(const AtlasSession *session, int slot)
{
	return session && slot >= 0 && slot < session->graph->slots ? session->reused[slot] : 0;
}

void atlas_forget_prefixes(AtlasSession *session)
{
	while (session && session->prefix && session->prefix->oldest >= 0)
		session->free_pages[session->n_free_pages++] = prefix_evict(session->prefix);
}

AtlasStatus session_failed(AtlasSession *s, AtlasStatus status)
{
	s->error = s->device->error;
	s->failed = s->error.status = status;
	return status;
}

AtlasStatus session_wait(AtlasSession *s)
{
	const double began = seconds_now();
	AtlasStatus status = s->device->ops->wait(s->device);
	s->device->waited += seconds_now() - began;
	s->has_strays = false;
	return status == ATLAS_OK ? ATLAS_OK : session_failed(s, status);
}

AtlasStatus session_run(AtlasSession *s, const StepSize *size)
{
	AtlasStatus status = s->has_strays || session_has_results(s) ? session_wait(s) : ATLAS_OK;
	if (status != ATLAS_OK)
		return status;
	s->flight.has_inputs = false;
	status = s->device->ops->launch(s->device, size, 1);
	return status == ATLAS_OK ? session_wait(s) : session_failed(s, status);
}

AtlasStatus session_check(AtlasSession *s)
{
	if (!s)
		return ATLAS_ARGUMENT;
	if (s->is_walking)
		return error_set(&s->error, ATLAS_ARGUMENT, "the session is asked from a callback of its own");
	return s->failed;
}

AtlasStatus atlas_step(AtlasSession *session, AtlasEvent *events, int cap, int *n)
{
	AtlasStatus s = session_check(session);
	if (n)
		*n = 0;
	if (s != ATLAS_OK)
		return s;
	session->tops.n_events = 0;
	session->last.rows = 0;
	session->was_mixed = false;
	if (!events || !n)
		return error_set(&session->error, ATLAS_ARGUMENT, "events and n must not be NULL");
	const int most = session->graph->slots * session->step_tokens;
	if (cap < most)
		return error_set(&session->error, ATLAS_ARGUMENT, "room for %d events: %d expected", cap, most);
	if (!session_has_results(session))
		s = session_share_pages(session);
	if (s != ATLAS_OK)
		return s;
	const bool is_waiting = session_next_waiting(session, -1) >= 0;
	const bool is_answers_turn = session->is_answers_turn && session_n_running(session);
	session->is_urgent = atomic_exchange(&session->is_woken, false);
	session->flight.is_closed |= is_waiting;
	if (!session_has_results(session) && is_waiting && !is_answers_turn)
		return session_step_prompts(session, events, n);
	session->is_answers_turn = false;
	if (!session_has_results(session) && (session->flight.n == 0 || session->flight.is_closed))
		s = session_begin_flight(session);
	if (s == ATLAS_OK && session->flight.n > 0)
		s = session_add_steps(session);
	return s == ATLAS_OK && session_has_results(session) ? session_take_step(session, events, n) : s;
}

void atlas_wake(AtlasSession *session)
{
	if (session)
		atomic_store(&session->is_woken, true);
}

AtlasStatus atlas_cancel(AtlasSession *session, int slot)
{
	if (!session || session->is_walking)
		return session_check(session);
	if (slot < 0 || slot >= session->graph->slots || session->slots[slot].state == FREE)
		return error_set(&session->error, ATLAS_ARGUMENT, "slot %d holds no sequence", slot);
	session_leave_flight(session, slot);
	session_free_slot(session, slot);
	return ATLAS_OK;
}
