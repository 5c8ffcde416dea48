/* test_ring.c - entries of a ring: whole ones are read as they were written, mixtures of two are not taken for one. */
#include "artifacts/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* Tokens of a sequence as they follow each other: what an entry replaces is 64 positions older. */
static RingEntry entry_of(int position)
{
	static const int token[] = {0, 1, 17, 128255, 2, -1};
	RingEntry e = {position, token[position % 6], position % 6 == 5 ? 3 : position % 7 == 6,
		-0.01f * (float)(position % 50)};
	return e;
}

static void entries_come_back(void **state)
{
	(void)state;
	for (int position = 1; position < 4096; position++) {
		int32_t words[PLAN_RING_WORDS];
		RingEntry e = entry_of(position), back;
		ring_write(words, e);
		assert_int_equal(words[0], position);
		assert_int_equal(words[2] & 0xff, e.done);
		assert_true(ring_read(words, &back));
		assert_memory_equal(&back, &e, sizeof e);
	}
}

/* Every way in which some words are there and others not yet, over an older entry and over an empty place. */
static void parts_of_entries_are_none(void **state)
{
	(void)state;
	for (int position = 65; position < 4096; position++)
		for (int was_empty = 0; was_empty < 2; was_empty++)
			for (int there = 1; there < 15; there++) {
				int32_t before[PLAN_RING_WORDS] = {0}, after[PLAN_RING_WORDS], mixed[PLAN_RING_WORDS];
				bool differs = false;
				RingEntry e;
				if (!was_empty)
					ring_write(before, entry_of(position - PLAN_RING_ENTRIES));
				ring_write(after, entry_of(position));
				for (int w = 0; w < PLAN_RING_WORDS; w++) {
					mixed[w] = there >> w & 1 ? after[w] : before[w];
					differs |= mixed[w] != after[w];
				}
				bool is_old = memcmp(mixed, before, sizeof mixed) == 0;
				assert_true(ring_read(mixed, &e) == (!differs || is_old));
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_come_back),
		cmocka_unit_test(parts_of_entries_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
