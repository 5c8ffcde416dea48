/* cost.c - how long a kernel should take, for one that was never measured.
 *
 * A roofline of the target's typical card: bytes over bandwidth, flops over the rate of the instruction that does them,
 * a launch, and how much of the card the grid can keep busy. It only ranks candidates of one op against each other.
 */
#include "compiler/ir.h"

#include <string.h>

/* Bandwidth needs enough threads in flight on every multiprocessor, or one that asks the copy engine, so a grid that
 * fills only part of the card gets only that part of the rate, or, by the engine, half as much again (H200, 128 rows,
 * K=14336, N=4096: 64, 32, 22, 16 blocks take 38, 66, 98, 130 us; 35, 70, 102, 141 by this). Tensor cores need no more
 * than one block of each, but wait for the multiprocessor that has the most pieces of work, and so do bytes. */
double model_cost(const Target *t, const Pick *k)
{
	double blocks = (double)k->grid[0] * k->grid[1] * k->grid[2];
	double per_sm = (double)t->threads_sm / k->block[0];
	if (k->smem_bytes && per_sm > (double)t->smem_block_bytes / k->smem_bytes)
		per_sm = (double)(t->smem_block_bytes / k->smem_bytes);
	per_sm = per_sm < 1 ? 1 : (double)(int)per_sm;
	double at_once = per_sm * t->n_sms, waves = (double)(int64_t)((blocks + at_once - 1) / at_once);
	double busy = blocks / (waves * at_once);
	if (waves == 1) { /* half the threads of an SM already draw its full rate */
		double spread = blocks < t->n_sms ? blocks / t->n_sms : 1;
		double deep = 2 * blocks * k->block[0] / ((double)t->n_sms * t->threads_sm);
		bool has_engine = kernel_table[k->template_index].n_maps > 0;
		busy = has_engine ? spread * 1.5 : spread < deep ? spread : deep;
		busy = busy > 1 ? 1 : busy;
	}
	double bytes_us = (double)(k->read_bytes + k->write_bytes) / (t->read_gbps * 1e3);
	const char *matrix = kernel_table[k->template_index].matrix;
	double tflops = strcmp(matrix, "mma") == 0 ? t->mma_tflops
		: strcmp(matrix, "wgmma_fp8") == 0 ? 2 * t->best_tflops : t->best_tflops; /* half the bytes, twice the rate */
	double flops_us = (double)k->flops / (tflops * 1e6);
	double pieces = k->pieces ? (double)k->pieces : blocks, workers = blocks < t->n_sms ? blocks : t->n_sms;
	double deepest = (double)(int64_t)((pieces + workers - 1) / workers);
	bytes_us *= (k->pieces ? deepest * workers / pieces : 1) / busy;
	flops_us *= deepest * t->n_sms / pieces * 100 / (double)k->rate;
	return t->launch_us + (bytes_us > flops_us ? bytes_us : flops_us);
}

/* What ranks wait for each other and move, as measured on H100s by NVLink without multicast: one shot from 5.0 us of 2
 * ranks on, at 300 GB/s a rank (vllm#8558, #24111); two shots, by that, for half as long again; 0 is NCCL's ring, from
 * 22 us on, at its rate of 1 GiB (vllm#8558, its performance guide). Each of 65 small sums of a step took two H200s
 * 3.7 us beyond the launch. */
double collective_cost(int ranks, int64_t part_bytes, int shots)
{
	const double first = ranks <= 2 ? 5.0 : ranks <= 4 ? 5.4 : 5.8, ring = ranks <= 2 ? 329 : ranks <= 4 ? 355 : 361;
	const double pieces = 2.0 * (ranks - 1) / ranks * (double)part_bytes; /* sent by a rank: of all parts, of the sum */
	return shots == 0 ? 22 + pieces / (ring * 1e3) : shots == 1 ? first + (ranks - 1) * (double)part_bytes / 300e3
		: 1.5 * first + pieces / 300e3;
}
