/* schema.c - the structs of plan.h as tables of fields, in order of declaration.
 *
 * The sizes below are a reminder: a struct that gains a field fails here until its row is written.
 */
#include "artifacts/schema.h"
#include "artifacts/op_table.h"

#define INT(field) {#field, F_INT, offsetof(T, field), 0, 0, NULL}
#define INT64(field) {#field, F_INT64, offsetof(T, field), 0, 0, NULL}
#define FLOAT(field) {#field, F_FLOAT, offsetof(T, field), 0, 0, NULL}
#define DOUBLE(field) {#field, F_DOUBLE, offsetof(T, field), 0, 0, NULL}
#define STR(field) {#field, F_STR, offsetof(T, field), 0, 0, NULL}
#define STR_OPT(field) {#field, F_STR_OPT, offsetof(T, field), 0, 0, NULL}
#define SHA(field) {#field, F_SHA, offsetof(T, field), 0, 0, NULL}
#define ENUM(field, kind) {#field, F_ENUM, offsetof(T, field), 0, kind, NULL}
#define DIMS(field) {#field, F_DIMS, offsetof(T, field), offsetof(T, n_dims), 0, NULL}
#define INTS(field, n) {#field, F_INTS, offsetof(T, field), 0, n, NULL}
#define INT64S(field, n) {#field, F_INT64S, offsetof(T, field), 0, n, NULL}
#define INT_LIST(field) {#field, F_INT_LIST, offsetof(T, field), offsetof(T, n_##field), 0, NULL}
#define LIST(field, schema) {#field, F_LIST, offsetof(T, field), offsetof(T, n_##field), 0, &schema}
#define OPERANDS(field) {#field, F_OPERANDS, offsetof(T, field), 0, 0, NULL}
#define ATTRS(field) {#field, F_ATTRS, offsetof(T, field), 0, 0, NULL}
#define SCHEMA(T, fields) {#T, sizeof(T), (int)(sizeof fields / sizeof fields[0]), fields}

#define T Tensor
static const Field tensor_fields[] = {
	STR(name), ENUM(dtype, E_DTYPE), ENUM(role, E_ROLE), DIMS(shape), INT(weight), INT(n_weights)};
static const Schema tensor_schema = SCHEMA(Tensor, tensor_fields);
#undef T

#define T GraphOp
static const Field graph_op_fields[] = {
	ENUM(kind, E_OP), INT(layer), INT(phases), OPERANDS(operands), ATTRS(attrs)};
static const Schema graph_op_schema = SCHEMA(GraphOp, graph_op_fields);
#undef T

#define T Weight
static const Field weight_fields[] = {
	STR(name), ENUM(dtype, E_DTYPE), DIMS(shape), INT64(bytes), INT64(offset), STR_OPT(file),
	INT64(file_offset), ENUM(made, E_MADE), INT64(made_cols), SHA(hash)};
static const Schema weight_schema = SCHEMA(Weight, weight_fields);
#undef T

#define T Rung
static const Field rung_fields[] = {INT(slots), INT(rows)};
static const Schema rung_schema = SCHEMA(Rung, rung_fields);
#undef T

#define T Graph
static const Field graph_fields[] = {
	STR(family), INT(n_layers), INT(vocab), INT(hidden_dim), INT(slots), INT(max_context), INT(page),
	INT(pages), INT(max_pages), INT(verify_rows), LIST(ladder, rung_schema), INT(ngram_min), INT(ngram_max),
	INT(prompt_grid), INT(snapshots), LIST(tensors, tensor_schema),
	LIST(ops, graph_op_schema), LIST(weights, weight_schema), INT64(weight_arena_bytes),
	INT_LIST(stop_tokens), INT(bos_token),
	FLOAT(temperature), FLOAT(top_p), FLOAT(min_p), FLOAT(repetition_penalty), INT(top_k),
	INT(max_new_tokens)};
const Schema graph_schema = SCHEMA(Graph, graph_fields);
#undef T

#define T CutRun
static const Field cut_run_fields[] = {INT64(n), INT(parts)};
static const Schema cut_run_schema = SCHEMA(CutRun, cut_run_fields);
#undef T

#define T Cut
static const Field cut_fields[] = {INT(tensor), INT(axis), LIST(runs, cut_run_schema)};
static const Schema cut_schema = SCHEMA(Cut, cut_fields);
#undef T

#define T RankPhase
static const Field rank_phase_fields[] = {INT(phase), INT(n_collectives), INT64(row_bytes), SHA(digest)};
static const Schema rank_phase_schema = SCHEMA(RankPhase, rank_phase_fields);
#undef T

#define T RankPlace
static const Field rank_place_fields[] = {INT64(offset)};
static const Schema rank_place_schema = SCHEMA(RankPlace, rank_place_fields);
#undef T

#define T Ranks
static const Field ranks_fields[] = {INT(n), LIST(cuts, cut_schema), LIST(phases, rank_phase_schema),
	LIST(places, rank_place_schema), INT64(weight_bytes), INT64(peer_bytes)};
const Schema ranks_schema = SCHEMA(Ranks, ranks_fields);
#undef T

#define T Buf
static const Field buf_fields[] = {
	STR(name), ENUM(arena, E_ARENA), ENUM(dtype, E_DTYPE), DIMS(shape), INT64(bytes), INT64(offset),
	INT(first), INT(last), INT(tensor)};
static const Schema buf_schema = SCHEMA(Buf, buf_fields);
#undef T

#define T Kernel
static const Field kernel_fields[] = {
	STR(name), STR(defines), INT64(cubin_offset), INT64(cubin_bytes), STR(entry), INT(param_bytes),
	INTS(block, 3), INT(smem_bytes), INT(registers), INT(spill_bytes), INT(static_smem_bytes),
	SHA(source_sha256)};
static const Schema kernel_schema = SCHEMA(Kernel, kernel_fields);
#undef T

#define T Arg
static const Field arg_fields[] = {INT(field_offset), INT(buf), INT(operand), INT(early)};
static const Schema arg_schema = SCHEMA(Arg, arg_fields);
#undef T

#define T TensorMap
static const Field tensor_map_fields[] = {INT(field_offset), INT(buf), INTS(box, 2)};
static const Schema tensor_map_schema = SCHEMA(TensorMap, tensor_map_fields);
#undef T

#define T Launch
static const Field launch_fields[] = {
	INT(kernel), ENUM(op, E_OP), INT(layer), INTS(grid, 3), LIST(args, arg_schema),
	LIST(maps, tensor_map_schema), INT_LIST(deps), INT(overlaps),
	INT64(read_bytes), INT64(write_bytes), INT64(flops), INT(slot), INT(produces_layer)};
static const Schema launch_schema = SCHEMA(Launch, launch_fields);
#undef T

#define T Phase
static const Field phase_fields[] = {
	ENUM(kind, E_PHASE), INT(rows), INT(outs), INT(each), LIST(bufs, buf_schema), LIST(launches, launch_schema)};
static const Schema phase_schema = SCHEMA(Phase, phase_fields);
#undef T

#define T TargetPlan
static const Field target_plan_fields[] = {
	STR(target), INT(cc_major), INT(cc_minor), LIST(kernels, kernel_schema),
	LIST(phases, phase_schema), INT(smem_block_bytes), INT(n_sms), INT64S(arena_bytes, ARENA_STORED)};
const Schema target_plan_schema = SCHEMA(TargetPlan, target_plan_fields);
#undef T

#define T Candidate
static const Field candidate_fields[] = {
	STR(kernel), STR(tunables), ENUM(verdict, E_VERDICT), INT(predicate), STR(reason), DOUBLE(cost_us),
	STR(cost_from), STR(order)};
static const Schema candidate_schema = SCHEMA(Candidate, candidate_fields);
#undef T

#define T Slot
static const Field slot_fields[] = {
	ENUM(phase, E_PHASE), INT(rows), INT(outs), INT(each), INT(layer_first), INT(layer_last), ENUM(op, E_OP),
	STR(operands), STR(attrs), LIST(candidates, candidate_schema)};
const Schema slot_schema = SCHEMA(Slot, slot_fields);
#undef T

#define T ContractTerm
static const Field contract_term_fields[] = {STR(kind), STR(name), STR(text)};
static const Schema contract_term_schema = SCHEMA(ContractTerm, contract_term_fields);
#undef T

#define T Contract
static const Field contract_fields[] = {STR(name), ENUM(op, E_OP), LIST(terms, contract_term_schema)};
const Schema contract_schema = SCHEMA(Contract, contract_fields);
#undef T

#define T Origin
static const Field origin_fields[] = {STR(kind), STR(name), STR(version), STR(licence), STR(sha256), INT64(bytes),
	STR(detail)};
const Schema origin_schema = SCHEMA(Origin, origin_fields);
#undef T

#define T Section
static const Field section_fields[] = {STR(name), INT64(offset), INT64(bytes), SHA(hash)};
const Schema section_schema = SCHEMA(Section, section_fields);
#undef T

#define KIND_int F_INT
#define KIND_float F_FLOAT
const AttrField attr_fields[] = {
#define ATTR(NAME, field, type, meaning) {#NAME, #field, KIND_##type, offsetof(Attrs, field)},
#include "artifacts/attrs.h"
#undef ATTR
};
const int n_attr_fields = (int)(sizeof attr_fields / sizeof attr_fields[0]);

_Static_assert(sizeof(Tensor) == 72 && sizeof(GraphOp) == 84 + sizeof(Attrs) &&
	sizeof(Weight) == 136 && sizeof(Graph) == 176 && sizeof(Buf) == 96 && sizeof(Kernel) == 104 &&
	sizeof(Arg) == 16 && sizeof(TensorMap) == 16 && sizeof(Rung) == 8 && sizeof(Launch) == 104 && sizeof(Phase) == 48 &&
	sizeof(TargetPlan) == 112 && sizeof(Candidate) == 56 && sizeof(Slot) == 64 && sizeof(Section) == 56 &&
	sizeof(ContractTerm) == 24 && sizeof(Contract) == 32 && sizeof(Origin) == 56 &&
	sizeof(CutRun) == 16 && sizeof(Cut) == 24 && sizeof(RankPhase) == 48 && sizeof(RankPlace) == 8 &&
	sizeof(Ranks) == 72,
	"a struct of plan.h has changed: give its schema the same fields, then this line the new size");

int enum_count(EnumKind kind)
{
	static const int counts[E_KINDS] = {
		[E_DTYPE] = DT_COUNT, [E_OP] = OP_COUNT, [E_ROLE] = ROLE_COUNT, [E_ARENA] = ARENA_COUNT,
		[E_PHASE] = PHASE_KINDS, [E_VERDICT] = VERDICT_COUNT, [E_MADE] = MADE_COUNT};
	return counts[kind];
}

const char *enum_name(EnumKind kind, int value)
{
	switch (kind) {
	case E_DTYPE: return dtype_name((Dtype)value);
	case E_OP: return op_table[value].name;
	case E_ROLE: return role_name((Role)value);
	case E_ARENA: return arena_name((ArenaKind)value);
	case E_PHASE: return phase_name((PhaseKind)value);
	case E_MADE: return made_name((MadeAs)value);
	default: return verdict_name((Verdict)value);
	}
}
