/* plan_write.c - write plan.bin: layout, weights, hashes, then the small sections, the manifest and signatures.
 *
 * The size of every section is known before its content is final, since hashes have a fixed size: so the file is
 * laid out first, weights are streamed to their place while their leaves are hashed by several threads, and the graph
 * section, which holds their hashes, is packed again afterwards. The file appears under its name only when it is
 * whole (new_file.h).
 */
#include "artifacts/op_table.h"
#include "artifacts/new_file.h"
#include "artifacts/parallel.h"
#include "artifacts/schema.h"
#include "artifacts/sign.h"
#include "artifacts/tree.h"
#include "artifacts/why.h"

#include <errno.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 48, END_BYTES = 16, CHUNK_BYTES = 16 * TREE_LEAF_BYTES, MAX_SECTIONS = 64, LAYOUT_ROUNDS = 8 };

typedef struct Piece { /* a section to be */
	char name[64];
	const void *bytes; /* NULL = weights */
	size_t n;
	bool is_owned;     /* bytes is ours to free */
} Piece;

typedef struct Writer {
	const PlanParts *parts;
	Graph graph;       /* the artifact's, with weights of our own to fill in hashes */
	uint8_t *leaves;   /* hashes, in order of weights */
	int64_t n_leaves;
	Piece pieces[MAX_SECTIONS];
	Section sections[MAX_SECTIONS];
	int n;
	msgpack_sbuffer manifest;
	NewFile file;
	char *why;
	size_t why_bytes;
} Writer;

#define failed(w, ...) say_why((w)->why, (w)->why_bytes, __VA_ARGS__)

/* Packing by schema ------------------------------------------------------------------------ */

static void pack_text(msgpack_packer *p, const char *s)
{
	msgpack_pack_str(p, strlen(s));
	msgpack_pack_str_body(p, s, strlen(s));
}

static int32_t int_at(const uint8_t *base, size_t offset)
{
	int32_t v;
	memcpy(&v, base + offset, sizeof v);
	return v;
}

static int64_t int64_at(const uint8_t *base, size_t offset)
{
	int64_t v;
	memcpy(&v, base + offset, sizeof v);
	return v;
}

static const void *pointer_at(const uint8_t *base, size_t offset)
{
	const void *v;
	memcpy(&v, base + offset, sizeof v);
	return v;
}

static void pack_float(msgpack_packer *p, const uint8_t *at)
{
	float v;
	memcpy(&v, at, sizeof v);
	msgpack_pack_float(p, v);
}

static void pack_double(msgpack_packer *p, const uint8_t *at)
{
	double v;
	memcpy(&v, at, sizeof v);
	msgpack_pack_double(p, v);
}

static void pack_attrs(msgpack_packer *p, OpKind op, const uint8_t *attrs)
{
	int n = 0;
	for (int i = 0; i < n_attr_fields; i++)
		n += op_has_attr(op, attr_fields[i].label);
	msgpack_pack_map(p, (size_t)n);
	for (int i = 0; i < n_attr_fields; i++) {
		if (!op_has_attr(op, attr_fields[i].label))
			continue;
		pack_text(p, attr_fields[i].name);
		if (attr_fields[i].kind == F_INT)
			msgpack_pack_int64(p, int_at(attrs, attr_fields[i].offset));
		else
			pack_float(p, attrs + attr_fields[i].offset);
	}
}

static void pack_struct(msgpack_packer *p, const Schema *s, const uint8_t *base);

static void pack_field(msgpack_packer *p, const Field *f, const uint8_t *base)
{
	const uint8_t *at = base + f->offset;
	int n = f->kind == F_INTS || f->kind == F_INT64S ? f->extra : f->count ? int_at(base, f->count) : 0;
	switch (f->kind) {
	case F_INT: msgpack_pack_int64(p, int_at(base, f->offset)); break;
	case F_INT64: msgpack_pack_int64(p, int64_at(base, f->offset)); break;
	case F_FLOAT: pack_float(p, at); break;
	case F_DOUBLE: pack_double(p, at); break;
	case F_ENUM: pack_text(p, enum_name((EnumKind)f->extra, int_at(base, f->offset))); break;
	case F_STR: pack_text(p, pointer_at(base, f->offset)); break;
	case F_STR_OPT:
		if (pointer_at(base, f->offset))
			pack_text(p, pointer_at(base, f->offset));
		else
			msgpack_pack_nil(p);
		break;
	case F_SHA:
		msgpack_pack_bin(p, 32);
		msgpack_pack_bin_body(p, at, 32);
		break;
	case F_DIMS: case F_INT64S:
		msgpack_pack_array(p, (size_t)n);
		for (int i = 0; i < n; i++)
			msgpack_pack_int64(p, int64_at(at, (size_t)i * sizeof(int64_t)));
		break;
	case F_INTS: case F_INT_LIST:
		if (f->kind == F_INT_LIST)
			at = pointer_at(base, f->offset);
		msgpack_pack_array(p, (size_t)n);
		for (int i = 0; i < n; i++)
			msgpack_pack_int64(p, int_at(at, (size_t)i * sizeof(int)));
		break;
	case F_LIST:
		at = pointer_at(base, f->offset);
		msgpack_pack_array(p, (size_t)n);
		for (int i = 0; i < n; i++)
			pack_struct(p, f->of, at + (size_t)i * f->of->bytes);
		break;
	case F_OPERANDS: {
		const GraphOp *op = (const GraphOp *)(const void *)base;
		msgpack_pack_array(p, (size_t)op_table[op->kind].n_operands);
		for (int i = 0; i < op_table[op->kind].n_operands; i++)
			msgpack_pack_int64(p, op->operands[i]);
		break;
	}
	case F_ATTRS: pack_attrs(p, ((const GraphOp *)(const void *)base)->kind, at); break;
	}
}

static void pack_struct(msgpack_packer *p, const Schema *s, const uint8_t *base)
{
	msgpack_pack_map(p, (size_t)s->n_fields);
	for (int i = 0; i < s->n_fields; i++) {
		pack_text(p, s->fields[i].name);
		pack_field(p, &s->fields[i], base);
	}
}

/* Sections ----------------------------------------------------------------------------------- */

static Piece *add_piece(Writer *w, const char *name)
{
	Piece *p = &w->pieces[w->n++];
	snprintf(p->name, sizeof p->name, "%s", name);
	return p;
}

static void take_buffer(Piece *p, msgpack_sbuffer *b)
{
	if (p->is_owned)
		free((void *)(uintptr_t)p->bytes);
	p->n = b->size;
	p->bytes = msgpack_sbuffer_release(b);
	p->is_owned = true;
}

static void pack_one(Piece *piece, const Schema *s, const void *value, int n, bool is_list)
{
	msgpack_sbuffer b;
	msgpack_packer p;
	msgpack_sbuffer_init(&b);
	msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
	if (is_list)
		msgpack_pack_array(&p, (size_t)n);
	for (int i = 0; i < n; i++)
		pack_struct(&p, s, (const uint8_t *)value + (size_t)i * s->bytes);
	take_buffer(piece, &b);
}

static void pack_options(Piece *piece, const Artifact *a)
{
	msgpack_sbuffer b;
	msgpack_packer p;
	msgpack_sbuffer_init(&b);
	msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
	msgpack_pack_map(&p, (size_t)a->n_options);
	for (int i = 0; i < a->n_options; i++) {
		pack_text(&p, a->options[i].name);
		pack_text(&p, a->options[i].value);
	}
	take_buffer(piece, &b);
}

static int64_t weight_section_bytes(const Writer *w)
{
	int64_t end = 0;
	if (w->parts->embed_weights)
		return w->graph.weight_arena_bytes;
	for (int i = 0; i < w->graph.n_weights; i++) {
		const Weight *x = &w->graph.weights[i];
		if (!x->file && !x->made && x->offset + x->bytes > end)
			end = x->offset + x->bytes;
	}
	return end;
}

static bool has_candidates(const Artifact *a, int target)
{
	return a->candidates && a->candidates[target].n_kernels;
}

static void make_pieces(Writer *w)
{
	const Artifact *a = w->parts->artifact;
	char name[64];
	pack_options(add_piece(w, "options"), a);
	pack_one(add_piece(w, "graph"), &graph_schema, &w->graph, 1, false);
	if (a->ranks.n)
		pack_one(add_piece(w, "ranks"), &ranks_schema, &a->ranks, 1, false);
	pack_one(add_piece(w, "contracts"), &contract_schema, a->contracts, a->n_contracts, true);
	pack_one(add_piece(w, "provenance"), &origin_schema, a->origins, a->n_origins, true);
	for (int i = 0; i < a->n_targets; i++) {
		snprintf(name, sizeof name, "plan.%s", a->targets[i].target);
		pack_one(add_piece(w, name), &target_plan_schema, &a->targets[i], 1, false);
		snprintf(name, sizeof name, "audit.%s", a->targets[i].target);
		pack_one(add_piece(w, name), &slot_schema, a->ledger[i], a->n_ledger[i], true);
		if (!has_candidates(a, i))
			continue;
		snprintf(name, sizeof name, "candidates.%s", a->targets[i].target);
		pack_one(add_piece(w, name), &target_plan_schema, &a->candidates[i], 1, false);
	}
	for (int i = 0; i < w->parts->n_blobs; i++) {
		Piece *p = add_piece(w, w->parts->blobs[i].name);
		p->bytes = w->parts->blobs[i].bytes;
		p->n = w->parts->blobs[i].n;
	}
	if (w->n_leaves) {
		Piece *p = add_piece(w, "leaves");
		p->bytes = w->leaves;
		p->n = (size_t)w->n_leaves * HASH_BYTES;
	}
	add_piece(w, "weights")->n = (size_t)weight_section_bytes(w);
}

static int64_t align_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static void pack_manifest(Writer *w)
{
	msgpack_packer p;
	msgpack_sbuffer_clear(&w->manifest);
	msgpack_packer_init(&p, &w->manifest, msgpack_sbuffer_write);
	msgpack_pack_map(&p, 1);
	pack_text(&p, "sections");
	msgpack_pack_array(&p, (size_t)w->n);
	for (int i = 0; i < w->n; i++)
		pack_struct(&p, &section_schema, (const uint8_t *)&w->sections[i]);
}

/* Offsets depend on the manifest's length and its length on the offsets: repeat until they agree. */
static void lay_out(Writer *w)
{
	size_t length = 0;
	for (int round = 0; round < LAYOUT_ROUNDS; round++) {
		int64_t at = HEADER_BYTES + (int64_t)length;
		for (int i = 0; i < w->n; i++) {
			at = align_up(at, PLAN_ALIGN);
			w->sections[i].name = w->pieces[i].name;
			w->sections[i].offset = at;
			w->sections[i].bytes = (int64_t)w->pieces[i].n;
			at += w->sections[i].bytes;
		}
		pack_manifest(w);
		if (w->manifest.size == length)
			return;
		length = w->manifest.size;
	}
}

/* Writing -------------------------------------------------------------------------------------- */

static bool write_at(Writer *w, int64_t at, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	while (n) {
		ssize_t done = pwrite(w->file.fd, p, n, (off_t)at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return failed(w, "cannot be written: %s", strerror(errno));
		p += done;
		n -= (size_t)done;
		at += done;
	}
	return true;
}

static int compare_offset(const void *a, const void *b)
{
	const Weight *x = *(const Weight *const *)a, *y = *(const Weight *const *)b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Leaves of a chunk, hashed while the next one is read. */
typedef struct Chunk {
	uint8_t *bytes;
	int64_t n;
	uint8_t *leaves; /* where their hashes go */
	Parallel hashing;
} Chunk;

static void hash_leaf(void *ctx, int64_t i)
{
	const Chunk *c = ctx;
	int64_t at = i * TREE_LEAF_BYTES, left = c->n - at;
	tree_leaf(c->bytes + at, (size_t)(left < TREE_LEAF_BYTES ? left : TREE_LEAF_BYTES), c->leaves + i * HASH_BYTES);
}

typedef struct Stream {
	Chunk chunk[2]; /* one is filled while the other is hashed */
	int side;
} Stream;

static bool stream_weight(Writer *w, int index, Stream *s, int64_t section_at, uint8_t *leaves)
{
	const Weight *x = &w->graph.weights[index];
	bool is_kept = w->parts->embed_weights || !x->file;
	if (x->made) /* of what is made at open there is nothing to write or to hash */
		return true;
	for (int64_t at = 0; at < x->bytes; s->side ^= 1) {
		Chunk *c = &s->chunk[s->side];
		parallel_wait(&c->hashing);
		c->n = x->bytes - at < CHUNK_BYTES ? x->bytes - at : CHUNK_BYTES;
		if (!w->parts->weights.read(w->parts->weights.ctx, index, at, c->bytes, (size_t)c->n))
			return failed(w, "weight %s could not be read", x->name);
		if (new_file_is_interrupted(&w->file))
			return failed(w, "interrupted");
		c->leaves = leaves + at / TREE_LEAF_BYTES * HASH_BYTES;
		int64_t n = tree_n_leaves(c->n);
		parallel_start(&c->hashing, n, (int)n - 1, hash_leaf, c);
		if (is_kept && !write_at(w, section_at + x->offset + at, c->bytes, (size_t)c->n))
			return false;
		at += c->n;
	}
	return true;
}

/* Of weights that are kept, in order of offset. */
static void hash_section(Writer *w, const Weight **order, Section *section)
{
	TreeTop t;
	uint8_t top[HASH_BYTES];
	tree_start(&t);
	for (int i = 0; i < w->graph.n_weights; i++)
		if (!order[i]->made && (w->parts->embed_weights || !order[i]->file))
			tree_add(&t, order[i]->hash);
	tree_end(&t, top);
	tree_section(section->name, section->bytes, top, section->hash);
}

/* In order of offset; gaps are zero in the file, never written. */
static bool stream_weights(Writer *w, Section *section)
{
	int n = w->graph.n_weights;
	Stream s = {.chunk = {{.bytes = malloc(CHUNK_BYTES)}, {.bytes = malloc(CHUNK_BYTES)}}};
	const Weight **order = malloc(sizeof *order * (size_t)(n + 1));
	int64_t *first = malloc(sizeof *first * (size_t)(n + 1));
	bool ok = s.chunk[0].bytes && s.chunk[1].bytes && order && first;
	if (!ok)
		failed(w, "out of memory");
	for (int i = 0; ok && i < n; i++) {
		order[i] = &w->graph.weights[i];
		first[i] = i ? first[i - 1] + weight_leaves(&w->graph.weights[i - 1]) : 0;
	}
	if (ok)
		qsort(order, (size_t)n, sizeof *order, compare_offset);
	for (int i = 0; ok && i < n; i++) {
		int index = (int)(order[i] - w->graph.weights);
		ok = stream_weight(w, index, &s, section->offset, w->leaves + first[index] * HASH_BYTES);
	}
	for (int i = 0; i < 2; i++)
		parallel_wait(&s.chunk[i].hashing);
	for (int i = 0; ok && i < n; i++) {
		Weight *x = &w->graph.weights[i];
		if (x->made)
			continue;
		tree_top(w->leaves + first[i] * HASH_BYTES, tree_n_leaves(x->bytes), x->hash);
	}
	if (ok)
		hash_section(w, order, section);
	free(order);
	free(first);
	free(s.chunk[0].bytes);
	free(s.chunk[1].bytes);
	return ok;
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int b = 0; b < 4; b++)
		p[b] = (uint8_t)(v >> (8 * b));
}

static int compare_signatures(const void *a, const void *b)
{
	return memcmp(a, b, PUBLIC_KEY_BYTES);
}

static bool write_signatures(Writer *w, const uint8_t root[HASH_BYTES])
{
	PlanSignature signatures[PLAN_MAX_SIGNATURES];
	uint8_t end[END_BYTES] = {0};
	const Section *last = &w->sections[w->n - 1];
	int64_t at = align_up(last->offset + last->bytes, PLAN_ALIGN);
	int n = w->parts->n_keys;
	for (int i = 0; i < n; i++) {
		memcpy(signatures[i].public_key, w->parts->keys[i].public_key, PUBLIC_KEY_BYTES);
		if (!sign_bytes(&w->parts->keys[i], PLAN_DOMAIN, root, HASH_BYTES, signatures[i].signature))
			return failed(w, "out of memory");
	}
	qsort(signatures, (size_t)n, sizeof signatures[0], compare_signatures);
	put_u32(end, (uint32_t)n);
	memcpy(end + 8, PLAN_END, 8);
	return write_at(w, at, signatures, sizeof signatures[0] * (size_t)n) &&
		write_at(w, at + (int64_t)sizeof signatures[0] * n, end, sizeof end);
}

static bool write_header(Writer *w)
{
	uint8_t header[HEADER_BYTES] = PLAN_MAGIC;
	put_u32(header + 8, PLAN_VERSION);
	put_u32(header + 12, (uint32_t)w->manifest.size);
	tree_root(header, w->manifest.data, w->manifest.size, header + 16);
	return write_at(w, 0, header, HEADER_BYTES) &&
		write_at(w, HEADER_BYTES, w->manifest.data, w->manifest.size) && write_signatures(w, header + 16);
}

static bool write_content(Writer *w)
{
	if (!stream_weights(w, &w->sections[w->n - 1]))
		return false;
	for (int i = 0; i < w->n - 1; i++) {
		Piece *p = &w->pieces[i];
		if (strcmp(p->name, "graph") == 0)
			pack_one(p, &graph_schema, &w->graph, 1, false);
		tree_section_of(p->name, p->bytes, (int64_t)p->n, w->sections[i].hash);
		if (!write_at(w, w->sections[i].offset, p->bytes, p->n))
			return false;
	}
	pack_manifest(w);
	return write_header(w);
}

bool artifact_can_write(const char *path, char *why, size_t why_bytes)
{
	return new_file_may_begin(path, why, why_bytes);
}

bool artifact_write(const char *path, const PlanParts *parts, char *why, size_t why_bytes)
{
	Writer w = {.parts = parts, .graph = parts->artifact->graph, .why = why, .why_bytes = why_bytes};
	if (5 + 3 * parts->artifact->n_targets + parts->n_blobs + 2 > MAX_SECTIONS)
		return failed(&w, "more than %d sections", MAX_SECTIONS);
	if (parts->n_keys > PLAN_MAX_SIGNATURES)
		return failed(&w, "more than %d signatures", PLAN_MAX_SIGNATURES);
	for (int i = 0; i < w.graph.n_weights; i++)
		w.n_leaves += weight_leaves(&w.graph.weights[i]);
	w.graph.weights = malloc(sizeof(Weight) * (size_t)(w.graph.n_weights + 1));
	w.leaves = malloc((size_t)w.n_leaves * HASH_BYTES + 1);
	if (!w.graph.weights || !w.leaves) {
		free(w.graph.weights);
		free(w.leaves);
		return failed(&w, "out of memory");
	}
	memcpy(w.graph.weights, parts->artifact->graph.weights, sizeof(Weight) * (size_t)w.graph.n_weights);
	msgpack_sbuffer_init(&w.manifest);
	make_pieces(&w);
	lay_out(&w);
	bool ok = new_file_begin(&w.file, path, why, why_bytes);
	if (ok && write_content(&w))
		ok = new_file_end(&w.file);
	else if (ok) {
		new_file_abandon(&w.file);
		ok = false;
	}
	for (int i = 0; i < w.n; i++)
		if (w.pieces[i].is_owned)
			free((void *)(uintptr_t)w.pieces[i].bytes);
	msgpack_sbuffer_destroy(&w.manifest);
	free(w.graph.weights);
	free(w.leaves);
	return ok;
}
