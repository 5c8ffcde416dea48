/* What the qwen3_moe family is: Qwen3's attention, experts in place of the MLP of every layer.
 *
 * The keys of config.json as Qwen3MoeConfig of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey qwen3_moe_keys[] = {
	DECODER_KEYS,
	EXPERT_KEYS,
	{.name = "num_local_experts", .rule = KEY_CODE, .flags = OTHER_NAME}, /* of num_experts */
	HEAD_DIM_KEY(0, 0), /* no field of the class: its attention divides */
	KV_HEADS_KEY(0, 4),
	BIAS_KEY,
	BOOL_KEY("norm_topk_prob", each.norm_topk, 0, 0),
	MUST_KEY("decoder_sparse_step", IS_ONE),
	{.name = "mlp_only_layers", .rule = KEY_MUST, .flags = MAY_BE_NULL, .pass = IS_EMPTY},
	MUST_KEY("use_qk_norm", IS_TRUE),
	CODE_KEY("sliding_window"),     /* 4096 when absent; of every layer */
	CODE_KEY("use_sliding_window"), /* false: the number is not meant */
	IGNORED_KEY("max_window_layers", IF_NO_WINDOW),
	FREE_KEY("intermediate_size"),  /* of layers without experts, which there are not */
	ID_KEY("bos_token_id", -1),
	ID_KEY("eos_token_id", -1),
	LAST_KEY,
};
