/* closest.h - what a mistyped name was probably meant to be: the "did you mean" of every verb, option, key, template,
 * op, target, family and code of both commands (tables.c).
 */
#ifndef ATLAS_CLOSEST_H
#define ATLAS_CLOSEST_H

/* Of n names the one that begins with `seen` (three letters or more); else the one that the fewest edits turn it into,
 * at most one more than a third of its letters, without dashes before them; of equally close ones the first. An edit
 * inserts, drops or replaces a letter, or swaps two neighbours. NULL: none is close, or `seen` itself alone is. */
const char *closest_name(const char *seen, const char *const *names, int n);

#endif
