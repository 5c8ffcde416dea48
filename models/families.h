/* families.h - one builder a family; the table that names them is compiler/families.c. */
#ifndef MODELS_FAMILIES_H
#define MODELS_FAMILIES_H

#include "compiler/ir.h"

void build_llama(Compile *c);
void build_mistral(Compile *c);
void build_qwen2(Compile *c);
void build_qwen3(Compile *c);
void build_qwen3_moe(Compile *c);
void build_qwen3_next(Compile *c);
void build_qwen3_5(Compile *c); /* with experts or without */

#endif
