/* foreign_files.c - weight files that are not read (see foreign_files.h).
 *
 * A folder often holds more than one model's worth of weights: an adapter that other loaders apply on top, the same
 * weights in the writer's own layout (consolidated.safetensors, original/), a copy in half precision, pickles of
 * PyTorch. Nothing of it is read here; a note says so, since the folder then means one thing here, another elsewhere.
 */
#include "compiler/read/foreign_files.h"
#include "compiler/text/input.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef VEC(const char *) Names;

/* By its first bytes ------------------------------------------------------------------------------------------- */

#define PICKLE "a pickle, as PyTorch writes .bin and .pth files"

const char *foreign_kind(const char *path)
{
	static const struct { const char *magic; int n, at; const char *kind; } kinds[] = {
		{"GGUF", 4, 0, "a GGUF file"}, {"ggjt", 4, 0, "a GGML file"}, {"tjgg", 4, 0, "a GGML file"},
		{"PK\3\4", 4, 0, "a zip archive, as PyTorch writes .bin and .pth files"},
		{"\x80\x02", 2, 0, PICKLE}, {"\x80\x03", 2, 0, PICKLE}, {"\x80\x04", 2, 0, PICKLE}, {"\x80\x05", 2, 0, PICKLE},
		{LFS_POINTER, sizeof LFS_POINTER - 1, 0, "a Git LFS pointer, whose file `git lfs pull` fetches"},
		{"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file"}, {"ustar", 5, 257, "a tar archive"},
		{"\x1f\x8b", 2, 0, "a gzip archive"}, {"\x28\xb5\x2f\xfd", 4, 0, "a Zstandard archive"},
		{PLAN_MAGIC, sizeof PLAN_MAGIC - 1, 0, "a plan"}};
	enum { HEAD = 262 };
	char head[HEAD] = {0};
	Arena a = {0};
	Diags unused = {.arena = &a};
	int64_t bytes;
	int fd = input_open(&unused, path, true, &bytes);
	const char *kind = NULL;
	const size_t n = fd < 0 ? 0 : bytes < HEAD ? (size_t)bytes : HEAD;
	bool is_read = fd >= 0 && input_pread(fd, head, n, 0);
	if (is_read && n > 8 && head[8] == '{' && !head[7] && !head[6])
		kind = SAFETENSORS_KIND;
	if (is_read)
		for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !kind; i++)
			if (n >= (size_t)(kinds[i].at + kinds[i].n) &&
					memcmp(head + kinds[i].at, kinds[i].magic, (size_t)kinds[i].n) == 0)
				kind = kinds[i].kind;
	if (fd >= 0)
		close(fd);
	arena_release(&a);
	return kind;
}

/* By name ------------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *tail)
{
	const size_t n = strlen(name), k = strlen(tail);
	return n > k && strcmp(name + n - k, tail) == 0;
}

static bool begins_with(const char *name, const char *head) { return strncmp(name, head, strlen(head)) == 0; }

static bool is_adapter(const char *name)
{
	return begins_with(name, "adapter_config.") || begins_with(name, "adapter_model");
}

/* What a trainer goes on from: no loader takes weights from it. */
static bool is_of_training(const char *name)
{
	static const char *const heads[] = {"optimizer.", "scheduler.", "scaler.", "rng_state", "training_args."};
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
		if (begins_with(name, heads[i]))
			return true;
	return false;
}

/* Weights that something else reads. Of ".bin" there are other files too. */
static bool is_foreign(const char *name)
{
	if (is_of_training(name))
		return false;
	static const char *const tails[] = {".gguf", ".ggml", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".onnx", ".nemo",
		".tar", ".tar.gz", ".tgz", ".zip", ".bin.index.json"};
	for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
		if (ends_with(name, tails[i]))
			return true;
	return ends_with(name, ".bin") && (strstr(name, "model") || strstr(name, "consolidated"));
}

static bool is_safetensors(const char *name)
{
	return ends_with(name, ".safetensors") || (ends_with(name, ".json") && strstr(name, ".safetensors.index."));
}

static int by_text(const void *x, const void *y) { return strcmp(*(char *const *)x, *(char *const *)y); }

static bool is_sound_name(const char *name)
{
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return false;
	return *name != '.';
}

/* Names of a folder in order; none where it cannot be read. */
static Names list_folder(Arena *a, const char *path)
{
	Names names = {0};
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (is_sound_name(e->d_name))
			*vec_push(a, &names) = arena_strdup(a, e->d_name);
	if (dir)
		closedir(dir);
	if (names.n)
		qsort(names.at, (size_t)names.n, sizeof names.at[0], by_text);
	return names;
}

const char *foreign_in_folder(Arena *a, const char *dir)
{
	Names names = list_folder(a, dir);
	for (int i = 0; i < names.n; i++)
		if (is_foreign(names.at[i]) || ends_with(names.at[i], ".safetensors"))
			return names.at[i];
	return NULL;
}

/* Next to the weights -------------------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool holds_weights(Arena *a, const char *path)
{
	Names names = list_folder(a, path);
	for (int i = 0; i < names.n; i++)
		if (is_safetensors(names.at[i]) || is_foreign(names.at[i]) || is_adapter(names.at[i]))
			return true;
	return false;
}

static bool is_shard(const Compile *c, const char *name)
{
	for (int i = 0; i < c->model.shards.n; i++) {
		const char *path = c->model.shards.at[i].name, *slash = strrchr(path, '/'); /* that of kv.scales is a path */
		if (strcmp(name, slash ? slash + 1 : path) == 0)
			return true;
	}
	return false;
}

/* A container of other things than weights, such as scales of a cache: no name in its header says "weight". One that
 * cannot be read is none. */
static bool holds_no_weights(Arena *a, const char *path)
{
	enum { PREFIX = 8, MAX_BYTES = 100 * 1000 * 1000 };
	Diags unused = {.arena = a};
	int64_t bytes;
	uint64_t n = 0;
	unsigned char prefix[PREFIX];
	bool is_sound = false;
	char *text = NULL;
	int fd = input_open(&unused, path, true, &bytes);
	if (fd >= 0 && bytes > PREFIX && input_pread(fd, prefix, PREFIX, 0)) {
		for (int i = PREFIX - 1; i >= 0; i--)
			n = n << 8 | prefix[i];
		is_sound = n >= 2 && n <= MAX_BYTES && (int64_t)n <= bytes - PREFIX;
		text = is_sound ? arena_alloc(a, (size_t)n + 1) : NULL;
		is_sound = text && input_pread(fd, text, (size_t)n, PREFIX) && *text == '{' && strlen(text) == n;
	}
	if (fd >= 0)
		close(fd);
	return is_sound && !strstr(text, "weight");
}

/* One note for all files of a kind, at the first of them. */
static void report(Compile *c, const char *dir, const Names *names, const char *what)
{
	if (names->n)
		note_at(&c->diags, A0408, (Loc){input_path(c->diags.arena, dir, names->at[0]), 0, 0}, "not read%s: %s",
			names->n == 1 ? "" : names->n == 2 ? arena_printf(c->diags.arena, ", nor is %s", names->at[1])
			: arena_printf(c->diags.arena, ", nor are %s and %d more", names->at[1], names->n - 2), what);
}

void note_neighbours(Compile *c, const char *dir, bool has_index)
{
	Arena *a = &c->scratch;
	Names all = list_folder(a, dir), adapters = {0}, strangers = {0}, foreign = {0}, folders = {0}, settings = {0};
	Names whole = {0}; /* what loaders that look for one file first take in place of the index's shards */
	for (int i = 0; i < all.n; i++) {
		const char *name = all.at[i], *path = input_path(a, dir, name);
		Names *kind = is_adapter(name) ? &adapters
			: ends_with(name, ".safetensors")
			? is_shard(c, name) || (!has_index && holds_no_weights(a, path)) ? NULL
				: has_index && strcmp(name, "model.safetensors") == 0 ? &whole : &strangers
			: is_safetensors(name) && strcmp(name, "model.safetensors.index.json") != 0 ? &strangers
			: is_foreign(name) ? &foreign
			: strcmp(name, "quantize_config.json") == 0 || strcmp(name, "quant_config.json") == 0 ? &settings : NULL;
		if (is_folder(path))
			kind = holds_weights(a, path) ? &folders : NULL;
		if (kind)
			*vec_push(a, kind) = name;
	}
	report(c, dir, &adapters, "an adapter, which other loaders apply to the weights: merge it into them if it belongs "
		"to the model");
	report(c, dir, &whole, "the index does not name it, and transformers takes it in place of the index's shards: only "
		"one of them should be there");
	report(c, dir, &strangers, has_index ? "the index does not name it" : "the weights are those of model.safetensors");
	report(c, dir, &foreign, "only safetensors are, and other loaders may take these weights in their place");
	report(c, dir, &folders, "a folder with other weights");
	report(c, dir, &settings, "what quantization_config in config.json says counts");
}
