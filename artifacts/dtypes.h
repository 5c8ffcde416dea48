/* dtypes.h - every element type, once.
 *
 * DTYPE(name, bits, safetensors, tolerance). kernels/templates/types.cuh defines C++ types of the same names.
 *   bits         size of one element in bits
 *   safetensors  the name in a safetensors header; "" when the type never comes from a file
 *   tolerance    largest error accepted of an op whose result has this type, relative to the
 *                largest magnitude of the tensor: a few units in the last place, since ops accumulate in f32
 */
DTYPE(bf16, 16, "BF16", 2e-2)
DTYPE(f16, 16, "F16", 4e-3)
DTYPE(f32, 32, "F32", 2e-3)
DTYPE(i32, 32, "I32", 0)
