/* ops.h - every operation, once: its operands in order, its attributes and its formula.
 *
 * OP(name, traits, attributes, meaning, operands...)
 *   traits      OP_GRAPH   may be in a graph (what the model means); has a reference in runtime/cpu
 *               OP_FUSED   is only in plans; its meaning is a sequence of graph ops (compiler/lower/fuse.c)
 *   attributes  names of artifacts/attrs.h, separated by spaces
 *   meaning     indices: t row, o output row, h head, d element of a head, s slot, v vocabulary id
 *   operands    IN, INOUT, OUT, and IN_OPT, INOUT_OPT, which may be absent: name and shape in dims local to the op.
 *               ROWS rows of the step, OUTS rows that need logits, SLOTS sequences, SEGS = SLOTS
 *
 * Weights of products may be quantised. A weight w [N,K] of codes comes with w_scale, one scale for each block of
 * BLOCK_N rows and BLOCK_K elements (the last ones may be cut off), or w_row_scale, one a row, or both, and then means
 *   w[n,k] = value(code[n,k]) * w_scale[n / BLOCK_N, k / BLOCK_K] * w_row_scale[n]      in f32, from left to right,
 * without the factors that are absent. gate and up have their own, and share the size of blocks. Codes of u4 have
 * scales of f32z, and no other codes have: of these, value(code) is the code less the zero of its scale.
 *
 * Rows may be codes of e4m3 as well, with a scale of f32 for each 128 columns (the last ones may be fewer):
 *   x_scale   [ceil_div(K,128),ROWS]: x[t,k] means value(code[t,k]) * x_scale[k / 128, t]
 *   y_scale   the same of a result. The scale is the largest |y| of its columns / 448, or 1 where that is below 2^-100;
 *             the code that of y / scale, in f32. A NaN or an infinity has the code NaN
 *
 * Or of e2m1, with a scale of e4m3 for each 16 columns and one of f32 a row:
 *   x_block, x_row_scale   [ROWS,ceil_div(K,16)], [ROWS]: x[t,k] means value(code) * x_block[t, k / 16] *
 *             x_row_scale[t]
 *   y_block, y_row_scale   the same of a result. The row's is its largest |y| / 2688, or 1 where that is below 2^-100;
 *             the block is that of largest |y| / row scale / 6, at least 2^-9; the code that of y / (block * row
 *             scale). A NaN or an infinity makes its block NaN
 *
 * Kernel contracts bind by these names. Rows beyond the step's count and rows whose slot is -1 are idle:
 * their inputs are defined and their results are never read, but they must not write state.
 *   step      [4] i32: rows in use, outs in use, segments in use, flags (1 = score only: sample nothing)
 *   seg       [SEGS,4] i32: first row, row count, slot, position of the first row; rows of one slot are
 *             consecutive and ascending in position. Prefill only
 *   kv        [PAGES,2,NKV,PAGE,HDIM]: keys (0) and values (1); position p of slot s is in page
 *             page_table[s, p / PAGE], line p % PAGE
 *   kv_scale  [2,NKV] f32: of keys (0) and values (1) of a head, where kv is e4m3 or e2m1. Without it, kv is kept as it
 *             comes. kv alone is e4m3 then: value(code) * kv_scale, the code that of x / kv_scale
 *   kv_block  [PAGES,2,NKV,PAGE,HDIM/16] e4m3, with kv_scale: kv is e2m1, and an element of a run of 16 is
 *             value(code) * value(its block) * kv_scale. The block is that of largest |x| / kv_scale / 6, at least
 *             2^-9; the code that of x / (block * kv_scale)
 *             Codes are rounded to nearest, ties to even, what is too large to the largest; NaN stays NaN, for e2m1
 *             in the block. Quotients and products in f32, from left to right
 *   ROTATE    q and k of a head are rotated: multiplied by the Hadamard matrix over the root of its size, y[d] = sum_i
 *             (-1)^(ones of d & i) x[i] / sqrt(n), d and i below n. n is the largest power of two in HDIM; what is left
 *             of a head is rotated in the same way (80 elements as 64 and 16). q.k stays as it is, and what a few
 *             elements of a key had is spread over all of them before it is rounded to codes
 *   delta     f32 or bf16, and delta_later with it. S is f32 while the rows of a step go through it. What is bf16 is
 *             rounded, to nearest, ties to even, when it is stored: after a slot's last row in the step, in verify
 *             after each, and the row after that goes on from what was stored. o is of what was not rounded yet
 *   counts    [SLOTS,V] i32: times v was generated for slot s, plus 2^30 if v occurs in its prompt
 *   sampling  [SLOTS,8] f32: temperature (0 = greedy), top_p, min_p, repetition penalty, presence
 *             penalty, frequency penalty, unused, unused
 *   limits    [SLOTS,8] i32: top_k (0 = all), seed low, seed high, positions the slot may hold; then, of the slot's
 *             first, second and third draft, for measuring alone: 0, or in how many of 2^16 positions it counts as
 *             accepted whatever was drawn (by a hash of the position: ref_draft.c); how many rules the slot has, plus
 *             2^16 if stop_tokens are tokens like others to it
 *   rules     [SLOTS,1536] i32: 384 rules of 4 words a slot, of a token each, the first limits[s,7] mod 2^16 of them:
 *             token id; bits of an f32 that is added to its score; a position, below which its score is -inf; 1 if the
 *             token ends the sequence as those of stop_tokens do, else 0. No two are of one token. Scores are changed
 *             for the draw alone: logits are left as the penalties make them
 *   slot_token [SLOTS] i32: the last token, which the next step reads; -1 = the sequence has ended. Decode steps may
 *             go on with such a slot: it reads token 0 at position 0 and draws nothing
 *   row_next  [ROWS] i32: the token after a row: of a prompt as the host knows it, 0 after the last one; of a verify
 *             step what was drawn for the row
 *   slot_draft [SLOTS,DRAFTS] i32: the tokens that the head drafts after slot_token; a verify step reads them in a row
 *             each, after that of slot_token: DRAFTS + 1 rows of one slot, consecutive
 *   slot_version [SLOTS] i32: which of the slot's rows in the last verify step its state is of: 0 = the first; 0 too
 *             where there was no verify step yet. Version 0 of a state is the tensor that prefill and decode know,
 *             version j its j-th row in the tensor named _later. A verify step reads the slot's version and leaves that
 *             of its row j as version j; prefill and decode are of slots whose version is 0
 *   ring      [SLOTS,256] i32: results, in memory that the host sees: 64 entries of 4 words a slot. The token that
 *             makes slot_len = p is entry p % 64: p, token, done and a seal, bits of its f32 log probability
 *             (artifacts/ring.h). done: 0 goes on, 1 stop token, 2 slot full, 3 the logits are not numbers, 4 goes on,
 *             and the next token is of the same step
 */
OP(slot_rows, OP_GRAPH, "",
	"decode: row_token[t] = slot_token[row_slot[t]]; row_pos[t] = slot_len[row_slot[t]]; idle rows and ended slots: "
	"0, 0",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"),
	OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"))
OP(note_prompt, OP_GRAPH, "",
	"prefill: counts[row_slot[t], row_token[t]] |= 2^30 for rows in use, unless scoring",
	IN(step, "4"), IN(row_token, "ROWS"), IN(row_slot, "ROWS"), INOUT(counts, "SLOTS, V"))
OP(embed, OP_GRAPH, "", "x[t,:] = table[row_token[t],:]",
	IN(row_token, "ROWS"), IN(table, "V, H"), OUT(x, "ROWS, H"))
OP(rmsnorm, OP_GRAPH, "EPS NORM_ONE",
	"y[t,:] = x[t,:] / sqrt(mean(x[t,:]^2) + EPS) * (w or 1 + w)",
	IN(x, "ROWS, K"), IN(w, "K"), OUT(y, "ROWS, K"))
OP(linear, OP_GRAPH, "BLOCK_N BLOCK_K", "y[t,n] = sum_k x[t,k] w[n,k] + bias[n]",
	IN(x, "ROWS, K"), IN(w, "N, K"), IN_OPT(w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN_OPT(w_row_scale, "N"), IN_OPT(bias, "N"), OUT(y, "ROWS, N"))
OP(head_norm, OP_GRAPH, "HDIM EPS NORM_ONE", "rmsnorm over each head of HDIM elements, one w for all heads",
	IN(x, "ROWS, N"), IN(w, "HDIM"), OUT(y, "ROWS, N"))
OP(rope, OP_GRAPH, "HDIM ROTARY ROTATE ROPE_FACTOR",
	"pairs (i, i + ROTARY/2) of each head turned by row_pos[t] * inv_freq[i]; cos, sin times ROPE_FACTOR. With ROTATE "
	"each head is then rotated (above)",
	IN(x, "ROWS, N"), IN(inv_freq, "ROTARY / 2"), IN(row_pos, "ROWS"), OUT(y, "ROWS, N"))
OP(kv_write, OP_GRAPH, "HDIM NKV PAGE", "kv[page of (row_slot[t], row_pos[t])] = k[t,:], v[t,:] for rows in use",
	IN(step, "4"), IN(k, "ROWS, NKV * HDIM"), IN(v, "ROWS, NKV * HDIM"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"),
	IN(page_table, "SLOTS, MAX_PAGES"), INOUT(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	INOUT_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"))
OP(attention, OP_GRAPH, "HDIM NH NKV PAGE SCALE",
	"o[t,h,:] = softmax_p(SCALE q[t,h,:].k[p,:]) v[p,:] over positions p <= row_pos[t] of the row's slot",
	IN(step, "4"), IN(q, "ROWS, NH * HDIM"), IN(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	IN_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"), IN(row_slot, "ROWS"),
	IN(row_pos, "ROWS"), IN_OPT(seg, "SEGS, 4"), IN(page_table, "SLOTS, MAX_PAGES"), OUT(o, "ROWS, NH * HDIM"))
OP(add, OP_GRAPH, "", "z = x + y", IN(x, "ROWS, N"), IN(y, "ROWS, N"), OUT(z, "ROWS, N"))
OP(swiglu, OP_GRAPH, "", "y = silu(gate) * up", IN(gate, "ROWS, N"), IN(up, "ROWS, N"), OUT(y, "ROWS, N"))
OP(quantise, OP_GRAPH, "", "y, y_scale = codes of x (above)",
	IN(x, "ROWS, K"), OUT(y, "ROWS, K"), OUT(y_scale, "ceil_div(K, 128), ROWS"))
OP(dequantise, OP_GRAPH, "", "y[t,k] = x[t,k] * x_scale[k / 128, t]",
	IN(x, "ROWS, K"), IN(x_scale, "ceil_div(K, 128), ROWS"), OUT(y, "ROWS, K"))
OP(quantise_fp4, OP_GRAPH, "", "y, y_block, y_row_scale = codes of x (above)",
	IN(x, "ROWS, K"), OUT(y, "ROWS, K"), OUT(y_block, "ROWS, ceil_div(K, 16)"), OUT(y_row_scale, "ROWS"))
OP(dequantise_fp4, OP_GRAPH, "", "y[t,k] = x[t,k] * x_block[t, k / 16] * x_row_scale[t]",
	IN(x, "ROWS, K"), IN(x_block, "ROWS, ceil_div(K, 16)"), IN(x_row_scale, "ROWS"), OUT(y, "ROWS, K"))
OP(sigmoid_gate, OP_GRAPH, "", "y[t,n] = x[t,n] * sigmoid(gate[t, n / (N / G)])",
	IN(x, "ROWS, N"), IN(gate, "ROWS, G"), OUT(y, "ROWS, N"))
OP(route, OP_GRAPH, "TOPK NORM_TOPK",
	"p = softmax(logits[t,:]); expert[t,:] = the ids of the TOPK largest p, largest first, the lowest id among equals; "
	"share[t,j] = p[expert[t,j]], with NORM_TOPK over the sum of these",
	IN(logits, "ROWS, E"), OUT(expert, "ROWS, TOPK"), OUT(share, "ROWS, TOPK"))
OP(experts, OP_GRAPH, "TOPK BLOCK_N BLOCK_K",
	"y[t,:] = sum_j share[t,j] down[e] (silu(gate[e] x[t]) * (up[e] x[t])), e = expert[t,j]; rows of "
	"gate_up[e]: gate, up, each with separate blocks",
	IN(x, "ROWS, K"), IN(expert, "ROWS, TOPK"), IN(share, "ROWS, TOPK"), IN(gate_up, "E, 2 * N, K"),
	IN_OPT(gate_up_scale, "E, 2 * ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(gate_up_row_scale, "E, 2 * N"),
	IN(down, "E, K, N"), IN_OPT(down_scale, "E, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"),
	IN_OPT(down_row_scale, "E, K"), OUT(y, "ROWS, K"))
OP(causal_conv, OP_GRAPH, "TAPS",
	"y[t,c] = silu(sum_j w[c,0,j] x[j rows on from TAPS before t, c]), over the rows of t's slot by position: those of "
	"this step, before them conv[s], which then holds the slot's last TAPS rows",
	IN(step, "4"), IN(x, "ROWS, C"), IN(w, "C, 1, TAPS + 1"), IN(row_slot, "ROWS"), INOUT(conv, "SLOTS, TAPS * C"),
	OUT(y, "ROWS, C"))
OP(delta_rule, OP_GRAPH, "NK NV DK DV",
	"qkv rows are q, k, v heads; q, k over sqrt(their square + 1e-6), q over sqrt(DK); by value head, row after row: S "
	"= delta[s,h] * e^(-e^a_log softplus(a + dt_bias)); S += k (sigmoid(b) (v - k.S)); o = q.S; delta[s,h] = S "
	"[DK,DV]. S in bf16 is rounded after each 64th row of a slot in this step, and after the last",
	IN(step, "4"), IN(qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(a, "ROWS, NV"), IN(b, "ROWS, NV"), IN(a_log, "NV"),
	IN(dt_bias, "NV"), IN(row_slot, "ROWS"), INOUT(delta, "SLOTS, NV * DK * DV"), OUT(o, "ROWS, NV * DV"))
OP(gated_norm, OP_GRAPH, "HDIM EPS", "y = rmsnorm of x over each head of HDIM elements, one w for all heads, * silu(z)",
	IN(x, "ROWS, N"), IN(z, "ROWS, N"), IN(w, "HDIM"), OUT(y, "ROWS, N"))
OP(zero_slots, OP_GRAPH, "", "state[s,:] = 0 for each slot s with acquire[s] = 1",
	IN(acquire, "SLOTS"), INOUT(state, "SLOTS, N"))
OP(gather, OP_GRAPH, "", "y[o,:] = x[out_row[o],:]; idle outs (-1): 0",
	IN(x, "ROWS, K"), IN(out_row, "OUTS"), OUT(y, "OUTS, K"))
OP(soft_cap, OP_GRAPH, "CAP", "y = CAP tanh(x / CAP)", IN(x, "ROWS, N"), OUT(y, "ROWS, N"))
OP(sample, OP_GRAPH, "N_VALID",
	"per out row of slot s that has not ended: penalties, rules, temperature, top-k, top-p, min-p, then argmax or "
	"Gumbel-max with Philox(seed, slot_len); token -> slot_token (-1 when done), counts, ring; slot_len = row_pos + 1; "
	"a NaN or an infinite maximum: token -1, done 3, counts as they were",
	IN(step, "4"), INOUT(logits, "OUTS, V"), IN(out_row, "OUTS"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"),
	IN(sampling, "SLOTS, 8"), IN(limits, "SLOTS, 8"), IN(rules, "SLOTS, 1536"), IN(stop_tokens, "STOPS"),
	INOUT(counts, "SLOTS, V"), INOUT(slot_token, "SLOTS"), INOUT(slot_len, "SLOTS"), INOUT(ring, "SLOTS, 256"))
OP(verify_rows, OP_GRAPH, "",
	"verify: row t is the j-th of slot s, j = t mod (DRAFTS + 1): row_token = slot_token[s], or draft j - 1; row_pos = "
	"slot_len[s] + j. Ended slots: 0, j; idle rows: 0, 0",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), IN(slot_draft, "SLOTS, DRAFTS"),
	OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"))
OP(draft_rows, OP_GRAPH, "",
	"draft: row_token[t] = slot_token[s]; row_pos[t] = slot_len[s] - 1, where the head's keys end; idle rows and ended "
	"slots: 0, 0",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"))
OP(embed_next_token, OP_GRAPH, "", "x[t,:] = table[row_next[t],:]",
	IN(row_next, "ROWS"), IN(table, "V, H"), OUT(x, "ROWS, H"))
OP(join, OP_GRAPH, "", "z[t,:] = x[t,:] followed by y[t,:]",
	IN(x, "ROWS, N"), IN(y, "ROWS, M"), OUT(z, "ROWS, N + M"))
OP(hold, OP_GRAPH, "",
	"held[s,:] = x[t,:], t the last row of slot s in the step; with slot_len, that at position slot_len[s] - 1",
	IN(step, "4"), IN(x, "ROWS, K"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN_OPT(slot_len, "SLOTS"),
	INOUT(held, "SLOTS, K"))
OP(recall, OP_GRAPH, "", "y[t,:] = held[row_slot[t],:]; idle rows: 0",
	IN(row_slot, "ROWS"), IN(held, "SLOTS, K"), OUT(y, "ROWS, K"))
OP(conv_verify, OP_GRAPH, "TAPS", "verify: causal_conv of versions (slot_version, above) of conv",
	IN(step, "4"), IN(x, "ROWS, C"), IN(w, "C, 1, TAPS + 1"), IN(row_slot, "ROWS"), IN(slot_version, "SLOTS"),
	INOUT(conv, "SLOTS, TAPS * C"), INOUT(conv_later, "SLOTS, DRAFTS, TAPS * C"), OUT(y, "ROWS, C"))
OP(delta_verify, OP_GRAPH, "NK NV DK DV", "verify: delta_rule of versions (slot_version, above) of delta",
	IN(step, "4"), IN(qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(a, "ROWS, NV"), IN(b, "ROWS, NV"), IN(a_log, "NV"),
	IN(dt_bias, "NV"), IN(row_slot, "ROWS"), IN(slot_version, "SLOTS"), INOUT(delta, "SLOTS, NV * DK * DV"),
	INOUT(delta_later, "SLOTS, DRAFTS, NV * DK * DV"), OUT(o, "ROWS, NV * DV"))
OP(draw, OP_GRAPH, "N_VALID AHEAD",
	"what sample draws and its log probability, of each row of a slot that has not ended, for position row_pos + "
	"AHEAD; counted besides: the slot's drafts before that position. Not numbers: -1. Other rows: 0. Column v is of "
	"token id ids[v], ascending, where ids is there, else of id v; V may be less than VOCAB, and all that goes by ids "
	"goes by these: counts, drafts, the noise, what is drawn",
	IN(step, "4"), INOUT(logits, "ROWS, V"), IN_OPT(ids, "V"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"),
	IN(sampling, "SLOTS, 8"), IN(limits, "SLOTS, 8"), IN(rules, "SLOTS, 1536"), IN(counts, "SLOTS, VOCAB"),
	IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), IN(slot_draft, "SLOTS, DRAFTS"), OUT(drawn, "ROWS"),
	OUT(drawn_logprob, "ROWS"))
OP(keep_draft, OP_GRAPH, "",
	"draft: slot_draft[s, row_pos[t] + 1 - slot_len[s]] = row_token[t] = drawn[t], 0 for -1; row_pos[t] += 1",
	IN(drawn, "ROWS"), IN(row_slot, "ROWS"), IN(slot_len, "SLOTS"), INOUT(slot_draft, "SLOTS, DRAFTS"),
	INOUT(row_token, "ROWS"), INOUT(row_pos, "ROWS"))
OP(accept, OP_GRAPH, "",
	"of each slot that has not ended, row after row: drawn[t] becomes the slot's token as sample does it, and it goes "
	"on to the next row while that row's row_token is this token (or limits decides) and the sequence has not ended; "
	"slot_version[s] = "
	"the last such row, 0 = the first. row_next[t] = drawn[t], 0 for -1",
	IN(step, "4"), IN(drawn, "ROWS"), IN(drawn_logprob, "ROWS"), IN(row_token, "ROWS"), IN(row_slot, "ROWS"),
	IN(row_pos, "ROWS"), IN(limits, "SLOTS, 8"), IN(rules, "SLOTS, 1536"), IN(stop_tokens, "STOPS"),
	INOUT(counts, "SLOTS, V"), INOUT(slot_token, "SLOTS"), INOUT(slot_len, "SLOTS"), INOUT(slot_version, "SLOTS"),
	INOUT(ring, "SLOTS, 256"), OUT(row_next, "ROWS"))
OP(acquire, OP_GRAPH, "",
	"for each slot s with acquire[s] = 1: slot_len, slot_token, slot_version, counts = 0; "
	"sampling, limits, page_table rows = the new ones; rules row = new_rules",
	IN(acquire, "SLOTS"), IN(new_sampling, "SLOTS, 8"), IN(new_limits, "SLOTS, 8"), IN(new_pages, "SLOTS, MAX_PAGES"),
	IN(new_rules, "1536"), INOUT(slot_len, "SLOTS"), INOUT(slot_token, "SLOTS"), INOUT(counts, "SLOTS, V"),
	INOUT(sampling, "SLOTS, 8"), INOUT(limits, "SLOTS, 8"), INOUT(rules, "SLOTS, 1536"),
	INOUT(page_table, "SLOTS, MAX_PAGES"), INOUT_OPT(slot_version, "SLOTS"))

OP(embed_next, OP_FUSED, "", "slot_rows; embed",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), IN(table, "V, H"),
	OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"), OUT(x, "ROWS, H"))
OP(embed_prompt, OP_FUSED, "", "note_prompt; embed",
	IN(step, "4"), IN(row_token, "ROWS"), IN(row_slot, "ROWS"), IN(table, "V, H"), INOUT(counts, "SLOTS, V"),
	OUT(x, "ROWS, H"))
OP(norm_linear, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K",
	"rmsnorm; linear (several linears of one input as one: rows of w and of its scales in order)",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), IN(w, "N, K"),
	IN_OPT(w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(w_row_scale, "N"), IN_OPT(bias, "N"),
	OUT(y, "ROWS, N"))
OP(norm_rows, OP_FUSED, "EPS NORM_ONE", "rmsnorm, of rows in use",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), OUT(y, "ROWS, K"))
OP(norm_rows_fp8, OP_FUSED, "EPS NORM_ONE", "rmsnorm; quantise: of rows in use",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), OUT(y, "ROWS, K"), OUT(y_scale, "ceil_div(K, 128), ROWS"))
OP(quant_rows, OP_FUSED, "", "quantise, of rows in use",
	IN(step, "4"), IN(x, "ROWS, K"), OUT(y, "ROWS, K"), OUT(y_scale, "ceil_div(K, 128), ROWS"))
OP(norm_rows_fp4, OP_FUSED, "EPS NORM_ONE", "rmsnorm; quantise_fp4: of rows in use",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), OUT(y, "ROWS, K"), OUT(y_block, "ROWS, ceil_div(K, 16)"),
	OUT(y_row_scale, "ROWS"))
OP(quant_rows_fp4, OP_FUSED, "", "quantise_fp4, of rows in use",
	IN(step, "4"), IN(x, "ROWS, K"), OUT(y, "ROWS, K"), OUT(y_block, "ROWS, ceil_div(K, 16)"),
	OUT(y_row_scale, "ROWS"))
OP(linear_rows, OP_FUSED, "BLOCK_N BLOCK_K",
	"[dequantise or dequantise_fp4;] linear, of rows in use (several linears of one input as one: rows of w and of its "
	"scales in order)",
	IN(step, "4"), IN(x, "ROWS, K"), IN_OPT(x_scale, "ceil_div(K, 128), ROWS"),
	IN_OPT(x_block, "ROWS, ceil_div(K, 16)"), IN_OPT(x_row_scale, "ROWS"), IN(w, "N, K"),
	IN_OPT(w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN_OPT(w_row_scale, "N"), IN_OPT(bias, "N"), OUT(y, "ROWS, N"))
OP(rope_write, OP_FUSED, "HDIM NH NKV GATED PAGE ROTARY ROTATE ROPE_FACTOR EPS NORM_ONE",
	"head_norm of q and k when q_norm and k_norm are there; rope of q and k; kv_write. qkv rows are q, k, v heads "
	"and, where GATED, gates, which are not read",
	IN(step, "4"), IN(qkv, "ROWS, (NH + 2 * NKV + GATED * NH) * HDIM"), IN_OPT(q_norm, "HDIM"), IN_OPT(k_norm, "HDIM"),
	IN(inv_freq, "ROTARY / 2"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN(page_table, "SLOTS, MAX_PAGES"),
	INOUT(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	INOUT_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"), OUT(q, "ROWS, NH * HDIM"))
OP(attention_rows, OP_FUSED, "HDIM NH NKV PAGE SCALE", "attention, of rows in use, without segments",
	IN(step, "4"), IN(q, "ROWS, NH * HDIM"), IN(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	IN_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"),
	IN(page_table, "SLOTS, MAX_PAGES"), OUT(o, "ROWS, NH * HDIM"))
OP(attention_step, OP_FUSED, "HDIM NH NKV GATED PAGE SCALE ROTARY ROTATE ROPE_FACTOR EPS NORM_ONE",
	"decode, rows of different slots: slot_rows; rope_write; attention; where GATED sigmoid_gate, an element of the "
	"gate for each of o. part, part_ml, arrived are used by this launch only: sums of SPLITS runs of a history with "
	"their maxima, and how many runs are done, which is 0 before and after",
	IN(step, "4"), IN(qkv, "ROWS, (NH + 2 * NKV + GATED * NH) * HDIM"), IN_OPT(q_norm, "HDIM"), IN_OPT(k_norm, "HDIM"),
	IN(inv_freq, "ROTARY / 2"), IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"),
	IN(page_table, "SLOTS, MAX_PAGES"),
	INOUT(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	INOUT_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"), OUT(part, "ROWS, NH, SPLITS, HDIM"),
	OUT(part_ml, "ROWS, NH, SPLITS, 2"), INOUT(arrived, "ROWS, NH"), OUT(o, "ROWS, NH * HDIM"))
OP(attention_verify, OP_FUSED, "HDIM NH NKV GATED PAGE SCALE ROTARY ROTATE ROPE_FACTOR EPS NORM_ONE EACH",
	"verify, EACH rows of a slot: positions of verify_rows; rope_write; attention; where GATED sigmoid_gate. part, "
	"part_ml, arrived as in attention_step",
	IN(step, "4"), IN(qkv, "ROWS, (NH + 2 * NKV + GATED * NH) * HDIM"), IN_OPT(q_norm, "HDIM"), IN_OPT(k_norm, "HDIM"),
	IN(inv_freq, "ROTARY / 2"), IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"),
	IN(page_table, "SLOTS, MAX_PAGES"),
	INOUT(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	INOUT_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"), OUT(part, "ROWS, NH, SPLITS, HDIM"),
	OUT(part_ml, "ROWS, NH, SPLITS, 2"), INOUT(arrived, "ROWS, NH"), OUT(o, "ROWS, NH * HDIM"))
OP(gate_rows, OP_FUSED, "", "sigmoid_gate, of rows in use: the gate is the last N columns of gates",
	IN(step, "4"), IN(x, "ROWS, N"), IN(gates, "ROWS, COLS"), OUT(y, "ROWS, N"))
OP(conv_rows, OP_FUSED, "TAPS",
	"causal_conv, of rows in use and of the first C columns of x; segments are the rows of a slot",
	IN(step, "4"), IN(x, "ROWS, COLS"), IN(conv_w, "C, 1, TAPS + 1"), IN(row_slot, "ROWS"), IN(seg, "SEGS, 4"),
	INOUT(conv, "SLOTS, TAPS * C"), OUT(y, "ROWS, C"))
OP(delta_rows, OP_FUSED, "NK NV DK DV EPS",
	"delta_rule; gated_norm: of rows in use. Rows of x are q, k, v heads (not read: qkv has them), z of the v heads "
	"and, without ba, b and a of each; ba: those two",
	IN(step, "4"), IN(qkv, "ROWS, 2 * NK * DK + NV * DV"), IN(x, "ROWS, COLS"), IN_OPT(ba, "ROWS, 2 * NV"),
	IN(a_log, "NV"), IN(dt_bias, "NV"), IN(norm, "DV"), IN(row_slot, "ROWS"), IN(seg, "SEGS, 4"),
	INOUT(delta, "SLOTS, NV * DK * DV"), OUT(y, "ROWS, NV * DV"))
OP(delta_step, OP_FUSED, "NK NV DK DV TAPS EPS",
	"decode, rows of different slots: causal_conv; delta_rule; gated_norm. Rows of x and ba as in delta_rows. readers "
	"is used by this launch only: how many value heads of a key head have read its columns of conv, 0 before and after",
	IN(step, "4"), IN(x, "ROWS, COLS"), IN_OPT(ba, "ROWS, 2 * NV"), IN(conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1"),
	IN(a_log, "NV"), IN(dt_bias, "NV"), IN(norm, "DV"), IN(row_slot, "ROWS"),
	INOUT(conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)"), INOUT(delta, "SLOTS, NV * DK * DV"),
	INOUT(readers, "ROWS, NK"), OUT(y, "ROWS, NV * DV"))
OP(delta_verify_step, OP_FUSED, "NK NV DK DV TAPS EPS",
	"verify, DRAFTS + 1 rows of a slot: conv_verify; delta_verify; gated_norm. Rows of x and ba as in delta_rows, "
	"readers as in delta_step",
	IN(step, "4"), IN(x, "ROWS, COLS"), IN_OPT(ba, "ROWS, 2 * NV"), IN(conv_w, "2 * NK * DK + NV * DV, 1, TAPS + 1"),
	IN(a_log, "NV"), IN(dt_bias, "NV"), IN(norm, "DV"), IN(row_slot, "ROWS"), IN(slot_version, "SLOTS"),
	INOUT(conv, "SLOTS, TAPS * (2 * NK * DK + NV * DV)"),
	INOUT(conv_later, "SLOTS, DRAFTS, TAPS * (2 * NK * DK + NV * DV)"), INOUT(delta, "SLOTS, NV * DK * DV"),
	INOUT(delta_later, "SLOTS, DRAFTS, NV * DK * DV"), INOUT(readers, "ROWS, NK"), OUT(y, "ROWS, NV * DV"))
OP(linear_residual, OP_FUSED, "BLOCK_N BLOCK_K", "[dequantise or dequantise_fp4;] z = residual + linear(x)",
	IN(step, "4"), IN(x, "ROWS, K"), IN_OPT(x_scale, "ceil_div(K, 128), ROWS"),
	IN_OPT(x_block, "ROWS, ceil_div(K, 16)"), IN_OPT(x_row_scale, "ROWS"), IN(w, "N, K"),
	IN_OPT(w_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN_OPT(w_row_scale, "N"), IN_OPT(bias, "N"), IN(residual, "ROWS, N"), OUT(z, "ROWS, N"))
OP(norm_swiglu, OP_FUSED, "EPS NORM_ONE BLOCK_N BLOCK_K",
	"n = rmsnorm(x); y = silu(linear(n, gate)) * linear(n, up)",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), IN(gate, "N, K"), IN(up, "N, K"),
	IN_OPT(gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(gate_row_scale, "N"),
	IN_OPT(up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(up_row_scale, "N"),
	IN_OPT(gate_bias, "N"), IN_OPT(up_bias, "N"), OUT(y, "ROWS, N"))
OP(linear_swiglu, OP_FUSED, "BLOCK_N BLOCK_K", "[dequantise_fp4;] y = silu(linear(x, gate)) * linear(x, up)",
	IN(step, "4"), IN(x, "ROWS, K"), IN_OPT(x_block, "ROWS, ceil_div(K, 16)"), IN_OPT(x_row_scale, "ROWS"),
	IN(gate, "N, K"), IN(up, "N, K"),
	IN_OPT(gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(gate_row_scale, "N"),
	IN_OPT(up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(up_row_scale, "N"),
	IN_OPT(gate_bias, "N"), IN_OPT(up_bias, "N"), OUT(y, "ROWS, N"))
OP(linear_swiglu_fp8, OP_FUSED, "BLOCK_N BLOCK_K", "dequantise; linear_swiglu; quantise",
	IN(step, "4"), IN(x, "ROWS, K"), IN(x_scale, "ceil_div(K, 128), ROWS"), IN(gate, "N, K"), IN(up, "N, K"),
	IN_OPT(gate_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(gate_row_scale, "N"),
	IN_OPT(up_scale, "ceil_div(N, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(up_row_scale, "N"),
	IN_OPT(gate_bias, "N"), IN_OPT(up_bias, "N"), OUT(y, "ROWS, N"), OUT(y_scale, "ceil_div(N, 128), ROWS"))
OP(norm_route, OP_FUSED, "EPS NORM_ONE TOPK NORM_TOPK",
	"n = rmsnorm(x); logits = linear(n, router); route. With shared_gate a row has one share more, that of the expert "
	"all rows go to: sigmoid(linear(n, shared_gate)). routed is used by this launch only: how many of its blocks are "
	"done with a run of rows, which is 0 before and after",
	IN(step, "4"), IN(x, "ROWS, K"), IN(norm, "K"), IN(router, "EXPERTS, K"), IN_OPT(shared_gate, "1, K"),
	INOUT(routed, "ROWS"), OUT(n, "ROWS, K"), OUT(logits, "ROWS, EXPERTS"), OUT(expert, "ROWS, TOPK"),
	OUT(share, "ROWS, SHARES"))
OP(group_rows, OP_FUSED, "TOPK",
	"the pairs t * TOPK + j of rows in use, by expert[t,j] and then in order, followed by -1; those of expert e begin "
	"at first[e] and end at first[e + 1]",
	IN(step, "4"), IN(expert, "ROWS, TOPK"), OUT(pair, "ROWS * TOPK"), OUT(first, "FIRSTS"))
OP(experts_up, OP_FUSED, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"experts, up to down: h[t,:] = for each j share[t,j] * (silu(gate[e] n[t]) * (up[e] n[t])), e = expert[t,j]; then "
	"the same of the shared expert with the last share. N counts rows of gate and up, WIDTH the columns of all of "
	"these. pair and first, as group_rows makes them, replace expert",
	IN(step, "4"), IN(n, "ROWS, K"), IN_OPT(expert, "ROWS, TOPK"), IN(share, "ROWS, SHARES"),
	IN_OPT(pair, "ROWS * TOPK"), IN_OPT(first, "EXPERTS + 1"), IN(gate_up, "EXPERTS, N, K"),
	IN_OPT(gate_up_scale, "EXPERTS, 2 * ceil_div(N / 2, BLOCK_N), ceil_div(K, BLOCK_K)"),
	IN_OPT(gate_up_row_scale, "EXPERTS, N"),
	IN_OPT(shared, "2 * WIDTH - TOPK * N, K"),
	IN_OPT(shared_scale, "2 * ceil_div(WIDTH - TOPK * N / 2, SHARED_BLOCK_N), ceil_div(K, SHARED_BLOCK_K)"),
	IN_OPT(shared_row_scale, "2 * WIDTH - TOPK * N"), OUT(h, "ROWS, WIDTH"))
OP(experts_down, OP_FUSED, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"experts, from down on: z[t,:] = residual[t,:] + sum_j down[expert[t,j]] (its part of h[t,:]) + shared_down (the "
	"rest of h[t,:])",
	IN(step, "4"), IN(h, "ROWS, WIDTH"), IN(expert, "ROWS, TOPK"), IN(down, "EXPERTS, K, N"),
	IN_OPT(down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"), IN_OPT(down_row_scale, "EXPERTS, K"),
	IN_OPT(shared_down, "K, WIDTH - TOPK * N"),
	IN_OPT(shared_down_scale, "ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)"),
	IN_OPT(shared_down_row_scale, "K"), IN(residual, "ROWS, K"), OUT(z, "ROWS, K"))
OP(experts_down_rows, OP_FUSED, "TOPK BLOCK_N BLOCK_K SHARED_BLOCK_N SHARED_BLOCK_K",
	"the terms of experts_down's sums, one by one: y[t,j,:], the shared expert's last",
	IN(step, "4"), IN(h, "ROWS, WIDTH"), IN(pair, "ROWS * TOPK"), IN(first, "EXPERTS + 1"),
	IN(down, "EXPERTS, K, N"), IN_OPT(down_scale, "EXPERTS, ceil_div(K, BLOCK_N), ceil_div(N, BLOCK_K)"),
	IN_OPT(down_row_scale, "EXPERTS, K"), IN_OPT(shared_down, "K, WIDTH - TOPK * N"),
	IN_OPT(shared_down_scale, "ceil_div(K, SHARED_BLOCK_N), ceil_div(WIDTH - TOPK * N, SHARED_BLOCK_K)"),
	IN_OPT(shared_down_row_scale, "K"), OUT(y, "ROWS, SHARES, K"))
OP(sum_experts, OP_FUSED, "", "z[t,:] = residual[t,:] + sum_j y[t,j,:]",
	IN(step, "4"), IN(y, "ROWS, SHARES, K"), IN(residual, "ROWS, K"), OUT(z, "ROWS, K"))
OP(sum_terms, OP_FUSED, "", "the end of experts: z[t,:] = sum_j y[t,j,:], the terms of experts_down_rows",
	IN(step, "4"), IN(y, "ROWS, SHARES, K"), OUT(z, "ROWS, K"))
OP(norm_logits, OP_FUSED, "EPS NORM_ONE N_VALID BLOCK_N BLOCK_K",
	"gather; rmsnorm; linear: logits in f32. Of part p of the vocabulary (PARTS equal ones, of a power of two of ids), "
	"ids below N_VALID: best[o,p] = the largest logit and the sum of e^(l - largest), best_id = its lowest id",
	IN(step, "4"), IN(x, "ROWS, K"), IN(out_row, "OUTS"), IN(norm, "K"), IN(w, "V, K"),
	IN_OPT(w_scale, "ceil_div(V, BLOCK_N), ceil_div(K, BLOCK_K)"), IN_OPT(w_row_scale, "V"), OUT(logits, "OUTS, V"),
	OUT(best, "OUTS, PARTS, 2"), OUT(best_id, "OUTS, PARTS"))
OP(sample_best, OP_FUSED, "N_VALID", "sample, with best and best_id as norm_logits computed them with the logits",
	IN(step, "4"), INOUT(logits, "OUTS, V"), IN(best, "OUTS, PARTS, 2"), IN(best_id, "OUTS, PARTS"),
	IN(out_row, "OUTS"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN(sampling, "SLOTS, 8"),
	IN(limits, "SLOTS, 8"), IN(rules, "SLOTS, 1536"), IN(stop_tokens, "STOPS"), INOUT(counts, "SLOTS, V"),
	INOUT(slot_token, "SLOTS"), INOUT(slot_len, "SLOTS"), INOUT(ring, "SLOTS, 256"))
OP(embed_verify, OP_FUSED, "", "verify_rows; embed",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), IN(slot_draft, "SLOTS, DRAFTS"),
	IN(table, "V, H"), OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"), OUT(x, "ROWS, H"))
OP(draft_first, OP_FUSED, "EPS NORM_ONE",
	"draft_rows; recall; embed; rmsnorm of both, by embedding_norm and hidden_norm; join: what the head reads for a "
	"slot's first draft. Besides, of every slot: draft_len = slot_len - 1, at least 0, the position of its row",
	IN(row_slot, "ROWS"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), IN(held, "SLOTS, H"), IN(table, "V, H"),
	IN(embedding_norm, "H"), IN(hidden_norm, "H"), OUT(row_token, "ROWS"), OUT(row_pos, "ROWS"),
	OUT(draft_len, "SLOTS"), OUT(z, "ROWS, 2 * H"))
OP(draft_next, OP_FUSED, "EPS NORM_ONE",
	"rmsnorm; embed of row_token; rmsnorm of both, by embedding_norm and hidden_norm; join",
	IN(x, "ROWS, H"), IN(norm, "H"), IN(row_token, "ROWS"), IN(table, "V, H"), IN(embedding_norm, "H"),
	IN(hidden_norm, "H"), OUT(z, "ROWS, 2 * H"))
OP(follow_rows, OP_FUSED, "EPS NORM_ONE",
	"rmsnorm; hold; embed_next_token; rmsnorm of both, by embedding_norm and hidden_norm; join: of rows in use",
	IN(step, "4"), IN(x, "ROWS, H"), IN(norm, "H"), IN(row_next, "ROWS"), IN(table, "V, H"), IN(embedding_norm, "H"),
	IN(hidden_norm, "H"), IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN_OPT(slot_len, "SLOTS"),
	INOUT(held, "SLOTS, H"), OUT(z, "ROWS, 2 * H"))
OP(keys_write, OP_FUSED, "HDIM NKV PAGE ROTARY ROTATE ROPE_FACTOR EPS NORM_ONE",
	"head_norm of k when k_norm is there; rope of k; kv_write. Rows of keys are k and v heads",
	IN(step, "4"), IN(keys, "ROWS, 2 * NKV * HDIM"), IN_OPT(k_norm, "HDIM"), IN(inv_freq, "ROTARY / 2"),
	IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN(page_table, "SLOTS, MAX_PAGES"),
	INOUT(kv, "PAGES, 2, NKV, PAGE, HDIM"), IN_OPT(kv_scale, "2, NKV"),
	INOUT_OPT(kv_block, "PAGES, 2, NKV, PAGE, HDIM / 16"))
OP(draw_best, OP_FUSED, "N_VALID AHEAD", "draw, with best and best_id as norm_logits computed them with the logits",
	IN(step, "4"), INOUT(logits, "ROWS, V"), IN(best, "ROWS, PARTS, 2"), IN(best_id, "ROWS, PARTS"),
	IN(row_slot, "ROWS"), IN(row_pos, "ROWS"), IN(sampling, "SLOTS, 8"), IN(limits, "SLOTS, 8"),
	IN(rules, "SLOTS, 1536"), IN(counts, "SLOTS, V"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"),
	IN(slot_draft, "SLOTS, DRAFTS"), OUT(drawn, "ROWS"), OUT(drawn_logprob, "ROWS"))
OP(draw_draft, OP_FUSED, "N_VALID AHEAD",
	"draw_best, of columns of token ids as draw has them; keep_draft, of a row a slot; draft_len[s] += 1 where "
	"row_pos[t] is",
	IN(step, "4"), INOUT(logits, "ROWS, V"), IN_OPT(ids, "V"), IN(best, "ROWS, PARTS, 2"), IN(best_id, "ROWS, PARTS"),
	IN(row_slot, "ROWS"), IN(sampling, "SLOTS, 8"), IN(limits, "SLOTS, 8"), IN(rules, "SLOTS, 1536"),
	IN(counts, "SLOTS, VOCAB"), IN(slot_token, "SLOTS"), IN(slot_len, "SLOTS"), INOUT(slot_draft, "SLOTS, DRAFTS"),
	INOUT(row_token, "ROWS"), INOUT(row_pos, "ROWS"), INOUT(draft_len, "SLOTS"))
OP(read_probe, OP_FUSED, "",
	"part[i] = exclusive or of words 8192 i .. 8192 i + 8191 of x: for phase probe only, to measure reading",
	IN(x, "PARTS * 8192"), OUT(part, "PARTS"))
