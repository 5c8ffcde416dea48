/* api_example.c - a whole program on atlas.h alone: PLAN PROMPT [TOKENS [DEVICE]]
 *
 *	cc api_example.c $(pkg-config --cflags --libs atlas)
 */
#include <atlas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *why)
{
	fprintf(stderr, "api_example: %s\n", why);
	return 1;
}

/* Prints the answer as its tokens come. A step makes up to step_tokens of each sequence. */
static AtlasStatus answer(AtlasSession *session, AtlasText *text, AtlasEvent *events, int most)
{
	const char *bytes;
	size_t n_bytes;
	int n, i;
	AtlasStatus s = ATLAS_OK;
	while (s == ATLAS_OK && atlas_active(session)) {
		s = atlas_step(session, events, most, &n);
		for (i = 0; s == ATLAS_OK && i < n; i++) {
			if (events[i].finish == ATLAS_STOP || events[i].finish == ATLAS_FAILED)
				continue; /* no part of the text */
			s = atlas_text_push(text, events[i].token, &bytes, &n_bytes);
			if (s == ATLAS_OK)
				fwrite(bytes, 1, n_bytes, stdout);
		}
		fflush(stdout);
	}
	if (s == ATLAS_OK && (s = atlas_text_finish(text, &bytes, &n_bytes)) == ATLAS_OK)
		fwrite(bytes, 1, n_bytes, stdout);
	return s;
}

int main(int argc, char **argv)
{
	AtlasError error = {ATLAS_OK, ""};
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	AtlasText *text = NULL;
	AtlasSessionOptions options;
	AtlasPlanInfo model;
	AtlasSessionInfo made;
	AtlasEvent *events;
	int32_t *tokens;
	size_t n_tokens = 0;
	int slot, most;
	AtlasStatus s;
	memset(&options, 0, sizeof options); /* what is not set is as the header says of 0 */
	memset(&model, 0, sizeof model);
	memset(&made, 0, sizeof made);
	options.struct_size = sizeof options;
	options.device = argc > 4 ? argv[4] : "auto";
	model.struct_size = sizeof model;
	made.struct_size = sizeof made;
	if (argc < 3)
		return fail("PLAN PROMPT [TOKENS [DEVICE]]");
	if (atlas_plan_open(argv[1], NULL, &plan, &error) || atlas_session_open(plan, &options, &session, &error))
		return fail(error.text);
	atlas_plan_info(plan, &model);
	atlas_session_info(session, &made);
	most = model.slots * made.step_tokens; /* what atlas_step asks for */
	events = (AtlasEvent *)malloc((size_t)most * sizeof *events);
	tokens = (int32_t *)malloc((size_t)model.max_context * sizeof *tokens);
	if (!events || !tokens)
		return fail("no memory");
	s = atlas_encode(plan, argv[2], strlen(argv[2]), ATLAS_ADD_SPECIAL, tokens, (size_t)model.max_context, &n_tokens);
	if (s == ATLAS_OK && n_tokens > (size_t)model.max_context)
		s = ATLAS_CONTEXT;
	if (s == ATLAS_OK)
		s = atlas_text_open(plan, 1, &text);
	if (s == ATLAS_OK)
		s = atlas_start(session, tokens, (int)n_tokens, NULL, argc > 3 ? atoi(argv[3]) : 64, &slot);
	if (s == ATLAS_OK)
		s = answer(session, text, events, most);
	if (s != ATLAS_OK)
		fail(*atlas_session_error(session) ? atlas_session_error(session) : atlas_status_text(s));
	atlas_text_close(text);
	atlas_session_close(session);
	atlas_plan_close(plan);
	free(events);
	free(tokens);
	return s != ATLAS_OK;
}
