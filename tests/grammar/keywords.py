"""Random schemas of all keywords and their combinations, and random values near them."""

from __future__ import annotations

import json

NAMES = ["a", "ab", "b", "x_1", "é", 'q"z', "n y"]
KEYS = ["^a", "b$", "^x_", "[0-9]", "^.{1,2}$", "é"]
PATTERNS = ["^[a-c]+$", "a|b", "^a.*b$", "\\d{2}", '^[^"]*$', "^(a|bc)*$", "^.$", "é+", "^x{2,4}$", "^(?:ab)?c"]
FORMATS = ["date", "uuid", "ipv4", "email", "hostname", "json-pointer", "unknown-format"]
SCALARS = [
    "red",
    "re",
    1,
    0,
    -1,
    1.5,
    2,
    None,
    True,
    False,
    "a b",
    "",
    "é",
    "\u2028",
    'a"b\\',
    "aa",
    "ab",
    100,
    2**53 + 1,
]
NUMBERS = [0, 1, -1, 2, 5, 10, -10, 0.5, -0.5, 1.25, 99, 100, 1e-3, -2.75, 1e3, 2**53 + 1, 3]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]


class Schemas:
    """schema() gives one after the other, of at most three levels besides those of values."""

    def __init__(self, rng):
        self.rng = rng

    def some(self, chance, members):
        """Those of `members`, a dict of functions, that chance keeps."""
        return {key: make() for key, make in members.items() if self.rng.random() < chance}

    def of_strings(self):
        counts, r = [0, 1, 2, 3, 5, 8], self.rng
        members = self.some(0.4, {"minLength": lambda: r.choice(counts[:4]), "maxLength": lambda: r.choice(counts)})
        members |= self.some(0.35, {"pattern": lambda: r.choice(PATTERNS)})
        return members | self.some(0.1, {"format": lambda: r.choice(FORMATS)})

    def of_numbers(self):
        r = self.rng
        lower, upper = r.choice(["minimum", "exclusiveMinimum"]), r.choice(["maximum", "exclusiveMaximum"])
        members = self.some(0.4, {lower: lambda: r.choice(NUMBERS), upper: lambda: r.choice(NUMBERS)})
        return members | self.some(0.15, {"multipleOf": lambda: r.choice([1, 2, 3, 0.5, 0.25, 5, 10])})

    def of_arrays(self, depth):
        r = self.rng
        members = self.some(0.4, {"minItems": lambda: r.randrange(4), "maxItems": lambda: r.randrange(5)})
        members |= self.some(0.3, {"prefixItems": lambda: [self.schema(depth + 1) for _ in range(r.randrange(1, 3))]})
        members |= self.some(0.5, {"items": lambda: self.schema(depth + 1)})
        return members | self.some(0.06, {"uniqueItems": lambda: r.choice([True, False])})

    def of_names(self):
        some = [self.of_strings(), {"enum": ["a", "b", "é"]}, {"pattern": "^[ab]"}, {"not": {"const": "a"}},
                {"type": "integer"}, {"maxLength": 1}, True]  # fmt: skip
        return self.rng.choice(some)

    def of_objects(self, depth):
        r = self.rng
        more = [False, False, True]
        members = self.some(0.75, {"properties": lambda: {
            name: self.schema(depth + 1) for name in r.sample(NAMES, r.randrange(4))}})  # fmt: skip
        members |= self.some(0.5, {"required": lambda: r.sample(NAMES, r.randrange(3)),
                                   "additionalProperties": lambda: r.choice([*more, self.schema(depth + 1)])})  # fmt: skip
        members |= self.some(0.2, {
            "patternProperties": lambda: {k: self.schema(depth + 1) for k in r.sample(KEYS, r.randrange(1, 3))},
            "minProperties": lambda: r.randrange(4), "maxProperties": lambda: r.randrange(4),
            "unevaluatedProperties": lambda: r.choice([*more, self.schema(depth + 1)])})  # fmt: skip
        return members | self.some(0.12, {"propertyNames": self.of_names})

    def of_values(self):
        r = self.rng
        values = r.sample(SCALARS, r.randrange(1, 5)) + (r.choice([[], [[1, "a"], {"a": 1}, [], [1, 1]]]))
        members = {"enum": values} if r.random() < 0.7 else {"const": r.choice(SCALARS)}
        members |= self.of_strings() if r.random() < 0.2 else {}
        members |= self.of_numbers() if r.random() < 0.2 else {}
        return members | self.some(0.1, {"type": lambda: r.choice(TYPES), "uniqueItems": lambda: True})

    def together(self, depth):
        r = self.rng
        key = r.choice(["anyOf", "allOf", "allOf", "oneOf"])
        members = {key: [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]}
        members |= self.of_objects(depth + 1) if r.random() < 0.4 else {}
        members |= self.of_arrays(depth + 1) if r.random() < 0.15 else {}
        members |= self.of_strings() if r.random() < 0.2 else {}
        members |= self.of_numbers() if r.random() < 0.2 else {}
        members |= self.some(0.1, {"type": lambda: r.choice([*TYPES, ["string", "null"]])})
        return members | self.some(0.08, {"anyOf": lambda: [self.schema(depth + 1) for _ in range(2)]})

    def conditions(self, depth):
        """What changes the seed of no schema without it: it is drawn last."""
        r, make = self.rng, lambda: self.schema(depth + 2)
        kind = r.choice(["not", "not", "if", "if", "dependentRequired", "dependentSchemas", "contains",
                         "contains", "unevaluatedItems"])  # fmt: skip
        if kind == "if":
            return {"if": make()} | self.some(0.7, {"then": make, "else": make})
        if kind == "unevaluatedItems":
            members = {kind: r.choice([False, False, make()]), "allOf": [{"prefixItems": [make(), True]}]}
            members |= self.some(
                0.4, {"anyOf": lambda: [{"prefixItems": [make()]}, {"contains": make()}, {"items": make()}]}
            )
            return members | {"type": "array"}
        if kind == "contains" and r.random() < 0.6:
            counts = {"minContains": lambda: r.randrange(4), "maxContains": lambda: r.randrange(1, 4)}
            return {kind: make()} | self.some(0.6, counts) | self.some(0.5, {"type": lambda: "array"})
        if kind == "dependentRequired":
            return {kind: {r.choice(NAMES): r.sample(NAMES, r.randrange(3)) for _ in range(r.randrange(1, 3))}}
        return {kind: {r.choice(NAMES): make()} if kind == "dependentSchemas" else make()}

    def reference(self):
        members = {"$ref": self.rng.choice(["#/$defs/d0", "#/$defs/d1", "#"])}
        members |= self.of_strings() if self.rng.random() < 0.2 else {}
        return members | (self.of_objects(3) if self.rng.random() < 0.2 else {})

    def schema(self, depth=0):
        r = self.rng
        if depth > 0 and r.random() < 0.06:
            return r.choice([True, False, True])
        chance = r.random()
        if chance < 0.12:
            return self.of_values()
        if chance < 0.16 and depth > 0:
            return self.reference()
        if chance < 0.36 and depth < 3:
            return self.together(depth)
        kind = r.choices(TYPES, [4, 3, 3, 2, 2, 1, 1])[0]
        if depth >= 3 and kind in ("object", "array"):
            kind = "string"
        given = r.choice([kind] * 8 + [None, sorted({kind, r.choice(TYPES)})])
        members = {} if given is None else {"type": given}
        if kind in ("object", "array"):
            return members | (self.of_objects(depth) if kind == "object" else self.of_arrays(depth))
        if kind in ("number", "integer"):
            return members | self.of_numbers()
        return members | (self.of_strings() if kind == "string" else {})


def schema_of_all(rng, conditions=False):
    schemas = Schemas(rng)
    schema = schemas.schema()
    if conditions and isinstance(schema, dict):
        schema = schema | schemas.conditions(0)
    if '"$ref"' in json.dumps(schema):
        schema = schema | {"$defs": {"d0": schemas.schema(2), "d1": schemas.schema(2)}}
    return schema


def value(rng, depth=0):
    chance = rng.random()
    if chance < 0.35 and depth < 3:
        return {rng.choice([*NAMES, "zz", "a1", "b"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    if chance < 0.55 and depth < 3:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if chance < 0.75:
        return rng.choice(["", "a", "b", "abc", "12", "é", "xx", "a b", "2020-01-02", "\t", "aab"])
    if chance < 0.9:
        return rng.choice([0, 1, -1, 2, 5, 10, 100, 3, -7, 0.5, 1.25, 1000, 2**53, 2**53 + 1])
    return rng.choice([None, True, False])


def near(rng, of):
    """A value with one place of it changed."""
    if isinstance(of, dict) and of and rng.random() < 0.7:
        key, chance = rng.choice(sorted(of)), rng.random()
        if chance < 0.3:
            return {k: v for k, v in of.items() if k != key}
        return of | ({rng.choice([*NAMES, "zz"]): value(rng, 2)} if chance < 0.6 else {key: near(rng, of[key])})
    if isinstance(of, list) and of and rng.random() < 0.7:
        i, chance = rng.randrange(len(of)), rng.random()
        if chance < 0.3:
            return of[:i] + of[i + 1 :]
        return [*of, value(rng, 2)] if chance < 0.6 else of[:i] + [near(rng, of[i])] + of[i + 1 :]
    return value(rng, 2)
