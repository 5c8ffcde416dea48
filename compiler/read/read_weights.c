/* read_weights.c - which tensors the checkpoint has and where their bytes lie.
 *
 * One file, model.safetensors, or shards named by model.safetensors.index.json. A safetensors file is eight bytes
 * of little-endian length N, N bytes of JSON, and the tensors' data without a gap:
 *
 *   {"__metadata__": {"format": "pt"}, "model.norm.weight": {"dtype": "BF16", "shape": [64], "data_offsets": [0, 128]}}
 *
 * Only headers are read here. The order of checks is that of the format's reference reader: size of the file,
 * N, the JSON, every entry by itself, and then that the ranges in order of offset cover the data exactly. Hence no
 * overlap, no hole, no byte that belongs to no tensor, and nothing is allocated by a number that a file claims.
 *
 * A name in a file never becomes a path, except those of the index, which must be plain names in the folder.
 */
#include "compiler/read/foreign_files.h"
#include "compiler/read/read_model.h"
#include "compiler/text/input.h"
#include "compiler/text/json.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PREFIX_BYTES = 8, MAX_HEADER_BYTES = 100 * 1000 * 1000, MAX_INDEX_BYTES = 256 << 20, MAX_NAME_BYTES = 1024,
	MAX_ENTRY_VALUES = 1 << 21, MAX_SHARDS = 4096 };

static const JsonRules header_rules = {A0401, MAX_HEADER_BYTES, 8, MAX_ENTRY_VALUES, false, false};
static const JsonRules index_rules = {A0406, MAX_INDEX_BYTES, 8, MAX_ENTRY_VALUES, false, false};

/* Every element type of the format and its bits. Those of artifacts/dtypes.h are read; a tensor of another one
 * may only be there if no op wants it. */
static const struct { const char *name; int bits; } st_types[] = {
	{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8},
	{"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
	{"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
};

typedef struct Reading {
	Compile *c;
	Diags *d;
	const char *dir;
	bool has_index;
} Reading;

static Loc shard_loc(const Reading *r, int shard) { return (Loc){r->c->model.shards.at[shard].path, 0, 0}; }

/* One entry of a header -------------------------------------------------------------------------------- */

static const char *entry_text(const Reading *r, const Value *v) { return value_text(r->d->arena, v); }

/* Names are printed in messages, so a hostile one is caught before anything else. */
static bool check_name(Reading *r, int shard, const Value *v)
{
	size_t n = strlen(v->key);
	if (n == 0)
		return fail_at(r->d, A0402, shard_loc(r, shard), "empty tensor name (column %d of the header)", v->at.col);
	if (n > MAX_NAME_BYTES)
		return fail_at(r->d, A0402, shard_loc(r, shard), "tensor name of %zu bytes (%s): expected at most %d", n,
			clip_text(r->d->arena, v->key, n, 40), MAX_NAME_BYTES);
	for (const char *p = v->key; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return fail_at(r->d, A0402, shard_loc(r, shard),
				"tensor name with control character 0x%02x at byte %td (column %d of the header)",
				(unsigned char)*p, p - v->key, v->at.col);
	return true;
}

static bool read_type(Reading *r, const Value *entry, const Value *v, StTensor *t, int *bits)
{
	Loc at = shard_loc(r, t->shard);
	if (!v || v->kind != VALUE_STRING)
		return fail_at(r->d, A0402, at, "%s: dtype %s", entry->key, v ? entry_text(r, v) : "is missing");
	for (size_t i = 0; i < sizeof st_types / sizeof st_types[0]; i++) {
		if (strcmp(st_types[i].name, v->string) != 0)
			continue;
		t->dtype_text = st_types[i].name;
		*bits = st_types[i].bits;
		t->is_supported = dtype_from_safetensors(t->dtype_text, &t->dtype);
		if (!t->is_supported)
			t->dtype = DT_COUNT;
		return true;
	}
	return fail_at(r->d, A0403, at, "%s: %s is not a dtype of the format", entry->key, entry_text(r, v));
}

static bool read_extents(Reading *r, const Value *entry, const Value *v, StTensor *t, int bits)
{
	Loc at = shard_loc(r, t->shard);
	if (!v || v->kind != VALUE_ARRAY)
		return fail_at(r->d, A0402, at, "%s: shape %s", entry->key, v ? entry_text(r, v) : "is missing");
	if (v->n > PLAN_MAX_DIMS)
		return fail_at(r->d, A0402, at, "%s: shape of %d dimensions: expected at most %d", entry->key, v->n,
			PLAN_MAX_DIMS);
	int64_t total_bits = bits;
	for (const Value *e = v->first; e; e = e->next) {
		if (e->kind != VALUE_INT || e->integer < 0)
			return fail_at(r->d, A0402, at, "%s: shape %s: %s is not a dimension", entry->key, entry_text(r, v),
				entry_text(r, e));
		t->shape[t->n_dims++] = e->integer;
		if (__builtin_mul_overflow(total_bits, e->integer, &total_bits))
			return fail_at(r->d, A0405, at, "%s: shape %s: the number of bytes passes 64 bits", entry->key,
				entry_text(r, v));
	}
	if (total_bits % 8)
		return fail_at(r->d, A0405, at, "%s: shape %s of %s ends inside a byte", entry->key, entry_text(r, v),
			t->dtype_text);
	t->bytes = total_bits / 8;
	return true;
}

static bool read_range(Reading *r, const Value *entry, const Value *v, StTensor *t, int64_t data_bytes)
{
	Loc at = shard_loc(r, t->shard);
	const Value *begin = v && v->kind == VALUE_ARRAY && v->n == 2 ? v->first : NULL, *end = begin ? begin->next : NULL;
	if (!begin || begin->kind != VALUE_INT || end->kind != VALUE_INT || begin->integer < 0 || end->integer < 0)
		return fail_at(r->d, A0402, at, "%s: data_offsets %s: expected [begin, end]", entry->key,
			v ? entry_text(r, v) : "are missing");
	if (end->integer < begin->integer)
		return fail_at(r->d, A0404, at, "%s: data_offsets %s begin after their end", entry->key, entry_text(r, v));
	if (end->integer > data_bytes)
		return fail_at(r->d, A0404, at, "%s: data_offsets %s end beyond the file's %lld bytes of data", entry->key,
			entry_text(r, v), (long long)data_bytes);
	if (end->integer - begin->integer != t->bytes)
		return fail_at(r->d, A0405, at, "%s: %lld bytes wanted by its dtype %s and shape, %lld in data_offsets %s",
			entry->key, (long long)t->bytes, t->dtype_text, (long long)(end->integer - begin->integer),
			entry_text(r, v));
	t->offset = begin->integer; /* from the data's start until the file is known to be sound */
	return true;
}

static bool read_entry(Reading *r, const Value *entry, StTensor *t, int64_t data_bytes)
{
	static const char *const keys[] = {"dtype", "shape", "data_offsets"};
	const Value *at[3] = {NULL};
	int bits = 0;
	if (!check_name(r, t->shard, entry))
		return false;
	if (entry->kind != VALUE_TABLE)
		return fail_at(r->d, A0402, shard_loc(r, t->shard), "%s: %s: expected an object", entry->key,
			entry_text(r, entry));
	for (const Value *v = entry->first; v; v = v->next) {
		int k = 0;
		while (k < 3 && strcmp(keys[k], v->key) != 0)
			k++;
		if (k == 3)
			return fail_at(r->d, A0402, shard_loc(r, t->shard), "%s: %s is not a key of the format", entry->key,
				clip_text(r->d->arena, v->key, strlen(v->key), 40));
		at[k] = v;
	}
	t->name = entry->key;
	return read_type(r, entry, at[0], t, &bits) && read_extents(r, entry, at[1], t, bits) &&
		read_range(r, entry, at[2], t, data_bytes);
}

static bool check_metadata(Reading *r, int shard, const Value *v)
{
	if (v->kind != VALUE_TABLE)
		return fail_at(r->d, A0402, shard_loc(r, shard), "__metadata__ = %s: expected an object", entry_text(r, v));
	for (const Value *e = v->first; e; e = e->next)
		if (e->kind != VALUE_STRING)
			return fail_at(r->d, A0402, shard_loc(r, shard), "__metadata__.%s = %s: expected a string",
				clip_text(r->d->arena, e->key, strlen(e->key), 40), entry_text(r, e));
	return true;
}

/* A whole header ------------------------------------------------------------------------------------------ */

static int by_offset(const void *x, const void *y)
{
	const StTensor *a = x, *b = y;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->bytes != b->bytes) /* empty tensors come before the one that begins where they do */
		return a->bytes < b->bytes ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Ranges in order of offset: each begins where the one before ended, the last ends with the file. */
static bool check_cover(Reading *r, StTensor *t, int n, int shard, int64_t data_bytes)
{
	int64_t end = 0;
	qsort(t, (size_t)n, sizeof *t, by_offset);
	for (int i = 0; i < n; i++) {
		if (t[i].offset < end)
			return fail_at(r->d, A0404, shard_loc(r, shard), "%s at %lld overlaps %s, which ends at %lld", t[i].name,
				(long long)t[i].offset, t[i - 1].name, (long long)end);
		if (t[i].offset > end)
			return fail_at(r->d, A0404, shard_loc(r, shard), "hole of %lld byte%s before %s at %lld",
				(long long)(t[i].offset - end), t[i].offset - end == 1 ? "" : "s", t[i].name, (long long)t[i].offset);
		end += t[i].bytes;
	}
	return end == data_bytes || fail_at(r->d, A0404, shard_loc(r, shard), "%lld byte%s after the last tensor",
		(long long)(data_bytes - end), data_bytes - end == 1 ? "" : "s");
}

/* Appends the tensors of a parsed header to the model. */
static bool take_header(Reading *r, const Value *header, int shard, int64_t header_bytes, int64_t file_bytes)
{
	Model *m = &r->c->model;
	int64_t data_at = PREFIX_BYTES + header_bytes, data_bytes = file_bytes - data_at;
	StTensor *list = ARENA_ARRAY(&r->c->scratch, StTensor, header->n + 1);
	int n = 0;
	for (const Value *e = header->first; e; e = e->next) {
		if (strcmp(e->key, "__metadata__") == 0) {
			if (!check_metadata(r, shard, e))
				return false;
			continue;
		}
		list[n].shard = shard;
		if (!read_entry(r, e, &list[n], data_bytes))
			return false;
		n++;
	}
	if (!check_cover(r, list, n, shard, data_bytes))
		return false;
	for (int i = 0; i < n; i++) {
		list[i].name = arena_strdup(&r->c->arena, list[i].name);
		list[i].offset += data_at;
		*vec_push(&r->c->arena, &m->tensors) = list[i];
	}
	return true;
}

/* What makes no sense as a container: something else, if its first bytes say so. */
static bool fail_container(Reading *r, int shard, const char *why)
{
	const char *kind = foreign_kind(r->c->model.shards.at[shard].path);
	if (kind && strcmp(kind, SAFETENSORS_KIND) != 0)
		why = arena_printf(r->d->arena, "%s, not a safetensors file", kind);
	return fail_at(r->d, A0401, shard_loc(r, shard), "%s", why);
}

static bool read_header(Reading *r, int fd, int shard)
{
	const Shard *s = &r->c->model.shards.at[shard];
	Loc at = shard_loc(r, shard);
	unsigned char prefix[PREFIX_BYTES];
	uint64_t n = 0;
	if (s->bytes < PREFIX_BYTES)
		return fail_container(r, shard, arena_printf(r->d->arena, "%lld bytes: expected at least %d",
			(long long)s->bytes, PREFIX_BYTES));
	if (!input_pread(fd, prefix, PREFIX_BYTES, 0))
		return fail_at(r->d, A0102, at, "cannot be read: %s", errno ? strerror(errno) : "it became shorter meanwhile");
	for (int i = PREFIX_BYTES - 1; i >= 0; i--)
		n = n << 8 | prefix[i];
	if (n < 2 || n > MAX_HEADER_BYTES)
		return fail_container(r, shard, arena_printf(r->d->arena, "header length %llu: expected 2 to %d",
			(unsigned long long)n, MAX_HEADER_BYTES));
	if ((int64_t)n > s->bytes - PREFIX_BYTES)
		return fail_container(r, shard, arena_printf(r->d->arena, "header length %llu: the file has %lld bytes",
			(unsigned long long)n, (long long)s->bytes));
	char *text = arena_alloc(&r->c->scratch, (size_t)n + 1);
	if (!input_pread(fd, text, (size_t)n, PREFIX_BYTES))
		return fail_at(r->d, A0102, at, "cannot be read: %s", errno ? strerror(errno) : "it became shorter meanwhile");
	const char *name = arena_printf(r->d->arena, "%s: header", s->path);
	const Value *header = json_parse(&r->c->scratch, &r->c->scratch, r->d, &header_rules, name, text, (size_t)n);
	return header && take_header(r, header, shard, (int64_t)n, s->bytes);
}

/* Opens a shard and reads its header. False when anything is wrong, after having said so. */
static bool read_shard(Reading *r, const char *name, Loc wanted_at)
{
	Model *m = &r->c->model;
	Shard s = {.name = arena_strdup(&r->c->arena, name), .path = input_path(&r->c->arena, r->dir, name)};
	int fd = input_open(r->d, s.path, wanted_at.file != NULL, &s.bytes);
	if (fd == INPUT_ABSENT)
		return fail_at(r->d, A0407, wanted_at, "%s is missing: the index names it", s.path);
	if (fd < 0)
		return false;
	*vec_push(&r->c->arena, &m->shards) = s;
	bool ok = read_header(r, fd, m->shards.n - 1);
	close(fd);
	return ok;
}

/* Shards ---------------------------------------------------------------------------------------------------- */

typedef struct Placed { const char *name, *shard; Loc at; } Placed; /* a line of weight_map */

static int placed_by_name(const void *x, const void *y)
{
	return strcmp(((const Placed *)x)->name, ((const Placed *)y)->name);
}

static int placed_by_shard(const void *x, const void *y)
{
	int order = strcmp(((const Placed *)x)->shard, ((const Placed *)y)->shard);
	return order ? order : placed_by_name(x, y);
}

static bool is_plain_name(const char *name)
{
	for (const char *p = name; *p; p++)
		if (*p == '/' || *p == '\\' || (unsigned char)*p < ' ' || *p == 0x7f)
			return false;
	return *name && *name != '.' && strlen(name) <= 255;
}

/* The lines of weight_map, or NULL. */
static Placed *read_map(Reading *r, const Value *index, int *n)
{
	const Value *map = value_get(index, "weight_map");
	if (!map) {
		fail_at(r->d, A0406, index->at, "weight_map is missing");
		return NULL;
	}
	if (!want_table(r->d, A0406, "weight_map", map))
		return NULL;
	if (map->n == 0) {
		fail_at(r->d, A0406, map->at, "weight_map is empty");
		return NULL;
	}
	Placed *list = ARENA_ARRAY(&r->c->scratch, Placed, map->n);
	bool ok = true;
	*n = 0;
	for (const Value *v = map->first; v; v = v->next) {
		if (strlen(v->key) > MAX_NAME_BYTES) {
			ok = fail_at(r->d, A0406, v->at, "weight_map: tensor name of %zu bytes", strlen(v->key));
			continue;
		}
		const char *shown = arena_printf(r->d->arena, "weight_map.%s",
			clip_text(r->d->arena, v->key, strlen(v->key), 80));
		if (v->kind != VALUE_STRING)
			ok = want_string(r->d, A0406, shown, v, &shown);
		else if (!is_plain_name(v->string))
			ok = fail_at(r->d, A0406, v->at, "%s = %s: expected the plain name of a file in the folder", shown,
				entry_text(r, v));
		else
			list[(*n)++] = (Placed){v->key, v->string, v->at};
	}
	return ok ? list : NULL;
}

static int by_tensor_name(const void *x, const void *y)
{
	const StTensor *a = x, *b = y;
	int order = strcmp(a->name, b->name);
	return order ? order : a->shard - b->shard;
}

/* Of a tensor that several shards hold the index names the one that counts, as long as loaders that read the shards in
 * order of their names, the last copy winning, end with the same one: the copies before it are stale, as a note says.
 * Both lists are sorted, that of the tensors by name and then by shard; shards are in order of their names. */
static bool drop_stale(Reading *r, const Placed *map, int n_map)
{
	Model *m = &r->c->model;
	StTensor first = {0};
	const char *in_place = NULL;
	int n_stale = 0, kept = 0;
	bool ok = true;
	for (int i = 0, k = 0, end; i < m->tensors.n; i = end) {
		for (end = i + 1; end < m->tensors.n && strcmp(m->tensors.at[end].name, m->tensors.at[i].name) == 0;)
			end++;
		while (k < n_map && strcmp(map[k].name, m->tensors.at[i].name) < 0)
			k++;
		const StTensor *last = &m->tensors.at[end - 1], *meant = last;
		for (int j = i; end > i + 1 && k < n_map && j < end; j++)
			if (strcmp(map[k].name, last->name) == 0 &&
					strcmp(map[k].shard, m->shards.at[m->tensors.at[j].shard].name) == 0)
				meant = &m->tensors.at[j];
		if (meant != last && !same_contents(r->c, meant, last))
			ok = fail_at(r->d, A0407, map[k].at, "%s: the index assigns it to %s, but loaders that read the shards in "
				"order use the other copy, in %s", last->name, map[k].shard,
				m->shards.at[last->shard].name);
		if (end > i + 1 && !n_stale) {
			first = m->tensors.at[meant == &m->tensors.at[i] ? i + 1 : i];
			in_place = m->shards.at[meant->shard].name;
		}
		n_stale += end - i - 1;
		m->tensors.at[kept++] = *meant;
	}
	m->tensors.n = kept;
	if (n_stale && ok)
		note_at(r->d, A0410, shard_loc(r, first.shard), "%s%s: the index sends %s to %s%s, so that %s not read",
			first.name, n_stale > 1 ? arena_printf(r->d->arena, " and %d more", n_stale - 1) : "",
			n_stale > 1 ? "them" : "it", in_place, n_stale > 1 ? " and others" : "",
			n_stale > 1 ? "these copies are" : "this copy is");
	return ok;
}

/* Both lists sorted by name: what the index says must be what the headers say. */
static void compare_map(Reading *r, const Placed *map, int n_map)
{
	const Model *m = &r->c->model;
	int i = 0, j = 0;
	while (i < n_map || j < m->tensors.n) {
		const StTensor *t = j < m->tensors.n ? &m->tensors.at[j] : NULL;
		int order = i == n_map ? 1 : !t ? -1 : strcmp(map[i].name, t->name);
		if (order < 0) {
			fail_at(r->d, A0407, map[i].at, "%s is not in %s", map[i].name, map[i].shard);
			i++;
		} else if (order > 0) {
			fail_at(r->d, A0407, shard_loc(r, t->shard), "%s is not in the index", t->name);
			j++;
		} else {
			if (strcmp(map[i].shard, m->shards.at[t->shard].name) != 0)
				fail_at(r->d, A0407, map[i].at, "%s is not in %s but in %s", map[i].name, map[i].shard,
					m->shards.at[t->shard].name);
			i++;
			j++;
		}
	}
}

/* What else the index says. total_size is a sum by which loaders show their progress. */
static void check_rest(Reading *r, const Value *index)
{
	static const char *const known[][4] = {{"weight_map", "metadata"}, {"total_size", "total_parameters", "format"}};
	const Value *metadata = value_get(index, "metadata"), *v = value_get(metadata, "total_size");
	const Value *tables[] = {index, metadata};
	if (metadata && metadata->kind != VALUE_NULL)
		want_table(r->d, A0406, "metadata", metadata);
	for (int i = 0; i < 2; i++)
		for (const Value *e = tables[i] && tables[i]->kind == VALUE_TABLE ? tables[i]->first : NULL; e; e = e->next) {
			bool is_known = false;
			for (int k = 0; k < 4 && known[i][k]; k++)
				is_known |= strcmp(known[i][k], e->key) == 0;
			if (is_known)
				continue;
			note_at(r->d, A0207, e->at, "unknown keys are not used: %s%s", i ? "metadata." : "",
				clip_text(r->d->arena, e->key, strlen(e->key), 48));
			break;
		}
	int64_t total = 0;
	for (int i = 0; i < r->c->model.tensors.n; i++)
		total += r->c->model.tensors.at[i].bytes;
	const Value sum = {.kind = VALUE_INT, .integer = total};
	if (v && v->kind != VALUE_NULL && !value_equal(v, &sum)) /* writers that add in floating point say 251264.0 */
		note_at(r->d, A0408, v->at, "total_size = %s: the tensors have %lld bytes", entry_text(r, v),
			(long long)total);
}

static void read_sharded(Reading *r, const Value *index)
{
	Model *m = &r->c->model;
	int n;
	Placed *map = read_map(r, index, &n);
	if (!map)
		return;
	bool ok = true;
	qsort(map, (size_t)n, sizeof *map, placed_by_shard);
	for (int i = 0; i < n; i++) {
		if (i && strcmp(map[i].shard, map[i - 1].shard) == 0)
			continue;
		if (m->shards.n == MAX_SHARDS) {
			fail_at(r->d, A0406, map[i].at, "more than %d shards", MAX_SHARDS);
			return;
		}
		ok &= read_shard(r, map[i].shard, map[i].at);
	}
	if (!ok) /* a list with gaps would make every comparison wrong */
		return;
	qsort(map, (size_t)n, sizeof *map, placed_by_name);
	qsort(m->tensors.at, (size_t)m->tensors.n, sizeof m->tensors.at[0], by_tensor_name);
	if (drop_stale(r, map, n))
		compare_map(r, map, n);
	check_rest(r, index);
}

/* The file of kv.scales: its tensors are none of the checkpoint's. */
static void read_kv_scales(Reading *r)
{
	Model *m = &r->c->model;
	const Options *o = &m->options;
	const int first = m->tensors.n;
	Shard s = {.name = o->kv_scales, .path = o->kv_scales};
	if (!o->kv_scales)
		return;
	int fd = input_open(r->d, s.path, true, &s.bytes);
	if (fd == INPUT_ABSENT)
		fail_at(r->d, A0102, o->at_kv_scales, "kv.scales: there is no file %s", s.path);
	if (fd < 0)
		return;
	*vec_push(&r->c->arena, &m->shards) = s;
	read_header(r, fd, m->shards.n - 1);
	close(fd);
	for (int i = first; i < m->tensors.n; i++)
		*vec_push(&r->c->arena, &m->kv_scales) = m->tensors.at[i];
	m->tensors.n = first;
}

/* The pass ---------------------------------------------------------------------------------------------------- */

static void fail_no_weights(Reading *r, const char *path)
{
	const char *other = foreign_in_folder(&r->c->scratch, r->dir);
	if (other && strstr(other, "-of-") && strstr(other, ".safetensors"))
		fail_at(r->d, A0409, (Loc){path, 0, 0}, "no such file; %s is there, but not model.safetensors.index.json, "
			"which names the shards", other);
	else if (other)
		fail_at(r->d, A0409, (Loc){path, 0, 0}, "no such file; %s is there, but only safetensors of the Hugging Face "
			"layout are read", other);
	else
		fail_at(r->d, A0409, (Loc){path, 0, 0}, "no such file, and no model.safetensors.index.json either");
}

static void read_checkpoint(Reading *r)
{
	Model *m = &r->c->model;
	bool absent;
	const Value *index = json_read(&r->c->scratch, &r->c->scratch, r->d, &index_rules,
		input_path(&r->c->arena, r->dir, "model.safetensors.index.json"), &absent);
	r->has_index = index != NULL;
	if (index) {
		read_sharded(r, index);
	} else if (absent) {
		const char *path = input_path(&r->c->arena, r->dir, "model.safetensors");
		int64_t bytes;
		int fd = input_open(r->d, path, true, &bytes);
		if (fd == INPUT_ABSENT) {
			fail_no_weights(r, path);
			return;
		}
		if (fd < 0)
			return;
		*vec_push(&r->c->arena, &m->shards) = (Shard){"model.safetensors", path, bytes};
		read_header(r, fd, 0);
		close(fd);
		if (m->tensors.n)
			qsort(m->tensors.at, (size_t)m->tensors.n, sizeof m->tensors.at[0], by_tensor_name);
	}
}

/* read_weights - the tensors of the checkpoint.
 *
 *   needs   cmd.model_dir
 *   gives   Model.shards, Model.tensors sorted by name; with --random-weights, which have none, the seed as an option;
 *           Model.kv_scales
 *   fails   A0102, A0104, A0106, A04xx; the first mistake of each shard
 */
void read_weights(Compile *c)
{
	Reading r = {.c = c, .d = &c->diags, .dir = c->cmd.model_dir};
	if (c->cmd.random_weights)
		*vec_push(&c->arena, &c->model.options.resolved) = (Option){"weights.random_seed",
			arena_printf(&c->arena, "%" PRIu64, c->cmd.seed)};
	else
		read_checkpoint(&r);
	read_kv_scales(&r);
	if (c->model.tensors.n)
		note_neighbours(c, r.dir, r.has_index);
}

Loc loc_of(const Compile *c, const StTensor *t) { return (Loc){c->model.shards.at[t->shard].path, 0, 0}; }

Loc weight_loc(const Compile *c, const Weight *w)
{
	for (int i = 0; i < c->model.shards.n; i++)
		if (strcmp(c->model.shards.at[i].name, w->file) == 0)
			return (Loc){c->model.shards.at[i].path, 0, 0};
	bug("weight from unknown shard %s", w->file);
}

static bool read_part(Compile *c, int fd, const StTensor *t, int64_t at, void *dst, size_t n)
{
	return input_pread(fd, dst, n, t->offset + at) || fail_at(&c->diags, A0102,
		loc_of(c, t), "%s cannot be read: %s", t->name,
		errno ? strerror(errno) : "the file became shorter meanwhile");
}

bool read_tensor(Compile *c, const StTensor *t, void *dst)
{
	int64_t unused;
	int fd = input_open(&c->diags, c->model.shards.at[t->shard].path, false, &unused);
	bool ok = fd >= 0 && read_part(c, fd, t, 0, dst, (size_t)t->bytes);
	if (fd >= 0)
		close(fd);
	return ok;
}

bool same_contents(Compile *c, const StTensor *a, const StTensor *b)
{
	enum { PART_BYTES = 1 << 20 };
	if (strcmp(a->dtype_text, b->dtype_text) != 0 || a->n_dims != b->n_dims || a->bytes != b->bytes ||
			memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->n_dims) != 0)
		return false;
	int64_t unused;
	int fd_a = input_open(&c->diags, c->model.shards.at[a->shard].path, false, &unused);
	int fd_b = input_open(&c->diags, c->model.shards.at[b->shard].path, false, &unused);
	char *x = arena_alloc(&c->scratch, PART_BYTES), *y = arena_alloc(&c->scratch, PART_BYTES);
	bool same = fd_a >= 0 && fd_b >= 0;
	for (int64_t at = 0; at < a->bytes && same; at += PART_BYTES) {
		size_t n = (size_t)(a->bytes - at < PART_BYTES ? a->bytes - at : PART_BYTES);
		same = read_part(c, fd_a, a, at, x, n) && read_part(c, fd_b, b, at, y, n) && memcmp(x, y, n) == 0;
	}
	if (fd_a >= 0)
		close(fd_a);
	if (fd_b >= 0)
		close(fd_b);
	return same;
}
