// wgmma.cuh - Gated DeltaNet by chunks of rows: products of 64 columns of v, transposed, in the registers of a
// warpgroup (sm_90a only). Each of its warps has 16 of them, as columns.cuh has it.
#pragma once
#include "delta/columns.cuh"

#define SUM_4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define SUM_16(j) SUM_4(j), SUM_4(j + 1), SUM_4(j + 2), SUM_4(j + 3)
#define SUM_32(j) SUM_16(j), SUM_16(j + 4)
#define SUMS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_64 SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
	"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LEFT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

// c = a b, 16 columns of b, whose 64 rows are the products' columns; ADD_ = 1: plus c
template <int ADD_> __device__ __forceinline__ void wgmma_rows(Rows &c, const u32 (&a)[4], u64 b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SUMS_32 "}, {%32, %33, %34, %35}, %36, %37, "
		"1, 1, 0;" : SUM_32(0) : LEFT, "n"(ADD_));
}

// c += a b, 16 rows of b, whose columns are the products'
__device__ __forceinline__ void wgmma_state(float (&c)[8][4], const u32 (&a)[4], u64 b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SUMS_32 "}, {%32, %33, %34, %35}, %36, 1, 1, "
		"1, 1;" : SUM_32(0) : LEFT);
}

__device__ __forceinline__ void wgmma_state(float (&c)[16][4], const u32 (&a)[4], u64 b)
{
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SUMS_64 "}, {%64, %65, %66, %67}, %68, 1, "
		"1, 1, 1;" : SUM_32(0), SUM_32(8) : LEFT);
}
