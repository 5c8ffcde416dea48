/* What the qwen3_5 family is: Gated DeltaNet, gated attention in every fourth layer, an MLP.
 *
 * The keys of config.json as Qwen3_5TextConfig of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey qwen3_5_keys[] = {
	DECODER_KEYS,
	DELTA_KEYS,
	SIZE_KEY("intermediate_size", each.ffn_dim, MAX_DIM),
	HEAD_DIM_KEY(0, 256),
	KV_HEADS_KEY(0, 4),
	MUST_KEY("use_qk_norm", IS_TRUE),
	ID_KEY("bos_token_id", -1),
	ID_KEY("eos_token_id", -1),
	LAST_KEY,
};
