/* Grammars of requests (runtime/serve/structure.c): workers that ask for one at once compile it once. The compiler is
 * in place of runtime/grammar, counts, and takes its time. */
#include "runtime/plan_handle.h"
#include "runtime/serve/request.h"
#include "runtime/serve/structure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { WORKERS = 8 };

struct Grammar { atomic_int owners; };
static atomic_int n_compiled, n_at_once, most_at_once, n_live;
static bool refuses;

Grammar *grammar_compile(const GrammarSource *source, GrammarError *error)
{
	(void)source;
	const int now = ++n_at_once;
	for (int most = most_at_once; now > most && !atomic_compare_exchange_weak(&most_at_once, &most, now);)
		;
	nanosleep(&(struct timespec){0, 20000000}, NULL);
	n_at_once--;
	n_compiled++;
	if (refuses) {
		*error = (GrammarError){.text = "it is refused"};
		return NULL;
	}
	Grammar *g = calloc(1, sizeof *g);
	g->owners = 1;
	n_live++;
	return g;
}

void grammar_prepare(const Grammar *g, const GrammarVocab *v) { (void)g, (void)v; }

Grammar *grammar_keep(Grammar *g)
{
	g->owners++;
	return g;
}

void grammar_free(Grammar *g)
{
	if (!g || --g->owners > 0)
		return;
	free(g);
	n_live--;
}

GrammarVocab *grammar_vocab_open(const Tok *tok, int32_t n_ids)
{
	static int vocab;
	(void)tok, (void)n_ids;
	return (GrammarVocab *)(void *)&vocab;
}

void grammar_vocab_close(GrammarVocab *vocab) { (void)vocab; }

static AtlasPlan plan = {.has_tokenizer = true};
static AtlasPlanInfo info = {.vocab = 100};
static ApiLimits limits = {.plan = &plan, .info = &info};

typedef struct Worker { pthread_t thread; json_t *schema; ApiRequest request; ApiError error; bool good; } Worker;

static void *work(void *arg)
{
	Worker *w = arg;
	json_t *format = json_pack("{s:s, s:O}", "type", "json_schema", "schema", w->schema);
	w->good = request_format(&limits, format, "text.format", &w->request, &w->error) &&
		structure_find(&limits, &w->request, &w->error) &&
		(!w->request.wanted || structure_compile(&limits, &w->request, &w->error));
	json_decref(format);
	return NULL;
}

/* All at once, worker i with schema i % n. */
static void ask(Worker *workers, int n)
{
	n_compiled = most_at_once = 0;
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (Worker){.schema = json_pack("{s:i}", "const", i % n)};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		json_decref(workers[i].schema);
	}
}

static void let_go(Worker *workers)
{
	for (int i = 0; i < WORKERS; i++)
		api_request_free(&workers[i].request);
}

static void a_grammar_is_compiled_once(void **state)
{
	Worker workers[WORKERS];
	(void)state;
	limits.structures = structures_open(&plan);
	for (int round = 0; round < 2; round++) {
		ask(workers, 1);
		assert_int_equal(n_compiled, round == 0);
		for (int i = 0; i < WORKERS; i++) {
			assert_true(workers[i].good);
			assert_ptr_equal(workers[i].request.grammar, workers[0].request.grammar);
		}
		let_go(workers);
	}
	assert_int_equal(n_live, 1);
	structures_close(limits.structures);
	assert_int_equal(n_live, 0);
}

/* Who waits for one schema does not hold up others. */
static void others_are_compiled_meanwhile(void **state)
{
	Worker workers[WORKERS];
	(void)state;
	limits.structures = structures_open(&plan);
	ask(workers, 4);
	assert_int_equal(n_compiled, 4);
	assert_in_range(most_at_once, 2, 4);
	for (int i = 0; i < WORKERS; i++)
		assert_ptr_equal(workers[i].request.grammar, workers[i % 4].request.grammar);
	assert_ptr_not_equal(workers[0].request.grammar, workers[1].request.grammar);
	let_go(workers);
	structures_close(limits.structures);
	assert_int_equal(n_live, 0);
}

/* Each that waited gets the reason, one after the other. */
static void a_refusal_reaches_all(void **state)
{
	Worker workers[WORKERS];
	(void)state;
	limits.structures = structures_open(&plan);
	refuses = true;
	ask(workers, 1);
	refuses = false;
	assert_int_equal(n_compiled, WORKERS);
	assert_int_equal(most_at_once, 1);
	for (int i = 0; i < WORKERS; i++) {
		assert_false(workers[i].good);
		assert_int_equal(workers[i].error.status, 400);
		assert_string_equal(workers[i].error.message, "text.format.schema: it is refused");
	}
	ask(workers, 1);
	assert_int_equal(n_compiled, 1);
	let_go(workers);
	structures_close(limits.structures);
	assert_int_equal(n_live, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_grammar_is_compiled_once),
		cmocka_unit_test(others_are_compiled_meanwhile), cmocka_unit_test(a_refusal_reaches_all)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
