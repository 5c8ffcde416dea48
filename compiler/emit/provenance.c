/* provenance.c - what a plan is made of, and with: the section of that name, from which `atlas info --sbom` writes.
 *
 * Tools are those that the bytes depend on; what this atlasc was built of, which they don't, `atlasc --version` says.
 * Templates and their headers are named with the hashes of their files,
 * so that it can be compared with the sources. Files that were read whole were noted when they were (input.c). Those of
 * weights are only hashed when asked for: reading them is most of what a compile with --weights ref does. Each weight
 * has its own hash in the plan all the same.
 */
#include "artifacts/hash.h"
#include "artifacts/parallel.h"
#include "compiler/ir.h"
#include "compiler/kernels/kernels.h"
#include "compiler/text/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION_BYTES = 32, STRETCH = 4 << 20 };
static const char own_licence[] = "Apache-2.0"; /* LICENSE */

typedef struct Origins { Compile *c; VEC(Origin) list; } Origins;

static void add(Origins *o, Origin new)
{
	const char **texts[] = {&new.version, &new.licence, &new.sha256, &new.detail};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		*texts[i] = *texts[i] ? *texts[i] : "";
	*vec_push(&o->c->arena, &o->list) = new;
}

static const char *hex(Origins *o, const uint8_t hash[32])
{
	char *text = arena_alloc(&o->c->arena, 65);
	for (int i = 0; i < 32; i++)
		sprintf(text + 2 * i, "%02x", hash[i]);
	return text;
}

/* Tools -------------------------------------------------------------------------------------------------- */

static const char *option_value(const Compile *c, const char *name)
{
	for (int i = 0; i < c->model.options.resolved.n; i++)
		if (strcmp(c->model.options.resolved.at[i].name, name) == 0)
			return c->model.options.resolved.at[i].value;
	return NULL;
}

/* The assembler that NVRTC holds leaves its version in what it makes: "... release 13.0, V13.0.88". NULL: no kernel. */
static const char *assembler_version(Compile *c)
{
	static const char mark[] = "release ";
	const char *at = c->cubins.n ? memmem(c->cubins.at, (size_t)c->cubins.n, mark, sizeof mark - 1) : NULL;
	if (!at)
		return NULL;
	size_t left = (size_t)((const char *)c->cubins.at + c->cubins.n - at);
	const char *v = memmem(at, left < 64 ? left : 64, ", V", 3);
	return v ? arena_strndup(&c->arena, v + 3, strspn(v + 3, "0123456789.")) : NULL;
}

static void add_tools(Origins *o)
{
	static const char nvidia[] = "LicenseRef-NVIDIA-CUDA-Toolkit-EULA";
	const char *assembler = assembler_version(o->c);
	add(o, (Origin){.kind = "compiler", .name = "atlasc", .version = ATLAS_VERSION, .licence = own_licence});
	if (assembler) {
		add(o, (Origin){.kind = "tool", .name = "nvrtc", .version = option_value(o->c, "tool.nvrtc"), .licence = nvidia,
			.detail = option_value(o->c, "tool.nvrtc_options")});
		add(o, (Origin){.kind = "tool", .name = "ptxas", .version = assembler, .licence = nvidia});
	}
}

/* Sources ------------------------------------------------------------------------------------------------- */

static void mark_sources(const TargetPlan *p, bool *is_used)
{
	for (int i = 0; i < p->n_kernels; i++)
		for (int t = 0; t < n_kernel_table; t++)
			for (int s = 0; strcmp(kernel_table[t].name, p->kernels[i].name) == 0 && s < kernel_table[t].n_sources; s++)
				for (int k = 0; k < n_template_sources; k++)
					is_used[k] |= strcmp(template_sources[k].name, kernel_table[t].sources[s]) == 0;
}

/* What the file itself says, else that of the project. */
static const char *licence_of(Origins *o, const char *text)
{
	static const char mark[] = "SPDX-License-Identifier: ";
	const char *at = strstr(text, mark);
	return at ? arena_strndup(&o->c->arena, at + sizeof mark - 1, strcspn(at + sizeof mark - 1, "\r\n*")) : own_licence;
}

static void add_sources(Origins *o)
{
	bool *is_used = ARENA_ARRAY(&o->c->scratch, bool, n_template_sources);
	for (int i = 0; i < o->c->work.n; i++) {
		mark_sources(&o->c->work.at[i].plan, is_used);
		mark_sources(&o->c->work.at[i].candidates, is_used);
	}
	for (int i = 0; i < n_template_sources; i++) {
		const char *text = template_sources[i].text;
		uint8_t hash[32];
		if (!is_used[i])
			continue;
		sha256_of(text, strlen(text), hash);
		add(o, (Origin){.kind = "source", .name = template_sources[i].name, .licence = licence_of(o, text),
			.sha256 = hex(o, hash), .bytes = (int64_t)strlen(text)});
	}
}

/* Files --------------------------------------------------------------------------------------------------- */

static int by_input_name(const void *a, const void *b)
{
	const InputFile *x = a, *y = b;
	int order = strcmp(x->name, y->name);
	return order ? order : memcmp(x->sha256, y->sha256, sizeof x->sha256);
}

static void add_inputs(Origins *o)
{
	Diags *d = &o->c->diags;
	const char *toml = o->c->model.options.text;
	for (int i = 0; i < d->n_inputs; i++)
		if (strcmp(d->inputs[i].name, "MODEL.toml") == 0 && toml) { /* as the plan records it: without paths */
			sha256_of(toml, strlen(toml), d->inputs[i].sha256);
			d->inputs[i].bytes = (int64_t)strlen(toml);
		}
	qsort(d->inputs, (size_t)d->n_inputs, sizeof d->inputs[0], by_input_name);
	for (int i = 0; i < d->n_inputs; i++)
		add(o, (Origin){.kind = "input", .name = d->inputs[i].name, .sha256 = hex(o, d->inputs[i].sha256),
			.bytes = d->inputs[i].bytes});
}

typedef struct FileHash { const Shard *file; uint8_t hash[32]; int error; /* errno; -1: it ends early */ } FileHash;

static void hash_file(void *ctx, int64_t i)
{
	FileHash *f = (FileHash *)ctx + i;
	uint8_t *stretch = malloc(STRETCH);
	int fd = stretch ? open(f->file->path, O_RDONLY | O_CLOEXEC) : -1;
	Sha256 h;
	sha256_start(&h);
	f->error = fd < 0 ? errno : 0;
	for (int64_t at = 0; !f->error && at < f->file->bytes; at += STRETCH) {
		int64_t n = f->file->bytes - at < STRETCH ? f->file->bytes - at : STRETCH;
		if (!input_pread(fd, stretch, (size_t)n, at))
			f->error = errno ? errno : -1;
		else
			sha256_add(&h, stretch, (size_t)n);
	}
	sha256_end(&h, f->hash);
	if (fd >= 0)
		close(fd);
	free(stretch);
}

static void add_weights(Origins *o)
{
	Compile *c = o->c;
	int n = c->model.shards.n;
	FileHash *files = ARENA_ARRAY(&c->scratch, FileHash, n);
	for (int i = 0; i < n; i++)
		files[i].file = &c->model.shards.at[i];
	if (c->cmd.hash_files)
		parallel_run(n, n - 1, hash_file, files);
	for (int i = 0; i < n; i++) {
		const Shard *s = files[i].file;
		const char *slash = strrchr(s->name, '/');
		if (files[i].error)
			fail_at(&c->diags, A0802, (Loc){s->path, 0, 0}, "cannot be read: %s",
				files[i].error < 0 ? "it became shorter meanwhile" : strerror(files[i].error));
		add(o, (Origin){.kind = "weights", .name = slash ? slash + 1 : s->name, .bytes = s->bytes,
			.sha256 = c->cmd.hash_files ? hex(o, files[i].hash) : NULL});
	}
}

Origin *list_origins(Compile *c, int *n)
{
	Origins o = {.c = c};
	add_tools(&o);
	add_sources(&o);
	add_inputs(&o);
	add_weights(&o);
	*n = o.list.n;
	return o.list.at;
}
