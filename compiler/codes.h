/* codes.h - every diagnostic of the compiler: name, exit code, one sentence of advice.
 *
 * CODE(name, exit, meaning). A name is never reused or renumbered. Families:
 *   A01xx command line, files, environment    A02xx config.json, generation_config.json
 *   A03xx MODEL.toml                          A04xx safetensors and index
 *   A05xx tokenizer files                     A06xx checkpoint against model family, graph
 *   A07xx kernel selection                    A08xx memory
 *   A09xx kernel templates and NVRTC
 */
/* A01xx command line, files, environment */
CODE(A0101, EXIT_USAGE, "The command line is wrong; `--help` lists the options.")
CODE(A0102, EXIT_BAD_INPUT, "A file could not be opened or read.")
CODE(A0103, EXIT_ENVIRONMENT, "The output could not be written; nothing was left behind.")
CODE(A0104, EXIT_BAD_INPUT, "The path is not a regular file or folder.")
CODE(A0105, EXIT_ENVIRONMENT, "The machine has too little host memory.")
CODE(A0106, EXIT_BAD_INPUT, "The file is larger than a file of its kind may be.")
/* A02xx config.json, generation_config.json */
CODE(A0201, EXIT_BAD_INPUT, "The file is not strict JSON: no repeated names, UTF-8, one object, bounded depth.")
CODE(A0202, EXIT_BAD_INPUT, "A key that decides the model's shape is missing.")
CODE(A0203, EXIT_BAD_INPUT, "A value has the wrong type or is out of range; nothing is converted.")
CODE(A0204, EXIT_BAD_INPUT, "No family serves this model, or it wants code of its own to be run.")
CODE(A0205, EXIT_BAD_INPUT, "Two values contradict each other.")
CODE(A0206, EXIT_BAD_INPUT, "The key changes what the model computes in a way this compiler does not implement.")
CODE(A0207, EXIT_BAD_INPUT, "Keys that nobody here knows; none of them is used.")
CODE(A0208, EXIT_BAD_INPUT, "The checkpoint is quantized in a way that this version does not read.")
CODE(A0209, EXIT_BAD_INPUT, "The rope parameters are incomplete, unknown or contradict each other.")
CODE(A0210, EXIT_BAD_INPUT, "A special token is not a row of the vocabulary, or there are none or too many.")
CODE(A0211, EXIT_BAD_INPUT, "Attention windows are not implemented: the context must not be longer than the window.")
/* A03xx MODEL.toml */
CODE(A0301, EXIT_BAD_INPUT, "Not the subset of TOML 1.0 that is read: no dates, no multi-line strings, no inf or nan.")
CODE(A0302, EXIT_BAD_INPUT, "There is no such key; `--help-model` lists them.")
CODE(A0303, EXIT_BAD_INPUT, "A value has the wrong type or is out of range; nothing is converted.")
CODE(A0304, EXIT_BAD_INPUT, "Two options, or an option and the model, contradict each other.")
CODE(A0305, EXIT_BAD_INPUT, "The option names something that does not exist.")
/* A04xx safetensors and index */
CODE(A0401, EXIT_BAD_INPUT, "The file is not a safetensors container: length prefix or header are wrong.")
CODE(A0402, EXIT_BAD_INPUT, "An entry of the header is malformed.")
CODE(A0403, EXIT_BAD_INPUT, "The safetensors format has no such element type.")
CODE(A0404, EXIT_BAD_INPUT, "The tensors do not cover the data exactly: no holes, no overlap, nothing behind the last.")
CODE(A0405, EXIT_BAD_INPUT, "Shape and element type do not give the number of bytes in the range.")
CODE(A0406, EXIT_BAD_INPUT, "The index is malformed or names a file outside the folder.")
CODE(A0407, EXIT_BAD_INPUT, "The index and the weight files disagree.")
CODE(A0408, EXIT_BAD_INPUT, "A weight file that the index does not name is not read; sizes are taken from the headers.")
CODE(A0409, EXIT_BAD_INPUT, "The folder has no safetensors weights.")
/* A05xx tokenizer files */
CODE(A0501, EXIT_BAD_INPUT, "A tokenizer file is not valid JSON.")
CODE(A0502, EXIT_BAD_INPUT, "A tokenizer component is of a kind this compiler does not implement.")
CODE(A0503, EXIT_BAD_INPUT, "The tokenizer contradicts itself or the model's vocabulary.")
CODE(A0504, EXIT_BAD_INPUT, "A value in a tokenizer file is missing or of the wrong type.")
CODE(A0505, EXIT_BAD_INPUT, "The tokenizer is not in the form of tokenizer.json; transformers can save it so.")
CODE(A0506, EXIT_OK, "The plan can run token ids, but no text.")
/* A06xx checkpoint against model family, graph */
CODE(A0601, EXIT_BAD_INPUT, "The model family needs a tensor that the checkpoint lacks.")
CODE(A0602, EXIT_BAD_INPUT, "A tensor's shape contradicts config.json.")
CODE(A0603, EXIT_BAD_INPUT, "A tensor's dtype is not one this version computes with.")
CODE(A0604, EXIT_BAD_INPUT, "The checkpoint holds a tensor that no operation reads; nothing is dropped silently.")
CODE(A0605, EXIT_BAD_INPUT, "A tensor that nothing needs is not read: a copy of another, or one of weights.ignore.")
CODE(A0606, EXIT_BAD_INPUT, "A scale of quantized weights is zero, negative, infinite or NaN.")
CODE(A0607, EXIT_OK, "Scales of activations, or of keys and values, are not used: only weights are quantized.")
CODE(A0608, EXIT_OK, "What tensors hold and what the lists of quantized modules say differs: the tensors decide.")
CODE(A0609, EXIT_BAD_INPUT, "The list of modules that are not quantized names no module at all.")
/* A09xx kernel templates and NVRTC */
CODE(A0901, EXIT_BAD_INPUT, "A kernel template is not valid CUDA C++.")
CODE(A0902, EXIT_REFUSED, "A kernel template lacks a part of its contract.")
CODE(A0903, EXIT_REFUSED, "The arguments of a kernel template are not the operands of its operation.")
CODE(A0904, EXIT_REFUSED, "A formula, predicate or shape is not an expression over the contract's names.")
CODE(A0905, EXIT_REFUSED, "A kernel template declares something its code never uses.")
CODE(A0906, EXIT_REFUSED, "A kernel template declares something twice.")
CODE(A0910, EXIT_ENVIRONMENT, "NVRTC could not compile a kernel.")
CODE(A0911, EXIT_REFUSED, "A compiled kernel breaks a limit of the GPU; ban it or pin other tunables.")
CODE(A0912, EXIT_ENVIRONMENT, "A compiled kernel is not what its contract says.")
CODE(A0913, EXIT_ENVIRONMENT, "The kernel cache could not be used; the compile went on without it.")
CODE(A0914, EXIT_OK, "A kernel keeps values in local memory: correct, but slower than it should be.")
/* A07xx kernel selection */
CODE(A0701, EXIT_REFUSED, "No kernel template serves this operation; nothing is substituted.")
CODE(A0702, EXIT_BAD_INPUT, "A pin or ban is about no operation of the model.")
CODE(A0703, EXIT_BAD_INPUT, "Not a file of times as `atlas tune` writes it, or one of another target.")
CODE(A0704, EXIT_OK, "Times of a kernel template that has changed since are not used; `atlas tune` takes new ones.")
CODE(A0705, EXIT_OK, "Kernels that break a limit of the GPU are no candidates.")
/* A08xx memory, output */
CODE(A0801, EXIT_NO_MEMORY, "The plan needs more device memory than any card has; lower slots, max_context or rows.")
CODE(A0802, EXIT_BAD_INPUT, "A weight could not be read, or the file changed while it was read.")
CODE(A0803, EXIT_BAD_INPUT, "A weight holds NaN or infinity, or nothing but zeros.")
