/* generation.h - a request for text while it is answered, for generation.c and answer.c. */
#ifndef ATLAS_GENERATION_H
#define ATLAS_GENERATION_H

#include "runtime/serve/server.h"

typedef struct TokenLog { /* of a token whose log probability was asked for */
	int32_t token;
	float logprob;  /* NaN: nothing is before it */
	int64_t offset; /* code points of the answer's text before it */
	AtlasTop *top;  /* [n_top] the most probable tokens in its place; owned */
	int n_top;
} TokenLog;

typedef struct Choice { /* one answer */
	Sequence sequence;
	int index;
	const ApiPrompt *prompt;
	AtlasText *stream;     /* from tokens to text; NULL: the plan has no tokenizer */
	char *text;            /* [n_text] that is certain; of a stream, what was not sent yet */
	size_t n_text, cap_text;
	TokenLog *logs;        /* [n_logs]; of a stream, what was not sent yet */
	int n_logs, cap_logs;
	int64_t code_points;   /* of the text so far */
	int n_tokens;          /* made, with a stop token */
	int n_fresh;           /* of them without it: since the last chunk */
	bool is_in_engine, is_started, is_greeted; /* is_greeted: its first chunk went out */
	const char *finish;    /* "stop", "length"; NULL while it runs */
	double last_token;     /* server_now */
} Choice;

typedef struct Generation {
	Call call;             /* first member */
	ApiRequest request;
	Choice *choices;       /* [n_choices] */
	int n_choices, n_in_engine, n_finished, n_started;
	bool is_streaming;     /* its head went out */
	bool is_in_worker;
	bool is_over;          /* it has its answer, or its peer went away */
	char answer_id[40];    /* "chatcmpl-..." */
	int64_t created;
	char *chunk_head;      /* that all chunks of its stream begin with; owned, NULL = it is no stream */
	int prompt_tokens;     /* of all prompts, each once */
	int sent_ahead;        /* tokens since the peer stopped taking bytes */
	double submitted, started, first_token;
} Generation;

/* answer.c ------------------------------------------------------------ */

int generation_tokens(const Generation *g); /* of all answers */
/* JSON into `out`. */
void answer_put_whole(const Generation *g, FILE *out);
char *answer_chunk_head(const Generation *g); /* free(); NULL: no memory */
/* Stream events, "data: {...}\n\n" each. */
void answer_put_first(const Generation *g, Choice *c, FILE *out);  /* the role; of an echo, the prompt */
void answer_put_text(
	const Generation *g, Choice *c, FILE *out); /* what is new in it, if anything is; takes it away */
void choice_drop_logs(Choice *c);
void answer_put_finish(
	const Generation *g, const Choice *c, FILE *out); /* the one place of finish_reason in a stream */
void answer_put_end(const Generation *g, FILE *out);               /* usage if it was asked for, and [DONE] */
void answer_put_failure(const ApiError *e, FILE *out);             /* in place of all that */

#endif
