/* foreign_files.h - weight files that are not read: what they are, and which of them lie next to a checkpoint. */
#ifndef ATLASC_FOREIGN_FILES_H
#define ATLASC_FOREIGN_FILES_H

#include "compiler/ir.h"

/* What a file is by its first bytes, whatever its name: "a GGUF file", "a tar archive" ...; NULL = none of these. */
const char *foreign_kind(const char *path);
#define SAFETENSORS_KIND "a safetensors file"

/* The first file of the folder, in order of names, that holds weights under another name or in another format than
 * those that are read, in the arena; NULL = there is none. */
const char *foreign_in_folder(Arena *a, const char *dir);

/* Notes A0408 for what other loaders would apply, or load in place of the shards: adapters, weights under other names
 * and in other formats, folders of them. */
void note_neighbours(Compile *c, const char *dir, bool has_index);

#endif
