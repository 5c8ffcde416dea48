/* test_cuda_weights.c - weights reach the device whole, whatever their sizes and however many threads copy. */
#include "runtime/cuda_weights.h"
#include "artifacts/tree.h"
#include "tests/unit/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STAGE = 3 << 20, N = 6 };

typedef struct Load { /* weights at odd places of one piece of memory, as a checkpoint has them */
	FakeDriver fake;
	Driver cu;
	Weight weights[N];
	const uint8_t *bytes[N];
	uint8_t *file;
	int64_t total;
	WeightRoad road;
	void *stage[2];
} Load;

static void start(Load *l, int threads)
{
	/* none, a little, more than threads care for, exactly a buffer, more than several, no whole pages */
	static const int64_t sizes[N] = {2, 4096, 1 << 20, STAGE, 4 * STAGE + 6, (1 << 20) + 2};
	*l = (Load){.road = {.stage_bytes = STAGE, .threads = threads}};
	for (int i = 0; i < N; i++) {
		l->weights[i] = (Weight){.name = "w", .bytes = sizes[i], .offset = l->total};
		l->total += (sizes[i] + 255) / 256 * 256;
	}
	l->file = malloc((size_t)l->total);
	for (int64_t i = 0; i < l->total; i++)
		l->file[i] = (uint8_t)(i * 2654435761u >> 16);
	for (int64_t i = 0, at = 1; i < N; at += l->weights[i++].bytes)
		l->bytes[i] = l->file + at;
	fake_driver_start(&l->fake, &l->cu);
	l->road.cu = &l->cu;
	assert_int_equal(l->cu.StreamCreate(&l->road.stream, 1), 0);
	assert_int_equal(l->cu.MemAlloc(&l->road.arena, (size_t)l->total), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(l->cu.MemHostAlloc(&l->stage[i], STAGE, 0), 0);
		assert_int_equal(l->cu.EventCreate(&l->road.staged[i], 2), 0);
		l->road.stage[i] = l->stage[i];
	}
}

static void stop(Load *l)
{
	for (int i = 0; i < 2; i++) {
		l->cu.MemFreeHost(l->stage[i]);
		l->cu.EventDestroy(l->road.staged[i]);
	}
	l->cu.MemFree(l->road.arena);
	l->cu.StreamDestroy(l->road.stream);
	assert_string_equal(l->fake.broken, "");
	assert_int_equal(l->fake.live, 0);
	fake_driver_stop(&l->fake);
	free(l->file);
}

static void every_byte_arrives(void **state)
{
	static const int threads[] = {1, 2, 3, 8};
	(void)state;
	for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
		Load l;
		const char *call = "", *about = "";
		start(&l, threads[t]);
		Graph g = {.weights = l.weights, .n_weights = N};
		assert_int_equal(cuda_load_weights(&l.road, &g, l.bytes, &call, &about), 0);
		for (int i = 0; i < N; i++)
			assert_memory_equal((uint8_t *)(uintptr_t)l.road.arena + l.weights[i].offset, l.bytes[i],
				(size_t)l.weights[i].bytes);
		stop(&l);
	}
}

/* Each byte of a piece is looked at, whoever copies it; what differs is not sent. */
static void differing_bytes_are_not_sent(void **state)
{
	static const int threads[] = {1, 3, 8};
	int64_t first_leaf[N + 1] = {0};
	uint8_t leaves[32][HASH_BYTES];
	(void)state;
	for (int i = 0; i < 3 * N; i++) {
		Load l;
		const char *call = "", *about = "";
		start(&l, threads[i / N]);
		Artifact a = {.graph = {.weights = l.weights, .n_weights = N}, .leaves = leaves[0], .first_leaf = first_leaf};
		for (int w = 0; w < N; w++) {
			l.weights[w].name = w == i % N ? "the one" : "w";
			for (int64_t at = 0, leaf = first_leaf[w]; at < l.weights[w].bytes; at += TREE_LEAF_BYTES, leaf++) {
				int64_t left = l.weights[w].bytes - at;
				tree_leaf(l.bytes[w] + at, (size_t)(left < TREE_LEAF_BYTES ? left : TREE_LEAF_BYTES), leaves[leaf]);
				first_leaf[w + 1] = leaf + 1;
			}
		}
		l.road.compare = &a;
		assert_int_equal(cuda_load_weights(&l.road, &a.graph, l.bytes, &call, &about), 0);
		assert_non_null(call);
		uint8_t *end = (uint8_t *)(uintptr_t)l.bytes[i % N] + l.weights[i % N].bytes - 1;
		*end ^= 1;
		assert_int_equal(cuda_load_weights(&l.road, &a.graph, l.bytes, &call, &about), 0);
		assert_null(call);
		assert_string_equal(about, "the one");
		l.cu.StreamSynchronize(l.road.stream);
		assert_memory_not_equal((uint8_t *)(uintptr_t)l.road.arena + l.weights[i % N].offset, l.bytes[i % N],
			(size_t)l.weights[i % N].bytes);
		l.road.unhashed = l.bytes[(i + 1) % N]; /* excuses that weight alone */
		assert_int_equal(cuda_load_weights(&l.road, &a.graph, l.bytes, &call, &about), 0);
		assert_null(call);
		l.road.unhashed = l.bytes[i % N];
		assert_int_equal(cuda_load_weights(&l.road, &a.graph, l.bytes, &call, &about), 0);
		assert_non_null(call);
		stop(&l);
	}
}

static void failures_name_the_call(void **state)
{
	int n_failed = 0;
	(void)state;
	for (int at = 1;; at++) {
		Load l;
		const char *call = "", *about = "";
		start(&l, 2);
		Graph g = {.weights = l.weights, .n_weights = N};
		l.fake.fail_at = l.fake.calls + at;
		l.fake.fail_with = 700;
		CuResult r = cuda_load_weights(&l.road, &g, l.bytes, &call, &about);
		const char *failed = l.fake.failed_call;
		l.fake.fail_at = 0;
		if (failed && r != CU_SUCCESS) {
			size_t n = strcspn(failed, " ");
			assert_int_equal(r, 700);
			assert_true(strncmp(call, "cu", 2) == 0 && strlen(call) == n + 2 && strncmp(call + 2, failed, n) == 0);
			n_failed++;
		}
		l.cu.StreamSynchronize(l.road.stream);
		stop(&l);
		if (!failed || r == CU_SUCCESS)
			break;
	}
	assert_true(n_failed > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_arrives),
		cmocka_unit_test(differing_bytes_are_not_sent),
		cmocka_unit_test(failures_name_the_call),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
