/* ops.h - every operation, once: its operands in order, its attributes and its formula.
 *
 * OP(name, traits, attributes, meaning, operands...)
 *   traits      OP_GRAPH  may be in a graph (what the model means)
 *               OP_FUSED  is in plans only; its meaning is a sequence of graph ops (compiler/lower/fuse.c)
 *               OP_PLAN   is in plans only, with a formula of its own
 *               OP_RANKS  is in graphs of several ranks only (artifacts/ranks.h)
 *               and of its reference (runtime/cpu): OP_PARTS  can do its work in parts; OP_SCRATCH  takes scratch
 *   attributes  names of artifacts/attrs.h, separated by spaces
 *   meaning     indices: t row, o output row, h head, d element of a head, s slot, v vocabulary id
 *   operands    IN, INOUT, OUT, and IN_OPT, INOUT_OPT, which may be absent: class, name, and shape in dims local to
 *               the op. ROWS rows of the step, OUTS rows that need logits, SLOTS sequences, SEGS = SLOTS
 *
 *   class    what it is                                         elements
 *   floats   values of rows, or their codes and scales          bf16, f32; e4m3, e2m1
 *   ints     of rows and of the step; tables of token ids       i32
 *   weight   a weight that is read as it is                     bf16, f16, f32
 *   codes    the weight of a product                            these, or codes: e4m3, e2m1, u4
 *   scales   of such codes, and of those of keys and values     f32, f32z, bf16, e4m3, e8m0
 *   slot     of each slot, kept from step to step               i32
 *   state    of each slot or page, kept from step to step       f32, bf16; of keys and values e4m3, e2m1 as well
 *   own      of one launch alone; what counts is 0 before it and after it
 *   peer     what ranks show each other (artifacts/peers.h)     i32
 *
 * Kernel contracts bind by the names. Rows beyond the step's count and rows whose slot is -1 are idle: their inputs are
 * defined and their results are never read, but they must not write state.
 *
 * CODES
 *   A weight w [N,K] has a scale for each block of BLOCK_N rows and BLOCK_K elements, or one for each row, or both:
 *           BLOCK_K
 *          +-------+-------+---+             w_scale [ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)]: 2 x 3 here;
 *  BLOCK_N |       |       |   |             the last blocks of a row and of a column may be cut off
 *          +-------+-------+---+
 *        N |       |       |   |             w_row_scale [N]
 *          +-------+-------+---+
 *                    K
 *
 *   w[n,k] = value(code[n,k]) * w_scale[n / BLOCK_N, k / BLOCK_K] * w_row_scale[n]     in f32, from left to right,
 *   without the factors that are absent. gate and up have their own, and share the size of blocks. Codes of u4 have
 *   scales of f32z, and no other codes have: of these, value(code) is the code less the zero of its scale.
 *
 *   Rows x [ROWS,K] of e4m3 have a scale of f32 for each 128 columns; of e2m1, one of e4m3 for each 16 columns and one
 *   of f32 a row (the last columns may be fewer):
 *     e4m3   x_scale [ceil_div(K,128),ROWS]                    x[t,k]: value(code) * x_scale[k / 128, t]
 *     e2m1   x_block [ROWS,ceil_div(K,16)], x_row_scale [ROWS] x[t,k]: value(code) * x_block[t,k / 16] * x_row_scale[t]
 *
 *   The same of a result y, where the code is that of y over its scales, in f32:
 *     y_scale       the largest |y| of its columns / 448, or 1 where that is below 2^-100
 *     y_row_scale   the largest |y| of the row / 2688, or 1 where that is below 2^-100
 *     y_block       the e4m3 code of the largest |y| of its columns / y_row_scale / 6, at least 2^-9
 *
 *   A NaN or an infinity has the code NaN; of e2m1 its block is NaN.
 *
 * STEP
 *   step    [4]       | rows in use | outs in use | segments in use | flags: 1 = score only, sample nothing |
 *   seg     [SEGS,4]  | first row | rows | slot | position of the first row |     prefill only; rows of one slot are
 *                     consecutive and ascending in position
 *   row_next  [ROWS]  the token after a row: of a prompt as the host knows it, 0 after the last one; of a verify step
 *                     what was drawn for the row
 *
 * SLOTS
 *   Position p of slot s is line p % PAGE of page page_table[s, p / PAGE], of the pool or of the slot (rolling.h):
 *     kv        [PAGES,2,NKV,PAGE,HDIM]          page | keys (0) | head | line | HDIM elements |
 *                                                     | values (1) | head | line | ...
 *     kv_scale  [2,NKV] f32                      of keys and of values of a head, where kv is e4m3 or e2m1
 *     kv_block  [PAGES,2,NKV,PAGE,HDIM/16] e4m3  of each 16 elements, where kv is e2m1
 *
 *     kv       an element is              a code is that of         block
 *     e4m3     code * kv_scale            x / kv_scale
 *     e2m1     code * block * kv_scale    x / (block * kv_scale)    largest |x| / kv_scale / 6, at least 2^-9
 *     others   as it comes: there is no kv_scale
 *
 *   Quotients and products in f32, from left to right. Codes are rounded to nearest, ties to even, what is too large to
 *   the largest; NaN stays NaN, for e2m1 in the block.
 *
 *   Where ROTATE, q and k of a head are multiplied by the Hadamard matrix over the root of its size, y[d] = sum_i
 *   (-1)^(ones of d & i) x[i] / sqrt(n), d and i below n. n is the largest power of two in HDIM; what is left of a head
 *   is rotated in the same way (80 elements as 64 and 16). q.k stays as it is, and what a few elements of a key had is
 *   spread over all of them before it is rounded to codes.
 *
 *   delta      f32 or bf16, and delta_later with it. S is f32 while the rows of a step go through it. What is bf16 is
 *              rounded, to nearest, ties to even, when it is stored: after a slot's last row in the step, in verify
 *              after each, and the row after that goes on from what was stored. o is of what was not rounded yet
 *   counts     [SLOTS,V]: times v was generated for slot s, plus 2^30 if v occurs in its prompt
 *   slot_token [SLOTS]: the last token, which the next step reads; -1 = the sequence has ended. Decode steps may go on
 *              with such a slot: it reads token 0 at position 0 and draws nothing
 *   sampling   [SLOTS,8] f32  | temperature (0 = greedy) | top_p | min_p | repetition penalty
 *                             | presence penalty | frequency penalty | unused | unused |
 *   limits     [SLOTS,8]      | top_k (0 = all) | seed low | seed high | positions the slot may hold
 *                             | given 1 | given 2 | given 3 | rules, plus 2^16 if stop_tokens are tokens like others,
 *                             | plus 2^17 if its tokens are masked |
 *              given j, for measuring alone: 0, or in how many of 2^16 positions the slot's j-th draft counts as
 *              accepted whatever was drawn (by a hash of the position: ref_draft.c)
 *   rules      [SLOTS,1536]   384 times | token id | bits of an f32 | position | 1 = it ends the sequence, else 0 |
 *              The first limits[s,7] mod 2^16 are the slot's, no two of one token. The f32 is added to the token's
 *              score, which is -inf below the position. Scores are changed for the draw alone: logits are left as the
 *              penalties make them
 *   masks      [SLOTS,ceil_div(V,32)] where limits says so: bit v % 32 of word v / 32 = v may be drawn, else its score
 *              is -inf, as by a rule. The host writes a row before the step that draws by it
 *   ring       [SLOTS,256]    64 times | p | token | done | seal: bits of its f32 log probability (artifacts/ring.h) |
 *              results, in memory that the host sees; the token that makes slot_len = p is entry p % 64. done: 0 goes
 *              on, 1 stop token, 2 slot full, 3 the logits are not numbers, 4 goes on, and the next token is of the
 *              same step
 *
 * DRAFTS
 *   A verify step reads consecutive rows of a slot, at most DRAFTS + 1, and leaves a version of its state after each:
 *     row                0             1               2               ...   DRAFTS
 *     token              slot_token    slot_draft[0]   slot_draft[1]         slot_draft[DRAFTS - 1]
 *     version of conv    conv[s]       conv_later[s,0] conv_later[s,1]       conv_later[s,DRAFTS - 1]
 *     and of delta       delta[s]      delta_later[s,0] ...
 *
 *   slot_draft    [SLOTS,DRAFTS]: the tokens drafted after slot_token, by the head or, as an input, by the host
 *   masks_later   [SLOTS,DRAFTS,ceil_div(V,32)]: of a slot that is masked, row j of it draws by masks_later[s,j - 1],
 *                 row 0 by masks[s]. The host makes them for the drafts that it knows, and leaves no bit in that of the
 *                 row after them: such a row draws nothing, and the step's tokens of the slot end before it
 *   slot_version  [SLOTS]: the version that the slot's state is of, from which the next verify step goes on; 0 too
 *                 where there was none yet. Prefill and decode are of slots whose version is 0, and know no other
 */
#define STEP IN(ints, step, "4")
#define SETTINGS IN(state, sampling, "SLOTS, 8"), IN(slot, limits, "SLOTS, 8"), IN(slot, rules, "SLOTS, 1536")
#define ROW_CODES IN_OPT(floats, x_scale, "ceil_div(K, 128), ROWS"), \
	IN_OPT(floats, x_block, "ROWS, ceil_div(K, 16)"), IN_OPT(floats, x_row_scale, "ROWS")
#define SCALES(w, rows) IN_OPT(scales, w##_scale, "ceil_div(" rows ", BLOCK_N), ceil_div(K, BLOCK_K)"), \
	IN_OPT(scales, w##_row_scale, rows)
/* Rows of experts: with step, each names its own; with pair and first they are in the order of experts. */
#define CHOSEN IN_OPT(ints, step, "4"), IN(floats, n, "ROWS, K"), IN_OPT(ints, expert, "ROWS, TOPK"), \
	IN(floats, share, "ROWS, TOPK"), IN_OPT(ints, pair, "ROWS * TOPK"), IN_OPT(ints, first, "EXPERTS + 1")
#define EXPERTS IN(floats, x, "ROWS, K"), IN(ints, expert, "ROWS, TOPK"), IN(floats, share, "ROWS, TOPK"), \
	IN(codes, gate_up, "E, 2 * N, K"), IN_OPT(scales, gate_up_scale, \
	"E, 2 * ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(scales, gate_up_row_scale, "E, 2 * N"), \
	IN(codes, down, "E, K, N"), IN_OPT(scales, down_scale, "E, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"), \
	IN_OPT(scales, down_row_scale, "E, K"), OUT(floats, y, "ROWS, K")
#define GATE_AND_UP IN(codes, gate, "N, K"), IN(codes, up, "N, K"), SCALES(gate, "N"), SCALES(up, "N"), \
	IN_OPT(weight, gate_bias, "N"), IN_OPT(weight, up_bias, "N")
#define EXPERTS_UP IN(codes, gate_up, "EXPERTS, N, K"), \
	IN_OPT(scales, gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)"), \
	IN_OPT(scales, gate_up_row_scale, "EXPERTS, N")
#define EXPERTS_DOWN IN(codes, down, "EXPERTS, K, N"), \
	IN_OPT(scales, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"), \
	IN_OPT(scales, down_row_scale, "EXPERTS, K"), IN_OPT(codes, shared_down, "K, WIDTH - TOPK * N"), \
	IN_OPT(scales, shared_down_scale, "ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)"), \
	IN_OPT(scales, shared_down_row_scale, "K")
#define ROUTER STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), IN(weight, router, "EXPERTS, K"), \
	INOUT(own, routed, "ROWS"), OUT(floats, logits, "ROWS, EXPERTS"), OUT(ints, expert, "ROWS, TOPK")
#define QKV_HEADS(n_q, n_k) IN(floats, qkv, "ROWS, (NH + (2 - V_IS_K) * NKV + GATED * NH) * HDIM"), \
	IN_OPT(weight, q_norm, n_q "HDIM"), IN_OPT(weight, k_norm, n_k "HDIM"), IN_OPT(weight, v_norm, "HDIM"), \
	IN(weight, inv_freq, "ROTARY / 2"), IN(ints, row_slot, "ROWS")
#define KV_READ IN(state, kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(scales, kv_scale, "2, NKV"), \
	IN_OPT(state, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16")
#define KV_WRITTEN INOUT(state, kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(scales, kv_scale, "2, NKV"), \
	INOUT_OPT(state, kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16")

OP(slot_rows, OP_GRAPH, "",
	"decode: row_token[t] = slot_token[row_slot[t]]; row_pos[t] = slot_len[row_slot[t]]; idle rows and ended slots: 0, "
	"0",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	OUT(ints, row_token, "ROWS"), OUT(ints, row_pos, "ROWS"))
OP(note_prompt, OP_GRAPH, "", "prefill: counts[row_slot[t], row_token[t]] |= 2^30 for rows in use, unless scoring",
	STEP, IN(ints, row_token, "ROWS"), IN(ints, row_slot, "ROWS"), INOUT(slot, counts, "SLOTS, V"))
OP(embed, OP_GRAPH, "", "x[t,:] = table[row_token[t],:]",
	IN(ints, row_token, "ROWS"), IN(weight, table, "V, H"), OUT(floats, x, "ROWS, H"))
OP(rmsnorm, OP_GRAPH, "EPS NORM_ONE", "y[t,:] = x[t,:] / sqrt(mean(x[t,:]^2) + EPS) * (w or 1 + w)",
	IN(floats, x, "ROWS, K"), IN(weight, w, "K"), OUT(floats, y, "ROWS, K"))
OP(linear, OP_GRAPH | OP_PARTS, "BLOCK_N BLOCK_K", "y[t,n] = sum_k x[t,k] w[n,k] + bias[n]",
	IN(floats, x, "ROWS, K"), IN(codes, w, "N, K"), SCALES(w, "N"), IN_OPT(weight, bias, "N"),
	OUT(floats, y, "ROWS, N"))
OP(head_norm, OP_GRAPH, "HDIM EPS NORM_ONE", "rmsnorm over each head of HDIM elements, one w for all heads",
	IN(floats, x, "ROWS, N"), IN(weight, w, "HDIM"), OUT(floats, y, "ROWS, N"))
OP(rope, OP_GRAPH, "HDIM ROTARY NEIGHBOURS ROTATE ROPE_FACTOR",
	"pair i of each head, (i, i + ROTARY/2) or with NEIGHBOURS (2i, 2i + 1), turned by row_pos[t] * inv_freq[i]; cos, "
	"sin times ROPE_FACTOR. With ROTATE each head is then rotated (above)",
	IN(floats, x, "ROWS, N"), IN(weight, inv_freq, "ROTARY / 2"), IN(ints, row_pos, "ROWS"), OUT(floats, y, "ROWS, N"))
OP(kv_write, OP_GRAPH, "HDIM NKV PAGE", "kv[page of (row_slot[t], row_pos[t])] = k[t,:], v[t,:] for rows in use",
	STEP, IN(floats, k, "ROWS, NKV * HDIM"), IN(floats, v, "ROWS, NKV * HDIM"), IN(ints, row_slot, "ROWS"),
	IN(ints, row_pos, "ROWS"), IN(slot, page_table, "SLOTS, MAX_PAGES"), KV_WRITTEN)
OP(attention, OP_GRAPH | OP_PARTS | OP_SCRATCH, "HDIM NH NKV PAGE SCALE WINDOW CHUNKED",
	"o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over p <= row_pos[t] of the row's slot, the last "
	"WINDOW, with CHUNKED those of its chunk, or all; with sinks, e^sinks[h] is one more term of the sum, of value 0",
	STEP, IN(floats, q, "ROWS, NH * HDIM"), KV_READ, IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"),
	IN_OPT(ints, seg, "SEGS, 4"), IN(slot, page_table, "SLOTS, MAX_PAGES"), IN_OPT(weight, sinks, "NH"),
	OUT(floats, o, "ROWS, NH * HDIM"))
OP(add, OP_GRAPH, "", "z = x + y", IN(floats, x, "ROWS, N"), IN(floats, y, "ROWS, N"), OUT(floats, z, "ROWS, N"))
OP(swiglu, OP_GRAPH, "", "y = silu(gate) * up",
	IN(floats, gate, "ROWS, N"), IN(floats, up, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(swiglu_limited, OP_GRAPH, "GATE_LIMIT",
	"y = min(silu(gate), GATE_LIMIT) * (up, within -GATE_LIMIT and GATE_LIMIT)",
	IN(floats, gate, "ROWS, N"), IN(floats, up, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(geglu, OP_GRAPH, "", "y = g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) * up, g = gate",
	IN(floats, gate, "ROWS, N"), IN(floats, up, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(relu_squared, OP_GRAPH, "", "y = max(x, 0)^2", IN(floats, x, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(scale, OP_GRAPH, "FACTOR", "y = FACTOR x", IN(floats, x, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(scale_by, OP_GRAPH, "", "y = w[0] x", IN(floats, x, "ROWS, N"), IN(weight, w, "1"), OUT(floats, y, "ROWS, N"))
OP(scale_rows, OP_GRAPH, "", "y[t,n] = share[t,0] * x[t,n]",
	IN(floats, x, "ROWS, N"), IN(floats, share, "ROWS, 1"), OUT(floats, y, "ROWS, N"))
OP(columns, OP_GRAPH, "FIRST", "y[t,m] = x[t, FIRST + m]", IN(floats, x, "ROWS, N"), OUT(floats, y, "ROWS, M"))
OP(quantise, OP_GRAPH, "", "y, y_scale = codes of x (above)",
	IN(floats, x, "ROWS, K"), OUT(floats, y, "ROWS, K"), OUT(floats, y_scale, "ceil_div(K, 128), ROWS"))
OP(dequantise, OP_GRAPH, "", "y[t,k] = x[t,k] * x_scale[k / 128, t]",
	IN(floats, x, "ROWS, K"), IN(floats, x_scale, "ceil_div(K, 128), ROWS"), OUT(floats, y, "ROWS, K"))
OP(quantise_fp4, OP_GRAPH, "", "y, y_block, y_row_scale = codes of x (above)",
	IN(floats, x, "ROWS, K"), OUT(floats, y, "ROWS, K"), OUT(floats, y_block, "ROWS, ceil_div(K, 16)"),
	OUT(floats, y_row_scale, "ROWS"))
OP(dequantise_fp4, OP_GRAPH, "", "y[t,k] = x[t,k] * x_block[t, k / 16] * x_row_scale[t]",
	IN(floats, x, "ROWS, K"), IN(floats, x_block, "ROWS, ceil_div(K, 16)"), IN(floats, x_row_scale, "ROWS"),
	OUT(floats, y, "ROWS, K"))
OP(sigmoid_gate, OP_GRAPH, "", "y[t,n] = x[t,n] * sigmoid(gate[t, n / (N / G)])",
	IN(floats, x, "ROWS, N"), IN(floats, gate, "ROWS, G"), OUT(floats, y, "ROWS, N"))
OP(softplus_gate, OP_GRAPH, "", "y[t,n] = x[t,n] * log(1 + e^gate[t, n / (N / G)])",
	IN(floats, x, "ROWS, N"), IN(floats, gate, "ROWS, G"), OUT(floats, y, "ROWS, N"))
OP(route, OP_GRAPH, "TOPK NORM_TOPK",
	"p = softmax(logits[t,:]); expert[t,:] = the ids of the TOPK largest p, largest first, the lowest id among equals; "
	"share[t,j] = p[expert[t,j]], with NORM_TOPK over the sum of these",
	IN(floats, logits, "ROWS, E"), OUT(ints, expert, "ROWS, TOPK"), OUT(floats, share, "ROWS, TOPK"))
OP(route_sigmoid, OP_GRAPH, "TOPK NORM_TOPK GROUPS TOP_GROUPS SHARE_EPS SHARE_SCALE",
	"s = sigmoid(logits[t,:]); expert[t,:] = the ids of the TOPK largest s + bias, largest first, the lowest id among "
	"equals, out of the TOP_GROUPS of the GROUPS groups of E / GROUPS ids whose two largest s + bias have the largest "
	"sums; share[t,j] = s[expert[t,j]], with NORM_TOPK over (the sum of these + SHARE_EPS), times SHARE_SCALE",
	IN(floats, logits, "ROWS, E"), IN_OPT(weight, bias, "E"), OUT(ints, expert, "ROWS, TOPK"),
	OUT(floats, share, "ROWS, TOPK"))
OP(scale_shares, OP_GRAPH, "", "y[t,j] = share[t,j] * w[expert[t,j]]",
	IN(floats, share, "ROWS, J"), IN(ints, expert, "ROWS, J"), IN(weight, w, "E"), OUT(floats, y, "ROWS, J"))
OP(experts, OP_GRAPH | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K",
	"y[t,:] = sum_j share[t,j] down[e] (silu(gate[e] x[t]) * (up[e] x[t])), e = expert[t,j]; rows of gate_up[e]: gate, "
	"up, each with separate blocks",
	EXPERTS)
OP(experts_clamped, OP_GRAPH | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K GATE_SLOPE GATE_LIMIT",
	"y[t,:] = sum_j share[t,j] (down[e] h + down_bias[e]), e = expert[t,j]; p = gate_up[e] x[t] + gate_up_bias[e]; g = "
	"min(p[2n], GATE_LIMIT); u = p[2n+1] within -GATE_LIMIT and GATE_LIMIT; h[n] = (u + 1) g sigmoid(GATE_SLOPE g)",
	IN(floats, x, "ROWS, K"), IN(ints, expert, "ROWS, TOPK"), IN(floats, share, "ROWS, TOPK"),
	IN(codes, gate_up, "E, 2 * N, K"),
	IN_OPT(scales, gate_up_scale, "E, ceil_div(2 * N, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN(weight, gate_up_bias, "E, 2 * N"), IN(codes, down, "E, K, N"),
	IN_OPT(scales, down_scale, "E, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"), IN(weight, down_bias, "E, K"),
	OUT(floats, y, "ROWS, K"))
OP(experts_limited, OP_GRAPH | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K GATE_LIMIT",
	"experts, with swiglu_limited in place of silu(gate) * up",
	EXPERTS)
OP(experts_gelu, OP_GRAPH | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K",
	"experts, with geglu in place of silu(gate) * up",
	EXPERTS)
OP(causal_conv, OP_GRAPH, "TAPS",
	"y[t,c] = silu(sum_j w[c,0,j] x[j rows on from TAPS before t, c]), over the rows of t's slot by position: those of "
	"this step, before them conv[s], which then holds the slot's last TAPS rows",
	STEP, IN(floats, x, "ROWS, C"), IN(weight, w, "C, 1, TAPS + 1"), IN(ints, row_slot, "ROWS"),
	INOUT(state, conv, "SLOTS, TAPS * C"), OUT(floats, y, "ROWS, C"))
OP(delta_rule, OP_GRAPH | OP_PARTS, "NK NV DK DV",
	"qkv rows are q, k, v heads; q, k over sqrt(their square + 1e-6), q over sqrt(DK); by value head, row after row: S "
	"= delta[s,h] * e^(-e^a_log softplus(a + dt_bias)); S += k (sigmoid(b) (v - k.S)); o = q.S; delta[s,h] = S "
	"[DK,DV]. S in bf16 is rounded after each 64th row of a slot in this step, and after the last",
	STEP, IN(floats, qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(floats, a, "ROWS, NV"), IN(floats, b, "ROWS, NV"),
	IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"), IN(ints, row_slot, "ROWS"),
	INOUT(state, delta, "SLOTS, NV * DK * DV"), OUT(floats, o, "ROWS, NV * DV"))
OP(gated_norm, OP_GRAPH, "HDIM EPS", "y = rmsnorm of x over each head of HDIM elements, one w for all heads, * silu(z)",
	IN(floats, x, "ROWS, N"), IN(floats, z, "ROWS, N"), IN(weight, w, "HDIM"), OUT(floats, y, "ROWS, N"))
OP(zero_slots, OP_GRAPH, "", "state[s,:] = 0 for each slot s with acquire[s] = 1",
	IN(ints, acquire, "SLOTS"), INOUT(state, state, "SLOTS, N"))
OP(gather, OP_GRAPH, "", "y[o,:] = x[out_row[o],:]; idle outs (-1): 0",
	IN(floats, x, "ROWS, K"), IN(ints, out_row, "OUTS"), OUT(floats, y, "OUTS, K"))
OP(soft_cap, OP_GRAPH, "CAP", "y = CAP tanh(x / CAP)", IN(floats, x, "ROWS, N"), OUT(floats, y, "ROWS, N"))
OP(sample, OP_GRAPH | OP_SCRATCH, "N_VALID",
	"per out row of slot s that has not ended: penalties, rules, mask, temperature, top-k, top-p, min-p, then argmax "
	"or Gumbel-max with Philox(seed, slot_len); token -> slot_token (-1 when done), counts, ring; slot_len = row_pos + "
	"1; a NaN or an infinite maximum: token -1, done 3, counts as they were",
	STEP, INOUT(floats, logits, "OUTS, V"), IN(ints, out_row, "OUTS"), IN(ints, row_slot, "ROWS"),
	IN(ints, row_pos, "ROWS"), SETTINGS, IN(slot, masks, "SLOTS, ceil_div(V, 32)"), IN(ints, stop_tokens, "STOPS"),
	INOUT(slot, counts, "SLOTS, V"), INOUT(slot, slot_token, "SLOTS"), INOUT(slot, slot_len, "SLOTS"),
	INOUT(slot, ring, "SLOTS, 256"))
OP(verify_rows, OP_GRAPH, "",
	"verify: row t is the j-th in a run of rows of slot s: row_token = slot_token[s], or draft j - 1; row_pos = "
	"slot_len[s] + j. Ended slots: 0, j; idle rows: 0, 0",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	IN(slot, slot_draft, "SLOTS, DRAFTS"), OUT(ints, row_token, "ROWS"), OUT(ints, row_pos, "ROWS"))
OP(draft_rows, OP_GRAPH, "",
	"draft: row_token[t] = slot_token[s]; row_pos[t] = slot_len[s] - 1, where the head's keys end; idle rows and ended "
	"slots: 0, 0",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	OUT(ints, row_token, "ROWS"), OUT(ints, row_pos, "ROWS"))
OP(embed_next_token, OP_GRAPH, "", "x[t,:] = table[row_next[t],:]",
	IN(ints, row_next, "ROWS"), IN(weight, table, "V, H"), OUT(floats, x, "ROWS, H"))
OP(join, OP_GRAPH, "", "z[t,:] = x[t,:] followed by y[t,:]",
	IN(floats, x, "ROWS, N"), IN(floats, y, "ROWS, M"), OUT(floats, z, "ROWS, N + M"))
OP(hold, OP_GRAPH, "",
	"held[s,:] = x[t,:], t the last row of slot s in the step; with slot_len, that at position slot_len[s] - 1",
	STEP, IN(floats, x, "ROWS, K"), IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"),
	IN_OPT(slot, slot_len, "SLOTS"), INOUT(state, held, "SLOTS, K"))
OP(recall, OP_GRAPH, "", "y[t,:] = held[row_slot[t],:]; idle rows: 0",
	IN(ints, row_slot, "ROWS"), IN(state, held, "SLOTS, K"), OUT(floats, y, "ROWS, K"))
OP(conv_verify, OP_GRAPH | OP_SCRATCH, "TAPS", "verify: causal_conv of versions (slot_version, above) of conv",
	STEP, IN(floats, x, "ROWS, C"), IN(weight, w, "C, 1, TAPS + 1"), IN(ints, row_slot, "ROWS"),
	IN(slot, slot_version, "SLOTS"), INOUT(state, conv, "SLOTS, TAPS * C"),
	INOUT(state, conv_later, "SLOTS, DRAFTS, TAPS * C"), OUT(floats, y, "ROWS, C"))
OP(delta_verify, OP_GRAPH | OP_PARTS | OP_SCRATCH, "NK NV DK DV",
	"verify: delta_rule of versions (slot_version, above) of delta",
	STEP, IN(floats, qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(floats, a, "ROWS, NV"), IN(floats, b, "ROWS, NV"),
	IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"), IN(ints, row_slot, "ROWS"), IN(slot, slot_version, "SLOTS"),
	INOUT(state, delta, "SLOTS, NV * DK * DV"), INOUT(state, delta_later, "SLOTS, DRAFTS, NV * DK * DV"),
	OUT(floats, o, "ROWS, NV * DV"))
OP(draw, OP_GRAPH | OP_SCRATCH, "N_VALID AHEAD",
	"what sample draws and its log probability, of each row of a slot that has not ended, for position row_pos + "
	"AHEAD; counted besides: the slot's drafts before that position. Not numbers: -1. Other rows: 0. Column v is of "
	"token id ids[v], ascending, where ids is there, else of id v; V may be less than VOCAB, and all that goes by ids "
	"goes by these: counts, drafts, the noise, what is drawn. Masks, of which none counts where they are absent, go by "
	"columns; after i drafts masks_later[s,i - 1] is the mask",
	STEP, INOUT(floats, logits, "ROWS, V"), IN_OPT(ints, ids, "V"), IN(ints, row_slot, "ROWS"),
	IN(ints, row_pos, "ROWS"), SETTINGS, IN_OPT(slot, masks, "SLOTS, ceil_div(V, 32)"),
	IN_OPT(slot, masks_later, "SLOTS, DRAFTS, ceil_div(V, 32)"),
	IN(slot, counts, "SLOTS, VOCAB"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	IN(slot, slot_draft, "SLOTS, DRAFTS"), OUT(ints, drawn, "ROWS"), OUT(floats, drawn_logprob, "ROWS"))
OP(keep_draft, OP_GRAPH, "",
	"draft: slot_draft[s, row_pos[t] + 1 - slot_len[s]] = row_token[t] = drawn[t], 0 for -1; row_pos[t] += 1",
	IN(ints, drawn, "ROWS"), IN(ints, row_slot, "ROWS"), IN(slot, slot_len, "SLOTS"),
	INOUT(slot, slot_draft, "SLOTS, DRAFTS"), INOUT(ints, row_token, "ROWS"), INOUT(ints, row_pos, "ROWS"))
OP(accept, OP_GRAPH, "",
	"of each slot that has not ended, row after row: drawn[t] becomes the slot's token as sample does it, and it goes "
	"on to the next row while that row's row_token is this token (or, where it is not masked, limits decides), the "
	"sequence has not ended and, where it is masked, that row has drawn a token; "
	"slot_version[s] = the last such row, 0 = the first. row_next[t] = drawn[t], 0 for -1",
	STEP, IN(ints, drawn, "ROWS"), IN(floats, drawn_logprob, "ROWS"), IN(ints, row_token, "ROWS"),
	IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"), IN(slot, limits, "SLOTS, 8"), IN(slot, rules, "SLOTS, 1536"),
	IN(ints, stop_tokens, "STOPS"), INOUT(slot, counts, "SLOTS, V"), INOUT(slot, slot_token, "SLOTS"),
	INOUT(slot, slot_len, "SLOTS"), INOUT(slot, slot_version, "SLOTS"), INOUT(slot, ring, "SLOTS, 256"),
	OUT(ints, row_next, "ROWS"))
OP(acquire, OP_GRAPH, "",
	"for each slot s with acquire[s] = 1: slot_len, slot_token, slot_version, counts = 0; sampling, limits, page_table "
	"rows = the new ones; rules row = new_rules",
	IN(ints, acquire, "SLOTS"), IN(floats, new_sampling, "SLOTS, 8"), IN(ints, new_limits, "SLOTS, 8"),
	IN(ints, new_pages, "SLOTS, MAX_PAGES"), IN(ints, new_rules, "1536"), INOUT(slot, slot_len, "SLOTS"),
	INOUT(slot, slot_token, "SLOTS"), INOUT(slot, counts, "SLOTS, V"), INOUT(state, sampling, "SLOTS, 8"),
	INOUT(slot, limits, "SLOTS, 8"), INOUT(slot, rules, "SLOTS, 1536"), INOUT(slot, page_table, "SLOTS, MAX_PAGES"),
	INOUT_OPT(slot, slot_version, "SLOTS"))
#include "artifacts/ops_of_ranks.h"

OP(embed_next, OP_FUSED, "", "slot_rows; embed",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"), IN(weight, table, "V, H"),
	OUT(ints, row_token, "ROWS"), OUT(ints, row_pos, "ROWS"), OUT(floats, x, "ROWS, H"))
OP(embed_prompt, OP_FUSED, "", "note_prompt; embed",
	STEP, IN(ints, row_token, "ROWS"), IN(ints, row_slot, "ROWS"), IN(weight, table, "V, H"),
	INOUT(slot, counts, "SLOTS, V"), OUT(floats, x, "ROWS, H"))
OP(norm_linear, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K",
	"rmsnorm; linear (several linears of one input as one: rows of w and of its scales in order)",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), IN(codes, w, "N, K"), SCALES(w, "N"),
	IN_OPT(weight, bias, "N"), OUT(floats, y, "ROWS, N"))
OP(norm_linear_narrow, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K",
	"norm_linear; then linear of the same normed rows: y_narrow, a few more columns",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), IN(codes, w, "N, K"), SCALES(w, "N"),
	IN_OPT(weight, bias, "N"), IN(weight, w_narrow, "M, K"), OUT(floats, y, "ROWS, N"),
	OUT(floats, y_narrow, "ROWS, M"))
OP(norm_rows, OP_FUSED, "EPS NORM_ONE", "rmsnorm, of rows in use",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), OUT(floats, y, "ROWS, K"))
OP(norm_residual, OP_FUSED, "EPS NORM_ONE", "z = residual + rmsnorm(x), with factor times factor[0]: of rows in use",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), IN(floats, residual, "ROWS, K"),
	IN_OPT(weight, factor, "1"), OUT(floats, z, "ROWS, K"))
OP(norm_rows_fp8, OP_FUSED, "EPS NORM_ONE", "rmsnorm; quantise: of rows in use",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), OUT(floats, y, "ROWS, K"),
	OUT(floats, y_scale, "ceil_div(K, 128), ROWS"))
OP(quant_rows, OP_FUSED, "", "quantise, of rows in use",
	STEP, IN(floats, x, "ROWS, K"), OUT(floats, y, "ROWS, K"), OUT(floats, y_scale, "ceil_div(K, 128), ROWS"))
OP(norm_rows_fp4, OP_FUSED, "EPS NORM_ONE", "rmsnorm; quantise_fp4: of rows in use",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), OUT(floats, y, "ROWS, K"),
	OUT(floats, y_block, "ROWS, ceil_div(K, 16)"), OUT(floats, y_row_scale, "ROWS"))
OP(quant_rows_fp4, OP_FUSED, "", "quantise_fp4, of rows in use",
	STEP, IN(floats, x, "ROWS, K"), OUT(floats, y, "ROWS, K"), OUT(floats, y_block, "ROWS, ceil_div(K, 16)"),
	OUT(floats, y_row_scale, "ROWS"))
OP(linear_rows, OP_FUSED, "BLOCK_N BLOCK_K",
	"[dequantise or dequantise_fp4;] linear, of rows in use (several linears of one input as one: rows of w and of its "
	"scales in order)",
	STEP, IN(floats, x, "ROWS, K"), ROW_CODES, IN(codes, w, "N, K"), SCALES(w, "N"), IN_OPT(weight, bias, "N"),
	OUT(floats, y, "ROWS, N"))
OP(rope_write, OP_FUSED, "HDIM NH NKV V_IS_K GATED PAGE ROTARY NEIGHBOURS ROTATE ROPE_FACTOR EPS NORM_ONE",
	"head_norm of q, k and v that have a norm; rope of q and k; kv_write. qkv rows are q, k, v heads, where V_IS_K "
	"those of q and k alone, which is v as well, and, where GATED, gates, which are left alone",
	STEP, QKV_HEADS("", ""), IN(ints, row_pos, "ROWS"), IN(slot, page_table, "SLOTS, MAX_PAGES"), KV_WRITTEN,
	OUT(floats, q, "ROWS, NH * HDIM"))
OP(attention_rows, OP_FUSED, "HDIM NH NKV PAGE SCALE WINDOW CHUNKED", "attention, of rows in use, without segments",
	STEP, IN(floats, q, "ROWS, NH * HDIM"), KV_READ, IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"),
	IN(slot, page_table, "SLOTS, MAX_PAGES"), IN_OPT(weight, sinks, "NH"), OUT(floats, o, "ROWS, NH * HDIM"))
#define ATTENDED(n_q, n_k) QKV_HEADS(n_q, n_k), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"), \
	IN(slot, page_table, "SLOTS, MAX_PAGES"), KV_WRITTEN, IN_OPT(weight, sinks, "NH"), \
	OUT(own, part, "ROWS, NH, PARTS, HDIM"), OUT(own, part_ml, "ROWS, NH, PARTS, 2"), \
	INOUT(own, arrived, "ROWS, NH"), OUT(floats, o, "ROWS, NH * HDIM")
OP(attention_step, OP_FUSED,
	"HDIM NH NKV V_IS_K GATED PAGE SCALE WINDOW CHUNKED ROTARY NEIGHBOURS ROTATE ROPE_FACTOR EPS NORM_WHOLE NORM_ONE",
	"decode, and verify of a row a slot: slot_rows; rope_write, where NORM_WHOLE with rmsnorm of q and k; attention; "
	"where GATED sigmoid_gate by element. Of the launch alone: part, part_ml, sums of PARTS runs of a history and "
	"their maxima; arrived, blocks that are done",
	STEP, ATTENDED("(NORM_WHOLE * (NH - 1) + 1) * ", "(NORM_WHOLE * (NKV - 1) + 1) * "))
OP(attention_verify, OP_FUSED,
	"HDIM NH NKV V_IS_K GATED PAGE SCALE WINDOW CHUNKED ROTARY NEIGHBOURS ROTATE ROPE_FACTOR EPS NORM_ONE EACH",
	"verify, EACH rows of a slot: positions of verify_rows; rope_write; attention; where GATED sigmoid_gate. part, "
	"part_ml, arrived as in attention_step", STEP, ATTENDED("", ""))
OP(gate_rows, OP_FUSED, "", "sigmoid_gate, of rows in use: the gate is the last N columns of gates",
	STEP, IN(floats, x, "ROWS, N"), IN(floats, gates, "ROWS, COLS"), OUT(floats, y, "ROWS, N"))
OP(conv_rows, OP_FUSED, "TAPS",
	"causal_conv, of rows in use and of the first C columns of x; segments are the rows of a slot",
	STEP, IN(floats, x, "ROWS, COLS"), IN(weight, conv_w, "C, 1, TAPS + 1"), IN(ints, row_slot, "ROWS"),
	IN(ints, seg, "SEGS, 4"), INOUT(state, conv, "SLOTS, TAPS * C"), OUT(floats, y, "ROWS, C"))
OP(delta_rows, OP_FUSED, "NK NV DK DV EPS",
	"delta_rule; gated_norm: of rows in use. Rows of x are q, k, v heads (not read: qkv has them), z of the v heads "
	"and, without ba, b and a of each; ba: those two",
	STEP, IN(floats, qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(floats, x, "ROWS, COLS"),
	IN_OPT(floats, ba, "ROWS, 2 * NV"), IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"), IN(weight, norm, "DV"),
	IN(ints, row_slot, "ROWS"), IN(ints, seg, "SEGS, 4"), INOUT(state, delta, "SLOTS, NV * DK * DV"),
	OUT(floats, y, "ROWS, NV * DV"))
OP(delta_step, OP_FUSED, "NK NV DK DV TAPS EPS",
	"decode, rows of different slots: causal_conv; delta_rule; gated_norm. Rows of x and ba as in delta_rows. readers "
	"is used by this launch only: how many value heads of a key head have read its columns of conv, 0 before and after",
	STEP, IN(floats, x, "ROWS, COLS"), IN_OPT(floats, ba, "ROWS, 2 * NV"),
	IN(weight, conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1"), IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"),
	IN(weight, norm, "DV"), IN(ints, row_slot, "ROWS"), INOUT(state, conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)"),
	INOUT(state, delta, "SLOTS, NV * DK * DV"), INOUT(own, readers, "ROWS, NK"), OUT(floats, y, "ROWS, NV * DV"))
OP(delta_verify_step, OP_FUSED, "NK NV DK DV TAPS EPS EACH",
	"verify, EACH rows of a slot: conv_verify; delta_verify; gated_norm. Rows of x and ba as in delta_rows, "
	"readers as in delta_step",
	STEP, IN(floats, x, "ROWS, COLS"), IN_OPT(floats, ba, "ROWS, 2 * NV"),
	IN(weight, conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1"), IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"),
	IN(weight, norm, "DV"), IN(ints, row_slot, "ROWS"), IN(slot, slot_version, "SLOTS"),
	INOUT(state, conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)"),
	INOUT(state, conv_later, "SLOTS, DRAFTS, TAPS * (2 * NK * DK + NV * DV)"),
	INOUT(state, delta, "SLOTS, NV * DK * DV"), INOUT(state, delta_later, "SLOTS, DRAFTS, NV * DK * DV"),
	INOUT(own, readers, "ROWS, NK"), OUT(floats, y, "ROWS, NV * DV"))
OP(linear_residual, OP_FUSED, "BLOCK_N BLOCK_K", "[dequantise or dequantise_fp4;] z = residual + linear(x)",
	STEP, IN(floats, x, "ROWS, K"), ROW_CODES, IN(codes, w, "N, K"), SCALES(w, "N"), IN_OPT(weight, bias, "N"),
	IN(floats, residual, "ROWS, N"), OUT(floats, z, "ROWS, N"))
OP(norm_swiglu, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K", "n = rmsnorm(x); y = silu(linear(n, gate)) * linear(n, up)",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), GATE_AND_UP, OUT(floats, y, "ROWS, N"))
OP(norm_geglu, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K", "n = rmsnorm(x); geglu of linear(n, gate), linear(n, up)",
	STEP, IN(floats, x, "ROWS, K"), IN(weight, norm, "K"), GATE_AND_UP, OUT(floats, y, "ROWS, N"))
OP(linear_swiglu, OP_FUSED, "BLOCK_N BLOCK_K", "[dequantise_fp4;] y = silu(linear(x, gate)) * linear(x, up)",
	STEP, IN(floats, x, "ROWS, K"), IN_OPT(floats, x_block, "ROWS, ceil_div(K, 16)"),
	IN_OPT(floats, x_row_scale, "ROWS"), GATE_AND_UP, OUT(floats, y, "ROWS, N"))
OP(linear_swiglu_fp8, OP_FUSED, "BLOCK_N BLOCK_K", "dequantise; linear_swiglu; quantise",
	STEP, IN(floats, x, "ROWS, K"), IN(floats, x_scale, "ceil_div(K, 128), ROWS"), GATE_AND_UP,
	OUT(floats, y, "ROWS, N"), OUT(floats, y_scale, "ceil_div(N, 128), ROWS"))
OP(norm_route, OP_FUSED, "EPS NORM_ONE TOPK NORM_TOPK",
	"n = rmsnorm(x); logits = linear(n, router, router_bias); route. With shared_gate a row has one share more, of the "
	"expert all rows go to: sigmoid(linear(n, shared_gate)). routed, used by this launch only, counts its blocks that "
	"are done with a run of rows, and is 0 before and after",
	ROUTER, IN_OPT(weight, router_bias, "EXPERTS"), IN_OPT(weight, shared_gate, "1, K"), OUT(floats, n, "ROWS, K"),
	OUT(floats, share, "ROWS, SHARES"))
OP(norm_route_sigmoid, OP_FUSED, "EPS NORM_ONE TOPK NORM_TOPK GROUPS TOP_GROUPS SHARE_EPS SHARE_SCALE",
	"n = rmsnorm(x); logits = linear(n, router); route_sigmoid. A row with one share more has 1 for the shared expert",
	ROUTER, IN_OPT(weight, bias, "EXPERTS"), OUT(floats, n, "ROWS, K"), OUT(floats, share, "ROWS, SHARES"))
OP(norm_route_scaled, OP_FUSED, "EPS NORM_ONE TOPK NORM_TOPK FACTOR",
	"logits = scale(linear(rmsnorm(x), router)); route; scale_shares by `by`", ROUTER, IN(weight, by, "EXPERTS"),
	OUT(floats, share, "ROWS, TOPK"))
OP(group_rows, OP_PLAN, "TOPK",
	"the pairs t * TOPK + j of rows in use, by expert[t,j] and then in order, followed by -1; those of expert e begin "
	"at first[e] and end at first[e + 1]",
	STEP, IN(ints, expert, "ROWS, TOPK"), OUT(ints, pair, "ROWS * TOPK"), OUT(ints, first, "FIRSTS"))
OP(experts_up, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"experts, up to down: h[t,:] = for each j share[t,j] * (silu(gate[e] n[t]) * (up[e] n[t])), e = expert[t,j]; then "
	"the same of the shared expert with the last share. N counts rows of gate and up, WIDTH the columns of all of "
	"these. pair and first, as group_rows makes them, replace expert",
	STEP, IN(floats, n, "ROWS, K"), IN_OPT(ints, expert, "ROWS, TOPK"), IN(floats, share, "ROWS, SHARES"),
	IN_OPT(ints, pair, "ROWS * TOPK"), IN_OPT(ints, first, "EXPERTS + 1"), EXPERTS_UP,
	IN_OPT(codes, shared, "2 * WIDTH - TOPK * N, K"),
	IN_OPT(scales, shared_scale, "2 * ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)"),
	IN_OPT(scales, shared_row_scale, "2 * WIDTH - TOPK * N"), OUT(floats, h, "ROWS, WIDTH"))
OP(experts_up_limited, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K GATE_LIMIT",
	"experts_limited, up to down: h[t,:] = for each j share[t,j] * its swiglu_limited; N counts rows of gate and up",
	CHOSEN, EXPERTS_UP, OUT(floats, h, "ROWS, WIDTH"))
OP(experts_up_gelu, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K",
	"experts_gelu, up to down: h[t,:] = for each j share[t,j] * its geglu; N counts rows of gate and up",
	CHOSEN, EXPERTS_UP, OUT(floats, h, "ROWS, WIDTH"))
OP(experts_down, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"experts, from down on: z[t,:] = residual[t,:] + sum_j down[expert[t,j]] (its part of h[t,:]) + shared_down (the "
	"rest of h[t,:]); with down_bias share[t,j] times that of expert[t,j] too; without residual as of zeros",
	STEP, IN(floats, h, "ROWS, WIDTH"), IN(ints, expert, "ROWS, TOPK"), EXPERTS_DOWN,
	IN_OPT(floats, share, "ROWS, TOPK"), IN_OPT(weight, down_bias, "EXPERTS, K"), IN_OPT(floats, residual, "ROWS, K"),
	OUT(floats, z, "ROWS, K"))
OP(experts_down_rows, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"the terms of experts_down's sums, one by one: y[t,j,:], the shared expert's last",
	STEP, IN(floats, h, "ROWS, WIDTH"), IN(ints, pair, "ROWS * TOPK"), IN(ints, first, "EXPERTS + 1"),
	EXPERTS_DOWN, OUT(floats, y, "ROWS, SHARES, K"))
OP(experts_up_clamped, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K GATE_SLOPE GATE_LIMIT",
	"experts_clamped, up to down: for each j share[t,j] h; N counts rows of gate and up",
	CHOSEN, IN(codes, gate_up, "EXPERTS, N, K"),
	IN_OPT(scales, gate_up_scale, "EXPERTS, ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN(weight, gate_up_bias, "EXPERTS, N"), OUT(floats, h, "ROWS, WIDTH"))
OP(experts_down_biased, OP_PLAN | OP_PARTS | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K",
	"the terms of experts_clamped's sum: y[t,j,:] = down[e] (its part of h[t,:]) + share[t,j] down_bias[e]",
	IN(floats, h, "ROWS, WIDTH"), IN(floats, share, "ROWS, TOPK"), IN(ints, pair, "ROWS * TOPK"),
	IN(ints, first, "EXPERTS + 1"), IN(codes, down, "EXPERTS, K, N"),
	IN_OPT(scales, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"),
	IN(weight, down_bias, "EXPERTS, K"), OUT(floats, y, "ROWS, SHARES, K"))
OP(delta_solve, OP_PLAN | OP_PARTS, "NK NV DK DV",
	"what delta_rows needs no state for. A segment's rows are solved in chunks of 64, from the first on. With q and k "
	"of length one, q over sqrt(DK), b = sigmoid(b), G the sum of logs of decay of the chunk's rows up to one, A[i,j] "
	"= b_i k_i.k_j e^(G_i - G_j) of j < i: of a head, row i and row j of its chunk solved = ((1 + A)^-1 b)[i,j], "
	"scores = q_i.k_j e^(G_i - G_j), both 0 of j > i; factors of a row | e^G over the length of k | e^G over that of "
	"q and sqrt(DK) | 1 over the length of k | G |. x and ba as in delta_rows",
	STEP, IN(floats, qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(floats, x, "ROWS, COLS"),
	IN_OPT(floats, ba, "ROWS, 2 * NV"), IN(weight, a_log, "NV"), IN(weight, dt_bias, "NV"), IN(ints, seg, "SEGS, 4"),
	OUT(floats, solved, "ROWS, NV * 64"), OUT(floats, scores, "ROWS, NV * 64"), OUT(floats, factors, "ROWS, NV * 4"))
OP(delta_walk, OP_PLAN | OP_PARTS, "NK NV DK DV EPS",
	"delta_rows of what delta_solve leaves, chunk by chunk, f the factors of a row, G = f3, G_last that of the chunk's "
	"last row: changes X = solved (v - f0 k.S); o = f1 q.S + scores X; then S = e^G_last S + (f2 e^(G_last - G) k)' X; "
	"y = gated_norm(o). x as in delta_rows, without b and a",
	STEP, IN(floats, qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(floats, x, "ROWS, COLS"),
	IN(floats, solved, "ROWS, NV * 64"), IN(floats, scores, "ROWS, NV * 64"), IN(floats, factors, "ROWS, NV * 4"),
	IN(weight, norm, "DV"), IN(ints, row_slot, "ROWS"), IN(ints, seg, "SEGS, 4"),
	INOUT(state, delta, "SLOTS, NV * DK * DV"), OUT(floats, y, "ROWS, NV * DV"))
OP(gather_codes, OP_PLAN, "TOPK",
	"quantise, of rows in use in the order of experts: y[i,:] = codes of x[pair[i] / TOPK,:]; with PAIRS = ROWS * "
	"(TOPK + 1), for the expert that all rows go to, y[ROWS * TOPK + t,:] = codes of x[t,:]",
	STEP, IN(floats, x, "ROWS, K"), IN(ints, pair, "ROWS * TOPK"), OUT(floats, y, "PAIRS, K"),
	OUT(floats, y_scale, "ceil_div(K, 128), PAIRS"))
OP(experts_up_fp8, OP_PLAN | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"dequantise; experts_up; quantise: x and h are rows in the order of gather_codes",
	STEP, IN(floats, x, "ROWS * SHARES, K"), IN(floats, x_scale, "ceil_div(K, 128), ROWS * SHARES"),
	IN(floats, share, "ROWS, SHARES"), IN(ints, pair, "ROWS * TOPK"), IN(ints, first, "EXPERTS + 1"),
	EXPERTS_UP, IN_OPT(codes, shared, "N, K"),
	IN_OPT(scales, shared_scale, "2 * ceil_div(N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)"),
	IN_OPT(scales, shared_row_scale, "N"), OUT(floats, h, "ROWS * SHARES, N / 2"),
	OUT(floats, h_scale, "ceil_div(N / 2, 128), ROWS * SHARES"))
OP(experts_down_fp8, OP_PLAN | OP_SCRATCH, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"dequantise; experts_down_rows: rows of h as experts_up_fp8 leaves them",
	STEP, IN(floats, h, "ROWS * SHARES, N"), IN(floats, h_scale, "ceil_div(N, 128), ROWS * SHARES"),
	IN(ints, pair, "ROWS * TOPK"), IN(ints, first, "EXPERTS + 1"), IN(codes, down, "EXPERTS, K, N"),
	IN_OPT(scales, down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"),
	IN_OPT(scales, down_row_scale, "EXPERTS, K"), IN_OPT(codes, shared_down, "K, N"),
	IN_OPT(scales, shared_down_scale, "ceil_div(K, SHARED_BLOCK_N), ceil_div(N, SHARED_BLOCK_K)"),
	IN_OPT(scales, shared_down_row_scale, "K"), OUT(floats, y, "ROWS, SHARES, K"))
OP(sum_experts, OP_PLAN, "", "z[t,:] = residual[t,:] + sum_j y[t,j,:]",
	STEP, IN(floats, y, "ROWS, SHARES, K"), IN(floats, residual, "ROWS, K"), OUT(floats, z, "ROWS, K"))
OP(sum_terms, OP_PLAN, "", "the end of experts: z[t,:] = sum_j y[t,j,:], the terms of experts_down_rows",
	STEP, IN(floats, y, "ROWS, SHARES, K"), OUT(floats, z, "ROWS, K"))
OP(norm_logits, OP_FUSED, "EPS NORM_ONE N_VALID CAP BLOCK_N BLOCK_K",
	"gather; rmsnorm; linear; where CAP, soft_cap: logits in f32. Of part p of the vocabulary (PARTS of 2^i ids each), "
	"ids below N_VALID: best[o,p] = the largest logit and the sum of e^(l - largest), best_id = its lowest id",
	STEP, IN(floats, x, "ROWS, K"), IN(ints, out_row, "OUTS"), IN(weight, norm, "K"), IN(codes, w, "V, K"),
	SCALES(w, "V"), OUT(floats, logits, "OUTS, V"), OUT(floats, best, "OUTS, PARTS, 2"),
	OUT(ints, best_id, "OUTS, PARTS"))
OP(norm_outs, OP_FUSED, "EPS NORM_ONE", "gather; rmsnorm",
	STEP, IN(floats, x, "ROWS, K"), IN(ints, out_row, "OUTS"), IN(weight, norm, "K"), OUT(floats, y, "OUTS, K"))
OP(linear_logits, OP_FUSED, "N_VALID CAP BLOCK_N BLOCK_K",
	"linear; where CAP, soft_cap: logits in f32, best and best_id as in norm_logits, of rows that norm_outs made",
	STEP, IN(floats, x, "OUTS, K"), IN(codes, w, "V, K"), SCALES(w, "V"), OUT(floats, logits, "OUTS, V"),
	OUT(floats, best, "OUTS, PARTS, 2"), OUT(ints, best_id, "OUTS, PARTS"))
OP(sample_best, OP_FUSED, "N_VALID", "sample, with best and best_id as norm_logits computed them with the logits",
	STEP, INOUT(floats, logits, "OUTS, V"), IN(floats, best, "OUTS, PARTS, 2"), IN(ints, best_id, "OUTS, PARTS"),
	IN(ints, out_row, "OUTS"), IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"), SETTINGS,
	IN(slot, masks, "SLOTS, ceil_div(V, 32)"), IN(ints, stop_tokens, "STOPS"), INOUT(slot, counts, "SLOTS, V"),
	INOUT(slot, slot_token, "SLOTS"), INOUT(slot, slot_len, "SLOTS"), INOUT(slot, ring, "SLOTS, 256"))
OP(embed_verify, OP_FUSED, "", "verify_rows; embed",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	IN(slot, slot_draft, "SLOTS, DRAFTS"), IN(weight, table, "V, H"), OUT(ints, row_token, "ROWS"),
	OUT(ints, row_pos, "ROWS"), OUT(floats, x, "ROWS, H"))
OP(draft_first, OP_FUSED, "EPS NORM_ONE",
	"draft_rows; recall; embed; rmsnorm of both, by embedding_norm and hidden_norm; join: what the head reads for a "
	"slot's first draft. Besides, of every slot: draft_len = slot_len - 1, at least 0, the position of its row",
	IN(ints, row_slot, "ROWS"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"), IN(state, held, "SLOTS, H"),
	IN(weight, table, "V, H"), IN(weight, embedding_norm, "H"), IN(weight, hidden_norm, "H"),
	OUT(ints, row_token, "ROWS"), OUT(ints, row_pos, "ROWS"), OUT(slot, draft_len, "SLOTS"),
	OUT(floats, z, "ROWS, 2 * H"))
OP(draft_next, OP_FUSED, "EPS NORM_ONE",
	"rmsnorm; embed of row_token; rmsnorm of both, by embedding_norm and hidden_norm; join",
	IN(floats, x, "ROWS, H"), IN(weight, norm, "H"), IN(ints, row_token, "ROWS"), IN(weight, table, "V, H"),
	IN(weight, embedding_norm, "H"), IN(weight, hidden_norm, "H"), OUT(floats, z, "ROWS, 2 * H"))
OP(follow_rows, OP_FUSED, "EPS NORM_ONE",
	"rmsnorm; hold; embed_next_token; rmsnorm of both, by embedding_norm and hidden_norm; join: of rows in use",
	STEP, IN(floats, x, "ROWS, H"), IN(weight, norm, "H"), IN(ints, row_next, "ROWS"), IN(weight, table, "V, H"),
	IN(weight, embedding_norm, "H"), IN(weight, hidden_norm, "H"), IN(ints, row_slot, "ROWS"),
	IN(ints, row_pos, "ROWS"), IN_OPT(slot, slot_len, "SLOTS"), INOUT(state, held, "SLOTS, H"),
	OUT(floats, z, "ROWS, 2 * H"))
OP(keys_write, OP_FUSED, "HDIM NKV PAGE ROTARY NEIGHBOURS ROTATE ROPE_FACTOR EPS NORM_ONE",
	"head_norm of k and v when k_norm and v_norm are there; rope of k; kv_write. Rows of keys are k and v heads",
	STEP, IN(floats, keys, "ROWS, 2 * NKV * HDIM"), IN_OPT(weight, k_norm, "HDIM"), IN_OPT(weight, v_norm, "HDIM"),
	IN(weight, inv_freq, "ROTARY / 2"), IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"),
	IN(slot, page_table, "SLOTS, MAX_PAGES"), KV_WRITTEN)
OP(draw_best, OP_FUSED, "N_VALID AHEAD", "draw, with best and best_id as norm_logits computed them with the logits",
	STEP, INOUT(floats, logits, "ROWS, V"), IN(floats, best, "ROWS, PARTS, 2"), IN(ints, best_id, "ROWS, PARTS"),
	IN(ints, row_slot, "ROWS"), IN(ints, row_pos, "ROWS"), SETTINGS, IN(slot, masks, "SLOTS, ceil_div(V, 32)"),
	IN(slot, masks_later, "SLOTS, DRAFTS, ceil_div(V, 32)"),
	IN(slot, counts, "SLOTS, V"), IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"),
	IN(slot, slot_draft, "SLOTS, DRAFTS"), OUT(ints, drawn, "ROWS"), OUT(floats, drawn_logprob, "ROWS"))
OP(draw_draft, OP_FUSED, "N_VALID AHEAD",
	"draw_best, of columns of token ids as draw has them; keep_draft, of a row a slot; draft_len[s] += 1 where "
	"row_pos[t] is",
	STEP, INOUT(floats, logits, "ROWS, V"), IN_OPT(ints, ids, "V"), IN(floats, best, "ROWS, PARTS, 2"),
	IN(ints, best_id, "ROWS, PARTS"), IN(ints, row_slot, "ROWS"), SETTINGS, IN(slot, counts, "SLOTS, VOCAB"),
	IN(slot, slot_token, "SLOTS"), IN(slot, slot_len, "SLOTS"), INOUT(slot, slot_draft, "SLOTS, DRAFTS"),
	INOUT(ints, row_token, "ROWS"), INOUT(ints, row_pos, "ROWS"), INOUT(slot, draft_len, "SLOTS"))
OP(read_probe, OP_PLAN, "",
	"part[i] = exclusive or of words 8192 i .. 8192 i + 8191 of x: for phase probe only, to measure reading",
	IN(ints, x, "PARTS * 8192"), OUT(ints, part, "PARTS"))
#undef STEP
#undef SETTINGS
#undef ROW_CODES
#undef SCALES
#undef CHOSEN
#undef EXPERTS
#undef GATE_AND_UP
#undef EXPERTS_UP
#undef EXPERTS_DOWN
#undef ROUTER
#undef QKV_HEADS
#undef ATTENDED
#undef KV_READ
#undef KV_WRITTEN
