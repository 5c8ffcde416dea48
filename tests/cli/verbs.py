"""The verbs of atlas, in the order of its help: pages, completion, suggestions and usage are tested for each."""

VERBS = [
    "run",
    "chat",
    "serve",
    "info",
    "audit",
    "diff",
    "memory",
    "verify",
    "receipt",
    "sign",
    "bench",
    "perplexity",
    "tune",
    "calibrate",
    "dump",
]
