"""Names, per card of kernels/tuning, the templates of which the present source has no measured times.

    scripts/retune_needed.py [--fail] BUILD

Reads the hashes of the sources from BUILD/gen/kernel_table.c. `changed`: the times are of another source, atlasc
ignores them (A0704). `none`: the card has no times of the template, atlasc estimates. --fail: exit code 1 if
any template is `changed`.
"""

import pathlib
import re
import sys
import tomllib

fail = sys.argv[1] == "--fail"
table = pathlib.Path(sys.argv[-1], "gen/kernel_table.c").read_text()
present = {name: "".join(re.findall(r"0x(..)", digest)) for name, digest in re.findall(
    r"\.sources = sources_(\w+),.*?\.source_sha256 = \{(.*?)\}", table, re.S)}
if not present:
    sys.exit(f"{sys.argv[-1]}/gen/kernel_table.c: no hash of a source was found")
any_changed = False
for path in sorted(pathlib.Path("kernels/tuning").glob("*.toml")):
    times = tomllib.loads(path.read_text())["templates"]
    changed = sorted(name for name in present if name in times and times[name] != present[name])
    none = sorted(present.keys() - times.keys())
    gone = sorted(times.keys() - present.keys())
    any_changed |= bool(changed)
    print(f"{path}: {len(present)} templates, {len(present) - len(changed) - len(none)} with times of their source")
    for what, names in (("changed", changed), ("none", none), ("no such template", gone)):
        if names:
            print(f"  {what}: {' '.join(names)}")
sys.exit(fail and any_changed)
