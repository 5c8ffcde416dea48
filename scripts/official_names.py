"""Names and shapes of models as the classes of transformers have them, for tests/published/official-names.txt.

    python scripts/official_names.py >tests/published/official-names.txt

Needs torch and transformers; nothing is allocated. The drafting head (mtp.*) has no class there. Experts are fused in
these classes, whatever the published files do.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "published"))
import official  # noqa: E402


def main():
    seen = {}
    print(
        f"# Made by scripts/official_names.py with transformers {transformers.__version__}: tensors, SHA-256 of their names and shapes"
    )
    for name, row in official.models().items():
        config = official.config_files(row, 0, 1)["config.json"]
        config.pop("quantization_config", None)
        text = json.dumps(config)
        if text not in seen:
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "config.json").write_text(text, encoding="utf-8")
                loaded = transformers.AutoConfig.from_pretrained(folder)
            with torch.device("meta"):
                model = getattr(transformers, loaded.architectures[0])._from_config(loaded)
            seen[text] = official.digest_of((n, tuple(t.shape)) for n, t in model.state_dict().items())
        print(name, seen[text])


if __name__ == "__main__":
    main()
