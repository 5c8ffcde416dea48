// what      for each slot s with acquire[s] = 1: slot_len, slot_token, slot_version and counts[s,:] = 0;
//           sampling, limits and page_table rows of s = the new ones; rules of s = new_rules
// numerics  copies and zeros
// measured  not separately: it runs once a request
// why       acquire where a head drafts: a slot's states begin as version 0
#include "shared/contract.cuh"
#include "shared/types.cuh"

KERNEL(acquire_versions, acquire)
ARCH(80)
NUMERICS(exact)
DIM(SLOTS, 8)
DIM(V, 49152)
DIM(MAX_PAGES, 128)
ORDER(exact)
GRID(SLOTS, ceil_div(V, 4096), 1)
BLOCK(256)
SMEM(0)
READS(SLOTS * (4 + 64 + MAX_PAGES * 4 + 6144))
WRITES(SLOTS * (V * 4 + 12 + 64 + MAX_PAGES * 4 + 6144))
FLOPS(0)
struct Args {
	IN(i32, acquire, "SLOTS");
	IN(f32, new_sampling, "SLOTS, 8");
	IN(i32, new_limits, "SLOTS, 8");
	IN(i32, new_pages, "SLOTS, MAX_PAGES");
	IN(i32, new_rules, "1536");
	INOUT(i32, slot_len, "SLOTS");
	INOUT(i32, slot_token, "SLOTS");
	INOUT(i32, counts, "SLOTS, V");
	INOUT(f32, sampling, "SLOTS, 8");
	INOUT(i32, limits, "SLOTS, 8");
	INOUT(i32, rules, "SLOTS, 1536");
	INOUT(i32, page_table, "SLOTS, MAX_PAGES");
	INOUT(i32, slot_version, "SLOTS");
};

extern "C" __global__ void __launch_bounds__(256) acquire_versions(const Args a)
{
	const int s = blockIdx.x, tid = threadIdx.x;
	if (a.acquire[s] != 1)
		return;
	const int v0 = blockIdx.y * 4096, v1 = min(v0 + 4096, V);
	for (int v = v0 + tid; v < v1; v += 256)
		a.counts[i64(s) * V + v] = 0;
	if (blockIdx.y)
		return;
	if (tid == 0) {
		a.slot_len[s] = 0;
		a.slot_token[s] = 0;
		a.slot_version[s] = 0;
	}
	if (tid < 8) {
		a.sampling[s * 8 + tid] = a.new_sampling[s * 8 + tid];
		a.limits[s * 8 + tid] = a.new_limits[s * 8 + tid];
	}
	for (int i = tid; i < 1536; i += 256)
		a.rules[i64(s) * 1536 + i] = a.new_rules[i];
	for (int i = tid; i < MAX_PAGES; i += 256)
		a.page_table[i64(s) * MAX_PAGES + i] = a.new_pages[i64(s) * MAX_PAGES + i];
}
