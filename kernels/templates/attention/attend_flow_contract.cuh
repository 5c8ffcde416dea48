// attend_flow_contract.cuh - contract fragment: attention of prompts by wgmma (attend_flow.cuh), attn_wgmma and _codes.
//
// KV_CODES: prompt_contract.cuh. What is the template's own are its pages, ORDER, RATE and SMEM.
ARCH(90a)
MATRIX(wgmma)
TUNE(KEYS, 128, 64)
#if KV_CODES
TUNE(GROUPS, 2)
#define MAPS 0
#else
TUNE(GROUPS, 2, 3)
#define MAPS 1
#endif
TUNE(TEAM, 1, 4)
FORMULA(pairs_a_tile(), 64 * GROUPS)
#include "attention/prompt_contract.cuh"
REQUIRE(HDIM == 64 || HDIM == 96 || HDIM == 128 || HDIM == 256)
REQUIRE(HDIM <= 128 || KEYS == 64)
REQUIRE(TEAM == 1 || WINDOW == 0)
REQUIRE(TEAM == 1 || (MAX_PAGES * PAGE > 4 * KEYS && row_tiles() * NKV * TEAM <= SMS))
FORMULA(flow_blocks(), (row_tiles() + SEGS) * NKV)
FORMULA(flow_bytes(), 1024 + (64 * GROUPS * (HDIM > 128 ? 1 : 2) + 4 * KEYS) * ceil_div(HDIM, 64) * 128 + 192)
GRID(TEAM == 1 ? min(SMS, flow_blocks()) : flow_blocks() * TEAM, 1, 1)
BLOCK(128 + 128 * GROUPS)
PIECES(row_tiles() * NKV * TEAM)
