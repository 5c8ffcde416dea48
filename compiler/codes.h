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
/* A05xx tokenizer files */
CODE(A0501, EXIT_BAD_INPUT, "tokenizer.json is not valid JSON.")
CODE(A0502, EXIT_BAD_INPUT, "A tokenizer component is of a kind this compiler does not implement.")
CODE(A0503, EXIT_BAD_INPUT, "The tokenizer contradicts itself or the model's vocabulary.")
/* A06xx checkpoint against model family, graph */
CODE(A0601, EXIT_BAD_INPUT, "The model family needs a tensor that the checkpoint lacks.")
CODE(A0602, EXIT_BAD_INPUT, "A tensor's shape contradicts config.json.")
CODE(A0603, EXIT_BAD_INPUT, "A tensor's dtype is not one this version computes with.")
CODE(A0604, EXIT_BAD_INPUT, "The checkpoint holds a tensor that no operation reads; nothing is dropped silently.")
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
CODE(A0702, EXIT_BAD_INPUT, "A pin or ban names a template that does not exist.")
/* A08xx memory */
CODE(A0801, EXIT_NO_MEMORY, "The plan needs more device memory than it may use.")
