/* session.c - slots, pages and the step loop.
 *
 * A sequence is a slot, the KV pages of its whole life, and a prompt of which some rows were read. Pages are
 * taken at the start, so that no sequence runs out of memory in its middle. A step is either one chunk of
 * waiting prompts, first come first served and several in one chunk, or one token for every running sequence.
 * Lengths, last tokens and random state live on the device; the host keeps what it must to stop in time.
 *
 * Decode steps need nothing from the host but who sits in which row, so several are on their way at once: a flight is
 * a run of steps of one set of sequences, of which `launched` were put on the device and `taken` handed out. Results
 * wait in the rings: a slot is given to another sequence only when its end was handed out, and a flight is
 * shorter than a ring. A flight goes on as long as its set does. When a sequence ends, is cancelled or waits to be
 * read, no step is added; what is on its way is handed out, step by step and in order, and then another begins.
 *
 * Where the plan has a head that drafts, a step of a flight may make several tokens of a sequence: the device drafts,
 * verifies and accepts, and the ring says which token is the last of its step. A flight counts such a step as one
 * token, since it never makes fewer. Its rows reach up to verify_rows - 1 positions behind the sequence's last one, so
 * a slot has pages for them as well.
 *
 * Steps behind the end of a sequence do nothing for it (ops.h: slot_token): they write to the first line of its first
 * page, which a later launch of the same stream hands on, so none of them can touch what the next owner writes.
 */
#include "artifacts/random_weights.h"
#include "artifacts/ring.h"
#include "runtime/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 1 << 12 }; /* looks at a ring, about 0.1 ms of them, before the device is asked */

typedef enum SequenceState { FREE, WAITING, RUNNING } SequenceState;

typedef struct Sequence {
	SequenceState state;
	int64_t ticket;       /* order of arrival */
	int32_t *tokens;      /* [n] the prompt, owned while WAITING */
	int n, read;          /* tokens of the prompt; of them on the device */
	int made, max_new;    /* tokens of the answer; most of them */
	int32_t *pages;       /* [max_pages] of the session's table */
	int n_pages;
} Sequence;

typedef struct Flight {
	int *slots; int n;      /* [n] who sits in which row; -1 = ended or cancelled */
	int launched, taken;    /* steps */
	bool is_closed;         /* no step is added */
	bool has_inputs;        /* the inputs in io and on the device are those of the flight */
} Flight;

struct AtlasSession {
	const AtlasPlan *plan;
	const Graph *graph;
	Device *device;
	Sequence *slots;      /* [graph->slots] */
	int32_t *page_table;  /* [graph->slots, graph->max_pages] pages each slot holds */
	int32_t *free_pages;  /* [n_free_pages] a stack */
	int n_free_pages;
	int64_t next_ticket;
	Flight flight;
	bool has_strays;      /* steps are on their way whose results nothing waits for */
	int step_tokens;      /* most tokens of a sequence in a step of a flight: verify_rows, or 1 */
	int64_t n_drafts, n_accepted; /* of the steps handed out */
	int32_t shares[PLAN_MAX_VERIFY - 1]; /* limits of a new sequence: which drafts count as accepted (ops.h) */
	bool is_walking;      /* a callback of atlas_score or atlas_trace is running: nothing else may be asked meanwhile */
	AtlasStatus failed;   /* the first fault; sticky */
	AtlasError error;
};

/* Life of a session ------------------------------------------------------------------------------- */

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
	}
	if (!s || !s->slots || !s->page_table || !s->free_pages || !s->flight.slots) {
		device->ops->close(device);
		if (s) {
			s->device = NULL;
			atlas_session_close(s);
		}
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %d slots and %d pages", g->slots, g->pages);
	}
	s->plan = plan;
	s->graph = g;
	s->device = device;
	s->step_tokens = 1;
	for (int i = 0; i < g->slots; i++)
		s->slots[i].pages = s->page_table + (size_t)i * (size_t)g->max_pages;
	s->n_free_pages = g->pages;
	for (int i = 0; i < g->pages; i++)
		s->free_pages[i] = g->pages - 1 - i; /* page 0 goes first */
	*session = s;
	return ATLAS_OK;
}

/* What the options say of drafts fits the plan. */
static AtlasStatus check_speculate(const AtlasPlan *plan, int speculate, AtlasError *error)
{
	if (speculate < ATLAS_SPECULATE_AUTO || speculate > ATLAS_SPECULATE_MTP)
		return error_set(error, ATLAS_ARGUMENT, "speculate = %d: auto, off or mtp expected", speculate);
	uint64_t seed;
	if (speculate == ATLAS_SPECULATE_MTP && !plan->artifact.graph.verify_rows)
		return error_set(error, ATLAS_UNSUPPORTED, "speculate = mtp: the plan has no head that drafts; %s",
			random_seed(&plan->artifact, &seed) ? "of random weights one is made where [speculate] in MODEL.toml asks "
			"for it, as rows = 3 does, and config.json has one" : "it is compiled in from a checkpoint with tensors "
			"mtp.*, unless [speculate] rows = 1 leaves it out");
	return ATLAS_OK;
}

/* From here on steps of flights draft and verify, unless they shall not. */
static AtlasStatus begin_speculation(AtlasSession *s, int speculate, AtlasError *error)
{
	if (speculate == ATLAS_SPECULATE_OFF || !s->graph->verify_rows)
		return ATLAS_OK;
	if (s->device->limits.verify_rows != s->graph->verify_rows)
		return error_set(error, ATLAS_UNSUPPORTED, "device %s knows no verify step; speculate = off decodes without",
			s->device->ops->kind);
	s->step_tokens = s->graph->verify_rows;
	return ATLAS_OK;
}

void session_speculate(AtlasSession *session, bool on)
{
	session->step_tokens = on && session->device->limits.verify_rows ? session->graph->verify_rows : 1;
}

void session_prescribe(AtlasSession *session, const double *shares)
{
	for (int i = 0; i < PLAN_MAX_VERIFY - 1; i++)
		session->shares[i] = (int32_t)(shares[i] * (1 << 16) + 0.5);
}

AtlasStatus session_open_watched(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	AtlasSession **session, AtlasError *error)
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
	const char *name = o.device ? o.device : "auto";
	bool is_auto = strcmp(name, "auto") == 0;
	if (!is_auto && strcmp(name, "cuda") != 0 && strcmp(name, "cpu") != 0)
		return error_set(error, ATLAS_ARGUMENT, "device \"%.80s\": auto, cuda or cpu expected", name);
	if (plan->by_reference && plan->files.n == 1)
		return error_set(error, ATLAS_ARGUMENT,
			"weights_dir is not given: this plan refers to the files of its checkpoint");
	const bool compares = plan_compares(plan);
	DeviceConfig config = {.artifact = &plan->artifact, .weights = plan->weights, .files = &plan->files,
		.index = o.device_index, .n_threads = o.n_threads, .steps_ahead = o.steps_ahead, .started = o.started,
		.compares_weights = compares, .unhashed = plan->no_stops, .watch = watch};
	AtlasStatus s = check_speculate(plan, o.speculate, error);
	if (s != ATLAS_OK)
		return s;
	RandomTables random;
	if (plan->makes_weights) {
		random_tables(&random);
		config.random = &random;
		config.seed = plan->seed;
	}
	s = strcmp(name, "cpu") == 0 ? ATLAS_NO_DEVICE : cuda_open(&config, &device, error);
	bool has_no_gpu = s == ATLAS_NO_DRIVER || s == ATLAS_NO_DEVICE;
	if (has_no_gpu && (is_auto || strcmp(name, "cpu") == 0)) {
		if (error)
			*error = (AtlasError){.status = ATLAS_OK}; /* the GPU's absence is no failure here */
		s = compares ? plan_check_weights(plan, error) : ATLAS_OK; /* it uses them where they are mapped */
		s = s == ATLAS_OK ? cpu_open(&config, &device, error) : s;
	}
	s = s == ATLAS_OK ? session_open_on(plan, device, session, error) : s;
	s = s == ATLAS_OK ? plan_unchanged(plan, error) : s; /* what was compared is what was loaded */
	s = s == ATLAS_OK ? begin_speculation(*session, o.speculate, error) : s;
	if (s != ATLAS_OK) {
		atlas_session_close(*session);
		*session = NULL;
	}
	return s;
}

AtlasStatus atlas_session_open(const AtlasPlan *plan, const AtlasSessionOptions *options,
	AtlasSession **session, AtlasError *error)
{
	if (session)
		*session = NULL;
	if (!plan || !session)
		return error_set(error, ATLAS_ARGUMENT, "plan and session must not be NULL");
	return session_open_watched(plan, options, NULL, session, error);
}

void atlas_session_close(AtlasSession *session)
{
	if (!session)
		return;
	if (session->device)
		session->device->ops->close(session->device);
	for (int i = 0; session->graph && i < session->graph->slots; i++)
		free(session->slots[i].tokens);
	free(session->slots);
	free(session->page_table);
	free(session->free_pages);
	free(session->flight.slots);
	free(session);
}

const char *atlas_session_error(const AtlasSession *session) { return session ? session->error.text : ""; }
Device *session_device(AtlasSession *session) { return session->device; }

static int count_state(const AtlasSession *s, SequenceState state)
{
	int n = 0;
	for (int i = 0; i < s->graph->slots; i++)
		n += s->slots[i].state == state;
	return n;
}

int atlas_active(const AtlasSession *session)
{
	return session ? session->graph->slots - count_state(session, FREE) : 0;
}

AtlasStatus atlas_session_info(const AtlasSession *session, AtlasSessionInfo *info)
{
	if (!session || !info)
		return ATLAS_ARGUMENT;
	const Device *d = session->device;
	int score = d->limits.prefill_outs;
	AtlasSessionInfo all = {
		.struct_size = info->struct_size, .device = d->ops->kind, .device_name = d->name,
		.target = d->target, .device_bytes = d->bytes, .free_slots = count_state(session, FREE),
		.free_pages = session->n_free_pages, .prefill_rows = d->limits.prefill_rows,
		.score_rows = score < d->limits.prefill_rows ? score : d->limits.prefill_rows,
		.context_seconds = d->times.context, .memory_seconds = d->times.memory,
		.kernels_seconds = d->times.kernels, .graphs_seconds = d->times.graphs,
		.weights_seconds = d->times.weights, .step_tokens = session->step_tokens,
		.drafts = session->n_drafts, .accepted_drafts = session->n_accepted};
	if (info->struct_size < sizeof info->struct_size)
		return ATLAS_ARGUMENT;
	memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
	return ATLAS_OK;
}

/* What a device reports ends the session: the state of its slots is unknown from then on. */
static AtlasStatus device_failed(AtlasSession *s, AtlasStatus status)
{
	s->error = s->device->error;
	s->failed = s->error.status = status;
	return status;
}

static bool has_results(const AtlasSession *s) { return s->flight.taken < s->flight.launched; }

/* After it the inputs in io may be written and everything launched is done. */
static AtlasStatus wait_for_device(AtlasSession *s)
{
	AtlasStatus status = s->device->ops->wait(s->device);
	s->has_strays = false;
	return status == ATLAS_OK ? ATLAS_OK : device_failed(s, status);
}

/* One step and its end, when all that is on its way is done: `step` among the inputs is every step's. */
static AtlasStatus run(AtlasSession *s, const StepSize *size)
{
	AtlasStatus status = s->has_strays || has_results(s) ? wait_for_device(s) : ATLAS_OK;
	if (status != ATLAS_OK)
		return status;
	s->flight.has_inputs = false;
	status = s->device->ops->launch(s->device, size, 1);
	return status == ATLAS_OK ? wait_for_device(s) : device_failed(s, status);
}

/* Slots and pages ------------------------------------------------------------------------------------ */

static void free_slot(AtlasSession *s, int slot)
{
	Sequence *q = &s->slots[slot];
	for (int i = q->n_pages; i-- > 0;)
		s->free_pages[s->n_free_pages++] = q->pages[i];
	free(q->tokens);
	*q = (Sequence){.pages = q->pages};
}

static AtlasStatus check_tokens(AtlasSession *s, const int32_t *tokens, int n)
{
	const Graph *g = s->graph;
	if (n < 1)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: at least one is needed", n);
	if (n > g->max_context)
		return error_set(&s->error, ATLAS_CONTEXT, "%d tokens: the context holds %d", n, g->max_context);
	for (int i = 0; i < n; i++)
		if (tokens[i] < 0 || tokens[i] >= g->vocab)
			return error_set(&s->error, ATLAS_TOKEN, "token %d is %d: the vocabulary has %d", i, tokens[i],
				g->vocab);
	return ATLAS_OK;
}

static AtlasStatus check_sampling(AtlasSession *s, const AtlasSampling *a)
{
	const struct { const char *name; float value; bool good; } rows[] = {
		{"temperature", a->temperature, a->temperature >= 0},
		{"top_p", a->top_p, a->top_p > 0 && a->top_p <= 1},
		{"min_p", a->min_p, a->min_p >= 0 && a->min_p <= 1},
		{"repetition_penalty", a->repetition_penalty, a->repetition_penalty >= 1e-3f && a->repetition_penalty <= 1e3f},
		{"presence_penalty", a->presence_penalty, fabsf(a->presence_penalty) <= 1e3f},
		{"frequency_penalty", a->frequency_penalty, fabsf(a->frequency_penalty) <= 1e3f},
		{"top_k", (float)a->top_k, a->top_k >= 0}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (!rows[i].good || !isfinite(rows[i].value))
			return error_set(&s->error, ATLAS_ARGUMENT, "%s = %g is out of range", rows[i].name,
				(double)rows[i].value);
	return ATLAS_OK;
}

/* Can the session be asked for something now? */
static AtlasStatus check_session(AtlasSession *s)
{
	if (!s)
		return ATLAS_ARGUMENT;
	if (s->is_walking)
		return error_set(&s->error, ATLAS_ARGUMENT, "the session is asked from a callback of its own");
	return s->failed;
}

/* A free slot with pages for `positions`, its state reset on the device. */
static AtlasStatus acquire(AtlasSession *s, int positions, const AtlasSampling *a, int *slot)
{
	const Graph *g = s->graph;
	StepIo *io = &s->device->io;
	int n_pages = (positions + s->step_tokens - 1 + g->page - 1) / g->page, i = 0;
	while (i < g->slots && s->slots[i].state != FREE)
		i++;
	if (i == g->slots)
		return error_set(&s->error, ATLAS_NO_SLOT, "all %d slots are taken", g->slots);
	if (n_pages > s->n_free_pages)
		return error_set(&s->error, ATLAS_NO_PAGES, "%d pages are needed, %d of %d are free", n_pages,
			s->n_free_pages, g->pages);
	Sequence *q = &s->slots[i];
	int32_t *row = io->new_pages + (size_t)i * (size_t)g->max_pages;
	memset(row, 0, sizeof *row * (size_t)g->max_pages);
	for (q->n_pages = 0; q->n_pages < n_pages; q->n_pages++)
		row[q->n_pages] = q->pages[q->n_pages] = s->free_pages[--s->n_free_pages];
	const float coldest = 1e-30f; /* below it a score over the temperature may be no number */
	const float sampling[8] = {a->temperature < coldest ? 0 : a->temperature, a->top_p, a->min_p, a->repetition_penalty,
		a->presence_penalty, a->frequency_penalty};
	const int32_t limits[8] = {a->top_k, (int32_t)(uint32_t)a->seed, (int32_t)(uint32_t)(a->seed >> 32),
		positions, s->shares[0], s->shares[1], s->shares[2]};
	memcpy(io->new_sampling + i * 8, sampling, sizeof sampling);
	memcpy(io->new_limits + i * 8, limits, sizeof limits);
	memset(io->acquire, 0, sizeof *io->acquire * (size_t)g->slots);
	io->acquire[i] = 1;
	AtlasStatus status = run(s, &(StepSize){.phase = ACQUIRE});
	if (status != ATLAS_OK) {
		free_slot(s, i);
		return status;
	}
	/* No step that runs now can write there: the slot's last sequence has ended. */
	memset(io->ring + i * PLAN_RING_ENTRIES * PLAN_RING_WORDS, 0,
		sizeof *io->ring * PLAN_RING_ENTRIES * PLAN_RING_WORDS);
	*slot = i;
	return ATLAS_OK;
}

AtlasStatus atlas_start(AtlasSession *session, const int32_t *tokens, int n, const AtlasSampling *sampling,
	int max_new, int *slot)
{
	AtlasSampling a;
	AtlasStatus s = check_session(session);
	if (s != ATLAS_OK)
		return s;
	int max_context = session->graph->max_context;
	atlas_sampling_init(session->plan, &a);
	if (!tokens || !slot)
		s = error_set(&session->error, ATLAS_ARGUMENT, "tokens and slot must not be NULL");
	if (s == ATLAS_OK && sampling && sampling->struct_size < sizeof sampling->struct_size)
		s = error_set(&session->error, ATLAS_ARGUMENT, "sampling.struct_size is not set");
	if (s == ATLAS_OK && sampling)
		memcpy(&a, sampling, sampling->struct_size < sizeof a ? sampling->struct_size : sizeof a);
	if (s == ATLAS_OK && max_new < 1)
		s = error_set(&session->error, ATLAS_ARGUMENT, "max_new = %d: at least 1 expected", max_new);
	if (s == ATLAS_OK)
		s = check_tokens(session, tokens, n);
	if (s == ATLAS_OK)
		s = check_sampling(session, &a);
	if (s != ATLAS_OK)
		return s;
	/* The last token of an answer is never read, so it needs no position. */
	if (max_new > max_context - n + 1)
		max_new = max_context - n + 1;
	int32_t *copy = malloc(sizeof *copy * (size_t)n);
	if (!copy)
		return error_set(&session->error, ATLAS_NO_MEMORY, "no memory for %d tokens", n);
	s = acquire(session, n + max_new - 1, &a, slot);
	if (s != ATLAS_OK) {
		free(copy);
		return s;
	}
	memcpy(copy, tokens, sizeof *copy * (size_t)n);
	Sequence *q = &session->slots[*slot];
	q->state = WAITING;
	q->ticket = session->next_ticket++;
	q->tokens = copy;
	q->n = n;
	q->max_new = max_new;
	return ATLAS_OK;
}


/* Steps ------------------------------------------------------------------------------------------------ */

/* Appends tokens [from, from + count) of the n of a slot's sequence as one segment. */
static void add_segment(StepIo *io, StepSize *size, int slot, const int32_t *tokens, int n, int from, int count)
{
	int32_t *seg = io->seg + size->segs++ * 4;
	seg[0] = size->rows;
	seg[1] = count;
	seg[2] = slot;
	seg[3] = from;
	for (int i = 0; i < count; i++, size->rows++) {
		io->row_token[size->rows] = tokens[from + i];
		io->row_slot[size->rows] = slot;
		io->row_pos[size->rows] = from + i;
		if (io->row_next)
			io->row_next[size->rows] = from + i + 1 < n ? tokens[from + i + 1] : 0;
	}
}

static int next_waiting(const AtlasSession *s, int64_t after)
{
	int best = -1;
	for (int i = 0; i < s->graph->slots; i++)
		if (s->slots[i].state == WAITING && s->slots[i].ticket > after &&
			(best < 0 || s->slots[i].ticket < s->slots[best].ticket))
			best = i;
	return best;
}

/* Of the `left` tokens of a prompt, those of a step with room for so many rows: all, or whole cells of the grid on
 * which prompts are cut. What was read before ended on it. */
static int whole_cells(const AtlasSession *s, int left, int room)
{
	const int grid = s->graph->prompt_grid;
	return left <= room ? left : room / grid * grid;
}

/* Rows of waiting prompts until the next cell is too large for what is left of the largest bucket. The last row of a
 * prompt needs an out: its last cell waits for one. */
static StepSize gather_prompts(AtlasSession *s)
{
	StepIo *io = &s->device->io;
	const StepLimits *limits = &s->device->limits;
	StepSize size = {.phase = PREFILL};
	int64_t ticket = -1;
	for (int slot; (slot = next_waiting(s, ticket)) >= 0 && size.rows < limits->prefill_rows;) {
		Sequence *q = &s->slots[slot];
		const int left = q->n - q->read;
		int count = whole_cells(s, left, limits->prefill_rows - size.rows);
		ticket = q->ticket;
		if (count == 0)
			break; /* first come, first served */
		if (count == left && size.outs == limits->prefill_outs)
			count = (left - 1) / s->graph->prompt_grid * s->graph->prompt_grid;
		if (count == 0)
			continue;
		add_segment(io, &size, slot, q->tokens, q->n, q->read, count);
		q->read += count;
		if (q->read == q->n)
			io->out_row[size.outs++] = size.rows - 1;
	}
	return size;
}


/* The entry of the slot's ring for the token at `position`. */
static int32_t *ring_entry(const AtlasSession *s, int slot, int position)
{
	return s->device->io.ring + (slot * PLAN_RING_ENTRIES + position % PLAN_RING_ENTRIES) * PLAN_RING_WORDS;
}

/* The next token of the slot's sequence, which should be there. *more: the one behind it is of the same step. */
static AtlasStatus take_token(AtlasSession *s, int slot, AtlasEvent *e, bool *more)
{
	static const AtlasFinish finish[] = {ATLAS_RUNNING, ATLAS_STOP, ATLAS_LENGTH, ATLAS_FAILED, ATLAS_RUNNING};
	const int last = s->step_tokens > 1 ? 4 : 3;
	Sequence *q = &s->slots[slot];
	int position = q->n + q->made;
	RingEntry entry;
	bool is_whole = ring_read(ring_entry(s, slot, position), &entry), is_none = entry.done == 3;
	*e = (AtlasEvent){.slot = slot, .token = entry.token, .logprob = entry.logprob};
	*more = entry.done == 4;
	if (!is_whole || entry.position != position || entry.done > last ||
		(is_none ? e->token != -1 : e->token < 0 || e->token >= s->graph->vocab || isnan(e->logprob)))
		return s->failed = error_set(&s->error, ATLAS_DEVICE_FAULT,
			"slot %d was given token %d at position %d, done %d%s: no such result of position %d", slot, entry.token,
			entry.position, entry.done, is_whole ? "" : ", not all of it", position);
	free(q->tokens);
	q->tokens = NULL;
	q->state = RUNNING;
	q->made++;
	e->finish = finish[entry.done];
	if (e->finish == ATLAS_RUNNING && q->made == q->max_new)
		e->finish = ATLAS_LENGTH;
	if (e->finish != ATLAS_RUNNING)
		free_slot(s, slot);
	return ATLAS_OK;
}

static AtlasStatus take_tokens(AtlasSession *s, const StepSize *size, AtlasEvent *events)
{
	const StepIo *io = &s->device->io;
	AtlasStatus status = ATLAS_OK;
	bool more;
	for (int o = 0; o < size->outs && status == ATLAS_OK; o++)
		status = take_token(s, io->row_slot[io->out_row[o]], &events[o], &more);
	return status;
}

static AtlasStatus step_prompts(AtlasSession *s, AtlasEvent *events, int *n)
{
	AtlasStatus status = s->has_strays ? wait_for_device(s) : ATLAS_OK;
	if (status != ATLAS_OK)
		return status;
	StepSize size = gather_prompts(s);
	status = run(s, &size);
	if (status == ATLAS_OK)
		status = take_tokens(s, &size, events);
	if (status == ATLAS_OK)
		*n = size.outs;
	return status;
}

/* Flights ------------------------------------------------------------------------------------------------ */

/* A flight without sequences has no results. Its steps may still run. */
static void leave_flight(AtlasSession *s, int slot)
{
	Flight *f = &s->flight;
	bool is_empty = true;
	for (int i = 0; i < f->n; i++) {
		f->is_closed |= f->slots[i] == slot;
		f->slots[i] = f->slots[i] == slot ? -1 : f->slots[i];
		is_empty &= f->slots[i] < 0;
	}
	if (is_empty) {
		s->has_strays |= has_results(s);
		f->n = f->launched = f->taken = 0;
	}
}

/* All running sequences, when no step is on its way. */
static AtlasStatus begin_flight(AtlasSession *s)
{
	Flight *f = &s->flight;
	*f = (Flight){.slots = f->slots};
	for (int i = 0; i < s->graph->slots; i++)
		if (s->slots[i].state == RUNNING)
			f->slots[f->n++] = i;
	return s->has_strays ? wait_for_device(s) : ATLAS_OK;
}

/* Steps to add now: none when enough are on their way, or so few are missing that a whole row of them comes later. */
static int steps_to_add(const AtlasSession *s)
{
	const Flight *f = &s->flight;
	const StepLimits *limits = &s->device->limits;
	int on_way = f->launched - f->taken, left = 0;
	for (int i = 0; i < f->n; i++) {
		const Sequence *q = f->slots[i] < 0 ? NULL : &s->slots[f->slots[i]];
		if (q && q->max_new - q->made > left)
			left = q->max_new - q->made;
	}
	/* of tokens that were not taken yet, no ring has more than it holds */
	int room = PLAN_RING_ENTRIES / s->step_tokens - 1, ahead = limits->ahead < room ? limits->ahead : room;
	int end = left < ahead ? left : ahead, n = end - on_way;
	if (f->is_closed || n <= 0)
		return 0;
	return on_way == 0 || end == left ? n : n - n % limits->row;
}

static AtlasStatus add_steps(AtlasSession *s)
{
	Flight *f = &s->flight;
	StepIo *io = &s->device->io;
	const int rows = f->n * s->step_tokens;
	StepSize size = {.phase = s->step_tokens > 1 ? VERIFY : DECODE, .rows = rows, .outs = rows,
		.is_same = f->has_inputs};
	int n = steps_to_add(s);
	if (n == 0)
		return ATLAS_OK;
	for (int i = 0; i < rows && !f->has_inputs; i++) {
		io->row_slot[i] = f->slots[i / s->step_tokens];
		io->out_row[i] = i;
	}
	AtlasStatus status = s->device->ops->launch(s->device, &size, n);
	if (status != ATLAS_OK)
		return device_failed(s, status);
	f->has_inputs = true;
	f->launched += n;
	return ATLAS_OK;
}

static void breathe(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Is all of the slot's entry for `position` there? */
static bool has_token(const AtlasSession *s, int slot, int position)
{
	const int32_t *words = ring_entry(s, slot, position);
	RingEntry entry;
	return __atomic_load_n(words, __ATOMIC_RELAXED) == position && ring_read(words, &entry);
}

/* Returns when the slot's entry for `position` is in its ring. */
static AtlasStatus await_token(AtlasSession *s, int slot, int position)
{
	bool is_busy = true;
	for (int tries = 1; !has_token(s, slot, position); tries++) {
		if (!is_busy) /* all is done, and it was not there a moment later: take_token says what is */
			break;
		breathe();
		if (tries % PATIENCE)
			continue;
		AtlasStatus status = s->device->ops->look(s->device, &is_busy);
		if (status != ATLAS_OK)
			return device_failed(s, status);
	}
	return ATLAS_OK;
}

/* All tokens that a step made for a slot: *n more events. */
static AtlasStatus take_slot(AtlasSession *s, int slot, AtlasEvent *events, int *n)
{
	const int before = *n;
	bool more = true;
	while (more) {
		AtlasStatus status = await_token(s, slot, s->slots[slot].n + s->slots[slot].made);
		if (status == ATLAS_OK)
			status = take_token(s, slot, &events[*n], &more);
		if (status == ATLAS_OK && more && (++*n == before + s->step_tokens || events[*n - 1].finish != ATLAS_RUNNING))
			status = s->failed = error_set(&s->error, ATLAS_DEVICE_FAULT, "slot %d: a step of %d rows says that more "
				"than %d tokens are its", slot, s->step_tokens, *n - before);
		if (status != ATLAS_OK)
			return status;
	}
	s->n_drafts += s->step_tokens - 1;
	s->n_accepted += *n - before;
	if (events[(*n)++].finish != ATLAS_RUNNING)
		leave_flight(s, slot);
	return ATLAS_OK;
}

/* The results of the oldest step on its way. */
static AtlasStatus take_step(AtlasSession *s, AtlasEvent *events, int *n)
{
	Flight *f = &s->flight;
	AtlasStatus status = ATLAS_OK;
	int made = 0;
	f->taken++; /* now, so that leave_flight knows whether steps are left behind */
	for (int i = 0; i < f->n && status == ATLAS_OK; i++)
		if (f->slots[i] >= 0)
			status = take_slot(s, f->slots[i], events, &made);
	if (status == ATLAS_OK)
		*n = made;
	return status;
}

AtlasStatus atlas_step(AtlasSession *session, AtlasEvent *events, int cap, int *n)
{
	AtlasStatus s = check_session(session);
	if (n)
		*n = 0;
	if (s != ATLAS_OK)
		return s;
	if (!events || !n)
		return error_set(&session->error, ATLAS_ARGUMENT, "events and n must not be NULL");
	bool is_waiting = next_waiting(session, -1) >= 0;
	const int most = session->graph->slots * session->step_tokens;
	if (cap < most)
		return error_set(&session->error, ATLAS_ARGUMENT, "room for %d events: %d expected", cap, most);
	session->flight.is_closed |= is_waiting;
	if (!has_results(session) && is_waiting)
		return step_prompts(session, events, n);
	if (!has_results(session) && (session->flight.n == 0 || session->flight.is_closed))
		s = begin_flight(session);
	if (s == ATLAS_OK && session->flight.n > 0)
		s = add_steps(session);
	return s == ATLAS_OK && has_results(session) ? take_step(session, events, n) : s;
}

AtlasStatus atlas_cancel(AtlasSession *session, int slot)
{
	if (!session || session->is_walking)
		return check_session(session);
	if (slot < 0 || slot >= session->graph->slots || session->slots[slot].state == FREE)
		return error_set(&session->error, ATLAS_ARGUMENT, "slot %d holds no sequence", slot);
	leave_flight(session, slot);
	free_slot(session, slot);
	return ATLAS_OK;
}

/* Scores and traces --------------------------------------------------------------------------------------- */

typedef struct LayerRelay { SessionLayerFn *fn; void *ctx; int pos; } LayerRelay;

static int relay_layer(void *ctx, int layer, int rows, int cols, float *hidden)
{
	LayerRelay *r = ctx;
	return r->fn(r->ctx, layer, r->pos, rows, cols, hidden);
}

static AtlasStatus read_scores(AtlasSession *s, const StepSize *size, int pos, float *logits, AtlasLogitsFn *fn,
	void *ctx)
{
	Device *d = s->device;
	int64_t vocab = s->graph->vocab;
	AtlasStatus status = d->ops->read(d, "logits", 0, size->outs * vocab, logits);
	if (status != ATLAS_OK)
		return device_failed(s, status);
	for (int i = 0; i < size->outs; i++)
		if (fn(ctx, pos + i, logits + i * vocab) != 0)
			return ATLAS_STOPPED;
	return ATLAS_OK;
}

/* One step, launch by launch. */
static AtlasStatus trace_chunk(AtlasSession *s, const StepSize *size, int pos, SessionLayerFn *layer, void *ctx)
{
	LayerRelay relay = {layer, ctx, pos};
	s->flight.has_inputs = false;
	AtlasStatus status = s->device->ops->trace(s->device, size, relay_layer, &relay);
	return status == ATLAS_OK || status == ATLAS_STOPPED ? status : device_failed(s, status);
}

/* Makes the rows from `first` on the outs of the step, `most` of them if there are so many; returns the row behind. */
static int add_outs(StepIo *io, StepSize *size, int first, int most)
{
	size->outs = size->rows - first < most ? size->rows - first : most;
	for (int o = 0; o < size->outs; o++)
		io->out_row[o] = first + o;
	return first + size->outs;
}

/* As a prompt that is alone is read. At least one of the two callbacks is given. */
static AtlasStatus walk_chunks(AtlasSession *s, const int32_t *tokens, int n, int slot, SessionLayerFn *layer,
	AtlasLogitsFn *score, void *ctx)
{
	Device *d = s->device;
	const StepLimits *limits = &d->limits;
	const int most = limits->prefill_outs < limits->prefill_rows ? limits->prefill_outs : limits->prefill_rows;
	float *logits = score ? malloc(sizeof *logits * (size_t)most * (size_t)s->graph->vocab) : NULL;
	if (score && !logits)
		return error_set(&s->error, ATLAS_NO_MEMORY, "no memory for %d rows of logits", most);
	AtlasStatus status = ATLAS_OK;
	for (int pos = 0, count; pos < n && status == ATLAS_OK; pos += count) {
		StepSize size = {.phase = PREFILL, .flags = STEP_SCORE};
		count = whole_cells(s, n - pos, limits->prefill_rows);
		add_segment(&d->io, &size, slot, tokens, n, pos, count);
		int scored = score ? add_outs(&d->io, &size, 0, most) : count;
		status = layer ? trace_chunk(s, &size, pos, layer, ctx) : run(s, &size);
		if (score && status == ATLAS_OK)
			status = read_scores(s, &size, pos, logits, score, ctx);
		while (scored < count && status == ATLAS_OK) {
			const int first = scored;
			size.flags = STEP_SCORE | STEP_OUTS;
			scored = add_outs(&d->io, &size, first, most);
			status = run(s, &size);
			if (status == ATLAS_OK)
				status = read_scores(s, &size, pos + first, logits, score, ctx);
		}
	}
	free(logits);
	return status;
}

AtlasStatus session_walk(AtlasSession *s, const int32_t *tokens, int n, SessionLayerFn *layer, AtlasLogitsFn *score,
	void *ctx)
{
	AtlasSampling greedy;
	int slot;
	AtlasStatus status = check_session(s);
	if (status != ATLAS_OK)
		return status;
	if (!tokens || (!layer && !score))
		return error_set(&s->error, ATLAS_ARGUMENT, "tokens and the callback must not be NULL");
	status = check_tokens(s, tokens, n);
	atlas_sampling_init(s->plan, &greedy);
	if (status == ATLAS_OK)
		status = acquire(s, n, &greedy, &slot);
	if (status != ATLAS_OK)
		return status;
	s->is_walking = true;
	status = walk_chunks(s, tokens, n, slot, layer, score, ctx);
	s->is_walking = false;
	free_slot(s, slot);
	return status;
}

AtlasStatus atlas_score(AtlasSession *session, const int32_t *tokens, int n, AtlasLogitsFn *fn, void *ctx)
{
	return session_walk(session, tokens, n, NULL, fn, ctx);
}

typedef struct Reader { AtlasLayerFn *fn; void *ctx; } Reader;

static int only_read(void *ctx, int layer, int pos, int rows, int cols, float *hidden)
{
	const Reader *r = ctx;
	return r->fn(r->ctx, layer, pos, rows, cols, hidden);
}

AtlasStatus atlas_trace(AtlasSession *session, const int32_t *tokens, int n, AtlasLayerFn *fn, void *ctx)
{
	Reader reader = {fn, ctx};
	return session_walk(session, tokens, n, fn ? only_read : NULL, NULL, &reader);
}
