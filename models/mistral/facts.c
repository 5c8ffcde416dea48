/* What the mistral family is: Llama's decoder without biases, windows in every layer or in none.
 *
 * The keys of config.json as MistralConfig of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey mistral_keys[] = {
	DECODER_KEYS,
	SIZE_KEY("intermediate_size", each.ffn_dim, MAX_DIM),
	HEAD_DIM_KEY(MAY_BE_NULL, 0),
	KV_HEADS_KEY(0, 8),
	CODE_KEY("sliding_window"), /* 4096 when absent, of every layer; null: none */
	ID_KEY("bos_token_id", 1),
	ID_KEY("eos_token_id", 2),
	IGNORED_KEY("attention_bias", IS_FALSE),
	IGNORED_KEY("layer_types", IS_FULL), /* the number alone decides */
	IGNORED_KEY("use_sliding_window", IS_TRUE),
	IGNORED_KEY("max_window_layers", IF_NO_WINDOW),
	LAST_KEY,
};
