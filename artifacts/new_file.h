/* new_file.h - a file that appears under its name only when it is whole: how both commands write files.
 *
 * It is written without a name in the folder where it will be (O_TMPFILE), so that nothing is left whatever ends the
 * program; where the file system has no such files, or a file is replaced, it has a temporary name for a while, and
 * signals that end a program wait. Several threads may write files of different names. A regular file of that name is
 * replaced at once and gives the new one its mode; without any, umask decides. Anything else of that name is not ours
 * to replace and is refused: a folder, a link such as /dev/stdout, a FIFO, a device.
 */
#ifndef ATLAS_NEW_FILE_H
#define ATLAS_NEW_FILE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct NewFile {
	int fd;              /* open for reading and writing; owned here. -1 = there is none */
	char path[4096];     /* the name that it gets */
	char temporary[4096 + 32]; /* "" while it has no name */
	bool is_cache;       /* set after new_file_begin: others may not write it, and a loss of power may lose it */
	bool holds_signals;  /* until the temporary name is gone */
	sigset_t mask;       /* as it was before */
	char *why; size_t why_bytes; /* the caller's */
} NewFile;

/* Each is false after having written one clause into why: "not a regular file but a FIFO". After new_file_begin, one of
 * new_file_end and new_file_abandon is called; new_file_end gives all back in either case. */
bool new_file_begin(NewFile *f, const char *path, char *why, size_t why_bytes);
bool new_file_end(NewFile *f); /* synced, with its mode, under its name; the folder synced */
void new_file_abandon(NewFile *f);
bool new_file_is_interrupted(const NewFile *f); /* is a signal waiting that would end the program? */
bool new_file_may_begin(const char *path, char *why, size_t why_bytes); /* leaves nothing */

#endif
