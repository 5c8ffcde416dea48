"""A build of a copy of the tree, in another folder, without a CUDA toolkit: NVRTC comes from PyPI wheels.

What it shows: `make CUDA_HOME=none deps` and `make CUDA_HOME=none` work, without a warning; the binaries
have the same bytes as those of the build under test; a second `make` does nothing; what is installed works
where it was installed. Skipped, with its reason, where PyPI is out of reach.

Whether NVRTC is found is asked where this machine cannot help: `bare` runs commands in a mount namespace in which the
loader has no cache and toolkits are hidden. Skipped, with its reason, where no such namespace can be made.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from clean_clone import make

BARE = """
mount --bind /dev/null /etc/ld.so.cache || exit 99
for toolkit in /usr/local/cuda*; do
    [ -L "$toolkit" ] || [ ! -d "$toolkit" ] || mount -t tmpfs none "$toolkit" || exit 99
done
exec "$@"
"""


@pytest.fixture(scope="session")
def bare():
    """bare(*words) runs a command as on a machine on which nobody installed CUDA; returns it, finished."""
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}

    def run(*words, cwd=None):
        return subprocess.run(
            [
                "unshare",
                *([] if os.geteuid() == 0 else ["--map-root-user"]),
                "--mount",
                "sh",
                "-c",
                BARE,
                "sh",
                *map(str, words),
            ],
            cwd=cwd,
            env=env,
            text=True,
            capture_output=True,
            check=False,
            timeout=120,
        )

    got = run("true") if shutil.which("unshare") else None
    if got is None or got.returncode != 0:
        pytest.skip("no mount namespace to hide toolkits in: " + (got.stderr.strip() if got else "no unshare"))
    return run


def compiles(bare, atlasc: pathlib.Path, plan: pathlib.Path, cache: pathlib.Path) -> subprocess.CompletedProcess:
    """A compile whose kernels are in `cache` already; NVRTC is started all the same, for its version."""
    checkpoint = pathlib.Path(__file__).resolve().parents[1] / "fixtures/llama-trained"
    return bare(atlasc, checkpoint, "-o", plan, "-q", "--cache-dir", cache, cwd=plan.parent)


@pytest.mark.parametrize("name", ["atlas", "libatlas.so", "libatlas.a", "gen/kernel_table.c"])
def test_same_bytes_in_another_folder(clone, build_dir, name):
    assert (clone / "build" / name).read_bytes() == (build_dir / name).read_bytes()


def test_compiler_finds_nvrtc_beside_itself(clone, bare, tmp_path, kernel_cache):
    atlasc = clone / "build/atlasc"
    dynamic = subprocess.run(["readelf", "-d", atlasc], text=True, capture_output=True, check=True).stdout
    assert "[$ORIGIN/../lib/atlasc:$ORIGIN/deps/cuda/nvidia/cu13/lib]" in dynamic
    assert str(clone) not in dynamic
    plan = tmp_path / "plan.bin"
    got = bare(atlasc, "tests/fixtures/llama-trained", "-o", plan, cwd=clone)  # each kernel is compiled
    assert got.returncode == 0, got.stderr
    assert plan.stat().st_size > 0
    moved = clone.with_name("moved")
    clone.rename(moved)
    try:
        got = compiles(bare, moved / "build/atlasc", tmp_path / "again.bin", kernel_cache)
    finally:
        moved.rename(clone)
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "again.bin").read_bytes() == plan.read_bytes()


@pytest.mark.parametrize(
    "folder, origin", [("build", "deps"), ("build-asan", "../build/deps"), ("out/x", "../../build/deps")]
)
def test_any_build_folder_finds_the_wheels(clone, folder, origin):
    got = make(clone, "-s", f"BUILD={folder}", "LINK=1", "flags")
    assert got.returncode == 0, got.stderr
    assert f"-Wl,-rpath,$ORIGIN/../lib/atlasc:$ORIGIN/{origin}/cuda/nvidia/cu13/lib " in got.stdout


def test_a_missing_part_of_nvrtc_is_named(clone, bare, tmp_path, kernel_cache):
    """A0910 says what was looked for, and where; a broken library is not passed over for another."""
    folder = clone / "build/deps/cuda/nvidia/cu13/lib"
    (part,) = folder.glob("libnvrtc-builtins.so.*")
    away = part.with_name("away")
    part.rename(away)
    try:
        got = compiles(bare, clone / "build/atlasc", tmp_path / "plan.bin", kernel_cache)
        assert (got.returncode, got.stderr) == (
            5,
            (
                f"atlasc: error[A0910]: NVRTC does not work: {part.name} is neither in the folder of "
                f"{folder}/libnvrtc.so.13 "
                "nor where the loader looks\n"
            ),
        )
        part.write_text("no library")
        got = compiles(bare, clone / "build/atlasc", tmp_path / "plan.bin", kernel_cache)
        assert (got.returncode, got.stderr) == (
            5,
            (f"atlasc: error[A0910]: NVRTC does not work: {part.name} cannot be loaded: {part}: file too short\n"),
        )
    finally:
        away.replace(part)


def test_parts_of_several_copies_of_nvrtc_stay_together(clone, bare, tmp_path, kernel_cache):
    """Of several copies that the loader knows, each libnvrtc goes with the part that lies beside it."""
    folder = clone / "build/deps/cuda/nvidia/cu13/lib"
    (part,) = folder.glob("libnvrtc-builtins.so.*")
    other = tmp_path / "other"
    other.mkdir()
    (other / part.name).write_text("of another version")
    got = bare(
        "env",
        f"LD_LIBRARY_PATH={other}",
        clone / "build/atlasc",
        "tests/fixtures/llama-trained",
        "-q",
        "-o",
        tmp_path / "plan.bin",
        "--cache-dir",
        kernel_cache,
        cwd=clone,
    )
    assert got.returncode == 0, got.stderr
    (other / part.name).unlink()
    for name in (part.name, "libnvrtc.so.13"):  # as a distribution has it: links in one folder, files in another
        (other / name).symlink_to(folder / name)
    shutil.copy(clone / "build/atlasc", tmp_path / "atlasc")
    got = bare(
        "env",
        f"LD_LIBRARY_PATH={other}",
        tmp_path / "atlasc",
        "tests/fixtures/llama-trained",
        "-q",
        "-o",
        tmp_path / "plan.bin",
        "--cache-dir",
        kernel_cache,
        cwd=clone,
    )
    assert got.returncode == 0, got.stderr
    (other / part.name).unlink()  # and only libnvrtc is linked
    got = bare(
        "env",
        f"LD_LIBRARY_PATH={other}",
        tmp_path / "atlasc",
        "tests/fixtures/llama-trained",
        "-q",
        "-o",
        tmp_path / "plan.bin",
        "--cache-dir",
        kernel_cache,
        cwd=clone,
    )
    assert got.returncode == 0, got.stderr


def test_second_make_does_nothing_and_a_header_rebuilds(clone):
    again = make(clone)
    assert (again.returncode, again.stdout.replace("make: Nothing to be done for 'all'.\n", "")) == (0, "")
    os.utime(clone / "runtime/device.h")
    again = make(clone)
    assert again.returncode == 0
    assert "build/libatlas.so" in again.stdout and "build/atlas\n" in again.stdout
    assert "build/atlasc" not in again.stdout and "kernelgen" not in again.stdout


def test_installed_tree_works_alone(clone, bare, tmp_path, kernel_cache):
    root = tmp_path / "root"
    got = make(clone, "install", f"DESTDIR={root}", "PREFIX=/usr")
    assert got.returncode == 0, got.stderr
    shutil.move(clone / "build/deps", clone / "build/deps.away")
    try:
        for name in ("atlasc", "atlas"):
            got = subprocess.run(
                [root / "usr/bin" / name, "--version"], text=True, capture_output=True, check=False, timeout=60
            )
            assert got.returncode == 0, got.stderr
            assert got.stdout.startswith(name + " ")
        got = compiles(bare, root / "usr/bin/atlasc", tmp_path / "plan.bin", kernel_cache)
        assert got.returncode == 0, got.stderr
        root.rename(tmp_path / "elsewhere")  # as a package is made in one folder and unpacked in another
        got = compiles(bare, tmp_path / "elsewhere/usr/bin/atlasc", tmp_path / "plan.bin", kernel_cache)
        assert got.returncode == 0, got.stderr
        (tmp_path / "elsewhere").rename(root)
    finally:
        shutil.move(clone / "build/deps.away", clone / "build/deps")
    for name in (
        "man/man1/atlasc.1",
        "man/man1/atlas-run.1",
        "man/man5/MODEL.toml.5",
        "bash-completion/completions/atlas",
    ):
        assert (root / "usr/share" / name).stat().st_size > 0
    source = tmp_path / "user.c"
    source.write_text("#include <atlas.h>\nint main(void) { return 0; }\n")
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Werror",
            f"-I{root}/usr/include",
            source,
            "-o",
            tmp_path / "user",
            f"-L{root}/usr/lib",
            "-latlas",
        ],
        check=True,
    )
