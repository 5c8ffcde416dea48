/* plan_write.c - write plan.bin: layout, weights, hashes, then the small sections and the manifest.
 *
 * The size of every section is known before its content is final, since hashes have a fixed size: so the file is
 * laid out first, weights are streamed to their place while they are hashed, and the graph section, which holds
 * their hashes, is packed again afterwards. The file appears under its name only when it is whole: written without
 * a name in the same folder, fsync, rename, fsync of the folder.
 */
#include "artifacts/plan.h"

#include "artifacts/hash.h"
#include "artifacts/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <msgpack.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 48, CHUNK_BYTES = 4 << 20, MAX_SECTIONS = 64, LAYOUT_ROUNDS = 8 };

typedef struct Piece { /* a section to be */
	char name[64];
	const void *bytes; /* NULL = weights */
	size_t n;
	bool is_owned;     /* bytes is ours to free */
} Piece;

typedef struct Writer {
	const PlanParts *parts;
	Graph graph;       /* the artifact's, with weights of our own to fill in hashes */
	Piece pieces[MAX_SECTIONS];
	Section sections[MAX_SECTIONS];
	int n;
	msgpack_sbuffer manifest;
	char tmp[4096];    /* the temporary file's name, once it has one */
	bool is_unnamed;
	bool holds_signals; /* until the temporary file is renamed or gone */
	sigset_t mask;      /* as it was before */
	int fd;
	char *why;
	size_t why_bytes;
} Writer;

static bool failed(Writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool failed(Writer *w, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsnprintf(w->why, w->why_bytes, fmt, args);
	va_end(args);
	return false;
}

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
		if (!x->file && x->offset + x->bytes > end)
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
	pack_one(add_piece(w, "contracts"), &contract_schema, a->contracts, a->n_contracts, true);
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
		ssize_t done = pwrite(w->fd, p, n, (off_t)at);
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

/* Signals that end a program wait while there is a file of a temporary name: it would be left behind. */
static void hold_signals(Writer *w)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &w->mask);
	w->holds_signals = true;
}

static void release_signals(Writer *w)
{
	if (w->holds_signals)
		sigprocmask(SIG_SETMASK, &w->mask, NULL);
	w->holds_signals = false;
}

/* Did a signal come that hold_signals keeps waiting? */
static bool is_interrupted(const Writer *w)
{
	sigset_t pending;
	return w->holds_signals && sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1
		|| sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGHUP) == 1);
}

static int compare_offset(const void *a, const void *b)
{
	const Weight *x = *(const Weight *const *)a, *y = *(const Weight *const *)b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* A hash that grows on a thread of its own: reading, writing and the two hashes of a weight take about the same time,
 * and of a large model minutes one after the other. Where no thread can be had the caller does the work. */
typedef struct HashLine {
	Sha256 hash;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const void *bytes; /* to be added; NULL = nothing is */
	size_t n;
	bool has_thread, ends;
} HashLine;

static void *hash_on_line(void *arg)
{
	HashLine *l = arg;
	pthread_mutex_lock(&l->lock);
	for (;;) {
		while (!l->bytes && !l->ends)
			pthread_cond_wait(&l->changed, &l->lock);
		if (!l->bytes)
			break;
		pthread_mutex_unlock(&l->lock);
		sha256_add(&l->hash, l->bytes, l->n);
		pthread_mutex_lock(&l->lock);
		l->bytes = NULL;
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void line_start(HashLine *l)
{
	*l = (HashLine){.bytes = NULL};
	sha256_start(&l->hash);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	l->has_thread = pthread_create(&l->thread, NULL, hash_on_line, l) == 0;
}

/* Until all that was given is in the hash. */
static void line_wait(HashLine *l)
{
	pthread_mutex_lock(&l->lock);
	while (l->bytes)
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

/* The bytes must stay until the next call of a line_ function returns. */
static void line_add(HashLine *l, const void *bytes, size_t n)
{
	if (!l->has_thread) {
		sha256_add(&l->hash, bytes, n);
		return;
	}
	line_wait(l);
	pthread_mutex_lock(&l->lock);
	l->bytes = bytes;
	l->n = n;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

static void line_end(HashLine *l)
{
	line_wait(l);
	pthread_mutex_lock(&l->lock);
	l->ends = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (l->has_thread)
		pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
}

static void line_zeros(HashLine *l, int64_t n)
{
	static const uint8_t zeros[PLAN_ALIGN];
	for (; n > 0; n -= PLAN_ALIGN)
		line_add(l, zeros, n < PLAN_ALIGN ? (size_t)n : PLAN_ALIGN);
}

typedef struct Stream {
	HashLine own, section; /* of the weight at hand; of all that is kept */
	uint8_t *chunk[2];     /* one is filled while the other is hashed */
	int side;
} Stream;

static bool stream_weight(Writer *w, int index, Stream *s, int64_t section_at)
{
	Weight *x = &w->graph.weights[index];
	bool is_kept = w->parts->embed_weights || !x->file;
	sha256_start(&s->own.hash);
	for (int64_t at = 0; at < x->bytes; s->side ^= 1) {
		uint8_t *chunk = s->chunk[s->side];
		size_t n = x->bytes - at < CHUNK_BYTES ? (size_t)(x->bytes - at) : CHUNK_BYTES;
		if (!w->parts->weights.read(w->parts->weights.ctx, index, at, chunk, n))
			return failed(w, "weight %s could not be read", x->name);
		if (is_interrupted(w))
			return failed(w, "interrupted");
		line_add(&s->own, chunk, n);
		if (is_kept) {
			line_add(&s->section, chunk, n);
			if (!write_at(w, section_at + x->offset + at, chunk, n))
				return false;
		} else {
			line_wait(&s->section); /* it may still be at the chunk before, which is filled again next */
		}
		at += (int64_t)n;
	}
	line_wait(&s->own);
	sha256_end(&s->own.hash, x->sha256);
	return true;
}

/* In order of offset; gaps are zero in the file (never written) and in the hash. */
static bool stream_weights(Writer *w, Section *section)
{
	int n = w->graph.n_weights;
	Stream s = {.chunk = {malloc(CHUNK_BYTES), malloc(CHUNK_BYTES)}};
	const Weight **order = malloc(sizeof *order * (size_t)(n + 1));
	bool ok = s.chunk[0] && s.chunk[1] && order;
	if (!ok)
		failed(w, "out of memory");
	for (int i = 0; ok && i < n; i++)
		order[i] = &w->graph.weights[i];
	if (ok)
		qsort(order, (size_t)n, sizeof *order, compare_offset);
	line_start(&s.own);
	line_start(&s.section);
	int64_t at = 0;
	for (int i = 0; ok && i < n; i++) {
		bool is_kept = w->parts->embed_weights || !order[i]->file;
		if (is_kept) {
			line_zeros(&s.section, order[i]->offset - at);
			at = order[i]->offset + order[i]->bytes;
		}
		ok = stream_weight(w, (int)(order[i] - w->graph.weights), &s, section->offset);
	}
	line_zeros(&s.section, section->bytes - at);
	line_end(&s.own);
	line_end(&s.section);
	sha256_end(&s.section.hash, section->sha256);
	free(order);
	free(s.chunk[0]);
	free(s.chunk[1]);
	return ok;
}

static bool write_header(Writer *w)
{
	uint8_t header[HEADER_BYTES] = PLAN_MAGIC;
	uint32_t words[2] = {PLAN_VERSION, (uint32_t)w->manifest.size};
	for (int i = 0; i < 2; i++)
		for (int b = 0; b < 4; b++)
			header[8 + 4 * i + b] = (uint8_t)(words[i] >> (8 * b));
	Sha256 root;
	sha256_start(&root);
	sha256_add(&root, header, 16);
	sha256_add(&root, w->manifest.data, w->manifest.size);
	sha256_end(&root, header + 16);
	return write_at(w, 0, header, HEADER_BYTES)
		&& write_at(w, HEADER_BYTES, w->manifest.data, w->manifest.size);
}

static bool write_content(Writer *w)
{
	const Section *last = &w->sections[w->n - 1];
	if (ftruncate(w->fd, (off_t)(last->offset + last->bytes)) != 0)
		return failed(w, "cannot be written: %s", strerror(errno));
	if (!stream_weights(w, &w->sections[w->n - 1]))
		return false;
	for (int i = 0; i < w->n - 1; i++) {
		Piece *p = &w->pieces[i];
		if (strcmp(p->name, "graph") == 0)
			pack_one(p, &graph_schema, &w->graph, 1, false);
		sha256_of(p->bytes, p->n, w->sections[i].sha256);
		if (!write_at(w, w->sections[i].offset, p->bytes, p->n))
			return false;
	}
	pack_manifest(w);
	if (!write_header(w))
		return false;
	return fsync(w->fd) == 0 || failed(w, "cannot be written: %s", strerror(errno));
}

static void folder_of(const char *path, char *folder, size_t bytes)
{
	const char *slash = strrchr(path, '/');
	snprintf(folder, bytes, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* A plan replaces a plan. Anything else of that name is not ours to replace: a device, or a link such as
 * /dev/stdout. */
static bool may_replace(Writer *w, const char *path)
{
	struct stat st;
	if (lstat(path, &st) != 0 || S_ISREG(st.st_mode))
		return true;
	return failed(w, "not a regular file but %s", S_ISDIR(st.st_mode) ? "a folder" :
		S_ISLNK(st.st_mode) ? "a symbolic link" : S_ISFIFO(st.st_mode) ? "a FIFO" :
		S_ISSOCK(st.st_mode) ? "a socket" : "a device");
}

/* A file without a name, where the file system has them: whatever ends the program, nothing is left. Elsewhere
 * signals wait. */
static bool open_temporary(Writer *w, const char *path)
{
	char folder[4096];
	if (!may_replace(w, path))
		return false;
	folder_of(path, folder, sizeof folder);
	int n = snprintf(w->tmp, sizeof w->tmp, "%s.tmp.XXXXXX", path);
	if (n < 0 || (size_t)n >= sizeof w->tmp)
		return failed(w, "the path is too long");
	w->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	w->is_unnamed = w->fd >= 0;
	if (w->fd < 0) {
		hold_signals(w);
		w->fd = mkstemp(w->tmp);
	}
	if (w->fd < 0)
		return failed(w, "cannot be written: %s", strerror(errno));
	return true;
}

static void sync_folder(const char *path)
{
	char folder[4096];
	folder_of(path, folder, sizeof folder);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd); /* a folder that cannot be synced is no reason to lose the file */
		close(fd);
	}
}

/* Gives the finished file a name of its own, then the one wanted: the old file stays until that instant. */
static bool finish(Writer *w, const char *path)
{
	if (w->is_unnamed) {
		char self[64];
		snprintf(self, sizeof self, "/proc/self/fd/%d", w->fd);
		snprintf(w->tmp, sizeof w->tmp, "%s.tmp.%d", path, (int)getpid());
		unlink(w->tmp);
		hold_signals(w);
		if (linkat(AT_FDCWD, self, AT_FDCWD, w->tmp, AT_SYMLINK_FOLLOW) != 0)
			return failed(w, "cannot be written: %s", strerror(errno));
		w->is_unnamed = false;
	} else {
		mode_t mask = umask(0);
		umask(mask);
		if (fchmod(w->fd, 0666 & ~mask) != 0)
			return failed(w, "cannot be written: %s", strerror(errno));
	}
	if (rename(w->tmp, path) != 0)
		return failed(w, "cannot be written: %s", strerror(errno));
	sync_folder(path);
	return true;
}

bool artifact_can_write(const char *path, char *why, size_t why_bytes)
{
	Writer w = {.fd = -1, .why = why, .why_bytes = why_bytes};
	bool ok = open_temporary(&w, path);
	if (ok && !w.is_unnamed)
		unlink(w.tmp);
	release_signals(&w);
	if (ok)
		close(w.fd);
	return ok;
}

bool artifact_write(const char *path, const PlanParts *parts, char *why, size_t why_bytes)
{
	Writer w = {.parts = parts, .graph = parts->artifact->graph, .fd = -1, .why = why, .why_bytes = why_bytes};
	if (3 + 3 * parts->artifact->n_targets + parts->n_blobs + 1 > MAX_SECTIONS)
		return failed(&w, "more than %d sections", MAX_SECTIONS);
	w.graph.weights = malloc(sizeof(Weight) * (size_t)(w.graph.n_weights + 1));
	if (!w.graph.weights)
		return failed(&w, "out of memory");
	memcpy(w.graph.weights, parts->artifact->graph.weights, sizeof(Weight) * (size_t)w.graph.n_weights);
	msgpack_sbuffer_init(&w.manifest);
	make_pieces(&w);
	lay_out(&w);
	bool ok = open_temporary(&w, path) && write_content(&w) && finish(&w, path);
	if (w.fd >= 0)
		close(w.fd);
	if (!ok && w.fd >= 0 && !w.is_unnamed)
		unlink(w.tmp);
	release_signals(&w);
	for (int i = 0; i < w.n; i++)
		if (w.pieces[i].is_owned)
			free((void *)(uintptr_t)w.pieces[i].bytes);
	msgpack_sbuffer_destroy(&w.manifest);
	free(w.graph.weights);
	return ok;
}
