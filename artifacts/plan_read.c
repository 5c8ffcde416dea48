/* plan_read.c - open a plan.bin: the file around the structs.
 *
 * Order of trust: magic and version; the root hash, which seals the manifest; the signatures of the root hash; the
 * section table, which must cover the file without overlap and with nothing but zeros between; each section's hash;
 * then the MessagePack of each section, validated, measured, and decoded into one block; then what it means
 * (plan_check.c). Whatever fails first ends the reading, and nothing is believed before it was checked.
 */
#include "artifacts/reader.h"
#include "artifacts/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 48, END_BYTES = 16, MAX_SECTIONS = 64, MAX_TARGETS = 16 };

typedef struct Reader {
	const uint8_t *file;
	int64_t bytes, manifest_bytes;
	bool check_hashes;
	const PlanTrust *trust;
	Artifact *out;
	Why why;
} Reader;

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

const Section *artifact_section(const Artifact *a, const char *name)
{
	for (int i = 0; i < a->n_sections; i++)
		if (strcmp(a->sections[i].name, name) == 0)
			return &a->sections[i];
	return NULL;
}

const char *artifact_option(const Artifact *a, const char *name)
{
	for (int i = 0; i < a->n_options; i++)
		if (strcmp(a->options[i].name, name) == 0)
			return a->options[i].value;
	return NULL;
}

const char *artifact_option_of(const Artifact *a, const char *what, const char *target, const char *which)
{
	char name[128];
	snprintf(name, sizeof name, "%s.%s%s", what, target, which);
	return artifact_option(a, name);
}

static bool read_header(Reader *r)
{
	uint8_t root[32];
	if (r->bytes < HEADER_BYTES + END_BYTES || memcmp(r->file, PLAN_MAGIC, 8) != 0)
		return why_not(&r->why, READ_NOT_A_PLAN, "not a plan: the file does not start with %s and a header",
			PLAN_MAGIC);
	if (little_endian(r->file + 8) != PLAN_VERSION)
		return why_not(&r->why, READ_VERSION, "plan format version %u: this program reads version %d; `atlasc "
			"MODEL_DIR -o PLAN` makes the plan anew",
			little_endian(r->file + 8), PLAN_VERSION);
	r->manifest_bytes = little_endian(r->file + 12);
	if (r->manifest_bytes > r->bytes - HEADER_BYTES - END_BYTES)
		return why_not(&r->why, READ_INTEGRITY, "header: the manifest of %lld bytes does not fit the file of %lld",
			(long long)r->manifest_bytes, (long long)r->bytes);
	tree_root(r->file, r->file + HEADER_BYTES, (size_t)r->manifest_bytes, root);
	if (r->check_hashes && memcmp(root, r->file + 16, 32) != 0)
		return why_not(&r->why, READ_INTEGRITY, "the root hash does not match header and manifest");
	memcpy(r->out->root, r->file + 16, 32);
	return find_signatures(r->out, &r->why) && (!r->check_hashes || check_signatures(r->out, r->trust, &r->why));
}

/* A decoder at the start of bytes that are one canonical value. */
static bool start_decoder(Reader *r, Decoder *d, const char *section, int64_t offset, int64_t bytes)
{
	const char *what;
	size_t at;
	if (!msgpack_check(r->file + offset, (size_t)bytes, &at, &what))
		return why_not(&r->why, READ_MALFORMED, "section %s, byte %zu: %s", section, at, what);
	d->at = d->start = r->file + offset;
	d->end = d->at + bytes;
	d->section = section;
	return true;
}

static bool read_manifest(Reader *r, Decoder *d, Section **sections, int *n)
{
	return start_decoder(r, d, "manifest", HEADER_BYTES, r->manifest_bytes) &&
		decode_key(d, "sections") && decode_list(d, &section_schema, (void **)sections, n);
}

static bool is_known(const char *name)
{
	static const char *const known[] = {"options", "graph", "ranks", "contracts", "provenance", "cubins", "leaves",
		"weights", "tokenizer", "chat_template", "chat_program"};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return (starts_with(name, "plan.") && name[5]) || (starts_with(name, "audit.") && name[6]) ||
		(starts_with(name, "candidates.") && name[11]) ||
		starts_with(name, "x-");
}

static bool is_zero(const uint8_t *p, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static bool has_plan(const Section *sections, int n, const char *target)
{
	for (int i = 0; i < n; i++)
		if (starts_with(sections[i].name, "plan.") && strcmp(sections[i].name + 5, target) == 0)
			return true;
	return false;
}

static bool check_sections(Reader *r, const Section *sections, int n)
{
	int64_t end = HEADER_BYTES + r->manifest_bytes, room = (const uint8_t *)r->out->signatures - r->file;
	for (int i = 0; i < n; i++) {
		const Section *s = &sections[i];
		if (!is_known(s->name))
			return why_not(&r->why, READ_MALFORMED, "section %s: unknown to this version", s->name);
		if (starts_with(s->name, "candidates.") && !has_plan(sections, n, s->name + 11))
			return why_not(&r->why, READ_MALFORMED, "section %s: there is no plan for it", s->name);
		for (int j = 0; j < i; j++)
			if (strcmp(s->name, sections[j].name) == 0)
				return why_not(&r->why, READ_MALFORMED, "section %s occurs twice", s->name);
		if (s->offset % PLAN_ALIGN || s->offset < end)
			return why_not(&r->why, READ_MALFORMED, "section %s: offset %lld is not a multiple of %d after %lld",
				s->name, (long long)s->offset, PLAN_ALIGN, (long long)end);
		bool may_be_empty = strcmp(s->name, "weights") == 0;
		if (s->bytes < !may_be_empty || s->offset > room || s->bytes > room - s->offset)
			return why_not(&r->why, READ_INTEGRITY, "section %s: %lld bytes at %lld in a file of %lld", s->name,
				(long long)s->bytes, (long long)s->offset, (long long)r->bytes);
		if (s->offset - end >= PLAN_ALIGN || !is_zero(r->file + end, s->offset - end))
			return why_not(&r->why, READ_INTEGRITY, "the bytes before section %s are not a gap of zeros",
				s->name);
		end = s->offset + s->bytes;
	}
	if (end > room || room - end >= PLAN_ALIGN)
		return why_not(&r->why, READ_INTEGRITY, "the file has %lld bytes, its sections end at %lld",
			(long long)r->bytes, (long long)end);
	return is_zero(r->file + end, room - end) ||
		why_not(&r->why, READ_INTEGRITY, "the bytes before section signatures are not a gap of zeros");
}

/* Of `weights` the hash is compared when its leaves are known (check_leaves). */
static bool check_hash(const Section *s, const uint8_t *file, Why *why)
{
	uint8_t hash[32];
	if (strcmp(s->name, "weights") == 0)
		return true;
	tree_section_of(s->name, file + s->offset, s->bytes, hash);
	return memcmp(hash, s->hash, 32) == 0 ||
		why_not(why, READ_INTEGRITY, "section %s does not match its hash", s->name);
}

static const Section *find_section(const Section *sections, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(sections[i].name, name) == 0)
			return &sections[i];
	return NULL;
}

static bool open_section(Reader *r, Decoder *d, const Section *sections, int n, const char *name)
{
	const Section *s = find_section(sections, n, name);
	return s ? start_decoder(r, d, s->name, s->offset, s->bytes)
		: why_not(&r->why, READ_MALFORMED, "section %s is missing", name);
}

/* candidates.TARGET, where there is one. */
static bool decode_candidates(Reader *r, Decoder *d, const Section *sections, int n, const char *target,
	TargetPlan *out)
{
	char name[88];
	snprintf(name, sizeof name, "candidates.%s", target);
	if (!find_section(sections, n, name))
		return true;
	if (!open_section(r, d, sections, n, name) || !decode_struct(d, &target_plan_schema, out))
		return false;
	return !out || strcmp(out->target, target) == 0 ||
		why_not(&r->why, READ_MALFORMED, "section %s holds kernels of %s", name, out->target);
}

/* Everything but the manifest, into *a. Measures when d->memory is NULL. */
static bool decode_sections(Reader *r, Decoder *d, const Section *sections, int n, Artifact *a)
{
	if (!open_section(r, d, sections, n, "options") || !decode_options(d, &a->options, &a->n_options) ||
		!open_section(r, d, sections, n, "graph") || !decode_struct(d, &graph_schema, &a->graph) ||
		(find_section(sections, n, "ranks") && (!open_section(r, d, sections, n, "ranks") ||
			!decode_struct(d, &ranks_schema, &a->ranks))) ||
		!open_section(r, d, sections, n, "contracts") ||
		!decode_list(d, &contract_schema, (void **)&a->contracts, &a->n_contracts) ||
		!open_section(r, d, sections, n, "provenance") ||
		!decode_list(d, &origin_schema, (void **)&a->origins, &a->n_origins))
		return false;
	for (int i = 0; i < n; i++)
		a->n_targets += starts_with(sections[i].name, "plan.");
	if (a->n_targets > MAX_TARGETS)
		return why_not(&r->why, READ_MALFORMED, "%d targets: at most %d", a->n_targets, MAX_TARGETS);
	a->targets = decode_take(d, sizeof(TargetPlan) * (size_t)a->n_targets);
	a->ledger = decode_take(d, sizeof(Slot *) * (size_t)a->n_targets);
	a->n_ledger = decode_take(d, sizeof(int) * (size_t)a->n_targets);
	a->candidates = decode_take(d, sizeof(TargetPlan) * (size_t)a->n_targets);
	for (int i = 0, t = 0; i < n; i++) {
		char audit[80];
		Slot *slots;
		int n_slots;
		if (!starts_with(sections[i].name, "plan."))
			continue;
		size_t len = strlen(sections[i].name + 5);
		if (len > sizeof audit - 7)
			return why_not(&r->why, READ_MALFORMED, "section %.80s: too long a name", sections[i].name);
		memcpy(audit, "audit.", 6);
		memcpy(audit + 6, sections[i].name + 5, len + 1);
		if (!open_section(r, d, sections, n, sections[i].name) ||
			!decode_struct(d, &target_plan_schema, a->targets ? &a->targets[t] : NULL) ||
			!open_section(r, d, sections, n, audit) ||
			!decode_list(d, &slot_schema, (void **)&slots, &n_slots) ||
			!decode_candidates(r, d, sections, n, audit + 6, a->candidates ? &a->candidates[t] : NULL))
			return false;
		if (a->ledger) {
			if (strcmp(a->targets[t].target, audit + 6) != 0)
				return why_not(&r->why, READ_MALFORMED, "section %s holds the plan of %s", sections[i].name,
					a->targets[t].target);
			a->ledger[t] = slots;
			a->n_ledger[t] = n_slots;
		}
		t++;
	}
	return true;
}

/* One walk over the manifest and all sections. */
static bool decode_file(Reader *r, Decoder *d, const Section *sections, int n, Artifact *a)
{
	return read_manifest(r, d, &a->sections, &a->n_sections) && decode_sections(r, d, sections, n, a);
}

static bool read_sections(Reader *r)
{
	Decoder measure = {.why = &r->why}, small, store;
	Artifact unused = {0}, *a = r->out;
	Section *sections;
	int n;
	if (!read_manifest(r, &measure, &sections, &n))
		return false;
	if (n > MAX_SECTIONS)
		return why_not(&r->why, READ_MALFORMED, "%d sections: at most %d", n, MAX_SECTIONS);
	void *memory = calloc(1, measure.used + 1);
	if (!memory)
		return why_not(&r->why, READ_NO_MEMORY, "no memory for the section table");
	small = (Decoder){.why = &r->why, .memory = memory};
	bool good = read_manifest(r, &small, &sections, &n) && check_sections(r, sections, n);
	for (int i = 0; good && r->check_hashes && i < n; i++)
		good = check_hash(&sections[i], r->file, &r->why);
	measure = (Decoder){.why = &r->why};
	if (good && decode_file(r, &measure, sections, n, &unused)) {
		a->memory = calloc(1, measure.used + 1);
		store = (Decoder){.why = &r->why, .memory = a->memory};
		good = a->memory ? decode_file(r, &store, sections, n, a)
			: why_not(&r->why, READ_NO_MEMORY, "no memory for %zu bytes of plan", measure.used);
		for (int i = 0; good && i < a->n_targets; i++)
			a->targets[i].arena_bytes[ARENA_PEER] = a->ranks.peer_bytes;
	} else {
		good = false;
	}
	free(memory);
	return good;
}

static ReadStatus read_artifact(Reader r)
{
	*r.out = (Artifact){.file = r.file, .file_bytes = r.bytes};
	if (read_header(&r) && read_sections(&r) && check_artifact(r.out, &r.why) &&
		check_leaves(r.out, r.check_hashes, &r.why))
		return READ_OK;
	artifact_free(r.out);
	return r.why.status;
}

int artifact_large_sections(const uint8_t *head, int64_t bytes, int64_t (*places)[2], int most)
{
	char text[64];
	Reader r = {.file = head, .bytes = bytes, .manifest_bytes = bytes - HEADER_BYTES, .why = {.text = text,
		.bytes = sizeof text}};
	Decoder measure = {.why = &r.why}, store;
	Section *sections;
	int n, found = 0;
	if (!read_manifest(&r, &measure, &sections, &n) || n > MAX_SECTIONS)
		return -1;
	store = (Decoder){.why = &r.why, .memory = calloc(1, measure.used + 1)};
	if (!store.memory)
		return -2;
	if (!read_manifest(&r, &store, &sections, &n))
		found = -1;
	for (int i = 0; found >= 0 && i < n && found < most; i++)
		if (strcmp(sections[i].name, "weights") == 0 || starts_with(sections[i].name, "x-")) {
			const bool is_sound = sections[i].offset >= 0 && sections[i].bytes >= 0 &&
				sections[i].bytes < INT64_MAX - sections[i].offset;
			places[found][0] = is_sound ? sections[i].offset : 0;
			places[found++][1] = is_sound ? sections[i].offset + sections[i].bytes : 0;
		}
	free(store.memory);
	return found;
}

ReadStatus artifact_read(const uint8_t *file, int64_t bytes, const PlanTrust *trust, Artifact *out, char *why,
	size_t why_bytes)
{
	return read_artifact((Reader){.file = file, .bytes = bytes, .check_hashes = true, .trust = trust, .out = out,
		.why = {.text = why, .bytes = why_bytes}});
}

ReadStatus artifact_read_unsealed(const uint8_t *file, int64_t bytes, Artifact *out, char *why,
	size_t why_bytes)
{
	return read_artifact((Reader){.file = file, .bytes = bytes, .out = out, .why = {.text = why, .bytes = why_bytes}});
}

void artifact_free(Artifact *a)
{
	free(a->first_leaf);
	free(a->memory);
	memset(a, 0, sizeof *a);
}
