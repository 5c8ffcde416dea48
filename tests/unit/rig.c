#include "tests/unit/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

AtlasStatus open_fake(Rig *r)
{
	DeviceConfig config = {.artifact = &r->plan->artifact, .weights = r->plan->weights, .driver = &r->driver,
		.steps_ahead = r->steps_ahead, .watch = r->watch,
		.files = &r->plan->files, .compares_weights = plan_compares(r->plan), .seed = r->plan->seed};
	random_tables(&r->random);
	if (r->plan->makes_weights)
		config.random = &r->random;
	Device *device;
	AtlasStatus s = cuda_open(&config, &device, &r->error);
	return s == ATLAS_OK ? session_open_on(r->plan, device, &r->session, &r->error) : s;
}

void rig_made(Rig *r)
{
	write_made(&r->made, true);
	if (atlas_plan_open(r->made.path, NULL, &r->plan, &r->error) != ATLAS_OK)
		fail_msg("%s", r->error.text);
	fake_driver_start(&r->fake, &r->driver);
	fake_gpu_start(&r->gpu, &r->fake, &r->plan->artifact);
}

void rig_plan(Rig *r, const char *model_type, int pool_tokens)
{
	memset(r, 0, sizeof *r);
	make_plan_of(&r->made, model_type, pool_tokens, -1);
	rig_made(r);
}

static void read_folder(Rig *r, const char *folder)
{
	static void (*const reading[])(Compile *) = {read_config, read_options, read_weights, read_text};
	memset(r, 0, sizeof *r);
	Compile *c = &r->made.c;
	c->diags.arena = &c->arena;
	c->cmd = (CommandLine){.model_dir = folder, .targets = {"sm_90a"}, .n_targets = 1, .jobs = 1};
	for (size_t i = 0; i < sizeof reading / sizeof reading[0]; i++) {
		reading[i](c);
		arena_release(&c->scratch);
		assert_int_equal(c->diags.n_errors, 0);
	}
}

void rig_checkpoint(Rig *r, const char *folder) { rig_checkpoint_as(r, folder, NULL); }

void rig_checkpoint_as(Rig *r, const char *folder, void (*change)(Options *))
{
	read_folder(r, folder);
	if (change)
		change(&r->made.c.model.options);
	make_plan_of_model(&r->made);
	rig_made(r);
}

void rig_checkpoint_of(Rig *r, const char *folder, int pool_tokens)
{
	read_folder(r, folder);
	if (pool_tokens)
		r->made.c.model.options.pool_tokens = pool_tokens, r->made.c.model.options.page = 16;
	make_plan_of_model(&r->made);
	rig_made(r);
}

void rig_open(Rig *r, const char *model_type, int pool_tokens)
{
	rig_plan(r, model_type, pool_tokens);
	AtlasStatus s = open_fake(r);
	assert_string_equal(r->error.text, "");
	assert_int_equal(s, ATLAS_OK);
}

void rig_close(Rig *r)
{
	atlas_session_close(r->session);
	assert_string_equal(r->fake.broken, "");
	assert_int_equal(r->fake.live, 0);
	assert_int_equal(r->fake.n_abandoned, 0);
	assert_int_equal(r->fake.context_depth, 0);
	fake_driver_stop(&r->fake);
	atlas_plan_close(r->plan);
	free_made(&r->made);
}

void collect(Collected *c, const float *values, int n)
{
	if (c->n + n > c->cap)
		c->at = realloc(c->at, sizeof *c->at * (size_t)(c->cap = 2 * (c->n + n)));
	memcpy(c->at + c->n, values, sizeof *values * (size_t)n);
	c->n += n;
}

int take_logits(void *ctx, int pos, const float *logits)
{
	Collected *c = ctx;
	assert_int_equal(pos, c->n / 40);
	collect(c, logits, 40);
	return 0;
}

void fill_prompt(int32_t *tokens, int n, int salt)
{
	for (int i = 0; i < n; i++)
		tokens[i] = (i * 7 + salt * 11 + i * i) % 37 + 3; /* never the stop token, 2 */
}

void run_all(AtlasSession *s, int answers[][64], int counts[], AtlasFinish finish[])
{
	AtlasEvent events[4];
	int n;
	while (atlas_active(s) > 0) {
		assert_int_equal(atlas_step(s, events, 4, &n), ATLAS_OK);
		for (int i = 0; i < n; i++) {
			answers[events[i].slot][counts[events[i].slot]++] = events[i].token;
			finish[events[i].slot] = events[i].finish;
			assert_true(events[i].logprob <= 0);
		}
	}
	assert_int_equal(atlas_step(s, events, 4, &n), ATLAS_OK);
	assert_int_equal(n, 0);
}

/* Takes the lines that begin with a word out of a text. */
void drop_lines(char *text, const char *word)
{
	for (char *p = text; *p;) {
		char *next = strchr(p, '\n') + 1;
		if (strncmp(p, word, strlen(word)) == 0)
			memmove(p, next, strlen(next) + 1);
		else
			p = next;
	}
}

/* Names of the logged calls, equal neighbours counted. */
void summarise(const char *log, char *out, size_t n)
{
	char before[64] = "", name[64];
	int count = 0;
	size_t at = 0;
	*out = 0;
	for (const char *p = log;; p = strchr(p, '\n') + 1) {
		size_t len = strcspn(p, " \n");
		snprintf(name, sizeof name, "%.*s", (int)len, p);
		if (strcmp(name, before) != 0) {
			if (count > 1)
				at += (size_t)snprintf(out + at, n - at, " x%d", count);
			at += (size_t)snprintf(out + at, n - at, "%s%s", count ? "\n" : "", name);
			count = 0;
		}
		count++;
		snprintf(before, sizeof before, "%s", name);
		if (!*p)
			return;
	}
}

void log_calls(Rig *r, char **log, size_t *n) { r->fake.log = open_memstream(log, n); }

void assert_calls(Rig *r, char **log, const char *want)
{
	char seen[4096];
	fclose(r->fake.log);
	r->fake.log = NULL;
	summarise(*log, seen, sizeof seen);
	assert_string_equal(seen, want);
	free(*log);
}
