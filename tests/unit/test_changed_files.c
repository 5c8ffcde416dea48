/* test_changed_files.c - files of a plan that somebody changes while it is open: what was checked is what is used, or
 * the change is an error. Nothing ends in a signal but a step of the reference device while its file is cut.
 */
#include "tests/unit/rig.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

/* In the place of the C library's: cuts the file at the call that is asked for. */
static int cut_at;
static _Atomic long preads;
static const char *cut_path;
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
	if (cut_path && ++preads == cut_at)
		assert_int_equal(truncate(cut_path, 4096 + 100), 0);
	return syscall(SYS_pread64, fd, to, n, at);
}

static AtlasStatus open_cpu(Rig *r)
{
	return atlas_session_open(r->plan, &(AtlasSessionOptions){.struct_size = sizeof(AtlasSessionOptions),
		.device = "cpu", .n_threads = 1}, &r->session, &r->error);
}

/* Files that are older than any clock's tick. */
static void wait_for_clock(void) { usleep(60 * 1000); }

static void plan_of(Rig *r, int verify)
{
	memset(r, 0, sizeof *r);
	make_plan(&r->made, "llama");
	write_made(&r->made, true);
	wait_for_clock();
	if (atlas_plan_open(r->made.path, &(AtlasPlanOptions){.struct_size = sizeof(AtlasPlanOptions), .verify = verify},
		&r->plan, &r->error) != ATLAS_OK)
		fail_msg("%s", r->error.text);
}

static void end(Rig *r)
{
	atlas_session_close(r->session);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

/* Where a weight of the checkpoint lies in the plan. */
static long place_of_weight(const Rig *r)
{
	const Graph *g = &r->plan->artifact.graph;
	int w = 0;
	while (!g->weights[w].file)
		w++;
	return (long)(artifact_section(&r->plan->artifact, "weights")->offset + g->weights[w].offset);
}

/* Changes a byte in place, as `cp` over a file does. */
static void overwrite(const Rig *r, long at)
{
	FILE *f = fopen(r->made.path, "r+b");
	assert_non_null(f);
	fseek(f, at, SEEK_SET);
	const int byte = fgetc(f);
	fseek(f, at, SEEK_SET);
	fputc(byte ^ 1, f);
	fclose(f);
}

static void assert_text(const Rig *r, const char *text)
{
	if (!strstr(r->error.text, text))
		fail_msg("\"%s\" does not say \"%s\"", r->error.text, text);
}

/* The file is cut before each read of an opening in turn, until one does all its reads first. */
static void cut_while_it_opens(void **state)
{
	int refused = 0;
	(void)state;
	for (cut_at = 1;; cut_at++) {
		Rig r = {0};
		make_plan(&r.made, "llama");
		write_made(&r.made, true);
		cut_path = r.made.path;
		preads = 0;
		const AtlasStatus s = atlas_plan_open(r.made.path, NULL, &r.plan, &r.error);
		const bool is_cut = preads >= cut_at;
		cut_path = NULL;
		assert_int_equal(s == ATLAS_OK, !is_cut);
		if (is_cut) {
			assert_null(r.plan);
			assert_true(s == ATLAS_INTEGRITY || s == ATLAS_NOT_A_PLAN);
			assert_true(r.error.text[0]);
			refused++;
		}
		end(&r);
		if (!is_cut)
			break;
	}
	assert_true(refused > 20); /* parts of the file, then each leaf */
}

static void cut_while_weights_go_to_a_gpu(void **state)
{
	int refused = 0;
	(void)state;
	for (cut_at = 1;; cut_at++) {
		Rig r = {0};
		make_plan(&r.made, "llama");
		write_made(&r.made, true);
		assert_int_equal(atlas_plan_open(r.made.path, NULL, &r.plan, &r.error), ATLAS_OK);
		fake_driver_start(&r.fake, &r.driver);
		fake_gpu_start(&r.gpu, &r.fake, &r.plan->artifact);
		cut_path = r.made.path;
		preads = 0;
		const AtlasStatus s = open_fake(&r);
		const bool is_cut = preads >= cut_at;
		cut_path = NULL;
		assert_int_equal(s, is_cut ? ATLAS_INTEGRITY : ATLAS_OK);
		refused += is_cut;
		rig_close(&r);
		if (!is_cut)
			break;
	}
	assert_true(refused > 10);
}

static void changed_between_plan_and_session(void **state)
{
	static const char why[] = "the plan's file was written to, or cut, after it was opened";
	Rig r;
	(void)state;
	for (int verify = ATLAS_VERIFY_FULL; verify <= ATLAS_VERIFY_OFF; verify++)
		for (int is_cut = 0; is_cut < 2; is_cut++) {
			plan_of(&r, verify);
			if (is_cut)
				assert_int_equal(truncate(r.made.path, 4096), 0);
			else
				overwrite(&r, place_of_weight(&r));
			assert_int_equal(open_cpu(&r), ATLAS_INTEGRITY);
			assert_null(r.session);
			assert_text(&r, verify == ATLAS_VERIFY_OFF ? why : "section weights: bytes 0 to ");
			end(&r);
		}
}

/* Who puts the time back is found out by the hashes; who writes the same bytes is not to blame. */
static void time_is_put_back(void **state)
{
	Rig r;
	(void)state;
	for (int is_same = 0; is_same < 2; is_same++) {
		struct stat st;
		plan_of(&r, ATLAS_VERIFY_FULL);
		assert_int_equal(stat(r.made.path, &st), 0);
		for (int i = 0; i <= is_same; i++)
			overwrite(&r, place_of_weight(&r));
		assert_int_equal(utimensat(AT_FDCWD, r.made.path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
		assert_int_equal(open_cpu(&r), is_same ? ATLAS_OK : ATLAS_INTEGRITY);
		end(&r);
	}
}

static void changed_while_a_session_runs(void **state)
{
	(void)state;
	for (int is_cut = 0; is_cut < 2; is_cut++) {
		int32_t tokens[9];
		AtlasEvent events[8];
		int slot, n;
		Rig r;
		plan_of(&r, ATLAS_VERIFY_FULL);
		assert_int_equal(open_cpu(&r), ATLAS_OK);
		fill_prompt(tokens, 9, 3);
		assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_OK);
		for (int i = 0; i < 3; i++)
			assert_int_equal(atlas_step(r.session, events, 8, &n), ATLAS_OK);
		if (is_cut)
			assert_int_equal(truncate(r.made.path, 100), 0);
		else
			overwrite(&r, place_of_weight(&r));
		assert_int_equal(atlas_step(r.session, events, 8, &n), ATLAS_INTEGRITY);
		assert_string_equal(atlas_session_error(r.session),
			"a file of the plan was written to, or cut, after it was opened");
		assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_INTEGRITY);
		end(&r);
	}
}

/* The way to deploy: another file takes the name. The open plan is the old one, for good. */
static void replaced_by_rename(void **state)
{
	int answers[2][4][64], counts[2][4] = {{0}};
	AtlasFinish finish[4];
	(void)state;
	for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
		int32_t tokens[9];
		int slot;
		Rig r;
		plan_of(&r, ATLAS_VERIFY_FULL);
		fill_prompt(tokens, 9, 3);
		if (is_replaced) {
			char other[128];
			snprintf(other, sizeof other, "%s.new", r.made.path);
			FILE *f = fopen(other, "wb");
			fputs("another plan", f);
			fclose(f);
			assert_int_equal(rename(other, r.made.path), 0);
		}
		assert_int_equal(open_cpu(&r), ATLAS_OK);
		assert_int_equal(atlas_start(r.session, tokens, 9, NULL, 12, &slot), ATLAS_OK);
		run_all(r.session, answers[is_replaced], counts[is_replaced], finish);
		end(&r);
	}
	assert_true(counts[0][0] > 0 && counts[0][0] == counts[1][0]);
	assert_memory_equal(answers[0][0], answers[1][0], sizeof(int) * (size_t)counts[0][0]);
}

/* All but the weights is a copy, and stays what was hashed. */
static void small_sections_are_copies(void **state)
{
	Rig r;
	(void)state;
	plan_of(&r, ATLAS_VERIFY_FULL);
	const Artifact *a = &r.plan->artifact;
	for (int i = 0; i < a->n_sections; i++) {
		const Section *s = &a->sections[i];
		uint8_t *before = malloc((size_t)s->bytes + 1);
		if (strcmp(s->name, "weights") == 0) {
			free(before);
			continue;
		}
		memcpy(before, a->file + s->offset, (size_t)s->bytes);
		for (int64_t at = 0; at < s->bytes; at += 509)
			overwrite(&r, (long)(s->offset + at));
		assert_memory_equal(before, a->file + s->offset, (size_t)s->bytes);
		free(before);
	}
	assert_int_equal(open_cpu(&r), ATLAS_INTEGRITY);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_while_it_opens),
		cmocka_unit_test(cut_while_weights_go_to_a_gpu),
		cmocka_unit_test(changed_between_plan_and_session),
		cmocka_unit_test(time_is_put_back),
		cmocka_unit_test(changed_while_a_session_runs),
		cmocka_unit_test(replaced_by_rename),
		cmocka_unit_test(small_sections_are_copies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
