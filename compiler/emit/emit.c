/* emit.c - gather what the passes made into one artifact and write it.
 *
 * Weights are copied from the checkpoint's shards in pieces and never held: the compiler's memory does not depend
 * on their size. Each piece is looked at for NaN and infinity on the way, since a broken weight is cheaper to find
 * here than in the text it produces. Codes and scales that [quant] asks for are made from them on the way.
 */
#include "artifacts/numbers.h"
#include "artifacts/parallel.h"
#include "artifacts/random_weights.h"
#include "artifacts/sign.h"
#include "compiler/graph/made_weights.h"
#include "compiler/graph/requant.h"
#include "compiler/graph/modules.h"
#include "compiler/pick/times.h"
#include "compiler/text/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Source {
	Compile *c;
	int shard, fd;      /* the open shard, -1 = none */
	int64_t done;       /* bytes read, for the progress bar */
	int64_t total;
	bool *is_reported;  /* [weights] a finding already reported */
	bool *has_value;    /* [weights] a byte that is not zero was seen */
	bool *is_scale;     /* [weights] of quantised weights: positive numbers */
	Requant *requant;
	RandomTables random;
} Source;

static Loc shard_loc(const Compile *c, int shard) { return (Loc){c->model.shards.at[shard].path, 0, 0}; }

static bool open_shard(Source *s, int shard)
{
	if (s->shard == shard)
		return true;
	if (s->fd >= 0)
		close(s->fd);
	const Shard *file = &s->c->model.shards.at[shard];
	struct stat st;
	s->shard = -1;
	s->fd = open(file->path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return fail_at(&s->c->diags, A0802, shard_loc(s->c, shard), "%s", strerror(errno));
	if (fstat(s->fd, &st) != 0 || st.st_size != (off_t)file->bytes)
		return fail_at(&s->c->diags, A0802, shard_loc(s->c, shard),
			"the file has %lld bytes now and had %lld when its header was read", (long long)st.st_size,
			(long long)file->bytes);
	s->shard = shard;
	return true;
}

static int shard_of(const Compile *c, const char *file)
{
	for (int i = 0; i < c->model.shards.n; i++)
		if (strcmp(c->model.shards.at[i].name, file) == 0)
			return i;
	bug("weight from unknown shard %s", file);
}

/* Of an element type with NaN or infinity, in each place of eight bytes. */
typedef struct Places {
	uint64_t exponent; /* bits that are all set there; of e4m3, which has numbers there too, all but the sign */
	uint64_t lowest;   /* of these: one more, and all set run over into the sign's place */
	uint64_t sign;
} Places;

static Places places(uint64_t every, uint64_t exponent, uint64_t lowest, uint64_t sign)
{
	return (Places){every * exponent, every * lowest, every * sign};
}

/* False of those that have neither, as far as they are no scales. */
static bool places_of(Dtype dtype, Places *p)
{
	const uint64_t bytes = 0x0101010101010101, halves = 0x0001000100010001, words = 0x0000000100000001;
	switch ((int)dtype) {
	case DT_e4m3: *p = places(bytes, 0x7f, 0x01, 0x80); return true;
	case DT_f16: *p = places(halves, 0x7c00, 0x0400, 0x8000); return true;
	case DT_bf16: *p = places(halves, 0x7f80, 0x0080, 0x8000); return true;
	case DT_f32: *p = places(words, 0x7f800000, 0x00800000, 0x80000000); return true;
	default: return false;
	}
}

/* Index of the first NaN or infinity among n elements, or -1. */
static int64_t first_non_finite(Dtype dtype, const uint8_t *bytes, int64_t n)
{
	Places p;
	if (!places_of(dtype, &p))
		return -1;
	const int64_t size = dtype_bytes(dtype), end = n * size;
	for (int64_t at = 0; at < end; at += 8) {
		uint64_t x = 0;
		if (end - at >= 8)
			memcpy(&x, bytes + at, 8);
		else
			memcpy(&x, bytes + at, (size_t)(end - at));
		const uint64_t found = ((x & p.exponent) + p.lowest) & p.sign;
		if (found)
			return (at + __builtin_ctzll(found) / 8) / size;
	}
	return -1;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	return n == 0 || (*bytes == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* False when what is there must not be used. */
static bool look_at(Source *s, int w, int64_t at, const void *bytes, size_t n)
{
	const Weight *x = &s->c->graph.weights[w];
	const int64_t first = dtype_count(x->dtype, at), count = dtype_count(x->dtype, (int64_t)n);
	int64_t bad;
	if (s->is_reported[w])
		return true;
	if (s->is_scale[w] && (bad = first_bad_scale(x->dtype, bytes, count)) >= 0) {
		float value;
		numbers_convert(x->dtype, bytes, bad, 1, &value);
		s->is_reported[w] = true;
		return fail_at(&s->c->diags, A0606, weight_loc(s->c, x), "tensor %s: element %lld of %lld is %g: expected a "
			"positive number", x->name, (long long)(first + bad), (long long)dtype_count(x->dtype, x->bytes),
			(double)value);
	}
	if (s->is_scale[w])
		return true;
	s->has_value[w] = s->has_value[w] || !is_zero(bytes, n);
	if (!s->has_value[w] && at + (int64_t)n == x->bytes && x->n_dims > 1) { /* biases may well be zero */
		s->is_reported[w] = true;
		note_at(&s->c->diags, A0803, weight_loc(s->c, x), "tensor %s is zero everywhere", x->name);
		return true;
	}
	bad = first_non_finite(x->dtype, bytes, count);
	if (bad < 0)
		return true;
	s->is_reported[w] = true;
	if (x->dtype == DT_e4m3) /* kernels make numbers of codes by their bits, so that one would be 480 */
		return fail_at(&s->c->diags, A0606, weight_loc(s->c, x), "tensor %s: element %lld of %lld is nan: expected a "
			"number", x->name, (long long)(first + bad), (long long)dtype_count(x->dtype, x->bytes));
	note_at(&s->c->diags, A0803, weight_loc(s->c, x), "tensor %s holds NaN or infinity, first at element %lld",
		x->name, (long long)(first + bad));
	return true;
}

static bool read_shard(Source *s, const Weight *x, int64_t at, void *dst, size_t n)
{
	int shard = shard_of(s->c, x->file);
	if (!open_shard(s, shard))
		return false;
	for (size_t got = 0; got < n;) {
		ssize_t r = pread(s->fd, (uint8_t *)dst + got, n - got, (off_t)(x->file_offset + at) + (off_t)got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return fail_at(&s->c->diags, A0802, shard_loc(s->c, shard), "tensor %s: %s at byte %lld", x->name,
				r < 0 ? strerror(errno) : "the file ends", (long long)(x->file_offset + at + (int64_t)got));
		got += (size_t)r;
	}
	return true;
}

static void count_done(Source *s, size_t n)
{
	s->done += (int64_t)n;
	if (s->c->progress)
		s->c->progress(s->c, "weights", s->done, s->total);
}

static const MadeProduct *made_of(const Compile *c, int w)
{
	for (int i = 0; i < c->made.n; i++) {
		const MadeProduct *p = &c->made.at[i];
		if (p->codes == w || p->scale == w || p->row_scale == w)
			return p;
	}
	return NULL;
}

static bool read_source(void *ctx, const Weight *source, int64_t at, void *dst, size_t n)
{
	return read_shard(ctx, source, at, dst, n);
}

/* Bytes of --random-weights, which follow from their place alone: by several threads. */
typedef struct Making {
	const RandomTables *tables;
	Weight weight;
	uint64_t seed;
	int64_t at;
	uint8_t *dst;
	size_t n;
} Making;

enum { MAKE_BYTES = 1 << 20 /* of a thread at a time */ };

static void make_piece(void *ctx, int64_t item)
{
	const Making *m = ctx;
	const size_t skip = (size_t)item * MAKE_BYTES, n = m->n - skip < MAKE_BYTES ? m->n - skip : MAKE_BYTES;
	random_bytes(m->tables, &m->weight, m->seed, m->at + (int64_t)skip, m->dst + skip, n);
}

static void make_random(const Making *m)
{
	const int64_t pieces = (int64_t)((m->n + MAKE_BYTES - 1) / MAKE_BYTES);
	parallel_run(pieces, (int)pieces - 1, make_piece, (void *)(uintptr_t)m);
}

/* A weight that lies in no file. */
static bool make_weight(Source *s, int w, int64_t at, void *dst, size_t n)
{
	Compile *c = s->c;
	for (int i = 0; i < c->constants.n; i++)
		if (c->constants.at[i].weight == w) {
			memcpy(dst, (const uint8_t *)c->constants.at[i].bytes + at, n);
			return true;
		}
	const MadeProduct *p = made_of(c, w);
	if (p && p->source.file) {
		if (!requant_bytes(c, s->requant, p, w, at, dst, n, &(SourceReader){read_source, s}))
			return false;
	} else if (c->cmd.random_weights) {
		make_random(&(Making){&s->random, random_weight_of(c, w), c->cmd.seed, at, dst, n});
	} else {
		bug("weight %s has no file and no value", c->graph.weights[w].name);
	}
	count_done(s, n);
	return true;
}

static bool read_weight(void *ctx, int w, int64_t at, void *dst, size_t n)
{
	Source *s = ctx;
	const Weight *x = &s->c->graph.weights[w];
	if (!x->file)
		return make_weight(s, w, at, dst, n);
	if (!read_shard(s, x, at, dst, n))
		return false;
	count_done(s, n);
	return look_at(s, w, at, dst, n);
}

/* Those that are scales of graph ops. */
static bool *find_scales(Compile *c)
{
	const Graph *g = &c->graph;
	bool *is_scale = ARENA_ARRAY(&c->scratch, bool, g->n_weights);
	for (int i = 0; i < g->n_ops; i++) {
		const OpInfo *info = &op_table[g->ops[i].kind];
		for (int k = 0; k < info->n_operands; k++)
			if (name_matches("*_scale", info->operands[k].name) && g->ops[i].operands[k] >= 0) {
				const Tensor *t = &g->tensors[g->ops[i].operands[k]];
				for (int w = 0; w < t->n_weights; w++)
					is_scale[t->weight + w] = true;
			}
	}
	return is_scale;
}

static int compare_option(const void *a, const void *b)
{
	return strcmp(((const Option *)a)->name, ((const Option *)b)->name);
}

static void fill_artifact(Compile *c, Artifact *a)
{
	int n = c->work.n;
	*a = (Artifact){.graph = c->graph, .n_targets = n, .targets = ARENA_ARRAY(&c->arena, TargetPlan, n),
		.ledger = ARENA_ARRAY(&c->arena, Slot *, n), .n_ledger = ARENA_ARRAY(&c->arena, int, n),
		.candidates = ARENA_ARRAY(&c->arena, TargetPlan, n),
		.ranks = c->ranks, .options = c->model.options.resolved.at, .n_options = c->model.options.resolved.n};
	a->contracts = list_contracts(c, &a->n_contracts);
	a->origins = list_origins(c, &a->n_origins);
	for (int i = 0; i < n; i++) {
		a->targets[i] = c->work.at[i].plan;
		a->ledger[i] = c->work.at[i].ledger.at;
		a->n_ledger[i] = c->work.at[i].ledger.n;
		a->candidates[i] = c->work.at[i].candidates;
	}
	if (a->n_options)
		qsort(a->options, (size_t)a->n_options, sizeof a->options[0], compare_option);
}

enum { MOST_KEYS = sizeof ((CommandLine *)0)->sign / sizeof ((CommandLine *)0)->sign[0] };

/* False after a key that cannot be used was reported; forget_keys in any case. */
static bool read_keys(Compile *c, PrivateKey keys[MOST_KEYS])
{
	int before = c->diags.n_errors;
	for (int i = 0; i < c->cmd.n_sign; i++) {
		char why[256] = "";
		Loc at = {c->cmd.sign[i], 0, 0};
		if (!key_read_private(c->cmd.sign[i], &keys[i], why, sizeof why)) {
			fail_at(&c->diags, A0107, at, "%s", why);
			continue;
		}
		for (int k = 0; k < i; k++)
			if (memcmp(keys[k].public_key, keys[i].public_key, sizeof keys[i].public_key) == 0)
				fail_at(&c->diags, A0107, at, "the key of %s again", c->cmd.sign[k]);
	}
	return c->diags.n_errors == before;
}

static void forget_keys(PrivateKey keys[MOST_KEYS])
{
	for (int i = 0; i < MOST_KEYS; i++)
		key_forget(&keys[i]);
}

void check_keys(Compile *c)
{
	PrivateKey keys[MOST_KEYS];
	read_keys(c, keys);
	forget_keys(keys);
}

static void record(Compile *c, const char *name, const char *value)
{
	*vec_push(&c->arena, &c->model.options.resolved) = (Option){name, value};
}

/* What the checkpoint's files have that nothing reads, a row for each code: for `atlas info` and policies. */
static void record_unread(Compile *c)
{
	const Diags *d = &c->diags;
	for (int i = 0; i < d->unread.n; i++) {
		const char *text = "";
		bool is_first = true;
		for (int k = 0; k < d->unread.n; k++) {
			if (d->unread.at[k].code != d->unread.at[i].code)
				continue;
			is_first &= k >= i;
			text = arena_printf(&c->arena, "%s%s%s", text, *text ? "; " : "", d->unread.at[k].text);
		}
		if (is_first)
			record(c, arena_printf(&c->arena, "note.%s", code_name(d->unread.at[i].code)), text);
	}
}

/* What made the plan, for `atlas verify --rebuild`. Of large inputs, the checkpoint and files of times and of scales,
 * there are hashes; no path is recorded. */
static void record_inputs(Compile *c)
{
	const char *tuning = c->cmd.tuning;
	record(c, "tool.atlasc", ATLAS_VERSION);
	record(c, "input.model_toml", c->model.options.text);
	const char *name = input_name(c->cmd.model_toml ? c->cmd.model_toml : "MODEL.toml", "MODEL.toml");
	if (c->model.options.rules.n && strcmp(name, "MODEL.toml") != 0) /* reasons in the ledger name it */
		record(c, "input.model_name", name);
	record(c, "input.tuning", !tuning ? "built in" : strcmp(tuning, "none") == 0 ? "none" : "file");
	if (c->cmd.cards)
		record(c, "input.card", c->cmd.cards);
	if (c->cmd.context)
		record(c, "input.context", arena_printf(&c->arena, "%d", c->cmd.context));
	if (c->cmd.slots)
		record(c, "input.slots", arena_printf(&c->arena, "%d", c->cmd.slots));
	if (c->cmd.candidates)
		record(c, "input.candidates", arena_printf(&c->arena, "%d", c->cmd.candidates));
	if (c->cmd.pruned)
		record(c, "input.pruned", "true");
	record(c, "output.weights", c->cmd.embed_weights ? "embed" : "ref");
	if (c->work.n)
		record_tools(c);
	record_tuning(c);
	record_unread(c);
}

/* emit - plan.bin.
 *
 *   needs   everything above
 *   gives   the file
 *   breaks  nothing
 *   fails   a weight that cannot be read, an output that cannot be written, a key that has gone; nothing is left behind
 */
void emit(Compile *c)
{
	int before = c->diags.n_errors;
	if (c->ranks.n)
		c->graph = c->whole;
	record_inputs(c);
	Artifact artifact;
	fill_artifact(c, &artifact);
	PlanBlob blobs[4];
	int n = 0;
	if (c->work.n)
		blobs[n++] = (PlanBlob){"cubins", c->cubins.at, (size_t)c->cubins.n};
	if (c->model.tokenizer)
		blobs[n++] = (PlanBlob){"tokenizer", c->model.tokenizer, c->model.tokenizer_bytes};
	if (c->model.chat_template)
		blobs[n++] = (PlanBlob){"chat_template", c->model.chat_template, strlen(c->model.chat_template)};
	if (c->model.chat_program)
		blobs[n++] = (PlanBlob){"chat_program", c->model.chat_program, c->model.chat_program_bytes};
	Source source = {.c = c, .shard = -1, .fd = -1,
		.is_reported = ARENA_ARRAY(&c->scratch, bool, c->graph.n_weights),
		.has_value = ARENA_ARRAY(&c->scratch, bool, c->graph.n_weights), .is_scale = find_scales(c),
		.requant = requant_new(&c->scratch)};
	for (int i = 0; i < c->graph.n_weights; i++)
		source.total += c->graph.weights[i].bytes;
	for (int i = 0; i < c->constants.n; i++)
		source.total -= c->graph.weights[c->constants.at[i].weight].bytes;
	random_tables(&source.random);
	PrivateKey keys[MOST_KEYS];
	PlanParts parts = {&artifact, blobs, n, c->cmd.embed_weights, {&source, read_weight}, keys, c->cmd.n_sign};
	char why[512] = "";
	bool ok = read_keys(c, keys) && c->diags.n_errors == before;
	if (ok && !artifact_write(c->cmd.output, &parts, why, sizeof why) && c->diags.n_errors == before)
		fail_at(&c->diags, A0103, (Loc){c->cmd.output, 0, 0}, "%s", why);
	forget_keys(keys);
	if (source.fd >= 0)
		close(source.fd);
	requant_release(source.requant);
}
