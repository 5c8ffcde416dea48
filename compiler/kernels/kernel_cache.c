/* kernel_cache.c - compiled kernels in a folder, by content.
 *
 * An entry's name is the SHA-256 of everything that decides a cubin, so a stale entry cannot be found: it has
 * another name. An entry is
 *
 *   "ATLASKRN"  key (32 bytes)  cubin length (u64, little-endian)  cubin  SHA-256 of all before it
 *
 * NVRTC's version is kept in the same form, in a file that ends in .nvrtc. A reader believes an entry only when it is
 * a regular file that this user owns and no other user can write, and its length, key and hash are right; anything
 * else is the same as no entry, and compiling again replaces it. The hash finds damage, not malice: who can write an
 * entry can write its hash. So a folder that others can write is not used, and what is signed or verified is compiled
 * without reading any.
 */
#include "artifacts/new_file.h"
#include "compiler/kernels/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 8, KEY_BYTES = 32, HASH_BYTES = 32, HEAD_BYTES = MAGIC_BYTES + KEY_BYTES + 8,
	MAX_ENTRY_BYTES = 1 << 28, MAX_PATH = 4096 };
#define ENTRY_MAGIC "ATLASKRN"
#define KEY_FORMAT "atlas kernel 1" /* changes with the layout above or the meaning of the key */
#define VERSION_FORMAT "atlas nvrtc 1"

typedef struct Hash { EVP_MD_CTX *ctx; } Hash;

static Hash hash_begin(void)
{
	Hash h = {EVP_MD_CTX_new()};
	if (!h.ctx || !EVP_DigestInit_ex(h.ctx, EVP_sha256(), NULL))
		bug("SHA-256 is not available");
	return h;
}

static void hash_add(Hash h, const void *bytes, size_t n)
{
	if (!EVP_DigestUpdate(h.ctx, bytes, n))
		bug("SHA-256 failed");
}

/* A text and its end, so that "ab","c" and "a","bc" differ. */
static void hash_text(Hash h, const char *text) { hash_add(h, text, strlen(text) + 1); }

static void hash_end(Hash h, uint8_t out[HASH_BYTES])
{
	if (!EVP_DigestFinal_ex(h.ctx, out, NULL))
		bug("SHA-256 failed");
	EVP_MD_CTX_free(h.ctx);
}

KernelKey kernel_key(const KernelSource *source, const char *nvrtc_version_text)
{
	Hash h = hash_begin();
	hash_text(h, KEY_FORMAT);
	hash_text(h, source->tmpl->name);
	hash_add(h, source->tmpl->source_sha256, sizeof source->tmpl->source_sha256);
	hash_text(h, source->defines);
	hash_text(h, source->target);
	hash_add(h, &target_by_name(source->target)->smem_block_bytes, sizeof(int)); /* code knows it as SMEM_MAX */
	hash_text(h, nvrtc_version_text);
	for (int i = 0; nvrtc_option(i); i++)
		hash_text(h, nvrtc_option(i));
	KernelKey key = {0};
	hash_end(h, key.sha256);
	return key;
}

KernelKey version_key(const char *files)
{
	Hash h = hash_begin();
	hash_text(h, VERSION_FORMAT);
	hash_text(h, files);
	KernelKey key = {.is_version = true};
	hash_end(h, key.sha256);
	return key;
}

bool cache_open(const char *dir, char *why, size_t why_bytes)
{
	char path[MAX_PATH];
	size_t n = strlen(dir);
	if (n == 0 || n >= sizeof path - 128) {
		snprintf(why, why_bytes, "the path is %s", n ? "too long" : "empty");
		return false;
	}
	for (size_t i = 1; i <= n; i++) {
		if (dir[i] != '/' && dir[i])
			continue;
		memcpy(path, dir, i);
		path[i] = 0;
		if (mkdir(path, 0755) != 0 && errno != EEXIST) {
			snprintf(why, why_bytes, "%s", strerror(errno));
			return false;
		}
	}
	struct stat st;
	if (stat(dir, &st) != 0)
		snprintf(why, why_bytes, "%s", strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		snprintf(why, why_bytes, "%s", strerror(ENOTDIR));
	else if (st.st_uid != geteuid())
		snprintf(why, why_bytes, "user %u owns it, not user %u, who compiles", (unsigned)st.st_uid,
			(unsigned)geteuid());
	else if (st.st_mode & (S_IWGRP | S_IWOTH))
		snprintf(why, why_bytes, "others can write there (mode %04o): chmod go-w", (unsigned)st.st_mode & 07777);
	else if (access(dir, R_OK | W_OK | X_OK) == 0)
		return true;
	else
		snprintf(why, why_bytes, "%s", strerror(errno));
	return false;
}

static void entry_path(const char *dir, const KernelKey *key, char path[MAX_PATH])
{
	int n = snprintf(path, MAX_PATH - 128, "%s/", dir);
	for (int i = 0; i < KEY_BYTES; i++)
		n += sprintf(path + n, "%02x", key->sha256[i]);
	strcpy(path + n, key->is_version ? ".nvrtc" : ".kernel");
}

/* The whole file, of at most MAX_ENTRY_BYTES; NULL when there is none that may be believed. Nothing else of that name
 * is waited for (a FIFO), followed (a link) or read (a device). */
static uint8_t *read_file(const char *path, size_t *n)
{
	struct stat st;
	uint8_t *bytes = NULL;
	size_t at = 0;
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_ENTRY_BYTES && st.st_uid == geteuid() &&
		!(st.st_mode & (S_IWGRP | S_IWOTH))) {
		*n = (size_t)st.st_size;
		bytes = malloc(*n + 1);
	}
	while (bytes && at < *n) {
		const ssize_t got = read(fd, bytes + at, *n - at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			free(bytes);
			bytes = NULL;
		}
		at += (size_t)got;
	}
	close(fd);
	return bytes;
}

static void put_length(uint8_t *p, uint64_t n)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(n >> 8 * i);
}

bool cache_get(const char *dir, const KernelKey *key, Cubin *out)
{
	char path[MAX_PATH];
	uint8_t hash[HASH_BYTES], length[8];
	size_t n;
	entry_path(dir, key, path);
	uint8_t *bytes = read_file(path, &n);
	bool ok = bytes && n >= HEAD_BYTES + HASH_BYTES && memcmp(bytes, ENTRY_MAGIC, MAGIC_BYTES) == 0 &&
		memcmp(bytes + MAGIC_BYTES, key->sha256, KEY_BYTES) == 0;
	if (ok) {
		put_length(length, n - HEAD_BYTES - HASH_BYTES);
		Hash h = hash_begin();
		hash_add(h, bytes, n - HASH_BYTES);
		hash_end(h, hash);
		ok = memcmp(bytes + MAGIC_BYTES + KEY_BYTES, length, 8) == 0 &&
			memcmp(bytes + n - HASH_BYTES, hash, HASH_BYTES) == 0;
	}
	if (!ok) {
		free(bytes);
		return false;
	}
	out->n = n - HEAD_BYTES - HASH_BYTES;
	memmove(bytes, bytes + HEAD_BYTES, out->n);
	out->bytes = bytes;
	return true;
}

static bool write_all(int fd, const uint8_t *bytes, size_t n)
{
	while (n) {
		ssize_t done = write(fd, bytes, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		bytes += done;
		n -= (size_t)done;
	}
	return true;
}

bool cache_put(const char *dir, const KernelKey *key, const Cubin *cubin, char *why, size_t why_bytes)
{
	char path[MAX_PATH];
	NewFile f;
	uint8_t head[HEAD_BYTES], hash[HASH_BYTES];
	memcpy(head, ENTRY_MAGIC, MAGIC_BYTES);
	memcpy(head + MAGIC_BYTES, key->sha256, KEY_BYTES);
	put_length(head + MAGIC_BYTES + KEY_BYTES, cubin->n);
	Hash h = hash_begin();
	hash_add(h, head, sizeof head);
	hash_add(h, cubin->bytes, cubin->n);
	hash_end(h, hash);
	entry_path(dir, key, path);
	if (!new_file_begin(&f, path, why, why_bytes))
		return false;
	f.is_cache = true;
	if (write_all(f.fd, head, sizeof head) && write_all(f.fd, cubin->bytes, cubin->n) &&
		write_all(f.fd, hash, sizeof hash))
		return new_file_end(&f);
	snprintf(why, why_bytes, "%s", strerror(errno));
	new_file_abandon(&f);
	return false;
}
