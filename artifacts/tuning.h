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
 *   [[kernel]]                   one table for each template and choice of constants (tuning_constants);
 *   template = "gemv_norm"       then a line for each combination of tunables: microseconds (median, three
 *   constants = "BIAS=0 K=576"   significant digits); spread: what lies between quartiles or rounds, as a share; and
 *                                the key of the kernel that took so long (compiler/pick/time_key.c), hexadecimal
 *   "PER_WARP=1 WARPS=4" = [4.56, 0.012, "5f0c9e7d41b2a386"]
 *
 * The time of a kernel whose key is another one by now means nothing, until `atlas tune --rekey` finds its machine code
 * unchanged.
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

enum { TUNING_MAX_BYTES = 4 << 20, TUNING_KEY_BYTES = 8 /* the first of a kernel's key */ };

typedef struct TunedTime {
	const char *tmpl;      /* template's name */
	const char *constants; /* tuning_constants of Kernel.defines */
	const char *tunables;  /* "PER_WARP=1 WARPS=4", or "" */
	double us, spread;
	uint8_t key[TUNING_KEY_BYTES];
} TunedTime;

typedef struct Tuning {
	const char *target, *card, *driver;
	TunedTime *times; int n_times; /* by template, constants, tunables; each once */
	char *text;                    /* what the strings point into when read */
} Tuning;

typedef struct TuningFault { int line, col; char text[160]; } TuningFault; /* 1-based; what is wrong there */

/* Reads a copy of text[0..n). False with the first fault, and nothing to free. Memory that runs out is a fault at
 * line 0. */
bool tuning_read(const char *text, size_t n, Tuning *out, TuningFault *fault);
/* Frees the array and the text: those of tuning_read, or malloc memory of the caller's. */
void tuning_free(Tuning *t);

/* Puts the times in order. False, with the index of the second one, when a time is there twice. */
bool tuning_sort(Tuning *t, int *twice);

/* The same; of a time that is there several times one stays. */
void tuning_settle(Tuning *t);
/* The file, of a sorted Tuning. */
void tuning_print(const Tuning *t, FILE *out);

/* Names of constants that say how much room there is, ended by NULL; is a word "SLOTS=4" of one of them? */
extern const char *const tuning_room[];
bool tuning_is_room(const char *word);
/* A kernel's constants without its tunables, and without those that say how much room there is, not how much work
 * (SLOTS, PAGES ...): times taken with few slots hold with many. Newer attributes are left out where they are 0: times
 * from before them hold too. The result is at most as long as `defines`. */
void tuning_constants(const char *defines, const char *tunables, char *out);
/* In a sorted Tuning; NULL when there is none. */
const TunedTime *tuning_find(const Tuning *t, const char *tmpl, const char *constants, const char *tunables);

#endif
