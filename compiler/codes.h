/* codes.h - every diagnostic of the compiler: name, exit code, title, what it means, what to do.
 *
 * CODE(name, exit, title, meaning, advice); the exit code is EXIT_OK for what is only ever a remark. `atlasc explain`
 * and the manual print this table. A name is never reused or renumbered. Families:
 *   A01xx command line, files, environment    A02xx config.json, generation_config.json
 *   A03xx MODEL.toml                          A04xx safetensors and index
 *   A05xx tokenizer files                     A06xx checkpoint against model family, graph
 *   A07xx kernel selection                    A08xx memory
 *   A09xx kernel templates and NVRTC
 */
/* A01xx command line, files, environment */
CODE(A0101, EXIT_USAGE, "command line",
	"The command line is wrong; `--help` lists the options.",
	"Compare the command line with `atlasc --help`; the message names the option.")
CODE(A0102, EXIT_BAD_INPUT, "file cannot be read",
	"A file could not be opened or read.",
	"Check that the file exists and that you may read it.")
CODE(A0103, EXIT_ENVIRONMENT, "output cannot be written",
	"The output could not be written; no partial file is left.",
	"Give -o a name in a folder that you may write to and that has room.")
CODE(A0104, EXIT_BAD_INPUT, "not a file or folder",
	"The path is not a regular file or folder.",
	"Give the folder with config.json and the weights; links are followed, devices are not read.")
CODE(A0105, EXIT_ENVIRONMENT, "out of host memory",
	"The machine has too little host memory.",
	"Compile on a machine with more memory, or with fewer kernels at a time: -j 1.")
CODE(A0106, EXIT_BAD_INPUT, "file too large",
	"The file is larger than the limit for files of its kind.",
	"Check that the file is what its name says; the message has the limit.")
CODE(A0107, EXIT_BAD_INPUT, "not a signing key",
	"A file given with --sign is not an Ed25519 private key, or the same key was given twice.",
	"`openssl genpkey -algorithm ed25519 -out key.pem` makes one; the message says what the file contains.")
/* A02xx config.json, generation_config.json */
CODE(A0201, EXIT_BAD_INPUT, "not strict JSON",
	"The file is not strict JSON: no repeated names, UTF-8, one object, bounded depth.",
	"Save the file again with a JSON writer; the message has line and column.")
CODE(A0202, EXIT_BAD_INPUT, "missing key",
	"A key that decides the model's shape is missing.",
	"Add the key to config.json with the value that the model was trained with.")
CODE(A0203, EXIT_BAD_INPUT, "wrong value in config.json",
	"A value has the wrong type or is out of range; nothing is converted.",
	"Correct the value; the message says what is expected there.")
CODE(A0204, EXIT_BAD_INPUT, "unknown kind of model",
	"No model family supports this model, or it needs Python code from the checkpoint.",
	"See docs/models.md for the supported families; code in a checkpoint is never run.")
CODE(A0205, EXIT_BAD_INPUT, "contradiction in config.json",
	"Two values contradict each other.",
	"Find out which of the two values the weights were made with, and correct the other.")
CODE(A0206, EXIT_BAD_INPUT, "feature not implemented",
	"The key changes what the model computes in a way this compiler does not implement.",
	"Use a checkpoint without it; no option ignores it, because the answers would be wrong.")
CODE(A0207, EXIT_BAD_INPUT, "unknown keys",
	"Unknown keys of config.json; they are ignored.",
	"Check whether one of them changes what the model computes; if so, do not use the plan, and report the key.")
CODE(A0208, EXIT_BAD_INPUT, "quantization not read",
	"The checkpoint is quantized in a way that this version does not read.",
	"Use a checkpoint of a form that the message lists, or the unquantized one.")
CODE(A0209, EXIT_BAD_INPUT, "wrong rope parameters",
	"The rope parameters are incomplete, unknown or contradict each other.",
	"Copy the rope parameters from the model's publisher; the message names the one in doubt.")
CODE(A0210, EXIT_BAD_INPUT, "wrong special token",
	"The id of a special token is outside the vocabulary, or there are too few or too many of them.",
	"Correct the id in config.json or generation_config.json, or list the stop tokens in MODEL.toml.")
/* A0211 was for contexts beyond a window of attention, before there were windows. */
CODE(A0212, EXIT_OK, "states in bf16",
	"The checkpoint asks for states of Gated DeltaNet in bf16, which are rounded at each step.",
	"Nothing, if you want that; state.dtype in MODEL.toml overrides it with f32 or bf16.")
CODE(A0213, EXIT_BAD_INPUT, "keys that the family does not have",
	"Keys that another model family or program reads, but the model's own class in transformers does not.",
	"Nothing, if the model was made for transformers; -W error=A0213 refuses such files.")
CODE(A0214, EXIT_BAD_INPUT, "config.json contradicts the tensors",
	"One value of config.json contradicts the shapes or the number of the checkpoint's tensors.",
	"Correct the value, in the file or by [config] in MODEL.toml; the message gives the value that the tensors fit.")
CODE(A0215, EXIT_OK, "value of config.json replaced",
	"[config] in MODEL.toml replaces a value of config.json; the file itself is not changed.",
	"Nothing: the note names the value in use, and the plan records it.")
CODE(A0216, EXIT_BAD_INPUT, "wrong facts of a family",
	"A line of the file that --family names is not one that atlasc reads, or what its layers need is missing.",
	"Correct the line that the message names; docs/families.md describes every table and key.")
CODE(A0217, EXIT_OK, "one rope table for all lengths",
	"Longrope has two lists of factors, for texts up to the original context and for longer ones; a plan has one.",
	"Nothing, or another runtime.max_context: one at most as long as the original context takes the short list.")
CODE(A0218, EXIT_BAD_INPUT, "context beyond what the class does at first",
	"From some length on the class multiplies queries by a number that grows, which is not implemented.",
	"Set runtime.max_context, or --context, below the length that the message names.")
/* A03xx MODEL.toml */
CODE(A0301, EXIT_BAD_INPUT, "not in the supported subset of TOML",
	"The file is not in the supported subset of TOML 1.0: dates, multi-line strings, inf and nan are not supported.",
	"Use tables, arrays, single-line strings, integers, numbers and booleans only.")
CODE(A0302, EXIT_BAD_INPUT, "unknown key of MODEL.toml",
	"There is no such key; `--help-model` lists them.",
	"Correct the spelling; `atlasc --help-model` prints every key with its range.")
CODE(A0303, EXIT_BAD_INPUT, "wrong value in MODEL.toml",
	"A value has the wrong type or is out of range; nothing is converted.",
	"Write a value of the type and range that the message names.")
CODE(A0304, EXIT_BAD_INPUT, "contradiction of options",
	"Two options, or an option and the model, contradict each other.",
	"Change one of the two values; the message gives the place of both.")
CODE(A0305, EXIT_BAD_INPUT, "no such name",
	"The option names something that does not exist.",
	"Use a name that exists: `atlasc kernels` lists templates, `atlasc --list-ops` ops.")
CODE(A0306, EXIT_BAD_INPUT, "not a list of token ids",
	"The file of speculate.vocabulary_file is not a list of token ids: one per line, ascending, without repetition.",
	"Write ids of tokens that the model has, sorted by number; the message names the line.")
CODE(A0307, EXIT_BAD_INPUT, "[config] that fits no config.json",
	"A key of [config] is unknown to every model family, or is in a place where config.json does not have it.",
	"Spell the key as config.json does; if that has a text_config, write config.text_config.NAME.")
CODE(A0308, EXIT_OK, "value of MODEL.toml replaced",
	"An option such as --context replaces another value of the same key in MODEL.toml.",
	"Nothing, if you want the option's value; the plan records both. Otherwise leave the option out.")
CODE(A0309, EXIT_OK, "context shorter than the model allows",
	"Neither MODEL.toml nor the command line sets the context, so the family's default applies.",
	"Pass --context N, or set [runtime] max_context in MODEL.toml; `--estimate` prints what memory it takes.")
CODE(A0312, EXIT_BAD_INPUT, "value that the template does not have",
	"A rule of kernels.pin or kernels.ban gives a tunable a value that the template is not written for.",
	"Use one of the values in the message; `atlasc kernels` lists the tunables of every template.")
CODE(A0313, EXIT_REFUSED, "cannot be divided among the ranks",
	"Something that parallel.ranks divides cannot be divided evenly: heads, columns, experts, or blocks that share a "
	"scale.",
	"Use fewer ranks; for experts, the other value of parallel.experts.")
CODE(A0314, EXIT_OK, "head whole on each rank",
	"The vocabulary cannot be divided evenly among the ranks, so each rank has the whole head and computes all logits.",
	"Nothing: results are the same, and each rank reads as many bytes as one alone.")
/* A04xx safetensors and index */
CODE(A0401, EXIT_BAD_INPUT, "not a safetensors file",
	"The file is not a safetensors container: length prefix or header are wrong.",
	"Fetch the file again: most often the download ended early or is a pointer to a large file.")
CODE(A0402, EXIT_BAD_INPUT, "malformed safetensors entry",
	"An entry of the header is malformed.",
	"Save the weights again with the safetensors library.")
CODE(A0403, EXIT_BAD_INPUT, "unknown element type",
	"The safetensors format has no such element type.",
	"Save the tensor in a type of the safetensors format.")
CODE(A0404, EXIT_BAD_INPUT, "holes or overlap in the data",
	"The tensors do not cover the data exactly: no holes, no overlap, no bytes after the last tensor.",
	"Save the weights again with the safetensors library.")
CODE(A0405, EXIT_BAD_INPUT, "shape and size disagree",
	"Shape and element type do not give the number of bytes in the range.",
	"Save the weights again; the message has shape, type and bytes.")
CODE(A0406, EXIT_BAD_INPUT, "malformed index",
	"The index is malformed or names a file outside the folder.",
	"Fetch model.safetensors.index.json again.")
CODE(A0407, EXIT_BAD_INPUT, "index and files disagree",
	"The index and the weight files disagree.",
	"Fetch index and weight files of one revision; the message names the tensor or the file.")
CODE(A0408, EXIT_BAD_INPUT, "weight file not read",
	"A file in the checkpoint's folder that other loaders would apply or load is not read; sizes are taken from the "
	"headers.",
	"Remove the file, or an index of another revision; merge an adapter into the weights if you need it.")
CODE(A0409, EXIT_BAD_INPUT, "no weights",
	"The folder has no safetensors weights.",
	"Give a folder with *.safetensors; other formats have to be converted first.")
CODE(A0410, EXIT_OK, "stale copies",
	"The index assigns a tensor to one shard, but another shard also has a copy of it. The index decides.",
	"Nothing: the note counts the copies that are not read.")
CODE(A0411, EXIT_OK, "snapshot of a hub cache",
	"The folder belongs to a Hugging Face cache; the snapshot named by refs/main is read.",
	"To read another snapshot, name its folder.")
CODE(A0412, EXIT_BAD_INPUT, "hub cache without one model",
	"The folder belongs to a Hugging Face cache, but it does not identify one checkpoint, or the checkpoint is "
	"incomplete.",
	"Name the folder of one snapshot, models--ORG--NAME/snapshots/HASH, or fetch the model again.")
/* A05xx tokenizer files */
CODE(A0501, EXIT_BAD_INPUT, "tokenizer is not JSON",
	"A tokenizer file is not valid JSON.",
	"Fetch the tokenizer's file again.")
CODE(A0502, EXIT_BAD_INPUT, "unknown tokenizer component",
	"The tokenizer has a component that is not implemented.",
	"Use the model with token ids, or report the component by its name.")
CODE(A0503, EXIT_BAD_INPUT, "contradictory tokenizer",
	"The tokenizer contradicts itself or the model's vocabulary.",
	"Take tokenizer and config.json from one revision of the model.")
CODE(A0504, EXIT_BAD_INPUT, "wrong value in a tokenizer file",
	"A value in a tokenizer file is missing or of the wrong type.",
	"Save the tokenizer again with `transformers`; the message names the value.")
CODE(A0505, EXIT_BAD_INPUT, "no tokenizer.json",
	"The tokenizer is not in the form of tokenizer.json; transformers can save it so.",
	"Load the tokenizer with `transformers` and save it with save_pretrained.")
CODE(A0506, EXIT_OK, "plan without tokenizer",
	"The plan accepts token ids, but no text.",
	"Put tokenizer.json into the checkpoint's folder to use text; --tokens needs no tokenizer.")
CODE(A0507, EXIT_BAD_INPUT, "unknown tokenizer class",
	"tokenizer_class names a class that builds parts of the tokenizer itself, in a way that is not implemented.",
	"Load the tokenizer with `transformers`, save it, and set tokenizer_class to PreTrainedTokenizerFast.")
CODE(A0508, EXIT_BAD_INPUT, "tokenizer setting not implemented",
	"A key of another tokenizer file changes token ids or text in a way that is not implemented.",
	"Remove the key if the model does not need it, or run the model with token ids.")
CODE(A0509, EXIT_OK, "unknown tokenizer settings",
	"Unknown keys of tokenizer_config.json; they are ignored.",
	"Check whether one of them changes token ids or text: it has no effect here.")
CODE(A0510, EXIT_OK, "tokenizer files disagree",
	"The tokenizer's files disagree; the result is that of `AutoTokenizer` of transformers.",
	"Nothing, if you want what transformers does; tokenizer_class = PreTrainedTokenizerFast uses tokenizer.json alone.")
CODE(A0511, EXIT_OK, "token without a row",
	"An added token's id is beyond the last row of the embedding. It is never generated, and refused in a prompt.",
	"Nothing, if such a token only pads batches; else resize the embedding and save the model again.")
CODE(A0512, EXIT_BAD_INPUT, "id that is never generated",
	"An end token's id, or one that drafts are taken from, has no token, so it is never generated.",
	"Take tokenizer, config.json and generation_config.json from one revision; [sampling] stop adds end tokens.")
CODE(A0513, EXIT_OK, "other chat templates",
	"The checkpoint has several chat templates; the one named default is used.",
	"To use another one, put it into chat_template.jinja.")
CODE(A0520, EXIT_OK, "chat template with a mistake",
	"The chat template is not valid Jinja; jinja2 refuses it, too. The plan runs texts, but no chats.",
	"Correct the template at the place in the message; a file chat_template.jinja in the checkpoint replaces it.")
CODE(A0521, EXIT_OK, "construct of a chat template not implemented",
	"The chat template uses a part of Jinja that this version does not compile. The plan runs texts, but no chats.",
	"Write a template without it to chat_template.jinja in the checkpoint.")
CODE(A0522, EXIT_OK, "filter or test of a chat template not implemented",
	"The chat template uses a filter or a test that this version lacks. The plan runs texts, but no chats.",
	"Write a template without it to chat_template.jinja in the checkpoint.")
CODE(A0523, EXIT_OK, "method in a chat template not implemented",
	"The chat template calls a method that this version lacks. The plan runs texts, but no chats.",
	"Write a template without it to chat_template.jinja in the checkpoint.")
CODE(A0524, EXIT_OK, "chat template beyond a limit",
	"The chat template has more expressions, blocks or macros inside each other than is allowed.",
	"Write a flatter template to chat_template.jinja in the checkpoint.")
/* A06xx checkpoint against model family, graph */
CODE(A0601, EXIT_BAD_INPUT, "missing tensor",
	"The model family needs a tensor that the checkpoint lacks.",
	"Fetch the file with the tensor, or check that config.json belongs to this checkpoint.")
CODE(A0602, EXIT_BAD_INPUT, "wrong shape",
	"A tensor's shape contradicts config.json.",
	"Check that config.json belongs to this checkpoint; the message has both shapes.")
CODE(A0603, EXIT_BAD_INPUT, "unsupported dtype",
	"This version cannot compute with the tensor's dtype.",
	"Convert the tensor to BF16.")
CODE(A0604, EXIT_BAD_INPUT, "unused tensor",
	"The checkpoint contains a tensor that no operation uses; none is dropped silently.",
	"If the tensor is known to be unused, list it in weights.ignore of MODEL.toml; otherwise this model family is not "
	"fully supported.")
CODE(A0605, EXIT_BAD_INPUT, "tensor left out",
	"A tensor is not read because it is not needed: it copies another one, or weights.ignore lists it.",
	"Nothing, if that is what you want; otherwise remove the line from weights.ignore.")
CODE(A0606, EXIT_BAD_INPUT, "wrong scale or code",
	"A scale of quantized weights is zero, infinite, NaN or, except in INT4, negative, or a code is NaN.",
	"Quantize the model again; the message names tensor and index.")
CODE(A0607, EXIT_OK, "scales that are not used",
	"Scales of activations, or of keys and values, are not used: only weights are quantized.",
	"Nothing: the note says what the plan leaves out.")
CODE(A0608, EXIT_OK, "quantization lists contradict the tensors",
	"The lists of quantized modules disagree with the tensors; the tensors decide.",
	"Nothing: the note names the format in use.")
CODE(A0609, EXIT_BAD_INPUT, "empty list of modules",
	"The list of modules that are not quantized names no module at all.",
	"Write the modules' names into the quantization settings, or remove the list.")
CODE(A0610, EXIT_OK, "scales of keys and values not measured",
	"The KV cache is quantized, but its scales were not measured, are shared by keys and values, or were measured "
	"before keys were rotated.",
	"Run `atlasc calibrate` and name its file in kv.scales of MODEL.toml.")
CODE(A0611, EXIT_BAD_INPUT, "quantization lists that --random-weights cannot follow",
	"The files say that the weights are quantized, but their lists match none of the model's products.",
	"Take config.json and hf_quant_config.json from one revision of the model.")
CODE(A0612, EXIT_OK, "weights decoded to bf16",
	"A line of [quant] asks for bf16: the plan contains the values that the checkpoint's codes and scales represent.",
	"Nothing: the note counts the products.")
CODE(A0613, EXIT_OK, "biases of zeros left out",
	"The checkpoint has biases that the model family lacks; all of them are zero, so the result is the same.",
	"Nothing: a bias that is not zero would be an error.")
/* A07xx kernel selection */
CODE(A0701, EXIT_REFUSED, "no admissible kernel",
	"No kernel template implements this operation; nothing is substituted.",
	"Lift the ban or pin that the message is about; else it lists candidates with the condition that fails, and all of "
	"them with --verbose: add a template.")
CODE(A0702, EXIT_BAD_INPUT, "rule without effect",
	"A pin or ban matches no operation of the model.",
	"Correct op, phase or layers of the rule, or remove it.")
CODE(A0703, EXIT_BAD_INPUT, "not a file of measured times",
	"The file was not written by `atlas tune`, or is for another target.",
	"Make one with `atlas tune` for this target, or leave --tuning out.")
CODE(A0704, EXIT_OK, "outdated measured times",
	"Kernels of a template have changed since they were measured, so their times are not used.",
	"Run `atlas tune` again for this version; until then the cost model ranks those kernels. Where the machine code is "
	"the same, `atlas tune --rekey` keeps the times.")
CODE(A0705, EXIT_OK, "candidates beyond a limit",
	"Kernels that break a limit of the GPU are left out of the candidates.",
	"Nothing: the note counts what `atlas tune` cannot time.")
CODE(A0706, EXIT_REFUSED, "format that the tensor cores lack",
	"MODEL.toml asks for a format that the target's tensor cores cannot multiply.",
	"Leave the key out, or compile for a target that the message names.")
CODE(A0707, EXIT_BAD_INPUT, "no times for that card",
	"atlasc has no measured times for the card named by --card or target.card on any target of this compile, or two "
	"cards of one target are named.",
	"Name one of the cards in the message, measure the card with scripts/tune.sh, or give its times with --tuning.")
CODE(A0730, EXIT_OK, "verify adds in another order",
	"Attention or Gated DeltaNet of a verify step sums in another order than the decode kernel of the same layer, so "
	"results may differ in the last bits.",
	"Nothing, if text with drafts may differ from text without; otherwise remove the pin or ban that prevents the "
	"order.")
CODE(A0731, EXIT_REFUSED, "no common order of sums",
	"[numerics] invariant asks for one order of sums for an op in all buckets, and no order has an admissible kernel "
	"in each of them.",
	"The message lists the orders of each bucket. Remove the pin or ban that it names, leave out the bucket that "
	"differs, or leave numerics.invariant out.")
CODE(A0732, EXIT_REFUSED, "buckets lowered in different ways",
	"[numerics] invariant asks for equal results in all buckets, and a layer consists of other operations in one of "
	"them.",
	"Leave out the bucket that differs, or leave numerics.invariant out.")
CODE(A0733, EXIT_REFUSED, "no kernels for several ranks",
	"parallel.ranks asks for a plan of several GPUs, for which the target does not have all kernels: those that add "
	"what ranks have are for sm_90 and later.",
	"Use another target; --target none makes a plan for the reference device.")
/* A08xx memory, output */
CODE(A0801, EXIT_NO_MEMORY, "more memory than any card has",
	"The plan needs more device memory than any card has; lower slots, max_context or rows.",
	"Lower runtime.slots, runtime.max_context, kv.pool_tokens, cache.snapshots or the largest bucket.")
CODE(A0802, EXIT_BAD_INPUT, "weight cannot be read",
	"A weight could not be read, or the file changed while it was read.",
	"Do not change the checkpoint while it is compiled, and check the disk.")
CODE(A0803, EXIT_BAD_INPUT, "invalid weight",
	"A weight contains NaN or infinity, or only zeros.",
	"Fetch the weights again; the message names the tensor and the first such element.")
CODE(A0804, EXIT_NO_MEMORY, "over the memory budget",
	"The plan needs more device memory than --memory-budget allows; no weight was read.",
	"Lower runtime.slots, runtime.max_context, kv.pool_tokens or the largest bucket, or allow more.")
/* A09xx kernel templates and NVRTC */
CODE(A0901, EXIT_BAD_INPUT, "template is not CUDA C++",
	"A kernel template is not valid CUDA C++.",
	"Correct the template; the message is the front end's, with its line.")
CODE(A0902, EXIT_REFUSED, "incomplete contract",
	"A kernel template lacks a part of its contract.",
	"Add what the message names; `kernels/templates/shared/contract.cuh` describes every part.")
CODE(A0903, EXIT_REFUSED, "arguments do not match operands",
	"The arguments of a kernel template are not the operands of its operation.",
	"Name the arguments as the op's operands: `atlasc --list-ops` has them.")
CODE(A0904, EXIT_REFUSED, "formula is not an expression",
	"A formula, predicate or shape is not an expression over the contract's names.",
	"Use the contract's dims, attributes and tunables, integers, C operators, ceil_div, min, max, align.")
CODE(A0905, EXIT_REFUSED, "declared and unused",
	"A kernel template declares something its code never uses.",
	"Remove the declaration, or use it in the code.")
CODE(A0906, EXIT_REFUSED, "declared twice",
	"A kernel template declares something twice.",
	"Remove one of the two.")
CODE(A0910, EXIT_ENVIRONMENT, "NVRTC failed",
	"NVRTC does not work here, or could not compile a kernel.",
	"If the message names libnvrtc.so.13, install NVIDIA's cuda-nvrtc-13-0 or name its folder in LD_LIBRARY_PATH; a "
	"library that it needs belongs into the same folder; `make deps` fetches both. Otherwise "
	"read the log in the message; if the template is unchanged, report it, and ban the template meanwhile.")
CODE(A0911, EXIT_REFUSED, "kernel beyond a limit of the GPU",
	"A compiled kernel breaks a limit of the GPU; ban it or pin other tunables.",
	"Ban the template or pin other tunables in MODEL.toml.")
CODE(A0912, EXIT_ENVIRONMENT, "kernel does not match its contract",
	"A compiled kernel differs from its contract.",
	"Check that NVRTC has the version that the build found; then report it.")
CODE(A0913, EXIT_ENVIRONMENT, "kernel cache unusable",
	"The kernel cache could not be used; the compile went on without it.",
	"Give --cache-dir a folder that you may write to; the plan is the same without it.")
CODE(A0914, EXIT_OK, "kernel spills registers",
	"A kernel keeps values in local memory: correct, but slower than it should be.",
	"Pin other tunables where speed matters; the results are right.")
CODE(A0915, EXIT_ENVIRONMENT, "NVRTC failed on a kernel",
	"NVRTC crashed, was killed or took more than 15 minutes while compiling the named kernel. The other kernels were "
	"compiled.",
	"Usually memory ran out: compile with fewer processes (-j 1) or a higher limit. Otherwise try another version of "
	"NVRTC, or ban the template in MODEL.toml.")
CODE(A0916, EXIT_OK, "kernel cache not read",
	"A signed plan uses no cached kernel, because anyone who can write to the cache could replace one.",
	"Nothing. The compiled kernels are stored there for unsigned plans.")
