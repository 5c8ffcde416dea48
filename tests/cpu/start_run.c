/* start_run.c - what a process's plans answer, wherever their memory lies.
 *
 *   start_run PLAN[,PLAN] cpu|cuda SEED
 *
 * For tests/cpu/test_starts.py and tests/gpu/run.sh. On a GPU the process first takes and gives back memory by chance,
 * so that SEED decides where the plans' own comes to lie. Then each plan answers the same prompts, some at a time; of
 * two plans steps alternate by chance, and one is closed while the other goes on. stdout: for each plan its texts,
 * tokens and bits of log probabilities, which must not depend on SEED, nor on the other plan. stderr: where the plans'
 * arenas lie.
 */
#include "runtime/cuda.h"
#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS = 2, TEXTS = 8, MAX_NEW = 24, MAX_PROMPT = 40, MAX_SLOTS = 64, MAX_EVENTS = MAX_SLOTS * PLAN_MAX_VERIFY,
	OTHERS = 48 };

typedef struct Text { int n; int32_t tokens[MAX_NEW]; float logprobs[MAX_NEW]; AtlasFinish finish; } Text;

typedef struct Run { /* of one plan */
	AtlasPlan *plan;
	AtlasPlanInfo info;
	AtlasSession *session; /* NULL = done and closed */
	Text texts[TEXTS];
	int in_slot[MAX_SLOTS], next, running; /* text of a slot; started; under way */
} Run;

static uint64_t state;

static void need(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "start_run: %s\n", what);
		exit(2);
	}
}

static int below(int n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int)((state >> 33) % (uint64_t)n);
}

/* Memory of all sizes up to 64 MiB, half of it given back: what is taken next comes to lie elsewhere. */
static void take_memory(void)
{
	Driver cu;
	CuDevice device;
	CuContext context;
	CuPtr at[OTHERS];
	AtlasError error = {0};
	need(driver_open(&cu, &error) == ATLAS_OK, error.text);
	need(!cu.Init(0) && !cu.DeviceGet(&device, 0) && !cu.DevicePrimaryCtxRetain(&context, device) &&
		!cu.CtxPushCurrent(context), "no GPU");
	const int n = 1 + below(OTHERS);
	for (int i = 0; i < n; i++)
		need(!cu.MemAlloc(&at[i], ((size_t)1 << (8 + below(18))) + (size_t)below(1 << 20)), "no memory");
	for (int i = 0; i < n; i++)
		if (below(2))
			need(!cu.MemFree(at[i]), "memory cannot be given back");
	need(!cu.CtxPopCurrent(&context), "the context");
}

static void open_plan(Run *r, const char *path, const char *device)
{
	AtlasError error = {0};
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device = device, .n_threads = 2};
	r->info.struct_size = sizeof r->info;
	need(atlas_plan_open(path, NULL, &r->plan, &error) == ATLAS_OK, error.text);
	need(atlas_session_open(r->plan, &options, &r->session, &error) == ATLAS_OK, error.text);
	atlas_plan_info(r->plan, &r->info);
	need(r->info.slots <= MAX_SLOTS && r->info.max_context >= MAX_PROMPT + MAX_NEW, "a plan too small or large");
	CudaView view;
	if (cuda_view(session_device(r->session), &view))
		for (int i = 0; i < ARENA_COUNT; i++)
			fprintf(stderr, "%s at %llx\n", arena_name((ArenaKind)i), view.arena[i]);
}

/* The i-th prompt of a plan is the same in every process. */
static void start_text(Run *r, int i)
{
	int32_t prompt[MAX_PROMPT];
	AtlasSampling a = {.struct_size = sizeof a, .top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)i,
		.temperature = i % 2 ? 0.9f : 0};
	const int n = 1 + (i * 17) % MAX_PROMPT;
	int slot;
	for (int k = 0; k < n; k++)
		prompt[k] = 3 + (i * 7919 + k * 104729) % (r->info.vocab - 3);
	need(atlas_start(r->session, prompt, n, &a, MAX_NEW - i, &slot) == ATLAS_OK, atlas_session_error(r->session));
	r->in_slot[slot] = i;
	r->running++;
}

static void step(Run *r)
{
	AtlasEvent events[MAX_EVENTS];
	int n;
	while (r->next < TEXTS && r->running < r->info.slots)
		start_text(r, r->next++);
	need(atlas_step(r->session, events, MAX_EVENTS, &n) == ATLAS_OK, atlas_session_error(r->session));
	for (int i = 0; i < n; i++) {
		Text *t = &r->texts[r->in_slot[events[i].slot]];
		need(t->n < MAX_NEW, "more tokens than were asked for");
		t->tokens[t->n] = events[i].token;
		t->logprobs[t->n++] = events[i].logprob;
		t->finish = events[i].finish;
		r->running -= t->finish != ATLAS_RUNNING;
	}
	if (r->next == TEXTS && !r->running) {
		atlas_session_close(r->session);
		atlas_plan_close(r->plan);
		r->session = NULL;
	}
}

static void print(const Run *r)
{
	for (int i = 0; i < TEXTS; i++) {
		const Text *t = &r->texts[i];
		printf("%d", (int)t->finish);
		for (int k = 0; k < t->n; k++) {
			uint32_t bits;
			memcpy(&bits, &t->logprobs[k], sizeof bits);
			printf(" %d:%08x", t->tokens[k], bits);
		}
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	static Run runs[PLANS];
	need(argc == 4, "usage: start_run PLAN[,PLAN] cpu|cuda SEED");
	state = strtoull(argv[3], NULL, 10) + 1;
	char *second = strchr(argv[1], ',');
	const int n = second ? 2 : 1;
	if (second)
		*second++ = 0;
	if (strcmp(argv[2], "cuda") == 0)
		take_memory();
	for (int i = 0; i < n; i++)
		open_plan(&runs[i], i ? second : argv[1], argv[2]);
	while (runs[0].session || (n > 1 && runs[1].session)) {
		Run *r = &runs[below(n)];
		if (r->session)
			step(r);
	}
	for (int i = 0; i < n; i++)
		print(&runs[i]);
	return 0;
}
