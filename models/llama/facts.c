/* What the llama family is: Llama 2 and 3, SmolLM2.
 *
 * The keys of config.json as LlamaConfig of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey llama_keys[] = {
	DECODER_KEYS,
	SIZE_KEY("intermediate_size", each.ffn_dim, MAX_DIM),
	HEAD_DIM_KEY(MAY_BE_NULL, 0),
	KV_HEADS_KEY(MAY_BE_NULL, 0),
	BIAS_KEY,
	BOOL_KEY("mlp_bias", each.mlp_bias, 0, 0),
	ID_KEY("bos_token_id", 1),
	ID_KEY("eos_token_id", 2),
	/* the class has no windows; generate() of transformers gives its texts with use_cache = False, for the cache looks
	 * at the number all the same */
	IGNORED_KEY("sliding_window", 0),
	IGNORED_KEY("use_sliding_window", IS_FALSE),
	IGNORED_KEY("max_window_layers", IF_NO_WINDOW),
	LAST_KEY,
};
