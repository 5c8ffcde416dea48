/* cubin.c - what a cubin says of its kernel: registers, memory, parameters.
 *
 * A cubin is an ELF64 file for machine 190. The kernel NAME has a section .text.NAME and a global symbol; its
 * properties are in two lists of attributes, .nv.info (of all functions, by symbol) and .nv.info.NAME (of
 * this one). An attribute is a byte of form, a byte of kind and two bytes, which are the value itself or, in
 * the fourth form, the length of what follows:
 *
 *   04 2f 08 00 | symbol, registers                 in .nv.info
 *   04 12 08 00 | symbol, least stack               in .nv.info: local memory of a thread, callees included
 *   04 17 0c 00 | index, number, offset, pppp       in .nv.info.NAME: a parameter, its size from bit 18 of pppp on.
 *                                                   The first of great alignment may have padding before it
 *   04 05 0c 00 | x, y, z                           in .nv.info.NAME: __launch_bounds__
 *
 * Static shared memory is the size of .nv.shared.NAME; where the system reserves shared memory (a section
 * .nv.shared.reserved.0, from sm_90 on) the first 1024 bytes of it are not the kernel's. The architecture is in the
 * flags of the ELF header: in bits 8 to 15 by the ABI that CUDA 13 writes, in the lowest 8 bits by the one before. The
 * format is not published; the test compares with what ptxas prints, for every target.
 *
 * The bytes may come from a cache folder that anyone can write, or from any plan, so every offset is checked.
 */
#include "artifacts/cubin.h"
#include "artifacts/why.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

enum { MACHINE_CUDA = 190, RESERVED_SMEM_BYTES = 1024, MAX_CUBIN_BYTES = 1 << 30 };
enum { ATTR_MAX_THREADS = 0x05, ATTR_MIN_STACK = 0x12, ATTR_PARAM = 0x17, ATTR_REGISTERS = 0x2f };
enum { FORM_BLOCK = 4 };
enum { ABI_CUDA_12 = 7, ABI_CUDA_13 = 8 };

typedef struct Reader {
	const uint8_t *bytes;
	size_t n;
	const char *entry;
	Elf64_Ehdr head;
	const char *names; /* section names */
	size_t names_bytes;
	uint32_t params_from, params_to; /* offsets of the kernel's parameters; equal = none yet */
	char *why;
	size_t why_bytes;
} Reader;

#define refuse(r, ...) say_why((r)->why, (r)->why_bytes, __VA_ARGS__)

static bool inside(const Reader *r, uint64_t offset, uint64_t bytes)
{
	return offset <= r->n && bytes <= r->n - offset;
}

static Elf64_Shdr section_at(const Reader *r, int i)
{
	Elf64_Shdr s;
	memcpy(&s, r->bytes + r->head.e_shoff + (size_t)i * sizeof s, sizeof s);
	return s;
}

/* The NUL-terminated string at an offset of a string table, or NULL. */
static const char *string_at(const char *table, size_t bytes, uint64_t offset)
{
	return offset < bytes && memchr(table + offset, 0, bytes - offset) ? table + offset : NULL;
}

static bool read_head(Reader *r)
{
	if (r->n < sizeof r->head || r->n > MAX_CUBIN_BYTES)
		return refuse(r, "%zu bytes are not a cubin", r->n);
	memcpy(&r->head, r->bytes, sizeof r->head);
	const Elf64_Ehdr *h = &r->head;
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
		h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != MACHINE_CUDA)
		return refuse(r, "not an ELF file of the CUDA architecture");
	if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shnum == 0 || h->e_shstrndx >= h->e_shnum ||
		!inside(r, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
		return refuse(r, "the section table lies outside of the file");
	if (h->e_phnum && !inside(r, h->e_phoff, (uint64_t)h->e_phnum * h->e_phentsize))
		return refuse(r, "the program headers lie outside of the file");
	for (int i = 0; i < h->e_shnum; i++) {
		Elf64_Shdr s = section_at(r, i);
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL && !inside(r, s.sh_offset, s.sh_size))
			return refuse(r, "section %d lies outside of the file", i);
	}
	Elf64_Shdr names = section_at(r, h->e_shstrndx);
	if (names.sh_type != SHT_STRTAB)
		return refuse(r, "the section names are missing");
	r->names = (const char *)r->bytes + names.sh_offset;
	r->names_bytes = names.sh_size;
	return true;
}

/* Index of the section called prefix + suffix; -1 = absent. */
static int find_section(const Reader *r, const char *prefix, const char *suffix, Elf64_Shdr *out)
{
	size_t n = strlen(prefix);
	for (int i = 0; i < r->head.e_shnum; i++) {
		*out = section_at(r, i);
		const char *name = string_at(r->names, r->names_bytes, out->sh_name);
		if (name && strncmp(name, prefix, n) == 0 && strcmp(name + n, suffix) == 0)
			return i;
	}
	return -1;
}

/* Index of the entry's symbol in the symbol table; 0 = absent. */
static uint32_t find_entry(const Reader *r, int text)
{
	Elf64_Shdr table;
	if (find_section(r, ".symtab", "", &table) < 0 || table.sh_link >= r->head.e_shnum ||
		table.sh_type != SHT_SYMTAB)
		return 0;
	Elf64_Shdr strings = section_at(r, (int)table.sh_link);
	if (strings.sh_type != SHT_STRTAB)
		return 0;
	for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); i++) {
		Elf64_Sym s;
		memcpy(&s, r->bytes + table.sh_offset + i * sizeof s, sizeof s);
		const char *name = string_at((const char *)r->bytes + strings.sh_offset, strings.sh_size, s.st_name);
		if (name && strcmp(name, r->entry) == 0 && ELF64_ST_TYPE(s.st_info) == STT_FUNC &&
			ELF64_ST_BIND(s.st_info) == STB_GLOBAL && s.st_shndx == text)
			return (uint32_t)i;
	}
	return 0;
}

static uint32_t word_at(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool as_int(Reader *r, uint64_t value, const char *what, int *out)
{
	if (value > MAX_CUBIN_BYTES)
		return refuse(r, "%llu %s", (unsigned long long)value, what);
	*out = (int)value;
	return true;
}

/* One attribute of form FORM_BLOCK: of `symbol`, or of the entry's own list. */
static bool take_block(Reader *r, int kind, const uint8_t *p, size_t n, uint32_t symbol, CubinInfo *out)
{
	if (kind == ATTR_MAX_THREADS && n >= 12) {
		uint64_t threads = (uint64_t)word_at(p) * word_at(p + 4);
		if (threads > MAX_CUBIN_BYTES || threads * word_at(p + 8) > MAX_CUBIN_BYTES)
			return refuse(r, "launch bounds out of range");
		return as_int(r, threads * word_at(p + 8), "threads", &out->max_threads);
	}
	if (kind == ATTR_PARAM && n >= 12) {
		uint32_t from = word_at(p + 4) >> 16, to = from + (word_at(p + 8) >> 18);
		bool is_first = r->params_from == r->params_to;
		r->params_from = is_first || from < r->params_from ? from : r->params_from;
		r->params_to = is_first || to > r->params_to ? to : r->params_to;
		out->param_bytes = (int)(r->params_to - r->params_from);
		return true;
	}
	if (n < 8 || word_at(p) != symbol)
		return true;
	if (kind == ATTR_REGISTERS)
		return as_int(r, word_at(p + 4), "registers", &out->registers);
	return kind != ATTR_MIN_STACK || as_int(r, word_at(p + 4), "bytes of stack", &out->local_bytes);
}

static bool read_attributes(Reader *r, const Elf64_Shdr *s, uint32_t symbol, CubinInfo *out)
{
	const uint8_t *p = r->bytes + s->sh_offset, *end = p + s->sh_size;
	while (end - p >= 4) {
		int form = p[0], kind = p[1], value = p[2] | p[3] << 8;
		p += 4;
		if (form != FORM_BLOCK)
			continue;
		if (value > end - p)
			return refuse(r, "an attribute of %d bytes runs out of its section", value);
		if (!take_block(r, kind, p, (size_t)value, symbol, out))
			return false;
		p += value;
	}
	return end == p || refuse(r, "a list of attributes ends in the middle of one");
}

bool cubin_read(const uint8_t *bytes, size_t n, const char *entry, CubinInfo *out, char *why, size_t why_bytes)
{
	Reader r = {.bytes = bytes, .n = n, .entry = entry, .why = why, .why_bytes = why_bytes};
	Elf64_Shdr text, info, own, shared, reserved;
	*out = (CubinInfo){0};
	if (!read_head(&r))
		return false;
	const int abi = r.head.e_ident[EI_ABIVERSION];
	out->sm = abi == ABI_CUDA_13 ? r.head.e_flags >> 8 & 0xff : abi == ABI_CUDA_12 ? r.head.e_flags & 0xff : 0;
	int text_index = find_section(&r, ".text.", entry, &text);
	uint32_t symbol = text_index < 0 ? 0 : find_entry(&r, text_index);
	if (symbol == 0)
		return refuse(&r, "the cubin has no kernel %s", entry);
	if (text.sh_type == SHT_NOBITS)
		return refuse(&r, "kernel %s has no instructions", entry);
	out->code = bytes + text.sh_offset;
	out->code_bytes = text.sh_size;
	if (find_section(&r, ".nv.info", "", &info) < 0 || find_section(&r, ".nv.info.", entry, &own) < 0)
		return refuse(&r, "the cubin says nothing of kernel %s", entry);
	if (info.sh_type == SHT_NOBITS || own.sh_type == SHT_NOBITS)
		return refuse(&r, "the attributes of kernel %s have no bytes", entry);
	if (!read_attributes(&r, &info, symbol, out) || !read_attributes(&r, &own, UINT32_MAX, out))
		return false;
	if (out->registers == 0)
		return refuse(&r, "the cubin does not say how many registers %s takes", entry);
	if (find_section(&r, ".nv.shared.", entry, &shared) >= 0) {
		bool has_reserved = find_section(&r, ".nv.shared.reserved.0", "", &reserved) >= 0;
		uint64_t skip = has_reserved && shared.sh_size >= RESERVED_SMEM_BYTES ? RESERVED_SMEM_BYTES : 0;
		return as_int(&r, shared.sh_size - skip, "bytes of static shared memory", &out->static_smem_bytes);
	}
	return true;
}
