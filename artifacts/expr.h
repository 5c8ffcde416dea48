/* expr.h - expressions of contracts: integers, names, + - * / %, comparisons, && || !, ?:, parentheses, ceil_div(a, b),
 * min(a, b), max(a, b), align(a, b). C precedence. Division by zero is an error.
 *
 * The reader of templates, the compiler that chooses by them and the checker of plans all use this one reading.
 */
#ifndef ATLAS_EXPR_H
#define ATLAS_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ExprName { const char *name; int64_t value; } ExprName;
typedef struct ExprEnv { const ExprName *names; int n; const struct ExprEnv *outer; } ExprEnv;
bool expr_eval(const char *text, const ExprEnv *env, int64_t *value, char *why, size_t why_bytes);
/* Calls seen(ctx, name, length) for each distinct occurrence of a name; false on a syntax error. */
bool expr_names(const char *text, void (*seen)(void *ctx, const char *name, int n), void *ctx,
	char *why, size_t why_bytes);
/* The next of a list of expressions, "ROWS, ceil_div(K, 128)", without the blanks around it, cut where it does not fit;
 * *list goes on after it. False at the end. */
bool expr_next(const char **list, char *item, size_t bytes);
bool env_find(const ExprEnv *env, const char *name, size_t n, int64_t *value);

#endif
