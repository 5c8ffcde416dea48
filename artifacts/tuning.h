/* tuning.h - kernels/tuning/TARGET.CARD.toml: how long kernels took on one card. `atlas tune` writes it, atlasc chooses
 * by it.
 *
 * The file is TOML of a small, line-oriented form, so that both sides read it with one short reader:
 *
 *   [card]                       once, first: where the times were taken
 *   target = "sm_90a"
 *   name = "NVIDIA H100 80GB HBM3"
 *   driver = "580.159.03, CUDA 13.0"
 *
 *   [templates]                  once: SHA-256 of each template's code with all that it includes, comments left
 *   gemv_norm = "5f0c..."        out. The times of a template whose code is another one by now mean nothing
 *
 *   [[kernel]]                   one table for each template and choice of constants (tuning_constants);
 *   template = "gemv_norm"       then a line for each combination of tunables: microseconds (median, three
 *   constants = "BIAS=0 K=576"   significant digits), and spread: what lies between quartiles or rounds, as a share
 *   "PER_WARP=1 WARPS=4" = [4.56, 0.012]
 *
 * Lines may be empty or comments. What is written is sorted, so that equal times make equal bytes, and a file that
 * was read and written again is the same file.
 */
#ifndef ATLAS_TUNING_H
#define ATLAS_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TUNING_MAX_BYTES = 4 << 20 };

typedef struct TunedTemplate { const char *name; uint8_t sha256[32]; } TunedTemplate;

typedef struct TunedTime {
	const char *tmpl;      /* template's name */
	const char *constants; /* tuning_constants of Kernel.defines */
	const char *tunables;  /* "PER_WARP=1 WARPS=4", or "" */
	double us, spread;
} TunedTime;

typedef struct Tuning {
	const char *target, *card, *driver;
	TunedTemplate *templates; int n_templates; /* by name */
	TunedTime *times; int n_times;             /* by template, constants, tunables; each once */
	char *text;                                /* what the strings point into when read */
} Tuning;

typedef struct TuningFault { int line, col; char text[160]; } TuningFault; /* 1-based; what is wrong there */

/* Reads a copy of text[0..n). False with the first fault, and nothing to free. Memory that runs out is a fault at
 * line 0. */
bool tuning_read(const char *text, size_t n, Tuning *out, TuningFault *fault);
/* Frees the arrays and the text: those of tuning_read, or malloc memory of the caller's. */
void tuning_free(Tuning *t);

/* Puts templates and times in order. False, with the index of the second one, when a time is there twice. */
bool tuning_sort(Tuning *t, int *twice);
/* The file, of a sorted Tuning. */
void tuning_print(const Tuning *t, FILE *out);

/* A kernel's constants without its tunables, and without those that say how much room there is, not how much work
 * (SLOTS, PAGES ...): times taken with few slots hold with many. The result is at most as long as `defines`. */
void tuning_constants(const char *defines, const char *tunables, char *out);
/* In a sorted Tuning; NULL when there is none. */
const TunedTime *tuning_find(const Tuning *t, const char *tmpl, const char *constants, const char *tunables);
const TunedTemplate *tuning_template(const Tuning *t, const char *name);

/* Rounded to three significant digits, as it is written. */
double tuning_round(double us);

#endif
