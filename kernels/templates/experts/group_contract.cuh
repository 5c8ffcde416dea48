// group_contract.cuh - contract fragment: pairs of a row and an expert by expert (group.cuh).
ARCH(80)
NUMERICS(exact)
DIM(ROWS, 512)
DIM(FIRSTS, 257)
ATTR_INT(TOPK, 8)
REQUIRE(FIRSTS >= 2)
ORDER(exact)
GRID(FIRSTS - 1, 1, 1)
BLOCK(256)
READS(ROWS * TOPK * 4)
WRITES(ROWS * TOPK * 4 + FIRSTS * 4)
FLOPS(0)
struct Args {
	IN(i32, step, "4");
	IN(i32, expert, "ROWS, TOPK");
	OUT(i32, pair, "ROWS * TOPK");
	OUT(i32, first, "FIRSTS");
};
