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
