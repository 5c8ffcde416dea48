"""Two plans in one process, their steps alternating by chance, one closed before the other: each answers as alone.

build/tests/start_run on the reference device; tests/gpu/run.sh starts does the same, and many starts, on a GPU.
"""

import subprocess


def test_two_plans_in_one_process(build_dir, small_plan_of):
    plans = [
        small_plan_of("llama-trained", "--target", "none", max_context=128),
        small_plan_of("qwen3_5_moe-trained", "--target", "none", max_context=128, slots=4, decode="[4]", rows=3),
    ]

    def run(of, seed):
        done = subprocess.run(
            [build_dir / "tests" / "start_run", ",".join(map(str, of)), "cpu", str(seed)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    alone = [run([plan], 0) for plan in plans]
    assert alone[0].count("\n") == alone[1].count("\n") == 8 and alone[0] != alone[1]
    assert all(len(line.split()) > 1 for text in alone for line in text.splitlines())
    for seed in (1, 2):
        assert run(plans, seed) == alone[0] + alone[1]
    assert run(plans[::-1], 3) == alone[1] + alone[0]
