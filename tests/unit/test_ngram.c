/* test_ngram.c - drafts by n-grams, beside a search through the whole text.
 *
 * The search knows nothing of tables: it compares the last tokens with those before each earlier place, from the end
 * on, the longest n-gram first.
 */
#include "runtime/ngram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { MOST = 400, ALL = 1 << 30 };

static uint64_t random_state = 88172645463325252u;

static int below(int n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int)((random_state >> 11) % (uint64_t)n);
}

/* Tokens before the place where the text's end occurred before, most lately; 0: nowhere. */
static int search(const int32_t *text, int n, int min, int max)
{
	for (int length = max; length >= min; length--)
		for (int end = n - 1; end >= length; end--)
			if (n >= length && memcmp(text + end - length, text + n - length, sizeof *text * (size_t)length) == 0)
				return end;
	return 0;
}

static void expect(const int32_t *text, int n, const Ngrams *g, bool has_drafts, const int32_t *drafts, int n_drafts)
{
	int32_t whole[MOST + PLAN_MAX_VERIFY];
	const int at = search(text, n, g->min, g->max);
	assert_int_equal(has_drafts, at > 0);
	memcpy(whole, text, sizeof *text * (size_t)n);
	for (int i = 0; i < n_drafts && at; i++) {
		whole[n + i] = whole[at + i]; /* which may be a draft */
		assert_int_equal(drafts[i], whole[n + i]);
	}
}

/* Texts of few and of many different tokens, with copies of their own parts, in a slot that had others before. */
static void drafts_are_what_followed(void **state)
{
	(void)state;
	long with = 0, without = 0;
	for (int lengths = 0; lengths < 8; lengths++) {
		const int min = 1 + lengths % 4, max = min + lengths / 4 * below(4);
		Ngrams g;
		assert_true(ngrams_open(&g, min, max, MOST));
		for (int t = 0; t < 40; t++) {
			int32_t text[MOST], drafts[PLAN_MAX_VERIFY];
			const int kinds = 2 + below(below(2) ? 5 : 3000), n = 1 + below(MOST - 1), most = n + below(MOST - n + 1);
			for (int i = 0, from = 0; i < most; i++, from++) {
				from = i && below(8) == 0 ? below(i) : from;
				text[i] = i && below(3) && from < i ? text[from] : below(kinds);
			}
			ngrams_start(&g, text, n);
			for (int i = n;; i++) {
				const int n_drafts = below(PLAN_MAX_VERIFY);
				const bool has = ngrams_draft(&g, drafts, n_drafts, &(int){ALL});
				expect(text, i, &g, has, drafts, n_drafts);
				*(has ? &with : &without) += 1;
				if (i == most)
					break;
				ngrams_push(&g, text[i]);
			}
		}
		ngrams_close(&g);
	}
	assert_true(with > 5000 && without > 5000);
}

/* Several tokens may come at once, and a long prompt is looked at piece by piece: until all is, there are no drafts. */
static void a_long_prompt_is_entered_in_pieces(void **state)
{
	enum { LONG = 1 << 17 };
	(void)state;
	int32_t *text = malloc(sizeof *text * LONG), drafts[3];
	Ngrams g;
	for (int i = 0; i < LONG; i++)
		text[i] = below(50000);
	memcpy(text + LONG - 10, text + 7, 10 * sizeof *text);
	assert_true(text && ngrams_open(&g, 2, 4, LONG + 10));
	ngrams_start(&g, text, LONG);
	int steps = 1;
	while (!ngrams_draft(&g, drafts, 3, &(int){2048}))
		assert_true(steps++ <= LONG / 2048);
	assert_int_equal(steps, LONG / 2048 + 1); /* in the first one tables are cleared */
	assert_memory_equal(drafts, text + 17, sizeof drafts);
	ngrams_push(&g, text[17]);
	ngrams_push(&g, text[18]);
	assert_true(ngrams_draft(&g, drafts, 3, &(int){2}));
	assert_memory_equal(drafts, text + 19, sizeof drafts);
	ngrams_close(&g);
	free(text);
}

/* Places of the tables that are not as `mark` left them. */
static size_t changed(const Ngrams *g, size_t places, int32_t mark)
{
	size_t n = 0;
	for (size_t i = 0; i < places; i++)
		n += g->ends[i] != mark;
	return n;
}

/* A short text in a slot for long ones: memory is touched, and work done, for what it has, not for what it may have. */
static void a_text_costs_what_it_has(void **state)
{
	enum { ROOM = (1 << 18) + 1, LENGTHS = 3, PLACES = LENGTHS << 20, MARK = 3, MOST_EACH = 5 /* places a token */ };
	(void)state;
	Ngrams g;
	int32_t text[400], drafts[3];
	assert_true(ngrams_open(&g, 2, 4, ROOM));
	for (int i = 0; i < PLACES; i++)
		g.ends[i] = MARK; /* another text's */
	for (int i = 0; i < 400; i++)
		text[i] = i % 300;
	ngrams_start(&g, text, 100);
	assert_int_equal(changed(&g, PLACES, MARK), 0); /* a request starts without that */
	for (int n = 100; n < ROOM; n++) {
		if ((n & (n - 1)) == 0)
			assert_true(changed(&g, PLACES, MARK) < (size_t)(LENGTHS * MOST_EACH * n));
		const bool has = ngrams_draft(&g, drafts, 3, &(int){1 << 14});
		if (n > 310 && g.indexed == n)
			assert_true(has && drafts[0] == n % 300 && drafts[2] == (n + 2) % 300);
		ngrams_push(&g, n % 300);
	}
	for (int tries = 0; !ngrams_draft(&g, drafts, 3, &(int){1 << 14}); tries++)
		assert_true(tries < 20);
	assert_int_equal(g.n, ROOM);
	assert_int_equal(changed(&g, PLACES, MARK), PLACES); /* all of it is this text's now */
	ngrams_close(&g);
}

/* Pieces are small also where a text outgrows its tables: these are cleared and filled again a piece at a time. */
static void larger_tables_come_in_pieces(void **state)
{
	enum { LONG = 1 << 15, WORK = 16, AT_ONCE = 1024 /* places that are cleared as a token is looked at */ };
	(void)state;
	int32_t drafts[3], first = 7;
	int grown = 0, pieces = 0;
	Ngrams g;
	assert_true(ngrams_open(&g, 2, 4, 2 * LONG));
	ngrams_start(&g, &first, 1);
	for (int i = 1; i < LONG; i++) {
		ngrams_push(&g, (i + 7) % 5000);
		for (bool is_whole = false; !is_whole; pieces++) {
			const Ngrams before = g;
			const bool has = ngrams_draft(&g, drafts, 3, &(int){WORK}), is_new = g.bits > before.bits;
			is_whole = g.indexed == g.n;
			assert_int_equal(has, is_whole && i > 5000);
			assert_true(g.indexed <= (is_new ? 0 : before.indexed) + WORK);
			assert_true(g.uncleared + WORK * AT_ONCE >= (is_new ? (size_t)3 << g.bits : before.uncleared));
			grown += is_new;
		}
		if (i > 5002)
			assert_int_equal(drafts[1], (i + 9) % 5000);
	}
	assert_true(grown > 8 && pieces > LONG + LONG / WORK);
	ngrams_close(&g);
}

/* What a step looks at is so much for all its texts together; a short one has its drafts at once beside long ones, and
 * what it leaves is theirs. */
static void texts_of_a_step_share_its_work(void **state)
{
	enum { TEXTS = 6, LONG = 20000, WORK = 120, AT_ONCE = 1024 };
	static const int lengths[TEXTS] = {LONG, 40, 3, LONG / 4, 10, 0 /* of no sequence */};
	static const int slots[] = {0, 3, -1, 1, 2, 4};
	int32_t *text = malloc(sizeof *text * LONG), drafts[TEXTS * 4];
	Ngrams all[TEXTS];
	long work = 0;
	int steps = 0;
	(void)state;
	for (int i = 0; i < TEXTS; i++) {
		assert_true(ngrams_open(&all[i], 2, 3, LONG));
		for (int k = 0; k < lengths[i]; k++)
			text[k] = k < lengths[i] - 2 ? k + i : 1 + k - (lengths[i] - 2) + i; /* ends as it begins, one later */
		ngrams_start(&all[i], text, lengths[i]);
	}
	for (bool is_done = false; !is_done; steps++) {
		Ngrams before[TEXTS];
		int done = 0;
		memcpy(before, all, sizeof all);
		ngrams_draft_all(all, slots, 6, drafts, 4, 3, WORK);
		is_done = true;
		for (int i = 0; i < TEXTS; i++) {
			done += all[i].indexed - before[i].indexed;
			done += (int)((before[i].uncleared - all[i].uncleared + AT_ONCE - 1) / AT_ONCE);
			is_done &= i == 5 || all[i].indexed == lengths[i];
			assert_int_equal(all[i].has_drafts, i != 5 && i != 2 && all[i].indexed == lengths[i]);
			for (int k = 0; k < 3 && all[i].has_drafts; k++)
				assert_int_equal(drafts[i * 4 + k], 3 + k + i);
		}
		assert_true(done <= WORK && (done == WORK || is_done));
		assert_true(steps < 2 || (all[1].has_drafts && all[4].has_drafts));
		work += done;
	}
	assert_int_equal(steps, (work + WORK - 1) / WORK);
	assert_int_equal(all[5].indexed, 0);
	for (int i = 0; i < TEXTS; i++)
		ngrams_close(&all[i]);
	free(text);
}

/* One token again and again, and texts that repeat a phrase: as quick as others, however often each n-gram is there. */
static void repeated_texts_take_no_longer(void **state)
{
	enum { LONG = 1 << 17 };
	(void)state;
	int32_t *text = calloc(LONG, sizeof *text), drafts[3];
	Ngrams g;
	assert_true(text && ngrams_open(&g, 1, PLAN_MAX_NGRAM, LONG));
	for (int phrase = 1; phrase < 100; phrase = phrase * 9 + 1) {
		for (int i = 0; i < LONG; i++)
			text[i] = i % phrase;
		const clock_t began = clock();
		ngrams_start(&g, text, LONG);
		assert_true(ngrams_draft(&g, drafts, 3, &(int){ALL}));
		assert_true(clock() - began < 2 * CLOCKS_PER_SEC); /* a search through all of it takes minutes */
		for (int i = 0; i < 3; i++)
			assert_int_equal(drafts[i], (LONG + i) % phrase);
	}
	ngrams_close(&g);
	free(text);
}

/* What drafts are worth comes to what they have brought, and grows while they are left alone. */
static void drafts_are_worth_what_they_brought(void **state)
{
	(void)state;
	int32_t text[] = {1, 2, 1, 2, 1, 2};
	Ngrams g;
	assert_true(ngrams_open(&g, 2, 2, 16));
	ngrams_start(&g, text, 6);
	assert_int_equal(g.worth, NGRAM_ONE);
	for (int i = 0; i < 100; i++)
		ngrams_note(&g, i % 2 ? 3 : 1);
	assert_true(g.worth > NGRAM_ONE * 7 / 4 && g.worth < NGRAM_ONE * 9 / 4);
	for (int i = 0; i < 100; i++)
		ngrams_note(&g, 0);
	assert_true(g.worth < NGRAM_ONE / 16);
	int passed = 0;
	for (; g.worth < NGRAM_ONE / 4; passed++)
		ngrams_pass(&g);
	assert_true(passed > 10 && passed < 40);
	ngrams_start(&g, text, 6); /* another text's */
	assert_int_equal(g.worth, NGRAM_ONE);
	ngrams_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_are_what_followed),
		cmocka_unit_test(a_long_prompt_is_entered_in_pieces), cmocka_unit_test(a_text_costs_what_it_has),
		cmocka_unit_test(larger_tables_come_in_pieces), cmocka_unit_test(texts_of_a_step_share_its_work),
		cmocka_unit_test(repeated_texts_take_no_longer),
		cmocka_unit_test(drafts_are_worth_what_they_brought)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
