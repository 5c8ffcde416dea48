/* api_example.c - a whole program on runtime/atlas.h alone: PLAN PROMPT [TOKENS [DEVICE]] */
#include "runtime/atlas.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	AtlasError error = {ATLAS_OK, ""};
	AtlasPlan *plan = NULL;
	AtlasSession *session = NULL;
	AtlasText *text = NULL;
	AtlasSessionOptions options;
	AtlasEvent event[1024];
	int32_t tokens[4096];
	size_t n_tokens = 0, n_bytes;
	const char *bytes;
	int n, slot;
	memset(&options, 0, sizeof options); /* what is not set is as the header says of 0 */
	options.struct_size = sizeof options;
	options.device = argc > 4 ? argv[4] : "auto";
	if (argc < 3 || atlas_plan_open(argv[1], NULL, &plan, &error) ||
		atlas_session_open(plan, &options, &session, &error) || atlas_text_open(plan, 1, &text) ||
		atlas_encode(plan, argv[2], strlen(argv[2]), ATLAS_ADD_SPECIAL, tokens, 4096, &n_tokens) ||
		atlas_start(session, tokens, (int)n_tokens, NULL, argc > 3 ? atoi(argv[3]) : 64, &slot))
		return fprintf(stderr, "api_example: %s\n", session ? atlas_session_error(session) : error.text), 1;
	while (atlas_active(session) && atlas_step(session, event, 1024, &n) == ATLAS_OK)
		if (n && event[0].finish != ATLAS_STOP && !atlas_text_push(text, event[0].token, &bytes, &n_bytes))
			fwrite(bytes, 1, n_bytes, stdout);
	if (!atlas_text_finish(text, &bytes, &n_bytes))
		fwrite(bytes, 1, n_bytes, stdout);
	fputs(atlas_session_error(session), stderr);
	atlas_text_close(text);
	atlas_session_close(session);
	atlas_plan_close(plan);
	return 0;
}
