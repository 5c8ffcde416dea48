/* test_relocatable.c - a plan knows no address: it runs wherever memory is, and beside another.
 *
 * The fake driver puts memory anywhere, with other allocations before and between those of the plan. What the runtime
 * hands to the driver is then held against the plan: behind each pointer of each kernel node stands the arena and the
 * offset that the plan says, and nothing else is in a node's arguments. The fake GPU reads what these pointers point
 * to, so tokens show whether the plan, the weights and the inputs came to lie in the same places.
 */
#include "runtime/cuda.h"
#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STARTS = 1000, MAX_ASKED = 16, MAX_OTHERS = 64, MAX_IMAGES = 512, SLOTS = 4, EVENTS = SLOTS * PLAN_MAX_VERIFY,
	MAX_TEXT = 64 };

/* What one start asked of the driver ----------------------------------------------------------------------- */

typedef struct Asked { CuPtr at; size_t bytes; } Asked;

static struct Start {
	Driver cu;      /* the fake's own functions */
	uint64_t random;
	const Artifact *artifact;
	Asked memory[MAX_ASKED]; int n_memory; /* of the device, in the order of asking */
	CuPtr ring;
	CuPtr others[MAX_OTHERS]; int n_others;
	ArgImage images[MAX_IMAGES]; int n_images, n_told; /* of the graph that is being built */
	int bad_node;   /* 1 + a node of each graph whose first argument is moved by a page; 0 = none */
	long n_pointers, n_maps, n_wrong;
} start;

static int below(int n)
{
	start.random = start.random * 6364136223846793005u + 1442695040888963407u;
	return (int)((start.random >> 33) % (uint64_t)n);
}

static void take_others(int n)
{
	for (; n > 0 && start.n_others < MAX_OTHERS; n--)
		assert_int_equal(start.cu.MemAlloc(&start.others[start.n_others++], (size_t)1 + (size_t)below(1 << 16)), 0);
}

static CuResult among_others(CuPtr *at, size_t bytes)
{
	take_others(below(4));
	const CuResult r = start.cu.MemAlloc(at, bytes);
	assert_true(start.n_memory < MAX_ASKED);
	start.memory[start.n_memory++] = (Asked){*at, bytes};
	return r;
}

static CuResult note_ring(void **at, size_t bytes, unsigned flags)
{
	const CuResult r = start.cu.MemHostAlloc(at, bytes, flags);
	if (flags & DRIVER_HOST_MAPPED)
		start.ring = (CuPtr)(uintptr_t)*at;
	return r;
}

/* Whole arenas are cleared, nothing beside them. */
static CuResult fill_whole(CuPtr at, unsigned char value, size_t bytes, CuStream stream)
{
	bool is_whole = false;
	for (int i = 0; i < start.n_memory; i++)
		is_whole |= start.memory[i].at == at && start.memory[i].bytes == bytes;
	assert_true(is_whole);
	return start.cu.MemsetD8Async(at, value, bytes, stream);
}

static CuResult note_graph(CuGraph *graph, unsigned flags)
{
	start.n_images = start.n_told = 0;
	return start.cu.GraphCreate(graph, flags);
}

static CuResult note_node(CuGraphNode *node, CuGraph graph, const CuGraphNode *deps, size_t n_deps,
	const CuKernelNode *p)
{
	assert_true(start.n_images < MAX_IMAGES);
	if (start.n_images + 1 == start.bad_node)
		((uint8_t *)p->params[0])[1] += 16;
	memcpy(&start.images[start.n_images++], p->params[0], sizeof(ArgImage));
	return start.cu.GraphAddKernelNode(node, graph, deps, n_deps, p);
}

/* Where an arena lies: each is one allocation, in the order of their kinds, those of no bytes left out. */
static CuPtr arena_at(ArenaKind kind, bool of_drafts)
{
	const TargetPlan *t = &start.artifact->targets[0];
	int n = 0;
	if (kind == ARENA_RING)
		return start.ring;
	for (int i = 0; i < (int)kind; i++)
		n += t->arena_bytes[i] > 0;
	assert_true(n < start.n_memory);
	const int64_t images = kind == ARENA_IO ? io_images(&start.artifact->graph) : 1;
	assert_int_equal(start.memory[n].bytes, images * t->arena_bytes[kind]);
	return start.memory[n].at + (CuPtr)(of_drafts && kind == ARENA_IO ? t->arena_bytes[kind] : 0);
}

/* A pointer in a node's arguments; takes it out. */
static void check_pointer(uint8_t *at, const Phase *p, int buf)
{
	CuPtr seen, want = 0;
	memcpy(&seen, at, sizeof seen);
	if (buf >= 0)
		want = arena_at(p->bufs[buf].arena, p->kind == DRAFT) + (CuPtr)p->bufs[buf].offset;
	start.n_wrong += seen != want;
	memset(at, 0, sizeof seen);
}

/* DeviceWatch: the next node of the graph was made for that launch. */
static void check_node(void *ctx, int phase, int step, int launch, const SeenLaunch *seen)
{
	const Phase *p = &start.artifact->targets[0].phases[phase];
	const Launch *l = &p->launches[launch];
	(void)ctx, (void)step, (void)seen;
	assert_true(start.n_told < start.n_images);
	ArgImage *image = &start.images[start.n_told++];
	for (int i = 0; i < l->n_args; i++, start.n_pointers++)
		check_pointer(image->bytes + l->args[i].field_offset, p, l->args[i].buf);
	for (int i = 0; i < l->n_maps; i++, start.n_maps++)
		check_pointer(image->bytes + l->maps[i].field_offset, p, l->maps[i].buf);
	for (size_t i = 0; i < sizeof image->bytes; i++)
		start.n_wrong += image->bytes[i] != 0;
}

static void no_stage(void *ctx, WatchStage stage, int64_t free_bytes, int64_t total_bytes)
{
	(void)ctx, (void)stage, (void)free_bytes, (void)total_bytes;
}

static void no_launch(void *ctx, int phase, int steps) { (void)ctx, (void)phase, (void)steps; }

static const DeviceWatch watch = {.stage = no_stage, .node = check_node, .launched = no_launch};

/* Texts ---------------------------------------------------------------------------------------------------- */

typedef struct Texts {
	AtlasSession *session;
	int made[SLOTS][MAX_TEXT], n[SLOTS];
	AtlasFinish finish[SLOTS];
} Texts;

static void start_texts(Texts *t, AtlasSession *session, int n, int max_new)
{
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1};
	int32_t prompt[16];
	int slot;
	*t = (Texts){.session = session};
	session_speculate(session, true); /* where there is a head */
	for (int i = 0; i < n; i++) {
		fill_prompt(prompt, 16, i);
		a.temperature = i % 2 ? 0.8f : 0;
		a.seed = (uint64_t)i;
		assert_int_equal(atlas_start(session, prompt, 3 + 4 * i, &a, max_new + i, &slot), ATLAS_OK);
		assert_int_equal(slot, i);
	}
}

static void step_texts(Texts *t)
{
	AtlasEvent events[EVENTS];
	int n;
	assert_int_equal(atlas_step(t->session, events, EVENTS, &n), ATLAS_OK);
	for (int i = 0; i < n; i++) {
		const int slot = events[i].slot;
		assert_true(t->n[slot] < MAX_TEXT);
		t->made[slot][t->n[slot]++] = events[i].token;
		t->finish[slot] = events[i].finish;
	}
}

static void run_texts(Texts *t)
{
	while (atlas_active(t->session) > 0)
		step_texts(t);
}

/* The same texts, or where those were cut their beginnings. */
static void assert_texts(const Texts *got, const Texts *want, bool is_cut)
{
	for (int i = 0; i < SLOTS; i++) {
		assert_true(is_cut ? got->n[i] <= want->n[i] : got->n[i] == want->n[i]);
		assert_true(is_cut || got->finish[i] == want->finish[i]);
		assert_memory_equal(got->made[i], want->made[i], sizeof(int) * (size_t)got->n[i]);
	}
}

/* One plan, many starts ---------------------------------------------------------------------------------------- */

static void watch_driver(Rig *r, uint64_t random)
{
	start.cu = r->driver;
	start.random = random;
	start.artifact = &r->plan->artifact;
	start.n_memory = start.n_others = 0;
	start.bad_node = 0;
	start.n_wrong = 0;
	r->driver.MemAlloc = among_others;
	r->driver.MemHostAlloc = note_ring;
	r->driver.MemsetD8Async = fill_whole;
	r->driver.GraphCreate = note_graph;
	r->driver.GraphAddKernelNode = note_node;
	r->watch = &watch;
}

static void start_often(Rig *r, int starts, int n_texts, int max_new)
{
	Texts want, got;
	CuPtr lowest = ~(CuPtr)0, highest = 0;
	int odd = 0;
	assert_int_equal(open_fake(r), ATLAS_OK);
	start_texts(&want, r->session, n_texts, max_new);
	run_texts(&want);
	atlas_session_close(r->session);
	const Driver plain = r->driver;
	for (int i = 0; i < starts; i++) {
		fake_driver_stop(&r->fake);
		fake_driver_start(&r->fake, &r->driver);
		fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
		r->fake.places = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
		r->driver = plain;
		watch_driver(r, (uint64_t)i);
		take_others(below(8));
		assert_int_equal(open_fake(r), ATLAS_OK);
		assert_int_equal(start.n_wrong, 0);
		for (int k = 0; k < start.n_memory; k++) {
			const CuPtr at = start.memory[k].at;
			lowest = at < lowest ? at : lowest;
			highest = at > highest ? at : highest;
			odd += at % 512 != 0;
		}
		start_texts(&got, r->session, n_texts, max_new);
		run_texts(&got);
		assert_texts(&got, &want, false);
		for (int k = 0; k < start.n_others; k++)
			assert_int_equal(start.cu.MemFree(start.others[k]), 0);
		atlas_session_close(r->session);
		assert_string_equal(r->fake.broken, "");
		assert_int_equal(r->fake.live, 0);
		r->session = NULL;
	}
	/* chance did its part; under AddressSanitizer, whose shadow lies below, all is above 2^44 */
	assert_true(highest > (CuPtr)1 << 44 && highest - lowest > (CuPtr)1 << 44 && odd > starts);
	r->driver = plain;
}

static void close_plan(Rig *r)
{
	fake_driver_stop(&r->fake);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

static void runs_wherever_memory_is(void **state)
{
	Rig r;
	(void)state;
	start.n_pointers = start.n_maps = 0;
	rig_plan(&r, "llama", 0);
	start_often(&r, STARTS, 1, 3);
	assert_true(start.n_pointers > 100L * STARTS && start.n_maps >= STARTS);
	close_plan(&r);
}

/* States, drafts with inputs of their own, and what verify leaves of states. */
static void runs_wherever_memory_is_with_a_head(void **state)
{
	Rig r;
	(void)state;
	start.n_pointers = 0;
	rig_checkpoint(&r, "tests/fixtures/qwen3_5");
	start_often(&r, 40, 2, 5);
	assert_true(start.n_pointers > 500L * 40);
	close_plan(&r);
}

/* One node's pointer goes astray: no other way is it seen so near. */
static void pointers_astray_are_seen(void **state)
{
	Rig r;
	(void)state;
	rig_plan(&r, "llama", 0);
	watch_driver(&r, 1);
	start.bad_node = 3;
	assert_int_equal(open_fake(&r), ATLAS_OK);
	assert_true(start.n_wrong > 0);
	for (int k = 0; k < start.n_others; k++)
		assert_int_equal(start.cu.MemFree(start.others[k]), 0);
	atlas_session_close(r.session);
	assert_int_equal(r.fake.live, 0);
	close_plan(&r);
}

/* Two plans at once --------------------------------------------------------------------------------------------- */

/* The fake GPU of the plan whose kernels these are: those of the second session were looked up behind the first's. */
static struct Pair {
	FakeGpu gpu[2];
	int first;    /* number of the second's first kernel */
	int n_looked_up, opening;
	CuResult (*get_kernel)(CuKernel *kernel, CuLibrary library, const char *name);
	size_t (*param_bytes)(void *ctx, int kernel);
	void (*execute)(void *ctx, int kernel, const void *params);
} pair;

static CuResult count_kernel(CuKernel *kernel, CuLibrary library, const char *name)
{
	pair.n_looked_up++;
	if (pair.opening == 0)
		pair.first = pair.n_looked_up;
	return pair.get_kernel(kernel, library, name);
}

static size_t pair_param_bytes(void *ctx, int kernel)
{
	const int which = pair.opening > 0 && kernel >= pair.first;
	(void)ctx;
	return pair.param_bytes(&pair.gpu[which], kernel - (which ? pair.first : 0));
}

static void pair_execute(void *ctx, int kernel, const void *params)
{
	const int which = kernel >= pair.first;
	(void)ctx;
	pair.execute(&pair.gpu[which], kernel - (which ? pair.first : 0), params);
}

/* Both plans on one fake device, whose memory lies anywhere. */
static void open_pair(Rig r[2], uint64_t places)
{
	Rig *owner = &r[0];
	pair = (struct Pair){0};
	fake_driver_start(&owner->fake, &owner->driver);
	owner->fake.places = places;
	for (int i = 0; i < 2; i++)
		fake_gpu_start(&pair.gpu[i], &owner->fake, &r[i].plan->artifact);
	pair.param_bytes = owner->fake.param_bytes;
	pair.execute = owner->fake.execute;
	owner->fake.param_bytes = pair_param_bytes;
	owner->fake.execute = pair_execute;
	pair.get_kernel = owner->driver.LibraryGetKernel;
	owner->driver.LibraryGetKernel = count_kernel;
	r[1].driver = owner->driver;
	for (pair.opening = 0; pair.opening < 2; pair.opening++)
		assert_int_equal(open_fake(&r[pair.opening]), ATLAS_OK);
}

/* Steps of both as chance has it; one is closed in the middle of its texts, the other goes on. */
static void interleave(AtlasSession *const s[2], const Texts want[2], int closed, int steps_before)
{
	Texts got[2];
	start_texts(&got[0], s[0], 3, 20);
	start_texts(&got[1], s[1], 3, 20);
	for (int i = 0; i < steps_before; i++)
		step_texts(&got[below(2)]);
	assert_true(atlas_active(s[closed]) > 0);
	atlas_session_close(s[closed]);
	assert_texts(&got[closed], &want[closed], true);
	run_texts(&got[!closed]);
	assert_texts(&got[!closed], &want[!closed], false);
	start_texts(&got[!closed], s[!closed], 3, 20);
	run_texts(&got[!closed]);
	assert_texts(&got[!closed], &want[!closed], false);
	atlas_session_close(s[!closed]);
}

static void two_plans_on_a_fake_gpu(void **state)
{
	Rig r[2];
	Texts want[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			rig_plan(&r[i], "llama", 0);
		else
			rig_checkpoint(&r[i], "tests/fixtures/qwen3_5");
		assert_int_equal(open_fake(&r[i]), ATLAS_OK);
		start_texts(&want[i], r[i].session, 3, 20);
		run_texts(&want[i]);
		atlas_session_close(r[i].session);
		fake_driver_stop(&r[i].fake);
	}
	for (int trial = 0; trial < 4; trial++) {
		start.random = (uint64_t)trial;
		open_pair(r, (uint64_t)trial + 1);
		interleave((AtlasSession *[]){r[0].session, r[1].session}, want, trial % 2, 5 + trial);
		assert_string_equal(r[0].fake.broken, "");
		assert_int_equal(r[0].fake.live, 0);
		assert_int_equal(r[0].fake.n_abandoned, 0);
		assert_int_equal(r[0].fake.context_depth, 0);
		fake_driver_stop(&r[0].fake);
	}
	for (int i = 0; i < 2; i++) {
		atlas_plan_close(r[i].plan);
		free_made(&r[i].made);
	}
}

static void two_plans_on_the_reference_device(void **state)
{
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = "cpu", .n_threads = 2};
	Rig r[2];
	Texts want[2];
	AtlasSession *session[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			rig_plan(&r[i], "llama", 0);
		else
			rig_checkpoint(&r[i], "tests/fixtures/qwen3_5");
		fake_driver_stop(&r[i].fake);
		assert_int_equal(atlas_session_open(r[i].plan, &options, &session[0], &r[i].error), ATLAS_OK);
		start_texts(&want[i], session[0], 3, 20);
		run_texts(&want[i]);
		atlas_session_close(session[0]);
	}
	for (int trial = 0; trial < 4; trial++) {
		start.random = (uint64_t)trial;
		for (int i = 0; i < 2; i++)
			assert_int_equal(atlas_session_open(r[i].plan, &options, &session[i], &r[i].error), ATLAS_OK);
		interleave(session, want, trial % 2, 5 + trial);
	}
	for (int i = 0; i < 2; i++) {
		atlas_plan_close(r[i].plan);
		free_made(&r[i].made);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_wherever_memory_is),
		cmocka_unit_test(runs_wherever_memory_is_with_a_head),
		cmocka_unit_test(pointers_astray_are_seen),
		cmocka_unit_test(two_plans_on_a_fake_gpu),
		cmocka_unit_test(two_plans_on_the_reference_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
