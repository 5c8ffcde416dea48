/* What the qwen3 family is: Qwen3, dense; q and k are normalised by head.
 *
 * The keys of config.json as Qwen3Config of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey qwen3_keys[] = {
	DECODER_KEYS,
	SIZE_KEY("intermediate_size", each.ffn_dim, MAX_DIM),
	HEAD_DIM_KEY(0, 128),
	KV_HEADS_KEY(MAY_BE_NULL, 32),
	BIAS_KEY,
	CODE_KEY("sliding_window"), /* the four as qwen2 has them */
	CODE_KEY("use_sliding_window"),
	CODE_KEY("max_window_layers"),
	CODE_KEY("layer_types"),
	MUST_KEY("use_qk_norm", IS_TRUE),
	ID_KEY("bos_token_id", -1),
	ID_KEY("eos_token_id", -1),
	LAST_KEY,
};
