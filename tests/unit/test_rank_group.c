/* test_rank_group.c - processes of ranks: what they compare, hand round and take in turn, and what all know of a
 * loss. */
#include "runtime/device.h"
#include "runtime/ranks/rank_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEFT_AT_ONCE = 77 };

typedef AtlasStatus Body(RankGroup *g, int rank, int which, AtlasError *error);

/* Rank 0's status and text of two ranks that do the same. The other one must come to the same status, or leave. */
static AtlasStatus both(Body *body, int which, AtlasError *error)
{
	RankGroup *g = group_begin(2, error);
	assert_non_null(g);
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	const pid_t pid = fork();
	if (pid == 0) {
		AtlasError own = {0};
		AtlasStatus s = group_join(g, 1, NULL, &own);
		s = s == ATLAS_OK ? body(g, 1, which, &own) : s;
		if (write(ends[1], &own, sizeof own) != sizeof own)
			_exit(1);
		group_leave(g);
		_exit((int)s);
	}
	assert_true(pid > 0);
	assert_int_equal(group_join(g, 0, (pid_t[]){0, pid}, error), ATLAS_OK);
	const AtlasStatus s = body(g, 0, which, error);
	close(ends[1]);
	AtlasError other = {0};
	const bool has_other = read(ends[0], &other, sizeof other) == sizeof other;
	close(ends[0]);
	if (has_other)
		assert_true(other.status == s || s == ATLAS_RANK_LOST || other.status == ATLAS_OK);
	if (has_other && s == ATLAS_RANK_MISMATCH)
		assert_string_equal(other.text, error->text);
	group_leave(g);
	return s;
}

static AtlasStatus compare(RankGroup *g, int rank, int which, AtlasError *error)
{
	RankFacts f = {.driver = 13000, .build = "1", .card = "GPU", .gpu = {(uint8_t)rank}};
	f.plan[5] = (uint8_t)(which == 1 && rank);
	f.schedule[31] = (uint8_t)(which == 2 && rank);
	f.build[0] = which == 3 && rank ? '2' : '1';
	f.card[0] = which == 4 && rank ? 'H' : 'G';
	f.driver += which == 5 && rank;
	f.gpu[0] = which >= 6 ? 0 : f.gpu[0];
	return group_compare(g, &f, which == 7, error);
}

static void what_differs_is_refused(void **state)
{
	static const char *const texts[] = {"", "rank 1 has another plan than rank 0",
		"rank 1 has another schedule of collectives than rank 0", "rank 1 has another build of atlas than rank 0",
		"rank 1 has another kind of GPU than rank 0", "rank 1 has another CUDA driver than rank 0",
		"ranks 0 and 1 have the same GPU", ""};
	(void)state;
	for (int which = 0; which < 8; which++) {
		AtlasError error = {0};
		assert_int_equal(both(compare, which, &error), *texts[which] ? ATLAS_RANK_MISMATCH : ATLAS_OK);
		assert_string_equal(error.text, texts[which]);
	}
}

/* Each writes its number into the memory of the other one. */
static AtlasStatus swap(RankGroup *g, int rank, int which, AtlasError *error)
{
	(void)which;
	int fds[2];
	const int own = memfd_create("test", MFD_CLOEXEC), number = 100 + rank;
	int seen = 0;
	if (own < 0 || ftruncate(own, sizeof number) != 0)
		return ATLAS_IO;
	AtlasStatus s = group_swap_fds(g, own, fds, error);
	if (s == ATLAS_OK && pwrite(fds[!rank], &number, sizeof number, 0) != sizeof number)
		s = ATLAS_IO;
	s = s == ATLAS_OK ? group_barrier(g, error) : s;
	if (s == ATLAS_OK && (pread(own, &seen, sizeof seen, 0) != sizeof seen || seen != 100 + !rank || fds[rank] != own))
		s = ATLAS_INTEGRITY;
	return s;
}

static void memory_goes_round(void **state)
{
	(void)state;
	AtlasError error = {0};
	assert_int_equal(both(swap, 0, &error), ATLAS_OK);
}

enum { RECORDS = 1000 };

/* Many more records than there is room for, each with as many bytes as its number says. */
static AtlasStatus records(RankGroup *g, int rank, int which, AtlasError *error)
{
	(void)which;
	AtlasStatus s = group_open_ring(g, 512, error);
	for (int i = 0; s == ATLAS_OK && i < RECORDS; i++) {
		if (rank == 0) {
			RankRecord *to = group_next(g);
			if (!to)
				return ATLAS_RANK_LOST;
			*to = (RankRecord){.kind = i, .bytes = i % 512};
			memset(to->data, i, (size_t)(i % 512));
			group_post(g);
			continue;
		}
		const RankRecord *from;
		while (!(from = group_take(g)))
			if ((s = group_check(g, error)) != ATLAS_OK)
				return s;
		if (from->kind != i || from->bytes != i % 512)
			s = ATLAS_INTEGRITY;
		for (int k = 0; k < i % 512; k++)
			s = from->data[k] == (uint8_t)i ? s : ATLAS_INTEGRITY;
		group_done(g);
	}
	return s == ATLAS_OK ? group_barrier(g, error) : s;
}

static void records_come_in_order(void **state)
{
	(void)state;
	AtlasError error = {0};
	assert_int_equal(both(records, 0, &error), ATLAS_OK);
}

/* Rank 1 fails; 1: when all are open. */
static AtlasStatus fail_one(RankGroup *g, int rank, int which, AtlasError *error)
{
	AtlasStatus s = group_barrier(g, error);
	if (s == ATLAS_OK && which)
		group_opened(g);
	if (rank == 0 || s != ATLAS_OK)
		return s == ATLAS_OK ? group_barrier(g, error) : s;
	s = error_set(error, ATLAS_DEVICE_MEMORY, "there is no room");
	group_fail(g, error);
	return s;
}

static void a_failure_is_known_to_all(void **state)
{
	(void)state;
	AtlasError error = {0};
	assert_int_equal(both(fail_one, 0, &error), ATLAS_DEVICE_MEMORY);
	assert_string_equal(error.text, "rank 1: there is no room");
	assert_int_equal(both(fail_one, 1, &error), ATLAS_RANK_LOST);
	assert_string_equal(error.text, "rank 1 was lost: there is no room");
}

/* Rank 1 leaves without a word; the kernels of rank 0 would see it by this one. */
static AtlasStatus leave(RankGroup *g, int rank, int which, AtlasError *error)
{
	volatile uint32_t word = 0;
	(void)which;
	if (rank)
		_exit(LEFT_AT_ONCE);
	group_opened(g);
	group_set_abort(g, &word);
	for (int i = 0; i < 200 && !word; i++)
		usleep(10000);
	group_set_abort(g, NULL);
	return word ? group_check(g, error) : ATLAS_OK;
}

static void a_lost_rank_ends_waits(void **state)
{
	(void)state;
	AtlasError error = {0};
	assert_int_equal(both(leave, 0, &error), ATLAS_RANK_LOST);
	assert_string_equal(error.text, "rank 1 was lost: its process ended with exit code 77");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_differs_is_refused), cmocka_unit_test(memory_goes_round),
		cmocka_unit_test(records_come_in_order), cmocka_unit_test(a_failure_is_known_to_all),
		cmocka_unit_test(a_lost_rank_ends_waits)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
