/* input.h - reading files of unknown origin.
 *
 * A path of a checkpoint may lead to a folder, a FIFO, a device, a loop of symbolic links or ten terabytes
 * of nothing. Opening never blocks, only regular files pass, everything is read with pread (a mapping
 * would die when the file shrinks), and a size limit precedes every allocation.
 */
#ifndef ATLASC_INPUT_H
#define ATLASC_INPUT_H

#include "compiler/base.h"

/* What is in place of a file where a repository was cloned without its large files. */
#define LFS_POINTER "version https://git-lfs.github.com/spec/"

enum { INPUT_FAILED = -1, INPUT_ABSENT = -2 };

/* Descriptor of a regular file and its size in bytes; the caller closes it. INPUT_ABSENT when `optional` and
 * nothing of that name exists; INPUT_FAILED after having recorded A0102 or A0104. */
int input_open(Diags *d, const char *path, bool optional, int64_t *bytes);

/* Exactly n bytes from offset `at`, whatever signals and short reads do. On failure false with errno set;
 * errno 0 = the file ended early. */
bool input_pread(int fd, void *dst, size_t n, int64_t at);

/* The whole file, followed by a NUL that is not counted, in `a`. *text is NULL when the file is absent
 * (`optional` only). False after having recorded an error; A0106 names size and limit. A Git LFS pointer is none. */
bool input_read(Arena *a, Diags *d, const char *path, bool optional, int64_t max_bytes, char **text, size_t *n);

/* Notes a text that decides what the plan is, by its base name, once and as the last. input_read does
 * it itself. */
void input_note(Diags *d, const char *path, const char *text, size_t n);
/* What was noted last is called `name` in the plan, whatever the user's file is called. */
void input_call(Diags *d, const char *name);

/* The file's name without its folder, or `otherwise` where it is NULL or not printable ASCII: for the plan. */
const char *input_name(const char *path, const char *otherwise);
/* "dir/name", with as few slashes as `dir` allows: how the user would name the file. */
const char *input_path(Arena *a, const char *dir, const char *name);

/* Offset of the first byte that is not UTF-8 (surrogates and overlong forms are not), or n. */
size_t utf8_bad(const char *text, size_t n);

#endif
