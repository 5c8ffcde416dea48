/* attrs.h - the attributes an op may carry, once. Each has one producer, the family's graph
 * builder, and reaches kernels as a macro of the upper-case name.
 *
 * ATTR(NAME, field, type, meaning); type is int or float.
 */
ATTR(HDIM, head_dim, int, "elements of one attention head")
ATTR(NH, n_heads, int, "query heads")
ATTR(NKV, n_kv_heads, int, "key and value heads; query head h reads kv head h / (NH / NKV)")
ATTR(GATED, gated, int, "a gate as wide as q stands behind v in a row of q, k and v (1) or none does (0)")
ATTR(PAGE, page, int, "tokens in one KV page")
ATTR(ROTARY, rotary_dim, int, "leading elements of a head that rope rotates, in pairs (i, i + ROTARY/2)")
ATTR(NORM_ONE, norm_one, int, "rmsnorm multiplies by w (0) or by 1 + w (1)")
ATTR(EPS, eps, float, "added to the mean square inside rmsnorm's root")
ATTR(SCALE, scale, float, "factor on q.k before the softmax, from head_dim before any absorption")
ATTR(ROPE_FACTOR, rope_factor, float, "factor on cos and sin (yarn's attention factor; 1 otherwise)")
ATTR(BLOCK_N, block_n, int, "rows of a weight that share a block scale; 0 = there is none")
ATTR(BLOCK_K, block_k, int, "elements along K that share a block scale; 0 = there is none")
ATTR(SHARED_BLOCK_N, shared_block_n, int, "BLOCK_N of the weights of the expert that all rows go to")
ATTR(SHARED_BLOCK_K, shared_block_k, int, "BLOCK_K of these")
ATTR(TOPK, n_active, int, "experts that a row is given to")
ATTR(NORM_TOPK, norm_topk, int, "the shares of a row's experts add up to 1 (1) or are what the softmax gave (0)")
ATTR(NK, n_k_heads, int, "key heads of the delta rule; value head h reads key head h / (NV / NK)")
ATTR(NV, n_v_heads, int, "value heads of the delta rule")
ATTR(DK, k_dim, int, "elements of one of its keys and queries")
ATTR(DV, v_dim, int, "elements of one of its values")
ATTR(TAPS, n_taps, int, "rows before its own that a causal convolution reads")
ATTR(AHEAD, ahead, int, "positions from a row to the token that its logits are for: 1, and 2 of the head that drafts")
ATTR(EACH, rows_each, int, "rows of a slot in a verify step, from a multiple of EACH on")
ATTR(N_VALID, n_valid, int, "token ids below this may be sampled; padded vocabulary rows never are")
