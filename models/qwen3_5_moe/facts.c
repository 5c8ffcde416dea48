/* What the qwen3_5_moe family is: qwen3_5 with experts and a shared one in place of the MLP.
 *
 * The keys of config.json as Qwen3_5MoeTextConfig of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey qwen3_5_moe_keys[] = {
	DECODER_KEYS,
	DELTA_KEYS,
	EXPERT_KEYS,
	CODE_KEY("num_local_experts"),
	SIZE_KEY("shared_expert_intermediate_size", each.shared_dim, MAX_DIM),
	HEAD_DIM_KEY(0, 256),
	KV_HEADS_KEY(0, 2),
	MUST_KEY("norm_topk_prob", IS_TRUE), /* no field of the class: its router always does */
	MUST_KEY("use_qk_norm", IS_TRUE),
	FREE_KEY("intermediate_size"),
	ID_KEY("bos_token_id", -1),
	ID_KEY("eos_token_id", -1),
	LAST_KEY,
};
