/* foreign_keys.c - keys of config.json that a family does not have.
 *
 * Three kinds: keys that change what some family computes, with the values that change nothing, by which they may
 * be in the file of a family that does not read them; keys that change no result of any; and what is around a
 * text_config. The names are those of the decoder classes of transformers 5.17, the older spellings that files still
 * carry, and what other engines read. Where a value is neutral to one family alone, the family's own list says so.
 */
#include "artifacts/closest.h"
#include "compiler/read/config_keys.h"
#include "compiler/read/read_model.h"

#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef struct ForeignWord { const char *name, *neutral; } ForeignWord;

static const SpareKey arithmetic[] = {
	/* sizes, and which layers there are */
	{"block_auto_adjust_ff_dim", 0}, {"block_ffn_dim_multiplier", 0}, {"block_multiple_of", 0}, {"conv_L_cache", 0},
	{"decoder_sparse_step", IS_ONE}, {"dense_intermediate_size", 0}, {"expand", 0}, {"expert_ffn_hidden_size", 0},
	{"expert_layer_offset", 0}, {"expert_layer_period", 0}, {"ffn_hidden_size", 0}, {"first_k_dense_replace", IS_ZERO},
	{"full_attention_interval", IS_ONE}, {"full_attn_idxs", 0}, {"global_attn_every_n_layers", IS_ONE},
	{"global_head_dim", 0}, {"hybrid_layer_pattern", 0}, {"hybrid_override_pattern", 0}, {"attn_layer_indices", 0},
	{"attn_layer_offset", 0}, {"attn_layer_period", 0}, {"head_dim", 0}, {"hidden_size_per_layer_input", IS_ZERO},
	{"interleave_moe_layer_step", IS_ZERO}, {"intermediate_size", 0}, {"intermediate_size_mlp", 0}, {"kv_channels", 0},
	{"layer_types", IS_FULL}, {"layers_block_type", 0}, {"linear_attn_config", 0}, {"linear_conv_kernel_dim", 0},
	{"linear_head_dim", 0}, {"linear_key_head_dim", 0}, {"linear_num_heads", 0}, {"linear_num_key_heads", 0},
	{"linear_num_value_heads", 0}, {"linear_value_head_dim", 0}, {"local_layer_pattern", 0},
	{"mlp_layer_types", IS_EMPTY}, {"mlp_only_layers", IS_EMPTY}, {"mtp_layer_types", IS_EMPTY},
	{"mtp_layers_block_type", IS_EMPTY}, {"mtp_mlp_layer_types", IS_EMPTY}, {"mtp_num_hidden_layers", IS_ZERO},
	{"mtp_use_dedicated_embeddings", IS_FALSE}, {"num_attention_groups", 0},
	{"num_attention_heads_per_layer", IS_EMPTY}, {"num_attention_layers", 0}, {"num_dense_layers", IS_ZERO},
	{"num_global_key_value_heads", 0}, {"num_key_value_heads", 0}, {"num_kv_heads", 0},
	{"num_kv_shared_layers", IS_ZERO}, {"num_layers", 0}, {"num_ln_in_parallel_attn", 0}, {"num_mem_blocks", 0},
	{"num_mtp_layers", IS_ZERO}, {"num_nextn_predict_layers", IS_ZERO}, {"num_sliding_attention_heads", 0},
	{"per_layer_config", IS_EMPTY}, {"share_q_dim", 0}, {"vocab_size_per_layer_input", 0},
	{"attention_other_setting", 0}, {"block_configs", IS_EMPTY}, {"cross_layer_attention", IS_FALSE},
	{"use_cla", IS_FALSE}, {"cla_share_factor", IS_ONE}, {"num_hidden_layers_override", 0},
	{"block_types", 0}, {"H_cycles", 0}, {"L_bp_cycles", 0}, {"L_cycles", 0}, {"local_layer_ids", IS_EMPTY},
	{"lru_width", 0}, {"mtp_hidden_states_first", 0}, {"mtp_local_layer_ids", IS_EMPTY}, {"num_layers_per_stack", 0},
	{"ple_embed_dim", 0}, {"ple_layer_ids", IS_EMPTY}, {"prefix_dense_intermediate_size", 0}, {"swa_head_dim", 0},
	{"swa_num_attention_heads", 0}, {"swa_num_key_value_heads", 0}, {"unpadded_vocab_size", 0}, {"ngram_size", 0},
	{"ngram_vocab_size_base", 0}, {"heads_per_ngram", 0}, {"make_ngram_vocab_size_divisible_by", 0},
	{"split_ngram_parts", 0}, {"conv1d_width", 0}, {"conv_kernel_size", 0}, {"ple_conv_kernel_size", 0},
	{"sconv_kernel_size", 0},
	/* attention */
	{"alibi", IS_FALSE}, {"attention_bias", IS_FALSE}, {"attention_chunk_size", 0}, {"attention_in_multiplier", IS_ONE},
	{"attention_k_eq_v", IS_FALSE}, {"attention_multiplier", 0}, {"attention_out_bias", IS_FALSE},
	{"attention_out_multiplier", IS_ONE}, {"attention_sinks", IS_FALSE}, {"attention_value_scale", IS_ONE},
	{"attn_logit_softcapping", 0}, {"attn_output_gate", IS_FALSE}, {"attn_scale", 0}, {"add_bias_linear", IS_FALSE},
	{"attn_temperature_tuning", IS_FALSE | IS_ZERO}, {"cache_implementation", FREE}, {"clip_qkv", 0},
	{"cross_attention_hidden_size", 0}, {"dual_chunk_attention_config", 0}, {"floor_scale", 0}, {"gating", IS_FALSE},
	{"head_gate", IS_FALSE}, {"index_block_size", 0}, {"index_head_dim", 0}, {"index_kpool", 0},
	{"index_kpool_always_select_tail", 0}, {"index_local_blocks", 0}, {"index_n_heads", 0}, {"index_topk", 0},
	{"index_topk_blocks", 0}, {"indexer_types", 0}, {"keep_window_size", 0}, {"key_multiplier", IS_ONE},
	{"kv_lora_rank", 0}, {"lambda_std_dev", 0}, {"layer_group_size", 0}, {"learnable_sink_init", 0},
	{"linear_lower_bound", 0}, {"logit_scale", IS_ONE}, {"max_window_layers", FREE}, {"multi_query", IS_FALSE},
	{"o_groups", 0}, {"o_lora_rank", 0}, {"output_gate_type", 0}, {"parallel_attn", IS_FALSE},
	{"pruned_heads", IS_EMPTY}, {"q_lora_rank", 0}, {"qk_head_dim", 0}, {"qk_layernorm", IS_FALSE},
	{"qk_norm", IS_FALSE}, {"qk_nope_head_dim", 0}, {"qk_rope_head_dim", 0}, {"qkv_bias", IS_FALSE},
	{"query_pre_attn_scalar", 0}, {"qk_norm_type", 0}, {"scale_attn_weights", IS_TRUE},
	{"scale_attn_by_inverse_layer_idx", IS_FALSE}, {"sliding_window", 0}, {"sliding_window_pattern", 0},
	{"sliding_windows", 0}, {"sparse_attention_config", 0}, {"sparsity_config", IS_EMPTY}, {"sliding_window_size", 0},
	{"sliding_window_attn_skip_freq", IS_EMPTY}, {"use_bidirectional_attention", IS_FALSE},
	{"use_head_wise_attn_gate", IS_FALSE}, {"use_qk_norm", IS_FALSE}, {"use_qkv_bias", IS_FALSE},
	{"use_sliding_window", IS_FALSE}, {"v_head_dim", 0}, {"use_shared_attention_adapter", IS_FALSE},
	{"adapter_rank", 0}, {"is_causal", IS_TRUE}, {"causal", IS_TRUE}, {"use_gated_attention", IS_FALSE},
	{"attn_window_size", 0},
	{"attention_window_size", 0}, {"cca_time0", 0}, {"cca_time1", 0}, {"d_rel", 0}, {"rel_extent", 0},
	{"indexer_budget", 0}, {"indexer_compress_ratio", 0}, {"indexer_head_dim", 0}, {"indexer_kv_heads", 0},
	{"indexer_n_heads", 0}, {"log_scaling_alpha", 0}, {"log_scaling_n_floor", 0},
	{"prefix_dense_sliding_window_pattern", 0}, {"prefix_lm", IS_FALSE},
	/* positions */
	{"compress_ratios", IS_EMPTY}, {"compress_rates", 0}, {"compress_rope_theta", 0}, {"no_rope_layer_interval", 0},
	{"no_rope_layers", IS_EMPTY}, {"partial_rotary_factors", IS_EMPTY}, {"rope_interleave", IS_FALSE},
	{"rope_interleaved", IS_FALSE}, {"rope_local_base_freq", 0}, {"rope_pct", IS_ONE}, {"rotary_base", 0},
	{"rotary_dim", 0}, {"rotary_pct", IS_ONE}, {"rotary_percent", IS_ONE}, {"rope_percentage", IS_ONE},
	{"swa_rope_theta", 0}, {"use_long_context", IS_FALSE}, {"use_mem_rope", IS_FALSE}, {"use_mrope", IS_FALSE},
	{"use_rope", IS_TRUE}, {"yarn_only_types", IS_EMPTY}, {"use_dynamic_ntk", IS_FALSE}, {"use_logn_attn", IS_FALSE},
	{"nope_layer_interval", 0}, {"rope_ratio", IS_ONE}, {"original_rope", IS_TRUE}, {"seq_length", FREE},
	{"global_rope_theta", 0}, {"local_rope_theta", 0},
	{"layer_rope_theta", 0},
	/* experts and their router */
	{"enable_moe_block", IS_FALSE}, {"enable_moe_fp32_combine", IS_FALSE}, {"is_moe", IS_FALSE}, {"moe_k", 0},
	{"input_jitter_noise", FREE}, {"moe_apply_router_weight_on_input", IS_FALSE}, {"moe_dynamic_exp_p", 0},
	{"moe_every_n_layers", 0}, {"moe_intermediate_size", 0}, {"moe_latent_size", 0}, {"moe_layer_end_index", 0},
	{"moe_layer_freq", IS_ONE | IS_EMPTY}, {"moe_layer_interval", IS_ONE}, {"moe_layer_start_index", 0},
	{"moe_layers", IS_EMPTY}, {"moe_layers_enum", 0}, {"moe_norm_min", 0}, {"moe_num_experts", IS_ZERO},
	{"moe_num_shared_experts", IS_ZERO}, {"moe_routed_scaling_factor", IS_ONE},
	{"moe_router_enable_expert_bias", IS_FALSE}, {"moe_router_logit_softcapping", IS_ZERO},
	{"moe_router_scaling_factor", IS_ONE}, {"moe_router_use_sigmoid", IS_FALSE},
	{"moe_shared_expert_intermediate_size", IS_ZERO}, {"moe_shared_expert_overlap", FREE}, {"moe_top_k", 0},
	{"moe_topk", 0}, {"moe_use_shared_expert", IS_FALSE}, {"n_group", IS_ZERO | IS_ONE}, {"n_routed_experts", IS_ZERO},
	{"n_shared_experts", IS_ZERO}, {"need_fp32_gate", IS_FALSE}, {"norm_topk_prob", IS_FALSE},
	{"norm_expert_weight", IS_FALSE}, {"norm_top_k_prob", IS_FALSE}, {"num_expert_group", IS_ZERO | IS_ONE},
	{"num_experts", IS_ZERO}, {"num_experts_per_tok", IS_ZERO}, {"num_experts_per_token", IS_ZERO},
	{"num_local_experts", IS_ZERO}, {"num_shared_experts", IS_ZERO}, {"num_shared_expert", IS_ZERO},
	{"route_norm", IS_FALSE}, {"route_scale", IS_ONE}, {"routed_scaling_factor", IS_ONE}, {"router_bias", IS_FALSE},
	{"router_scaling_factor", IS_ONE}, {"share_expert_dim", IS_ZERO}, {"share_expert_dims", 0},
	{"shared_expert_intermediate_size", IS_ZERO}, {"shared_intermediate_size", IS_ZERO}, {"top_k_experts", 0},
	{"topk_group", IS_ZERO | IS_ONE}, {"use_expert_bias", IS_FALSE}, {"use_moe", IS_FALSE},
	{"use_moe_router_bias", IS_FALSE}, {"use_routing_bias", IS_FALSE}, {"zero_expert_num", IS_ZERO},
	{"zero_expert_type", 0}, {"router_jitter_noise", FREE}, {"moe_router_bias_update_speed", FREE}, {"expert_dtype", 0},
	{"experts_bias", IS_FALSE},
	{"rms_norm_eps_moe_gate", 0}, {"router_hidden_size", 0}, {"shared_expert_combination_strategy", 0},
	{"shared_expert_sink", IS_FALSE},
	/* activations, norms, biases, factors */
	{"add_cross_attention", IS_FALSE}, {"bias", IS_FALSE}, {"conv_bias", IS_FALSE}, {"embedding_multiplier", IS_ONE},
	{"final_logit_softcapping", 0}, {"full_attn_alpha_factor", 0}, {"full_attn_beta_factor", 0}, {"hc_eps", 0},
	{"hc_magnitude", 0}, {"hc_mult", 0}, {"hc_sinkhorn_iters", 0}, {"layer_norm_eps", 0}, {"layer_norm_epsilon", 0},
	{"layernorm_epsilon", 0}, {"layernorm_mlp_beta", 0}, {"layernorm_full_attention_beta", 0},
	{"linear_attn_alpha_factor", 0}, {"linear_attn_beta_factor", 0}, {"lm_head_bias", IS_FALSE},
	{"lm_head_multiplier", IS_ONE}, {"logit_softcapping", 0}, {"logits_scaling", IS_ONE}, {"mlp_alpha_factor", 0},
	{"mlp_beta_factor", 0}, {"mlp_bias", IS_FALSE}, {"mlp_multipliers", IS_EMPTY}, {"mup_enabled", IS_FALSE},
	{"new_decoder_architecture", IS_FALSE}, {"norm_eps", 0}, {"norm_epsilon", 0}, {"normalization_type", 0},
	{"num_logits_to_keep", FREE}, {"logits_to_keep", IS_ZERO}, {"post_norm", IS_FALSE}, {"postnorm", IS_FALSE},
	{"residual_multiplier", IS_ONE}, {"scale_depth", 0}, {"scale_emb", IS_ONE}, {"dim_model_base", 0},
	{"shared_expert_bias", IS_FALSE}, {"swiglu_alpha", 0}, {"swiglu_limit", 0}, {"swiglu_limits", IS_EMPTY},
	{"swiglu_limits_shared", IS_EMPTY}, {"use_bias", IS_FALSE}, {"use_double_wide_mlp", IS_FALSE},
	{"use_parallel_residual", IS_FALSE}, {"residual_in_fp32", IS_FALSE}, {"swiglu_beta", 0}, {"activation_limit", 0},
	{"use_post_norm", IS_FALSE}, {"use_pre_norm", IS_TRUE}, {"embedding_scale", IS_ONE}, {"scale_embedding", IS_FALSE},
	{"tie_encoder_decoder", IS_FALSE}, {"is_decoder", IS_FALSE}, {"is_encoder_decoder", IS_FALSE},
	{"tie_word_embeddings_scale", 0}, {"layer_scale", 0}, {"ngram_vocab_size_ratio", 0}, {"emb_neighbor_num", 0},
	{"use_layer_scale", IS_FALSE}, {"xielu_config", 0},
	{"activation_sparsity_pattern", 0}, {"altup_active_idx", 0}, {"altup_coef_clip", 0}, {"altup_correct_scale", 0},
	{"altup_num_inputs", 0}, {"chain_hidden_post_norm", IS_FALSE}, {"gated_norm_rank", 0}, {"hc_count", 0},
	{"hc_lowrank", 0}, {"laurel_rank", 0}, {"logits_mup_width_multiplier", IS_ONE}, {"logits_soft_cap", 0},
	/* states */
	{"block_size", 0}, {"chunk_size", 0}, {"conv_kernel", 0}, {"mamba_chunk_size", 0}, {"mamba_conv_bias", IS_FALSE},
	{"mamba_d_conv", 0}, {"mamba_d_head", 0}, {"mamba_d_ssm", 0}, {"mamba_d_state", 0}, {"mamba_dt_rank", 0},
	{"mamba_expand", 0}, {"mamba_head_dim", 0}, {"mamba_hidden_act", 0}, {"mamba_n_groups", 0}, {"mamba_n_heads", 0},
	{"mamba_ngroups", 0}, {"mamba_norm_before_gate", 0}, {"mamba_num_heads", 0}, {"mamba_proj_bias", IS_FALSE},
	{"mamba_headdim", 0}, {"mamba_rms_norm", 0}, {"mamba_ssm_cache_dtype", 0}, {"mamba_ssm_dtype", 0}, {"n_groups", 0},
	{"n_mamba_heads", 0}, {"num_heads", 0}, {"projectors_bias", IS_FALSE}, {"ssm_in_multiplier", IS_ONE},
	{"ssm_multipliers", IS_EMPTY}, {"ssm_out_multiplier", IS_ONE}, {"ssm_state_size", 0}, {"state_size", 0},
	{"time_step_limit", 0}, {"time_step_rank", 0}, {"use_conv_bias", IS_FALSE}, {"linear_attention_config", 0},
	{"linear_allow_neg_eigval", IS_FALSE}, {"mixer_rms_eps", 0},
	/* weights in another form */
	{"compression_config", 0}, {"quantization", 0}, {"quantized_weights", IS_FALSE},
};

/* The same, of words. */
static const ForeignWord words[] = {
	{"position_embedding_type", "rope"}, {"moe_router_activation_func", "softmax"}, {"score_function", "softmax"},
	{"scoring_func", "softmax"}, {"score_func", "softmax"}, {"topk_method", "greedy"}, {"activation", "silu"},
	{"activation_function", "silu"}, {"hidden_activation", "silu"}, {"mlp_hidden_act", "silu"},
	{"norm_type", "rms_norm"}, {"expert_selection_fn", "softmax"},
	/* the file that transformers takes the weights from */
	{"transformers_weights", "model.safetensors or model.safetensors.index.json"},
};

/* No result depends on them: training, names and versions, how a library keeps its caches or calls its kernels. */
static const char *const no_result[] = {
	"_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_experts_implementation", "_name_or_path",
	"attention_dropout", "attn_implementation", "aux_loss_coef", "aux_loss_alpha", "chunk_size_feed_forward",
	"classifier_dropout", "dtype", "embd_pdrop", "embedding_dropout", "ep_size", "finetuning_task", "hidden_dropout",
	"id2label", "initializer_range", "initializer_factor", "is_llama_config", "label2id", "license",
	"max_batch_size", "model_max_length", "name_or_path", "num_labels", "output_attentions",
	"output_hidden_states", "output_router_logits", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
	"rescale_prenorm_residual", "resid_pdrop", "residual_dropout", "return_dict", "router_aux_loss_coef",
	"scale_attention_softmax_in_fp32", "sep_token_id", "seq_aux", "task_specific_params", "time_step_floor",
	"time_step_max", "time_step_min", "tokenizer_class", "torch_dtype", "torchscript", "transformers.js_config",
	"transformers_version", "unsloth_fixed", "unsloth_version", "use_associative_scan", "use_bfloat16", "use_cache",
	"use_mamba_kernels", "use_mambapy", "use_mem_eff_path", "use_return_dict", "vocab_file", "z_loss_coefficient",
	"router_z_loss_coef", "eod_token_id", "bad_words_ids", "decoder_start_token_id", "cls_token_id", "mask_token_id",
	"unk_token_id", "_flash_attn_2_enabled", "_sliding_window_pattern", "embedding_initializer_range",
	"linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min", "seed",
	"tf_legacy_loss", "time_step_init_scheme", "time_step_scale", "w_init_variance_scale",
};

/* Around a text_config: other modalities, which text is read without. */
static const char *const wrapper[] = {
	"vision_config", "audio_config", "image_token_id", "video_token_id", "audio_token_id", "image_token_index",
	"vision_start_token_id", "vision_end_token_id", "image_seq_length", "projector_hidden_act", "vision_feature_layer",
	"vision_feature_select_strategy", "language_model_only", "multimodal_projector_bias", "spatial_merge_size",
	"vision_soft_tokens_per_image", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "img_context_token_id",
};

static bool is_listed(const char *const *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

ForeignKind foreign_key(const char *name, int *pass, const char **word)
{
	*pass = FREE;
	*word = NULL;
	for (int i = 0; i < COUNT(arithmetic); i++)
		if (strcmp(arithmetic[i].name, name) == 0) {
			*pass = arithmetic[i].pass;
			return KEY_OTHER_ARITHMETIC;
		}
	for (int i = 0; i < COUNT(words); i++)
		if (strcmp(words[i].name, name) == 0) {
			*pass = 0;
			*word = words[i].neutral;
			return KEY_OTHER_ARITHMETIC;
		}
	if (is_listed(no_result, COUNT(no_result), name))
		return KEY_NO_RESULT;
	if (is_listed(wrapper, COUNT(wrapper), name))
		return KEY_WRAPPER;
	return generation_key(name, pass) ? KEY_GENERATION : KEY_UNKNOWN;
}

bool is_config_key(const Families *families, const char *name)
{
	int pass;
	const char *word;
	for (int i = 0; i < families->n; i++)
		if (find_config_key(&families->at[i], name))
			return true;
	return foreign_key(name, &pass, &word) != KEY_UNKNOWN;
}

const char *suggest_config_key(Arena *a, const Families *families, const char *seen)
{
	int n = COUNT(arithmetic), at = 0;
	for (int i = 0; i < families->n; i++)
		for (const ConfigKey *k = families->at[i].keys; k->name; k++)
			n++;
	const char **names = ARENA_ARRAY(a, const char *, n);
	for (int i = 0; i < families->n; i++)
		for (const ConfigKey *k = families->at[i].keys; k->name; k++)
			names[at++] = k->name;
	for (int i = 0; i < COUNT(arithmetic); i++)
		names[at++] = arithmetic[i].name;
	return closest_name(seen, names, n);
}
