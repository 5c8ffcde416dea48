// step_contract.cuh - contract fragment: attention of decode rows, attn_step, and of verify rows, attn_verify.
//
// EXTRAS 1: there may be norms of values, norms over all heads, and sinks.
// VERIFY 1: a slot has EACH rows, which look at its history together. The heads of a kv head are step_tiles() tiles of
// step_lines() lines, a head of a row each.
PARAM(VERIFY, 0, 1)
PARAM(EXTRAS, 0, 1)
ARCH(80)
NUMERICS(f32_accumulate, batch_invariant)
DIM(ROWS, 3)
DIM(SLOTS, 8)
DIM(MAX_PAGES, 128)
DIM(PAGES, 1024)
ATTR_INT(HDIM, 128)
ATTR_INT(NH, 16)
ATTR_INT(NKV, 4)
ATTR_INT(V_IS_K, 0)
ATTR_INT(GATED, 0)
ATTR_INT(PAGE, 16)
ATTR_FLOAT(SCALE, 0.125f)
ATTR_INT(WINDOW, 0)
ATTR_INT(CHUNKED, 0)
REQUIRE(!CHUNKED || WINDOW > 0)
ATTR_INT(ROTARY, 128)
ATTR_INT(NEIGHBOURS, 0)
ATTR_INT(ROTATE, 0)
ATTR_FLOAT(ROPE_FACTOR, 1.0f)
ATTR_FLOAT(EPS, 1e-5f)
#if !VERIFY
ATTR_INT(NORM_WHOLE, 0)
#if EXTRAS
REQUIRE(!NORM_WHOLE || Q_NORM && K_NORM)
#else
REQUIRE(!NORM_WHOLE)
#endif
#endif
ATTR_INT(NORM_ONE, 0)
FLAG(Q_NORM)
FLAG(K_NORM)
DTYPES(QT, bf16, f16, f32)
DTYPES(KT, bf16, f16, f32)
#if EXTRAS
FLAG(V_NORM)
FLAG(SINKS)
DTYPES(VT, f32, bf16, f16)
DTYPES(SINKT, bf16, f16, f32)
#endif
FLAG(KV_SCALE)
FLAG(KV_BLOCK)
DTYPES(KVT, bf16, e4m3, e2m1)
TUNE(SPLITS, 16, 1, 2, 4, 8, 32)
TUNE(WARPS, 4, 8, 2)
TUNE(STAGES, 2, 3, 4)
TUNE(CLUSTER, 8, 4, 2, 1)
TUNE(RUN, 0, 256, 512)
#if VERIFY
ATTR_INT(EACH, 3)
REQUIRE(EACH >= 2 && EACH <= 4 && ROWS % EACH == 0)
FORMULA(step_slots(), ROWS / EACH) FORMULA(new_keys(), EACH)
FORMULA(step_tiles(), ceil_div(EACH * ceil_div(NH / NKV, 2), 8))
FORMULA(step_lines(), 2 * min(EACH * ceil_div(NH / NKV, 2), 8))
FORMULA(table_bytes(), MAX_PAGES <= 2048 ? align(MAX_PAGES * 4, 16) : 0)
FORMULA(turn_bytes(), align(EACH * ROTARY * 4, 16))
#else
FORMULA(step_slots(), ROWS) FORMULA(new_keys(), 1)
FORMULA(step_tiles(), ceil_div(NH / NKV, 16))
FORMULA(step_lines(), min(NH / NKV, 16))
FORMULA(table_bytes(), MAX_PAGES <= 4096 ? align(MAX_PAGES * 4, 16) : 0)
FORMULA(turn_bytes(), 0)
PREFER(HDIM < 128 || CLUSTER <= 2)
#endif
// Of long heads a block has all of the keys and half of each value: the other half is another's.
FORMULA(parts_of_v(), HDIM > 256 ? 2 : 1)
FORMULA(v_columns(), HDIM / parts_of_v())
// Blocks of one run of each slot; where heads are the rows of a tile, as PREFER counts them for both.
FORMULA(a_run(), NKV * step_tiles() * parts_of_v() * step_slots())
FORMULA(a_plain_run(), NKV * ceil_div(NH / NKV, 16) * parts_of_v() * step_slots())
FORMULA(seen(), WINDOW > 0 ? min(WINDOW, MAX_PAGES * PAGE) : MAX_PAGES * PAGE)
FORMULA(least_run(), WINDOW > 0 ? 128 : 64)
REQUIRE(HDIM == 32 || HDIM == 64 || HDIM == 80 || HDIM == 96 || HDIM == 128 || HDIM == 256
	|| HDIM == 512 && NH / NKV % 2 == 0)
REQUIRE(NH % NKV == 0)
REQUIRE(!V_IS_K || !GATED)
REQUIRE(ROTARY % 2 == 0 && ROTARY <= HDIM)
REQUIRE(SPLITS % CLUSTER == 0)
PREFER(CLUSTER == 1 || SPLITS * a_run() <= (VERIFY && CLUSTER == 2 ? SMS : SMS / 2))
PREFER(SPLITS == 1 || (SPLITS * a_plain_run() <= SMS && SPLITS <= seen() / least_run()))
PREFER((SPLITS == 32 || 2 * SPLITS * a_plain_run() > SMS / 2 || SPLITS * 2 * max(least_run(), RUN) > seen())
	&& (RUN == 0 || RUN >= 2 * WARPS * (KVT_BITS == 16 ? 16 : 32)))
REQUIRE(KV_SCALE == (KVT_BITS <= 8) && KV_BLOCK == (KVT_BITS == 4))
REQUIRE(KVT_BITS > 4 || PAGE % 16 == 0)
PREFER((KVT_BITS == 16 || HDIM > 128) == (WARPS != 8) || WARPS == 4 && has_little_smem())
PREFER(WARPS > 2 || HDIM >= 256)
PREFER(STAGES > 2 || HDIM >= 128)
PREFER(HDIM != 128 || KVT_BITS < 16 || STAGES == 4 || has_least_smem())
REQUIRE(ROWS <= 65535)
REQUIRE(MAX_PAGES * PAGE <= 6000000)
ORDER(attend_runs, RUN > 0 ? 0 : SPLITS, RUN, WARPS)
GRID(NKV * step_tiles() * parts_of_v(), ROWS, SPLITS)
BLOCK(32 * WARPS)
// Shared memory: q, new keys and values, page table and turns, shares of a team, the warps' rings; with runs, their
// totals and, where a stage has no room for them, the warps' sums.
FORMULA(stage_size(), KVT_BITS == 16 ? 16 * (HDIM * 2 + v_columns() * 2 + 32)
	: 64 * (ceil_div(HDIM * KVT_BITS, 128) / 2 * 2 + 1) * 16 + (KVT_BITS == 4 ? 4 * HDIM : 0))
FORMULA(share_bytes(),
	CLUSTER > 1 && (!VERIFY || HDIM < 128 || CLUSTER <= 2) ? CLUSTER * step_lines() * (v_columns() + 4) * 4 : 0)
FORMULA(total_bytes(), RUN > 0 && SPLITS < 32 ? step_lines()
	* (v_columns() * 6 + (step_lines() * (v_columns() + 8) * 4 <= stage_size() ? 0
	: WARPS * (v_columns() + 8) * 4)) : 0)
SMEM(16 * ((KVT_BITS == 4 ? align(HDIM, 32) : HDIM) * 2 + 16)
	+ new_keys() * (KVT_BITS == 16 ? 4 * HDIM : 10 * HDIM + 2 * align(HDIM / 16, 16))
	+ table_bytes() + turn_bytes() + share_bytes()
	+ WARPS * (STAGES * stage_size() + (KVT_BITS == 4 ? 8 * HDIM : 0)) + total_bytes() + (RUN > 0 ? 128 : 0))
FORMULA(kept_bytes(), NKV * (HDIM * KVT_BITS / 4 + (KVT_BITS == 4 ? HDIM / 8 : 0)))
READS(ROWS * (NH + (2 - V_IS_K) * NKV + GATED * NH) * HDIM * 2 + step_slots() * seen() * kept_bytes())
WRITES(ROWS * (NH * HDIM * 2 + kept_bytes() + (SPLITS > 1 ? NH * (RUN > 0 ? 32 : SPLITS) * (HDIM + 2) * 4 : 0)))
FLOPS(4 * ROWS * NH * HDIM * seen())
EARLY(slot_token, slot_len, page_table, kv, kv_block)
struct Args {
	IN(i32, step, "4");
	IN(bf16, qkv, "ROWS, (NH + (2 - V_IS_K) * NKV + GATED * NH) * HDIM");
#if VERIFY
	IN_IF(Q_NORM, QT, q_norm, "HDIM");
	IN_IF(K_NORM, KT, k_norm, "HDIM");
#else
	IN_IF(Q_NORM, QT, q_norm, "(NORM_WHOLE * (NH - 1) + 1) * HDIM");
	IN_IF(K_NORM, KT, k_norm, "(NORM_WHOLE * (NKV - 1) + 1) * HDIM");
#endif
	IN(f32, inv_freq, "ROTARY / 2");
	IN(i32, row_slot, "ROWS");
	IN(i32, slot_token, "SLOTS");
	IN(i32, slot_len, "SLOTS");
	IN(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(KVT, kv, "PAGES, 2, NKV, PAGE, HDIM");
	IN_IF(KV_SCALE, f32, kv_scale, "2, NKV");
	INOUT_IF(KV_BLOCK, e4m3, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16");
	OUT(f32, part, "ROWS, NH, RUN == 0 ? SPLITS : SPLITS == 1 ? 1 : 32, HDIM");
	OUT(f32, part_ml, "ROWS, NH, RUN == 0 ? SPLITS : SPLITS == 1 ? 1 : 32, 2");
	INOUT(i32, arrived, "ROWS, NH");
	OUT(bf16, o, "ROWS, NH * HDIM");
#if EXTRAS
	IN_IF(V_NORM, VT, v_norm, "HDIM");
	IN_IF(SINKS, SINKT, sinks, "NH");
#endif
};
