/* What the qwen2 family is: Qwen2 and Qwen2.5; q, k and v have a bias, always.
 *
 * The keys of config.json as Qwen2Config of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey qwen2_keys[] = {
	DECODER_KEYS,
	SIZE_KEY("intermediate_size", each.ffn_dim, MAX_DIM),
	HEAD_DIM_KEY(0, 0),
	KV_HEADS_KEY(MAY_BE_NULL, 32),
	CODE_KEY("sliding_window"),     /* 4096 when absent; of what layer_types or max_window_layers say */
	CODE_KEY("use_sliding_window"), /* false: the number is not meant */
	CODE_KEY("max_window_layers"),  /* the first layer with a window, 28 when absent */
	CODE_KEY("layer_types"),
	ID_KEY("bos_token_id", -1),
	ID_KEY("eos_token_id", -1),
	IGNORED_KEY("attention_bias", IS_FALSE),
	IGNORED_KEY("dual_chunk_attention_config", 0), /* of other engines, beyond its length */
	LAST_KEY,
};
