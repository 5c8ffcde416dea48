/* test_sign.c - signatures and key files.
 *
 * The key is that of RFC 8032, section 7.1, test 1. Its signature here was made by `openssl pkeyutl -sign -rawin` over
 * the message that sign.h describes; other key files were written by `openssl genpkey`.
 */
#include "artifacts/sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define BEGIN "-----BEGIN PRIVATE KEY-----\n"
#define END "\n-----END PRIVATE KEY-----\n"
#define BODY "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g"
static const char private_pem[] = BEGIN BODY END;
static const char public_pem[] = "-----BEGIN PUBLIC KEY-----\n"
	"MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
static const uint8_t rfc_public[PUBLIC_KEY_BYTES] = {
	0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
	0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
/* of the bytes 0, 1, ... 31 in the domain "plan" */
static const uint8_t expected[SIGNATURE_BYTES] = {
	0xa5, 0xad, 0x07, 0x06, 0x36, 0x0c, 0xf8, 0x8d, 0x0c, 0xbd, 0x0d, 0xa1, 0x9c, 0xac, 0x79, 0x77,
	0x75, 0x36, 0x31, 0x7b, 0x6c, 0xce, 0x66, 0xce, 0x79, 0xaf, 0x24, 0x16, 0x2b, 0x88, 0xfa, 0x0c,
	0x9e, 0xf2, 0x1c, 0x43, 0xcc, 0x4b, 0xf3, 0xbd, 0x68, 0x58, 0x09, 0x35, 0x7a, 0x67, 0x7b, 0x9d,
	0xfd, 0x9e, 0xb3, 0x4b, 0x6a, 0x6f, 0x9e, 0x52, 0x22, 0xeb, 0x86, 0xca, 0x3b, 0xb8, 0xd8, 0x0a};
static const uint8_t expected_id[KEY_ID_BYTES] = {
	0x06, 0xe3, 0xfd, 0x8f, 0xda, 0x29, 0xbb, 0x60, 0xab, 0x59, 0x55, 0x7d, 0xe6, 0x1e, 0xdb, 0x0a,
	0xec, 0xdb, 0x23, 0x11, 0x34, 0xbe, 0x30, 0xe7, 0x5b, 0x45, 0x5f, 0x8e, 0x1b, 0x79, 0x2f, 0xa9};

static void first_bytes(uint8_t bytes[32])
{
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
}

static void test_signature(void **state)
{
	uint8_t bytes[32], signature[SIGNATURE_BYTES], id[KEY_ID_BYTES], public_key[PUBLIC_KEY_BYTES];
	char why[256] = "", long_domain[SIGN_MAX_DOMAIN + 2];
	PrivateKey key;
	(void)state;
	first_bytes(bytes);
	assert_true(key_parse_private(private_pem, sizeof private_pem - 1, &key, why, sizeof why));
	assert_true(key_parse_public(public_pem, sizeof public_pem - 1, public_key, why, sizeof why));
	assert_memory_equal(key.public_key, rfc_public, sizeof rfc_public);
	assert_memory_equal(public_key, rfc_public, sizeof rfc_public);
	key_id(public_key, id);
	assert_memory_equal(id, expected_id, sizeof id);
	assert_true(sign_bytes(&key, "plan", bytes, sizeof bytes, signature));
	assert_memory_equal(signature, expected, sizeof expected);
	assert_true(signature_holds(public_key, "plan", bytes, sizeof bytes, signature));
	assert_false(signature_holds(public_key, "certificate", bytes, sizeof bytes, signature));
	assert_false(signature_holds(public_key, "plan", bytes, sizeof bytes - 1, signature));
	for (int i = 0; i < SIGNATURE_BYTES; i++) {
		signature[i] ^= (uint8_t)(1 << i % 8);
		assert_false(signature_holds(public_key, "plan", bytes, sizeof bytes, signature));
		signature[i] ^= (uint8_t)(1 << i % 8);
	}
	for (int i = 0; i < PUBLIC_KEY_BYTES; i++) {
		public_key[i] ^= (uint8_t)(1 << i % 8);
		assert_false(signature_holds(public_key, "plan", bytes, sizeof bytes, signature));
		public_key[i] ^= (uint8_t)(1 << i % 8);
	}
	memset(long_domain, 'x', sizeof long_domain - 1);
	long_domain[sizeof long_domain - 1] = 0;
	assert_false(sign_bytes(&key, long_domain, bytes, sizeof bytes, signature));
	key_forget(&key);
	assert_memory_equal(key.seed, ((uint8_t[32]){0}), sizeof key.seed);
}

static void test_key_files(void **state)
{
	static const struct { const char *text, *why; } files[] = {
		{private_pem, NULL},
		{"some words first\n" BEGIN "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/Vpg\r\nuoRK9JLsLMREScVpezJpGXA7rAMcrn9g" END, NULL},
		{BEGIN "MFECAQEwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9ggSEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMl\n"
			"rwIaaPcHURo=" END, NULL},
		{BEGIN "MFECAQEwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9ggSEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMl\n"
			"rwIaaPcHUQA=" END, "the public key in it is not that of the private one"},
		{"", "not a key file: there is no line that starts with -----BEGIN"},
		{"-----BEGIN PRIVATE", "not a key file: the line -----BEGIN has no end"},
		{"-----BEGIN PRIVATE KEY----- " BODY, "not a key file: the line -----BEGIN has no end"},
		{BEGIN BODY, "the key file is cut: there is no line -----END PRIVATE KEY-----"},
		{BEGIN "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn" END,
			"the text between BEGIN and END is cut"},
		{BEGIN "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcr===" END,
			"the text between BEGIN and END is not base64"},
		{BEGIN "MC4C=QAw" END, "the text between BEGIN and END is not base64"},
		{BEGIN "MC4C*QAw" END, "the text between BEGIN and END is not base64"},
		{BEGIN "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7" END,
			"not the form of an Ed25519 key: it has 42 bytes"},
		{BEGIN END, "not the form of an Ed25519 key: it has 0 bytes"},
		{BEGIN "MEcCAQAwBQYDK2VxBDsEOXoTaWVsYBTEUn5mGvgbvgTfBq5Tb8I8DPkZ3YxRs4I0\n"
			"Nf3qQ0F5XEmBzPkZ3YxRs4I0Nf3qQ0F5XEmB" END, "holds an Ed448 key: expected an Ed25519 key"},
		{BEGIN "MIIBVQIBADANBgkqhkiG9w0BAQEFAASCAT8wggE7" END, "holds an RSA key: expected an Ed25519 key"},
		{BEGIN "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg" END,
			"holds an elliptic-curve key: expected an Ed25519 key"},
		{"-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n",
			"holds \"RSA PRIVATE KEY\": expected \"PRIVATE KEY\" with an Ed25519 key"},
		{"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
			"the key is encrypted: expected a plain one (openssl pkcs8 -topk8 -nocrypt writes it)"},
		{public_pem, "holds a public key: expected the private one"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		PrivateKey key;
		char why[256] = "";
		size_t n = strlen(files[i].text);
		char *exact = malloc(n + 1); /* a byte read too far is told by the sanitizer */
		memcpy(exact, files[i].text, n);
		char *cut = realloc(exact, n ? n : 1);
		bool ok = key_parse_private(cut, n, &key, why, sizeof why);
		free(cut);
		assert_string_equal(why, files[i].why ? files[i].why : "");
		assert_int_equal(ok, !files[i].why);
		if (ok)
			assert_memory_equal(key.public_key, rfc_public, sizeof rfc_public);
	}
}

static void test_public_files(void **state)
{
	static const struct { const char *text, *why; } files[] = {
		{private_pem, "holds a private key: expected the public one (openssl pkey -pubout writes it)"},
		{"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
			"holds \"CERTIFICATE\": expected \"PUBLIC KEY\" with an Ed25519 key"},
		{"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
			"-----END PUBLIC KEY-----\n", "holds an X25519 key: expected an Ed25519 key"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		uint8_t key[PUBLIC_KEY_BYTES];
		char why[256] = "";
		assert_false(key_parse_public(files[i].text, strlen(files[i].text), key, why, sizeof why));
		assert_string_equal(why, files[i].why);
	}
}

/* Each byte of a key file changed: another key or a refusal, never a crash. */
static void test_changed_files(void **state)
{
	char text[sizeof private_pem], why[256];
	PrivateKey key;
	(void)state;
	for (size_t i = 0; i < sizeof private_pem - 1; i++)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(text, private_pem, sizeof text);
			text[i] = (char)(text[i] ^ 1 << bit);
			if (key_parse_private(text, sizeof text - 1, &key, why, sizeof why))
				key_forget(&key);
			if (bit == 0)
				assert_false(key_parse_private(private_pem, i < sizeof private_pem - 3 ? i : 0, &key, why, sizeof why));
		}
}

static void test_read_files(void **state)
{
	char path[] = "/tmp/test_sign.XXXXXX", why[256] = "";
	uint8_t public_key[PUBLIC_KEY_BYTES];
	PrivateKey key;
	(void)state;
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "wb");
	assert_non_null(file);
	fputs(private_pem, file);
	fflush(file);
	assert_true(key_read_private(path, &key, why, sizeof why));
	assert_memory_equal(key.public_key, rfc_public, sizeof rfc_public);
	for (int i = 0; i < 1 << 12; i++)
		fputs("0123456789abcdef", file);
	fclose(file);
	assert_false(key_read_public(path, public_key, why, sizeof why));
	assert_string_equal(why, "not a key file: it is too long");
	unlink(path);
	assert_false(key_read_private(path, &key, why, sizeof why));
	assert_string_equal(why, "No such file or directory");
	assert_false(key_read_private("/", &key, why, sizeof why));
	assert_string_equal(why, "Is a directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signature), cmocka_unit_test(test_key_files), cmocka_unit_test(test_public_files),
		cmocka_unit_test(test_changed_files), cmocka_unit_test(test_read_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
