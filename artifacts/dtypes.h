/* dtypes.h - every element type, once.
 *
 * DTYPE(name, bits, safetensors, tolerance). kernels/templates/shared/types.cuh defines C++ types of the same names,
 * u4.cuh the last two; what a code of a narrow type is worth is in numbers.h.
 *   bits         size of one element in bits. Two of 4 bits share a byte, the first in its low half; the last dim of
 *                their tensors is even
 *   safetensors  the name in a safetensors header; "" when no header has it: e2m1 comes as U8, two elements each, u4 as
 *                I32, eight each, and f32z is made here
 *   tolerance    largest error accepted of an op whose result has this type, relative to the
 *                largest magnitude of the tensor: a few units in the last place, since ops accumulate in f32. 0:
 *                results have the very values, or never have this type
 */
DTYPE(bf16, 16, "BF16", 2e-2)
DTYPE(f16, 16, "F16", 4e-3)
DTYPE(f32, 32, "F32", 2e-3)
DTYPE(i32, 32, "I32", 0)
DTYPE(e4m3, 8, "F8_E4M3", 7e-2)
DTYPE(e2m1, 4, "", 3e-1)
DTYPE(e8m0, 8, "F8_E8M0", 5e-1)
DTYPE(u4, 4, "", 0)
DTYPE(f32z, 32, "", 0)
