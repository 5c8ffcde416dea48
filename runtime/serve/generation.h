/* generation.h - a request for text while it is answered. */
#ifndef ATLAS_GENERATION_H
#define ATLAS_GENERATION_H

#include "runtime/serve/apis.h"
#include "runtime/serve/server.h"

typedef struct TokenLog { /* of a token whose log probability was asked for */
	int32_t token;
	float logprob;  /* NaN: nothing is before it */
	int64_t offset; /* code points of the answer's text before it */
	int part;       /* the first part that came of it or after it; -1 = none so far */
	AtlasTop *top;  /* [n_top] the most probable tokens in its place; owned */
	int n_top;
} TokenLog;

struct Choice { /* one answer */
	Sequence sequence;
	int index;
	const ApiPrompt *prompt;
	AtlasText *stream;     /* from tokens to text; NULL: the plan has no tokenizer */
	PieceParser *parser;   /* from text to parts */
	bool reads_markers;    /* which may be control tokens */
	Part *parts;           /* [n_parts] that are certain; the last may grow */
	int n_parts, cap_parts;
	int n_closed;          /* of them: whole in the stream */
	int n_calls;
	TokenLog *logs;        /* [n_logs] */
	int n_logs, cap_logs;
	int n_sent_logs;       /* of them: in the stream */
	int64_t code_points;   /* of the text so far */
	int n_tokens;          /* made, with a stop token */
	int n_reasoning;       /* of them: of reasoning */
	int n_fresh;           /* of them without a stop token: since the last event of the stream */
	int n_unplaced;        /* of them: since the last text */
	bool is_in_engine, is_started, is_greeted; /* is_greeted: its first event went out */
	const char *finish;    /* "stop", "length"; NULL while it runs */
	int stop;              /* the stop string that ended it; -1 = none */
	double last_token;     /* server_now */
};

struct Generation {
	Call call;             /* first member */
	const Api *api;
	ApiRequest request;
	Choice *choices;       /* [n_choices] */
	int n_choices, n_in_engine, n_finished, n_started;
	bool is_streaming;     /* its head went out */
	bool is_in_worker;
	bool is_over;          /* it has its answer, or its peer went away */
	char answer_id[40];    /* "chatcmpl-..." */
	int64_t created;
	char *chunk_head;      /* that all events of its stream begin with; owned, NULL = nothing */
	int n_events;          /* of its stream, where they are numbered */
	int prompt_tokens;     /* of all prompts, each once */
	int cached_tokens;     /* of them not read, since they were kept */
	int sent_ahead;        /* tokens since the peer stopped taking bytes */
	double submitted, started, first_token, sent; /* sent: the last bytes of its stream */
};

/* choice.c: from tokens to parts ------------------------------------------------------------ */

/* Room for the answer's text. False: no memory. */
bool choice_open(Generation *g, Choice *c);
void choice_close(Choice *c);
/* Appends a token to its answer; the last sets `finish`. Takes the event's alternatives. False: no memory. */
bool choice_take_token(Generation *g, Choice *c, EngineEvent *e);
/* Scores of the prompt, where the answer begins with it. False: no memory. */
bool choice_take_scores(Choice *c);
/* Code points of UTF-8. */
int64_t count_code_points(const char *text, size_t n);

/* answer.c: what writers share ------------------------------------------------------------ */

int generation_tokens(const Generation *g); /* of all answers */
int generation_reasoning(const Generation *g);
/* The next events of a stream: what is new in an answer, if anything is. */
void answer_put_news(Generation *g, Choice *c, FILE *out);
/* The texts of all parts of a kind as one quoted text, a line end between two. */
void answer_put_joined(const Choice *c, PieceKind kind, FILE *out);
bool answer_has(const Choice *c, PieceKind kind);
void answer_put_logprob(float logprob, FILE *out); /* null after nothing */
/* [*n]; none of a token without text. */
void answer_token_bytes(const Generation *g, int32_t token, const char **bytes, size_t *n);
/* Log probabilities first..end-1 as objects with top_logprobs, between commas. */
void answer_put_token_logs(const Generation *g, const Choice *c, int first, int end, FILE *out);
/* OpenAI's older APIs: {"id":...,"choices":[, and the chunks that begin with it. */
void chunks_head(const Generation *g, const char *object, FILE *out);
void chunks_usage(const Generation *g, FILE *out);
void chunk_begin(const Generation *g, FILE *out);
void chunk_close(const Generation *g, Choice *c, FILE *out); /* c NULL: of no answer. All its logs are sent now */
void chunk_put_reason(const char *reason, FILE *out); /* NULL = null */
bool chunk_is_due(const Generation *g, const Choice *c); /* without text */
void chunks_end(Generation *g, FILE *out);
void chunks_failure(Generation *g, const ApiError *e, FILE *out);

/* write_chat.c, write_completions.c: members of their rows -------------------------------------------------------- */

void chat_head(const Generation *g, FILE *out);
void chat_first(Generation *g, Choice *c, FILE *out);
void chat_begin(Generation *g, Choice *c, Part *p, FILE *out);
void chat_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out);
void chat_idle(Generation *g, Choice *c, FILE *out);
void chat_finish(Generation *g, Choice *c, FILE *out);
void chat_whole(Generation *g, FILE *out);
void completions_head(const Generation *g, FILE *out);
void completions_first(Generation *g, Choice *c, FILE *out);
void completions_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out);
void completions_idle(Generation *g, Choice *c, FILE *out);
void completions_finish(Generation *g, Choice *c, FILE *out);
void completions_whole(Generation *g, FILE *out);

/* write_messages.c */

void messages_put_error(const ApiError *e, FILE *out);
void messages_first(Generation *g, Choice *c, FILE *out);
void messages_begin(Generation *g, Choice *c, Part *p, FILE *out);
void messages_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out);
void messages_close(Generation *g, Choice *c, Part *p, FILE *out);
void messages_finish(Generation *g, Choice *c, FILE *out);
void messages_end(Generation *g, FILE *out);
void messages_ping(Generation *g, FILE *out);
void messages_failure(Generation *g, const ApiError *e, FILE *out);
void messages_whole(Generation *g, FILE *out);

/* write_responses.c */

void responses_first(Generation *g, Choice *c, FILE *out);
void responses_begin(Generation *g, Choice *c, Part *p, FILE *out);
void responses_piece(Generation *g, Choice *c, Part *p, const char *bytes, size_t n, FILE *out);
void responses_close(Generation *g, Choice *c, Part *p, FILE *out);
void responses_end(Generation *g, FILE *out);
void responses_failure(Generation *g, const ApiError *e, FILE *out);
void responses_whole(Generation *g, FILE *out);

#endif
