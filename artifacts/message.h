/* message.h - the head of every message to a person, "PLACE: error[NAME]: ", and its colours, for both commands.
 *
 * Only messages on stderr have colours. What --color asks for decides, and nothing else: no environment variable is
 * read, NO_COLOR and TERM included.
 */
#ifndef ATLAS_MESSAGE_H
#define ATLAS_MESSAGE_H

#include <stdbool.h>
#include <stdio.h>

typedef enum MessageKind { MESSAGE_REMARK, MESSAGE_HELP, MESSAGE_NOTE, MESSAGE_ERROR } MessageKind;

#define MESSAGE_COLORS "auto|always|never"
/* What the words after --color or --color= are, wherever it is before "--", so that even a mistake in the words before
 * it has the colours asked for; the last one counts. NULL = it is not there. */
const char *message_color_word(int argc, char *const *argv);
bool message_is_color(const char *word); /* one of MESSAGE_COLORS */
/* "always", "never"; all else: is `out` a terminal? */
bool message_is_colored(const char *color, FILE *out);
/* "PLACE: " of a remark; of others "PLACE: error[NAME]: ", where name may be NULL. The text and the end of the line are
 * the caller's. HELP has no place. */
void message_head(FILE *out, bool is_colored, const char *place, MessageKind kind, const char *name);

#endif
