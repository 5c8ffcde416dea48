/* test_seal.c - no byte of a plan changes unnoticed, and a signature says whose plan it is.
 *
 *   test_seal [N]   with N changed bytes instead of the default; prints how many fell where
 */
#include "artifacts/hash.h"
#include "artifacts/reader.h"
#include "artifacts/sign.h"
#include "artifacts/tree.h"
#include "tests/unit/made_plan.h"
#include "tests/unit/synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
enum { FLIPS = 10000 };
#else
enum { FLIPS = 2000 };
#endif
enum { MOST_PARTS = 80 };

typedef struct Bytes { uint8_t *at; int64_t n; } Bytes;

static Bytes slurp(const char *path)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	Bytes b = {NULL, ftell(f)};
	rewind(f);
	b.at = malloc((size_t)b.n);
	assert_int_equal(fread(b.at, 1, (size_t)b.n, f), b.n);
	fclose(f);
	return b;
}

static PrivateKey key_of(int seed)
{
	PrivateKey key = {.seed = {(uint8_t)seed, 1, 2, 3}};
	assert_true(key_derive(&key));
	return key;
}

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
	return *x >> 8;
}

/* The tree ---------------------------------------------------------------------------------------------- */

/* As tree.h says it, word by word. */
static void naive_top(const uint8_t *hashes, int n, uint8_t top[32])
{
	uint8_t both[65] = {1};
	if (n == 1) {
		memcpy(top, hashes, 32);
		return;
	}
	int k = 1;
	while (2 * k < n)
		k *= 2;
	naive_top(hashes, k, both + 1);
	naive_top(hashes + 32 * (ptrdiff_t)k, n - k, both + 33);
	sha256_of(both, sizeof both, top);
}

static void tops_are_as_specified(void **state)
{
	enum { MOST = 70 };
	uint8_t hashes[MOST][32], expected[32], top[32];
	(void)state;
	for (int i = 0; i < MOST; i++)
		sha256_of(&i, sizeof i, hashes[i]);
	for (int n = 1; n <= MOST; n++) {
		naive_top(hashes[0], n, expected);
		tree_top(hashes[0], n, top);
		assert_memory_equal(top, expected, 32);
	}
	sha256_of("", 1, expected); /* the byte 0 */
	tree_top(hashes[0], 0, top);
	assert_memory_equal(top, expected, 32);
}

/* More than one batch of leaves, and a last one that is shorter. */
static void long_sections_are_hashed_in_leaves(void **state)
{
	enum { LEAVES = 67 };
	int64_t n = (int64_t)(LEAVES - 1) * TREE_LEAF_BYTES + 5;
	uint8_t *bytes = calloc(1, (size_t)n), *leaf = malloc(TREE_LEAF_BYTES + 1), (*hashes)[32] = malloc(LEAVES * 32);
	uint8_t section[1 + 6 + 8 + 32] = "\2cubin\0", expected[32], hash[32];
	(void)state;
	for (int64_t i = 0; i < n; i += 4099)
		bytes[i] = (uint8_t)(i >> 12);
	for (int i = 0; i < LEAVES; i++) {
		size_t length = i < LEAVES - 1 ? TREE_LEAF_BYTES : 5;
		leaf[0] = 0;
		memcpy(leaf + 1, bytes + (int64_t)i * TREE_LEAF_BYTES, length);
		sha256_of(leaf, length + 1, hashes[i]);
	}
	for (int i = 0; i < 8; i++)
		section[7 + i] = (uint8_t)(n >> 8 * i);
	naive_top(hashes[0], LEAVES, section + 15);
	sha256_of(section, sizeof section, expected);
	tree_section_of("cubin", bytes, n, hash);
	assert_memory_equal(hash, expected, 32);
	free(bytes);
	free(leaf);
	free(hashes);
}

/* Flips --------------------------------------------------------------------------------------------------- */

typedef struct Part { const char *name; int64_t from, to; int n; } Part;

/* Every byte of the file is in one of them. */
static int list_parts(const Artifact *a, Part parts[MOST_PARTS])
{
	int n = 0;
	int64_t manifest = a->file[12] | a->file[13] << 8 | a->file[14] << 16, end = 48 + manifest;
	parts[n++] = (Part){"header", 0, 48, 0};
	parts[n++] = (Part){"manifest", 48, end, 0};
	for (int i = 0; i < a->n_sections; end = a->sections[i].offset + a->sections[i].bytes, i++) {
		const Section *s = &a->sections[i];
		parts[n++] = (Part){s->name, end, s->offset, 0}; /* the gap before it */
		parts[n++] = (Part){s->name, s->offset, s->offset + s->bytes, 0};
	}
	int64_t signatures = (const uint8_t *)a->signatures - a->file;
	parts[n++] = (Part){"signatures", end, signatures, 0};
	parts[n++] = (Part){"signatures", signatures, a->file_bytes, 0};
	assert_true(n <= MOST_PARTS);
	return n;
}

/* What follows says where the change is: "header", "manifest", or the section's name. */
static bool names(const char *why, const char *part)
{
	if (strcmp(part, "header") == 0)
		return strstr(why, "header") || strstr(why, "version");
	char section[96];
	snprintf(section, sizeof section, strcmp(part, "manifest") == 0 ? "%s" : "section %s", part);
	const char *at = strstr(why, section);
	return at && !strchr("abcdefghijklmnopqrstuvwxyz_.", at[strlen(section)] ? at[strlen(section)] : '!');
}

static ReadStatus read_all(Bytes b, const PlanTrust *trust, char why[256])
{
	Artifact a;
	why[0] = 0;
	ReadStatus s = artifact_read(b.at, b.n, trust, &a, why, 256);
	if (s != READ_OK)
		return s;
	s = artifact_check_weights(&a, NULL, NULL, NULL, why, 256);
	artifact_free(&a);
	return s;
}

static void changed_bytes(int flips, bool prints)
{
	char why[256];
	PrivateKey keys[2] = {key_of(1), key_of(2)};
	Part parts[MOST_PARTS];
	Artifact a;
	MadePlan m = {0};
	uint64_t random = 20260;
	synthetic_model(&m.c, "qwen3");
	m.c.cmd.candidates = 1;
	make_plan_of_model(&m);
	m.keys = keys;
	m.n_keys = 2;
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(artifact_read(b.at, b.n, NULL, &a, why, sizeof why), READ_OK);
	assert_int_equal(a.n_signatures, 2);
	int n_parts = list_parts(&a, parts);
	for (int i = 0; i < flips; i++) {
		Part *p = &parts[next(&random) % (uint64_t)n_parts];
		if (p->from == p->to)
			p++; /* an empty gap: the section */
		int64_t at = p->from + (int64_t)(next(&random) % (uint64_t)(p->to - p->from));
		uint8_t change = (uint8_t)(1 + next(&random) % 255);
		b.at[at] ^= change;
		ReadStatus s = read_all(b, NULL, why);
		b.at[at] ^= change;
		if (s == READ_OK || !names(why, p->name))
			fail_msg("byte %lld of %s: \"%s\"", (long long)at, p->name, why);
		p->n++;
	}
	for (int i = 0; prints && i < n_parts; i++)
		printf("%-20s %-8s %8lld bytes %6d changed, all refused\n", parts[i].name,
			i > 1 && i % 2 == 0 ? "gap" : "", (long long)(parts[i].to - parts[i].from), parts[i].n);
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	artifact_free(&a);
	free(b.at);
	free_made(&m);
}

static void no_byte_changes_unnoticed(void **state)
{
	(void)state;
	changed_bytes(FLIPS, false);
}

/* A weight of several leaves; the one that differs is named by its place. */
static void leaves_of_weights(void **state)
{
	char why[256], expected[128];
	Artifact a;
	MadePlan m = {0};
	(void)state;
	synthetic_model(&m.c, "llama");
	synthetic_vocab(&m.c, 20000);
	make_plan_of_model(&m);
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	assert_int_equal(artifact_read(b.at, b.n, NULL, &a, why, sizeof why), READ_OK);
	int w = 0;
	while (strcmp(a.graph.weights[w].name, "model.embed_tokens.weight") != 0)
		w++;
	int64_t bytes = a.graph.weights[w].bytes;
	uint8_t *at = b.at + artifact_section(&a, "weights")->offset + a.graph.weights[w].offset;
	assert_int_equal(tree_n_leaves(bytes), 3);
	assert_true(artifact_leaves_hold(&a, w, 0, at, bytes));
	at[bytes - 1] ^= 4;
	assert_int_equal(artifact_check_weights(&a, NULL, NULL, NULL, why, sizeof why), READ_INTEGRITY);
	snprintf(expected, sizeof expected, "section weights: bytes 2097152 to %lld of weight model.embed_tokens.weight do "
		"not match their hash", (long long)bytes);
	assert_string_equal(why, expected);
	assert_true(artifact_leaves_hold(&a, w, 0, at, 2 * TREE_LEAF_BYTES));
	assert_false(artifact_leaves_hold(&a, w, TREE_LEAF_BYTES, at + TREE_LEAF_BYTES, bytes - TREE_LEAF_BYTES));
	at[TREE_LEAF_BYTES] ^= 1; /* the first of two is told, whoever finds it */
	for (int i = 0; i < 20; i++) {
		assert_int_equal(artifact_check_weights(&a, NULL, NULL, NULL, why, sizeof why), READ_INTEGRITY);
		assert_non_null(strstr(why, "bytes 1048576 to 2097152"));
	}
	at[TREE_LEAF_BYTES] ^= 1;
	at[bytes - 1] ^= 4;
	assert_true(artifact_leaves_hold(&a, w, 0, at, bytes));
	uint8_t *leaves = b.at + (a.leaves - b.at) + a.first_leaf[w] * HASH_BYTES;
	for (int bit = 0; bit < 8 * HASH_BYTES; bit++) { /* all of a hash is compared */
		leaves[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(artifact_leaves_hold(&a, w, 0, at, bytes));
		assert_int_equal(artifact_check_weights(&a, NULL, NULL, NULL, why, sizeof why), READ_INTEGRITY);
		leaves[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	artifact_free(&a);
	free(b.at);
	free_made(&m);
}

/* The place of a hash in a part of the file, where it is once. */
static uint8_t *find_hash(Bytes b, int64_t from, int64_t n, const uint8_t hash[HASH_BYTES])
{
	uint8_t *at = memmem(b.at + from, (size_t)n, hash, HASH_BYTES);
	assert_non_null(at);
	assert_null(memmem(at + 1, (size_t)(b.at + from + n - at - 1), hash, HASH_BYTES));
	return at;
}

/* Of a file that is right but for what a test changed in it: the hash of the manifest again. */
static void seal_manifest(Bytes b)
{
	const int64_t n = b.at[12] | b.at[13] << 8 | b.at[14] << 16;
	tree_root(b.at, b.at + 48, (size_t)n, b.at + 16);
}

/* The hash of section weights by the weights' hashes as they are in section graph: no weight has a file. */
static void seal_weights(const Artifact *a, const uint8_t *changed, int weight, uint8_t hash[HASH_BYTES])
{
	TreeTop t;
	uint8_t top[HASH_BYTES];
	int order[256];
	assert_true(a->graph.n_weights <= 256);
	weights_by_offset(&a->graph, order);
	tree_start(&t);
	for (int i = 0; i < a->graph.n_weights; i++)
		tree_add(&t, order[i] == weight ? changed : a->graph.weights[order[i]].hash);
	tree_end(&t, top);
	tree_section("weights", artifact_section(a, "weights")->bytes, top, hash);
}

static void refused_by(Bytes b, const char *want)
{
	char why[256];
	assert_int_equal(read_all(b, NULL, why), READ_INTEGRITY);
	assert_string_equal(why, want);
}

/* A bit of one hash is changed, and all hashes above it are made right again: so it is this hash that is compared, and
 * all of it. */
static void every_bit_of_a_hash_counts(void **state)
{
	char why[256], want[256];
	Artifact a;
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(artifact_read(b.at, b.n, NULL, &a, why, sizeof why), READ_OK);
	const int64_t manifest = b.at[12] | b.at[13] << 8 | b.at[14] << 16;
	const Section *graph = artifact_section(&a, "graph"), *weights = artifact_section(&a, "weights");
	const int w = a.graph.n_weights / 2;
	uint8_t *of_weight = find_hash(b, graph->offset, graph->bytes, a.graph.weights[w].hash);
	uint8_t *of_graph = find_hash(b, 48, manifest, graph->hash);
	uint8_t *of_weights = find_hash(b, 48, manifest, weights->hash);
	uint8_t old[3][HASH_BYTES], root[HASH_BYTES];
	memcpy(old[0], of_weight, HASH_BYTES);
	memcpy(old[1], of_graph, HASH_BYTES);
	memcpy(old[2], of_weights, HASH_BYTES);
	memcpy(root, b.at + 16, HASH_BYTES);
	for (int bit = 0; bit < 8 * HASH_BYTES; bit++) {
		const uint8_t flip = (uint8_t)(1 << bit % 8);
		b.at[16 + bit / 8] ^= flip;
		refused_by(b, "the root hash does not match header and manifest");
		of_graph[bit / 8] ^= flip;
		seal_manifest(b);
		refused_by(b, "section graph does not match its hash");
		memcpy(of_graph, old[1], HASH_BYTES);
		of_weights[bit / 8] ^= flip;
		seal_manifest(b);
		refused_by(b, "section weights does not match its hash");
		of_weight[bit / 8] ^= flip;
		seal_weights(&a, of_weight, w, of_weights);
		tree_section_of("graph", b.at + graph->offset, graph->bytes, of_graph);
		seal_manifest(b);
		snprintf(want, sizeof want, "section leaves: not those of weight %s", a.graph.weights[w].name);
		refused_by(b, want);
		memcpy(of_weight, old[0], HASH_BYTES);
		memcpy(of_graph, old[1], HASH_BYTES);
		memcpy(of_weights, old[2], HASH_BYTES);
		memcpy(b.at + 16, root, HASH_BYTES);
	}
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	artifact_free(&a);
	free(b.at);
	free_made(&m);
}

/* Signatures ------------------------------------------------------------------------------------------------- */

static int compare_signatures(const void *a, const void *b)
{
	return memcmp(((const PlanSignature *)a)->public_key, ((const PlanSignature *)b)->public_key, PUBLIC_KEY_BYTES);
}

/* As many signatures as there may be, and one more: each of them holds, and all are in order. */
static void most_signatures(void **state)
{
	char why[256];
	PlanSignature all[PLAN_MAX_SIGNATURES + 1];
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	Bytes bare = slurp(m.path), b = {malloc((size_t)bare.n + sizeof all), 0};
	for (int n = PLAN_MAX_SIGNATURES; n <= PLAN_MAX_SIGNATURES + 1; n++) {
		for (int i = 0; i < n; i++) {
			PrivateKey key = key_of(i);
			memcpy(all[i].public_key, key.public_key, PUBLIC_KEY_BYTES);
			assert_true(sign_bytes(&key, PLAN_DOMAIN, bare.at + 16, 32, all[i].signature));
		}
		qsort(all, (size_t)n, sizeof all[0], compare_signatures);
		b.n = bare.n + n * (int64_t)sizeof all[0];
		memcpy(b.at, bare.at, (size_t)bare.n - 16);
		memcpy(b.at + bare.n - 16, all, (size_t)n * sizeof all[0]);
		memcpy(b.at + b.n - 16, bare.at + bare.n - 16, 16);
		b.at[b.n - 16] = (uint8_t)n;
		assert_int_equal(read_all(b, NULL, why), n > PLAN_MAX_SIGNATURES ? READ_INTEGRITY : READ_OK);
	}
	assert_non_null(strstr(why, "section signatures: 17 of them do not fit the file of "));
	free(b.at);
	free(bare.at);
	free_made(&m);
}

static void trusted_keys(void **state)
{
	char why[256];
	PrivateKey keys[3] = {key_of(1), key_of(2), key_of(3)};
	MadePlan m;
	(void)state;
	make_plan(&m, "llama");
	write_made(&m, true);
	Bytes bare = slurp(m.path);
	PlanTrust first = {(const uint8_t (*)[32])(const void *)keys[0].public_key, 1};
	uint8_t both[2][32];
	memcpy(both[0], keys[2].public_key, 32);
	memcpy(both[1], keys[1].public_key, 32);
	PlanTrust others = {(const uint8_t (*)[32])both, 2}, stranger = {(const uint8_t (*)[32])both, 1};
	assert_int_equal(read_all(bare, NULL, why), READ_OK);
	assert_int_equal(read_all(bare, &first, why), READ_UNSIGNED);
	assert_string_equal(why, "section signatures: the plan is not signed, and a signature is asked for");
	m.keys = keys;
	m.n_keys = 2;
	write_made(&m, true);
	Bytes b = slurp(m.path);
	assert_int_equal(b.n, bare.n + 2 * (int64_t)sizeof(PlanSignature));
	assert_memory_equal(b.at, bare.at, (size_t)bare.n - 16); /* nothing else has changed */
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	assert_int_equal(read_all(b, &first, why), READ_OK);
	assert_int_equal(read_all(b, &others, why), READ_OK);
	assert_int_equal(read_all(b, &stranger, why), READ_UNTRUSTED);
	assert_non_null(strstr(why, "... and others, none of them trusted"));
	for (int bit = 0; bit < 256; bit++) { /* a key that differs in one bit, wherever, is another key */
		uint8_t near[1][32];
		memcpy(near, keys[0].public_key, 32);
		near[0][bit / 8] ^= (uint8_t)(1 << bit % 8);
		PlanTrust other = {(const uint8_t (*)[32])near, 1};
		assert_int_equal(read_all(b, &other, why), READ_UNTRUSTED);
	}
	/* a signature of another plan's root, each of the two in the other's place, one of them twice */
	PlanSignature *s = (PlanSignature *)(void *)(b.at + b.n - 16) - 2, old = s[0];
	assert_true(sign_bytes(&keys[0], PLAN_DOMAIN, bare.at, 32, s[0].signature));
	assert_int_equal(read_all(b, &first, why), READ_INTEGRITY);
	assert_non_null(strstr(why, "is not valid for this plan"));
	s[0] = s[1];
	assert_int_equal(read_all(b, NULL, why), READ_INTEGRITY);
	assert_string_equal(why, "section signatures: the keys are not in order");
	s[0] = old;
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	/* one taken off: what is left is sound, and no longer by that key */
	memmove(s, b.at + b.n - 16 - sizeof *s, sizeof *s + 16);
	b.n -= (int64_t)sizeof *s;
	b.at[b.n - 16] = 1;
	assert_int_equal(read_all(b, NULL, why), READ_OK);
	assert_true((read_all(b, &first, why) == READ_OK) != (read_all(b, &others, why) == READ_OK));
	for (int n = 1; n < 200; n += 7) {
		Bytes cut = {b.at, b.n - n};
		assert_int_not_equal(read_all(cut, NULL, why), READ_OK);
	}
	free(b.at);
	free(bare.at);
	free_made(&m);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tops_are_as_specified), cmocka_unit_test(long_sections_are_hashed_in_leaves),
		cmocka_unit_test(no_byte_changes_unnoticed), cmocka_unit_test(leaves_of_weights),
		cmocka_unit_test(every_bit_of_a_hash_counts),
		cmocka_unit_test(trusted_keys), cmocka_unit_test(most_signatures),
	};
	if (argc > 1) {
		changed_bytes(atoi(argv[1]), true);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
