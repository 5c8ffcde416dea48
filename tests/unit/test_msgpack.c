/* test_msgpack.c - the validator accepts what msgpack-c writes and refuses all that is not canonical. */
#include "artifacts/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <msgpack.h>

static bool ok(const void *bytes, size_t n, const char **what, size_t *at)
{
	uint8_t *exact = malloc(n + !n); /* so that a sanitizer sees one byte too far */
	memcpy(exact, bytes, n);
	bool good = msgpack_check(exact, n, at, what);
	free(exact);
	return good;
}

static void refused(const char *bytes, size_t n, size_t where, const char *text)
{
	const char *what;
	size_t at;
	assert_false(ok(bytes, n, &what, &at));
	assert_string_equal(what, text);
	assert_int_equal(at, where);
}
#define REFUSED(bytes, where, text) refused(bytes, sizeof bytes - 1, where, text)

static void refuses_what_is_not_canonical(void **state)
{
	(void)state;
	const char *longer = "a number not in its shortest form", *len = "a length not in its shortest form";
	const char *end = "a length beyond the end";
	REFUSED("", 0, "the value does not end");
	REFUSED("\x01\x02", 1, "bytes after the value");
	REFUSED("\xcc\x7f", 0, longer);
	REFUSED("\xcd\x00\xff", 0, longer);
	REFUSED("\xce\x00\x00\xff\xff", 0, longer);
	REFUSED("\xcf\0\0\0\0\xff\xff\xff\xff", 0, longer);
	REFUSED("\xd0\xe0", 0, longer);
	REFUSED("\xd0\x05", 0, longer);
	REFUSED("\xd1\xff\x80", 0, longer);
	REFUSED("\xd2\xff\xff\x80\x00", 0, longer);
	REFUSED("\xd3\xff\xff\xff\xff\x80\0\0\0", 0, longer);
	REFUSED("\xd3\0\0\0\0\x80\0\0\0", 0, longer);
	REFUSED("\xcd\x01", 0, "a number beyond the end");
	REFUSED("\xd9\x01" "a", 0, len);
	REFUSED("\xda\x00\x20" "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0, len);
	REFUSED("\xc5\x00\x01" "a", 0, len);
	REFUSED("\xdc\x00\x01\x01", 0, len);
	REFUSED("\xdd\x00\x00\x00\x10", 0, len);
	REFUSED("\xde\x00\x00", 0, len);
	REFUSED("\xa2" "a", 0, end);
	REFUSED("\xdb\xff\xff\xff\xff" "a", 0, end);
	REFUSED("\xc6\xff\xff\xff\xff" "a", 0, end);
	REFUSED("\xdd\xff\xff\xff\xff\x01", 0, "a count beyond the end");
	REFUSED("\xdf\xff\xff\xff\xff\x01", 0, "a count beyond the end");
	REFUSED("\x92\x01", 0, "a count beyond the end");
	REFUSED("\x92\x01\x91", 2, "a count beyond the end");
	REFUSED("\x81\x01\x02", 1, "a key that is not a string");
	REFUSED("\xc1", 0, "a type the format does not use");
	REFUSED("\xd4\x01\x01", 0, "a type the format does not use");
	REFUSED("\xc7\x01\x01\x01", 0, "a type the format does not use");
	REFUSED("\xa1\x80", 0, "a string that is not UTF-8");
	REFUSED("\xa2\xc0\x80", 0, "a string that is not UTF-8");
	REFUSED("\xa3\xed\xa0\x80", 0, "a string that is not UTF-8");
	REFUSED("\xa4\xf4\x90\x80\x80", 0, "a string that is not UTF-8");
	REFUSED("\xa3" "a\0b", 0, "a zero byte in a string");
}

static void depth_is_bounded(void **state)
{
	(void)state;
	uint8_t nest[4096];
	const char *what;
	size_t at;
	memset(nest, 0x91, sizeof nest);
	nest[15] = 1;
	assert_true(ok(nest, 16, &what, &at)); /* the value itself and 15 arrays around it */
	nest[15] = 0x91;
	assert_false(ok(nest, sizeof nest, &what, &at));
	assert_string_equal(what, "too deep");
	assert_int_equal(at, 15);
}

static void pack_some(msgpack_packer *p, uint32_t *seed, int depth)
{
	*seed = *seed * 1664525u + 1013904223u;
	uint32_t r = *seed >> 8;
	int64_t v = (int64_t)((uint64_t)r << (r % 40)) * (r & 1 ? 1 : -1);
	char text[300];
	memset(text, 'x', sizeof text);
	switch (r % (depth < 8 ? 8 : 6)) {
	case 0: case 1: msgpack_pack_int64(p, v); break;
	case 2: msgpack_pack_float(p, 1.5f); break;
	case 3: msgpack_pack_double(p, 2.5); break;
	case 4: msgpack_pack_str_with_body(p, text, r / 8 % 300); break;
	case 5: msgpack_pack_bin_with_body(p, text, r / 8 % 300); break;
	case 6:
		msgpack_pack_array(p, r / 8 % 20);
		for (uint32_t i = 0; i < r / 8 % 20; i++)
			pack_some(p, seed, depth + 1);
		break;
	default:
		msgpack_pack_map(p, r / 8 % 18);
		for (uint32_t i = 0; i < r / 8 % 18; i++) {
			msgpack_pack_str_with_body(p, text, i);
			pack_some(p, seed, depth + 1);
		}
	}
}

/* Whatever msgpack-c writes is accepted; every cut of it is refused; and what is accepted after a change is
 * also a value for msgpack-c, of the same length. */
static void agrees_with_msgpack_c(void **state)
{
	(void)state;
	uint32_t seed = 1;
	int changed_ok = 0, changed_bad = 0;
	for (int i = 0; i < 400; i++) {
		msgpack_sbuffer b;
		msgpack_sbuffer_init(&b);
		msgpack_packer p;
		msgpack_packer_init(&p, &b, msgpack_sbuffer_write);
		pack_some(&p, &seed, 4);
		const char *what;
		size_t at;
		if (b.size < 20000) {
			assert_true(ok(b.data, b.size, &what, &at));
			for (size_t cut = 0; cut < b.size; cut += 1 + b.size / 50)
				assert_false(ok(b.data, cut, &what, &at));
			for (int flip = 0; flip < 20; flip++) {
				seed = seed * 1664525u + 1013904223u;
				size_t byte = (seed >> 8) % b.size;
				char old = b.data[byte];
				b.data[byte] = (char)(old ^ (1 << (seed >> 4 & 7)));
				if (ok(b.data, b.size, &what, &at)) {
					msgpack_unpacked u;
					msgpack_unpacked_init(&u);
					size_t end = 0;
					assert_int_equal(msgpack_unpack_next(&u, b.data, b.size, &end),
						MSGPACK_UNPACK_SUCCESS);
					assert_int_equal(end, b.size);
					msgpack_unpacked_destroy(&u);
					changed_ok++;
				} else {
					changed_bad++;
				}
				b.data[byte] = old;
			}
		}
		msgpack_sbuffer_destroy(&b);
	}
	assert_true(changed_ok > 100 && changed_bad > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_is_not_canonical),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(agrees_with_msgpack_c),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
