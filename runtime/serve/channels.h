/* channels.h - answers that are messages, each of a channel, perhaps to a recipient: harmony.
 *
 *	<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
 *	<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
 */
#ifndef ATLAS_CHANNELS_H
#define ATLAS_CHANNELS_H

#include "runtime/serve/json_scan.h"

#include <jansson.h>

#define CHANNELS_MESSAGE "<|message|>"
enum { CHANNELS_HEAD_BYTES = 512 };

typedef struct MessageHead { /* parts of its text; n 0 = it has none */
	JsonSlice channel;
	JsonSlice function; /* the recipient is functions. and this */
	bool has_recipient;
} MessageHead;

/* May these bytes begin the head of a message? */
bool channels_may_be_head(const char *text, size_t n);
/* What is before CHANNELS_MESSAGE. */
MessageHead channels_read_head(const char *text, size_t n);
/* May these bytes begin what is after a message? *is_whole: they are that. */
bool channels_may_end(const char *text, size_t n, bool *is_whole);
/* What comes before the text of an answer that has a structure, as a form of a grammar: reasoning, perhaps, which has
 * no "<|" but in the mark that ends it, and the head of the final message; after_reasoning: the head alone. NULL: no
 * memory. */
json_t *channels_final_form(bool after_reasoning);
/* Is a control token of this text one of theirs? */
bool channels_has_marker(const char *text, size_t n);

#endif
