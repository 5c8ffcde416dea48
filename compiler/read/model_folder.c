/* model_folder.c - the folder that MODEL_DIR means (see model_folder.h).
 *
 * A checkpoint's folder has config.json. What the hub's client keeps is laid out so:
 *
 *   models--ORG--NAME/refs/main             the hash of a revision, as text
 *   models--ORG--NAME/snapshots/HASH/...    the checkpoint's folder of that revision, links to ../../blobs/...
 *   models--ORG--NAME/blobs/...             the files' contents
 *
 * Where the folder given is one of these, or holds exactly one, the snapshot takes its place from here on, so that
 * everything, the plan included, is what it is when that folder is named.
 */
#include "compiler/read/model_folder.h"
#include "compiler/read/foreign_files.h"
#include "compiler/text/input.h"
#include "compiler/text/value.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_REF_BYTES = 4096, MAX_SHOWN = 4 };

static bool is_kind(const char *path, mode_t kind)
{
	struct stat st;
	return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

static bool is_folder(const char *path) { return is_kind(path, S_IFDIR); }

static int by_text(const void *x, const void *y) { return strcmp(*(char *const *)x, *(char *const *)y); }

typedef VEC(const char *) Names;

/* Folders in `dir` whose names begin with `head`, in order. */
static Names folders_of(Compile *c, const char *dir, const char *head)
{
	Names names = {0};
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.' && strncmp(e->d_name, head, strlen(head)) == 0 &&
				is_folder(input_path(&c->scratch, dir, e->d_name)))
			*vec_push(&c->scratch, &names) = arena_strdup(&c->scratch, e->d_name);
	if (d)
		closedir(d);
	if (names.n)
		qsort(names.at, (size_t)names.n, sizeof names.at[0], by_text);
	return names;
}

static const char *listed(Compile *c, const Names *names)
{
	const char *text = "";
	for (int i = 0; i < names->n && i < MAX_SHOWN; i++)
		text = arena_printf(&c->scratch, "%s%s%s", text, i ? ", " : "",
			clip_text(&c->scratch, names->at[i], strlen(names->at[i]), 100));
	return names->n > MAX_SHOWN ? arena_printf(&c->scratch, "%s and %d more", text, names->n - MAX_SHOWN) : text;
}

/* The snapshot of a models--ORG--NAME folder, or NULL after having said why there is none. */
static const char *snapshot_of(Compile *c, const char *dir)
{
	const char *ref = input_path(&c->arena, dir, "refs/main"), *snapshots = input_path(&c->arena, dir, "snapshots");
	const Names there = folders_of(c, snapshots, "");
	char *hash;
	size_t n;
	if (!is_kind(ref, S_IFREG)) {
		fail_at(&c->diags, A0412, (Loc){ref, 0, 0}, "missing, so it is unknown which snapshot to use: %s",
			there.n ? arena_printf(&c->arena, "name one of %s", input_path(&c->arena, snapshots, listed(c, &there)))
			: "there are no snapshots");
		return NULL;
	}
	const int n_inputs = c->diags.n_inputs;
	if (!input_read(&c->scratch, &c->diags, ref, false, MAX_REF_BYTES, &hash, &n))
		return NULL;
	c->diags.n_inputs = n_inputs; /* which revision it names shows in the files' own hashes */
	hash[strcspn(hash, " \t\r\n")] = 0;
	const char *path = input_path(&c->arena, snapshots, hash);
	if (!*hash || *hash == '.' || strchr(hash, '/') || !is_folder(path)) {
		fail_at(&c->diags, A0412, (Loc){ref, 0, 0}, "\"%s\": there is no such snapshot%s%s",
			clip_text(c->diags.arena, hash, strlen(hash), 80), there.n ? "; there is " : "", listed(c, &there));
		return NULL;
	}
	note_at(&c->diags, A0411, (Loc){path, 0, 0}, "this snapshot is read, which refs/main names");
	return path;
}

/* Length of a path without the slashes at its end. */
static int trimmed(const char *path)
{
	int n = (int)strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

static bool is_hub_model(Compile *c, const char *dir)
{
	const char *slash = strrchr(dir, '/'), *name = slash ? slash + 1 : dir;
	const int n = is_folder(input_path(&c->scratch, dir, "snapshots")) + is_folder(input_path(&c->scratch, dir, "refs"))
		+ is_folder(input_path(&c->scratch, dir, "blobs"));
	return n >= (strncmp(name, "models--", 8) == 0 ? 1 : 2);
}

/* The folder of the model that one of its three parts is named of, or NULL. */
static const char *model_around(Compile *c, const char *dir)
{
	static const char *const parts[] = {"snapshots", "refs", "blobs"};
	const char *slash = strrchr(dir, '/'), *model = slash ? arena_strdup(&c->arena, dir) : ".";
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strcmp(slash ? slash + 1 : dir, parts[i]) == 0) {
			if (slash)
				((char *)model)[slash == dir ? 1 : slash - dir] = 0;
			return is_hub_model(c, model) ? model : NULL;
		}
	return NULL;
}

/* What is given is a file, or a folder without config.json: the checkpoint's folder, or NULL after an error. */
static const char *from_cache(Compile *c, const char *dir)
{
	dir = arena_printf(&c->arena, "%.*s", trimmed(dir), dir);
	const char *model = is_hub_model(c, dir) ? dir : model_around(c, dir);
	if (model)
		return snapshot_of(c, model);
	const char *hub = input_path(&c->arena, dir, "hub");
	Names models = folders_of(c, dir, "models--");
	if (!models.n && (models = folders_of(c, hub, "models--")).n)
		dir = hub;
	if (models.n > 1) {
		fail_at(&c->diags, A0412, (Loc){dir, 0, 0}, "%d models are there: name one of %s", models.n,
			listed(c, &models));
		return NULL;
	}
	return models.n ? snapshot_of(c, input_path(&c->arena, dir, models.at[0])) : dir;
}

static bool fail_foreign(Compile *c, const char *path, const char *kind)
{
	return fail_at(&c->diags, A0104, (Loc){path, 0, 0}, "%s, not a folder: a folder of config.json, safetensors and "
		"tokenizer.json is read, as the Hugging Face hub has them", kind);
}

bool find_model_folder(Compile *c)
{
	const char *dir = c->cmd.model_dir, *file = c->cmd.config_file;
	struct stat st;
	if (file) /* of --random-weights */
		return !foreign_kind(file) || fail_foreign(c, file, foreign_kind(file));
	if (stat(dir, &st) != 0) /* the passes say what of it */
		return true;
	if (!S_ISDIR(st.st_mode)) {
		const char *kind = S_ISREG(st.st_mode) ? foreign_kind(dir) : NULL;
		if (kind)
			return fail_foreign(c, dir, kind);
		return fail_at(&c->diags, A0104, (Loc){dir, 0, 0}, "not a folder: give the checkpoint's folder");
	}
	if (lstat(input_path(&c->scratch, dir, "config.json"), &st) == 0)
		return true;
	const char *found = from_cache(c, dir);
	if (!found)
		return false;
	c->cmd.model_dir = found;
	const char *other = foreign_in_folder(&c->scratch, found);
	if (other && lstat(input_path(&c->scratch, found, "config.json"), &st) != 0 &&
			!is_kind(input_path(&c->scratch, found, "model.safetensors"), S_IFREG) &&
			!is_kind(input_path(&c->scratch, found, "model.safetensors.index.json"), S_IFREG)) {
		const char *kind = foreign_kind(input_path(&c->scratch, found, other));
		return fail_at(&c->diags, A0409, (Loc){found, 0, 0}, "%s is there%s%s%s, and no config.json: a folder of "
			"config.json, safetensors and tokenizer.json is read, as the Hugging Face hub has them",
			clip_text(&c->scratch, other, strlen(other), 100), kind ? " (" : "", kind ? kind : "", kind ? ")" : "");
	}
	return true;
}
