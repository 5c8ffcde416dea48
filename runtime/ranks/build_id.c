/* build_id.c - which build this program is: builds of one version may differ in what ranks share. */
#include "runtime/atlas.h"
#include "runtime/ranks/rank_group.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8 }; /* bytes of the id */

/* The first object is the program. Its id is a note that the linker has made of all its bytes. */
static int find_id(struct dl_phdr_info *program, size_t bytes, void *to)
{
	(void)bytes;
	for (int i = 0; i < program->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &program->dlpi_phdr[i];
		const uint8_t *at = (const uint8_t *)(uintptr_t)(program->dlpi_addr + part->p_vaddr);
		ElfW(Nhdr) note;
		for (size_t k = 0, n; part->p_type == PT_NOTE && k + sizeof note <= part->p_memsz; k += n) {
			memcpy(&note, at + k, sizeof note);
			n = sizeof note + (note.n_namesz + 3u) / 4 * 4;
			if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz >= SHOWN)
				memcpy(to, at + k + n, SHOWN);
			n += (note.n_descsz + 3u) / 4 * 4;
		}
	}
	return 1;
}

void group_build(char text[32])
{
	uint8_t id[SHOWN] = {0};
	dl_iterate_phdr(find_id, id);
	int n = snprintf(text, 32, "%.14s ", atlas_version());
	for (int i = 0; i < SHOWN; i++)
		n += snprintf(text + n, 32 - (size_t)n, "%02x", id[i]);
}
