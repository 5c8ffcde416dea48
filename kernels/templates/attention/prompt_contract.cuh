// prompt_contract.cuh - contract fragment: attention of a prompt's rows, attn_prefill, attn_wgmma and attn_wgmma_codes.
//
//   KV_CODES   of the cache: 0 bf16. 1 codes. 2 whichever
//   MAPS       1: the copy engine takes boxes of KEYS positions, or of a page where that has fewer
//
// pairs_a_tile(), which the template states too, are the (row, head) pairs of a tile.
PARAM(KV_CODES, 0, 1, 2)
PARAM(MAPS, 0, 1)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 512)
DIM(SLOTS, 8)
DIM(SEGS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 64)
ATTR_INT(NH, 32)
ATTR_INT(NKV, 8)
ATTR_INT(PAGE, 64)
ATTR_FLOAT(SCALE, 0.125f)
ATTR_INT(WINDOW, 0)
ATTR_INT(CHUNKED, 0)
REQUIRE(!CHUNKED || WINDOW > 0)
#if KV_CODES
#if KV_CODES == 1
DTYPES(KVT, e4m3, e2m1)
#else
DTYPES(KVT, bf16, e4m3, e2m1)
FLAG(KV_SCALE)
REQUIRE(KV_SCALE == (KVT_BITS <= 8))
#endif
FLAG(KV_BLOCK)
REQUIRE(KV_BLOCK == (KVT_BITS == 4))
REQUIRE(KVT_BITS > 4 || PAGE % 4 == 0)
FORMULA(key_bytes(), HDIM * KVT_BITS / 8 + KV_BLOCK * HDIM / 16)
FORMULA(raw_key_bytes(), HDIM * KVT_BITS / 8 + KV_BLOCK * HDIM / 4)
#else
FORMULA(key_bytes(), HDIM * 2)
#endif
FLAG(SINKS)
DTYPES(SINKT, bf16, f16, f32)
REQUIRE(NH % NKV == 0)
FORMULA(row_tiles(), ceil_div(ROWS * (NH / NKV), pairs_a_tile()))
FORMULA(seen(), WINDOW > 0 ? min(WINDOW, MAX_PAGES * PAGE) : MAX_PAGES * PAGE)
READS(ROWS * NH * HDIM * 2 + row_tiles() * min(2 * seen(), MAX_PAGES * PAGE) * NKV * key_bytes())
WRITES(ROWS * NH * HDIM * 2)
FLOPS(4 * ROWS * NH * HDIM * seen())
struct Args {
	IN(i32, step, "4");
	IN(bf16, q, "ROWS, NH * HDIM");
#if KV_CODES
	IN(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
#else
	IN(bf16, kv, "PAGES, 2, NKV, PAGE, HDIM");
#endif
#if MAPS
	TENSOR_MAP(kv, kv_map, min(PAGE, KEYS), 64);
#endif
#if KV_CODES == 1
	IN(f32, kv_scale, "2, NKV");
#elif KV_CODES
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
#endif
#if KV_CODES
	IN_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
#endif
	IN(i32, row_slot, "ROWS");
	IN(i32, row_pos, "ROWS");
	IN(i32, seg, "SEGS, 4");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	OUT(bf16, o, "ROWS, NH * HDIM");
	IN_IF(SINKS, SINKT, sinks, "NH");
};
