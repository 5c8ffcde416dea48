/* plan_file.h - the files that a plan is read from, and what happens when they change meanwhile.
 *
 * Small sections of a plan are copied when it opens, and the copy is what is hashed and used. Weights stay in the
 * files: they are mapped, and read by calls (not through the mapping) wherever they are copied anyway, so that a file
 * that was cut is an error and not a signal. A file that was written to after it was opened is noticed by its times.
 */
#ifndef ATLAS_PLAN_FILE_H
#define ATLAS_PLAN_FILE_H

#include "runtime/atlas.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct PlanFile {
	const char *name;     /* base name of a checkpoint's file, owned by the artifact; NULL = the plan itself */
	const uint8_t *bytes; /* [n] mapped; NULL = it is not open */
	int64_t n;
	int fd;
	struct stat opened;   /* what it was when it was opened */
	bool is_fresh;        /* it was written so recently that a change may not show in its times */
} PlanFile;

typedef struct PlanFiles { PlanFile *list; int n; } PlanFiles; /* the plan, then files that it refers to */

/* Opens and maps a regular file that is not empty. `at` is a folder's descriptor or AT_FDCWD. is_plan: all but its
 * large sections are a copy. */
AtlasStatus plan_file_open(int at, const char *path, bool is_plan, PlanFile *f, AtlasError *error);
void plan_file_close(PlanFile *f);

/* Copies n mapped bytes by reading their file, and bytes of no file as they are. files may be NULL: memory alone.
 * False: the file has been cut, or cannot be read. Any thread. */
bool plan_files_copy(const PlanFiles *files, const void *from, void *to, size_t n);
/* A file that was written to, or cut, since it was opened; NULL = none, or no files. Any thread. */
const PlanFile *plan_files_changed(const PlanFiles *files);
/* Could one have been changed all the same? It was just being written when it was opened, or its inode was changed: by
 * a rename, or by a writer that restored its time. Only hashes show it. */
bool plan_files_doubtful(const PlanFiles *files);

#endif
