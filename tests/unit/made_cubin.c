#include "tests/unit/made_cubin.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTIONS = 6 };

typedef struct Making { uint8_t *to; size_t n; Elf64_Shdr heads[SECTIONS + 1]; int n_heads; char strings[400];
	size_t n_strings; } Making;

static uint32_t string(Making *m, const char *prefix, const char *name)
{
	const size_t at = m->n_strings;
	m->n_strings += (size_t)snprintf(m->strings + at, sizeof m->strings - at, "%s%s", prefix, name) + 1;
	if (m->n_strings > sizeof m->strings)
		abort();
	return (uint32_t)at;
}

static void section(Making *m, const char *prefix, const char *name, uint32_t type, const void *bytes, size_t n)
{
	m->heads[m->n_heads++] = (Elf64_Shdr){.sh_name = string(m, prefix, name), .sh_type = type, .sh_offset = m->n,
		.sh_size = n};
	if (bytes)
		memcpy(m->to + m->n, bytes, n);
	m->n += type == SHT_NOBITS ? 0 : (n + 7) / 8 * 8;
}

void made_cubin(uint8_t *to, const MadeCubin *of)
{
	Making m = {.to = to, .n = sizeof(Elf64_Ehdr), .n_heads = 1, .n_strings = 1};
	memset(to, 0, MADE_CUBIN_BYTES);
	const uint32_t all[] = {0x00082f04, 1, (uint32_t)of->registers, 0x00081204, 1, (uint32_t)of->local_bytes};
	const uint32_t own[] = {0x000c1704, 0, 0, (uint32_t)of->param_bytes << 18, 0x000c0504, (uint32_t)of->max_threads, 1,
		1};
	const uint32_t entry = string(&m, "", of->entry);
	section(&m, ".text.", of->entry, SHT_PROGBITS, "", 0); /* index 1 */
	const Elf64_Sym symbols[2] = {{0}, {.st_name = entry, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		.st_shndx = 1}};
	section(&m, ".nv.info", "", SHT_LOPROC, all, sizeof all);
	section(&m, ".nv.info.", of->entry, SHT_LOPROC, own, of->max_threads ? sizeof own : sizeof own / 2);
	section(&m, ".nv.shared.", of->entry, SHT_NOBITS, NULL, (size_t)of->static_smem);
	section(&m, ".symtab", "", SHT_SYMTAB, symbols, sizeof symbols);
	m.heads[m.n_heads - 1].sh_link = 6;
	const uint32_t name = string(&m, ".strtab", "");
	m.heads[m.n_heads++] = (Elf64_Shdr){.sh_name = name, .sh_type = SHT_STRTAB, .sh_offset = m.n,
		.sh_size = m.n_strings};
	memcpy(to + m.n, m.strings, m.n_strings);
	m.n += (m.n_strings + 7) / 8 * 8;
	Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT,
		[EI_ABIVERSION] = 8}, .e_machine = 190, .e_flags = (uint32_t)of->sm << 8, .e_shoff = m.n,
		.e_shentsize = sizeof(Elf64_Shdr), .e_shnum = (uint16_t)m.n_heads, .e_shstrndx = 6};
	memcpy(to, &head, sizeof head);
	memcpy(to + m.n, m.heads, (size_t)m.n_heads * sizeof m.heads[0]);
	if (m.n + (size_t)m.n_heads * sizeof m.heads[0] > MADE_CUBIN_BYTES)
		abort();
}
